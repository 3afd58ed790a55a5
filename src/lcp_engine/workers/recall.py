"""The kind `recall`: show the result of an earlier job of the same mission."""

from __future__ import annotations

from io import StringIO
from itertools import islice
from typing import Literal

from pydantic import Field

from lcp_engine.core.job_states import SETTLED, State
from lcp_engine.core.kinds import KindRole, shown_text
from lcp_engine.errors import GENERAL, ErrorCode, Failed
from lcp_engine.workers.base import Context, EarlierJob, Example, Worker
from lcp_engine.workers.params import Params, Result


class RecallParams(Params):
    """`number` counts the jobs of the mission, its turns included, in the order in which they were requested."""

    number: int = Field(ge=1, description="Which job: its number, as prompts show it.")
    offset: int | None = Field(default=None, ge=0, description="How many lines to skip; 0 is the start.")
    limit: int | None = Field(default=None, ge=1, description="How many lines to show at most.")


class RecallResult(Result):
    """`content` is what prompts show of the result, without its length cut; `total` counts the lines of all of it."""

    action: Literal["recall_result"] = "recall_result"
    number: int
    kind: str
    content: str
    total: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """None if `content` is all."""


def execute(params: RecallParams, context: Context) -> RecallResult | Failed:
    """Reads the result as it is stored; a part of it with `offset` and `limit`, as `read_file` reads files."""
    if context.earlier_job is None:
        return Failed(
            ErrorCode.NOT_ALLOWED,
            "recall shows the result of an earlier job of a mission; outside of one there is none",
            advice="Use it in a mission.",
        )
    job = context.earlier_job(params.number)
    if isinstance(job, Failed):
        return job
    if (refused := _refusal(job)) is not None or job.result is None:
        message = f"{_name(job)} succeeded, and its result is no longer stored"
        again = "Request the job again, if what it found is still needed."
        return refused or Failed(ErrorCode.NOT_FOUND, message, advice=again)
    text = shown_text(job.result, job.shows)
    part = _part(text, params)
    if (size := len(part.encode())) > context.caps.read_bytes:
        return Failed(
            ErrorCode.TOO_LARGE,
            f"the result of {_name(job)} has {size} bytes, at most {context.caps.read_bytes} are shown at once",
            {"size": size},
            "Recall a part with offset and limit, or raise caps.read_bytes in the configuration file.",
        )
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    return RecallResult(number=job.number, kind=job.kind, content=part, total=None if part == text else total)


def _refusal(job: EarlierJob) -> Failed | None:
    """Reason why a job has no result to show; None if it has succeeded."""
    if job.state is State.SUCCEEDED:
        return None
    if job.state not in SETTLED:
        message = f"{_name(job)} is {job.state}; only jobs that have succeeded have a result"
        return Failed(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    error = job.error or {}
    why = error.get("user_message") or job.reason or "no reason is stored"
    said = f"{_name(job)} {'failed' if job.state is State.FAILED else f'was {job.state}'}: {why}"
    code = error.get("error_code")
    details = {} if code is None else {"error_code": str(code)}
    return Failed(ErrorCode.WRONG_STATE, said, details, "Correct what its error names, and request it again.")


def _name(job: EarlierJob) -> str:
    return f"number {job.number} ({job.kind})"


def _part(text: str, params: RecallParams) -> str:
    if params.offset is None and params.limit is None:
        return text
    first = params.offset or 0
    end = None if params.limit is None else first + params.limit
    # Line feeds alone end a line, as in a file that is read.
    return "".join(islice(StringIO(text, newline="\n"), first, end))


WORKER = Worker(
    kind="recall",
    params=RecallParams,
    result=RecallResult,
    execute=execute,
    description="Show the result of an earlier job of this mission again, or some of its lines.",
    has_effects=False,
    role=KindRole.RECALLS,
    shows="content",
    max_attempts=1,
    examples=(
        Example(
            params={"number": 3},
            result={"number": 3, "kind": "read_file", "content": "print('hello')\n"},
            is_run=False,
        ),
    ),
)
