"""Find what programs need beside the system: toolchains and caches in the home directory, without their credentials.

`cargo` reads `~/.cargo` and `~/.rustup`, a shim of pyenv all of `~/.pyenv`. Inside the wall the home directory is
another one, so variables say where these places are. To read them is enough but for some caches.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from lcp_engine.core.paths.secret_files import is_secret
from lcp_engine.features.programs.wall.views.view import Bind
from lcp_engine.sandbox.system.installed_programs import Places, interpreters_of, is_in, places_of
from lcp_engine.sandbox.system.own_places import own_directories

_RUST = ("cargo", "cargo-*", "rustc", "rustdoc", "rustfmt", "rustup", "clippy-driver", "maturin")
_JAVA = ("java", "javac", "jar", "javadoc", "jshell", "mvn", "mvnw", "mvnd", "gradle", "gradlew", "kotlin*", "scala*",
         "sbt", "ant")  # fmt: skip
_NODE = ("node", "npm", "npx", "corepack")
_RUN_OTHERS = frozenset(
    {"ash", "bash", "cmake", "ctest", "dash", "env", "gmake", "just", "ksh", "make", "meson", "ninja", "nox", "npm",
     "npx", "pnpm", "pre-commit", "sh", "task", "tox", "yarn", "zsh"}
)  # fmt: skip
"""Programs that run others, whose toolchains they need."""
_ANY = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/perl", "/etc/pki/ca-trust", "/etc/pki/java",
    "/etc/pki/tls/certs", "/etc/python3*", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/var/lib/gems", "/var/lib/ghc",
    "/var/lib/texmf",
)  # fmt: skip
_OF_CERTIFICATES = (
    "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that name certificates of authorities; they are passed on, with what they name."""
_ETC_OF_JAVA = ("/etc/ant", "/etc/gradle", "/etc/java", "/etc/java-*", "/etc/maven")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_CREDENTIAL = re.compile(
    rb"(?i)((token|passw(or)?d|passphrase|pwd|secret|(private|api)_?key|_(auth|key|pat)|authorization)[\w.-]*|pass)"
    rb"[\"']?\s*([=:>]|\(?\s*[\"'])"  # settings, XML, and the calls of Groovy and Kotlin
    rb"|https?://[^/\s@\"'<>]+@|[\w.+-]{1,64}:(?!git@)[^/:\s@\"'<>]{1,200}@[\w-]"
)
_KEY = re.compile(rb"PRIVATE KEY-----")
_MOST_READ = 1024 * 1024
_READ_BY_ALL = stat.S_IROTH | stat.S_IXOTH


@dataclass(frozen=True)
class Place:
    """A file or directory that a program needs to read, but for `masked` files in it, which hold credentials."""

    source: str
    masked: tuple[str, ...] = ()
    is_written: bool = False
    """Whether programs write there, too: a cache, over which an overlay belongs. Its writes need not last."""

    @property
    def parts(self) -> Iterator[str]:
        """Paths in it beside the masked files: all that is beneath each of these may be read."""
        waiting = [self.source]
        while waiting:
            path = waiting.pop()
            if not any(is_in([path], one) for one in self.masked):
                yield path
            elif path not in self.masked:
                with suppress(OSError):
                    waiting += [entry.path for entry in os.scandir(path)]


@dataclass(frozen=True)
class Toolchain:
    """Everything that a program needs beside the system, and the variables that say where that is."""

    places: tuple[Place, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def binds(self) -> Iterator[Bind]:
        """Everything that is only read, at its own path."""
        for place in self.places:
            for part in place.parts:
                if not (place.is_written and os.path.isdir(part)):
                    yield Bind(part, part)

    @property
    def caches(self) -> Iterator[str]:
        """Directories that programs write in."""
        written = dict.fromkeys(part for place in self.places if place.is_written for part in place.parts)
        return filter(os.path.isdir, written)


def joined_variables(*environments: Mapping[str, str]) -> dict[str, str]:
    """All variables: the last value of each counts, but options of Maven and Gradle (`MAVEN_OPTS`) are joined."""
    found: dict[str, str] = {}
    for name, value in (item for one in environments for item in one.items()):
        is_added = name.endswith("_OPTS") and name in found
        found[name] = f"{found[name]} {value}" if is_added else value
    return found


class _Access(Enum):
    """Use that programs make of a directory."""

    READ = "it is read"
    EITHER = "a cache, which is only read where it cannot be written"
    WRITE = "a cache that has to be written"


@dataclass(frozen=True)
class _Store:
    """A directory that some programs use: where `variable` says, else `place` beneath the home directory."""

    variable: str
    place: str
    programs: tuple[str, ...] = ()
    """Names of programs; without any, those that lie in it."""
    secrets: tuple[str, ...] = ()
    """Files in it that are masked."""
    doubtful: tuple[str, ...] = ()
    """Files in it that are masked if they name a credential."""
    access: _Access = _Access.READ
    setting: str = "{}"
    """Value of the variable, in which `{}` is the place."""
    otherwise: str = ""
    """Value where the place is not shown, in which `{}` is the program's own home, which Java finds by no variable."""


_STORES = (
    _Store("CARGO_HOME", ".cargo", _RUST, ("credentials", "credentials.toml"), ("config", "config.toml"),
           _Access.EITHER),
    _Store("RUSTUP_HOME", ".rustup", _RUST),
    _Store("GOMODCACHE", "go/pkg/mod", ("go", "gopls"), access=_Access.EITHER),
    _Store("MAVEN_OPTS", ".m2", ("mvn", "mvnw", "mvnd"), ("settings-security.xml",), ("settings.xml",),
           _Access.EITHER, "-Dmaven.repo.local={}/repository", "-Duser.home={}"),
    _Store("GRADLE_USER_HOME", ".gradle", ("gradle", "gradlew"), (), ("gradle.properties", "init.gradle*", "init.d/*"),
           _Access.WRITE, otherwise="{}/.gradle"),
    _Store("npm_config_cache", ".npm", _NODE, access=_Access.WRITE),
    _Store("PNPM_HOME", ".local/share/pnpm", ("pnpm",), access=_Access.WRITE),
    _Store("pnpm_config_store_dir", ".local/share/pnpm/store", ("pnpm",), access=_Access.WRITE),
    _Store("pnpm_config_cache_dir", ".cache/pnpm", ("pnpm",), access=_Access.WRITE),
    _Store("YARN_CACHE_FOLDER", ".cache/yarn", ("yarn",), access=_Access.WRITE),
    _Store("YARN_GLOBAL_FOLDER", ".yarn/berry", (*_NODE, "yarn", "yarnpkg"), access=_Access.EITHER),
    _Store("BUN_INSTALL_CACHE_DIR", ".bun/install/cache", ("bun", "bunx"), access=_Access.WRITE),
    _Store("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", ("uv", "uvx"), access=_Access.EITHER),
    _Store("UV_TOOL_DIR", ".local/share/uv/tools", ("uv", "uvx"), access=_Access.EITHER),
    _Store("UV_CACHE_DIR", ".cache/uv", ("uv", "uvx"), access=_Access.WRITE),
    _Store("POETRY_VIRTUALENVS_PATH", ".cache/pypoetry/virtualenvs", ("poetry",)),
    _Store("WORKON_HOME", ".local/share/virtualenvs", ("pipenv",)),
    _Store("PRE_COMMIT_HOME", ".cache/pre-commit", ("pre-commit",), access=_Access.WRITE),
    _Store("HATCH_DATA_DIR", ".local/share/hatch", ("hatch",)),
    _Store("NUGET_PACKAGES", ".nuget/packages", ("dotnet",), access=_Access.WRITE),
    _Store("DENO_DIR", ".cache/deno", ("deno",), access=_Access.WRITE),
    _Store("PYENV_ROOT", ".pyenv"),
    _Store("RBENV_ROOT", ".rbenv"),
    _Store("NODENV_ROOT", ".nodenv"),
    _Store("GOENV_ROOT", ".goenv"),
    _Store("JENV_ROOT", ".jenv"),
    _Store("ASDF_DATA_DIR", ".asdf"),
    _Store("MISE_DATA_DIR", ".local/share/mise"),
    _Store("VOLTA_HOME", ".volta"),
)  # fmt: skip


def installed_place(path: str) -> Place:
    """A place in which something is installed, without its repository and the secrets that lie at its top."""
    return Place(path, tuple(sorted(_secrets_in(Path(path)))))


def toolchain_of(
    path: str,
    home: Path,
    environment: Mapping[str, str],
    *,
    foreign: Sequence[str] = (),
    own_home: str = "",
    can_write: bool = True,
    user: int | None = None,
    is_alone: bool = False,
    runs_others: bool = False,
) -> Toolchain:
    """Find what a program needs, which is at `path`, for a user with this home directory and environment.

    `own_home` is the home directory that the program has itself. One that `is_alone` runs no others of `PATH`.
    Where nothing can be written over its caches, or they are not those of the `user` that it runs as, those are left
    out that are of no use then.

    A program that runs others (`runs_others` says it of any), and each one beneath `foreign` directories, such as a
    script of the root, needs what all programs need that `PATH` has.
    """
    foreign = Places.of(foreign)
    programs = {path: _names_of(path)}
    own_names = {os.path.basename(path), os.path.basename(os.path.realpath(path))}
    runs_others = runs_others or is_in(foreign, path) or not _RUN_OTHERS.isdisjoint(own_names)
    if runs_others and not is_alone:
        programs |= {found: _names_of(found) for found in _all_of(environment, foreign)}
    private = Places.of(map(os.path.normpath, (str(home), str(Path.home()), *own_directories())))
    places, variables = dict[str, Place](), dict[str, str]()
    all_names = frozenset[str]().union(*programs.values())
    for found in _of_system(all_names):
        places[found] = Place(found, _credentials_in(found, (), ("settings.xml",)))
    for store in _STORES:
        place = environment.get(store.variable, "") if store.setting == "{}" else ""
        place = place or str(home / store.place)
        if not _is_used(store, place, programs, all_names):
            continue
        is_written = can_write and store.access is not _Access.READ and _is_of(user, place)
        is_of_use = is_written or (store.access is not _Access.WRITE and _is_of(user, place, or_read=True))
        if is_of_use and _may_be_shown(place, private):
            masked = _credentials_in(place, store.secrets, store.doubtful, _secrets_in(Path(place)))
            places[place] = Place(place, masked, is_written)
            variables[store.variable] = store.setting.format(place)
        elif store.otherwise and own_home:
            variables[store.variable] = store.otherwise.format(own_home)
    shown = Places.of(places)
    certificates = _certificates(environment, private, shown)
    for one in (*_installed(programs, foreign), *certificates.values()):
        if not is_in(shown, one):
            places[one] = installed_place(one)
            shown = Places((*shown, *Places.of([one])))
    return Toolchain(tuple(places.values()), {**variables, **certificates})


def _installed(programs: Iterable[str], foreign: Sequence[str]) -> Iterator[str]:
    """Where programs are installed, but for the system and the foreign directories."""
    shown = Places.of((*_SYSTEM, *foreign))
    # Of the names that one program has in one directory, such as those of rustup, one tells where it is.
    distinct = {(os.path.dirname(one), os.path.realpath(one)): one for one in programs}
    for (_, real), program in distinct.items():
        if real.startswith("/usr/"):
            continue
        for one in places_of(program, foreign=foreign):
            if not is_in(shown, one) and os.path.exists(one):
                yield one


def _names_of(path: str) -> frozenset[str]:
    """Names of a program, of what its links lead to, and of its interpreters."""
    found = [path, os.path.realpath(path)]
    found += interpreters_of(found[1])
    return frozenset(map(os.path.basename, found))


def _all_of(environment: Mapping[str, str], foreign: Sequence[str]) -> Iterator[str]:
    path = os.pathsep.join(
        one
        for one in environment.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(one) and not is_in(foreign, one)
    )
    names = {name for store in _STORES for name in store.programs if "*" not in name}
    for name in sorted(names | {"python3", "pytest", "ruby", *(one for one in _JAVA if "*" not in one)}):
        if (found := shutil.which(name, path=path)) is not None:
            yield found


def _of_system(names: Iterable[str]) -> Iterator[str]:
    patterns = (*_ANY, *(_ETC_OF_JAVA if any(_is_named(name, _JAVA) for name in names) else ()))
    for pattern in patterns:
        yield from filter(os.path.exists, sorted(glob(pattern)))


def _is_used(store: _Store, place: str, programs: Iterable[str], names: Iterable[str]) -> bool:
    if store.programs:
        return any(_is_named(name, store.programs) for name in names)
    around = Places.of([place] if os.path.exists(place) else [])
    return bool(around) and any(is_in(around, path) for path in programs)


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_of(user: int | None, place: str, *, or_read: bool = False) -> bool:
    """True if a place is there, and belongs to the user of the program or, with `or_read`, can be read by all."""
    try:
        status = os.stat(place)
    except OSError:
        return False
    return user in (None, status.st_uid) or (or_read and status.st_mode & _READ_BY_ALL == _READ_BY_ALL)


def _may_be_shown(place: str, private: Places) -> bool:
    """True if the place is there, and neither the home directory nor the engine's own files are in it."""
    if not (os.path.isabs(place) and os.path.exists(place)):
        return False
    around = Places.of([place])
    return not any(map(around.hold, private))


def _certificates(environment: Mapping[str, str], private: Places, shown: Sequence[str]) -> dict[str, str]:
    """Variables that name certificates without a private key beside them."""
    stated = {name: environment[name] for name in _OF_CERTIFICATES if environment.get(name)}
    return {
        name: place
        for name, place in stated.items()
        if _may_be_shown(place, private) and (is_in(shown, place) or not _has_key(place))
    }


def _has_key(place: str) -> bool:
    """True if a file or directory for certificates has a private key in it, or cannot be read."""
    files = [place] if os.path.isfile(place) else [one.path for one in os.scandir(place)]
    return any(_finds(_KEY, Path(file)) for file in files if os.path.isfile(file))


def _credentials_in(
    place: str, secrets: Sequence[str], doubtful: Sequence[str], named: Iterable[str] = ()
) -> tuple[str, ...]:
    directory = Path(place)
    certain = {str(file) for pattern in secrets for file in directory.glob(pattern)}
    judged = {str(file) for pattern in doubtful for file in directory.glob(pattern)}
    found = {file for file in judged if has_credential(Path(file))}
    return tuple(sorted(certain | found | ({*named} - judged)))


def _secrets_in(place: Path) -> Iterator[str]:
    """Paths of a directory itself with names that secrets have, and its repository."""
    for one in place.glob("*"):
        if one.name == ".git" or is_secret(f"{place.name}/{one.name}".casefold()):
            yield str(one)


def has_credential(file: Path) -> bool:
    """True if a file of settings has something like a password or a token, or cannot be read."""
    return _finds(_CREDENTIAL, file)


def _finds(expression: re.Pattern[bytes], file: Path) -> bool:
    """True if it is found in a file, comments of XML aside, or if that is too large or cannot be read."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_READ + 1)
    except OSError:
        return True
    return len(text) > _MOST_READ or expression.search(_COMMENT.sub(b"", text)) is not None
