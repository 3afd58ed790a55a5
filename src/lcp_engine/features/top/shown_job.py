"""A held job as the person sees it: what it would change now, or what it asks."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import assert_never

from rich.text import Text

from lcp_engine import Job
from lcp_engine.api.engine import Engine
from lcp_engine.api.inbox import Review, mark_of
from lcp_engine.cli.commands.approve_all import Candidate
from lcp_engine.cli.commands.changes import diff_rows, file_line, job_rows
from lcp_engine.cli.console.output import seconds_until
from lcp_engine.cli.tables import Span, quoted, wrap_words
from lcp_engine.cli.tables import mark_of as words_mark
from lcp_engine.core.inbox import Awaits
from lcp_engine.core.job_states import State
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.safe_text import json_block, one_line, shortened
from lcp_engine.core.summaries import OF_ENDED, as_question, duration
from lcp_engine.features.top.lines import Content, MakeContent, Row
from lcp_engine.inbox import Diff


def title_of(shown: Review) -> str:
    """Number, kind and subject of a held job, and how many lines it would change."""
    diff = None if shown.look is None else shown.look.diff
    counts = f"  +{diff.added:,} -{diff.removed:,}" if diff and (diff.added or diff.removed) else ""
    return f"job {shown.job.id}: {one_line(shown.job.kind)} {shown.held.about}{counts}"


def content_of(shown: Review, folded: Collection[str] | None = None) -> MakeContent:
    """Content of a held job: why it is held, and all that it would change or asks.

    With `folded`, several files are listed, each below a head; of those with a mark of it only the head is shown.
    """

    def make(width: int) -> Content:
        files = () if shown.look is None else shown.look.files
        is_listed = folded is not None and len(files) > 1
        substance = _files(files, folded or (), width) if is_listed else _substance(shown, width)
        return Content([*_facts(shown, width), *substance], Text(title_of(shown), no_wrap=True))

    return make


def prompt_of(shown: Review) -> str:
    """The prompt of a turn that a person is to reply to; empty for any other job."""
    return "" if shown.question is None else str(shown.question["prompt"] or "")


def _facts(shown: Review, width: int) -> Iterator[Row]:
    job, held = shown.job, shown.held
    if job.name and job.name != held.about:
        yield from words_of(one_line(shortened(job.name, 200)), width)
    if not held.awaits.is_words:
        yield from _wrapped(f"held: {one_line(explain_reason(job.reason or 'waits for a decision'))}", width)
    if held.has_ended:
        yield from _wrapped(OF_ENDED, width, "yellow")
    if shown.approvals is not None:
        yield from _wrapped(str(shown.approvals), width, "yellow")
    if held.expires_at is not None:
        seconds = seconds_until(held.expires_at, datetime.now(UTC))
        yield from _wrapped(
            f"rejected automatically {'in ' + duration(seconds) if seconds > 0 else 'now'}", width, "yellow"
        )
    if shown.look is not None and shown.look.caveat:
        yield from _wrapped(shown.look.caveat, width, "yellow")


def _files(files: Sequence[Diff], folded: Collection[str], width: int) -> Iterator[Row]:
    """A line for each file, then its changes below its head."""
    marks = [mark_of(diff) for diff in files]
    viewed = sum(mark in folded for mark in marks)
    yield from _wrapped(
        f"{viewed:,} of {len(files):,} files viewed; v marks one, ] and [ go on and back", width, "dim"
    )
    for number, (diff, mark) in enumerate(zip(files, marks, strict=True), 1):
        yield Row(Text(file_line(diff, number, width, is_viewed=mark in folded), no_wrap=True))
    for number, (diff, mark) in enumerate(zip(files, marks, strict=True), 1):
        head = file_line(diff, number, width, is_viewed=mark in folded)
        yield Row(Text(head, style="reverse", no_wrap=True), begins=number)
        if mark not in folded:
            yield from rows_of(diff_rows([diff], width))


def _substance(shown: Review, width: int) -> Iterator[Row]:
    match shown.held.awaits:
        case Awaits.APPROVAL | Awaits.REJECTION:
            diff = None if shown.look is None else shown.look.diff
            yield from rows_of(job_rows(shown.job, diff, width))
        case Awaits.ANSWER:
            yield from words_of(as_question(shown.job.params), width)
        case Awaits.REPLY:
            yield from _wrapped(
                "you are the planner: Enter writes, pastes or edits your reply", width, "yellow"
            )
            yield from words_of(prompt_of(shown), width)
        case _:
            assert_never(shown.held.awaits)


def content_of_all(candidates: Sequence[Candidate]) -> MakeContent:
    """Changes that each job would make, one below the other."""

    def make(width: int) -> Content:
        return Content([row for each in candidates for row in _section(each, width)])

    return make


def _section(each: Candidate, width: int) -> Iterator[Row]:
    yield Row(Text(f"job {each.job.id}: {one_line(each.job.kind)} {each.about}", style="bold", no_wrap=True))
    if each.look.caveat:
        yield from _wrapped(f"{each.look.caveat}; these are its params:", width, "yellow")
    yield from rows_of(job_rows(each.job, each.look.diff, width))
    yield Row(Text(""))


def content_of_diff(diff: Diff) -> MakeContent:
    """Changes of one file."""
    return lambda width: Content(rows_of(diff_rows([diff], width)))


def content_of_done(engine: Engine, job: Job) -> MakeContent:
    """Changes that a job that is not held has made, else its params and its result."""
    diffs = [] if job.state == State.HELD else engine.diff(job.id)
    parts = {"params": job.params, "result": job.result, "error": job.error}
    texts = {name: json_block(value) for name, value in parts.items() if value}

    def make(width: int) -> Content:
        if diffs:
            return Content(rows_of(diff_rows(diffs, width)))
        rows = [[Row(Text(f"{name}:")), *words_of(text, width)] for name, text in texts.items()]
        return Content([row for part in rows for row in part])

    return make


def content_of_mission(engine: Engine, mission_id: int) -> MakeContent | None:
    """Changes of a mission; None without any."""
    diffs = engine.mission_diff(mission_id)
    return (lambda width: Content(rows_of(diff_rows(diffs, width)))) if diffs else None


def rows_of(spans: Sequence[Span]) -> list[Row]:
    """Rows of one style each."""
    return [Row(Text(span.text, style=span.style, no_wrap=True)) for span in spans]


def words_of(text: str, width: int) -> Iterator[Row]:
    """Words that are not ours, each row of them marked."""
    for line in quoted(text, width, words_mark(sys.__stderr__)):
        yield Row(Text(line, no_wrap=True))


def _wrapped(text: str, width: int, style: str = "") -> Iterator[Row]:
    for line in wrap_words(text, width):
        yield Row(Text(line, style=style, no_wrap=True))
