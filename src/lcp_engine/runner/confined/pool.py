"""Have the jobs of a runner's file kinds executed in confined processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.runner.confined.channel import Broken, Buffer, Head, Late, failed_of, text_of
from lcp_engine.runner.confined.remote_files import RemoteFiles
from lcp_engine.runner.confined.setup import SETUPS, Setup
from lcp_engine.runner.confined.spawner import Child, Nursery, nursery
from lcp_engine.sandbox.file_access import HERE, FileAccess
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

    def work_ahead(
        self, root: Root, jobs: Sequence[Assignment], turns_to: Callable[[int], bool]
    ) -> list[Succeeded | Hold | Failed | None]:
        """What jobs come to that are told at once, in their order; None for those that have to be told alone.

        `turns_to` is given the place of each job that is waited for; where it says False, the rest is left. Raises
        `LcpError` NOT_ISOLATED.
        """
        found: list[Succeeded | Hold | Failed | None] = [None] * len(jobs)
        child = self._reader(root)
        try:
            line = child.line()
            line.wait_at_most(jobs[0].seconds)
            line.send_all((_wish(job), job.params.encode()) for job in jobs)
            for nth, job in enumerate(jobs):
                if not turns_to(nth):
                    child.hang_up()
                    break
                try:
                    head, body = line.receive()
                except Late:
                    child.kill()
                    found[nth] = _late(job).failed
                    break
                if head.get("is") in ("done", "hold", "failed"):
                    outcome = _outcome(child, job, head, body)
                    found[nth] = None if isinstance(outcome, FileEffect) else outcome
        except (Broken, Late):
            child.hang_up()
            child.kill()
        return found

    def files(self, seconds: float) -> FileAccess:
        """Access through the process that can write; each step takes `seconds` at most."""
        return RemoteFiles(self._writer, seconds)

    def _work(self, child: Child, job: Assignment, until: float) -> Succeeded | FileEffect | Hold | Failed:
        head, body = _wish(job), job.params.encode()
        try:
            answer, found = child.exchange(head, body, job.seconds)
            if answer.get("is") == "asks":
                setup: JsonValue = SETUPS.dump_python(job.setup, mode="json")
                answer, found = child.exchange({**head, "setup": setup}, body, _left(until))
            return _outcome(child, job, answer, found)
        except Late:
            child.kill()
            raise _late(job) from None
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


def _wish(job: Assignment) -> Head:
    return {
        "do": "work", "kind": job.worker.kind, "who": job.who, "key": job.key, "approved": job.approved,
    }  # fmt: skip


def _late(job: Assignment) -> LcpError:
    said = f"{job.who} has to end within {job.worker.timeout:g} s; its process was ended"
    return LcpError(ErrorCode.TIMEOUT, said)


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


def file_access(confinement: Confinement | None, seconds: float) -> FileAccess:
    """Access to the files of jobs: through a confined process, `seconds` a step at most, or in this one."""
    return HERE if confinement is None else confinement.files(seconds)
