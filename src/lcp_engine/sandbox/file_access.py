"""Access the files of a root under their locks: in this thread, a confined thread or a confined process (R20, R22).

`FileAccess` has two implementations: `LocalFiles` here, for this thread and confined ones, and `RemoteFiles` of
`runner.confined` for processes. Landlock binds the thread that calls it, and a thread costs a fraction of a
millisecond, so that commands can have one too. A confined thread can open nothing outside its roots; whatever else the
process has open stays open to it, so it protects against wrong paths, not against hostile code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import Run, Snapshot, run_here
from lcp_engine.sandbox.directories import remove_empty
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.sandbox.locks import Held, LockedFiles, RootedPath, Wait, lock
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation, isolates, restrict_to

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class FileAccess(Protocol):
    """Locks, reads and writes files."""

    def lock(
        self, files: Sequence[RootedPath], wait: Wait = Wait.FIRST, *, together: int = 1
    ) -> AbstractContextManager[LockedFiles]:
        """Like `locks.lock`."""

    def read_unlocked(self, root: Root, path: str, cap: int | None) -> Snapshot | None:
        """Like `entries.read_unlocked`."""

    def remove_empty(self, root: Root, directories: Iterable[str]) -> None:
        """Like `directories.remove_empty`."""


class Patience:
    """Pauses between the tries of a caller that waits, until `seconds` are over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    def is_over(self) -> bool:
        """True if there is no time left; if there is some, pauses first."""
        if time.monotonic() >= self._end:
            return True
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return False


@contextmanager
def lock_all(
    access: FileAccess, files: Sequence[RootedPath], patience: Patience
) -> Iterator[Sequence[Held] | None]:
    """The files, all locked at once; None if others have locks on some of their directories for too long."""
    while True:
        with access.lock(files, Wait.NONE) as locked:
            if all(held is not None for held in locked.found):
                yield locked.found
                return
        if patience.is_over():
            yield None
            return


class Shortage(LcpError):
    """The system starts no further process or thread now: no job is to blame."""

    @classmethod
    def because(cls, refused: object) -> Shortage:
        message = f"the system starts no further process or thread: {refused}"
        advice = "Raise the limit of processes (ulimit -u, TasksMax, pids.max), or run fewer threads."
        return cls(ErrorCode.WORKER_DIED, message, advice=advice)

    @property
    def waiting(self) -> str:
        """The words of a runner that waits for the end of it."""
        return f"{self}; this runner waits ({self.failed.advice})"


def start_thread(thread: threading.Thread) -> None:
    """Start a thread. Raises `Shortage`."""
    try:
        thread.start()
    except RuntimeError as error:
        raise Shortage.because(error) from error


class Interrupted(LcpError):
    """The result of a step is unknown: the next one to take the lock finds it out, as after a crash."""


@dataclass(frozen=True)
class LocalFiles:
    """Files of this process; `run` calls every step."""

    run: Run = run_here

    def lock(
        self, files: Sequence[RootedPath], wait: Wait = Wait.FIRST, *, together: int = 1
    ) -> AbstractContextManager[LockedFiles]:
        return lock(files, wait, together=together, run=self.run)

    def read_unlocked(self, root: Root, path: str, cap: int | None) -> Snapshot | None:
        return self.run(partial(read_unlocked, root, path, cap))

    def remove_empty(self, root: Root, directories: Iterable[str]) -> None:
        self.run(partial(remove_empty, root, directories))


HERE = LocalFiles()
"""Files accessed in the calling thread."""


@dataclass(frozen=True)
class ConfinedThreads:
    """Threads that can open nothing outside the roots they work in; if not `active`, the calling thread is used."""

    active: bool

    @contextmanager
    def access(self, *roots: Root, writes: bool = False) -> Iterator[FileAccess]:
        """Access to the files beneath `roots` until the context ends. Raises `NOT_ISOLATED`."""
        if not self.active:
            yield HERE
            return
        with _confined_thread(roots, writes=writes) as run:
            yield LocalFiles(run)

    def read(self, root: Root, work: Callable[[], T]) -> T:
        """Call `work`, which only reads beneath `root` and imports nothing. Raises its errors and `NOT_ISOLATED`."""
        if not self.active:
            return work()
        with _confined_thread([root], writes=False) as run:
            return run(work)


def confined_threads(mode: Isolation) -> ConfinedThreads:
    """The threads of this mode on this kernel. Raises `NOT_ISOLATED` if it requires what the kernel lacks."""
    return ConfinedThreads(isolates(mode))


@contextmanager
def _confined_thread(roots: Sequence[Root], *, writes: bool) -> Iterator[Run]:
    """Runs what it is given in one thread that is confined to `roots`."""
    from concurrent.futures import Future

    calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def serve() -> None:
        while (call := calls.get()) is not None:
            call()

    def run(work: Callable[[], T], /) -> T:
        result: Future[T] = Future()
        calls.put(partial(_resolve, result, work))
        return result.result()

    # Not from a pool: a process waits for a pool's threads when it ends, and a file system may hang for ever.
    thread = threading.Thread(target=serve, name="lcp-confined", daemon=True)
    start_thread(thread)
    try:
        try:
            run(partial(restrict_to, *(root.descriptor for root in roots), writes=writes))
        except OSError as error:
            message = f"a thread could not be confined to its root: {error}"
            raise LcpError(ErrorCode.NOT_ISOLATED, message) from error
        yield run
    finally:
        calls.put(None)
        thread.join()


def _resolve(result: Future[T], work: Callable[[], T]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 -- raised again in the thread that called
        result.set_exception(error)
