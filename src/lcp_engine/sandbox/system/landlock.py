"""Confine a thread, and all that it starts, to some directories for good (landlock(7))."""

from __future__ import annotations

import codecs
import ctypes
import os
import signal
import stat
from collections.abc import Iterable
from contextlib import suppress
from enum import IntFlag, StrEnum
from functools import cache
from importlib import import_module

from lcp_engine.core.health import Finding, broken, doubtful, well
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.reading.encoding import NAMED
from lcp_engine.sandbox.system.seccomp import can_filter
from lcp_engine.sandbox.system.syscalls import landlock_version, system_call

# linux/landlock.h: rights on files, by the version that introduced them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
_TRUNCATE = 1 << 14
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_READING = _READ_FILE | _READ_DIR
_WRITING = _READING | _WRITE_FILE | _MAKE_REG | _MAKE_DIR | _REMOVE_FILE | _REMOVE_DIR
_TCP, _TCP_SINCE = 0b11, 4  # bind, connect
_SCOPES, _SCOPES_SINCE = 0b11, 6  # abstract Unix sockets, signals
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38  # linux/prctl.h


_LOADED_LATE = (
    "chardetng_py",
    "traceback",
    "linecache",
    "tokenize",
    "logging",
    "unicodedata",
    "pydantic.v1.utils",
)


class Isolation(StrEnum):
    """Whether file kinds run in confined processes: `auto` if the kernel has Landlock, `require` or `off`."""

    REQUIRE = "require"
    AUTO = "auto"
    OFF = "off"


def isolation_named(given: str, name: str) -> Isolation:
    """The mode that `given` states, which messages call `name`. Raises `INVALID_ARGUMENT`."""
    try:
        return Isolation(given)
    except ValueError:
        message = f"{name} is {given!r}; it must be one of {', '.join(Isolation)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from None


def isolates(mode: Isolation) -> bool:
    """True if file kinds run in confined processes. Raises `NOT_ISOLATED` if that is required and impossible."""
    if mode is Isolation.OFF:
        return False
    if landlock_version() is None and mode is Isolation.REQUIRE:
        raise LcpError(
            ErrorCode.NOT_ISOLATED, "isolation is set to require; this kernel offers no Landlock to runners"
        )
    return landlock_version() is not None


def examine_isolation(mode: Isolation) -> Finding:
    """Report which protection file kinds have besides the confinement of each path."""
    version = landlock_version()
    if version is not None and mode is not Isolation.OFF:
        calls = "system calls filtered" if can_filter() else "system calls not filtered"
        fact = f"file kinds run in processes confined to the root (Landlock {version}, {calls})"
        return well("isolation", fact)
    if mode is Isolation.REQUIRE:
        return broken("isolation", Failed(ErrorCode.NOT_ISOLATED, "it is required, and there is no Landlock"))
    fact = "switched off" if version is not None else "this kernel offers no Landlock"
    advice = "File kinds run in the runner; every path is confined one by one. See docs/isolation.md."
    return doubtful("isolation", fact, advice)


class Rights(IntFlag):
    """Rights of a confined process beneath a directory, or with one file."""

    READS = _READING
    WRITES = _WRITING
    """It may also create, replace and remove files and directories; nothing can be executed or linked."""
    EXECUTES = _READING | _EXECUTE
    LISTS = _READ_DIR
    DEVICE = _READ_FILE | _WRITE_FILE
    OWNS = (1 << 15) - 1 & ~_MAKE_DEVICES
    """It may do anything there but make devices."""


def restrict_to(*directories: int, writes: bool) -> None:
    """Let this thread, and all that it starts, open only what is beneath `directories`, for reading unless it `writes`.

    From version 4 on TCP is blocked, from 6 on signals to processes outside. Open descriptors stay usable; what has no
    file to open is not covered (`seccomp`). Raises OSError.
    """
    rights = Rights.WRITES if writes else Rights.READS
    rules = make_rules([(directory, rights) for directory in directories])
    try:
        restrict_by(rules)
    finally:
        os.close(rules)


def make_rules(granted: Iterable[tuple[int, Rights]], *, network: bool = False) -> int:
    """A descriptor of rules for `restrict_by`, which grant rights on opened files and directories, and the network.

    Raises OSError.
    """
    version = landlock_version()
    if version is None:
        raise OSError("this kernel has no Landlock")
    handled = sum(bits for since, bits in _RIGHTS.items() if since <= version)
    ruleset = _Ruleset(
        handled,
        _TCP if version >= _TCP_SINCE and not network else 0,
        _SCOPES if version >= _SCOPES_SINCE else 0,
    )
    # An older kernel knows a shorter structure, and accepts a longer one whose rest is zero.
    opened = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0)
    try:
        for descriptor, rights in granted:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            rule = _PathBeneath(rights & handled & (~0 if is_directory else _ON_FILES), descriptor)
            _call(_ADD_RULE, opened, _PATH_BENEATH, ctypes.byref(rule), 0)
    except OSError:
        os.close(opened)
        raise
    return opened


def restrict_by(rules: int) -> None:
    """Apply `make_rules` to this thread, and all that it starts, for good. Raises OSError."""
    forbid_new_privileges()
    _call(_RESTRICT_SELF, rules, 0)


def forbid_abstract_sockets() -> None:
    """Keep this thread, and all that it starts, from Unix sockets without a file that others listen on.

    They belong to the network: who shares that of the host would reach its desktop by them. Mounts stay possible.
    Before Linux 6.12 nothing happens. Raises OSError.
    """
    if (landlock_version() or 0) >= _SCOPES_SINCE:
        ruleset = _Ruleset(0, 0, 0b01)
        opened = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0)
        restrict_by(opened)
        os.close(opened)


def forbid_new_privileges() -> None:
    """Let this thread, and all that it starts, gain no rights by executing a program: walls need it. Raises OSError."""
    _control(_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent, the single-threaded process `parent`, ends."""
    _control(_PARENT_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os._exit(0)


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants whose own parents end."""
    _control(_CHILD_SUBREAPER, 1)


@cache
def load_late() -> None:
    """Load what file kinds would only import on first use: once confined, they can open no module. Once a process."""
    for name in NAMED:
        codecs.lookup(name)
    for name in _LOADED_LATE:
        with suppress(ImportError):
            import_module(name)
    compile_patterns(["a/*/b", "[ab]c", "!d/"])


_PARENT_DEATH_SIGNAL = 1
_CHILD_SUBREAPER = 36


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _call(number: int, *arguments: object) -> int:
    found = system_call()(
        ctypes.c_long(number), *(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    )
    if found < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
    return found


def _control(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) != 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
