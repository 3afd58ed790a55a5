"""Run the missions of a suite with several planners, each in a copy of its root, and judge what came of them.

An evaluation is a directory: a database with its missions, the copies of their roots, the suite that it was begun with.
Whatever is killed, the next call goes on: a launch has a key, and a mission that was begun is continued by its queue.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from threading import Event, Lock
from typing import Self

from pydantic import JsonValue

from lcp_engine.api.arguments import checked_spec
from lcp_engine.api.engine import Engine
from lcp_engine.core.decide import Outcome
from lcp_engine.core.json_values import JsonObject, list_in, object_in
from lcp_engine.core.kinds import KindRole, kind_named
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.safe_text import json_line
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.people.subjects import Subjects
from lcp_engine.errors import GENERAL, ErrorCode, LcpError, system_advice
from lcp_engine.features.evaluation.processor_time import ProcessorTime
from lcp_engine.features.evaluation.scores import CheckResult, Score, TrialRecord, judge
from lcp_engine.features.evaluation.suite import (
    MOST_REPETITIONS,
    StatedPlanner,
    Suite,
    SuiteMission,
    parse_suite,
)
from lcp_engine.features.evaluation.summary import summarize_scores
from lcp_engine.features.evaluation.trial_checks import TrialChecks, found_check
from lcp_engine.features.models.echo import Told, is_echo
from lcp_engine.features.models.prompts.instructions import instructions_of
from lcp_engine.features.programs.command_places import remove_walls
from lcp_engine.planners.base import Fault
from lcp_engine.store.queries.records import Mission, MissionStatus

MOST_BYTES = 4 * 1024 * 1024
"""Of a suite's file."""
_SUITE, _DATABASE, _ROOTS, _LOCK = "suite.json", "lcp.db", "roots", "lock"
_SPENT, _CHECKS = "spent.jsonl", "checks.jsonl"
SUMMARY = "summary.json"
"""What came of an evaluation, by planner, as of the last call that ran it: the page shows it."""


@dataclass(frozen=True)
class Trial:
    """A mission of the suite, with a planner, for the n-th time."""

    number: int
    mission: SuiteMission
    planner: str
    repetition: int

    @property
    def key(self) -> str:
        """The name of what is launched for it, and the key that it is launched with once."""
        return f"{self.mission.name} {self.planner} {self.repetition}"


@dataclass(frozen=True)
class FinishedTrial:
    """A trial that has come to its end, or as far as it comes."""

    trial: Trial
    score: Score
    trouble: str | None
    """What its runner, or its check, said if it failed."""


class Evaluation:
    """A suite that is run in a directory, `place`."""

    def __init__(self, place: Path, suite: Suite, beside: Path, text: str) -> None:
        self.place, self.suite = place, suite
        self._beside, self._text = beside, text

    @classmethod
    def begin(
        cls,
        suite: Path,
        place: Path,
        *,
        planners: Sequence[str] = (),
        repeat: int | None = None,
    ) -> Self:
        """The evaluation of the suite in a file, in the directory `place`, begun now or earlier.

        `planners` are those of the suite that are tried, or others by their type; without it all of the suite.
        Raises `INVALID_MISSION`, `NOT_FOUND`, `PATH_NOT_FOUND` for the root of a mission, `INVALID_ARGUMENT`, and
        `WRONG_STATE` for a directory in which something else was begun.
        """
        text = _text_of(suite)
        stated = parse_suite(text, source=str(suite))
        chosen = _chosen(stated, planners, suite)
        beside = suite.resolve().parent
        for mission in stated.missions:
            _source(beside, mission)
            if mission.expect.check is not None:
                found_check(mission.expect.check, mission.place, beside)
        begun = _begun(text, beside, chosen)
        times = _times(stated.repeat if repeat is None else repeat)
        before = _read_begun(place)
        if before is not None and {key: before.get(key) for key in begun} != begun:
            fact = f"{str(place)!r} has another suite, or other planners"
            raise LcpError(
                ErrorCode.WRONG_STATE,
                f"{fact}; an evaluation continues with those that it began with",
                advice="Name another directory with --to.",
            )
        if before is not None:
            times = max(times, int(str(before["repeat"])))
        place.mkdir(parents=True, exist_ok=True)
        return cls(place, Suite(stated.name, chosen, times, stated.missions), beside, text)

    @classmethod
    def open(cls, place: Path) -> Self:
        """An evaluation that was begun in the directory `place`. Raises `NOT_FOUND`."""
        begun = _read_begun(place)
        if begun is None:
            raise LcpError(
                ErrorCode.NOT_FOUND,
                f"{str(place)!r} is not an evaluation; a directory that `lcp eval run` has made is expected",
                advice="Name the directory that --to named; without --to, it is SUITE.eval.",
            )
        text = str(begun["suite"])
        stated = parse_suite(text, source=str(place / _SUITE))
        planners = _stored_planners(begun["planners"])
        times = int(str(begun["repeat"]))
        return cls(
            place, Suite(stated.name, planners, times, stated.missions), Path(str(begun["beside"])), text
        )

    @property
    def url(self) -> str:
        """Its database, which every other command reads with `--db`."""
        return f"sqlite:///{self.place.absolute() / _DATABASE}"

    def trials(self, missions: Collection[str] | None = None) -> list[Trial]:
        """Every trial, or those of some missions: all of them with all planners once, then again."""
        found = [
            (mission, planner, repetition)
            for repetition in range(1, self.suite.repeat + 1)
            for mission in self.suite.missions
            for planner in self.suite.planners
        ]
        numbered = [Trial(number, *each) for number, each in enumerate(found, 1)]
        return [trial for trial in numbered if missions is None or trial.mission.name in missions]

    def run(
        self,
        engine: Engine,
        *,
        parallel: int = 1,
        missions: Collection[str] | None = None,
        options: Sequence[str] = (),
        tell: Callable[[FinishedTrial], None] = lambda finished: None,
        stop: Event | None = None,
    ) -> None:
        """Run what is left, `parallel` missions at a time, each in a process of its own; `tell` hears of each.

        `engine` is one over `url`; `missions` are the names of those that are run now, None for all; `options` are
        further ones of the processes, such as `--workers FILE`. Once `stop` is set, what runs is interrupted: a later
        call goes on with it. Raises `WRONG_STATE` while another process runs the evaluation.
        """
        stopping, telling = stop or Event(), Lock()
        spent, checks = ProcessorTime(self.place / _SPENT), TrialChecks(self.place / _CHECKS)

        def one(trial: Trial) -> None:
            if stopping.is_set():
                return
            mission = self._launch(engine, trial)
            trouble = None
            if not mission.status.has_ended:
                arguments = ["--db", self.url, "--quiet", *options, "work", "--until-idle"]
                trouble = spent.work([*arguments, "--mission", str(mission.id)], trial.key, stopping)
                mission = engine.mission(mission.id)
            if not stopping.is_set():
                trouble = self._check(engine, trial, mission, checks) or trouble
                score = self._score(engine, spent.seconds(), checks.results(), trial, mission)
                with telling:
                    tell(FinishedTrial(trial, score, trouble))

        with _only_one(self.place), ThreadPoolExecutor(parallel) as pool:
            self._begin(engine)
            try:
                for future in [pool.submit(one, trial) for trial in self.trials(missions)]:
                    future.result()
            except BaseException:
                stopping.set()
                raise
            finally:
                remove_walls(engine.instance.database, engine.instance.walls)  # where checks ran
                self._store_summary(engine)

    def scores(self, engine: Engine) -> list[Score]:
        """What came of each trial that was launched, in the order of `trials`; `engine` is one over `url`."""
        spent = ProcessorTime(self.place / _SPENT).seconds()
        checked = TrialChecks(self.place / _CHECKS).results()
        missions = {mission.name: mission for mission in engine.missions()}
        return [
            self._score(engine, spent, checked, trial, missions[trial.key])
            for trial in self.trials()
            if trial.key in missions
        ]

    def _begin(self, engine: Engine) -> None:
        """Store what is run, once every mission in it can be launched: it cannot be changed then."""
        for mission in self.suite.missions:
            for planner in self.suite.planners.values():
                checked_spec(engine.instance, mission.with_planner(planner), allow_admin=False)
            for kind in mission.expect.uses:
                if kind_named(kind, engine.workers) not in engine.workers:
                    fact = f"no worker executes kind {kind!r}; {nearest(kind, list(engine.workers))}"
                    raise LcpError(
                        ErrorCode.INVALID_MISSION,
                        f"{mission.place}.expect.uses: {fact}",
                        advice="Name the file of its worker with --workers.",
                    )
        begun = _begun(self._text, self._beside, self.suite.planners)
        self._store(_SUITE, {**begun, "repeat": self.suite.repeat})

    def _store_summary(self, engine: Engine) -> None:
        summaries = summarize_scores(self.scores(engine))
        self._store(SUMMARY, {"planners": [summary.json for summary in summaries]})

    def _store(self, name: str, stored: JsonObject) -> None:
        unfinished = self.place / f".{name}"
        unfinished.write_text(json_line(stored), encoding="utf-8")
        unfinished.replace(self.place / name)

    def _launch(self, engine: Engine, trial: Trial) -> Mission:
        root = self._copy_of(trial)
        return engine.launch(
            self._spec(trial).model_copy(update={"name": trial.key}), root=root, key=trial.key
        )

    def _spec(self, trial: Trial) -> MissionSpec:
        return trial.mission.with_planner(self.suite.planners[trial.planner])

    def _copy_of(self, trial: Trial) -> Path:
        """The root of a trial, under the name that it has: a model sees it."""
        source = _source(self._beside, trial.mission)
        copy = self.place / _ROOTS / str(trial.number) / source.name
        if not copy.exists():
            shutil.rmtree(copy.parent, ignore_errors=True)
            unfinished = copy.parent / f".{source.name}"
            try:
                shutil.copytree(source, unfinished, symlinks=True)
                unfinished.rename(copy)
            except (OSError, shutil.Error) as refused:
                fact = getattr(refused, "strerror", None) or refused.args[0]
                message = f"{trial.mission.place}.root: {str(source)!r} cannot be copied: {fact}"
                raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from refused
        return copy

    def _check(self, engine: Engine, trial: Trial, mission: Mission, checks: TrialChecks) -> str | None:
        """Have the check program judge a mission that completed, once; why it could not be run."""
        command = trial.mission.expect.check
        if command is None or mission.status is not MissionStatus.COMPLETED or trial.key in checks.results():
            return None
        try:
            found = found_check(command, trial.mission.place, self._beside)
            checks.run(engine.instance, self._spec(trial), found, mission, trial.key)
        except LcpError as refused:
            return str(refused)
        return None

    def _score(
        self,
        engine: Engine,
        spent: Mapping[str, float | None],
        checked: Mapping[str, CheckResult],
        trial: Trial,
        mission: Mission,
    ) -> Score:
        subjects = Subjects(engine.database)
        done = engine.jobs(mission_id=mission.id, states=["succeeded"])
        readers = {kind for kind, worker in engine.workers.items() if worker.role is KindRole.READS}
        read = (subjects.path_of(job.json) for job in done if job.kind in readers)
        turns = engine.turns(mission.id)
        prompts, over = _prompts(turns)
        told = Told(mission.goal, instructions_of(str(turns[-1]["prompt"] or "") if turns else ""))
        cost, currency = _cost(mission)
        ended, expect = mission.ended_at, trial.mission.expect
        return judge(
            TrialRecord(
                mission=trial.mission.name,
                planner=trial.planner,
                repetition=trial.repetition,
                mission_id=mission.id,
                status=mission.status.value,
                outcome=mission.outcome,
                error_code=_error_code(mission),
                unfulfilled=bool(mission.unfulfilled),
                answer=_answer(mission),
                is_echo=is_echo(mission.summary or "", told),
                read=frozenset(path for path in read if path is not None),
                used=frozenset(job.kind for job in done),
                check=checked.get(trial.key),
                turns=mission.turns,
                corrections=sum(turn["corrects"] is not None for turn in turns),
                prompts=prompts,
                over_context=over,
                input_tokens=mission.tokens["input"],
                output_tokens=mission.tokens["output"],
                cost=cost,
                currency=currency,
                seconds=None if ended is None else (ended - mission.created_at).total_seconds(),
                cpu_seconds=spent.get(trial.key),
            ),
            expect.model_copy(
                update={"uses": tuple(kind_named(kind, engine.workers) for kind in expect.uses)}
            ),
        )


def _prompts(turns: Sequence[JsonObject]) -> tuple[int, int]:
    """How many prompts were sent to a model, and how many of them left too little of its context for the reply."""
    sent = [
        (object_in(completion), turn.get("context_tokens"))
        for turn in turns
        for completion in list_in(turn["completions"] or [])
    ]
    return len(sent), sum(_is_over(completion, context) for completion, context in sent)


def _is_over(completion: JsonObject, context: JsonValue) -> bool:
    if completion.get("fault") == Fault.CONTEXT:
        return True
    taken = [completion.get(name) for name in ("input_tokens", "max_tokens")]
    needed = sum(tokens for tokens in taken if isinstance(tokens, int))
    return isinstance(context, int) and needed > context


def _cost(mission: Mission) -> tuple[Decimal | None, str | None]:
    """What its prompts and replies cost; nothing if one had no price."""
    amount, currency = mission.cost.get("amount"), mission.cost.get("currency")
    if amount is None or mission.cost.get("unpriced"):
        return None, None
    return Decimal(str(amount)), str(currency)


def _error_code(mission: Mission) -> str | None:
    """What failed, where the outcome says no more than that something did."""
    code = mission.error.get("error_code")
    is_vague = mission.outcome in (Outcome.JOB_FAILED, Outcome.INVALID_REPLY)
    return str(code) if is_vague and code not in (None, ErrorCode.INVALID_REPLY) else None


def _answer(mission: Mission) -> str:
    parts = [mission.summary or "", *map(str, mission.issues), *map(str, mission.recommendations)]
    result = [] if mission.result is None else [json.dumps(mission.result, ensure_ascii=False)]
    return "\n".join([*parts, *result])


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise LcpError(
            ErrorCode.NOT_FOUND,
            f"suite {str(path)!r} does not exist; a file is expected",
            advice="docs/eval.md shows how to write one.",
        ) from None
    except OSError as refused:
        message = f"suite {str(path)!r} cannot be read: {refused.strerror}"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice=system_advice(refused)) from refused
    if len(data) > MOST_BYTES:
        raise LcpError(
            ErrorCode.INVALID_MISSION,
            f"{path} is larger than {MOST_BYTES:,} bytes, the limit of a suite",
            advice="Name the file of a suite.",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        message = f"{path}: byte {refused.start} is not UTF-8"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="Save the file as UTF-8.") from refused


def _chosen(suite: Suite, names: Sequence[str], source: Path) -> Mapping[str, StatedPlanner]:
    """The planners that are tried, by their names: those of the suite, or others by their type."""
    chosen = {name: suite.planners.get(name, name) for name in names} or suite.planners
    if not chosen:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"{source}: no planner is named; list some under `planners`, or name one with --planner",
        )
    return chosen


def _times(repeat: int) -> int:
    if not 1 <= repeat <= MOST_REPETITIONS:
        message = f"repeat is {repeat}; a number from 1 to {MOST_REPETITIONS} is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return repeat


def _source(beside: Path, mission: SuiteMission) -> Path:
    path = (beside / mission.root).resolve()
    if not path.is_dir():
        fact = "is not a directory" if path.exists() else "does not exist"
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND,
            f"{mission.place}.root: {str(path)!r} {fact}; a directory is expected",
            advice="Correct the root; it is relative to the suite.",
        )
    return path


def _begun(text: str, beside: Path, planners: Mapping[str, StatedPlanner]) -> JsonObject:
    """What is stored of an evaluation, and never changes."""
    return {"suite": text, "beside": str(beside), "planners": {**planners}}


def _stored_planners(stored: JsonValue) -> dict[str, StatedPlanner]:
    return {
        name: planner if isinstance(planner, dict) else str(planner)
        for name, planner in object_in(stored).items()
    }


def _read_begun(place: Path) -> JsonObject | None:
    try:
        found: JsonObject = json.loads((place / _SUITE).read_bytes())
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        message = f"{str(place)!r} is a file; a directory is expected"
        raise LcpError(ErrorCode.NOT_A_FILE, message, advice="Name a directory.") from None
    except ValueError as refused:
        message = f"{str(place / _SUITE)!r} is not what `lcp eval run` has stored: {refused}"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Name another directory.") from refused
    return found


@contextmanager
def _only_one(place: Path) -> Iterator[None]:
    """Two at once would measure each other's missions."""
    descriptor = os.open(place / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LcpError(
                ErrorCode.WRONG_STATE,
                f"another process is running the evaluation in {str(place)!r}",
                advice="Wait for it, or name another directory with --to.",
            ) from None
        yield
    finally:
        os.close(descriptor)
