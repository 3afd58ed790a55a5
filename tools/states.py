"""Write docs/states.md from the table of transitions: `python tools/states.py`."""

from __future__ import annotations

from pathlib import Path

from lcp_engine.core.job_states import CREATIONS, SETTLED, TRANSITIONS, State, Transition

PAGE = Path(__file__).resolve().parent.parent / "docs" / "states.md"

STATES = {
    State.HELD: "waits for a person",
    State.BLOCKED: "waits for another job: a turn for its turn, a step for the end of its plan",
    State.QUEUED: "waits for a runner, or for the moment it may run",
    State.RUNNING: "leased to a runner",
    State.SUCCEEDED: "done, with a result",
    State.FAILED: "not done, with an error",
    State.REJECTED: "refused by policy, by a cap or by a person",
    State.SKIPPED: "a turn or a step that nobody needs any more",
    State.CANCELLED: "stopped with its mission or its plan",
}
EVENTS = {
    "queued": "created, free to run",
    "held": "created, held by policy, by its permission level, by the planner, or because nothing executes its kind",
    "blocked": "created as a turn while another one is open",
    "refused": "created only to keep the reason: policy denies it, or a cap is used up",
    "approved": "a person said yes",
    "approved_in_turn": "a person said yes to a turn while another one is open",
    "reply_brought": "a person brought the reply of a planner that is a person",
    "rejected": "a person said no, or nobody decided in time",
    "answered": "a person answered a question",
    "unblocked": "what it waited for is over",
    "started": "a runner claimed it: the attempt goes up by one",
    "succeeded": "the attempt gave a result",
    "failed": "the last attempt gave an error, or one that another attempt would not change",
    "backed_off": "the attempt gave an error; another one follows later",
    "released": "claimed, not started and given back: no attempt is charged",
    "rescued": "its runner died; that is not charged either",
    "held_again": "policy holds the resolved path, the file is not what was approved, or the planner is a person",
    "delegated": "the step has begun a plan of its own",
    "plan_succeeded": "the plan of the step ended with success",
    "plan_failed": "the plan of the step ended without",
    "skipped": "its plan or mission has ended",
    "cancelled": "its mission was cancelled, or its plan at a limit",
    "retried": "a person wants it once more",
    "retried_held": "a person wants it once more, and nobody said yes when it was held",
    "retried_in_turn": "a person wants the step once more; it goes on with its plan, or waits for its turn",
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
