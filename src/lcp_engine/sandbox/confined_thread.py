"""Touch files from a thread that can open nothing outside the roots it works in (R22).

Landlock binds the thread that asks. Such a thread costs a fraction of a millisecond, so that commands of a person can
have one too; what is open in the process stays open to it: it is a wall around paths, not around code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import Glance, Target
from lcp_engine.sandbox.file_access import BARE, BareHands
from lcp_engine.sandbox.isolation_mode import Isolation, isolates
from lcp_engine.sandbox.landlock import restrict_to
from lcp_engine.sandbox.lock_many import Found, Place
from lcp_engine.sandbox.root import Root

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class Do(Protocol):
    """Calls something, and returns or raises what that does."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


@dataclass(frozen=True)
class Walls:
    """Whether files are touched behind walls; without them, in the thread that wants it."""

    stand: bool

    @contextmanager
    def around(self, *roots: Root, writes: bool = False) -> Iterator[BareHands]:
        """Hands that reach nothing outside `roots`, until the end of the context. Raises `NOT_ISOLATED`."""
        if not self.stand:
            yield BARE
            return
        with _cell(roots, writes=writes) as do:
            yield _behind(do)

    def look(self, root: Root, work: Callable[[], T]) -> T:
        """What `work` returns or raises, which only reads beneath `root` and loads nothing. Raises `NOT_ISOLATED`."""
        if not self.stand:
            return work()
        with _cell([root], writes=False) as do:
            return do(work)


def walls_of(mode: Isolation) -> Walls:
    """Those that stand in this mode on this kernel. Raises `NOT_ISOLATED` where there have to be some."""
    return Walls(isolates(mode))


@contextmanager
def _cell(roots: Sequence[Root], *, writes: bool) -> Iterator[Do]:
    """What calls something in a thread that is confined to `roots`."""
    from concurrent.futures import Future

    asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def live() -> None:
        while (call := asked.get()) is not None:
            call()

    def do(work: Callable[[], T], /) -> T:
        answer: Future[T] = Future()
        asked.put(lambda: _find(answer, work))
        return answer.result()

    # Not a pool's: its threads are waited for when the process ends, and a file system may hang for ever.
    thread = threading.Thread(target=live, name="lcp-walls", daemon=True)
    thread.start()
    try:
        _confine(do, roots, writes=writes)
        yield do
    finally:
        asked.put(None)
        thread.join()


def _find(answer: Future[T], work: Callable[[], T]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 -- who asked raises it
        answer.set_exception(error)


def _confine(do: Do, roots: Sequence[Root], *, writes: bool) -> None:
    try:
        do(lambda: restrict_to(*(root.descriptor for root in roots), writes=writes))
    except OSError as error:
        message = f"a thread could not be confined to its root: {error}"
        raise LcpError(ErrorCode.NOT_ISOLATED, message) from error


def _behind(do: Do) -> BareHands:
    def locked(root: Root, path: str) -> AbstractContextManager[Target]:
        return _entered(do, BARE.locked(root, path), lambda target: _InCell(target, do))

    def locked_if_free(root: Root, path: str) -> AbstractContextManager[Target | None]:
        found = BARE.locked_if_free(root, path)
        return _entered(do, found, lambda target: None if target is None else _InCell(target, do))

    def locked_together(places: Sequence[Place]) -> AbstractContextManager[list[Found]]:
        return _entered(do, BARE.locked_together(places), lambda found: [_found(one, do) for one in found])

    def look_at(root: Root, path: str, cap: int | None) -> Glance | None:
        return do(lambda: BARE.look_at(root, path, cap))

    def remove_empty(root: Root, directories: Iterable[str]) -> None:
        do(lambda: BARE.remove_empty(root, directories))

    return BareHands(locked, look_at, locked_if_free, locked_together, remove_empty)


@contextmanager
def _entered(do: Do, there: AbstractContextManager[T], shown: Callable[[T], T]) -> Iterator[T]:
    """A context that is entered and left behind the walls."""
    inner = do(there.__enter__)
    try:
        yield shown(inner)
    except BaseException as error:
        caught = error
        if not do(lambda: there.__exit__(type(caught), caught, caught.__traceback__)):
            raise
    else:
        do(lambda: there.__exit__(None, None, None))


def _found(one: Found, do: Do) -> Found:
    return _InCell(one, do) if isinstance(one, Target) else one


class _InCell(Target):
    """A `Target` whose steps are taken behind the walls."""

    def __init__(self, target: Target, do: Do) -> None:
        super().__init__(target.path, -1, target.made)
        self._target, self._do = target, do


def _step(name: str) -> Callable[..., object]:
    def step(self: _InCell, *arguments: object) -> object:
        try:
            return self._do(lambda: getattr(self._target, name)(*arguments))
        finally:
            self.replaced = self._target.replaced

    return step


for _name, _value in vars(Target).items():
    if callable(_value) and not _name.startswith("_"):
        setattr(_InCell, _name, _step(_name))
