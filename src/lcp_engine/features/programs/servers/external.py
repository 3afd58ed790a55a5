"""Execute the jobs of kinds that are external programs: a line of JSON to the program, a line of JSON from it.

To the program: `{"id": 17, "attempt": 1, "kind": "look_up", "params": {…}}`. From it: `{"result": {…}}` or
`{"error": "…"}`, with the `id` again if it is long-lived. Programs are confined (`features/programs/wall/programs.py`).
"""

from __future__ import annotations

import json
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.core.protocol.schema_model import shortened
from lcp_engine.errors import GENERAL, OF_DATABASE, ErrorCode, Failed, Json, LcpError
from lcp_engine.feature import find_code
from lcp_engine.features.models.endpoints.scrub import LONGEST_SPELLING, SHORTEST, scrubbed, scrubbed_value
from lcp_engine.features.programs.programs import PROGRAMS, ProgramsUnderWay, ended_of
from lcp_engine.features.programs.servers.external_worker import (
    ExternalProgram,
    Keep,
    Needs,
    program_of,
    with_left_out,
    with_output,
)
from lcp_engine.features.programs.wall.layers.working_copy import scratch_directory
from lcp_engine.features.programs.wall.programs import SYSTEM, Bounds, Ended, Program
from lcp_engine.features.programs.wall.toolchains import installed_place, joined_variables, toolchain_of
from lcp_engine.features.programs.wall.views.seen_root import ON_A_COPY, RootAccess, SeenRoot, seen_root
from lcp_engine.runner.confined.channel import Buffer, Disconnected, Duty, Request, TimedOut
from lcp_engine.runner.confined.process import spawner
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.installed_programs import environment_of, is_in, places_of
from lcp_engine.sandbox.system.own_places import own_directories
from lcp_engine.workers.base import Answered, Context, Kept, Worker

MOST_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer."""
MOST_STDERR = 8 * 1024
"""Bytes of stderr that are kept: the last ones."""
MOST_ERROR = 64 * 1024
"""Bytes of an error that a program states whole: it is stored with each attempt, and shown to people."""
MOST_AHEAD = 16
MOST_AHEAD_SIZE = 16 * 1024
"""Jobs that are sent together, and bytes of them: they have to fit into a pipe."""
_MOST_LOST = 20
"""Paths of changes of the root that are named."""
_CHUNK = 64 * 1024
_END_SECONDS = 5.0
_ADVICE = {
    ErrorCode.WORKER_FAILED: "Correct the program; docs/kinds.md describes what it reads and answers.",
    ErrorCode.WORKER_DIED: "Correct the program; what it wrote to stderr is in the details of the attempt.",
    ErrorCode.TIMEOUT: "Make the program quicker, or raise timeout in the description of its kind.",
    ErrorCode.OUT_OF_MEMORY: "Let the program take less, or raise memory in the description of its kind.",
    ErrorCode.TOO_LARGE: "Let the program answer less.",
    ErrorCode.NOT_ALLOWED: "Change files with write_file or edit_file, whose changes are kept; "
    "or state in its kind `root: write`, which keeps those of the program, or `root: read`, which drops them.",
}
_DROPPED = "commands.changes of the mission is drop"
_MOST_LINES = 3
"""Lines of stderr in a message."""
_SAYS_NOTHING = re.compile(
    r"\s.*|\W*|Node\.js v.*|node:internal/.*|Traceback \(most recent call last\):|note: run with `RUST_.*"
    r"|goroutine \d+ .*|npm notice.*|npm (error|ERR!)\s*(A complete log of this run.*)?"
)
_STATED = "The program states this error itself: ask for something else, or correct the program."


@dataclass(frozen=True)
class ProgramRoot:
    """The root of a program that needs it, and what becomes of its changes; without `keep` they are dropped."""

    access: RootAccess
    keep: Keep | None = None


def over_copy(root: Root, may_read: Callable[[str], bool]) -> ProgramRoot:
    """A copy of what may be read of a root, outside of missions; its changes are dropped."""
    return ProgramRoot(RootAccess(root, may_read))


class ExternalPrograms:
    """The external programs of one runner. Long-lived ones stay between jobs, until `close`."""

    def __init__(self, under_way: ProgramsUnderWay | None = None) -> None:
        self._under_way = under_way or ProgramsUnderWay()
        self._idle: dict[str, list[_Running]] = {}
        self._permits: dict[str, threading.Semaphore] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def execute(
        self,
        worker: Worker[BaseModel],
        params: BaseModel,
        context: Context,
        over: ProgramRoot | None,
    ) -> Answered:
        """Answer of the program to a job, `over` the root if it needs that.

        Raises `LcpError`: WORKER_FAILED, WORKER_DIED, TIMEOUT, OUT_OF_MEMORY, NOT_ISOLATED, FILE_SYSTEM, TOO_LARGE,
        NOT_ALLOWED for changes of the root that it may not make, and what `ProgramRoot.keep` raises.
        """
        program = program_of(worker)
        assert program is not None
        root = context.mission_root
        pool = _pool_of(worker, root)
        secrets = _environment(worker.kind, program)
        job = _Job(worker, params, context, tuple(secrets.values()))
        if over is not None:
            with seen_root(over.access, worker.kind) as seen:
                job.begin()
                running = _Running(worker.kind, program, secrets, self._under_way, root=root, seen=seen)
                with running:
                    outcome = running.answer_once(job)
                if isinstance(outcome, BaseModel):
                    return Answered(_settled(job, program.needs, outcome, seen, over), job.stderr)
                return Answered(outcome, job.stderr)
        if not program.long_lived:
            with _Running(worker.kind, program, secrets, self._under_way, root=root) as once:
                return Answered(once.answer_once(job), job.stderr)
        running = self._taken(pool) or _Running(worker.kind, program, secrets, self._under_way, root=root)
        try:
            answer = running.answer(job)
        except BaseException:  # an interrupt, too: what it answers later is for nobody
            running.close()
            raise
        self._put_back(pool, running)
        return Answered(answer, job.stderr)

    def execute_ahead(
        self,
        worker: Worker[BaseModel],
        asked: Sequence[tuple[BaseModel, Context]],
        starts: Callable[[int], bool],
    ) -> list[Answered | None]:
        """The answers of a long-lived program to jobs that are sent together; None for those that must be sent alone.

        `starts` is called with the index of each job before its answer is waited for; if it returns False, the rest is
        left. Raises `LcpError` if the program cannot be started.
        """
        program = program_of(worker)
        assert program is not None
        found: list[Answered | None] = [None] * len(asked)
        root = asked[0][1].mission_root
        pool = _pool_of(worker, root)
        secrets = _environment(worker.kind, program)
        jobs = [_Job(worker, params, context, tuple(secrets.values())) for params, context in asked]
        running = self._taken(pool) or _Running(worker.kind, program, secrets, self._under_way, root=root)
        nth = 0
        try:
            for together in _sent_together(jobs):
                running.send_ahead(together)
                for left in reversed(range(len(together))):
                    if not starts(nth):
                        running.close()
                        return found
                    jobs[nth].begin()
                    found[nth] = Answered(running.answer(jobs[nth], is_last=left == 0), jobs[nth].stderr)
                    nth += 1
        except LcpError as error:
            running.close()
            found[nth] = Answered(error.failed, jobs[nth].stderr)
            return found
        except BaseException:
            running.close()
            raise
        self._put_back(pool, running)
        return found

    def close(self) -> None:
        """End the programs that wait for jobs; those that are at one end with it."""
        with self._lock:
            self._is_closed = True
            waiting = [running for idle in self._idle.values() for running in idle]
            self._idle.clear()
        for running in waiting:
            running.close()

    @contextmanager
    def permit(self, worker: Worker[BaseModel]) -> Iterator[None]:
        """Wait until one more of the kind's programs may be at a job; no time for a kind without such a limit."""
        program = program_of(worker)
        most = None if program is None else program.concurrency
        if most is None:
            yield
            return
        with self._lock:
            permits = self._permits.setdefault(_pool_of(worker), threading.Semaphore(most))
        with permits:
            yield

    def _taken(self, pool: str) -> _Running | None:
        """A program that waits for a job, has not ended, and has not said anything meanwhile."""
        while True:
            with self._lock:
                idle = self._idle.get(pool)
                if not idle:
                    return None
                running = idle.pop()
            if running.is_quiet:
                return running
            running.close()

    def _put_back(self, pool: str, running: _Running) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(pool, []).append(running)
                return
        running.close()


def _pool_of(worker: Worker[BaseModel], root: Root | None = None) -> str:
    """Key that kinds share whose jobs the same processes execute; a root in a place of the system has its own."""
    program = program_of(worker)
    pool = worker.kind if program is None else program.shared or worker.kind
    return pool if root is None else "\0".join((pool, *_in_system(root.places)))


@cache
def _in_system(places: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the places of a root that a program could read as a part of the system."""
    return tuple(place for place in places if is_in(SYSTEM, place))


class _Job:
    """A job as its program sees it, and what the program said of it."""

    def __init__(
        self, worker: Worker[BaseModel], params: BaseModel, context: Context, secrets: Sequence[str]
    ) -> None:
        self.worker = worker
        self.stderr = ""
        self.begin()
        self._id = context.job_id or 0
        self.attempt = (self._id, context.attempt)
        self._secrets = [one for given in secrets if len(one := given.strip() or given) >= SHORTEST]
        request: dict[str, JsonValue] = {
            "id": self._id,
            "attempt": context.attempt,
            "kind": worker.kind,
            "params": params.model_dump(mode="json"),
        }
        self.line = json.dumps(request, separators=(",", ":")).encode() + b"\n"

    def begin(self) -> None:
        """Count the time that it may take from now on."""
        self.until = time.monotonic() + self.worker.timeout

    def outcome(self, line: Buffer, stderr: Buffer, *, needs_id: bool) -> BaseModel | Failed:
        """Outcome that an answer states. Raises `WORKER_FAILED` for anything that is none."""
        answer = self._object(line, stderr)
        said = answer.get("id")
        if said != self._id and (needs_id or said is not None):
            fact = "it has no id" if said is None else f"its id is {shortened(json.dumps(said))}"
            raise self.failed(f"it answered for another job: {fact}, {self._id} is expected", stderr)
        error, result = answer.get("error"), answer.get("result")
        if error is not None and result is None:
            return self._error(error, stderr, is_long=len(line) > MOST_ERROR)
        if not isinstance(result, dict) or error is not None:
            keys = shortened(", ".join(answer)) or "no keys"
            raise self.failed(
                f"an object with result (an object) or error is expected; it has {keys}", stderr
            )
        try:
            return self.worker.result.model_validate(result)
        except ValidationError as refused:
            said = shortened(refused.errors(include_url=False)[0]["msg"])
            raise self.failed(f"its result is not what its schema describes: {said}", stderr) from refused

    def refusal(self, lost: Sequence[str]) -> LcpError:
        """The error of a job that changed the root although its kind does not state that it does."""
        fact = f"what it changed in the root is lost: {self._some(lost)}"
        details: dict[str, Json] = {"stderr": self.stderr} if self.stderr else {}
        code = ErrorCode.NOT_ALLOWED
        message = f"{self.worker.kind}: {fact}"
        named = [self._scrubbed(path) for path in lost[:_MOST_LOST]]
        return LcpError(code, message, {**details, "lost": [*named]}, advice=_ADVICE[code])

    def without(self, lost: Sequence[str], result: BaseModel, why: str = "") -> BaseModel:
        """The result of a job whose changes of the root are dropped, with what is lost, which stderr names, too."""
        fact = f"what it changed in the root is lost{why}: {self._some(lost)}"
        self.stderr = f"{self.stderr}\n{fact}".strip()
        return with_left_out(result, [fact])

    def _some(self, paths: Sequence[str]) -> str:
        more = f" and {len(paths) - _MOST_LOST:,} more" if len(paths) > _MOST_LOST else ""
        return f"{', '.join(self._scrubbed(path) for path in paths[:_MOST_LOST])}{more}"

    @property
    def most_stderr(self) -> int:
        """Bytes of stderr that are read: more than are kept, so that no secret is cut before it is found."""
        return MOST_STDERR + self._margin

    @property
    def _margin(self) -> int:
        return LONGEST_SPELLING * max((len(os.fsencode(one)) for one in self._secrets), default=0)

    def held_back(self, stderr: Buffer) -> int:
        """Number of bytes at its end that may begin a secret, whose rest the program has yet to write."""
        text, most = bytes(stderr), 0
        for secret in map(os.fsencode, self._secrets):
            lengths = range(min(len(secret) - 1, len(text)), most, -1)
            most = next((length for length in lengths if text.endswith(secret[:length])), most)
        return most

    def keep(self, stderr: Buffer) -> None:
        """Keep the end of what the program wrote to stderr."""
        if stderr:
            self.stderr = self._text(stderr)

    def error_in(self, lines: Sequence[Buffer], stderr: Buffer) -> Failed | None:
        """The error that the only line states, if it does."""
        with suppress(LcpError):
            outcome = self.outcome(lines[0], stderr, needs_id=False) if len(lines) == 1 else None
            return outcome if isinstance(outcome, Failed) else None
        return None

    def failed(self, fact: str, stderr: Buffer = b"", code: ErrorCode = ErrorCode.WORKER_FAILED) -> LcpError:
        """An error that names the kind, with what the program wrote to stderr."""
        details: dict[str, Json] = {"stderr": text} if (text := self._text(stderr)) else {}
        return LcpError(code, f"{self.worker.kind}: {self._scrubbed(fact)}", details, advice=_ADVICE[code])

    def last_lines(self, stderr: Buffer) -> str:
        """The last telling lines of stderr, for a message."""
        return telling_lines(self._text(stderr))

    def _object(self, line: Buffer, stderr: Buffer) -> dict[str, JsonValue]:
        try:
            found = self._without_secrets(json.loads(line.decode(), parse_constant=_refuse))
        except (ValueError, RecursionError) as error:
            beginning = self.beginning(line, 200)
            fact = f"a line of JSON is expected, it answered {beginning!r} ({shortened(str(error))})"
            raise self.failed(fact, stderr) from error
        if not isinstance(found, dict):
            raise self.failed(f"an object is expected, it answered {shortened(json.dumps(found))}", stderr)
        return found

    def _error(self, error: JsonValue, stderr: Buffer, *, is_long: bool) -> Failed:
        """The failure that a program states: a text, or an object with a message. A long one is cut."""
        message = error.get("message") if isinstance(error, dict) else error
        if not isinstance(message, str) or not message.strip():
            raise self.failed("error is expected to be a text, or an object with a message", stderr)
        if len(message) > MOST_ERROR:
            message = f"{message[:MOST_ERROR]}… ({len(message) - MOST_ERROR:,} more characters are left out)"
        details = _details(error)
        stated = details.pop("code", None)
        if is_long and details:
            details = {"left_out": f"its details: the error has more than {MOST_ERROR:,} bytes"}
        details |= self.failed("", stderr).failed.details
        if (code := find_code(str(stated))) is not None and code not in OF_DATABASE:
            return Failed(code, message, details, advice=GENERAL)
        return Failed(ErrorCode.WORKER_FAILED, message, details, _STATED)

    def _text(self, stderr: Buffer) -> str:
        """The end of stderr, of which `most_stderr` bytes are there. What may be cut at the beginning is left out."""
        text = self._scrubbed(stderr.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}"))
        return text[self._margin if len(stderr) >= self.most_stderr else 0 :][-MOST_STDERR:].strip()

    def beginning(self, said: Buffer, most: int) -> str:
        """The first characters of what the program wrote, for a message."""
        return shortened(self._scrubbed(_text(said)).strip()[:most])

    def _without_secrets(self, answer: JsonValue) -> JsonValue:
        """A decoded answer without the secrets; its own id is none. Raises ValueError if no JSON is left."""
        if not self._secrets:
            return answer
        found = scrubbed_value(answer, self._secrets)
        if isinstance(found, dict) and isinstance(answer, dict) and answer.get("id") == self._id:
            found["id"] = self._id
        written = json.dumps(found, ensure_ascii=False)
        scrubbed_text = self._scrubbed(written)  # a secret can be spread over several values, too
        if scrubbed_text == written:
            return found
        again: JsonValue = json.loads(scrubbed_text)
        return again

    def _scrubbed(self, text: str) -> str:
        """`text` without the values of the environment that the program was given."""
        for secret in self._secrets:
            text = scrubbed(text, secret)
        return text


def _settled(
    job: _Job, needs: Needs, result: BaseModel, seen: SeenRoot, over: ProgramRoot
) -> BaseModel | Kept:
    """The result of a program that has ended, once its changes of the root are kept, held or dropped.

    Raises `NOT_ALLOWED` for changes of a kind that does not state that it makes some.
    """
    if seen.copy is not None:
        return _without_lost(job, needs, seen.copy.lost(over.access.root), result, ON_A_COPY)
    assert seen.place is not None
    changes = seen.place.changes()
    if needs.root == "write" and over.keep is not None and changes.changes:
        kept = over.keep(seen.place, changes, result)
    else:
        lost = [one.path for one in changes.changes]
        kept = Kept(_without_lost(job, needs, lost, result, _DROPPED), is_whole=not lost)
    return with_output(kept, seen.place, changes)


def _without_lost(job: _Job, needs: Needs, lost: Sequence[str], result: BaseModel, why: str) -> BaseModel:
    """The result of a program whose changes of the root are lost; `why` is for a kind that would have them kept."""
    if not lost:
        return result
    if needs.root is True:
        raise job.refusal(lost)
    return job.without(lost, result, f" ({why})" if needs.root == "write" else "")


class _Running:
    """One process of a program, with our ends of its pipes and its directory. Used by one thread at a time."""

    def __init__(
        self,
        kind: str,
        program: ExternalProgram,
        environment: dict[str, str],
        under_way: ProgramsUnderWay,
        *,
        root: Root | None,
        seen: SeenRoot | None = None,
    ) -> None:
        self._under_way = under_way
        self._leaving = ExitStack()
        self._sent: set[_Job] = set()
        self._unread: Buffer = b""
        self._held_back = b""
        """What was read of stderr and may be the beginning of a secret."""
        try:
            if seen is None:
                home = self._leaving.enter_context(scratch_directory())
                seen = SeenRoot(str(home), home, str(home), owned=(str(home),))
            self._pipes = _Pipes()
            self._leaving.callback(self._pipes.close)
            here = self._leaving.enter_context(Root(str(seen.home)))
            process = spawner(*program.call[:1]).spawn(here, Duty.RUN, program.memory, confined=False)
            self._leaving.callback(process.kill)
            self._channel = process.connect(*self._pipes.theirs)
            self._pipes.close_theirs()
            # It ends what the program has started first.
            self._leaving.callback(process.wait_for_end, _END_SECONDS)
            self._leaving.callback(self._channel.close)
            foreign = () if root is None else root.places
            self._program = _program(program, environment, seen, foreign=foreign)
            request = PROGRAMS.dump_python(self._program, mode="json")
            self._channel.send({"do": Request.RUN, "program": request})
        except (Disconnected, TimedOut) as error:
            self._leaving.close()
            message = f"{kind}: its program could not be started: {error}"
            raise LcpError(ErrorCode.WORKER_DIED, message) from error
        except BaseException:
            self._leaving.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program and all that it started, and remove its directory."""
        self._leaving.close()

    @property
    def is_quiet(self) -> bool:
        """True if it runs, and has written nothing since its last answer."""
        waiting = select.poll()
        for one in (self._pipes.stdout, self._channel.fileno()):
            waiting.register(one, select.POLLIN)
        return not waiting.poll(0)

    def send_ahead(self, jobs: Sequence[_Job]) -> None:
        """Send jobs that fit into the pipe, so that the program need not wait for the next one."""
        if len(jobs) > 1:
            with suppress(OSError):  # it has ended: the first answer is missing
                os.write(self._pipes.stdin, b"".join(job.line for job in jobs))
            self._sent.update(jobs)

    def answer(self, job: _Job, *, is_last: bool = True) -> BaseModel | Failed:
        """The answer of a program that goes on afterwards. After any error that is raised, it has to be closed."""
        found = self._exchange(job, once=False)
        line, newline, more = found.stdout.partition(b"\n")
        if not newline:
            raise _died(job, self._ended(job), found.stderr)
        self._unread = more
        if more and is_last:
            beginning = job.beginning(more, 200)
            raise job.failed(f"one line is expected, it went on with {beginning!r}", found.stderr)
        return job.outcome(line, found.stderr, needs_id=True)

    def answer_once(self, job: _Job) -> BaseModel | Failed:
        """The answer of a program that ends with it."""
        found = self._exchange(job, once=True)
        ended = self._ended(job)
        lines = [line for line in found.stdout.split(b"\n") if line.strip()]
        if ended.exit_code != 0:
            stated = job.error_in(lines, found.stderr)
            if ended.exit_code is None or stated is None:
                raise _died(job, ended, found.stderr)
            return stated
        if len(lines) != 1:
            beginning = f": {job.beginning(lines[0], 100)!r} and more" if lines else ""
            fact = f"one line with its answer is expected on stdout; it wrote {len(lines):,}{beginning}"
            raise job.failed(fact, found.stderr)
        return job.outcome(lines[0], found.stderr, needs_id=False)

    def _exchange(self, job: _Job, *, once: bool) -> _Exchange:
        exchange = _Exchange(self._pipes, self._channel.fileno(), job, self._unread, once=once)
        exchange.stderr += self._held_back
        with self._under_way.at(job.attempt, self._channel):
            exchange.finish(is_sent=job in self._sent)
        self._sent.discard(job)
        left = len(exchange.stderr) - (0 if once else job.held_back(exchange.stderr))
        self._held_back = bytes(exchange.stderr[left:])
        del exchange.stderr[left:]
        job.keep(exchange.stderr)
        return exchange

    def _ended(self, job: _Job) -> Ended:
        """End of the program. Raises `NOT_ISOLATED`, `FILE_SYSTEM`, `WORKER_DIED`."""
        self._channel.set_timeout(_END_SECONDS)
        try:
            head, body = self._channel.receive()
        except (Disconnected, TimedOut) as error:
            fact = f"the process that runs its program died: {error}"
            raise job.failed(fact, code=ErrorCode.WORKER_DIED) from error
        return ended_of(head, body, self._program)


class _Pipes:
    """Our ends of a program's stdin, stdout and stderr; `theirs` are its own, until `close_theirs`."""

    def __init__(self) -> None:
        stdin, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, stdout = os.pipe2(os.O_CLOEXEC)
        self.stderr, stderr = os.pipe2(os.O_CLOEXEC)
        self.theirs = [stdin, stdout, stderr]
        for one in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(one, False)

    def close_theirs(self) -> None:
        while self.theirs:
            os.close(self.theirs.pop())

    def end_input(self) -> None:
        """Let the program find the end of its stdin."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        self.close_theirs()
        self.end_input()
        os.close(self.stdout)
        os.close(self.stderr)


class _Exchange:
    """A job that is sent to a program, and what comes back: a line or, `once`, all until the program has ended."""

    def __init__(self, pipes: _Pipes, end: int, job: _Job, unread: Buffer, *, once: bool) -> None:
        self.stdout = bytearray(unread)
        self.stderr = bytearray()
        self._pipes = pipes
        self._end = end
        self._job = job
        self._once = once
        self._unsent = memoryview(job.line)
        self._has_ended = False
        self._waiting = select.poll()
        for one in (pipes.stdout, pipes.stderr, end):
            self._waiting.register(one, select.POLLIN)

    def finish(self, *, is_sent: bool) -> None:
        """Raises `TIMEOUT`, `TOO_LARGE`."""
        if is_sent:
            self._unsent = memoryview(b"")
        else:
            self._send()  # most jobs fit into the pipe
        if self._unsent:
            self._waiting.register(self._pipes.stdin, select.POLLOUT)
        while not self._has_ended and (self._once or b"\n" not in self.stdout):
            left = self._job.until - time.monotonic()
            if left <= 0:
                said = _after(self._job.last_lines(self.stderr))
                fact = f"it did not answer within {self._job.worker.timeout:g} s, and was ended{said}"
                raise self._job.failed(fact, self.stderr, ErrorCode.TIMEOUT)
            for one, _ in self._waiting.poll(left * 1000):
                self._attend(one)
            self._check_size()
        # Whatever a program that has ended wrote is in the pipes.
        while self._has_ended and _read(self._pipes.stdout, self.stdout):
            self._check_size()
        while len(self.stderr) < self._job.most_stderr and _read(self._pipes.stderr, self.stderr):
            pass
        del self.stderr[: -self._job.most_stderr]

    def _attend(self, one: int) -> None:
        if one == self._pipes.stdin:
            self._send()
            if not self._unsent:
                self._waiting.unregister(one)
        elif one == self._end:
            self._has_ended = True
        elif _read(one, self.stdout if one == self._pipes.stdout else self.stderr) == 0:
            self._waiting.unregister(one)

    def _send(self) -> None:
        """Send what the pipe takes; with `once`, its end follows."""
        try:
            self._unsent = self._unsent[os.write(self._pipes.stdin, self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the program does not read any more
            self._unsent = memoryview(b"")
        if self._once and not self._unsent:
            self._pipes.end_input()

    def _check_size(self) -> None:
        """Keep the end of stderr. Raises `TOO_LARGE` for an answer without end."""
        del self.stderr[: -self._job.most_stderr]
        if len(self.stdout) > MOST_ANSWER:
            fact = f"it answered more than {MOST_ANSWER:,} bytes, and was ended"
            raise self._job.failed(fact, self.stderr, ErrorCode.TOO_LARGE)


def _sent_together(jobs: Sequence[_Job]) -> Iterator[Sequence[_Job]]:
    """The jobs in their order, as many at a time as fit into a pipe."""
    together: list[_Job] = []
    size = 0
    for job in jobs:
        if together and (len(together) == MOST_AHEAD or size + len(job.line) > MOST_AHEAD_SIZE):
            yield together
            together, size = [], 0
        together.append(job)
        size += len(job.line)
    if together:
        yield together


def _environment(kind: str, program: ExternalProgram) -> dict[str, str]:
    """The variables that the program needs. Raises `WORKER_FAILED` if one is missing here."""
    missing = [name for name in program.needs.environment if name not in os.environ]
    if missing:
        fact = f"its program needs the environment variable {missing[0]}, which this runner does not have"
        advice = f"Start the runner with {missing[0]}."
        raise LcpError(ErrorCode.WORKER_FAILED, f"{kind}: {fact}", advice=advice)
    return {name: os.environ[name] for name in program.needs.environment}


def _program(
    program: ExternalProgram, environment: dict[str, str], seen: SeenRoot, *, foreign: tuple[str, ...]
) -> Program:
    sees_root = seen.copy is not None or seen.place is not None
    installed = [
        part
        for path in (program.path, *program.starts)
        for place in places_of(path, foreign=foreign, is_alone=path in program.files)
        # Of packages, a program that sees the root reads what a command does.
        if not sees_root or not is_in(foreign, place)
        for part in installed_place(place).parts
    ]
    # Shells and make are given no more than others: who states a kind names what it needs.
    toolchains = [
        toolchain_of(
            path,
            Path.home(),
            os.environ,
            foreign=foreign,
            own_home=seen.home_path,
            can_write=False,
            is_alone=True,
        )
        for path in dict.fromkeys((program.path, *program.starts))
        if path not in program.files
    ]
    return Program(
        path=program.path,
        arguments=program.arguments,
        directory=seen.directory,
        environment=joined_variables(
            environment_of(Path(seen.home_path)), *(one.variables for one in toolchains), environment
        ),
        owned=seen.owned,
        readable=(
            *installed,
            *(part for one in toolchains for place in one.places for part in place.parts),
            *program.files,
            *program.installed,
            *program.needs.read,
        ),
        packages=seen.packages,
        listed=seen.listed,
        hidden=seen.hidden((*own_directories(), str(Path.home()), *_in_system(foreign))),
        network=program.needs.network,
        bounds=Bounds(seconds=None, memory=program.memory),
        call=program.call,
        view=None if seen.view is None else replace(seen.view, host_network=program.needs.network),
        tool=seen.tool,
    )


def _died(job: _Job, ended: Ended, stderr: Buffer) -> LcpError:
    after = _after(job.last_lines(stderr))
    if ended.stopped is not None:
        code = ErrorCode.OUT_OF_MEMORY if ended.is_out_of_memory else ErrorCode.WORKER_DIED
        return job.failed(f"{ended.stopped}, and was stopped{after}", stderr, code)
    if ended.signal is not None:
        return job.failed(f"its program ended by signal {ended.signal}{after}", stderr, ErrorCode.WORKER_DIED)
    fact = f"its program ended with exit code {ended.exit_code}"
    return job.failed(f"{fact}{' without an answer' if ended.exit_code == 0 else ''}{after}", stderr)


def telling_lines(text: str) -> str:
    """The last lines of what a program wrote, as one: no frames of a stack, no version of Node, no notices of npm."""
    lines = text.strip().splitlines() or [""]
    telling = [line for line in lines if not _SAYS_NOTHING.fullmatch(line)]
    return " | ".join(shortened(line.strip()) for line in telling[-_MOST_LINES:] or lines[-1:])


def _after(said: str) -> str:
    return f": {said}" if said else ""


def _read(descriptor: int, kept: bytearray) -> int | None:
    """Add what is there to `kept`; how many bytes that were, 0 at the end, None if nothing is there."""
    try:
        piece = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    kept += piece
    return len(piece)


def _text(data: Buffer) -> str:
    return data.decode(errors="replace")


def _details(error: JsonValue) -> dict[str, Json]:
    """Details of an error besides its message."""
    stated: object = error
    return (
        {key: value for key, value in stated.items() if key != "message"} if isinstance(stated, dict) else {}
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
