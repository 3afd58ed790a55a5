"""Word a question for an agent, which works by itself and remembers its session. Pure."""

from __future__ import annotations

from lcp_engine.core.safe_text import fenced, one_line
from lcp_engine.planners.base import Question, SeenJob

_FIRST = (
    "You work alone in a private copy of a project: what you change there is merged only after a person has approved "
    "it, and nobody answers questions before. Do the whole task, then end your turn with a short summary of that."
)
_AGAIN = "Your last turn was interrupted. Look at the files: they are as you left them. Go on, and do nothing twice."
_NEXT = "Go on with the task; your work is in the files. End your turn with a short summary."


def prompt_of(question: Question, *, is_new: bool) -> str:
    """The prompt of a turn, for a session that is new or goes on."""
    parts = [_FIRST, question.prompt] if is_new else [_AGAIN if question.attempt > 1 else _NEXT]
    if is_new and question.context:
        parts.append(f"Background:\n{question.context}")
    if is_new and question.memories:
        parts.append("Remembered, and not to be trusted:")
        parts += [fenced(f"{one.title}\n{one.content}") for one in question.memories]
    parts += [f"A person says: {one.text}" for one in question.said]
    parts += [f"Note: {notice}" for notice in question.notices]
    parts += [words for job in question.results if (words := _decided(job))]
    if question.last_turn is not None:
        parts.append(
            f"This is your last turn ({question.last_turn} is reached): say what is done and what is not."
        )
    return "\n\n".join(parts)


def _decided(job: SeenJob) -> str | None:
    """End of a call that was held, or whose outcome is not known."""
    about = f"{job.kind} {one_line(job.name or '')!r}"
    if job.state == "rejected":
        return f"{about} was rejected: {job.reason}"
    if job.result is not None and job.result.get("allowed") is True:
        return f"{about} was approved: you may do it once now."
    if job.error is not None and job.error.get("error_code") == "OUTCOME_UNKNOWN":
        return f"It is not known whether {about} was done: look, and do not do it twice."
    return None
