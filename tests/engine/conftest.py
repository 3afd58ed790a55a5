"""A laboratory: a real engine over an empty database and directory, whose books are checked after every test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import BaseModel, ConfigDict, JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.clock import Clock
from lcp_engine.core.job_states import REFUSE, TRANSITIONS, State
from lcp_engine.core.policy import Rule
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.runner.runner import Runner
from lcp_engine.store import queue
from lcp_engine.store.host.liveness import LOCK, this_host
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.records import Job, Mission
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Context, Outcome, Permission, Worker

PLUGIN = Path(__file__).parent / "plugin"
Object: TypeAlias = dict[str, JsonValue]


class Anything(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Seen(BaseModel):
    """A job as the planner saw it."""

    kind: str
    params: Object
    state: str
    reason: str | None
    result: Object | None
    error: Object | None

    @property
    def error_code(self) -> JsonValue:
        return None if self.error is None else self.error["error_code"]


class Correction(BaseModel):
    reply: str | None
    errors: list[dict[str, str]]


class Asked(BaseModel):
    """A question as the planner got it."""

    number: int
    prompt: str
    context: str | None
    results: list[Seen]
    waiting: list[Seen]
    history: list[Seen]
    notices: list[str]
    warnings: list[str]
    said: list[str]
    said_before: list[str]
    of_step: bool
    memories: list[str]
    last_turn: str | None
    dialect: str
    correction: Correction


class Lab:
    """An engine with kinds of jobs for every need.

    `do` has no effects and `change` has; `fail` fails for good, `flaky` as often as `failures` says; `system` and
    `admin` have these permission levels. Each call of `do` calls what is in `meanwhile` first.
    """

    def __init__(
        self,
        url: str,
        place: Path,
        user_rules: Sequence[Rule] = (),
        clock: Clock | None = None,
        walls: Sequence[str] | None = None,
    ) -> None:
        self.url = url
        self.root = place / "root"
        self.root.mkdir(exist_ok=True)
        self.log = place / "questions.jsonl"
        self.meanwhile: list[Callable[[], object]] = []
        self.failures: Counter[str] = Counter()
        self.engine = Engine(
            url, workers=self._workers(), user_rules=user_rules, clock=clock, commands_wall=walls
        )

    def claim_and_die(self) -> JobRow:
        """The next job, leased by a runner of this host that is dead: the lock of its file is free."""
        instance, host = self.engine.instance, this_host()
        database, scope = instance.database, queue.Scope(tuple(sorted(self.engine.workers)))
        (instance.runtime / f"gone{LOCK}").touch()
        runner = database.write(
            lambda tx: queue.add_runner(tx, uid="gone", host=host.name, boot=host.boot, pid=1)
        )
        (job,) = database.write(lambda tx: queue.claim(ledger_of(tx), scope, runner, 1))
        return job

    def launch(
        self, *replies: JsonValue, planner: Object | None = None, each_result: bool = False, **spec: JsonValue
    ) -> int:
        """A mission whose planner answers with `replies`, after each result or each batch; its id."""
        scribe: Object = {"type": "scribe", "log": str(self.log), "replies": list(replies), **(planner or {})}
        going_on = "per_result" if each_result else "per_batch"
        allow_admin = spec.pop("allow_admin", False) is True
        whole: Object = {"goal": "Find out.", "planner": scribe, "continue": going_on, **spec}
        return self.engine.launch(whole, root=self.root, allow_admin=allow_admin).id

    def run(
        self, *replies: JsonValue, planner: Object | None = None, each_result: bool = False, **spec: JsonValue
    ) -> Mission:
        """The mission, once everything that may run has run."""
        mission_id = self.launch(*replies, planner=planner, each_result=each_result, **spec)
        self.work()
        return self.engine.mission(mission_id)

    def work(self, *, threads: int = 1, max_claim: int = 100) -> None:
        Runner(self.engine.instance, until_idle=True, threads=threads, max_claim=max_claim).run()

    def mission(self, mission_id: int = 1) -> Mission:
        return self.engine.mission(mission_id)

    def jobs(self, mission_id: int = 1) -> list[Job]:
        """The jobs that do something, in order; turns left out."""
        return [job for job in self.engine.jobs(mission_id=mission_id) if job.kind != "agent_plan"]

    def states(self, mission_id: int = 1) -> list[str]:
        return [job.state for job in self.jobs(mission_id)]

    def events(self, mission_id: int = 1) -> list[str]:
        return [str(event["event"]) for event in self.engine.events(mission_id)]

    @property
    def questions(self) -> list[Asked]:
        """What the planner was asked, in order."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [Asked.model_validate_json(line) for line in lines]

    @staticmethod
    def dig(value: JsonValue, *path: str | int) -> JsonValue:
        """What stands in JSON under a path of keys and indexes."""
        for part in path:
            if isinstance(part, str):
                assert isinstance(value, dict), f"no object around {part}"
                value = value[part]
            else:
                assert isinstance(value, list), f"no list around {part}"
                value = value[part]
        return value

    def rows(self, sql: str) -> list[Sequence[object]]:
        return list(self.engine.instance.database.read(lambda tx: tx.query_plain(sql)))

    def _workers(self) -> list[Worker[BaseModel]]:
        system, admin = Permission.SYSTEM, Permission.ADMIN
        workers = [
            Worker("do", Anything, Anything, self._do, has_effects=False),
            Worker("change", Anything, Anything, self._do),
            Worker("fail", Anything, Anything, _fail, has_effects=False),
            Worker("flaky", Anything, Anything, self._flake, has_effects=False, backoff=0.001),
            Worker("system", Anything, Anything, self._do, has_effects=False, permission=system),
            Worker("admin", Anything, Anything, self._do, has_effects=False, permission=admin),
        ]
        return [worker.for_any_params() for worker in workers]

    def _do(self, params: Anything, context: Context) -> Outcome:
        for step in self.meanwhile:
            step()
        return Anything.model_validate({"done": True})

    def _flake(self, params: Anything, context: Context) -> Outcome:
        self.failures["flaky"] -= 1
        if self.failures["flaky"] >= 0:
            raise RuntimeError("not this time")
        return Anything.model_validate({"done": True})


def _fail(params: Anything, context: Context) -> Outcome:
    return Failed(ErrorCode.PATH_NOT_FOUND, "it is not there")


OpenLab: TypeAlias = Callable[..., Lab]


@pytest.fixture
def open_lab(emptied_database_url: str, tmp_path: Path, _scribe: None) -> Iterator[OpenLab]:
    """Opens laboratories over one database and one directory: `open_lab(user_rules=…, clock=…)`."""
    opened: list[Lab] = []

    def make(
        user_rules: Sequence[Rule] = (), clock: Clock | None = None, walls: Sequence[str] | None = None
    ) -> Lab:
        opened.append(Lab(emptied_database_url, tmp_path, user_rules, clock, walls))
        return opened[-1]

    yield make
    check_books(opened[0])
    for lab in opened:
        lab.engine.close()


@pytest.fixture
def walls() -> Sequence[str] | None:
    """The walls that commands of the lab may run behind; None for the strongest that holds."""
    return None


@pytest.fixture
def lab(open_lab: OpenLab, walls: Sequence[str] | None) -> Lab:
    return open_lab() if walls is None else open_lab(walls=walls)


@pytest.fixture(scope="session")
def _scribe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The planner `scribe`, installed as any plug-in is."""
    site = tmp_path_factory.mktemp("site")
    described = site / "scribe-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: scribe\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[lcp_engine.planners]\nscribe = scribe:Scribe\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGIN))
        patch.syspath_prepend(str(site))
        yield


def check_books(lab: Lab) -> None:
    """What holds at every moment: history without gaps, counters that count, moves that the table allows."""
    _check_events(lab)
    _check_moves(lab)
    _check_counters(lab)
    _check_statuses(lab)
    _check_attempts(lab)


def _check_events(lab: Lab) -> None:
    numbers = lab.rows(
        "SELECT m.id, m.events, count(*), min(e.seq), max(e.seq) FROM missions m JOIN events e ON e.mission_id = m.id "
        "GROUP BY m.id, m.events"
    )
    for _, noted, count, first, last in numbers:
        assert (first, last, count) == (1, noted, noted), "event numbers have a gap"


def _check_moves(lab: Lab) -> None:
    table = {transition.event: transition for transition in TRANSITIONS}
    where: dict[object, State | None] = {}
    for job_id, event in lab.rows(
        "SELECT job_id, event FROM events WHERE job_id IS NOT NULL ORDER BY mission_id, seq"
    ):
        move = table.get(str(event))
        if move is not None:
            before = where.get(job_id)
            assert (before in move.sources) if before else not move.sources, (
                f"job {job_id}: {event} from {before}"
            )
            where[job_id] = move.target
    assert where == {job_id: State(str(state)) for job_id, state in lab.rows("SELECT id, state FROM jobs")}


def _check_counters(lab: Lab) -> None:
    counted = ", ".join(f"sum(CASE WHEN j.state = '{state}' THEN 1 ELSE 0 END), m.{state}" for state in State)
    names = ", ".join(f"m.{state}" for state in State)
    for row in lab.rows(
        f"SELECT {counted} FROM missions m JOIN jobs j ON j.mission_id = m.id GROUP BY m.id, {names}"
    ):
        assert [int(str(n)) for n in row[::2]] == list(row[1::2]), "jobs of each state are counted wrongly"
    open_ = "sum(CASE WHEN j.state IN ('queued', 'running', 'blocked') THEN 1 ELSE 0 END)"
    held = "sum(CASE WHEN j.state = 'held' THEN 1 ELSE 0 END)"
    for plan, *numbers in lab.rows(
        f"SELECT p.id, {open_}, p.open, {held}, p.held FROM plans p JOIN jobs j ON j.plan_id = p.id "
        "GROUP BY p.id, p.open, p.held"
    ):
        assert int(str(numbers[0])) == numbers[1], f"open jobs of plan {plan} are counted wrongly"
        assert int(str(numbers[2])) == numbers[3], f"held jobs of plan {plan} are counted wrongly"
    for row in lab.rows(
        "SELECT m.questions, count(t.number), m.turns, coalesce(max(t.turn), 0), m.input_tokens, "
        "coalesce(sum(t.input_tokens), 0), m.output_tokens, coalesce(sum(t.output_tokens), 0) FROM missions m "
        "LEFT JOIN turns t ON t.mission_id = m.id "
        "GROUP BY m.id, m.questions, m.turns, m.input_tokens, m.output_tokens"
    ):
        assert list(row[::2]) == [int(str(n)) for n in row[1::2]], (
            "questions, turns or tokens are counted wrongly"
        )
    requested = (
        "SELECT m.requested, (SELECT count(*) FROM jobs j WHERE j.mission_id = m.id "
        # Of the steps of plans, those that a planner answered with: the turn is their parent.
        "AND j.fingerprint IS NOT NULL AND (j.terms IS NULL OR j.parent_id IS NOT NULL) "
        "AND NOT EXISTS (SELECT 1 FROM events e WHERE e.mission_id = m.id AND e.job_id = j.id AND "
        f"e.event = '{REFUSE.event}')) FROM missions m"
    )
    for noted, count in lab.rows(requested):
        assert noted == count, "requested jobs are counted wrongly"


def _check_statuses(lab: Lab) -> None:
    for row in lab.rows(
        "SELECT id, status, outcome, ended_at, held, queued, running, asking, root_plan FROM missions"
    ):
        mission_id, status, outcome, ended_at, held, queued, running, asking, root_plan = row
        has_ended = status not in ("running", "waiting")
        assert (outcome is not None, ended_at is not None) == (has_ended, has_ended), f"mission {mission_id}"
        if not has_ended:
            waits = not (queued or running) and bool(held)
            assert (status == "waiting") == waits, f"mission {mission_id} is {status} with {held} held jobs"
            assert queued or running or held or root_plan is None, (
                f"mission {mission_id} goes on and nothing does"
            )
        turns = lab.rows(
            f"SELECT id FROM jobs WHERE mission_id = {mission_id} AND (role <> 'work' AND "
            "(state IN ('queued', 'running') OR (state = 'held' "
            "AND EXISTS (SELECT 1 FROM turns WHERE turns.job_id = jobs.id))) "
            # A question about a limit stands for the turn that reached it.
            "OR state = 'held' AND id IN (SELECT job_id FROM events WHERE event = 'asked_for_more'))"
        )
        assert len(turns) <= 1, f"mission {mission_id} asks two turns at a time"
        # Nobody waits any more for a turn that was asked when its mission ended.
        assert [asking] == ([None] if has_ended or not turns else [*turns[0]])


def _check_attempts(lab: Lab) -> None:
    for job_id, attempt, state, last, rows in lab.rows(
        "SELECT j.id, j.attempt, j.state, max(a.attempt), count(a.attempt) FROM jobs j "
        "LEFT JOIN attempts a ON a.job_id = j.id GROUP BY j.id, j.attempt, j.state"
    ):
        assert int(str(rows)) <= int(str(attempt)), f"job {job_id} has too many attempts"
        if state in ("succeeded", "failed"):
            assert (last or 0) == attempt, f"the attempt that settled job {job_id} is not a row"
