"""Ask an agent that runs to its end in the stage: the planner `program`."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from lcp_engine.core.health import Finding, broken, doubtful, well
from lcp_engine.core.json_values import object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import GENERAL, ErrorCode, Json, LcpError
from lcp_engine.features.agents.presets import GOAL, PRESETS, SESSION, Model, Preset
from lcp_engine.features.agents.process import (
    AgentPlace,
    AgentProcess,
    Flooded,
    Launch,
    OutOfTime,
    Silent,
    agent_place,
    check_keys,
    read_keys,
    refuse_without_wall,
)
from lcp_engine.features.agents.streams import FORMS, Stream, read_line
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.stage_work import StageWork
from lcp_engine.features.stages.mission_keys import StageKeys
from lcp_engine.planners.base import CompletionRecord, PlannerError, Question, Reply
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, Drafts, PlannerEnvironment
from lcp_engine.sandbox.system.installed_programs import found_program
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.workers.params import Result

if TYPE_CHECKING:
    from lcp_engine.core.mission.spec import MissionSpec
    from lcp_engine.engine.instance import Instance
    from lcp_engine.settings import Settings

TYPE = "program"
MOST_ARGUMENT = 100_000
"""Bytes of a goal in a command: Linux takes 128 KiB."""
MOST_SHOWN = 4000
"""Characters of what it says at the moment that people see."""
_MARGIN = 0.05
"""Part of its time that is left to keep what an agent has done."""
_NO_TOKENS = frozenset({"text", "mini"})
"""Forms of streams that state no tokens."""
_SIGNS = re.compile(
    r"\b40[13]\b|unauthorized|authentication|invalid[ _]api[ _]key|permission_denied", re.IGNORECASE
)
"""Signs of a key that is refused, in the words of any agent: asking again would not help."""
_INTERRUPTED = (
    "You were interrupted at work on this. The files are as you left them: look at them before you go on."
)


class WorkedResult(Result):
    """The work of an agent in a turn."""

    left_out: list[str] = Field(default=[])
    """Those of its changes that are not kept, each with the reason."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class ProgramPlanner:
    """A program that works in the stage until it has reached the goal, and says what it did."""

    agent: str = ""
    """The preset; without one, `command` states the program, and `stream` the form of what it prints."""
    command: list[str] = Field(default=[])
    """The program and its arguments; `{goal}` stands for what it is asked."""
    stream: str = ""
    model: str = ""
    endpoint: str = ""
    """The address of the model, where it is not the usual one of the agent."""
    keys: list[str] = Field(default=[])
    """Variables of the runner's environment that the agent gets, besides those of its preset."""
    environment: dict[str, str] = Field(default={})
    on_kill: Literal["continue", "restart"] = "continue"
    """`continue` lets another attempt find what an interrupted one has changed."""
    silence: float = Field(default=600.0, gt=0)
    """Seconds without a word after which it is ended."""

    def __post_init__(self) -> None:
        if self.agent and self.agent not in PRESETS:
            raise ValueError(
                f"agent: no preset is named {self.agent!r}; {nearest(self.agent, list(PRESETS))}"
            )
        if not self.agent and not self.command:
            raise ValueError(f"agent or command: one is expected; agents are {', '.join(PRESETS)}")
        if self.stream and self.stream not in {*FORMS, "text"}:
            raise ValueError(f"stream: should be one of {', '.join((*FORMS, 'text'))}")

    @property
    def name(self) -> str:
        """Name of the agent for people."""
        return self.agent or Path(self.command[0]).name

    @property
    def preset(self) -> Preset:
        """The preset, with what is stated in its place."""
        known = PRESETS.get(self.agent, Preset((), "text", (), "", ""))
        return replace(known, command=tuple(self.command) or known.command, form=self.stream or known.form)

    def placed(self, planner_environment: PlannerEnvironment, /) -> PlacedProgram:
        """Raises `NOT_ALLOWED` for keys that neither the preset nor the configuration names."""
        check_keys(TYPE, self.keys, self.preset.keys, planner_environment)
        return PlacedProgram(self, planner_environment.drafts)

    def answer(self, question: Question, /) -> Reply:
        return self.placed(EMPTY_ENVIRONMENT).answer(question)


@plain_dataclass(frozen=True)
class PlacedProgram:
    """The planner as a runner asks it (`WorksInStage`)."""

    stated: ProgramPlanner
    drafts: Drafts | None = None

    def model_name(self) -> str:
        """The name by which its tokens have a price."""
        return self.stated.model

    def answer(self, question: Question, /) -> Reply:
        message = f"{self.stated.name} works in the stage of a mission, which a runner gives it"
        raise PlannerError(ErrorCode.PLANNER_REFUSED, message, advice=GENERAL)

    def suggested(self) -> Mapping[str, JsonValue]:
        """Keys of a mission with this planner."""
        host = self.stated.preset.host
        return {
            "stage": True,
            **({"commands": {"network": {"hosts": [host]}}} if host and not self.stated.endpoint else {}),
            "kinds": {TURN: {"timeout": 1800}},
        }

    def examined(self) -> Iterator[Finding]:
        """Findings on its program and its keys."""
        preset, name = self.stated.preset, self.stated.name
        try:
            yield well("agent", f"{name} is {found_program(preset.command[0], Path.cwd())}")
        except LcpError as error:
            advice = f"Install {preset.package}." if preset.package else error.failed.advice
            yield broken("agent", LcpError(error.code, error.failed.message, advice=advice).failed)
        names = (*preset.keys, *self.stated.keys)
        given = read_keys(names)
        if given or not names:
            yield well("keys", ", ".join(given) or "it needs none")
        else:
            yield doubtful("keys", f"none of {', '.join(names)} is set", "Start the runner with one of them.")

    def work(self, question: Question, work: StageWork, /) -> Reply:
        """The last words of the agent as the end of the mission, with what it changed in the stage."""
        stated, prompt = self.stated, _prompt(question)
        is_kept = stated.on_kill == "continue"
        with agent_place(work, question.number, stated.name, continues=is_kept) as place:
            if is_kept and question.attempt > 1:
                prompt = f"{prompt}\n\n{_INTERRUPTED}"
            if (done := place.done) is None:
                with self._told(question) as tell:
                    done = _Turn(stated, work, place, tell).done(prompt)
                place.note(done=done, session=done.get("session"))
            result = place.keep(WorkedResult()).result
            left_out = result.left_out if isinstance(result, WorkedResult) else []
            return _reply(done, question, prompt, left_out, stated)

    @contextmanager
    def _told(self, question: Question) -> Iterator[Callable[[str], object]]:
        """Shows people meanwhile what it says at the moment."""
        drafts, place = self.drafts, (question.mission_id, question.number)
        if drafts is None:
            yield lambda said: None
            return
        try:
            yield lambda said: drafts.keep(*place, said[-MOST_SHOWN:])
        finally:
            drafts.drop(*place)


@plain_dataclass(frozen=True)
class _Turn:
    """A turn of an agent, from its start to its end."""

    stated: ProgramPlanner
    work: StageWork
    place: AgentPlace
    tell: Callable[[str], object]

    def done(self, prompt: str) -> JsonObject:
        """End of the turn, to be noted. Raises `PlannerError` where it is to be asked again."""
        launch = self._launch(prompt)
        stream, began = Stream(), time.monotonic()
        until = began + self.work.seconds * (1 - _MARGIN)
        with self.place.started(launch) as agent:
            if not any(GOAL in one for one in self.stated.preset.command):
                agent.send(prompt.encode())
            agent.end_input()
            try:
                for line in agent.lines(until=until, silence=self.stated.silence):
                    self._read(line, stream, launch)
            except Silent:
                raise self._failed(stream, agent, f"said nothing for {self.stated.silence:g} s") from None
            except OutOfTime:
                took = time.monotonic() - began
                raise self._failed(stream, agent, f"was still at work after {took:.0f} s") from None
            except Flooded:
                raise self._failed(stream, agent, "wrote more than is read") from None
            ended = agent.wait()
            if output := self.stated.preset.output:
                read_line(stream, self.stated.preset.form, self.place.read_file(output))
            how = ended.stopped or (
                f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
            )
            if ended.stopped is not None or (not stream.is_done and not stream.failure):
                raise self._failed(stream, agent, f"ended ({how}) without saying that it is done")
            if self.stated.preset.form == "text" and ended.exit_code != 0:
                raise self._failed(stream, agent, f"ended ({how})")
            if stream.failure:
                raise self._failed(stream, agent, f"failed: {launch.scrubbed(stream.failure)}")
        return object_in(launch.scrubbed({
            "text": stream.text, "input_tokens": stream.input_tokens, "output_tokens": stream.output_tokens,
            "cost": stream.cost, "session": stream.session, "calls": [*stream.calls], "more_calls": stream.more_calls,
            "exit_code": ended.exit_code,
        }))  # fmt: skip

    def _read(self, line: str, stream: Stream, launch: Launch) -> None:
        """Read a line; its session is noted at once, and its words are told."""
        if self.stated.preset.output:
            return
        before = (stream.session, stream.text)
        read_line(stream, self.stated.preset.form, line)
        if stream.session != before[0]:
            self.place.note(session=stream.session)
        if stream.text != before[1]:
            self.tell(str(launch.scrubbed(stream.text[-MOST_SHOWN:])))

    def _launch(self, prompt: str) -> Launch:
        preset = self.stated.preset
        made = preset.configure(Model(self.stated.model, self.stated.endpoint))
        if len(prompt.encode()) > MOST_ARGUMENT and any(GOAL in one for one in preset.command):
            message = (
                f"{self.stated.name}: the goal has more than {MOST_ARGUMENT:,} bytes, too many for a command"
            )
            raise PlannerError(
                ErrorCode.PLANNER_REFUSED, message, advice="Write it into a file of the root, and name that."
            )
        command = [*preset.command]
        if self.place.session and preset.resume and GOAL in command:
            resume = [one.replace(SESSION, self.place.session) for one in preset.resume]
            at = command.index(GOAL)
            at -= command[at - 1] == "-p"
            command[at:at] = resume
        own, *rest = (one.replace(GOAL, prompt) for one in command)
        return Launch(
            (own, *made.arguments, *rest),
            {**made.environment, **self.stated.environment},
            read_keys((*preset.keys, *self.stated.keys)),
            {**made.files, **({preset.output: ""} if preset.output else {})},
        )

    def _failed(self, stream: Stream, agent: AgentProcess, fact: str) -> PlannerError:
        stderr = agent.stderr()
        said = stderr.strip().splitlines()[-1:] if not stream.failure else []
        refused = () if agent.proxy is None else agent.proxy.refused
        said += [f"the mission may not reach {', '.join(refused)}"] if refused else []
        message = ": ".join([f"{self.stated.name} {fact}", *said])
        if not stream.calls and not stream.text:
            self.place.note(session=None)  # it may be what it could not go on with
        is_refused = _SIGNS.search(f"{stream.failure} {''.join(said)}") is not None
        details: dict[str, Json] = {"stderr": stderr, "calls": len(stream.calls) + stream.more_calls}
        return PlannerError(
            ErrorCode.PLANNER_REFUSED if is_refused else ErrorCode.PLANNER_FAILED,
            message,
            details,
            self._advice(is_refused=is_refused),
            input_tokens=stream.input_tokens or 0,
            output_tokens=stream.output_tokens or 0,
        )

    def _advice(self, *, is_refused: bool) -> str:
        if is_refused:
            names = " or ".join(self.stated.preset.keys) or "its key"
            return f"Start the runner with {names} of an account that may use the model."
        return "See that its model answers at a host that commands.network of the mission names (docs/agents.md)."


def _prompt(question: Question) -> str:
    """Question to an agent: the goal, and what happened since its last turn."""
    parts = [question.prompt, *filter(None, [question.context])]
    for job in question.results:
        why = job.reason or (job.error or {}).get("user_message")
        parts += [f"{job.kind} ({job.name or job.job_id}) was {job.state}: {why}"] if why else []
    parts += [f"{one.by} says: {one.text}" for one in question.said]
    parts += question.notices
    if question.result is not None:
        parts.append(
            f"End with one JSON object alone, as this schema describes it: {json.dumps(question.result)}"
        )
    return "\n\n".join(parts)


def _reply(
    done: Mapping[str, JsonValue],
    question: Question,
    prompt: str,
    left_out: list[str],
    stated: ProgramPlanner,
) -> Reply:
    text = str(done.get("text") or f"{stated.name} has ended and said nothing.")
    action = next((one for one in question.endings if one == "analysis_result"), "mission_complete")
    answer: JsonObject = {"ok": True, "action": action, "summary": text}
    if question.result is not None:
        with suppress(ValueError):
            answer["result"] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    if left_out:
        answer["summary"] = f"{text}\n\nNot kept: {'; '.join(left_out)}"
    seen, cost = done.get("calls"), done.get("cost")
    if isinstance(seen, list) and seen:
        answer["commentary"] = _told(seen, cost)
    read, written = (one if isinstance(one, int) else None for one in map(done.get, _TOKENS))
    made = CompletionRecord(model=stated.model, input_tokens=read, output_tokens=written)
    counted = (made,) if stated.model and read is not None else ()
    return Reply(json.dumps(answer, ensure_ascii=False), prompt, read, written, completions=counted)


_TOKENS = ("input_tokens", "output_tokens")


def _told(calls: list[JsonValue], cost: JsonValue) -> str:
    """The calls of tools that were seen and asked nobody, a line each, and what the agent says that it cost."""
    lines = [
        f"- {one.get('tool')} {one.get('input')}{'' if one.get('ok') is not False else ' (failed)'}"
        for one in map(object_in, calls)
    ]
    count = "1 call of a tool was" if len(lines) == 1 else f"{len(lines)} calls of tools were"
    counted = [f"By its own count it cost {cost:.4f} US dollars."] if isinstance(cost, float) and cost else []
    return "\n".join([f"{count} seen, and asked nobody:", *lines, *counted])


def check_mission(instance: Instance, spec: MissionSpec) -> None:
    """Like `check_agent`, for missions whose planner is a program."""
    if spec.planner.type == TYPE:
        check_agent(instance, spec)


def check_agent(instance: Instance, spec: MissionSpec) -> None:
    """Raise `INVALID_MISSION` for an agent without a stage, `NOT_ISOLATED` where the wall for it does not hold."""
    command = spec.planner.options.get("command")
    program = Path(str(command[0])).name if isinstance(command, list) and command else spec.planner.type
    name = str(spec.planner.options.get("agent") or program)
    if not StageKeys.of(spec).stage:
        message = f"planner: {name} changes files by itself, so that the mission needs a stage"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="Add `stage: true` to the mission.")
    options, known = spec.planner.options, PRESETS.get(name)
    form = options.get("stream") or (known.form if known and options.get("agent") else "text")
    if spec.planner.type == TYPE and spec.limits.max_cost is not None and form in _NO_TOKENS:
        message = (
            f"limits.max_cost: {name} states no tokens (stream: {form}), so that its cost is not counted"
        )
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="Limit max_seconds and max_turns instead.")
    prices, model = instance.planner_environment.prices, str(options.get("model") or "")
    if spec.limits.max_cost is not None and (prices is None or prices.of_model(model) is None):
        message = f"limits.max_cost: what {name} costs is counted by a price of planner.model, which has none"
        raise LcpError(
            ErrorCode.INVALID_MISSION, message, advice="State model, and its price in the configuration."
        )
    if any(check.verify for check in spec.accept):
        message = f"accept: verify asks the planner, and {name} answers by work: state what can be checked"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="Use `command`, or a check of files.")
    if instance.walls is not None:
        from lcp_engine.features.programs.wall.steps import step_here  # slow to load
        from lcp_engine.features.programs.wall.workspace import Ground

        allowed = instance.settings(ProgramSettings).walls(instance.isolation)
        found = step_here(instance.walls, walls=allowed)
        refuse_without_wall(name, Ground(instance.walls, "", "", found))


def examine_agents(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """Agents that missions can have as their planner here, by their presets."""
    found = {name: shutil.which(preset.command[0]) for name, preset in PRESETS.items()}
    if any(found.values()):
        yield well("agents", ", ".join(f"{name} at {place}" for name, place in found.items() if place))
