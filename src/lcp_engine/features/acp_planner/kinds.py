"""State the kinds of jobs that the tool calls of an agent are: which of our kinds' rules are about each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from lcp_engine.changes.own_kinds import LeasedJob, OwnKind, Params
from lcp_engine.changes.set_view import SetView
from lcp_engine.changes.unified_diff import Contents, Diff, diff_bytes
from lcp_engine.core.decide import End
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.points import EndGate, end_gates
from lcp_engine.engine.progress import end_mission
from lcp_engine.errors import Code, ErrorCode, ErrorType, ExecutionFailed, Failed, Meaning
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import MissionRow, PlanRow
from lcp_engine.workers import params as given
from lcp_engine.workers.base import ExecutedBy, Worker, refuse_to_execute

OUTCOME_UNKNOWN = Code(Meaning(
    "OUTCOME_UNKNOWN", ExecutionFailed, ErrorType.EXECUTION,
    "An agent ended, or was ended, before it said what became of its tool call.",
    "Look at what differs in the stage; the agent is told, and decides whether it does it again.",
))  # fmt: skip
PATH = "what the agent does"
"""What an approval names as its file."""
_HEAD = ("--- as it was when the agent asked", "+++ as the agent wants it")


class CallParams(given.Params):
    """A tool call as the agent states it; nothing of it is believed but what the stage shows."""

    session: str
    call: str
    """The agent's id of it, which other sessions and turns may have, too."""
    title: str = ""
    input: JsonValue = None
    path: str | None = Field(default=None, description="The file that it names, relative to the root.")
    before: str | None = None
    after: str | None = None
    """The text of a change as the agent shows it."""
    asked: bool = False
    """Whether the agent has asked before it went on."""


class CallResult(given.Result):
    """End of a tool call: `changed` are the files that differed in the stage after it."""

    action: Literal["agent_call_result"] = "agent_call_result"
    status: str
    summary: str
    output: str = ""
    changed: list[str] = Field(default=[])
    allowed: bool = False
    """Whether it was only allowed: the agent was not there any more, and may ask again once."""


def _kind(
    kind: str,
    description: str,
    role: KindRole,
    judged_as: tuple[str, ...] = (),
    *,
    has_effects: bool = True,
    writes: bool = False,
) -> Worker[CallParams]:
    return Worker(
        kind=kind,
        params=CallParams,
        result=CallResult,
        execute=refuse_to_execute("an agent does it, no worker"),
        description=description,
        has_effects=has_effects,
        writes=writes,
        role=role,
        judged_as=judged_as,
        paths=lambda params: () if params.path is None else (params.path,),
        executed_by=ExecutedBy.ENGINE,
    )


AGENT_READ = _kind(
    "agent_read", "A file that an agent reads.", KindRole.OTHER, ("read_file",), has_effects=False
).for_any_params()
AGENT_SEARCH = _kind(
    "agent_search", "What an agent looks for in files.", KindRole.OTHER, ("search_files", "list_files"),
    has_effects=False,
).for_any_params()  # fmt: skip
AGENT_EDIT = _kind(
    "agent_edit", "A file that an agent writes.", KindRole.OTHER, ("write_file", "edit_file"), writes=True
).for_any_params()
AGENT_DELETE = _kind(
    "agent_delete", "A file that an agent deletes.", KindRole.OTHER, ("delete_file",), writes=True
).for_any_params()
AGENT_MOVE = _kind(
    "agent_move", "A file that an agent moves.", KindRole.OTHER, ("move_file",), writes=True
).for_any_params()
AGENT_RUN = _kind(
    "agent_run", "A command that an agent runs.", KindRole.OTHER, ("run_command",)
).for_any_params()
AGENT_FETCH = _kind("agent_fetch", "What an agent fetches.", KindRole.OTHER).for_any_params()
AGENT_CALL = _kind("agent_call", "Another tool call of an agent.", KindRole.OTHER).for_any_params()
KINDS = {
    "read": AGENT_READ, "search": AGENT_SEARCH, "edit": AGENT_EDIT, "delete": AGENT_DELETE, "move": AGENT_MOVE,
    "execute": AGENT_RUN, "fetch": AGENT_FETCH,
}  # fmt: skip
"""By the protocol's kinds of tools; any other is an `agent_call`."""
_NAMES = frozenset(one.kind for one in (*KINDS.values(), AGENT_CALL))


def _view(instance: Instance, mission_id: int, params: Params) -> SetView:
    """View of a call in the words of the agent: a diff if it shows one, else its title and input."""
    call = _call(params)
    if call.after is None:
        stated = to_json({"title": call.title, "input": call.input})
        lines = (f"+{call.title}", *(f"+{line}" for line in _lines(call.input)))
        shown = Diff(call.path or call.title or call.call, lines, added=len(lines))
    else:
        stated = to_json({"path": call.path, "before": call.before, "after": call.after})
        shown = diff_bytes(call.path or PATH, *_contents(call))
    return SetView((shown,), sha256(stated.encode()), None, PATH, _HEAD, "nothing")


def _compared(instance: Instance, mission_id: int, path: str, params: Params) -> Contents | None:
    call = _call(params)
    return Contents(*_contents(call)) if call.after is not None and path == (call.path or PATH) else None


def _call(params: Params) -> CallParams:
    return CallParams.model_validate(params)


def _contents(call: CallParams) -> tuple[bytes | None, bytes]:
    """Both contents of a change as the agent shows them."""
    assert call.after is not None
    return None if call.before is None else call.before.encode(), call.after.encode()


def _lines(value: JsonValue) -> list[str]:
    stated = value if isinstance(value, dict) else {} if value is None else {"input": value}
    return [
        f"{name}: {line}" for name, one in stated.items()
        for line in (one if isinstance(one, str) else to_json(one)).splitlines()
    ]  # fmt: skip


def _execute(leased: LeasedJob) -> Succeeded | Failed:
    """Keep the approval of a call for the next equal one: its agent is not there any more. No runner does it."""
    if not leased.row.approved:
        message = (
            f"job {leased.row.id} ({leased.row.kind}) is done by its agent alone; no runner does it again"
        )
        return Failed(
            ErrorCode.NOT_ALLOWED, message, advice="Say to the agent what it should do (`lcp say`)."
        )
    result = CallResult(status="allowed", summary="allowed once", allowed=True)
    return Succeeded(to_json(result.model_dump(mode="json")))


def _wait(
    ledger: Ledger, mission: MissionRow, plan: PlanRow, end: End, claimed_in: int | None
) -> bool | None:
    """Let a mission wait for decisions on held calls: each leads to another turn; else what it waits for besides."""
    if any(job.state is State.HELD and job.kind in _NAMES for job in live_jobs(ledger, mission)):
        return True
    other = next((one for one in end_gates() if one is not GATE and one.concerns(mission)), None)
    if other is not None:
        return other.ask(ledger, mission, plan, end, claimed_in)
    plan.outcome = end.outcome
    end_mission(ledger, mission, end)
    return True


GATE = EndGate(lambda mission: mission.held > 0 and spec_of(mission.spec).planner.type == "acp", _wait)
CARRIED_OUT = OwnKind(execute=_execute, view=_view, path=PATH, compared=_compared)
