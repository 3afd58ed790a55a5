"""Touch files in a confined process that can write, from the runner: the other end of `writer` (R20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.channel import (
    Broken,
    Buffer,
    Head,
    Late,
    failed_of,
    number_of,
    raise_failed,
    text_of,
)
from lcp_engine.runner.confined.spawner import Child
from lcp_engine.sandbox.atomic_write import Current, Glance, Mark, Target
from lcp_engine.sandbox.file_access import Hands, Interrupted
from lcp_engine.sandbox.lock_batch import Batch, Held, Put
from lcp_engine.sandbox.root import Root

MOST_AT_ONCE = 1024 * 1024
"""Bytes of files that are told in one message, above the first."""


def far_hands(writer_of: Callable[[Root], Child], seconds: float) -> Hands:
    """What touches files in the process that can write in a root; each step waits for `seconds` at most."""

    @contextmanager
    def locked_batch(root: Root, paths: Sequence[str]) -> Iterator[Batch]:
        steps = _Steps(writer_of(root), seconds, paths[0])
        head, body = steps.take({"do": "lock", "paths": list(paths)})
        batch = FarBatch(steps, paths, head["found"], body)
        try:
            yield batch
        finally:
            batch.free()

    @contextmanager
    def locked(root: Root, path: str) -> Iterator[Target]:
        with locked_batch(root, [path]) as batch:
            (held,) = batch.found
            if isinstance(held, LcpError):
                raise held
            assert held is not None
            yield held

    def look_at(root: Root, path: str, cap: int | None) -> Glance | None:
        head, body = _Steps(writer_of(root), seconds, path).take({"do": "look", "path": path, "cap": cap})
        if head.get("is") == "nothing":
            return None
        return Glance(text_of(head, "sha256"), number_of(head, "size"), bytes(body) if head["read"] else None)

    return Hands(locked, locked_batch, look_at)


@dataclass(frozen=True)
class _Steps:
    """The steps on one file, in the process that can write."""

    child: Child
    seconds: float
    path: str

    def take(
        self, head: Head, body: Buffer = b"", turns_to: Callable[[int], object] | None = None
    ) -> tuple[Head, Buffer]:
        """Raises what the step met, and `Interrupted` where that is not known."""
        try:
            answer, found = self.child.exchange(head, body, self.seconds, turns_to)
        except Late:
            # It goes on there, and holds the lock until it is done.
            said = f"{self.path!r}: a step has to end within {self.seconds:g} s; it runs on"
            raise Interrupted(ErrorCode.TIMEOUT, said) from None
        except Broken as broken:
            self.child.kill()
            said = f"{self.path!r}: the process that writes has to live on; {broken}"
            raise Interrupted(ErrorCode.WORKER_DIED, said) from broken
        if answer.get("is") != "failed" or "replaced" not in answer:
            raise_failed(answer)
        return answer, found


class FarBatch:
    """Files in the process that can write, which holds the locks."""

    def __init__(self, steps: _Steps, paths: Sequence[str], found: JsonValue, seen: Buffer) -> None:
        if not isinstance(found, list) or len(found) != len(paths):
            raise Interrupted(
                ErrorCode.WORKER_DIED, f"{paths[0]!r}: the process that writes told of other files"
            )
        self._steps = steps
        self.is_lost = False
        contents = _Pieces(seen)
        self.found = [
            self._held(nth, path, told_of, contents)
            for nth, (path, told_of) in enumerate(zip(paths, found, strict=True))
        ]

    def put(self, puts: Sequence[Put], turns_to: Callable[[int], object]) -> list[LcpError | None]:
        errors: list[LcpError | None] = []
        while len(errors) < len(puts):
            turns_to(len(errors))
            some = _some(puts[len(errors) :])
            files: list[JsonValue] = [
                {"nth": self.found.index(put.target), "temporary": put.temporary, "size": len(put.data)}
                for put in some
            ]
            head, _ = self.take(
                {"do": "put all", "files": files},
                self._steps,
                b"".join(put.data for put in some),
                _turning(turns_to, range(len(errors), len(errors) + len(some))),
            )
            errors += [_came_to(put, one) for put, one in zip(some, _list(head.get("found")), strict=True)]
        return errors

    def free(self) -> None:
        """Give up the locks; where the process is gone, they are free already."""
        if not self.is_lost:
            with suppress(Interrupted):
                self.take({"do": "free"}, self._steps)

    def take(
        self,
        head: Head,
        steps: _Steps,
        body: Buffer = b"",
        turns_to: Callable[[int], object] | None = None,
    ) -> tuple[Head, Buffer]:
        try:
            return steps.take(head, body, turns_to)
        except Interrupted:
            self.is_lost = True
            raise

    def _held(self, nth: int, path: str, found: JsonValue, contents: _Pieces) -> Held:
        if not isinstance(found, dict):
            return None
        if found.get("is") == "failed":
            failed = failed_of(found)
            return LcpError(failed.code, failed.message, failed.details)
        target = FarTarget(path, _texts(found.get("made")), self, nth, replace(self._steps, path=path))
        seen = found.get("seen")
        if isinstance(seen, dict):
            target.glances.append(_seen(seen, contents.next(seen)))
        return target


class FarTarget(Target):
    """A `Target` in the process that can write: every step of it is taken there."""

    def __init__(self, path: str, made: tuple[str, ...], batch: FarBatch, nth: int, steps: _Steps) -> None:
        super().__init__(path, -1, made)
        self._batch = batch
        self._nth = nth
        self._steps = steps
        self.glances: list[Current | int | None] = []  # what it was when it was locked, told once

    def read(self, cap: int | None) -> Current | None:
        head, body = self._take({"do": "read", "cap": cap})
        return None if head.get("is") == "nothing" else _current(head, body)

    def read_within(self, most: int) -> Current | int | None:
        if self.glances:
            seen = self.glances.pop()
            if seen is None or (isinstance(seen, int) and seen > most):
                return seen
            if isinstance(seen, Current) and len(seen.data) <= most:
                return seen
        head, body = self._take({"do": "read within", "cap": most})
        return _seen(head, body)

    def mark(self) -> Mark | None:
        head, _ = self._take({"do": "mark"})
        return None if head.get("is") == "nothing" else Mark(text_of(head, "sha256"), number_of(head, "mode"))

    def put(self, data: bytes, temporary: str, mode: int | None = None) -> None:
        self.glances.clear()
        self._take({"do": "put", "temporary": temporary, "mode": mode}, data)

    def sync(self) -> None:
        self._take({"do": "sync"})

    def remove(self) -> None:
        self.glances.clear()
        self._take({"do": "remove"})

    def discard(self, temporary: str) -> None:
        self._take({"do": "discard", "temporary": temporary})

    def _take(self, head: Head, body: Buffer = b"") -> tuple[Head, Buffer]:
        answer, found = self._batch.take({**head, "nth": self._nth}, self._steps, body)
        self.replaced = bool(answer.get("replaced"))
        raise_failed(answer)
        return answer, found


class _Pieces:
    """Contents that came one behind the other."""

    def __init__(self, body: Buffer) -> None:
        self._body = body
        self._at = 0

    def next(self, head: Head) -> Buffer:
        size = number_of(head, "size") if head.get("is") == "file" else 0
        self._at += size
        return self._body[self._at - size : self._at]


def _some(puts: Sequence[Put]) -> list[Put]:
    """The first, and those behind it that are told with it."""
    size, some = 0, list[Put]()
    for put in puts:
        size += len(put.data)
        if some and size > MOST_AT_ONCE:
            break
        some.append(put)
    return some


def _turning(turns_to: Callable[[int], object], places: Sequence[int]) -> Callable[[int], object]:
    def turns(nth: int) -> None:
        if nth not in range(len(places)):
            raise Broken("it told of another file")
        turns_to(places[nth])

    return turns


def _came_to(put: Put, found: JsonValue) -> LcpError | None:
    if not isinstance(found, dict):
        raise Interrupted(ErrorCode.WORKER_DIED, f"{put.target.path!r}: what became of it was not told")
    put.target.replaced = bool(found.get("replaced"))
    if found.get("is") != "failed":
        return None
    failed = failed_of(found)
    return LcpError(failed.code, failed.message, failed.details)


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _seen(head: Head, body: Buffer) -> Current | int | None:
    if head.get("is") == "size":
        return number_of(head, "size")
    return None if head.get("is") == "nothing" else _current(head, body)


def _current(head: Head, body: Buffer) -> Current:
    return Current(bytes(body), text_of(head, "sha256"), number_of(head, "mode"))


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
