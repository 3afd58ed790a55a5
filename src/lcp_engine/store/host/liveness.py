"""Prove that a runner is alive, and notice when it dies (R17).

Each runner holds an OS lock on a file of its own, which the kernel releases when the process dies. The file names the
jobs that its threads are executing. Other runners watch the directory with inotify(7), which reports the close of a
lock file at once; a check once a second is the fallback.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.file_access import start_thread
from lcp_engine.sandbox.system.kept_descriptors import keep_from_children, unlock_and_close
from lcp_engine.sandbox.system.own_places import APP, make_private
from lcp_engine.store.db.open import make_backend
from lcp_engine.store.db.sqlite import Sqlite, account_name
from lcp_engine.store.db.transaction import Backend
from lcp_engine.store.row_types import RunnerRow

LOCK = ".lock"
"""The suffix of the runners' lock files."""
_SLOT = struct.Struct("<qq")


@dataclass(frozen=True)
class Host:
    """Where a process runs: a machine's name, and the id of its current boot."""

    name: str
    boot: str


def this_host() -> Host:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return Host(socket.gethostname(), boot.read_text().strip() if boot.exists() else "unknown")


def place_beside(database: Path) -> Path:
    """The runtime directory of a SQLite file: one for every session of its user, whatever their environments name."""
    return database.with_name(f"{database.name}-run")


def runtime_place(url: str, environment: Mapping[str, str]) -> Path:
    """Where the locks and sockets of the database at `url` are on this host.

    Sessions that name different places for a database on a server do not share it: their runners know each other by
    their leases.
    """
    backend = make_backend(url)
    if isinstance(backend, Sqlite) and not backend.is_read_only:
        return place_beside(backend.path.resolve())
    # Nothing is made beside a database that can only be read.
    digest = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
    return _base(environment) / f"lcp-{digest}"


def runtime_directory(url: str, environment: Mapping[str, str]) -> Path:
    """Like `runtime_place`, created if needed, private to its user.

    Raises `DATABASE_FAILED` if another user owns it, or if it cannot be created.
    """
    place = runtime_place(url, environment)
    if isinstance(backend := make_backend(url), Sqlite) and not backend.is_read_only:
        _make_private([place], "Use a database in a directory of your own with --db.")
    else:
        _make_private([place.parent, place], "Name a directory of your own with XDG_RUNTIME_DIR.")
    return place


def stages_directory(url: str) -> Path:
    """Where the stages of a database are on this machine: no root lies in the engine's own places.

    Links are resolved, such as a home directory that is one: a stage that is opened again passes none.
    """
    from platformdirs import user_state_path

    return user_state_path(f"{APP}-stages").resolve() / digest_of(url)


def wall_directory(url: str) -> Path:
    """Where this machine keeps what commands of a database's missions see and leave besides their roots."""
    from platformdirs import user_state_path

    return user_state_path(f"{APP}-wall") / digest_of(url)


def backups_directory(backend: Backend, stated: str | None) -> Path:
    """The directory of a database's backups: the stated one, or one of its own."""
    from platformdirs import user_data_path

    if stated is not None:
        return Path(stated).expanduser().absolute()
    if isinstance(backend, Sqlite):
        return backend.path.with_name(f"{backend.path.name}-backups")
    return user_data_path(APP) / "backups"


def digest_of(url: str) -> str:
    """The name of a database among files of this user that belong to several."""
    backend = make_backend(url)
    of = str(backend.path.resolve()) if isinstance(backend, Sqlite) else url
    return hashlib.blake2b(of.encode(), digest_size=8).hexdigest()


def _make_private(parts: Sequence[Path], advice: str) -> None:
    try:
        make_private(parts[0].parent)
        for part in parts:
            part.mkdir(mode=0o700, exist_ok=True)
            status = part.stat(follow_symlinks=False)
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                owner = account_name(status.st_uid)
                message = f"runtime directory {part} of user {owner} must be private to user {account_name()}"
                raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=advice)
    except OSError as refused:
        message = f"runtime directory {refused.filename} cannot be used: {refused.strerror}"
        raise LcpError(ErrorCode.DATABASE_FAILED, message, advice=advice) from refused


def _base(environment: Mapping[str, str]) -> Path:
    """A directory in which nobody else can make the runtime directory first: the session's, or one in the home."""
    given = environment.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given)
    session = Path(f"/run/user/{os.getuid()}")
    if session.is_dir() and os.access(session, os.W_OK | os.X_OK):
        return session
    from platformdirs import user_state_path

    return user_state_path(APP) / "run"


_SLOTS = 512
"""For which there is room in a runner's file, so that a directory that fills up ends no runner."""


def _open_full(path: Path) -> int:
    """Open a runner's file with room for its notes. Raises `DATABASE_FAILED`, with the path, if there is none."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, _SLOTS * _SLOT.size)
    except OSError as refused:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        message = f"runtime directory {path.parent} cannot be used: {refused.strerror}"
        raise LcpError(ErrorCode.DATABASE_FAILED, message, advice="Free space on its disk.") from refused
    return descriptor


class LivenessFile:
    """A runner's locked file, with a slot for each thread that names the job it executes."""

    def __init__(self, directory: Path, uid: str) -> None:
        self._path = directory / f"{uid}{LOCK}"
        self._guard = threading.Lock()
        self._descriptor = keep_from_children(_open_full(self._path))
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def note_start(self, slot: int, job_id: int, attempt: int) -> None:
        """Note that a job starts. No fsync: the note has to survive the process, not the machine."""
        with self._guard:
            if self._descriptor >= 0:
                os.pwrite(self._descriptor, _SLOT.pack(job_id, attempt), slot * _SLOT.size)

    def remove(self) -> None:
        """Remove and unlock the file; a thread that hung and goes on later writes nothing."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        with self._guard:
            unlock_and_close(self._descriptor)
            self._descriptor = -1


def is_dead(runner: RunnerRow, host: Host, directory: Path) -> bool | None:
    """True if a runner of this host has died; None if this process cannot know.

    Within one boot the kernel's locks tell. A runner of another boot may be of another machine with the same name.
    """
    if runner.boot != host.boot:
        return None
    try:
        # Read-only: `watch_for_deaths` reacts to the close of a file that was open for writing.
        descriptor = os.open(directory / f"{runner.uid}{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared: two processes that check at the same moment do not take each other for the runner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_stopped(runner: RunnerRow) -> bool:
    """True if a runner of this host is suspended (SIGSTOP, a debugger); it may go on at any moment."""
    try:
        status = Path(f"/proc/{runner.pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[0] in (
        b"T",
        b"t",
    )  # proc(5): behind the name, which may hold anything


def started_jobs(runner: RunnerRow, directory: Path) -> set[tuple[int, int]] | None:
    """The `(job id, attempt)` pairs that a dead runner was executing; None if it left no file."""
    try:
        left = (directory / f"{runner.uid}{LOCK}").read_bytes()
    except FileNotFoundError:
        return None
    whole = len(left) - len(left) % _SLOT.size
    return {(job_id, attempt) for job_id, attempt in _SLOT.iter_unpack(left[:whole]) if job_id}


def forget(runner: RunnerRow, directory: Path) -> None:
    """Remove the files of a dead runner."""
    for name in (f"{runner.uid}{LOCK}", f"{runner.uid}.sock"):
        with suppress(FileNotFoundError):
            (directory / name).unlink()


_CLOSE_WRITE = 0x08  # sys/inotify.h
_EVENT = struct.Struct("@iIII")  # wd, mask, cookie, the length of the name that follows
_PAUSES = (0.001, 0.05)
"""The kernel reports the close before it releases the lock; the second check is for a busy machine."""


def watch_for_deaths(directory: Path, on_death: Callable[[], None]) -> Callable[[], None]:
    """Call `on_death` from another thread, twice, whenever a runner's lock file is closed. Returns what ends that.

    Does nothing if the kernel has no inotify, or none left. Raises `Shortage`.
    """
    watch = _watch(directory)
    if watch < 0:
        return lambda: None
    try:
        awake, ender = os.pipe()
    except OSError:
        os.close(watch)
        raise
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    poll.register(awake)

    def wait() -> None:
        while all(ready != awake for ready, _ in poll.poll()):
            if any(name.endswith(LOCK) for name in _names(os.read(watch, 65536))):
                for pause in _PAUSES:
                    time.sleep(pause)
                    on_death()

    thread = threading.Thread(target=wait, name="lcp-deaths", daemon=True)
    try:
        start_thread(thread)
    except BaseException:
        for descriptor in (ender, awake, watch):
            os.close(descriptor)
        raise

    def end() -> None:
        os.write(ender, b".")  # its end alone would not be noticed while a forked child has a copy of it
        thread.join()
        os.close(ender)
        os.close(awake)
        os.close(watch)

    return end


def _watch(directory: Path) -> int:
    """A descriptor to read events from; -1 if there is none."""
    if sys.platform != "linux":
        return -1
    libc = ctypes.CDLL(None)
    watch: int = libc.inotify_init1(os.O_CLOEXEC)
    if watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(directory), _CLOSE_WRITE) < 0:
        os.close(watch)
        return -1
    return watch


def _names(events: bytes) -> Iterator[str]:
    at = 0
    while at < len(events):
        *_, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        yield os.fsdecode(events[at - length : at].rstrip(b"\0"))
