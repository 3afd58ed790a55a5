"""Write docs/states.md from the table of transitions: `python tools/states.py`."""

from __future__ import annotations

from pathlib import Path

from lcp_engine.core.job_states import CREATIONS, SETTLED, TRANSITIONS, State, Transition

PAGE = Path(__file__).resolve().parent.parent / "docs" / "states.md"

STATES = {
    State.HELD: "waits for a person",
    State.BLOCKED: "waits for another job: a turn for the one before it, a step for the end of its plan",
    State.QUEUED: "waits for a runner, or for the time from which it may run",
    State.RUNNING: "is leased to a runner",
    State.SUCCEEDED: "has ended with a result",
    State.FAILED: "has ended with an error",
    State.REJECTED: "was refused by policy, by a cap or by a person",
    State.SKIPPED: "is a turn or a step that is no longer needed",
    State.CANCELLED: "was stopped with its mission or its plan",
}
EVENTS = {
    "queued": "created, allowed to run",
    "held": "created, held by policy, by its permission level, by the planner, or because no worker executes its kind",
    "blocked": "created as a turn while another turn is open, or for what an agent does",
    "refused": "created only to record the reason: policy denies it, or a cap is used up",
    "approved": "a person approved it",
    "approved_in_turn": "a person approved a turn while another turn is open",
    "reply_brought": "a person submitted the reply of a human planner",
    "rejected": "a person rejected it, or its hold timed out",
    "answered": "a person answered a question",
    "unblocked": "the job that it waited for has ended",
    "started": "a runner claimed it; the attempt is raised by one",
    "succeeded": "the attempt returned a result",
    "failed": "the last attempt returned an error, or an error that a retry would not change",
    "backed_off": "the attempt returned an error; another attempt follows later",
    "released": "given back: not started, its file is busy, or its server asks to wait; no attempt is charged",
    "rescued": "its runner died; no attempt is charged",
    "held_again": "policy holds the resolved path, the file is not what was approved, or the planner is a person",
    "delegated": "the step has started a plan of its own",
    "stopped_at_limit": "the mission has reached a limit before the turn was asked, and a person is asked for more",
    "plan_succeeded": "the plan of the step succeeded",
    "plan_failed": "the plan of the step failed",
    "permission_asked": "the agent asks for permission, which a rule holds",
    "done_by_agent": "the agent says that it has done it",
    "failed_by_agent": "the agent says that it failed, policy denies it, or what became of it is not known",
    "skipped": "its plan or mission has ended",
    "cancelled": "its mission was cancelled, or its plan at a limit",
    "retried": "a person retried it",
    "retried_held": "a person retried it, and it had been rejected or never approved",
    "retried_in_turn": "a person retried the step; it continues with its plan, or waits for its turn",
}


def page() -> str:
    """The whole page in Markdown."""
    return "\n".join(
        [
            "# States of a job",
            "",
            "Written by `python tools/states.py` from `src/lcp_engine/core/job_states.py`, the source of the guards in",
            "SQL, the CHECK constraint and the names of the events. Nothing else changes the state of a job.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *(
                f"    {source} --> {transition.target}: {transition.event}"
                for source, transition in _arrows()
            ),
            *(f"    {state} --> [*]" for state in State if state in SETTLED),
            "```",
            "",
            "| state | a job that |",
            "|---|---|",
            *(f"| `{state}` | {STATES[state]} |" for state in State),
            "",
            "| event | from | to | when |",
            "|---|---|---|---|",
            *(_row(transition) for transition in TRANSITIONS),
            "",
        ]
    )


def _arrows() -> list[tuple[str, Transition]]:
    born = [("[*]", transition) for transition in CREATIONS.values()]
    return born + [(source, t) for t in TRANSITIONS for source in _in_order(t.sources)]


def _row(transition: Transition) -> str:
    sources = ", ".join(f"`{source}`" for source in _in_order(transition.sources)) or "—"
    return f"| `{transition.event}` | {sources} | `{transition.target}` | {EVENTS[transition.event]} |"


def _in_order(states: frozenset[State]) -> list[State]:
    return [state for state in State if state in states]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
