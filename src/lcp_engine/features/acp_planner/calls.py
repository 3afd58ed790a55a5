"""Keep the tool calls of an agent as jobs of its mission, and decide on those that it asks permission for.

A call under way is a blocked job behind its turn. What became of it is found by comparing the stage, never believed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import PurePosixPath

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TextContentBlock,
    ToolCall,
    ToolCallUpdate,
)
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from lcp_engine.changes.preview import Previews
from lcp_engine.core.job_states import AGENT_ASKS, AGENT_DID, AGENT_FAILED, SKIP, State
from lcp_engine.core.json_values import JsonObject, object_in
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import Ruling, Verdict
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.core.safe_text import one_line
from lcp_engine.engine.failure import agent_error
from lcp_engine.engine.turn_queue import acting_plan
from lcp_engine.errors import GENERAL, ErrorCode, Failed, Json, LcpError
from lcp_engine.features.acp_planner.kinds import AGENT_CALL, KINDS, OUTCOME_UNKNOWN, CallParams, CallResult
from lcp_engine.features.acp_planner.store import (
    USED,
    calls_under_way,
    earlier_calls,
    is_used,
    name_call,
    put_behind,
)
from lcp_engine.features.programs.stage_work import StageWork
from lcp_engine.features.programs.wall.views.view import HOME
from lcp_engine.planners.base import Question
from lcp_engine.store.db.json_text import storable, to_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import Sight, see, set_params
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import JobRow, MissionRow
from lcp_engine.workers.base import Worker

MOST_OUTPUT = 20_000
"""Characters of a call's output that are kept."""
MOST_INPUT = 200_000
"""Characters of a call's input and change; of a larger one neither is kept, and no person is asked about it."""
_MOST_WORDS = 4096
"""Characters of the id of a call, and of title and path of one that is too large to be asked about."""
_MOST_NAMED = 5
_NAMED = ("file_path", "filePath", "absolute_path", "path")
"""Names of the file in the input of a tool, as agents choose them."""
_DECIDED = ("path", "title", "input", "before", "after")
"""Params that a person decides on: calls are equal if these are."""
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


class Decision(Enum):
    """Answer to an agent that asks for permission."""

    ALLOW = auto()
    REJECT = auto()
    CANCEL = auto()


@dataclass
class _Call:
    """A tool call, as far as its updates have told it."""

    id: str
    kind: str = "other"
    title: str = ""
    input: JsonValue = None
    places: list[str] = field(default_factory=list)
    diff: FileEditToolCallContent | None = None
    output: str = ""
    status: str = "pending"
    asked: bool = False
    refused: str | None = None
    job_id: int | None = None
    is_settled: bool = False

    def fold(self, update: ToolCall | ToolCallUpdate) -> None:
        """Take over what an update states."""
        self.kind, self.title = update.kind or self.kind, update.title or self.title
        self.status = update.status or self.status
        if update.raw_input is not None:
            try:
                self.input = _JSON.validate_python(update.raw_input)
            except ValidationError:
                self.input = str(update.raw_input)
        self.places = [one.path for one in update.locations or ()] or self.places
        for one in update.content or ():
            match one:
                case FileEditToolCallContent():
                    self.diff = one
                case ContentToolCallContent(content=TextContentBlock(text=said)):
                    self.output = said[:MOST_OUTPUT]

    @property
    def worker(self) -> Worker[BaseModel]:
        return KINDS.get(self.kind, AGENT_CALL)

    @property
    def path(self) -> str | None:
        """The file that it names."""
        if self.kind == "execute":
            return None
        if self.diff is not None:
            return self.diff.path
        stated = self.input if isinstance(self.input, dict) else {}
        named = (one for name in _NAMED if isinstance(one := stated.get(name), str) and one)
        return next(named, self.places[0] if self.places else None)

    @property
    def size(self) -> int:
        shown = 0 if self.diff is None else len(self.diff.new_text) + len(self.diff.old_text or "")
        return len(to_json(self.input)) + len(self.title) + len(self.path or "") + shown


class Calls:
    """The tool calls of one turn. `look` returns what differs in the stage by now, by path; `scrubbed` has no keys."""

    def __init__(
        self,
        work: StageWork,
        question: Question,
        look: Callable[[], Mapping[str, object]],
        scrubbed: Callable[[JsonValue], JsonValue],
        agent: str,
    ) -> None:
        self._work = work
        self._scrubbed = scrubbed
        self._question = question
        self._look = look
        self._agent = agent
        self._root = work.around.root.copy_of or work.around.root.path
        self._seen = look()
        self._calls: dict[str, _Call] = {}
        self.session = ""

    def update(self, update: ToolCall | ToolCallUpdate) -> None:
        """Keep what an update says of a call. Raises `PLANNER_REFUSED` above the jobs that the mission may have."""
        call = self._folded(update, begins=isinstance(update, ToolCall))
        if call.status in {"completed", "failed"} and not call.is_settled:
            self._settle(call)

    def ask(self, update: ToolCallUpdate) -> tuple[Decision, int | None]:
        """Decide on a call by policy; a job that is held has to be decided by a person."""
        before = self._calls.get(update.tool_call_id)
        if (
            before is not None and before.asked and not before.is_settled
        ):  # what was decided is not for this one
            before.status = "unknown"
            self._settle(before)
            self._calls[before.id] = replace(
                before, job_id=None, refused=None, is_settled=False, status="pending"
            )
        call = self._folded(update, begins=True)
        call.asked = True
        if call.worker.writes and self._is_outside(call):
            call.refused = "it is outside of the root"
            return Decision.REJECT, None
        ruling = self._ruling(call)
        if ruling is None:
            return Decision.ALLOW, None
        reason = str(ruling.reason)
        if ruling.verdict is Verdict.DENY or call.size > MOST_INPUT:
            call.refused = reason if call.size <= MOST_INPUT else "it is too large to be shown to a person"
            return Decision.REJECT, None
        instance, params = self._work.instance, self._params(call)
        if (known := instance.write(self._decided_before, call)) is not None:
            return known, None
        with Previews(instance) as previews:
            _, sight = previews.with_sight(self._question.mission_id, call.worker.kind, params)
        instance.write(self._hold, call, ruling, sight)
        self._work.job.followers += 1  # of the lease, by which a failed turn is settled
        return Decision.CANCEL, call.job_id

    def decision(self, job_id: int) -> Decision | None:
        """Decision on a held call; None while it is held."""
        job = self._work.instance.database.read(lambda tx: find_jobs(tx, [job_id]))[0]
        call = next(one for one in self._calls.values() if one.job_id == job_id)
        if job.state is State.HELD:
            return None
        if job.approved:
            return Decision.ALLOW
        call.is_settled = True
        return Decision.REJECT if job.state is State.REJECTED else Decision.CANCEL

    def recover(self) -> None:
        """Settle the calls that were under way when an earlier attempt of the turn died."""
        self._work.instance.write(self._recover, sorted(self._seen))

    def close(self) -> None:
        """Settle the calls that the agent left without an end: what became of them is not known."""
        for call in [one for one in self._calls.values() if one.job_id is not None and not one.is_settled]:
            call.status = "unknown"
            self._settle(call)
        self._work.instance.write(self._known_to_the_agent)

    def _folded(self, update: ToolCall | ToolCallUpdate, *, begins: bool) -> _Call:
        """The call that an update is about, with its job; `begins`: an update of one that has ended is of another."""
        known = self._calls.get(update.tool_call_id)
        if known is None or (known.is_settled and begins):  # ids repeat
            known = self._calls[update.tool_call_id] = _Call(update.tool_call_id)
        known.fold(update)
        if known.job_id is None:
            known.job_id = self._work.instance.write(self._begin, known)
        return known

    def _settle(self, call: _Call) -> None:
        call.is_settled, now = True, self._look()
        changed = sorted(path for path in {*now, *self._seen} if now.get(path) != self._seen.get(path))
        self._seen = now
        self._work.instance.write(self._end, call, changed)

    # -- rules

    def _ruling(self, call: _Call) -> Ruling | None:
        """Ruling that denies or holds a call; None if it is allowed: the stage confines it, only rules hold it."""
        worker, policy, paths = call.worker, self._work.policy, self._paths(call)
        strict = policy.judge(worker.named, has_effects=worker.has_effects, writes=worker.writes, paths=paths)
        if strict.verdict is Verdict.DENY:
            return strict
        plain = policy.judge(worker.named, has_effects=worker.has_effects, writes=False, paths=paths)
        return plain if plain.verdict is Verdict.HOLD and plain.reason.code is ReasonCode.RULE else None

    def _paths(self, call: _Call) -> Sequence[str]:
        """The path of a call relative to the root. What lies elsewhere is the wall's concern."""
        path = self._relative(call.path)
        return () if path is None or path.startswith("/") else (path,)

    def _is_outside(self, call: _Call) -> bool:
        """True for a file that is neither in the stage nor one of the agent's own."""
        path = self._relative(call.path)
        return path is not None and path.startswith("/") and not path.startswith((f"{HOME}/", "/tmp/"))  # noqa: S108

    def _relative(self, path: str | None) -> str | None:
        if path is None:
            return None
        placed = os.path.normpath(PurePosixPath(self._root, path))
        return os.path.relpath(placed, self._root) if f"{placed}/".startswith(f"{self._root}/") else placed

    # -- jobs

    def _params(self, call: _Call) -> JsonObject:
        is_whole, diff = call.size <= MOST_INPUT, call.diff
        path = self._relative(call.path)
        stated = CallParams(
            session=storable(self.session),
            call=storable(call.id)[:_MOST_WORDS],
            title=storable(call.title) if is_whole else storable(call.title)[:_MOST_WORDS],
            input=call.input if is_whole else f"{call.size:,} characters, which are not kept",
            path=None if path is None else storable(path) if is_whole else storable(path)[:_MOST_WORDS],
            before=None if diff is None or not is_whole or diff.old_text is None else storable(diff.old_text),
            after=None if diff is None or not is_whole else storable(diff.new_text),
            asked=call.asked,
        )
        return object_in(self._scrubbed(stated.model_dump(mode="json")))

    def _leased(self, ledger: Ledger) -> MissionRow:
        if not ledger.is_leased(self._work.job):
            message = f"job {self._work.job.id} is no longer on attempt {self._work.job.attempt}"
            raise LcpError(ErrorCode.PLANNER_FAILED, message, advice=GENERAL)
        return ledger.mission(self._question.mission_id)

    def _begin(self, ledger: Ledger, call: _Call) -> int:
        mission, turn = self._leased(ledger), self._work.job
        most = spec_of(mission.spec).limits.max_jobs
        if mission.requested >= most:
            message = f"{self._agent} was stopped: its mission may have max_jobs = {most} jobs, and has them"
            advice = "Resume the mission with a higher limits.max_jobs; each tool call of an agent is a job."
            raise LcpError(ErrorCode.PLANNER_REFUSED, message, advice=advice)
        mission.requested += 1
        return ledger.create(
            mission,
            NewJobRow(
                plan_id=turn.plan_id, turn=self._question.turn, parent_id=turn.id,
                name=self._name(call), kind=call.worker.kind,
                params=to_json(self._params(call)), state=State.BLOCKED,
                depth=turn.depth,
            ),
        )  # fmt: skip

    def _job(self, ledger: Ledger, call: _Call) -> JobRow:
        """The job of a call, with what is known of it by now; what a person was shown of it stays as it was."""
        assert call.job_id is not None
        job = ledger.job(call.job_id)
        if job.state is not State.BLOCKED or job.approved:
            return job
        set_params(ledger.tx, call.job_id, self._params(call), None)
        name_call(ledger.tx, call.job_id, self._name(call))
        return ledger.job(call.job_id)

    def _name(self, call: _Call) -> str | None:
        """Name of a call for people: the command that it runs, else its title."""
        stated = self._params(call)
        command = object_in(stated["input"]).get("command") if call.kind == "execute" else None
        return one_line(command if isinstance(command, str) else str(stated["title"]))[:200] or None

    def _known_to_the_agent(self, ledger: Ledger) -> None:
        """Nothing of the turn is news to its planner: only what is decided later leads to another turn."""
        mission = self._leased(ledger)
        acting_plan(ledger, ledger.job(self._work.job.id)).asked_seq = mission.events

    def _decided_before(self, ledger: Ledger, call: _Call) -> Decision | None:
        """Decision of a person on an equal call, of which an approval counts once; one that waits gives way."""
        mission, own = self._leased(ledger), self._params(call)
        for one in earlier_calls(ledger.tx, mission.id, call.worker.kind):
            if any(one.params.get(name) != own[name] for name in _DECIDED):
                continue
            if one.state is State.REJECTED:
                call.refused = f"it equals job {one.job_id}, which was rejected: {one.reason}"
                return Decision.REJECT
            if one.state is State.HELD:
                ledger.move(
                    ledger.job(one.job_id), SKIP, reason=f"the agent asks again, as job {call.job_id}"
                )
            elif one.result.get("allowed") is True and not is_used(ledger.tx, mission.id, one.job_id):
                ledger.note(mission, USED, one.job_id, {"job": call.job_id})
                return Decision.ALLOW
        return None

    def _hold(self, ledger: Ledger, call: _Call, ruling: Ruling, sight: Sight) -> None:
        self._leased(ledger)
        job, turn = self._job(ledger, call), self._work.job.id
        if not ledger.move(job, AGENT_ASKS, reason=ruling.reason):
            return
        put_behind(ledger.tx, turn, job.id)
        see(ledger.tx, job.id, NO_PERSON, sight)

    def _recover(self, ledger: Ledger, changed: Sequence[str]) -> None:
        mission, turn = self._leased(ledger), self._work.job.id
        for job in map(ledger.job, calls_under_way(ledger.tx, mission.id, turn)):
            ledger.move(job, AGENT_FAILED, error=self._unknown(ledger, mission, changed))

    def _unknown(self, ledger: Ledger, mission: MissionRow, changed: Sequence[str]) -> str:
        message = f"{self._agent} ended before it said what became of this call"
        failed = Failed(OUTCOME_UNKNOWN, message, {"changed": [*map(storable, changed)]}, advice=GENERAL)
        return agent_error(failed, mission.uid, ledger.tx.now)

    def _end(self, ledger: Ledger, call: _Call, changed: Sequence[str]) -> None:
        mission, job = self._leased(ledger), self._job(ledger, call)
        if call.status == "completed":
            named = [*map(storable, changed)]
            said = one_line(storable(call.output))[:200] or "done"
            result = CallResult(
                status=call.status,
                summary=f"changed {', '.join(named[:_MOST_NAMED])}" if named else said,
                output=storable(call.output),
                changed=named,
            )
            ledger.move(job, AGENT_DID, result=to_json(self._scrubbed(result.model_dump(mode="json"))))
            return
        details: dict[str, Json] = {"changed": [*map(storable, changed)]}
        if call.refused is not None:
            message = f"job {job.id} ({job.kind}) is not allowed: {call.refused}"
            failed = Failed(ErrorCode.NOT_ALLOWED, message, details, advice=GENERAL)
        elif call.status == "failed":
            said = one_line(str(self._scrubbed(storable(call.output))))[:500] or "it gives no reason"
            failed = Failed(
                ErrorCode.WORKER_FAILED, f"{self._agent} says that it failed: {said}", details, GENERAL
            )
        else:
            ledger.move(job, AGENT_FAILED, error=self._unknown(ledger, mission, changed))
            return
        ledger.move(job, AGENT_FAILED, error=agent_error(failed, mission.uid, ledger.tx.now))
