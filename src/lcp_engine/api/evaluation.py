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
from pathlib import Path
from threading import Event, Lock
from typing import Self

from pydantic import JsonValue

from lcp_engine.api.arguments import checked_spec
from lcp_engine.api.engine import Engine
from lcp_engine.api.processor_time import ProcessorTime
from lcp_engine.core.decide import Outcome
from lcp_engine.core.echo import Told
from lcp_engine.core.evaluation.scores import Run, Score, judge
from lcp_engine.core.evaluation.suite import MOST_REPETITIONS, Case, Suite, parse_suite
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.safe_text import json_line
from lcp_engine.engine.subjects import Subjects
from lcp_engine.errors import ErrorCode, LcpError, system_advice
from lcp_engine.planners.llm.instructions import instructions_of
from lcp_engine.store.queries.records import Mission

MOST_BYTES = 4 * 1024 * 1024
"""Of a suite's file."""
_SUITE, _DATABASE, _ROOTS, _SPENT, _LOCK = "suite.json", "lcp.db", "roots", "spent.jsonl", "lock"


@dataclass(frozen=True)
class Cell:
    """One run: a mission of the suite, with a planner, for the n-th time."""

    number: int
    case: Case
    planner: str
    repetition: int

    @property
    def key(self) -> str:
        """The name of its mission, and the key that it is launched with once."""
        return f"{self.case.name} {self.planner} {self.repetition}"


@dataclass(frozen=True)
class Done:
    """A run that has come to its end, or as far as it comes."""

    cell: Cell
    score: Score
    trouble: str | None
    """What its runner said if it failed."""


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
        for case in stated.cases:
            _source(beside, case)
        begun = _begun(text, beside, chosen)
        times = _times(stated.repeat if repeat is None else repeat)
        before = _read_begun(place)
        if before is not None and {key: before.get(key) for key in begun} != begun:
            fact = f"{str(place)!r} has another suite, or other planners"
            raise LcpError(
                ErrorCode.WRONG_STATE,
                f"{fact}; an evaluation goes on with what it was begun with",
                advice="Name another directory with --to.",
            )
        if before is not None:
            times = max(times, int(str(before["repeat"])))
        place.mkdir(parents=True, exist_ok=True)
        return cls(place, Suite(stated.name, chosen, times, stated.cases), beside, text)

    @classmethod
    def open(cls, place: Path) -> Self:
        """An evaluation that was begun in the directory `place`. Raises `NOT_FOUND`."""
        begun = _read_begun(place)
        if begun is None:
            raise LcpError(
                ErrorCode.NOT_FOUND,
                f"{str(place)!r} is no evaluation; a directory that `lcp eval run` has made is expected",
                advice="Name the directory of --to; without it, SUITE.eval was made.",
            )
        text = str(begun["suite"])
        stated = parse_suite(text, source=str(place / _SUITE))
        chosen = _chosen(stated, (), place, begun["planners"])
        times = int(str(begun["repeat"]))
        return cls(place, Suite(stated.name, chosen, times, stated.cases), Path(str(begun["beside"])), text)

    @property
    def url(self) -> str:
        """Its database, which every other command reads with `--db`."""
        return f"sqlite:///{self.place.absolute() / _DATABASE}"

    def cells(self, cases: Collection[str] | None = None) -> list[Cell]:
        """Every run, or those of some missions: all of them with all planners once, then again."""
        found = [
            (case, planner, repetition)
            for repetition in range(1, self.suite.repeat + 1)
            for case in self.suite.cases
            for planner in self.suite.planners
        ]
        numbered = [Cell(number, *cell) for number, cell in enumerate(found, 1)]
        return [cell for cell in numbered if cases is None or cell.case.name in cases]

    def run(
        self,
        engine: Engine,
        *,
        parallel: int = 1,
        cases: Collection[str] | None = None,
        options: Sequence[str] = (),
        tell: Callable[[Done], None] = lambda done: None,
        stop: Event | None = None,
    ) -> None:
        """Run what is left, `parallel` missions at a time, each in a process of its own; `tell` hears of each.

        `engine` is one over `url`; `cases` are the names of the missions that are run now, None for all; `options` are
        further ones of the processes, such as `--workers FILE`. Once `stop` is set, what runs is interrupted: a later
        call goes on with it. Raises `WRONG_STATE` while another process runs the evaluation.
        """
        stopping, telling = stop or Event(), Lock()
        spent = ProcessorTime(self.place / _SPENT)

        def one(cell: Cell) -> None:
            if stopping.is_set():
                return
            mission = self._launch(engine, cell)
            trouble = None
            if not mission.status.has_ended:
                arguments = ["--db", self.url, "--quiet", *options, "work", "--until-idle"]
                trouble = spent.work([*arguments, "--mission", str(mission.id)], cell.key, stopping)
            if not stopping.is_set():
                score = self._score(engine, spent.seconds(), cell, engine.mission(mission.id))
                with telling:
                    tell(Done(cell, score, trouble))

        with _only_one(self.place), ThreadPoolExecutor(parallel) as pool:
            self._begin(engine)
            try:
                for future in [pool.submit(one, cell) for cell in self.cells(cases)]:
                    future.result()
            except BaseException:
                stopping.set()
                raise

    def scores(self, engine: Engine) -> list[Score]:
        """What came of each run that was launched, in the order of `cells`; `engine` is one over `url`."""
        spent = ProcessorTime(self.place / _SPENT).seconds()
        missions = {mission.name: mission for mission in engine.missions()}
        return [
            self._score(engine, spent, cell, missions[cell.key])
            for cell in self.cells()
            if cell.key in missions
        ]

    def _begin(self, engine: Engine) -> None:
        """Store what is run, once every mission in it can be launched: it cannot be changed then."""
        for case in self.suite.cases:
            for planner in self.suite.planners.values():
                checked_spec(engine.instance, case.mission(planner), allow_admin=False)
        begun = _begun(self._text, self._beside, self.suite.planners)
        unfinished = self.place / f".{_SUITE}"
        unfinished.write_text(json_line({**begun, "repeat": self.suite.repeat}), encoding="utf-8")
        unfinished.replace(self.place / _SUITE)

    def _launch(self, engine: Engine, cell: Cell) -> Mission:
        spec = cell.case.mission(self.suite.planners[cell.planner])
        root = self._copy_of(cell)
        return engine.launch(spec.model_copy(update={"name": cell.key}), root=root, key=cell.key)

    def _copy_of(self, cell: Cell) -> Path:
        """The root of a run, under the name that it has: a model sees it."""
        source = _source(self._beside, cell.case)
        copy = self.place / _ROOTS / str(cell.number) / source.name
        if not copy.exists():
            shutil.rmtree(copy.parent, ignore_errors=True)
            unfinished = copy.parent / f".{source.name}"
            try:
                shutil.copytree(source, unfinished, symlinks=True)
                unfinished.rename(copy)
            except (OSError, shutil.Error) as refused:
                fact = getattr(refused, "strerror", None) or refused.args[0]
                message = f"{cell.case.place}.root: {str(source)!r} cannot be copied: {fact}"
                raise LcpError(ErrorCode.FILE_SYSTEM, message) from refused
        return copy

    def _score(
        self, engine: Engine, spent: Mapping[str, float | None], cell: Cell, mission: Mission
    ) -> Score:
        readers = [kind for kind, worker in engine.workers.items() if worker.role is KindRole.READS]
        subjects = Subjects(engine.database)
        read = engine.jobs(mission_id=mission.id, states=["succeeded"], kinds=readers)
        turns = engine.turns(mission.id)
        ended = mission.ended_at
        return judge(
            Run(
                case=cell.case.name,
                planner=cell.planner,
                repetition=cell.repetition,
                mission_id=mission.id,
                status=mission.status.value,
                outcome=mission.outcome,
                error_code=_error_code(mission),
                unfulfilled=bool(mission.unfulfilled),
                answer=_answer(mission),
                summary=mission.summary or "",
                told=Told(mission.goal, instructions_of(str(turns[-1]["prompt"] or "") if turns else "")),
                read=frozenset(path for job in read if (path := subjects.path_of(job.json)) is not None),
                turns=mission.turns,
                corrections=sum(turn["corrects"] is not None for turn in turns),
                input_tokens=mission.tokens["input"],
                output_tokens=mission.tokens["output"],
                seconds=None if ended is None else (ended - mission.created_at).total_seconds(),
                cpu_seconds=spent.get(cell.key),
            ),
            cell.case.expect,
        )


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


def _chosen(
    suite: Suite, names: Sequence[str], source: Path, stored: JsonValue = None
) -> dict[str, str | dict[str, JsonValue]]:
    """The planners that are tried, by their names."""
    if isinstance(stored, dict):
        return {
            name: planner if isinstance(planner, dict) else str(planner) for name, planner in stored.items()
        }
    known = {name: one if isinstance(one, str) else dict(one) for name, one in suite.planners.items()}
    chosen = {name: known.get(name, name) for name in names} or known
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


def _source(beside: Path, case: Case) -> Path:
    path = (beside / case.root).resolve()
    if not path.is_dir():
        fact = "is no directory" if path.exists() else "does not exist"
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND,
            f"{case.place}.root: {str(path)!r} {fact}; a directory is expected",
            advice="Correct the root; it is relative to the suite.",
        )
    return path


def _begun(text: str, beside: Path, planners: Mapping[str, str | Mapping[str, JsonValue]]) -> JsonObject:
    chosen = {name: one if isinstance(one, str) else dict(one) for name, one in planners.items()}
    return {"suite": text, "beside": str(beside), "planners": {**chosen}}


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
                f"the evaluation in {str(place)!r} is run by another process",
                advice="Wait for it, or name another directory with --to.",
            ) from None
        yield
    finally:
        os.close(descriptor)
