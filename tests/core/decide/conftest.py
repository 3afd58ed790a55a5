"""Tell a decision in one line, so that a table of decisions can be read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest

from lcp_engine.core.decide import (
    AskAgain,
    AskPerson,
    Begin,
    Continue,
    Correct,
    Decision,
    End,
    NewJob,
    Verify,
    Wait,
)
from lcp_engine.errors import ErrorCode


@pytest.fixture
def tell() -> Callable[[Decision], str]:
    """What is done, then the state of each job in order, or the code of a refusal that is not policy's."""
    return _told


def _told(decision: Decision) -> str:
    match decision:
        case Continue(jobs):
            return f"continue: {_listed(jobs)}".strip()
        case Begin():
            return "begin a plan"
        case Wait(jobs):
            return f"wait: {_listed(jobs)}".strip()
        case AskAgain(jobs, failed_checks=failed_checks):
            return f"ask again: {_listed(jobs) or ', '.join(failed_checks)}"
        case Verify(questions=questions):
            return f"verify: {', '.join(questions)}"
        case AskPerson(options=options):
            return f"ask a person: {options[0]}"
        case Correct():
            return "correct"
        case End(outcome, succeeded):
            return f"{'completed' if succeeded else 'failed'}: {outcome}"


def _listed(jobs: tuple[NewJob, ...]) -> str:
    counted = ((word, len(list(group))) for word, group in groupby(map(_word, jobs)))
    return ", ".join(word if count == 1 else f"{word}*{count}" for word, count in counted)


def _word(job: NewJob) -> str:
    return job.state if job.refusal in (None, ErrorCode.PATH_DENIED) else str(job.refusal)
