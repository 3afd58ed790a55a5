"""Run a foreign program, confined, limited and supervised, and end all that it starts.

The program can read the system's programs and libraries, and do anything beneath the directories that it is given;
nothing else can be opened (`landlock`). It has no network unless it is granted (`seccomp`). `supervise` is for a
process of its own with one thread: it adopts what the program leaves behind, permits each new process, so that none can
start once the program is to end, and makes the calls that Landlock does not cover for it (`supervised_calls`).
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeAlias

from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap, NoBubblewrap, find_bubblewrap, prepare
from lcp_engine.features.programs.wall.layers.footprint import Footprint
from lcp_engine.features.programs.wall.namespaced import Namespaced, NotStarted, limit_numbers
from lcp_engine.features.programs.wall.supervised_calls import SupervisedCalls
from lcp_engine.features.programs.wall.views.mounts import CannotMount, fork_into_namespaces, settle
from lcp_engine.features.programs.wall.views.view import View
from lcp_engine.sandbox.root import look_at
from lcp_engine.sandbox.system.kept_descriptors import close_all_but
from lcp_engine.sandbox.system.landlock import (
    Rights,
    adopt_orphans,
    die_with_parent,
    forbid_abstract_sockets,
    forbid_new_privileges,
    make_rules,
    restrict_by,
)
from lcp_engine.sandbox.system.seccomp import (
    Notice,
    Notices,
    can_filter,
    hold_births,
    refuse_calls_of_programs,
)
from lcp_engine.sandbox.system.syscalls import landlock_version

LANDLOCK_NEEDED = 3
"""Before that version a program could shorten files that it may only read."""
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/ssl/openssl.cnf",
    "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
)  # fmt: skip
"""What any program may read and execute, where it is there."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
OF_NETWORK = (
    "/etc/ca-certificates", "/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/pki", "/etc/protocols",
    "/etc/resolv.conf", "/etc/services", "/etc/ssl",
)  # fmt: skip
"""What a program with network may read besides: names of hosts, and certificates."""
LOOK_SECONDS = 0.05
"""How often the processes and their memory are counted."""
END_SECONDS = 4.0
"""How long the end of all processes may take: less than a runner waits for it."""
_REST_SECONDS = 0.0005
_MOST_COUNTED = 20_000
_MOST_SERVED = 256
"""Calls that are answered in a row, before limits are looked at again."""
_FIRST = -20
"""The priority of a supervisor, if it may have one: it counts processes, which may start others without end."""
_SOME_MORE = 8
"""Processes that are bubblewrap's, and one too many."""
_BIRTHS, _OVERLAY, _SEGMENTS = b"births", b"overlay", b"segments"
"""Messages with a descriptor from the process that becomes bubblewrap."""
_MOST_KILLED = 1000
"""Processes that are looked for before those that were found are killed."""
_MOST_BURIED = 1024
"""Processes that are reaped in a row, before limits are looked at again."""
_KEPT = 256 * 1024
"""Bytes of the beginning and of the end of each stream that are kept."""
_CHUNK = 64 * 1024


class CannotConfine(Exception):
    """This kernel cannot confine foreign programs. The message says what it lacks."""


@dataclass(frozen=True)
class Bounds:
    """Limits of a program and all that it starts."""

    seconds: float | None = 120.0
    """None for a program that runs until nobody needs it any more."""
    memory: int = 2 * 1024**3
    """Bytes of memory for all processes together; behind Landlock alone, of data for each one, too."""
    processes: int = 256
    file_bytes: int = 256 * 1024**2
    written: int = 4 * 1024**3
    """Bytes on the disk of all that is where it may write, 4 KiB a file at least, and of removed files it has open."""


@dataclass(frozen=True)
class Program:
    """A program to run: `path` with `arguments` (the first is its own name), in a directory, with an environment.

    It may do anything beneath `owned`, and read and execute what is in `readable` and in `SYSTEM`.
    """

    path: str
    arguments: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    owned: Sequence[str]
    readable: Sequence[str] = ()
    hidden: Sequence[str] = ()
    """No place is readable that contains one of these; of places of the system, only what lies beside them."""
    bounds: Bounds = field(default_factory=Bounds)
    network: bool = False
    """Whether it may make and accept connections over IP."""
    packages: Sequence[str] = ()
    """Places that are readable unless their paths pass a link by now."""
    listed: Sequence[str] = ()
    """Directories like these, whose names alone may be read."""
    call: Sequence[str] = ()
    """A module, and the arguments of its `main`: a fork of this interpreter calls it, and executes no `path`."""
    view: View | None = None
    """The view of it in namespaces (bubblewrap); without one, Landlock confines it."""
    tool: Bubblewrap | None = None
    """The bubblewrap that `step_here` has found; without one it is looked for again."""


@dataclass(frozen=True)
class Ended:
    """End of a program: its exit code, else the signal, else why it was stopped; and what it wrote."""

    exit_code: int | None
    signal: int | None
    stopped: str | None
    stdout: bytes
    stderr: bytes
    """Of long output the beginning and the end, with a line between them that says how much is missing."""
    is_out_of_memory: bool = False
    """Whether it was stopped because it took too much memory."""
    cpu_seconds: float = field(default=0.0, compare=False)
    """Time on processors of the program and all that it started."""


def cannot_confine() -> str | None:
    """Reason why this kernel cannot confine foreign programs; None if it can."""
    return _lacks() or _cannot_hold_births()


def _lacks() -> str | None:
    version = landlock_version()
    if version is None:
        return "the kernel offers no Landlock"
    if version < LANDLOCK_NEEDED:
        return f"the kernel offers version {version} of Landlock, {LANDLOCK_NEEDED} is needed (Linux 6.2)"
    return None if can_filter() else "system calls cannot be filtered (seccomp)"


@cache
def _cannot_hold_births() -> str | None:
    found: list[OSError] = []

    def attempt() -> None:  # a filter is for its own thread, and ends with it
        try:
            forbid_new_privileges()
            os.close(refuse_calls_of_programs())
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return _why_births_are_not_held(found[0].errno) if found else None


def _why_births_are_not_held(reason: int | None) -> str:
    if reason == errno.EBUSY:
        return "another program around this one supervises system calls already (seccomp allows one to)"
    return f"new processes cannot be supervised (seccomp): {os.strerror(reason or 0)}"


def supervise(program: Program, hang_up: int, standard: Sequence[int] = ()) -> Ended:
    """Run a program until it ends, breaks its bounds, or the other side of the socket `hang_up` is closed.

    All that it started has ended then. `standard` are descriptors for its stdin, stdout and stderr; without them, what
    it writes is kept. Raises `CannotConfine`, and OSError if it cannot be started.
    """
    if program.view is None and (why := _lacks()) is not None:
        raise CannotConfine(why)
    adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _abandon)
    die_with_parent(os.getppid(), signal.SIGTERM)
    if program.view is not None:
        return _supervise_in_namespaces(program, program.view, hang_up, _Streams(standard))
    rules = make_rules(_grants(program), network=program.network)
    streams = _Streams(standard)
    trouble, tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    began, here = time.monotonic(), os.getpid()
    child = os.fork()
    if child == 0:
        _become(program, rules, streams, tell, here)
    os.close(rules)
    tell.close()
    streams.close_ends_of_child()
    run = _Run(child, program, streams, hang_up, began)
    run.calls = SupervisedCalls(program.owned)
    try:
        with trouble:
            said, births, _, _ = socket.recv_fds(trouble, 4, 1)
            run.births = Notices(births[0]) if births else None
            refused = trouble.recv(4) if births else said
        if refused:
            reason = int.from_bytes(refused, "little")
            if run.births is None and reason == errno.EBUSY:
                raise CannotConfine(_why_births_are_not_held(reason))
            raise OSError(reason, os.strerror(reason), program.path)
        return run.follow()
    finally:
        run.end_all()


def _supervise_in_namespaces(program: Program, view: View, hang_up: int, streams: _Streams) -> Ended:
    tool = program.tool or find_bubblewrap()
    if isinstance(tool, NoBubblewrap):
        raise CannotConfine(tool.reason)
    inside = Namespaced()
    trouble, tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    began = time.monotonic()
    try:
        child, mapped = fork_into_namespaces()
    except CannotMount as error:
        raise CannotConfine(str(error.strerror)) from error
    if child == 0:
        _become_namespaced(program, tool, inside, streams, tell, mapped=mapped)
    with suppress(PermissionError):  # else those of a program that forks without end would come first
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    tell.close()
    inside.close_ends_of_child()
    streams.close_ends_of_child()
    run = _Run(child, program, streams, hang_up, began)
    run.inside = inside
    try:
        with trouble:
            # Nothing once bwrap is executed. This process has the overlays open until its end: the kernel takes long
            # for their teardown, and the answer need not wait for that.
            while given := (received := socket.recv_fds(trouble, 4096, 1))[1]:
                if received[0] == _BIRTHS:
                    run.births = Notices(given[0], program.bounds.processes)
                elif received[0] == _SEGMENTS:
                    run.footprint.segments = given[0]
            refused = received[0]
        if refused:
            kind, number, reason = refused.decode(errors="replace").split(" ", 2)
            if kind == "confine":
                raise CannotConfine(reason)
            raise OSError(int(number), reason, program.path)
        inside.let_start(child, program.bounds.processes)
        return run.follow()
    except NotStarted as error:
        raise (
            CannotConfine(error.reason) if error.number is None else OSError(error.number, error.reason)
        ) from None
    finally:
        run.end_all()
        inside.close()


def _become_namespaced(
    program: Program,
    tool: Bubblewrap,
    inside: Namespaced,
    streams: _Streams,
    tell: socket.socket,
    *,
    mapped: tuple[int, int] | None,
) -> NoReturn:
    """Become bubblewrap, which starts the program. `tell` is sent why not.

    All below ends with this process, and this one with its supervisor: bubblewrap binds what it starts too late.
    """
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        streams.become_standard()
        close_all_but(0, 1, 2, tell.fileno(), inside.status, inside.gate)
        _die_with_supervisor(tell)
        settle(mapped)
        streams.open_nothing()
        with suppress(FileNotFoundError):  # a kernel without them
            socket.send_fds(tell, [_SEGMENTS], [os.open("/proc/sysvipc/shm", os.O_RDONLY | os.O_CLOEXEC)])
        is_numbered = limit_numbers(program.bounds.processes)
        os.chdir("/")
        if program.view is not None and program.view.host_network:
            forbid_abstract_sockets()
        command, overlays = prepare(
            program, tool, inside.status, inside.gate, is_in_user_namespace=mapped is not None
        )
        for one in overlays:
            socket.send_fds(tell, [_OVERLAY], [one])
        _limit(program.bounds)  # its own, not that of what prepares it
        _die_with_supervisor(tell)  # a change of the user has ended that
        for one in (inside.status, inside.gate):
            os.set_inheritable(one, True)
        forbid_new_privileges()
        if os.getuid() == 0 and not is_numbered:  # no other limit holds for root
            try:
                socket.send_fds(tell, [_BIRTHS], [hold_births()])
            except OSError as error:
                if error.errno != errno.EBUSY:  # something around this holds them already
                    raise
        os.execve(command[0], command, {})  # noqa: S606 -- it confines what it executes
    except CannotMount as error:
        tell.send(f"confine {error.errno} {error.strerror}".encode())
    except OSError as error:
        about = f": {error.filename}" if error.filename else ""
        tell.send(f"start {error.errno or 1} {error.strerror}{about}".encode())
    except Exception as error:  # noqa: BLE001 -- the top of a process
        tell.send(f"confine 1 {error!r}".encode())
    finally:
        os._exit(127)


def _die_with_supervisor(supervisor: socket.socket) -> None:
    """Have the kernel end this process with its supervisor, a process of one thread; end at once if that is gone.

    The supervisor sends nothing, and has no number in this namespace, so that only the end of the socket tells. The
    kernel closes that before it signals the children of a process.
    """
    die_with_parent(os.getppid())
    with suppress(BlockingIOError):
        supervisor.recv(1, socket.MSG_DONTWAIT)
        os._exit(0)


def _limit(bounds: Bounds) -> None:
    """Set the limits that each process has for itself, and the signals that Python ignores back.

    Memory is counted where it is used: stacks of threads and the shadows of sanitizers reserve far more.
    """
    cores, reserved = (resource.getrlimit(one)[1] for one in (resource.RLIMIT_CORE, resource.RLIMIT_DATA))
    resource.setrlimit(resource.RLIMIT_CORE, (0, cores))
    resource.setrlimit(resource.RLIMIT_DATA, (reserved, reserved))
    resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.file_bytes, bounds.file_bytes))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _abandon(number: int, frame: object) -> NoReturn:
    """The parent has ended: leave `supervise`, which ends the program and all that it started."""
    raise SystemExit(number)


def _grants(program: Program) -> Iterator[tuple[int, Rights]]:
    around = set(_around(program.hidden))
    installed = (*SYSTEM, *program.readable, *(OF_NETWORK if program.network else ()))
    for rights, paths, look in (
        (Rights.OWNS, program.owned, _follow),
        (Rights.EXECUTES, installed, _follow),
        (Rights.EXECUTES, program.packages, look_at),
        (Rights.LISTS, program.listed, look_at),
        (Rights.DEVICE, DEVICES, _follow),
    ):
        for path in paths:
            if (descriptor := _looked_at(path, look)) is None:
                continue
            try:
                if rights is not Rights.EXECUTES or _identity(descriptor) not in around:
                    yield descriptor, rights
                elif path in SYSTEM:
                    hidden = {_identity(place) for place in program.hidden}
                    for one in _beside(descriptor, around, hidden):
                        yield one, rights
            finally:
                os.close(descriptor)


def _beside(directory: int, around: Collection[_Identity], hidden: Collection[_Identity]) -> Iterator[int]:
    """Descriptors of what is in a directory beside hidden places, each closed after its use.

    The rules grant all that is beneath a directory, or nothing, so the directories around a hidden place get none.
    """
    if _identity(directory) in hidden:
        return
    with suppress(PermissionError):
        for name in _names(directory):
            with suppress(FileNotFoundError, PermissionError):
                one = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                try:
                    if _identity(one) in around:
                        yield from _beside(one, around, hidden)
                    elif not stat.S_ISLNK(os.fstat(one).st_mode):
                        yield one
                finally:
                    os.close(one)


def _names(directory: int) -> list[str]:
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.listdir(opened)
    finally:
        os.close(opened)


_Identity: TypeAlias = tuple[int, int] | None


def _identity(place: str | int) -> _Identity:
    """Device and inode of a file or directory; None if there is none."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _looked_at(path: str, look: Callable[[str], int]) -> int | None:
    try:
        return look(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None


def _follow(path: str) -> int:
    if not os.path.isabs(path):
        raise FileNotFoundError(path)  # it would be looked for beneath the directory of this process
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _around(hidden: Sequence[str]) -> Iterator[_Identity]:
    """Which directories contain one of these places, or are it, however they are spelled."""
    for place in hidden:
        here = Path(os.path.realpath(place))
        yield from filter(None, (_identity(str(directory)) for directory in (here, *here.parents)))


def _become(program: Program, rules: int, streams: _Streams, tell: socket.socket, parent: int) -> NoReturn:
    """Become the program. `tell` is sent the descriptor of its births, and the errno if that fails."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(parent)
        os.setsid()
        restrict_by(rules)
        streams.become_standard()
        close_all_but(0, 1, 2, tell.fileno())
        os.chdir(program.directory)
        _limit(program.bounds)
        resource.setrlimit(resource.RLIMIT_DATA, (program.bounds.memory, program.bounds.memory))
        births = refuse_calls_of_programs(network=program.network)
        socket.send_fds(tell, [b"."], [births])
        if program.call:
            os.close(births)  # as when a program is executed
            tell.close()
            _call(program)
        os.execve(program.path, list(program.arguments), dict(program.environment))  # noqa: S606 -- confined
    except OSError as error:
        tell.send((error.errno or 1).to_bytes(4, "little"))
    finally:
        os._exit(127)


def _call(program: Program) -> NoReturn:
    code = 1
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)  # as an interpreter that starts
        os.environ.clear()
        os.environ.update(program.environment)
        module, *arguments = program.call
        import_module(module).main(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 -- the top of a program
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


class _Streams:
    """The pipes of stdout and stderr: their ends here, those of the child, and what has come through.

    With `given`, nothing comes through: these are the child's stdin, stdout and stderr.
    """

    def __init__(self, given: Sequence[int] = ()) -> None:
        self._ours: list[int] = []
        self._theirs = [*given]
        for _ in range(0 if given else 2):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            self._ours.append(ours)
            self._theirs.append(theirs)
        self.kept = [_Kept(), _Kept()]
        self.open = dict(zip(self._ours, self.kept, strict=False))

    def close_ends_of_child(self) -> None:
        for one in self._theirs:
            os.close(one)

    def become_standard(self) -> None:
        for number, one in enumerate(self._theirs, 3 - len(self._theirs)):
            os.dup2(one, number)
        self.open_nothing()

    def open_nothing(self) -> None:
        """Have stdin lead to nothing by the mounts of this process, unless it is given."""
        if len(self._theirs) < 3:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def read(self, descriptor: int) -> None:
        """Take what is there; the stream is closed at its end."""
        try:
            piece = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if piece:
            self.open[descriptor].add(piece)
        else:
            del self.open[descriptor]
            os.close(descriptor)

    def drain(self) -> None:
        """Take what is left, when nobody writes any more."""
        for descriptor in list(self.open):
            while descriptor in self.open:
                before = self.open[descriptor].total
                self.read(descriptor)
                if descriptor in self.open and self.open[descriptor].total == before:
                    os.close(descriptor)
                    del self.open[descriptor]


class _Kept:
    """The beginning and the end of a stream."""

    def __init__(self) -> None:
        self.total = 0
        self._first = b""
        self._last = b""

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = _KEPT - len(self._first)
        self._first += piece[:room]
        self._last = (self._last + piece[room:])[-_KEPT:] if room < len(piece) else self._last

    @property
    def whole(self) -> bytes:
        """Output that was kept, with a line between the parts that says how many bytes are missing there."""
        missing = self.total - len(self._first) - len(self._last)
        gap = b"\n[%d bytes left out]\n" % missing if missing else b""
        return self._first + gap + self._last


class _Run:
    """A program that runs, with all that it has started. `births` is where new processes wait for a permit.

    One that is `inside` namespaces ends with these.
    """

    def __init__(self, child: int, program: Program, streams: _Streams, hang_up: int, began: float) -> None:
        self.births: Notices | None = None
        self.calls = SupervisedCalls(())
        self.inside: Namespaced | None = None
        self._ends = [os.pidfd_open(child)]
        """Readable once the program has exited, which is not to be found out at the next look alone."""
        self._cpu_seconds = 0.0
        self._child = child
        self._bounds = program.bounds
        self.footprint = Footprint([*_writable(program)])
        self._streams = streams
        self._hang_up = hang_up
        self._began = began
        self._status: int | None = None
        self._next_look = 0.0
        self._excess: str | None = None
        self._is_out_of_memory = False

    def follow(self) -> Ended:
        stopped = None
        while stopped is None and not self._has_ended():
            self._wait()
            stopped = self._broken()
        self._count_cpu(descendants(os.getpid(), self._bounds.processes + _SOME_MORE))
        if left := self.end_all():
            stopped = f"{stopped or 'it ended'}, and {left:,} of its processes could not be ended"
        self._streams.drain()
        self._count_cpu(())
        code = os.waitstatus_to_exitcode(self._status or 0)
        if self.inside is not None and stopped is None:
            code = self.inside.exit_code(code, self._streams.kept[1].whole)
        stdout, stderr = (one.whole for one in self._streams.kept)
        return Ended(
            exit_code=code if stopped is None and code >= 0 else None,
            signal=-code if stopped is None and code < 0 else None,
            stopped=stopped,
            stdout=stdout,
            stderr=stderr,
            is_out_of_memory=self._is_out_of_memory,
            cpu_seconds=round(self._cpu_seconds, 3),
        )

    def _wait(self) -> None:
        waiting = select.poll()
        births = () if self.births is None else (self.births.ready,)
        for one in (*self._streams.open, self._hang_up, *births, *self._ends):
            waiting.register(one, select.POLLIN)
        if self.births is not None:
            self.calls.try_again(self.births)
        for descriptor, _ in waiting.poll(self.calls.rest(LOOK_SECONDS) * 1000):
            if descriptor in self._streams.open:
                self._streams.read(descriptor)
            elif descriptor in births:
                self._serve()

    def _serve(self) -> None:
        """Answer some of the calls that wait; then limits are looked at again."""
        if (births := self.births) is None:
            return
        for _ in range(_MOST_SERVED):
            if self._excess is not None or (notice := births.take()) is None:
                return
            if notice.is_birth:
                self._let_start(births, notice)
            else:
                self.calls.carry_out(births, notice)
        births.remind()

    def _let_start(self, births: Notices, notice: Notice) -> None:
        if births.permits < 1:
            self._look()
        if births.permits < 1:
            self._excess = f"it had more than {self._bounds.processes:,} processes"
            return
        births.permits -= 1
        births.let_go_on(notice)

    def _broken(self) -> str | None:
        """Reason why the program is to be stopped; None if it goes on."""
        bounds = self._bounds
        if bounds.seconds is not None and time.monotonic() - self._began > bounds.seconds:
            return f"it ran for more than {bounds.seconds:g} s"
        if time.monotonic() >= self._next_look:
            self._look()
        if self._excess is not None:
            return self._excess
        waiting = select.poll()
        waiting.register(self._hang_up, select.POLLIN)
        return "nobody waits for it any more" if waiting.poll(0) else None

    def _look(self) -> None:
        """Count all processes, and the memory that they take."""
        bounds = self._bounds
        self._has_ended()
        family = descendants(os.getpid(), bounds.processes + _SOME_MORE)
        self._count_cpu(family)
        if self.inside is not None:
            family = self.inside.of_program(family)
            # The dead are buried by the first process in there, which may be slow.
            if len(family) > bounds.processes:
                family = [one for one in family if not _is_dead(one)]
        if self.births is not None:
            self.births.permits = bounds.processes - len(family)
        unmapped = self.footprint.unmapped_bytes(family)
        self._is_out_of_memory = sum(map(_resident_bytes, family)) + unmapped > bounds.memory
        if len(family) > bounds.processes:
            self._excess = f"it had more than {bounds.processes:,} processes"
        elif self._is_out_of_memory:
            self._excess = f"it took more than {bounds.memory:,} bytes of memory"
        elif self.footprint.written_bytes(family) > bounds.written:
            self._excess = f"it wrote more than {bounds.written:,} bytes"
        self._next_look = time.monotonic() + LOOK_SECONDS

    def _count_cpu(self, family: Collection[int]) -> None:
        """Add what has ended and what lives: the times of those that a namespace ends are in no sum of the kernel."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = ended.ru_utime + ended.ru_stime + sum(map(_cpu_seconds, family))
        self._cpu_seconds = max(self._cpu_seconds, total)

    def _has_ended(self) -> bool:
        """Reaps its orphans; true once the program has exited."""
        self._bury()
        return self._status is not None

    def _bury(self) -> bool:
        """Reap some of those that are dead; whether any child is left."""
        try:
            for _ in range(_MOST_BURIED):
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                if process == self._child:
                    self._status = status
        except ChildProcessError:
            return False
        return True

    def end_all(self) -> int:
        """Kill every descendant; without a permit none can start others any more.

        Returns how many can still act after `END_SECONDS`: those that wait for a device, for instance.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what it would demand happens here
        if self.births is not None:
            self.births.end()
        until = time.monotonic() + END_SECONDS
        if self.inside is not None:
            self.inside.end()  # the kernel ends the namespace at once, however many are in it
        while self._bury() and time.monotonic() < until:
            _kill(descendants(os.getpid(), _MOST_KILLED))
        self.births = None
        self.calls.close()
        while self._ends:
            os.close(self._ends.pop())
        return sum(map(can_act, descendants(os.getpid())))


def _writable(program: Program) -> Iterator[str]:
    """Directories outside in which what the program writes lies on the disk."""
    yield from program.owned
    if program.view is not None:
        yield from (overlay.upper for overlay in program.view.overlays if overlay.upper)
        yield from (bind.source for bind in program.view.binds if bind.writable)


def end_strangers(known: Collection[int]) -> None:
    """Kill the children of this process that are not `known`, and all below them.

    That is what a supervisor leaves behind that was killed itself. The descriptor of their births is closed then.
    """
    until = time.monotonic() + END_SECONDS
    while (strangers := _children(os.getpid()) - {*known}) and time.monotonic() < until:
        _kill([each for one in strangers for each in (one, *descendants(one))])


def _kill(processes: Sequence[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    time.sleep(_REST_SECONDS)  # it takes them a moment


def descendants(process: int, most: int = _MOST_COUNTED) -> list[int]:
    """The processes below one, as the kernel lists them; those that are dead and not buried count.

    Where there are more than `most`, some of them are missing.
    """
    found, nth = [process], 0
    while nth < len(found) <= most:
        found += _children(found[nth])
        nth += 1
    return found[1:]


def _children(process: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it may end meanwhile
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError):
                found.update(map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split()))
    return found


def _stat_of(process: int) -> list[str]:
    """Fields of proc_pid_stat(5) behind the name, which it chooses itself. Raises OSError."""
    return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _is_dead(process: int) -> bool:
    try:
        return _stat_of(process)[0] in ("Z", "X")
    except (OSError, IndexError):
        return True


def can_act(process: int) -> bool:
    """False for one that has given its memory back: the kernel may still be at what it leaves, such as many mounts."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[0]) > 0
    except (OSError, IndexError):
        return False


def _resident_bytes(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _cpu_seconds(process: int) -> float:
    """Time on processors of a process and of its children that it has waited for."""
    try:
        return sum(map(int, _stat_of(process)[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0
