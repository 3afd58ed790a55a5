"""Show a command the repository of its root: read only, without settings that run programs, and without secrets."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lcp_engine.features.programs.wall.views.masks import Rights, Tree, digest, kept_layer, load, save
from lcp_engine.features.programs.wall.views.view import Overlay
from lcp_engine.sandbox.root import Root

MOST_OBJECTS = 1_000_000
MOST_HIDDEN = 20_000
"""Objects without a path that are hidden one by one."""
SECONDS = 20.0
"""How long git may take to list a history."""
_CHANGING_SECONDS = 10.0
"""How long a repository may change: git packs objects in the background."""
_REST_SECONDS = 0.05
_MOST_MEMORY = 2 << 30
_MOST_INDEX = 256 << 20
_MOST_TEXT = 1 << 20
_COARSE = 2_100_000_000
_KEPT, _NAMES = "history", "index"
_SHOWN = frozenset(
    {
        "HEAD", "ORIG_HEAD", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
        "BISECT_LOG", "BISECT_START", "COMMIT_EDITMSG", "SQUASH_MSG", "commondir", "config", "description", "gitdir",
        "index", "info", "objects", "packed-refs", "rebase-apply", "rebase-merge", "refs", "reftable", "sequencer",
        "shallow", "worktrees",
    }
)  # fmt: skip
"""Parts of a repository that are shown. Not so hooks, logs and FETCH_HEAD (with addresses, and tokens in them), `lfs`,
keys of git-crypt, submodules and whatever else programs keep there."""
_HIDDEN = frozenset(
    {"hooks", "logs", "FETCH_HEAD", "lfs", "modules", "config.worktree", "remotes", "branches"}
)
"""Hidden also where it is made while a command runs."""
_HARMLESS = {
    "core": frozenset(
        {
            "repositoryformatversion", "filemode", "bare", "ignorecase", "precomposeunicode", "symlinks",
            "logallrefupdates", "autocrlf", "eol", "sparsecheckout", "sparsecheckoutcone",
        }
    ),
    "extensions": frozenset({"objectformat", "refstorage", "noop", "worktreeconfig", "preciousobjects"}),
}  # fmt: skip
_VALUE = re.compile(r"[A-Za-z0-9_-]{0,40}")


class _LeftOut(Exception):
    """The repository cannot be shown; the text is the reason."""


@dataclass(frozen=True)
class GitView:
    """The repository as a command is shown it; without an overlay it is not, for the `reason`."""

    overlays: tuple[Overlay, ...] = ()
    reason: str = ""
    """Empty if it is shown, or if there is none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    """Content of `.git` where that is the file of a worktree or submodule."""

    @property
    def is_shown(self) -> bool:
        return bool(self.overlays)


@contextmanager
def view_of_git(root: Root, place: Path, rights: Rights, path: str | None = None) -> Iterator[GitView]:
    """The view of the repository of a root that a command sees at `path`, by default its own; `place` is kept.

    The history is judged again when the repository or the policy has changed. Raises OSError if no layer can be made.
    """
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        repository, tree = _judged(root, place, rights)
        reason = ""
    except (_LeftOut, OSError, ValueError) as error:
        repository, tree, reason = None, {}, f".git is not there for commands: {error}"
    if repository is None:
        if not reason and any(os.path.lexists(above / ".git") for above in Path(root.path).parents):
            reason = ".git is not there for commands: it is above the root, with files that are not in it"
        yield GitView(reason=reason)
        return
    with kept_layer(place, digest(tree), lambda: tree) as layer:
        seen = repository.common if repository.is_elsewhere else f"{path or root.path}/.git"
        overlay = Overlay(seen, (repository.common, layer), expected=repository.identity)
        link = f"gitdir: {repository.own}\n" if repository.is_elsewhere else ""
        yield GitView((overlay,), "", _environment(repository), link)


def _judged(root: Root, place: Path, rights: Rights) -> tuple[_Repository | None, Tree]:
    """The repository with the layer above it, looked at again while others change it. Raises `_LeftOut`, OSError."""
    until = time.monotonic() + _CHANGING_SECONDS
    while (repository := _repository(root)) is not None:
        state = _state(repository)
        try:
            return repository, _layer(repository, _hidden_objects(repository, place, rights, state))
        except (_LeftOut, FileNotFoundError):
            if time.monotonic() > until or _state(repository).text == state.text:
                raise
        time.sleep(_REST_SECONDS)
    return None, {}


def tracked(root: Root, place: Path | None = None) -> frozenset[str]:
    """The files in the index of a root's repository; none without one. Raises ValueError for one of another form.

    They are read again when the index has changed, if `place` is the directory that `view_of_git` was given.
    """
    try:
        repository = _repository(root)
    except _LeftOut as error:
        raise ValueError(str(error)) from error
    if repository is None:
        return frozenset()
    began = time.time_ns()
    stamp = _stamp(f"{repository.own}/index")
    key = hashlib.sha256(repr(stamp).encode()).hexdigest()
    kept = None if place is None else load(place / _NAMES, key)
    if kept is not None:
        return frozenset(os.fsdecode(kept).split("\0"))
    names = frozenset(_entries(repository))
    if place is not None and names and max(stamp[:2]) < began - _COARSE:
        save(place / _NAMES, key, b"\0".join(map(os.fsencode, names)))
    return names


@dataclass(frozen=True)
class _Repository:
    """A repository: the directory with its objects, and that of this checkout in it."""

    common: str
    identity: tuple[int, int]
    """Device and inode of `common`."""
    own: str
    is_elsewhere: bool
    """True for that of a worktree or a submodule, to which the file `.git` leads."""
    config: Mapping[str, Mapping[str, str]]

    @property
    def hash_size(self) -> int:
        return 32 if self.config["extensions"].get("objectformat") == "sha256" else 20


def _repository(root: Root) -> _Repository | None:
    try:
        status = os.stat(".git", dir_fd=root.descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    own = f"{root.path}/.git"
    if stat.S_ISDIR(status.st_mode):
        return _checked(own, own, is_elsewhere=False)
    if not stat.S_ISREG(status.st_mode):
        raise _LeftOut("it is a link")
    told = _text(own).strip()
    inner = os.path.realpath(os.path.join(root.path, told.removeprefix("gitdir:").strip()))
    # Only the repository itself says which checkouts it has: a file in a root may name any repository.
    if told.startswith("gitdir:") and Path(inner).parent.name == "worktrees":
        if _text(f"{inner}/gitdir").strip() == own:
            return _checked(os.path.realpath(f"{inner}/../.."), inner, is_elsewhere=True)
    elif told.startswith("gitdir:"):
        tree = _settings(_text(f"{inner}/config"))["core"].get("worktree")
        if tree and os.path.realpath(os.path.join(inner, tree)) == os.path.realpath(root.path):
            return _checked(inner, inner, is_elsewhere=True)
    raise _LeftOut("it leads to a repository that does not name this root as one of its checkouts")


def _checked(common: str, own: str, *, is_elsewhere: bool) -> _Repository:
    status = os.lstat(common)
    if not stat.S_ISDIR(status.st_mode):
        raise _LeftOut(f"{common} is no directory")
    identity = status.st_dev, status.st_ino
    for name in os.listdir(common):
        if name in _SHOWN and stat.S_ISLNK(os.lstat(f"{common}/{name}").st_mode):
            raise _LeftOut(f"{name} in it is a link")
    for name in ("objects", "objects/info", "objects/pack", "refs", "info"):
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(f"{common}/{name}").st_mode):
                raise _LeftOut(f"{name} in it is no directory")
    if os.path.lexists(f"{common}/objects/info/alternates"):
        raise _LeftOut("it borrows the objects of another repository")
    config = _settings(_text(f"{common}/config"))
    if config["extensions"].get("partialclone") is not None:
        raise _LeftOut("it is a partial clone, whose history is not here")
    return _Repository(common, identity, own, is_elsewhere, config)


def _text(path: str) -> str:
    """A small file, whatever it is. Raises OSError, and `_LeftOut` where it is large or no file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _LeftOut(f"{Path(path).name} in it is no file")
        data = file.read(_MOST_TEXT + 1)
    if len(data) > _MOST_TEXT:
        raise _LeftOut(f"{Path(path).name} in it is larger than {_MOST_TEXT:,} bytes")
    return data.decode(errors="replace")


_SECTION = re.compile(r'\[\s*([\w.-]+)\s*("(?:[^"\\]|\\.)*")?\s*\]')


def _settings(text: str) -> dict[str, dict[str, str]]:
    """The settings of the sections `core` and `extensions`, as far as they have plain values (git-config(1))."""
    found: dict[str, dict[str, str]] = {"core": {}, "extensions": {}}
    section = ""
    for line in text.replace("\\\n", "").splitlines():
        rest = line.strip()
        while header := _SECTION.match(rest):
            section = "" if header[2] else header[1].lower()
            rest = rest[header.end() :].strip()
        name, sign, value = rest.partition("=")
        if section in found and name and name[0] not in "#;":
            plain = re.split(r"[#;]", value)[0].strip().strip('"') if sign else "true"
            found[section][name.strip().lower()] = plain
    return found


def _config(settings: Mapping[str, Mapping[str, str]]) -> bytes:
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [
            f"\t{name} = {value}"
            for name, value in values.items()
            if name in _HARMLESS[section] and _VALUE.fullmatch(value)
        ]
    return ("\n".join(lines) + "\n").encode()


def _environment(repository: _Repository) -> dict[str, str]:
    """Settings of every git in a command, in which submodules are no change; they and objects of LFS are not there."""
    settings = {"safe.directory": "*"}
    if os.path.isdir(f"{repository.common}/modules"):
        settings["diff.ignoreSubmodules"] = "all"
    if os.path.isdir(f"{repository.common}/lfs"):
        settings["lfs.storage"] = "/tmp/git-lfs"  # noqa: S108 -- as the program sees it: its own
    return {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
        **{f"GIT_CONFIG_KEY_{at}": name for at, name in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(settings.values())},
    }


def _layer(repository: _Repository, objects: Iterable[str]) -> Tree:
    """Layer above the repository: its harmless settings, and whiteouts."""
    common = repository.common
    tree: Tree = {"": _mode(common), "config": _config(repository.config)}
    for name in {*_HIDDEN, *(one for one in os.listdir(common) if one not in _SHOWN)}:
        tree[name] = None
    with suppress(FileNotFoundError):
        for name in os.listdir(f"{common}/worktrees"):
            inner = f"worktrees/{name}"
            tree["worktrees"], tree[inner] = _mode(f"{common}/worktrees"), _mode(f"{common}/{inner}")
            for one in {
                *_HIDDEN,
                *(found for found in os.listdir(f"{common}/{inner}") if found not in _SHOWN),
            }:
                tree[f"{inner}/{one}"] = None
    for path in objects:
        directory, at = path.rpartition("/")[0], "objects"
        tree[at], tree[directory], tree[path] = _mode(f"{common}/{at}"), _mode(f"{common}/{directory}"), None
    return tree


def _mode(path: str) -> tuple[int, int, int]:
    status = os.lstat(path)
    return (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def _hidden_objects(repository: _Repository, place: Path, rights: Rights, state: _State) -> Sequence[str]:
    """Files of objects that belong to no path. Raises `_LeftOut` for a history with denied paths."""
    key = hashlib.sha256(
        f"{state.text} {rights.policy} {sorted(rights.opened)}".encode(errors="replace")
    ).hexdigest()
    kept = load(place / _KEPT, key)
    if kept is not None:
        reason, *objects = kept.decode().split("\n")
    else:
        objects, reason = [], ""
        try:
            objects = _judge(repository, rights)
        except _LeftOut as error:
            reason = str(error)
        if state.is_settled:
            save(place / _KEPT, key, "\n".join((reason.replace("\n", " "), *objects)).encode())
    if reason:
        raise _LeftOut(reason)
    return [name for name in objects if name]


class _State(NamedTuple):
    """All that tells that objects were added or the index was changed."""

    text: str
    is_settled: bool
    """False if something of it is so new that it may change again without another time."""


def _state(repository: _Repository) -> _State:
    began = time.time_ns()
    places = [f"{repository.common}/{one}" for one in ("objects", "objects/pack", "shallow", "config")]
    places += [f"{repository.common}/objects/{number:02x}" for number in range(256)]
    found = [(path, *_stamp(path)) for path in (*places, f"{repository.own}/index")]
    return _State(repr(found), max(max(one[1:3]) for one in found) < began - _COARSE)


def _stamp(path: str) -> tuple[int, int, int, int]:
    """Times, inode and size of a file or directory; zeros if there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0, 0, 0, 0
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def _judge(repository: _Repository, rights: Rights) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        hidden = [*_unfinished(repository)]
        git = _Git(repository, Path(directory), frozenset(hidden))
        listed = git(
            "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objecttype)"
        )
        objects = dict(line.split(" ") for line in listed.decode().splitlines())
        if len(objects) > MOST_OBJECTS:
            raise _LeftOut(f"it has {len(objects):,} objects; at most {MOST_OBJECTS:,} can be judged")
        commits = "".join(f"{name}\n" for name, kind in objects.items() if kind == "commit").encode()
        # The paths that each commit has and its parents have not: together, all that any commit has.
        options = ("--stdin", "-r", "--root", "-c", "--name-only", "--no-renames", "--no-commit-id", "-z")
        paths = set(git("diff-tree", *options, given=commits).split(b"\0"))
        denied = sorted(path for path in map(os.fsdecode, paths) if path and not rights.may_see(path))
        if denied:
            more = f" and {len(denied) - 1:,} more" if len(denied) > 1 else ""
            raise _LeftOut(f"its history has {denied[0]!r}{more}, which commands may not see")
        known = set(
            git("rev-list", "--objects", "--no-object-names", "--stdin", given=commits).decode().split()
        )
    known.update(name for path, name in _entries(repository).items() if rights.may_see(path))
    loose = [name for name, kind in objects.items() if name not in known and kind != "tag"]
    packed = [name for name in loose if not os.path.lexists(_loose(repository, name))]
    if packed:
        raise _LeftOut(f"object {packed[0]} in its packs belongs to no commit, so that its path is not known")
    if len(loose) > MOST_HIDDEN:
        raise _LeftOut(f"{len(loose):,} of its objects belong to no commit (`git gc` removes old ones)")
    return sorted({*(f"objects/{name[:2]}/{name[2:]}" for name in loose), *hidden})


_FINISHED = re.compile(
    r"pack/(?:pack-[0-9a-f]{40,64}\.\w+|multi-pack-index[\w.-]*)|[0-9a-f]{2}/[0-9a-f]{38,62}|(?:info|pack|[0-9a-f]{2})/?"
)


def _unfinished(repository: _Repository) -> Iterator[str]:
    """Files among the objects that are not judged: of a fetch that was cut off, and packs of what nothing reaches."""
    top = f"{repository.common}/objects"
    names = os.listdir(top)
    inner = [
        f"{name}/{one}" for name in names if _FAN_OUT.fullmatch(name) for one in os.listdir(f"{top}/{name}")
    ]
    cruft = {path.removesuffix(".mtimes") for path in inner if path.endswith(".mtimes")}
    for path in (*names, *inner):
        pack = path.rpartition(".")[0]
        if (
            not _FINISHED.fullmatch(path)
            or (pack in cruft or (cruft and "multi-pack-index" in path))
            or (path.endswith(".pack") and f"{pack}.idx" not in inner)
        ):
            yield f"objects/{path}"


_FAN_OUT = re.compile(r"pack|[0-9a-f]{2}")


def _loose(repository: _Repository, name: str) -> str:
    return f"{repository.common}/objects/{name[:2]}/{name[2:]}"


class _Git:
    """Runs git over the objects of a repository alone: nothing else of it is read, so that no setting of it counts."""

    def __init__(self, repository: _Repository, directory: Path, hidden: Collection[str]) -> None:
        program = shutil.which("git", path="/usr/local/bin:/usr/bin:/bin")
        if program is None:
            raise _LeftOut("git is not installed, which would judge its history")
        self._program, self._directory, self._until = program, directory, time.monotonic() + SECONDS
        (directory / "refs").mkdir()
        _link_objects(repository, directory / "objects", hidden)
        extensions = {"objectformat": "sha256"} if repository.hash_size == 32 else {}
        version = {"repositoryformatversion": "1" if extensions else "0", "bare": "true"}
        (directory / "config").write_bytes(_config({"core": version, "extensions": extensions}))
        (directory / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        with suppress(FileNotFoundError):
            names = re.findall(r"^[0-9a-f]{40,64}$", _text(f"{repository.common}/shallow"), re.MULTILINE)
            (directory / "shallow").write_text("".join(f"{one}\n" for one in names), encoding="ascii")
        status = os.stat(repository.common)
        self._user = status.st_uid if os.getuid() == 0 and status.st_uid != 0 else None
        self._group = status.st_gid if self._user is not None else None
        if self._user is not None:
            for path in (directory, *directory.iterdir(), directory / "objects" / "pack"):
                os.chown(path, self._user, status.st_gid)
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent", "GIT_DIR": str(directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "",
        }  # fmt: skip

    def __call__(self, *arguments: str, given: bytes = b"") -> bytes:
        process = subprocess.Popen(  # noqa: S603 -- git of the system, over a repository that it takes no setting of
            ["/bin/sh", "-c", f'ulimit -v {_MOST_MEMORY >> 10}; exec "$@"', "sh", self._program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._directory,
            env=self._environment,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else [],
        )
        with process:
            try:
                written, told = process.communicate(given, max(0.1, self._until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise _LeftOut(f"its history could not be judged in {SECONDS:g} seconds") from None
            finally:
                process.kill()
        if process.returncode != 0:
            said = told.decode(errors="replace").strip().splitlines()
            raise _LeftOut(f"git cannot read it: {said[-1] if said else process.returncode}")
        return written


def _link_objects(repository: _Repository, to: Path, hidden: Collection[str]) -> None:
    """Lead to the objects that are shown, and to no index or graph of commits, which need not say what they hold."""
    (to / "pack").mkdir(parents=True)
    top = f"{repository.common}/objects"
    for name in os.listdir(top):
        if len(name) == 2 and f"objects/{name}" not in hidden:
            (to / name).symlink_to(f"{top}/{name}")
    with suppress(FileNotFoundError):
        for name in os.listdir(f"{top}/pack"):
            if name.startswith("pack-") and f"objects/pack/{name}" not in hidden:
                (to / "pack" / name).symlink_to(f"{top}/pack/{name}")


_EXTENDED = 0x4000


def _entries(repository: _Repository) -> dict[str, str]:
    """Names in the index, with their objects (gitformat-index(5)). Raises ValueError, and OSError."""
    try:
        descriptor = os.open(
            f"{repository.own}/index", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
    except FileNotFoundError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_MOST_INDEX + 1)
    size, version = repository.hash_size, int.from_bytes(data[4:8], "big")
    if len(data) > _MOST_INDEX or data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("its index has a form that is not known")
    found: dict[str, str] = {}
    at, name = 12, b""
    try:
        for _ in range(int.from_bytes(data[8:12], "big")):
            start, end = at, at + 42 + size
            if data[at + 24] >> 4 == 0 and data[at + 26] >> 4 == 4:
                raise ValueError("it is sparse")
            extended = int.from_bytes(data[end - 2 : end], "big") & _EXTENDED
            at = end + (2 if extended else 0)
            if version == 4:
                strip, at = _number(data, at)
                kept = name[: len(name) - strip] if strip <= len(name) else None
                stop = data.index(b"\0", at)
                if kept is None:
                    raise ValueError("it is damaged")
                name, at = kept + data[at:stop], stop + 1
            else:
                stop = data.index(b"\0", at)
                name = data[at:stop]
                at = start + (stop - start + 8) // 8 * 8
            found[os.fsdecode(name)] = data[start + 40 : start + 40 + size].hex()
    except (IndexError, ValueError) as error:
        raise ValueError(f"its index cannot be read: {error}") from None
    while at + 8 <= len(data) - size:
        if data[at : at + 4] in (b"link", b"sdir"):
            raise ValueError("its index is split or sparse")
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as offsets in packs have it, and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = (value + 1 << 7) | (data[at] & 0x7F)
    return value, at + 1
