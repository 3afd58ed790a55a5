"""The points at which features take part in the course of plans and missions, as values that they register."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from pydantic import JsonValue

from lcp_engine.core.decide import End, Outcome
from lcp_engine.core.follow import Ends, Stated
from lcp_engine.core.mission.spec import MissionSpec, mission_model
from lcp_engine.core.policy import Approvals, Consent
from lcp_engine.core.protocol.actions import Action, CreateFollowupJobs, Malformed
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.feature import in_a_line, installed, is_left_out, is_shipped, leave_out, load, load_all
from lcp_engine.store.db.database import Database
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.people import Sight
from lcp_engine.store.queue import ClaimGate, Throttle, Unlimited
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.workers.base import Hold, Stored, Workers

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lcp_engine.core.policy import KindNames
    from lcp_engine.core.settings.feature_settings import FeatureSettings
    from lcp_engine.engine.admission import Admission
    from lcp_engine.engine.instance import Instance
    from lcp_engine.engine.question import Asked
    from lcp_engine.planners.base import SeenMemory
    from lcp_engine.sandbox.root import Root
    from lcp_engine.store.db.transaction import Tx
    from lcp_engine.workers.base import Worker

T = TypeVar("T")

Begin: TypeAlias = Callable[[Ledger, MissionRow], None]
"""Stores the plan of a new mission with its first jobs."""
Look: TypeAlias = Callable[[JobRow, Mapping[str, JsonValue]], Sight]
"""Shows what a job with these params would change now."""


_MISSING = Failed(ErrorCode.NOT_INSTALLED, "no installed feature carries out stated plans")
_NO_END = End(Outcome.JOB_FAILED, succeeded=False, message=_MISSING.message)


def _ignore(*event: object) -> None:
    pass


@dataclass(frozen=True)
class Store:
    """Storage of outcomes besides their results, in the transaction that settles the job; or why that job fails."""

    keep: Callable[[Ledger, JobRow, Stored], Failed | None]


@dataclass(frozen=True, kw_only=True)
class PlanType:
    """The course of plans that no planner continues. Called in the transaction of the event; what raises fails that.

    `look` finds the failures of a plan, `note_fault` keeps the first of them, `forget_fault` drops it once its step is
    tried again, and `is_done` says whether a plan that has ended has none. `skip_rest` skips what has not begun,
    `replace` begins the fallback, `end` says how a plan ends that has nothing left, and what the result of its job is.
    `begin` lets a step begin, or skips it and is False. `take_up` lets those of a reopened plan begin again; it is
    given what continues a plan that a step had begun. `answer` stores the plan that a turn was answered with, and
    `answered` finds those with which turns of a plan were.

    Outside a transaction: `check` raises `INVALID_MISSION` for a plan that cannot be executed here, in words that name
    the mission, `asks_planner` says whether a plan needs the mission's planner, `prepare` makes the
    jobs of a mission's plan, None if it states none. `admit` judges a step before it runs, with the spec of its mission
    and where its root is: returns what may run; a step that has to be held was looked at.
    """

    look: Callable[[Ledger, PlanRow, JobRow | None], Stated] = lambda *event: Stated()
    note_fault: Callable[[PlanRow, JobRow], None] = _ignore
    forget_fault: Callable[[PlanRow, JobRow], None] = _ignore
    is_done: Callable[[PlanRow], bool] = lambda plan: False
    skip_rest: Callable[[Ledger, PlanRow], None] = _ignore
    replace: Callable[[Ledger, PlanRow], None] = _ignore
    end: Callable[[Ledger, PlanRow], tuple[End, Failed | None, str | None]] = lambda *event: (
        _NO_END,
        _MISSING,
        None,
    )
    keys: tuple[str, ...] = ()
    """Keys of the mission that it stores itself."""
    begin: Callable[[Ledger, JobRow], bool] = lambda *event: True
    take_up: Callable[[Ledger, PlanRow, Callable[[PlanRow, str], None]], None] = _ignore
    check: Callable[[MissionSpec, Workers, str], None] = _ignore
    asks_planner: Callable[[MissionSpec, Workers], bool] = lambda spec, workers: False
    prepare: Callable[[MissionSpec, Workers, str | None], Begin | None] = _ignore
    answer: Callable[[Ledger, Workers, PlanRow, JobRow, CreateFollowupJobs], None] = _ignore
    answered: Callable[[Ledger, PlanRow], Sequence[PlanRow]] = lambda *plan: ()
    admit: Callable[
        [Database, Admission, JobRow, tuple[MissionSpec, str | None], Look], JobRow | Failed | Hold
    ] = lambda *step: _MISSING


@dataclass(frozen=True)
class Asker:
    """A kind of jobs with which a person is asked about the end of a mission; None where its plan goes on."""

    answered: Callable[[Ledger, JobRow], Ends | None]


@dataclass(frozen=True)
class EndGate:
    """A condition of the end of missions. A mission that it concerns ends successfully only once it was asked.

    One that is False when it is asked is left out; the mission ends.
    """

    concerns: Callable[[MissionRow], bool]
    ask: Callable[[Ledger, MissionRow, PlanRow, End, int | None], bool | None]


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Takes note of what happens in missions, in the transaction in which it happens; what raises fails that.

    The transaction may be shared and repeated: an observer has no effects besides its own rows and events.
    """

    replied: Callable[[Ledger, JobRow, Action | Malformed, End], None] = _ignore
    """A turn has a reply that ends its plan."""
    answered: Callable[[Ledger, JobRow, str, str], None] = _ignore
    """A question has an answer, by a person."""
    rejected: Callable[[Ledger, JobRow, str, str], None] = _ignore
    """A job is refused for a reason, by a person."""
    said: Callable[[Ledger, MissionRow, str, str], None] = _ignore
    """The planner of a mission has a message, by a person."""
    ended: Callable[[Ledger, MissionRow, End, str | None], None] = _ignore
    """A mission ends by itself, perhaps with an error in JSON."""
    undone: Callable[[Ledger, JobRow], None] = _ignore
    """An undo has succeeded, that of this job."""
    kinds: Sequence[str] = ()
    """Kinds of the jobs that it creates after an undo, which is over once they have run."""


class Decider(NamedTuple):
    """Person who approves a job, `is_known` if that was checked, with the settings of features."""

    by: str
    settings: Sequence[FeatureSettings]
    is_known: bool
    is_revised: bool


def _check_usual(ledger: Ledger, job: JobRow, consent: Consent, decider: Decider) -> None:
    if not consent.is_usual:
        message = f"job {job.id} needs the approval of certain people, for which no feature is installed"
        raise LcpError(ErrorCode.NOT_INSTALLED, message)


@dataclass(frozen=True, kw_only=True)
class DecisionGate:
    """Rules about whose approvals jobs need, asked in the transaction of a decision; what `check` raises refuses it.

    `names` are all names by which policy knows what a job of a kind does; `gather` notes an approval and says how many
    are missing after it, None if the person has given it before; `approvals` are those that a held job, stated as its
    mission and itself, has and needs.
    """

    names: Callable[[Tx, int, Worker[BaseModel], Workers], KindNames] = lambda tx, mission, worker, workers: (
        worker.named
    )
    check: Callable[[Ledger, JobRow, Consent, Decider], None] = _check_usual
    gather: Callable[[Ledger, JobRow, Consent, str, Sight], int | None] = lambda *given: 0
    approvals: Callable[[Tx, Admission, tuple[int, int], Consent, Sight], Approvals] = (
        lambda tx, admission, held, consent, sight: Approvals(consent.approvals, (), ())
    )


@dataclass(frozen=True)
class Section:
    """Entries that a question is asked with besides the findings of its plan.

    It is chosen with the question, in its transaction, and stored: one that is asked again, corrected, replayed or
    forked has what was chosen first.
    """

    choose: Callable[[Ledger, Asked, Admission | None], Sequence[SeenMemory]]


@dataclass(frozen=True, kw_only=True)
class Chore:
    """Work of a runner besides its jobs: `do` is called again and again until the runner stops, then `finish`.

    It has transactions of its own; those that are not quick share a thread, where they delay no others. What it raises
    ends the runner, unless another try may not meet it; database errors of `finish` are left to the next runner.
    """

    name: str
    do: Callable[[], None]
    seconds: float = 1.0
    until_due: Callable[[], float] | None = None
    """Says how many seconds to pause in place of `seconds`."""
    is_quick: bool = True
    is_first: bool = False
    """Done before the first job, too."""
    is_general: bool = False
    """Left to runners for all missions."""
    finish: Callable[[], None] = _ignore
    told: Callable[[Mapping[int, int]], None] = _ignore
    """Told of missions that start to wait for a person, each with the event that says so, once that is committed."""

    def pause(self) -> float:
        """Seconds until it is done again."""
        return self.seconds if self.until_due is None else self.until_due()


@dataclass(frozen=True)
class RootProvider:
    """Places for the files of missions besides their roots.

    `open` is given the mission and what opens its root, and is None for a mission that works in that; `is_elsewhere` is
    true of a mission (its id and spec) whose files are on another machine, `is_private` of one whose jobs change no
    file of its root before a person approves that.
    """

    open: Callable[[Instance, int, MissionSpec, Callable[[], Root]], Root | None] = _ignore
    is_elsewhere: Callable[[Tx, int, str], bool] = lambda *mission: False
    is_private: Callable[[MissionSpec], bool] = lambda spec: False


def _guarded(place: str, call: Callable[..., T], instead: Callable[..., T]) -> Callable[..., T]:
    """A call of another package, for which `instead` stands in once it has raised; errors of the database go on."""

    def run(*given: object) -> T:
        if not is_left_out(place):
            try:
                return call(*given)
            except Exception as raised:
                if is_of_database(raised):
                    raise
                leave_out(place, raised)
        return instead(*given)

    return run


def _apart(place: str, call: Callable[..., T], instead: Callable[..., T]) -> Callable[..., T]:
    """Like `_guarded`, with a savepoint."""

    def run(at: Ledger | Tx, *event: object) -> T:
        with (at if isinstance(at, Ledger) else ledger_of(at)).apart():
            return call(at, *event)

    return call if call is _ignore else _guarded(place, run, instead)


def _refusing(place: str, call: Callable[..., T]) -> Callable[..., T]:
    """A call of another package that refuses what it is asked about if it raises, or was left out."""

    def run(*given: object) -> T:
        try:
            if not is_left_out(place):
                return call(*given)
            fact = "is left out"
        except Exception as raised:
            if isinstance(raised, LcpError) or is_of_database(raised):
                raise
            fact = f"raised {in_a_line(raised)}"
        advice = "Repair its package, or remove it, then start again."
        raise LcpError(ErrorCode.NOT_INSTALLED, f"feature {place} {fact}", advice=advice)

    return run


def is_of_database(raised: Exception) -> bool:
    """True for errors that are not of the call: the database is busy, away, or has another try."""
    if isinstance(raised, LcpError):
        return raised.code in OF_DATABASE
    is_operational = any(one.__name__ == "OperationalError" for one in type(raised).__mro__)
    return is_operational and getattr(raised, "sqlite_errorcode", 0) != 1  # such as a table that is not there


def _one(place: str | None, point: type[T]) -> tuple[str, T]:
    """The value at a place, after that if another package has it: its errors are kept from the engine.

    Where no feature states one that can be loaded, the defaults of the point say what happens.
    """
    value = next((one for _, one in load_all(filter(None, [place]), point)), None) or point()
    return "" if place is None or is_shipped(place) else place, value


@cache
def steps() -> PlanType:
    return _one(installed().plan_type, PlanType)[1]


@cache
def mission_checks() -> Sequence[Callable[[Instance, MissionSpec], None]]:
    """Each refuses a mission before it is stored, with `NOT_ALLOWED` or `INVALID_MISSION`."""
    found: Iterator[tuple[str, Callable[..., None]]] = load_all(installed().mission_checks, FunctionType)
    return [check if is_shipped(at) else _refusing(at, check) for at, check in found]


def noted_at_launch(admission: Admission, spec: MissionSpec, root: Path) -> dict[str, JsonValue]:
    """Notes of features on a mission about to be launched, by their keys. Reads files, outside of any transaction."""
    places = {look: key for key, (look, _) in installed().launch_notes.items()}
    looks: Iterator[tuple[str, Callable[..., JsonValue]]] = load_all(places, FunctionType)
    calls = ((at, look if is_shipped(at) else _guarded(at, look, _ignore)) for at, look in looks)
    noted = {places[at]: look(admission, spec, root) for at, look in calls}
    return {key: one for key, one in noted.items() if one is not None}


@cache
def asker_of(kind: str) -> Asker | None:
    """Asker with jobs of this kind; None for most kinds."""
    for at, one in load_all(filter(None, [installed().askers.get(kind)]), Asker):
        return one if is_shipped(at) else Asker(_apart(at, one.answered, _ignore))
    return None


@cache
def end_gates() -> Sequence[EndGate]:
    return [
        one if is_shipped(at)
        else EndGate(_guarded(at, one.concerns, lambda *event: False), _apart(at, one.ask, lambda *event: False))
        for at, one in load_all(installed().end_gates, EndGate)
    ]  # fmt: skip


@cache
def observers() -> Sequence[Observer]:
    return [
        one if is_shipped(at) else Observer(
            replied=_apart(at, one.replied, _ignore), answered=_apart(at, one.answered, _ignore),
            rejected=_apart(at, one.rejected, _ignore), said=_apart(at, one.said, _ignore),
            ended=_apart(at, one.ended, _ignore), undone=_apart(at, one.undone, _ignore), kinds=one.kinds,
        )
        for at, one in load_all(installed().observers, Observer)
    ]  # fmt: skip


@cache
def decision_gate() -> DecisionGate:
    """Gate of decisions. One of another package refuses them once it cannot say what jobs need."""
    (at, gate), usual = _one(installed().decision_gate, DecisionGate), DecisionGate()
    return gate if not at else DecisionGate(
        names=_guarded(at, gate.names, usual.names), check=_refusing(at, gate.check),
        gather=_refusing(at, gate.gather), approvals=_guarded(at, gate.approvals, usual.approvals),
    )  # fmt: skip


@cache
def claim_gate() -> ClaimGate:
    at, gate = _one(installed().claim_gate, ClaimGate)
    opened = _guarded(at, gate.open, ClaimGate().open)
    return gate if not at else ClaimGate(
        _apart(at, gate.state, _ignore), lambda *runner: _GuardedThrottle(at, opened(*runner))
    )  # fmt: skip


class _GuardedThrottle:
    """A throttle of another package, which lets all jobs start once it has raised."""

    def __init__(self, at: str, throttle: Throttle) -> None:
        usual = Unlimited()
        self.make_ready = _apart(at, throttle.make_ready, usual.make_ready)
        self.admit = _apart(at, throttle.admit, usual.admit)
        self.note_ended = _guarded(at, throttle.note_ended, usual.note_ended)
        self.give_back = _apart(at, throttle.give_back, usual.give_back)
        self.next_look = _apart(at, throttle.next_look, usual.next_look)


@cache
def root_provider() -> RootProvider:
    (at, one), usual = _one(installed().root_provider, RootProvider), RootProvider()
    return one if not at else RootProvider(
        _refusing(at, one.open),
        _apart(at, one.is_elsewhere, usual.is_elsewhere),
        _guarded(at, one.is_private, usual.is_private),
    )  # fmt: skip


def note_waits(settings: Sequence[FeatureSettings]) -> Callable[[Tx], None]:
    """Function that is called before a transaction is committed that lets missions wait for a person."""
    place = installed().note_waits
    return _ignore if place is None else load(place, FunctionType)(settings) or _ignore


@cache
def sections() -> Sequence[Section]:
    return [
        one if is_shipped(at) else Section(_apart(at, one.choose, lambda *asked: ()))
        for at, one in load_all(installed().sections, Section)
    ]


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    """Chores of all features for the runner of an instance, which is to stop once it `is_stopping`."""
    for at, make in load_all(installed().chores, FunctionType):
        made: Callable[..., Iterable[Chore]] = make
        if is_shipped(at):
            yield from made(instance, runner_id, is_stopping)
        else:
            for one in _guarded(at, partial(_made, made), lambda *runner: [])(
                instance, runner_id, is_stopping
            ):
                do, finish, told = (_guarded(at, call, _ignore) for call in (one.do, one.finish, one.told))
                pause = _guarded(at, one.pause, lambda: 3600.0)
                yield replace(one, do=do, finish=finish, told=told, until_due=pause, is_quick=False)


def _made(make: Callable[..., Iterable[Chore]], *of_runner: object) -> list[Chore]:
    return [*make(*of_runner)]


def load_points() -> None:
    """Load what the shipped features add: a confined thread can no longer open their modules."""
    mission_model(), steps(), end_gates(), observers(), sections(), decision_gate(), root_provider()
    _ = [*map(asker_of, installed().askers)]
