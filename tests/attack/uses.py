"""Use a path in every way that a mission does: jobs, diffs, approvals, acceptance checks, undo, reports."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pydantic import JsonValue
from tests.attack.races import CANARY, CHANGES, LIST, READ, SEARCH, Race
from tests.ways import Do, Done, Params, Way

from lcp_engine.api.engine import Engine
from lcp_engine.core.policy import Rule, Verdict
from lcp_engine.errors import LcpError
from lcp_engine.sandbox import root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.sandbox.system.syscalls import has_openat2, landlock_version
from lcp_engine.store.queries.records import Job, MissionStatus

Reply: TypeAlias = dict[str, JsonValue]
_COMPLETE: Reply = {"ok": True, "action": "mission_complete", "summary": "All done."}
_AUTO = (Rule(kinds=(READ, LIST, *CHANGES), do=Verdict.AUTO),)
_HELD = (Rule(kinds=CHANGES, do=Verdict.HOLD),)


SPARE = 12
"""Connections and locks that an engine may have open at one moment and not at another."""


@dataclass(frozen=True)
class Use:
    """One way to use a path: the kinds of jobs that do it, and whether it launches a mission for each attempt."""

    way: Way
    kinds: tuple[str, ...]
    launches: bool = True
    shows: bool = False
    """It shows what a file was before: also that of a hard link, which is a file of the root."""

    def applies_to(self, race: Race) -> bool:
        makes_hard_links = any(step[0] == "link" for step in race.steps)
        moves = race.moves_root and self.launches
        return race.kind in self.kinds and not moves and not (self.shows and makes_hard_links)


class Missions:
    """Missions over one root, launched and executed one at a time."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine, self._root = engine, root
        self.first: int | None = None
        self.held: dict[str, int] = {}
        """The mission of each job that is looked at."""

    def run(self, *replies: Reply, **spec: JsonValue) -> int:
        """The id of a mission that has run as far as it does by itself."""
        planner: Reply = {"type": "script", "replies": [*replies]}
        mission = self.engine.launch({"goal": "Try it.", "planner": planner, **spec}, root=self._root).id
        self.engine.work(until_idle=True, mission_id=mission)
        return mission

    def job(self, mission: int, kind: str) -> Job:
        (found,) = (job for job in self.engine.jobs(mission_id=mission) if job.kind == kind)
        return found


def _ask(kind: str, params: Params) -> Reply:
    return {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": kind, "params": dict(params)}],
    }


Attempt: TypeAlias = Callable[[Missions, str, Params], Done]


def _done(job: Job) -> Done:
    return Done(job.result) if job.error is None else Done(code=str(job.error.get("error_code")))


def _by_job(missions: Missions, kind: str, params: Params) -> Done:
    """All jobs belong to one mission, which was launched before anything moved."""
    mission = missions.first or missions.run(_ask("write_file", {"rel_path": "held.txt", "content": "x"}))
    job = missions.engine.enqueue(kind, params, mission_id=mission)
    missions.first = mission
    missions.engine.work(until_idle=True, mission_id=mission)
    return _done(missions.engine.job(job))


def _by_diff(missions: Missions, kind: str, params: Params) -> Done:
    """A job is held before anything moves, and looked at again and again."""
    if kind not in CHANGES:
        return Done(code="NO_DIFF")
    asked = repr((kind, params))
    if asked not in missions.held:
        missions.held[asked] = missions.run(_ask(kind, params))
    look = missions.engine.look(missions.job(missions.held[asked], kind).id)
    return Done({"told": repr((look.diff, look.sight))})


def _by_approval(missions: Missions, kind: str, params: Params) -> Done:
    mission = missions.run(_ask(kind, params), _COMPLETE)
    job = missions.job(mission, kind)
    look = missions.engine.look(job.id)
    missions.engine.approve(job.id, shown=look.sight)
    missions.engine.work(until_idle=True, mission_id=mission)
    job = missions.job(mission, kind)
    return _done(job) if job.state == "succeeded" else Done(code=job.state)


def _by_undo(missions: Missions, kind: str, params: Params) -> Done:
    mission = missions.run(_ask(kind, params), _COMPLETE)
    told = missions.engine.undo(mission)
    return Done({"told": repr(told)})


def _by_report(missions: Missions, kind: str, params: Params) -> Done:
    mission = missions.run(_ask(kind, params), _COMPLETE)
    files, _ = missions.engine.changed_files(mission, first=0, most=10)
    facts = missions.engine.facts(mission)
    return Done({"told": repr((files, missions.engine.mission_diff(mission), facts))})


def _by_acceptance(missions: Missions, _: str, params: Params) -> Done:
    """A check that finds the secret tells that it is there."""
    pattern = f"(?s).*({CANARY}|root:x:0:0)"
    check: Reply = {"file_matches": {"path": params["rel_path"], "pattern": pattern}}
    mission = missions.run(_COMPLETE, accept=[check])
    ended = missions.engine.mission(mission)
    return Done({"told": CANARY}) if ended.status == MissionStatus.COMPLETED else Done(code=ended.outcome)


@contextmanager
def _through_engine(
    attempt: Attempt, rules: tuple[Rule, ...], isolation: Isolation, place: Path, /, *, aliases: tuple[str, ...] = ()
) -> Iterator[Do]:  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="lcp-attack-") as directory:
        url = f"sqlite:///{directory}/lcp.db"
        with Engine(url, user_rules=rules, isolation=isolation) as engine:
            missions = Missions(engine, place)

            def do(kind: str, params: Params) -> Done:
                try:
                    return attempt(missions, kind, params)
                except LcpError as error:
                    return Done(code=error.code)

            yield do


@contextmanager
def _without_openat2() -> Iterator[None]:
    """This process has a kernel that does not know openat2."""
    root.has_openat2 = lambda: False  # type: ignore[attr-defined,assignment]  # what an older kernel would say
    try:
        yield
    finally:
        root.has_openat2 = has_openat2  # type: ignore[attr-defined]  # as it was


@contextmanager
def _by_walk(
    attempt: Attempt, rules: tuple[Rule, ...], place: Path, /, *, aliases: tuple[str, ...] = ()
) -> Iterator[Do]:
    with _without_openat2(), _through_engine(attempt, rules, Isolation.OFF, place, aliases=aliases) as do:
        yield do


_USES: tuple[tuple[str, Attempt, tuple[Rule, ...], tuple[str, ...], bool], ...] = (
    ("job", _by_job, _AUTO, (READ, LIST, SEARCH, *CHANGES), False),
    ("diff", _by_diff, _HELD, CHANGES, False),
    ("approval", _by_approval, _HELD, CHANGES, True),
    ("undo", _by_undo, _AUTO, CHANGES, True),
    ("report", _by_report, _AUTO, CHANGES, True),
    ("acceptance", _by_acceptance, _AUTO, (READ,), True),
)


_SHOWING = (_by_diff, _by_report)


def _uses() -> Iterator[Use]:
    for name, attempt, rules, kinds, launches in _USES:
        for way, is_there, opened in (
            ("openat2", has_openat2(), partial(_through_engine, attempt, rules, Isolation.OFF)),
            ("walk", True, partial(_by_walk, attempt, rules)),
            ("confined", landlock_version() is not None, partial(_through_engine, attempt, rules, Isolation.AUTO)),
        ):  # fmt: skip
            yield Use(Way(f"{name}, {way}", is_there, opened), kinds, launches, attempt in _SHOWING)


USES = tuple(_uses())
