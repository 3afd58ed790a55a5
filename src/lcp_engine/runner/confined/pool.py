"""Execute the jobs of a runner's file kinds, and access their files, in confined processes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.runner.confined.channel import (
    Answer,
    Buffer,
    Disconnected,
    Duty,
    Head,
    Request,
    TimedOut,
    failure_of,
    text_of,
)
from lcp_engine.runner.confined.process import ConfinedProcess, Spawner, spawner
from lcp_engine.runner.confined.remote_files import RemoteFiles
from lcp_engine.runner.confined.server import SETUPS, Setup
from lcp_engine.sandbox.file_access import HERE, FileAccess
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Applied, Caps, FileEffect, Hold, Mode, Worker

MAX_ROOTS = 16
"""Roots whose processes are kept."""
BASE_MEMORY = 512 * 1024 * 1024
MEMORY_PER_CAP = 16
"""A process may take `BASE_MEMORY` bytes, and so many times the larger of the caps on reads and writes."""


@dataclass(frozen=True)
class Assignment:
    """One job for a confined process, with its kind's timeout. `key` names `setup`, which is sent only once."""

    worker: Worker[BaseModel]
    name: str
    params: str
    key: str
    setup: Setup
    approved: bool

    @property
    def seconds(self) -> float:
        return self.worker.timeout


@dataclass
class _Pair:
    """The processes of one root: one can only read; the other can also write, and executes no worker."""

    reader: ConfinedProcess | None = None
    writer: ConfinedProcess | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Confinement:
    """The confined processes of one runner. Each starts on first use, and again if it has ended."""

    def __init__(self, caps: Caps, spawned_by: Spawner | None = None) -> None:
        self._spawner = spawned_by or spawner()
        self._memory = BASE_MEMORY + MEMORY_PER_CAP * max(caps.read_bytes, caps.write_bytes)
        self._pairs: dict[tuple[str, int, int], _Pair] = {}
        self._lock = threading.Lock()

    def executes(self, kind: str) -> bool:
        """True if jobs of that kind are executed by these processes."""
        return kind in self._spawner.kinds

    def start(self) -> None:
        """Start to load what the first job needs, without waiting for it."""
        self._spawner.start()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            pairs, self._pairs = list(self._pairs.values()), {}
        for pair in pairs:
            _end(pair)

    def work(self, root: Root, job: Assignment) -> Succeeded | FileEffect | Hold | Failed:
        """The outcome of the job. Raises `LcpError`: TIMEOUT, OUT_OF_MEMORY, WORKER_DIED, NOT_ISOLATED.

        A process that dies interrupts all jobs that it executes. Each of them starts again in a process of its own, so
        that only the one that ended it fails.
        """
        until = time.monotonic() + job.seconds
        try:
            return self._work(self._reader(root), job, until)
        except Disconnected:
            alone = self._spawner.spawn(root, Duty.READ, self._memory)
            try:
                return self._work(alone, job, until)
            except Disconnected as error:
                raise _death(job, error, self._memory) from error
            finally:
                alone.kill()

    def work_ahead(
        self, root: Root, jobs: Sequence[Assignment], starts: Callable[[int], bool]
    ) -> list[Succeeded | Hold | Failed | None]:
        """The outcomes of jobs that are sent together, in their order; None for those that must be sent alone.

        `starts` is called with the index of each job before its answer is waited for; if it returns False, the rest is
        left. Raises `LcpError`: WORKER_DIED, NOT_ISOLATED.
        """
        found: list[Succeeded | Hold | Failed | None] = [None] * len(jobs)
        process = self._reader(root)
        try:
            channel = process.channel()
            channel.set_timeout(jobs[0].seconds)
            channel.send_all((_work_request(job), job.params.encode()) for job in jobs)
            for nth, job in enumerate(jobs):
                if not starts(nth):
                    process.drop_channel()
                    break
                try:
                    head, body = channel.receive()
                except TimedOut:
                    process.kill()
                    found[nth] = _timeout(job).failed
                    break
                if head.get("is") in (Answer.DONE, Answer.HOLD, Answer.FAILED):
                    outcome = _outcome(process, job, head, body)
                    found[nth] = None if isinstance(outcome, FileEffect) else outcome
        except (Disconnected, TimedOut):
            process.drop_channel()
            process.kill()
        return found

    def files(self, seconds: float) -> FileAccess:
        """Access through the process that can write; each step takes `seconds` at most."""
        return RemoteFiles(self._writer, seconds)

    def _work(
        self, process: ConfinedProcess, job: Assignment, until: float
    ) -> Succeeded | FileEffect | Hold | Failed:
        head, body = _work_request(job), job.params.encode()
        try:
            answer, found = process.exchange(head, body, job.seconds)
            if answer.get("is") == Answer.SETUP_NEEDED:
                setup: JsonValue = SETUPS.dump_python(job.setup, mode="json")
                answer, found = process.exchange({**head, "setup": setup}, body, _seconds_until(until))
            return _outcome(process, job, answer, found)
        except TimedOut:
            process.kill()
            raise _timeout(job) from None
        except Disconnected:
            process.kill()
            raise

    def _reader(self, root: Root) -> ConfinedProcess:
        pair = self._pair(root)
        with pair.lock:
            if pair.reader is None or pair.reader.is_gone:
                pair.reader = self._spawner.spawn(root, Duty.READ, self._memory)
            return pair.reader

    def _writer(self, root: Root) -> ConfinedProcess:
        pair = self._pair(root)
        with pair.lock:
            if pair.writer is None or pair.writer.is_gone:
                pair.writer = self._spawner.spawn(root, Duty.WRITE, self._memory)
            return pair.writer

    def _pair(self, root: Root) -> _Pair:
        status = os.fstat(root.descriptor)
        key = (root.path, status.st_dev, status.st_ino)
        with self._lock:
            pair = self._pairs.pop(key, None) or _Pair()
            self._pairs[key] = pair  # the most recently used is the last
            if len(self._pairs) > MAX_ROOTS:
                # Its processes end as soon as no thread uses them any more.
                self._pairs.pop(next(iter(self._pairs)))
            return pair


def file_access(confinement: Confinement | None, seconds: float) -> FileAccess:
    """Access to the files of jobs: through a confined process, `seconds` a step at most, or in this one."""
    return HERE if confinement is None else confinement.files(seconds)


def _end(pair: _Pair) -> None:
    with pair.lock:
        for process in (pair.reader, pair.writer):
            if process is not None:
                process.kill()


def _work_request(job: Assignment) -> Head:
    return {
        "do": Request.WORK,
        "kind": job.worker.kind,
        "name": job.name,
        "key": job.key,
        "approved": job.approved,
    }


def _timeout(job: Assignment) -> LcpError:
    message = f"{job.name} took more than {job.worker.timeout:g} s; its process was ended"
    return LcpError(ErrorCode.TIMEOUT, message)


def _seconds_until(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


class _OutOfMemory(Disconnected):
    pass


def _death(job: Assignment, error: Disconnected, memory: int) -> LcpError:
    if isinstance(error, _OutOfMemory):
        message = f"{job.name} needs more than the {memory // 2**20} MiB of memory that it may take"
        return LcpError(ErrorCode.OUT_OF_MEMORY, message)
    return LcpError(ErrorCode.WORKER_DIED, f"{job.name}: the process that executed it died: {error}")


def _outcome(
    process: ConfinedProcess, job: Assignment, head: Head, body: Buffer
) -> Succeeded | FileEffect | Hold | Failed:
    """The outcome that an answer states; the process is not trusted to keep to the protocol."""
    match head.get("is"):
        case Answer.DONE:
            return Succeeded(_checked_result(job.worker, body))
        case Answer.HOLD:
            return Hold(text_of(head, "reason"))
        case Answer.FAILED:
            return failure_of(head)
        case Answer.EFFECT:
            return _effect(process, job, head, body)
        case Answer.OUT_OF_MEMORY:
            raise _OutOfMemory("it took more memory than it may")
        case other:
            raise Disconnected(f"it answered {other!r}")


def _checked_result(worker: Worker[BaseModel], body: Buffer) -> str:
    """A result as it is stored, if it is one of that kind. Raises `Disconnected`."""
    try:
        worker.result.model_validate_json(body)
        return str(body, "utf-8")
    except (ValidationError, UnicodeDecodeError) as error:
        raise Disconnected("it answered with a result of another kind") from error


def _effect(process: ConfinedProcess, job: Assignment, head: Head, body: Buffer) -> FileEffect:
    mode = _MODES.get(text_of(head, "mode"))
    if mode is None:
        raise Disconnected(f"it answered with the mode {head['mode']!r}")
    param, replaced = head.get("param"), head.get("replaced_param")
    return FileEffect(
        text_of(head, "path"),
        str(body, "utf-8", "surrogatepass") if param is None else _param(job, param),
        mode,
        partial(_result, process, job),
        replaced=text_of(head, "replaced") if replaced is None else _param(job, replaced),
        everywhere=head.get("everywhere") is True,
        source=text_of(head, "source"),
        encoding=text_of(head, "encoding"),
    )


_MODES: Mapping[str, Mode] = {
    "overwrite": "overwrite",
    "append": "append",
    "edit": "edit",
    "delete": "delete",
    "move": "move",
    "make": "make",
}


def _param(job: Assignment, name: JsonValue) -> str:
    value = json.loads(job.params).get(name)
    if not isinstance(value, str):
        raise Disconnected(f"it answered with a param {name!r}")
    return value


def _result(process: ConfinedProcess, job: Assignment, applied: Applied) -> BaseModel:
    """The result of an effect. The process keeps the effect until this thread's next job, and makes its result."""
    encoding_before, encoding_after = applied.encodings or (None, None)
    head: Head = {
        "do": Request.RESULT,
        "before": applied.sha256_before,
        "after": applied.sha256_after,
        "size": applied.size_bytes,
        "mode": applied.mode_before,
        "is_new": applied.is_new,
        "is_told": applied.is_told,
        "encoding_before": encoding_before,
        "encoding_after": encoding_after,
    }
    try:
        _, body = process.exchange(head, b"", job.seconds)
        return job.worker.result.model_validate_json(body)
    except (Disconnected, TimedOut, ValidationError) as error:
        process.kill()
        message = f"{job.name}: the process that executed it died before it returned the result"
        raise LcpError(ErrorCode.WORKER_DIED, message) from error
