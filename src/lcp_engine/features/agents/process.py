"""Run an agent behind the wall of commands, in the stage of its mission, with a home that lasts as long as that.

The place of an agent is a directory of the mission's wall: upper directories over the stage and over its home, which
outlive the process that runs it. What it changed becomes part of the stage once its turn is over. An agent that is
killed leaves all of it to the next attempt.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from lcp_engine.core.programs.walls import Step
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.scrub import scrubbed_value
from lcp_engine.features.programs.programs import PROGRAMS, ended_of
from lcp_engine.features.programs.run_command import program_in, routed
from lcp_engine.features.programs.servers.external_worker import with_output
from lcp_engine.features.programs.stage_work import StageWork
from lcp_engine.features.programs.wall.caches import HOME_PART, ROOT
from lcp_engine.features.programs.wall.layers.trail import DIRECTORY, Trail, statuses_below
from lcp_engine.features.programs.wall.layers.upper import Changes
from lcp_engine.features.programs.wall.network.proxy import Proxy, route_through
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program
from lcp_engine.features.programs.wall.views.seen_root import SeenRoot, seen_root
from lcp_engine.features.programs.wall.workspace import Ground, Workspace
from lcp_engine.planners.environment import PlannerEnvironment
from lcp_engine.runner.confined.channel import Channel, Disconnected, Duty, Request, TimedOut
from lcp_engine.runner.confined.process import spawner
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.system.own_places import make_private
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.host.liveness import this_host
from lcp_engine.workers.base import Kept

MOST_LINE = 4 * 1024 * 1024
"""Bytes of a line; what is longer is cut."""
MOST_OUTPUT = 512 * 1024 * 1024
"""Bytes of stdout in a turn."""
MOST_STDERR = 8 * 1024
"""Bytes of stderr that are kept: the last ones."""
MOST_HOME = 2 * 1024**3
"""Bytes of a home, after which the next agent begins with an empty one."""
BOUNDS = Bounds(seconds=None, memory=4 * 1024**3, processes=512)
_HERE, _TURN, _STDERR = "agent", "turn.json", "stderr"
_CHUNK = 64 * 1024
_END_SECONDS = 10.0
_LOCK_SECONDS = 30.0
_REST_SECONDS = 0.05


@dataclass(frozen=True)
class Launch:
    """A program to start as an agent. `keys` are secrets that it finds in its environment, by the variable.

    `files` are written into its home before it starts, by their paths there.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def scrubbed(self, value: JsonValue) -> JsonValue:
        """A text, or texts in a value, without the keys, as they may be stored. It takes a while for long ones."""
        return scrubbed_value(value, [*self.keys.values()])


def check_keys(
    planner: str, stated: Sequence[str], of_preset: Sequence[str], environment: PlannerEnvironment
) -> None:
    """Raise `NOT_ALLOWED` for keys that neither the preset nor the configuration hands to agents of this planner."""
    granted = environment.options.get(planner, {}).get("keys")
    known = {*of_preset, *(map(str, granted) if isinstance(granted, list) else ())}
    if (name := next((one for one in stated if one not in known), None)) is not None:
        message = f"planner.keys: {name}: neither the preset nor the configuration hands it to agents"
        advice = (
            f"Remove it, or have the user of the runner add it to planners.{planner}.keys in config.yaml."
        )
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)


def read_keys(names: Iterable[str]) -> dict[str, str]:
    """Keys of the runner's environment, by their variables; without those that are not set."""
    return {name: key for name in names if (key := os.environ.get(name, "").strip())}


def refuse_without_wall(name: str, ground: Ground | None) -> None:
    """Raises `NOT_ISOLATED` where an agent cannot be kept in a stage, with the reason."""
    if ground is not None and ground.found.step is Step.OVERLAY:
        return
    reasons = "nothing is kept for commands here" if ground is None else "; ".join(ground.found.reasons)
    advice = "" if ground is None else ground.found.advice
    message = f"{name} works behind the wall `overlay` alone, which does not hold here: {reasons}"
    raise LcpError(
        ErrorCode.NOT_ISOLATED, message, advice=advice or "`lcp doctor` shows the wall that holds here."
    )


@contextmanager
def agent_place(work: StageWork, question: int, name: str, *, continues: bool = True) -> Iterator[AgentPlace]:
    """The place of an agent that people call `name`, which no other command of the mission uses meanwhile.

    With `continues`, it has what an attempt that was interrupted has changed for the same question; else the stage is
    as it was. Raises `NOT_ISOLATED`, `WRONG_STATE` if that attempt does not end, and what `seen_root` raises.
    """
    ground = work.around.access.ground
    refuse_without_wall(name, ground)
    assert ground is not None
    with seen_root(work.around.access, name) as seen:
        assert seen.place is not None
        here = seen.place.layer.place / _HERE
        make_private(here)
        with _alone(here / _STDERR) as stderr:
            # After a restart of the machine its files may be torn, and another stage may be below them.
            owner: JsonObject = {
                "mission": ground.mission, "job": work.job.id, "question": question,
                "stage": work.around.root.path, "boot": this_host().boot,
            }  # fmt: skip
            note = _read_note(here)
            if note.get("mission") != ground.mission:
                _empty(here, (HOME_PART, ROOT))
                note = {}
            if _bytes_below(here / "up" / HOME_PART) > MOST_HOME:
                _empty(here, (HOME_PART,))
                note.pop("session", None)
            is_same = all(note.get(key) == value for key, value in owner.items())
            if not is_same or not (continues or "done" in note):
                _empty(here, (ROOT,))
                note = {
                    **owner,
                    "start": seen.place.start,
                    "session": None if is_same else note.get("session"),
                }
            place = AgentPlace(work, seen, _moved(seen.place, here, note), here, stderr, note)
            place.note()
            yield place


@dataclass
class AgentPlace:
    """Where an agent works: `seen` is what it sees, `stage` what it changes of that."""

    work: StageWork
    seen: SeenRoot
    stage: Workspace
    here: Path
    errors: int
    """The file of its stderr, which is open."""
    _note: JsonObject

    @property
    def done(self) -> JsonObject | None:
        """End of this turn, as an earlier attempt has noted it."""
        done = self._note.get("done")
        return done if isinstance(done, dict) else None

    @property
    def session(self) -> str:
        """The session of the agent that its home has; empty if it has none."""
        return str(self._note.get("session") or "")

    def note(self, done: Mapping[str, JsonValue] | None = None, **facts: JsonValue) -> None:
        """Note durably the `session`, or as `done` how the turn has ended: no later attempt asks the agent again."""
        self._note = {**self._note, **facts, **({} if done is None else {"done": {**done}})}
        new = self.here / f"{_TURN}.new"
        with new.open("w", encoding="utf-8") as file:
            json.dump(self._note, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.here / _TURN)

    def changes(self) -> Changes:
        """Changes that it has made of the stage until now, as far as the wall can tell. Raises OSError."""
        return self.stage.changes()

    def keep(self, result: BaseModel) -> Kept:
        """Make what it changed part of the stage; its ignored output is there for later commands.

        Raises `CONFLICT` for a file that something else has changed since it began.
        """
        changes = self.changes()
        kept = self.work.keep(self.stage, changes, result)
        assert self.seen.place is not None
        fresh = replace(self.seen.place, start=self.stage.start)
        remove_tree(fresh.made.up)
        self.stage.made.up.rename(fresh.made.up)
        return with_output(kept, fresh, changes)

    @contextmanager
    def started(self, launch: Launch) -> Iterator[AgentProcess]:
        """The agent, which ends with the context, with all that it has started, and with this process.

        Raises `PATH_NOT_FOUND` if there is no such program, `WORKER_DIED` if it cannot be started.
        """
        program = self._program(launch)
        with ExitStack() as stack:
            hosts, proxy = self.work.around.network.hosts, None
            if hosts:
                proxy = stack.enter_context(Proxy(hosts, self.seen.home.parent / "proxy", relays=True))
                if self.stage.made.owner is not None:
                    os.chown(proxy.place, *self.stage.made.owner)
                program = routed(program, route_through(proxy))
            agent = stack.enter_context(_started(self, program, launch))
            agent.proxy = proxy
            yield agent

    def _program(self, launch: Launch) -> Program:
        self._write_files(launch.files)
        program = program_in(launch.command, self.seen, self.work.around, runs_others=True)
        assert program.view is not None
        mine = {one.path: one for one in self.stage.view.overlays}
        overlays = [mine.get(one.path, one) for one in program.view.overlays]
        return replace(
            program,
            environment={**program.environment, **launch.environment, **launch.keys},
            bounds=BOUNDS,
            view=replace(program.view, overlays=overlays),
        )

    def _write_files(self, files: Mapping[str, str]) -> None:
        """Write files into the home, in place of what an agent may have left there. Raises OSError."""
        for path, text in files.items():
            *above, name = Path(path).parts
            with ExitStack() as stack:
                directory = os.open(self.stage.made.home, DIRECTORY)
                stack.callback(os.close, directory)
                for one in above:
                    directory = _opened_in(directory, one)
                    stack.callback(os.close, directory)
                    self._give(directory)
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "w", encoding="utf-8") as file:
                    self._give(file.fileno())
                    file.write(text)

    def read_file(self, name: str) -> str:
        """The text of a regular file at the top of the home; empty if there is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            opened = os.open(self.stage.made.home / name, flags)
        except OSError:
            return ""
        with os.fdopen(opened, errors="replace") as file:
            return file.read(MOST_LINE) if stat.S_ISREG(os.fstat(opened).st_mode) else ""

    def _give(self, descriptor: int) -> None:
        if self.stage.made.owner is not None:
            os.fchown(descriptor, *self.stage.made.owner)


_Ends: TypeAlias = tuple[int, int]
"""Our ends of the pipes of its stdin and stdout."""


class Silent(Exception):
    """An agent wrote nothing for too long."""


class OutOfTime(Exception):
    """An agent was at work for longer than it may be."""


class Flooded(Exception):
    """An agent wrote more than is read in a turn."""


class AgentProcess:
    """An agent that runs. Its stdin and stdout are pipes that do not block, `stdin` and `stdout` our ends of them.

    `end` can be read once it has ended, with all that it started.
    """

    def __init__(self, errors: int, launch: Launch, program: Program, channel: Channel, ours: _Ends) -> None:
        self.stdin, self.stdout = ours
        self.end = channel.fileno()
        self._errors, self._launch, self._program, self._channel = errors, launch, program, channel
        self.proxy: Proxy | None = None
        """The one that it reaches hosts through, if it may reach any."""
        self._unread = bytearray()
        self._total = 0
        self._heard = time.monotonic()
        self._is_cut = self._is_over = self._is_closed = False
        self._ended: Ended | None = None

    def send(self, data: bytes) -> None:
        """Write to its stdin, waiting until it reads; what it does not read any more is dropped."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self.stdin, left[:_CHUNK]) :]
            except BlockingIOError:
                waiting = select.poll()
                waiting.register(self.stdin, select.POLLOUT)
                waiting.register(self.end, select.POLLIN)
                waiting.poll()
            except OSError:
                return

    def end_input(self) -> None:
        """Let it find the end of its stdin."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def lines(self, *, until: float, silence: float) -> Iterator[str]:
        """Its lines, until it has ended; what it left behind is not waited for. They may have keys in them.

        Raises `Silent` after `silence` seconds without a word, `OutOfTime` at `until` (monotonic), `Flooded`.
        """
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if not self._is_cut:
                    yield line.decode(errors="replace")
                self._is_cut = False
            elif self._is_over:
                if line and not self._is_cut:
                    yield line.decode(errors="replace")
                return
            else:
                if len(line) > MOST_LINE:
                    if not self._is_cut:
                        yield line[:MOST_LINE].decode(errors="replace")
                    self._unread, self._is_cut = bytearray(), True
                self._read_more(until, silence)

    def stderr(self) -> str:
        """The end of what it wrote to stderr, without keys."""
        size = os.fstat(self._errors).st_size
        margin = MOST_STDERR * 2  # so that no key is cut before it is found
        text = os.pread(self._errors, margin, max(0, size - margin)).decode(errors="replace")
        return str(self._launch.scrubbed(text.replace("\0", "\N{REPLACEMENT CHARACTER}")))[-MOST_STDERR:]

    def wait(self, seconds: float = _END_SECONDS) -> Ended:
        """End of it. Raises `WORKER_DIED` if it does not in time, `NOT_ISOLATED` and `FILE_SYSTEM`."""
        if self._ended is None:
            self._channel.set_timeout(seconds)
            try:
                head, body = self._channel.receive()
            except (Disconnected, TimedOut) as error:
                raise _died(self._program, error) from error
            self._ended = ended_of(head, body, self._program)
        return self._ended

    def _read_more(self, until: float, silence: float) -> None:
        waiting = select.poll()
        for one in (self.end,) if self._is_closed else (self.stdout, self.end):
            waiting.register(one, select.POLLIN)
        size = os.fstat(self._errors).st_size
        due = min(until, self._heard + silence)
        ready = [one for one, _ in waiting.poll(max(0.0, due - time.monotonic()) * 1000)]
        if os.fstat(self._errors).st_size != size:
            self._heard = time.monotonic()
        elif not ready and (late := time.monotonic()) >= due:
            raise OutOfTime if late >= until else Silent
        if self.stdout in ready:
            self._take()
        if self.end in ready:
            while self._take():
                pass
            self._is_over = True

    def _take(self) -> bool:
        """Read what is there; false if nothing is."""
        try:
            piece = os.read(self.stdout, _CHUNK)
        except BlockingIOError:
            return False
        self._is_closed = not piece  # it may go on without its stdout: its end counts
        self._heard = time.monotonic()
        self._unread += piece
        self._total += len(piece)
        if self._total > MOST_OUTPUT:
            raise Flooded
        return bool(piece)


@contextmanager
def _started(place: AgentPlace, program: Program, launch: Launch) -> Iterator[AgentProcess]:
    work = place.work
    with ExitStack() as stack:
        theirs_in, stdin = os.pipe2(os.O_CLOEXEC)
        stdout, theirs_out = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, stdout)
        for one in (stdin, stdout):
            os.set_blocking(one, False)
        os.ftruncate(place.errors, 0)
        try:
            process = spawner().spawn(work.around.root, Duty.RUN, program.bounds.memory, confined=False)
            stack.callback(process.kill)
            channel = process.connect(theirs_in, theirs_out, place.errors)
            stack.callback(process.wait_for_end, _END_SECONDS)  # it ends what the agent has started first
            stack.callback(channel.close)
            channel.send({"do": Request.RUN, "program": PROGRAMS.dump_python(program, mode="json")})
        except (Disconnected, TimedOut) as error:
            os.close(stdin)
            raise _died(program, error) from error
        finally:
            for one in (theirs_in, theirs_out):
                os.close(one)
        agent = AgentProcess(place.errors, launch, program, channel, (stdin, stdout))
        stack.callback(agent.end_input)
        with work.under_way.at((work.job.id, work.job.attempt), channel):
            yield agent


def _died(program: Program, error: Exception) -> LcpError:
    message = f"the process that runs {shlex.quote(program.arguments[0])} died: {error}"
    return LcpError(ErrorCode.WORKER_DIED, message)


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """The file for stderr, once no process of an earlier agent has it open: those have its lock with it."""
    until = time.monotonic() + _LOCK_SECONDS
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    message = f"an earlier agent of this mission is still there after {_LOCK_SECONDS:g} s"
                    raise LcpError(ErrorCode.WRONG_STATE, message, advice="Try again.") from None
                time.sleep(_REST_SECONDS)
        yield opened
    finally:
        os.close(opened)


def _moved(fresh: Workspace, here: Path, note: Mapping[str, JsonValue]) -> Workspace:
    """The workspace with the directories of the agent, made of its own where there are none yet."""
    run = replace(fresh.made.run, place=here)
    for mine, other in ((run.up, fresh.made.run.up), (run.work, fresh.made.run.work)):
        mine.mkdir(mode=0o700, exist_ok=True)
        for part in (ROOT, HOME_PART):
            if not (mine / part).exists():
                (other / part).rename(mine / part)
    overlays = [
        replace(one, upper=str(run.up / part), work=str(run.work / part))
        for one in fresh.view.overlays
        for part in (ROOT, HOME_PART)
        if one.upper == str(fresh.made.run.up / part)
    ]
    start = note.get("start")
    return replace(
        fresh,
        made=replace(fresh.made, run=run),
        view=replace(fresh.view, overlays=overlays),
        start=start if isinstance(start, int) else fresh.start,
    )


def _opened_in(directory: int, name: str) -> int:
    """A directory in another one, made in place of anything else. Raises OSError."""
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        os.mkdir(name, 0o700, dir_fd=directory)
        return os.open(name, DIRECTORY, dir_fd=directory)


def _empty(here: Path, parts: Sequence[str]) -> None:
    for part in parts:
        for one in ("up", "work"):
            remove_tree(here / one / part)


def _read_note(here: Path) -> JsonObject:
    try:
        found: JsonValue = json.loads((here / _TURN).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _bytes_below(directory: Path) -> int:
    try:
        top = os.open(directory, DIRECTORY)
    except FileNotFoundError:
        return 0
    try:
        with Trail(top) as trail:
            return sum(status.st_blocks * 512 for status in statuses_below(trail))
    finally:
        os.close(top)
