"""Have the jobs of a runner's file kinds executed in confined processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.engine.outcomes import Succeeded
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.isolation.line import Broken, Buffer, Head, Late, failed_of, number_of, raise_failed, text_of
from lcp_engine.isolation.nursery import Child, Nursery, nursery
from lcp_engine.isolation.setup import SETUPS, Setup
from lcp_engine.sandbox.batch import Batch, Held
from lcp_engine.sandbox.hands import Hands, Interrupted
from lcp_engine.sandbox.replace import Current, Glance, Target
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Applied, Caps, FileEffect, Hold, Worker

MAX_ROOTS = 16
"""Roots whose processes are kept."""
BASE_MEMORY = 512 * 1024 * 1024
MEMORY_PER_CAP = 16
"""A process may take `BASE_MEMORY` bytes, and so many times the larger of the caps on reads and writes."""


@dataclass(frozen=True)
class Assignment:
    """One job for a confined process, which has its kind's timeout. `key` stands for `setup`, which is told once."""

    worker: Worker[BaseModel]
    who: str
    params: str
    key: str
    setup: Setup
    approved: bool

    @property
    def seconds(self) -> float:
        return self.worker.timeout


@dataclass
class _Pair:
    """The processes of one root: one can only read, the other one can write as well and executes no worker."""

    reader: Child | None = None
    writer: Child | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Confinement:
    """The confined processes of one runner. Each begins on first use; one that is gone is begun anew."""

    def __init__(self, caps: Caps, born_by: Nursery | None = None) -> None:
        self._nursery = born_by or nursery()
        self._memory = BASE_MEMORY + MEMORY_PER_CAP * max(caps.read_bytes, caps.write_bytes)
        self._pairs: dict[tuple[str, int, int], _Pair] = {}
        self._lock = threading.Lock()

    def executes(self, kind: str) -> bool:
        """Whether jobs of that kind are executed by these processes."""
        return kind in self._nursery.kinds

    def expect(self) -> None:
        """Begin to load what the first job needs; nobody waits for it."""
        self._nursery.expect()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            pairs, self._pairs = list(self._pairs.values()), {}
        for pair in pairs:
            _end(pair)

    def work(self, root: Root, job: Assignment) -> Succeeded | FileEffect | Hold | Failed:
        """What the job comes to. Raises `LcpError`: TIMEOUT, OUT_OF_MEMORY, WORKER_DIED, NOT_ISOLATED.

        A process that dies takes down what others have under way in it. Each of them begins again in a process of its
        own, so that only the one that ended it fails.
        """
        until = time.monotonic() + job.seconds
        try:
            return self._work(self._reader(root), job, until)
        except Broken:
            alone = self._nursery.bear(root, writes=False, memory=self._memory)
            try:
                return self._work(alone, job, until)
            except Broken as broken:
                raise _died(job, broken, self._memory) from broken
            finally:
                alone.kill()

    def hands(self, seconds: float) -> Hands:
        """What touches files in the process that can write; each step waits for `seconds` at most."""

        @contextmanager
        def locked_batch(root: Root, paths: Sequence[str]) -> Iterator[Batch]:
            steps = _Steps(self._writer(root), seconds, paths[0])
            head, _ = steps.take({"do": "lock", "paths": list(paths)})
            batch = _FarBatch(steps, paths, head["found"])
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
            head, body = _Steps(self._writer(root), seconds, path).take(
                {"do": "look", "path": path, "cap": cap}
            )
            if head.get("is") == "nothing":
                return None
            return Glance(
                text_of(head, "sha256"), number_of(head, "size"), bytes(body) if head["read"] else None
            )

        return Hands(locked, locked_batch, look_at)

    def _work(self, child: Child, job: Assignment, until: float) -> Succeeded | FileEffect | Hold | Failed:
        head: Head = {
            "do": "work", "kind": job.worker.kind, "who": job.who, "key": job.key, "approved": job.approved,
        }  # fmt: skip
        body = job.params.encode()
        try:
            answer, found = child.exchange(head, body, _left(until))
            if answer.get("is") == "asks":
                setup: JsonValue = SETUPS.dump_python(job.setup, mode="json")
                answer, found = child.exchange({**head, "setup": setup}, body, _left(until))
            return _outcome(child, job, answer, found)
        except Late:
            child.kill()
            said = f"{job.who} has to end within {job.worker.timeout:g} s; its process was ended"
            raise LcpError(ErrorCode.TIMEOUT, said) from None
        except Broken:
            child.kill()
            raise

    def _reader(self, root: Root) -> Child:
        pair = self._pair(root)
        with pair.lock:
            if pair.reader is None or pair.reader.is_gone:
                pair.reader = self._nursery.bear(root, writes=False, memory=self._memory)
            return pair.reader

    def _writer(self, root: Root) -> Child:
        pair = self._pair(root)
        with pair.lock:
            if pair.writer is None or pair.writer.is_gone:
                pair.writer = self._nursery.bear(root, writes=True, memory=self._memory)
            return pair.writer

    def _pair(self, root: Root) -> _Pair:
        status = os.fstat(root.descriptor)
        key = (root.path, status.st_dev, status.st_ino)
        with self._lock:
            pair = self._pairs.pop(key, None) or _Pair()
            self._pairs[key] = pair  # the one used last stands last
            if len(self._pairs) > MAX_ROOTS:
                # Its processes end as soon as no thread uses them any more.
                self._pairs.pop(next(iter(self._pairs)))
            return pair


def _end(pair: _Pair) -> None:
    with pair.lock:
        for child in (pair.reader, pair.writer):
            if child is not None:
                child.kill()


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


class _OutOfMemory(Broken):
    pass


def _died(job: Assignment, broken: Broken, memory: int) -> LcpError:
    if isinstance(broken, _OutOfMemory):
        said = f"{job.who} has to do with {memory // 2**20} MiB of memory; it took more"
        return LcpError(ErrorCode.OUT_OF_MEMORY, said)
    return LcpError(
        ErrorCode.WORKER_DIED, f"{job.who}: the process that executed it has to live on; {broken}"
    )


def _outcome(
    child: Child, job: Assignment, head: Head, body: Buffer
) -> Succeeded | FileEffect | Hold | Failed:
    """The answer as a value; the process that gave it is not trusted to answer as it should."""
    match head.get("is"):
        case "done":
            return Succeeded(_checked(job.worker, body))
        case "hold":
            return Hold(text_of(head, "reason"))
        case "failed":
            return failed_of(head)
        case "effect":
            return _effect(child, job, head, body)
        case "memory":
            raise _OutOfMemory("it took more memory than it may")
        case other:
            raise Broken(f"it answered {other!r}")


def _checked(worker: Worker[BaseModel], body: Buffer) -> str:
    """A result as it is stored, if it is one of that kind. Raises `Broken`."""
    try:
        worker.result.model_validate_json(body)
        return str(body, "utf-8")
    except (ValidationError, UnicodeDecodeError) as error:
        raise Broken("it answered with a result of another kind") from error


def _effect(child: Child, job: Assignment, head: Head, body: Buffer) -> FileEffect:
    mode: Literal["overwrite", "append"] = "append" if head.get("mode") == "append" else "overwrite"
    param = head.get("param")
    content = str(body, "utf-8", "surrogatepass") if param is None else _param(job, param)
    return FileEffect(text_of(head, "path"), content, mode, _result(child, job))


def _param(job: Assignment, name: JsonValue) -> str:
    import json

    value = json.loads(job.params).get(name)
    if not isinstance(value, str):
        raise Broken(f"it answered with a param {name!r}")
    return value


def _result(child: Child, job: Assignment) -> Callable[[Applied], BaseModel]:
    """The process keeps the effect until this thread's next job, and makes its result once the effect is known."""

    def result(applied: Applied) -> BaseModel:
        head: Head = {
            "do": "result",
            "before": applied.sha256_before,
            "after": applied.sha256_after,
            "size": applied.size_bytes,
        }
        try:
            _, body = child.exchange(head, b"", job.seconds)
            return job.worker.result.model_validate_json(body)
        except (Broken, Late, ValidationError) as error:
            child.kill()
            said = f"{job.who}: the process that executed it ended before it told the result"
            raise LcpError(ErrorCode.WORKER_DIED, said) from error

    return result


@dataclass(frozen=True)
class _Steps:
    """The steps on one file, in the process that can write."""

    child: Child
    seconds: float
    path: str

    def take(self, head: Head, body: Buffer = b"") -> tuple[Head, Buffer]:
        """Raises what the step met, and `Interrupted` where that is not known."""
        try:
            answer, found = self.child.exchange(head, body, self.seconds)
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


class _FarBatch:
    """Files in the process that can write, which holds the locks."""

    def __init__(self, steps: _Steps, paths: Sequence[str], found: JsonValue) -> None:
        if not isinstance(found, list) or len(found) != len(paths):
            raise Interrupted(
                ErrorCode.WORKER_DIED, f"{paths[0]!r}: the process that writes told of other files"
            )
        self._steps = steps
        self.is_lost = False
        self.found = [self._held(nth, *told_of) for nth, told_of in enumerate(zip(paths, found, strict=True))]

    def sync(self) -> None:
        raise_failed(self.take({"do": "sync"}, self._steps)[0])

    def free(self) -> None:
        """Give up the locks; where the process is gone, they are free already."""
        if not self.is_lost:
            with suppress(Interrupted):
                self.take({"do": "free"}, self._steps)

    def take(self, head: Head, steps: _Steps, body: Buffer = b"") -> tuple[Head, Buffer]:
        try:
            return steps.take(head, body)
        except Interrupted:
            self.is_lost = True
            raise

    def _held(self, nth: int, path: str, found: JsonValue) -> Held:
        if not isinstance(found, dict):
            return None
        if found.get("is") == "failed":
            failed = failed_of(found)
            return LcpError(failed.code, failed.message, failed.details)
        return _FarTarget(path, _texts(found.get("made")), self, nth, replace(self._steps, path=path))


class _FarTarget(Target):
    """A `Target` in the process that can write."""

    def __init__(self, path: str, made: tuple[str, ...], batch: _FarBatch, nth: int, steps: _Steps) -> None:
        super().__init__(path, path.rpartition("/")[2], -1, made)
        self._batch = batch
        self._nth = nth
        self._steps = steps

    def read(self, cap: int | None) -> Current | None:
        head, body = self._take({"do": "read", "cap": cap})
        return None if head.get("is") == "nothing" else _current(head, body)

    def read_within(self, most: int) -> Current | int | None:
        head, body = self._take({"do": "read within", "cap": most})
        if head.get("is") == "size":
            return number_of(head, "size")
        return None if head.get("is") == "nothing" else _current(head, body)

    def size(self) -> int | None:
        size = self._take({"do": "size"})[0].get("size")
        return size if isinstance(size, int) else None

    def sha256(self) -> str:
        return text_of(self._take({"do": "sha256"})[0], "sha256")

    def put(self, data: bytes, temporary: str, mode: int | None = None) -> None:
        self._take({"do": "put", "temporary": temporary, "mode": mode}, data)

    def sync(self) -> None:
        self._take({"do": "sync"})

    def remove(self) -> None:
        self._take({"do": "remove"})

    def discard(self, temporary: str) -> None:
        self._take({"do": "discard", "temporary": temporary})

    def _take(self, head: Head, body: Buffer = b"") -> tuple[Head, Buffer]:
        answer, found = self._batch.take({**head, "nth": self._nth}, self._steps, body)
        self.replaced = bool(answer.get("replaced"))
        raise_failed(answer)
        return answer, found


def _current(head: Head, body: Buffer) -> Current:
    return Current(bytes(body), text_of(head, "sha256"), number_of(head, "mode"))


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
