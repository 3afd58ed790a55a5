"""Tell questions to people from jobs that wait for a yes, and show how to answer them."""

from __future__ import annotations

from lcp_engine.api.records import Job
from lcp_engine.core.summaries import as_question
from lcp_engine.engine.question import RELAYED
from lcp_engine.workers.ask_user import KIND


def is_question(job: Job) -> bool:
    """Whether a held job needs an answer, and not a yes or a no."""
    return job.kind == KIND or job.reason == RELAYED


def answer_with(job: Job) -> str:
    """The command that answers a question."""
    return f"`lcp answer {job.id} {'TEXT' if job.kind == KIND else '--file REPLY'}`"


def question_text(job: Job) -> str:
    """What a person is asked, with the options and the command that answers."""
    if job.kind != KIND:
        shows = f"`lcp job {job.id} --prompt` shows the question"
        return f"job {job.id}: {shows}, {answer_with(job)} brings the planner's reply"
    return f"job {job.id}: {as_question(job.params)}\n  {answer_with(job)}"
