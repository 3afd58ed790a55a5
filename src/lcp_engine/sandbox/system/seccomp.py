"""Refuse a process, for good, the system calls that the code of a confined process does not need (seccomp(2)).

Landlock covers the opening of files; this covers what passes it: sockets, new processes and programs, namespaces,
metadata by path, other processes, and the rarer doors of the kernel. Every call up to `_LAST` was judged: the tables
name those that are refused or depend on an argument, and newer ones do not exist for the process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from lcp_engine.sandbox.system.syscalls import system_call

_LAST = 469  # file_setattr, Linux 6.17

# The numbers on x86_64 and aarch64 (asm/unistd_64.h, asm-generic/unistd.h); "-": the call does not exist there.
_REFUSED = """
    socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242
    fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, memfd_create 319 279, memfd_secret 447 447
    unshare 272 97, setns 308 268, chroot 161 51, pivot_root 155 41, mount 165 40, umount2 166 39, mount_setattr 442 442
    open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433
    statmount 457 457, listmount 458 458, open_tree_attr 467 467
    chmod 90 -, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -, fchownat 260 54
    utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88, truncate 76 45, mknod 133 -, mknodat 259 33
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463, getxattr 191 8, lgetxattr 192 9
    getxattrat 464 464, listxattr 194 11, llistxattr 195 12, listxattrat 465 465, removexattr 197 14
    lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466, file_getattr 468 468, file_setattr 469 469
    inotify_init 253 -, inotify_init1 294 26, inotify_add_watch 254 27, fanotify_init 300 262, fanotify_mark 301 263
    name_to_handle_at 303 264, open_by_handle_at 304 265
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440
    process_mrelease 448 448, kcmp 312 272, get_robust_list 274 100, tkill 200 130, rt_sigqueueinfo 129 138
    rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424, pidfd_open 434 434, pidfd_getfd 438 438
    setpriority 141 140, ioprio_set 251 30, sched_setaffinity 203 122, sched_setparam 142 118
    sched_setscheduler 144 119, sched_setattr 314 274, migrate_pages 256 238, move_pages 279 239
    shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192
    msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181
    setuid 105 146, setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147, setresgid 119 149
    setgroups 116 159, setfsuid 122 151, setfsgid 123 152, capset 126 91, personality 135 92
    add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282
    io_setup 206 0, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427
    quotactl 179 60, quotactl_fd 443 443, syslog 103 116, acct 163 89, uselib 134 -, lookup_dcookie 212 18
    kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106
    reboot 169 142, swapon 167 224, swapoff 168 225, sethostname 170 161, setdomainname 171 162
    settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266
    iopl 172 -, ioperm 173 -, modify_ldt 154 -, vhangup 153 58, nfsservctl 180 42, lsm_set_self_attr 460 460
"""
_REFUSED_TO_READERS = "fchmod 91 52, fchown 93 55"
_WITH_CASES = "clone 56 220, prlimit64 302 261"
"""Calls that are never refused whatever their arguments are."""
_FOR_PROGRAMS = frozenset(
    {
        *("socketpair", "fork", "vfork", "execve", "execveat", "memfd_create", "capset", "tkill", "rt_sigqueueinfo"),
        *("rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "truncate", "mknod", "mknodat"),
    }
)  # fmt: skip
"""Refused calls that foreign programs may make: the kernel's own rules, or Landlock's, are enough."""
_SOCKETS = frozenset({"socket", "bind", "listen", "accept", "accept4"})
"""Those that they may make, too, with sockets of the families that are theirs."""
_BIRTHS = frozenset({"clone", "fork", "vfork"})
OF_FILES = frozenset(
    {
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
        *("utime", "utimes", "futimesat", "utimensat"),
    }
)
"""Calls that Landlock does not cover, and on open files as little as by path: a file that may only be read may be the
user's own. The supervisor does them for the program."""
OF_PROCESSES = frozenset(
    {"prlimit64", "setpriority", "ioprio_set", "sched_setaffinity", "sched_setparam", "sched_setscheduler"}
)
"""Calls that wait for the supervisor if they name a process."""

_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020000  # every CLONE_NEW… of clone(2)
_CLONE_NEWTIME = 0x80  # of unshare alone: for clone it is a part of a signal
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX


class _Machine:
    """An architecture: its place in the tables, and its number in linux/audit.h."""

    def __init__(self, column: int, audit: int) -> None:
        self.column = column
        self.audit = audit


_MACHINES = {"x86_64": _Machine(0, 0xC000003E), "aarch64": _Machine(1, 0xC00000B7)}


_ALLOW, _WAIT, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_EPERM, _WITHOUT = _ERRNO | errno.EPERM, _ERRNO | errno.EOPNOTSUPP


@dataclass(frozen=True)
class _Test:
    """True if the argument, and-ed with `mask`, is one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True)
class _Rule:
    """A call, and what the kernel does with it: the action of the first case whose tests are all true."""

    numbers: tuple[int, int]
    cases: tuple[tuple[int, tuple[_Test, ...]], ...]
    otherwise: int = _EPERM


def _permits(numbers: tuple[int, int], *tests: _Test) -> _Rule:
    return _Rule(numbers, ((_ALLOW, tests),))


def _rules() -> list[_Rule]:
    own = os.getpid()
    return [
        # clone: threads only
        _permits((56, 220), _Test(0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NEW)),
        _permits((62, 129), _Test(0, (own,))),  # kill
        _permits((234, 131), _Test(0, (own,))),  # tgkill
        _permits((302, 261), _Test(0, (0, own))),  # prlimit64
        # prctl: the names of threads and of memory, which Python and glibc set.
        _permits((157, 167), _Test(0, (15, 16, 0x53564D41))),
        # ioctl: terminals and their size, bytes to read, non-blocking, close-on-exec; no attributes of files.
        _permits((16, 29), _Test(1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451))),
        # fcntl: duplicates, flags and locks; no owner of signals, no leases.
        _permits((72, 25), _Test(1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030))),
    ]


def _rules_of_programs(*, network: bool) -> list[_Rule]:
    return [
        *_rules_of_modes(),
        *_rules_of_sockets(network=network),
        *_rules_of_ids(),
        *_rules_of_processes(),
        # personality: which it is, Linux, without random addresses (sanitizers), an older version, 32 bits
        _permits((135, 92), _Test(0, (0xFFFFFFFF, 0, 0x40000, 8, 0x20000, 0x20008))),
        # ioctl: no attributes of files (ext4 and others, XFS, versions), of btrfs only clones of data; no typing
        # into terminals.
        _Rule(
            (16, 29),
            (
                (_ALLOW, (_Test(1, (0x40049409, 0x4020940D)),)),
                (_WITHOUT, (_Test(1, (0x5800, 0x6600, 0x7600, 0x9400), 0xFF00),)),
                (_EPERM, (_Test(1, _TERMINAL_INPUT),)),
            ),
            _ALLOW,
        ),
    ]


def _rules_of_modes() -> list[_Rule]:
    """No program is made that runs as its owner: files of another user of this machine could be reached by it."""

    def rule(numbers: tuple[int, int], mode: int, *tests: _Test) -> _Rule:
        return _Rule(numbers, ((_EPERM, (*tests, _Test(mode, (0o2000, 0o4000, 0o6000), 0o6000))),), _ALLOW)

    def creates(argument: int) -> _Test:
        made, nameless = os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY
        return _Test(argument, (made, nameless, made | nameless), made | nameless)

    return [
        rule((257, 56), 3, creates(2)),  # openat
        rule((2, _ABSENT), 2, creates(1)),  # open
        rule((85, _ABSENT), 1),  # creat
        rule((133, _ABSENT), 1),  # mknod
        rule((259, 33), 2),  # mknodat
    ]


def _rules_of_sockets(*, network: bool) -> list[_Rule]:
    """Unix sockets that need a connection: others can send to any path. With `network` they are only made as pairs.

    The supervisor connects them; an address of IP it could not, and the one that it has seen may be another by then.
    """
    streams = (_Test(0, (socket.AF_UNIX,)), _Test(1, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET), 0xF))
    ip = (_Test(0, (socket.AF_INET, socket.AF_INET6)),)
    return [_permits((41, 198), *(ip if network else streams)), _permits((53, 199), *streams)]


def _rules_of_ids() -> list[_Rule]:
    """Calls that change no id: its own, or -1 for the present one."""
    user = (os.getuid(), 0xFFFFFFFF)
    group = (os.getgid(), 0xFFFFFFFF)
    return [
        *(_permits(one, _Test(0, user)) for one in ((105, 146), (122, 151))),  # setuid, setfsuid
        *(_permits(one, _Test(0, group)) for one in ((106, 144), (123, 152))),
        _permits((113, 145), *(_Test(nth, user) for nth in range(2))),  # setreuid
        _permits((114, 143), *(_Test(nth, group) for nth in range(2))),
        _permits((117, 147), *(_Test(nth, user) for nth in range(3))),  # setresuid
        _permits((119, 149), *(_Test(nth, group) for nth in range(3))),
        _permits((116, 159), _Test(0, (0,))),  # setgroups: none
    ]


def _rules_of_processes() -> list[_Rule]:
    def rule(numbers: tuple[int, int], who: int, *tests: _Test) -> _Rule:
        return _Rule(numbers, ((_ALLOW, (*tests, _Test(who, (0,)))), (_WAIT, tests)))

    plain = _Test(1, (0, 3, 5), 0xFFFFFFFF & ~0x40000000)  # SCHED_OTHER, BATCH, IDLE; not for what it starts
    return [
        # clone: no namespaces; a process waits, a thread does not: it ends with its process.
        _Rule(
            (56, 220),
            tuple(
                (action, (_Test(0, (flags,), _CLONE_THREAD | _CLONE_NEW),))
                for action, flags in ((_WAIT, 0), (_ALLOW, _CLONE_THREAD))
            ),
        ),
        rule((302, 261), 0),  # prlimit64
        rule((203, 122), 0),  # sched_setaffinity
        rule((142, 118), 0),  # sched_setparam
        rule((144, 119), 0, plain),  # sched_setscheduler
        rule((141, 140), 1, _Test(0, (os.PRIO_PROCESS,))),  # setpriority
        rule((251, 30), 1, _Test(0, (1,))),  # ioprio_set
    ]


_ABSENT = -1
_OPENAT2 = 437  # the mode of a new file is in memory; libc and programs use openat without it
_CLONE3 = 435  # its flags are in memory; "does not exist" makes libc use clone
_SECCOMP = (317, 277)
_SCHED_SETATTR = (314, 274)
_TURN_NANOSECONDS = 100_000
_SET_FILTER, _IS_AVAILABLE = 1, 2
_NO_MITIGATIONS = 4  # SECCOMP_FILTER_FLAG_SPEC_ALLOW: our own code needs no protection from itself
_NEW_LISTENER, _UNINTERRUPTED = 8, 32  # _UNINTERRUPTED: SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # linux/seccomp.h: SECCOMP_IOCTL_NOTIF_…
_SET_FLAGS, _WAKE_HERE = (
    0x40082104,
    1,
)  # since Linux 6.6: the one who waits goes on on the processor of the answer
_GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_NOTICE = struct.Struct("=QI4xi4x8x6Q")
_NOTICE_BYTES = 256
"""More than struct seccomp_notif has, so that a later kernel may have added to it."""


@cache
def can_filter() -> bool:
    """True if this kernel filters system calls, and the numbers of this machine are known."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    action = ctypes.c_uint32(_ERRNO)
    number = ctypes.c_long(_SECCOMP[machine.column])
    return system_call()(number, ctypes.c_uint(_IS_AVAILABLE), ctypes.c_uint(0), ctypes.byref(action)) == 0


def refuse_calls(*, writes: bool) -> None:
    """Install the filter for this thread, which has to have no_new_privs, and all that it starts. Raises OSError.

    A refused call returns EPERM. One that `writes` may change mode and owner of files that it has opened.
    """
    machine = _MACHINES[platform.machine()]
    refused = _numbers(_REFUSED if writes else f"{_REFUSED}, {_REFUSED_TO_READERS}", machine.column)
    _install(machine, _program(machine, _rules(), {_ERRNO | errno.EPERM: list(refused.values())}))


def refuse_calls_of_programs(*, network: bool = False) -> int:
    """Like `refuse_calls`, for a foreign program: it may start others, and control those; and use IP with `network`.

    New processes, and calls that Landlock does not cover, wait for an answer on the descriptor that is returned
    (`Notices`); once that is closed, they fail. Raises OSError: EBUSY if such a descriptor for this process exists.
    """
    machine = _MACHINES[platform.machine()]
    numbers = _calls(machine.column)
    waiting = OF_FILES | _BIRTHS | (frozenset() if network else frozenset({"connect"}))
    allowed = _FOR_PROGRAMS | _SOCKETS | (frozenset({"connect"}) if network else frozenset())
    refused = numbers.keys() - waiting - allowed
    without = {name for name in refused if "xattr" in name}
    actions = {
        _EPERM: [numbers[name] for name in sorted(refused - without)],
        _WITHOUT: [numbers[name] for name in sorted(without)],
        _ERRNO | errno.ENOSYS: [_OPENAT2],
        _WAIT: [number for name, number in numbers.items() if name in waiting],
    }
    steps = _program(machine, _rules_of_programs(network=network), actions)
    return _install(machine, steps, _NEW_LISTENER | _UNINTERRUPTED)


def hold_births() -> int:
    """Have each new process of this thread, and of all that it starts, wait for an answer, and refuse nothing.

    The thread has to have no_new_privs. Raises OSError as `refuse_calls_of_programs`.
    """
    machine = _MACHINES[platform.machine()]
    births = [number for name, number in _calls(machine.column).items() if name in ("fork", "vfork")]
    clone = _Rule((56, 220), ((_WAIT, (_Test(0, (0,), _CLONE_THREAD),)),), _ALLOW)
    return _install(machine, _program(machine, [clone], {_WAIT: births}), _NEW_LISTENER | _UNINTERRUPTED)


@dataclass(frozen=True)
class Notice:
    """A call that waits for an answer: its name, the thread that made it, and the arguments as unsigned numbers."""

    number: int
    thread: int
    call: str
    arguments: tuple[int, ...]

    @property
    def is_birth(self) -> bool:
        """True for a call that starts a process."""
        return self.call in _BIRTHS


class Notices:
    """The calls of a program that wait for an answer, by the descriptor of `refuse_calls_of_programs`.

    A thread does nothing but receive them, and permit processes: until a call is received, a signal with a handler ends
    it with EINTR, and shells take that for "cannot fork". `ready` is readable when another one has come.
    """

    def __init__(self, descriptor: int, permits: int = 0) -> None:
        column = _MACHINES[platform.machine()].column
        self._descriptor = descriptor
        self._names = {number: name for name, number in _calls(column).items()}
        self._received: deque[Notice] = deque()
        self.permits = permits
        """Processes that may start before that is asked again."""
        self._is_over = False
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with suppress(OSError):  # an older kernel
            fcntl.ioctl(descriptor, _SET_FLAGS, _WAKE_HERE)
        threading.Thread(target=self._receive_all, daemon=True).start()

    def take(self) -> Notice | None:
        """The call that has waited longest; None if none waits."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.ready)
        return self._received.popleft() if self._received else None

    def end(self) -> None:
        """Permit no process any more, but one whose permit is on its way."""
        self._is_over = True

    def remind(self) -> None:
        """Make `ready` readable again, for those that were not taken."""
        os.eventfd_write(self.ready, 1)

    def _receive_all(self) -> None:
        """Receive calls until no process is left that could make one."""
        _hurry()
        over = select.poll()
        over.register(self._descriptor, select.POLLIN)
        buffer = bytearray(_NOTICE_BYTES)
        while True:
            buffer[:] = bytes(_NOTICE_BYTES)
            try:
                fcntl.ioctl(self._descriptor, _RECEIVE, buffer)
            except (FileNotFoundError, InterruptedError):  # a thread has died that made one
                if any(event & select.POLLHUP for _, event in over.poll(0)):
                    return
                continue
            number, thread, call, *arguments = _NOTICE.unpack_from(buffer)
            notice = Notice(number, thread, self._names.get(call, ""), tuple(arguments))
            if notice.is_birth and self.permits > 0 and not self._is_over:
                self.permits -= 1
                self.let_go_on(notice)
            else:
                self._received.append(notice)
                os.eventfd_write(self.ready, 1)

    def is_waiting(self, notice: Notice) -> bool:
        """True while the call waits: what was found by the number of its thread until now is of that thread."""
        try:
            fcntl.ioctl(self._descriptor, _IS_VALID, struct.pack("=Q", notice.number))
        except FileNotFoundError:
            return False
        return True

    def let_go_on(self, notice: Notice) -> None:
        """Let the kernel carry out the call, as its registers state it; memory may be another by then."""
        self._send(notice, 0, _GO_ON)

    def answer(self, notice: Notice, reason: int = 0) -> None:
        """Return an error number from the call, which is not carried out, or 0."""
        self._send(notice, -reason, 0)

    def _send(self, notice: Notice, error: int, flags: int) -> None:
        with suppress(FileNotFoundError, InterruptedError):
            fcntl.ioctl(self._descriptor, _SEND, struct.pack("=QqiI", notice.number, 0, error, flags))


def _hurry() -> None:
    """Have the kernel run this thread at once when it has something to do, beside processes that are always busy.

    As root that holds; for other users its turns are short (Linux 6.12), which helps a little.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        number = ctypes.c_long(_SCHED_SETATTR[_MACHINES[platform.machine()].column])
        attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, _TURN_NANOSECONDS, 0, 0)
        system_call()(number, ctypes.c_long(0), attributes, ctypes.c_long(0))


_OF_THE_KERNEL = frozenset(
    {
        *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"),
        *("keyctl", "add_key", "request_key", "userfaultfd", "bpf", "perf_event_open", "open_by_handle_at"),
        *("mount", "umount2", "pivot_root", "chroot", "setns", "mount_setattr", "open_tree", "open_tree_attr"),
        *("move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "quotactl", "quotactl_fd", "swapon", "swapoff"),
        *("reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
        *("acct", "syslog", "lookup_dcookie", "nfsservctl", "uselib", "vhangup", "iopl", "ioperm"),
    }
)  # fmt: skip
"""Calls that no program in namespaces of its own may make; builds and tests do not."""
_URING = frozenset({"io_uring_setup", "io_uring_enter", "io_uring_register"})
_RULES_IN_NAMESPACES = (
    _permits((56, 220), _Test(0, (0,), _CLONE_NEW)),  # clone
    _permits((272, 97), _Test(0, (0,), _CLONE_NEW | _CLONE_NEWTIME)),  # unshare
    _Rule((16, 29), ((_EPERM, (_Test(1, _TERMINAL_INPUT),)),), _ALLOW),  # ioctl
    _Rule(  # socket; getaddrinfo asks NETLINK_ROUTE for the addresses of this host
        (41, 198),
        (
            (_ALLOW, (_Test(0, (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)),)),
            (_ALLOW, (_Test(0, (socket.AF_NETLINK,)), _Test(2, (socket.NETLINK_ROUTE,)))),
        ),
        _ERRNO | errno.EAFNOSUPPORT,
    ),
)
"""No namespaces, no typing into terminals, no families of sockets but the usual ones."""


def filter_in_namespaces() -> bytes:
    """The filter for programs in namespaces, as `bwrap --seccomp` reads it: an array of struct sock_filter.

    What is refused fails as on a kernel without it; nothing seems to succeed. Raises OSError on an unknown machine.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, f"system calls of {platform.machine()} are not known")
    numbers = _numbers(_REFUSED, machine.column)
    actions = {
        _ERRNO | errno.EPERM: [numbers[name] for name in numbers if name in _OF_THE_KERNEL],
        _ERRNO | errno.ENOSYS: [numbers[name] for name in numbers if name in _URING],
    }
    return b"".join(_program(machine, _RULES_IN_NAMESPACES, actions))


def _install(machine: _Machine, steps: Iterable[bytes], flags: int = 0) -> int:
    """Returns what the call does: 0, or a descriptor with `_NEW_LISTENER`."""
    code = b"".join(steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    number = ctypes.c_long(_SECCOMP[machine.column])
    flags |= _NO_MITIGATIONS
    found = system_call()(number, ctypes.c_uint(_SET_FILTER), ctypes.c_uint(flags), ctypes.byref(program))
    if found < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
    return found


# linux/bpf_common.h and struct seccomp_data
_LOAD, _EQUAL, _GREATER, _AND, _RETURN, _ALWAYS = 0x20, 0x15, 0x25, 0x54, 0x06, 0x05
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_INSTRUCTION_BYTES = 8


def _program(
    machine: _Machine,
    rules: Iterable[_Rule],
    actions: Mapping[int, Sequence[int]],
) -> Iterator[bytes]:
    """The filter: `rules` about arguments, then what becomes of calls, by what the kernel is to do with them."""
    yield _step(_LOAD, _MACHINE_AT)
    yield _step(_EQUAL, machine.audit, yes=1)
    yield _step(_RETURN, _EPERM)
    yield _step(_LOAD, _NUMBER_AT)
    yield _step(_EQUAL, _CLONE3, yes=1)
    yield _step(_GREATER, _LAST, no=1)
    yield _step(_RETURN, _ERRNO | errno.ENOSYS)
    for rule in rules:
        if (number := rule.numbers[machine.column]) != _ABSENT:
            steps = [*_steps_of(rule)]
            yield _step(_EQUAL, number, no=len(steps))
            yield from steps
    for action, numbers in actions.items():
        for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
            yield _step(_EQUAL, number, yes=left)
        yield _step(_ALWAYS, 1)
        yield _step(_RETURN, action)
    yield _step(_RETURN, _ALLOW)


def _steps_of(rule: _Rule) -> Iterator[bytes]:
    """Test the lower halves of arguments: both machines are little-endian, and ints have 32 bits."""
    for action, tests in rule.cases:
        left = sum(2 + len(test.values) for test in tests) + 1
        for test in tests:
            yield _step(_LOAD, _ARGUMENTS_AT + 8 * test.argument)
            yield _step(_AND, test.mask)
            left -= 2 + len(test.values)
            for more, value in zip(range(len(test.values) - 1, -1, -1), test.values, strict=True):
                yield _step(_EQUAL, value, yes=more, no=0 if more else left)
        yield _step(_RETURN, action)
    yield _step(_RETURN, rule.otherwise)


def _calls(column: int) -> dict[str, int]:
    return _numbers(f"{_REFUSED}, {_REFUSED_TO_READERS}, {_WITH_CASES}", column)


def _numbers(table: str, column: int) -> dict[str, int]:
    """The numbers of the calls of a table on this machine, by their names."""
    calls = (entry.split() for entry in table.replace("\n", ",").split(",") if entry.strip())
    return {name: int(numbers[column]) for name, *numbers in calls if numbers[column] != "-"}


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction (struct sock_filter); `yes` and `no` are how many a jump leaves out."""
    return bytes(_Instruction(code, yes, no, value))


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.c_void_p))
