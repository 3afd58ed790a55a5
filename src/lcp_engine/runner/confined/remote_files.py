"""Access files through a confined process that can write: the runner's side of `server.Writer` (R20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from pydantic import JsonValue

from lcp_engine.clock import Micros
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.channel import (
    Answer,
    Buffer,
    Disconnected,
    Head,
    Message,
    Request,
    TimedOut,
    error_of,
    number_of,
    text_of,
    texts_of,
)
from lcp_engine.runner.confined.process import ConfinedProcess
from lcp_engine.sandbox.atomic_write import Current, Digest, LockedFile, Snapshot
from lcp_engine.sandbox.file_access import Interrupted
from lcp_engine.sandbox.locks import Held, LockedFiles, Put, RootedPath, Wait
from lcp_engine.sandbox.root import Root

MOST_AT_ONCE = 1024 * 1024
"""Bytes of files that are sent in one message, beyond the first file."""


@dataclass(frozen=True)
class RemoteFiles:
    """Files accessed in the process that can write in their root; each step takes `seconds` at most."""

    writer_of: Callable[[Root], ConfinedProcess]
    seconds: float

    @contextmanager
    def lock(
        self, files: Sequence[RootedPath], wait: Wait = Wait.FIRST, *, together: int = 1
    ) -> Iterator[LockedFiles]:
        """Like `locks.lock`, for files of one root."""
        (root,) = {id(root): root for root, _ in files}.values()
        paths = [path for _, path in files]
        steps = Steps(self.writer_of(root), self.seconds, paths[0])
        asked: Head = {"do": Request.LOCK, "paths": [*paths], "wait": wait.value, "together": together}
        head, body = steps.take(asked)
        locked = RemoteBatch(steps, paths, head["found"], body)
        try:
            yield locked
        finally:
            locked.release()

    def read_unlocked(self, root: Root, path: str, cap: int | None) -> Snapshot | None:
        head, body = self._steps(root, path).take({"do": Request.READ_UNLOCKED, "path": path, "cap": cap})
        if head.get("is") == Answer.NOTHING:
            return None
        data = bytes(body) if head["read"] else None
        return Snapshot(text_of(head, "sha256"), number_of(head, "size"), data, number_of(head, "mode"))

    def remove_empty(self, root: Root, directories: Iterable[str]) -> None:
        self._steps(root, ".").take({"do": Request.REMOVE_EMPTY, "paths": [*directories]})

    def _steps(self, root: Root, path: str) -> Steps:
        return Steps(self.writer_of(root), self.seconds, path)


@dataclass(frozen=True)
class Steps:
    """Takes the steps on the file at `path` in the process that can write."""

    process: ConfinedProcess
    seconds: float
    path: str

    def take(self, head: Head, body: Buffer = b"", starts: Callable[[int], object] | None = None) -> Message:
        """Raises the refusal of the step, and `Interrupted` if its result is unknown."""
        try:
            answer, found = self.process.exchange(head, body, self.seconds, starts)
        except TimedOut:
            # It continues there, and holds the lock until it is done.
            message = f"{self.path!r}: a step took more than {self.seconds:g} s; it is still running"
            raise Interrupted(ErrorCode.TIMEOUT, message) from None
        except Disconnected as error:
            self.process.kill()
            message = f"{self.path!r}: the process that writes died: {error}"
            raise Interrupted(ErrorCode.WORKER_DIED, message) from error
        refusal = error_of(answer)
        if refusal is not None and "replaced" not in answer:
            raise refusal
        return answer, found


class RemoteBatch:
    """Files locked by the process that can write."""

    def __init__(self, steps: Steps, paths: Sequence[str], found: JsonValue, contents: Buffer) -> None:
        if not isinstance(found, list) or len(found) != len(paths):
            message = f"{paths[0]!r}: the process that writes answered for other files"
            raise Interrupted(ErrorCode.WORKER_DIED, message)
        self._steps = steps
        self._is_lost = False
        slices = _Slices(contents)
        self.found = [
            self._held(nth, path, answer, slices)
            for nth, (path, answer) in enumerate(zip(paths, found, strict=True))
        ]

    def put(self, puts: Sequence[Put], starts: Callable[[int], object]) -> list[LcpError | None]:
        errors: list[LcpError | None] = []
        while len(errors) < len(puts):
            starts(len(errors))
            some = _first_of(puts[len(errors) :])
            files: list[JsonValue] = [
                {
                    "nth": self.found.index(put.file),
                    "temporary": put.temporary,
                    "size": None if put.data is None else len(put.data),
                    "until": put.until,
                    "mode": put.mode,
                }
                for put in some
            ]
            head, _ = self.take(
                {"do": Request.PUT_ALL, "files": files},
                self._steps,
                b"".join(put.data or b"" for put in some),
                _shifted(starts, range(len(errors), len(errors) + len(some))),
            )
            errors += [_error_of(put, one) for put, one in zip(some, _list(head.get("found")), strict=True)]
        return errors

    def release(self) -> None:
        """Release the locks; if the process is gone, they are released already."""
        if not self._is_lost:
            with suppress(Interrupted):
                self.take({"do": Request.RELEASE}, self._steps)

    def take(
        self,
        head: Head,
        steps: Steps,
        body: Buffer = b"",
        starts: Callable[[int], object] | None = None,
    ) -> Message:
        """Like `Steps.take`; after an `Interrupted` step the locks are lost."""
        try:
            return steps.take(head, body, starts)
        except Interrupted:
            self._is_lost = True
            raise

    def _held(self, nth: int, path: str, answer: JsonValue, slices: _Slices) -> Held:
        if not isinstance(answer, dict):
            return None
        if (refusal := error_of(answer)) is not None:
            return refusal
        file = RemoteFile(path, texts_of(answer, "made"), self, nth, replace(self._steps, path=path))
        seen = answer.get("seen")
        if isinstance(seen, dict):
            file.first_read.append(_seen(seen, slices.next(seen)))
        return file


class RemoteFile(LockedFile):
    """A file locked by the process that can write, which takes every step on it."""

    def __init__(self, path: str, made: tuple[str, ...], batch: RemoteBatch, nth: int, steps: Steps) -> None:
        super().__init__(path, made)
        self._batch = batch
        self._nth = nth
        self._steps = steps
        self.first_read: list[Current | int | None] = []
        """What it was when it was locked, if that was sent along; used once."""

    def read(self, cap: int | None) -> Current | None:
        head, body = self._take({"do": Request.READ, "cap": cap})
        return None if head.get("is") == Answer.NOTHING else _current(head, body)

    def read_within(self, most: int) -> Current | int | None:
        if self.first_read:
            seen = self.first_read.pop()
            if seen is None or (isinstance(seen, int) and seen > most):
                return seen
            if isinstance(seen, Current) and len(seen.data) <= most:
                return seen
        head, body = self._take({"do": Request.READ_WITHIN, "cap": most})
        return _seen(head, body)

    def digest(self) -> Digest | None:
        head, _ = self._take({"do": Request.DIGEST})
        return (
            None
            if head.get("is") == Answer.NOTHING
            else Digest(text_of(head, "sha256"), number_of(head, "mode"))
        )

    def put(
        self, data: bytes, temporary: str, mode: int | None = None, *, until: Micros | None = None
    ) -> None:
        self.first_read.clear()
        self._take({"do": Request.PUT, "temporary": temporary, "mode": mode, "until": until}, data)

    def prepare(self, data: bytes, temporary: str, mode: int | None = None) -> bool:
        self.first_read.clear()
        return self._does({"do": Request.PREPARE, "temporary": temporary, "mode": mode}, data)

    def is_prepared(self, temporary: str, after: str) -> bool:
        return self._does({"do": Request.IS_PREPARED, "temporary": temporary, "after": after})

    def put_prepared(self, temporary: str, before: str | None, after: str) -> bool:
        self.first_read.clear()
        return self._does(
            {"do": Request.PUT_PREPARED, "temporary": temporary, "before": before, "after": after}
        )

    def set_mode(self, before: int, after: int) -> bool:
        return self._does({"do": Request.SET_MODE, "before": before, "after": after})

    def sync(self) -> None:
        self._take({"do": Request.SYNC})

    def check_removable(self) -> None:
        self._take({"do": Request.CHECK_REMOVABLE})

    def remove(self, temporary: str, *, until: Micros | None = None) -> None:
        self.first_read.clear()
        self._take({"do": Request.REMOVE, "temporary": temporary, "until": until})

    def mend(self, temporary: str, before: str | None, after: str | None) -> None:
        self.first_read.clear()
        self._take({"do": Request.MEND, "temporary": temporary, "before": before, "after": after})

    def _does(self, head: Head, body: Buffer = b"") -> bool:
        return bool(self._take(head, body)[0].get("done"))

    def _take(self, head: Head, body: Buffer = b"") -> Message:
        answer, found = self._batch.take({**head, "nth": self._nth}, self._steps, body)
        self.replaced = bool(answer.get("replaced"))
        refusal = error_of(answer)
        if refusal is not None:
            raise refusal
        return answer, found


class _Slices:
    """Contents that arrived one after another in one body."""

    def __init__(self, body: Buffer) -> None:
        self._body = body
        self._at = 0

    def next(self, head: Head) -> Buffer:
        size = number_of(head, "size") if head.get("is") == Answer.FILE else 0
        self._at += size
        return self._body[self._at - size : self._at]


def _first_of(puts: Sequence[Put]) -> list[Put]:
    """The first one, and those after it that are sent in the same message."""
    size, some = 0, list[Put]()
    for put in puts:
        size += len(put.data or b"")
        if some and size > MOST_AT_ONCE:
            break
        some.append(put)
    return some


def _shifted(starts: Callable[[int], object], indexes: Sequence[int]) -> Callable[[int], object]:
    """`starts` for a message that holds the files of these `indexes`."""

    def start(nth: int) -> None:
        if nth not in range(len(indexes)):
            raise Disconnected("it named another file")
        starts(indexes[nth])

    return start


def _error_of(put: Put, found: JsonValue) -> LcpError | None:
    if not isinstance(found, dict):
        raise Interrupted(ErrorCode.WORKER_DIED, f"{put.file.path!r}: its process did not report its state")
    put.file.replaced = bool(found.get("replaced"))
    return error_of(found)


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _seen(head: Head, body: Buffer) -> Current | int | None:
    if head.get("is") == Answer.SIZE:
        return number_of(head, "size")
    return None if head.get("is") == Answer.NOTHING else _current(head, body)


def _current(head: Head, body: Buffer) -> Current:
    return Current(bytes(body), text_of(head, "sha256"), number_of(head, "mode"))
