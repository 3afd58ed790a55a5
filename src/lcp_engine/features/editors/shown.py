"""Show jobs, diffs and plans as values of the protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from acp.helpers import plan_entry, text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    ElicitationSchema,
    FileEditToolCallContent,
    PlanEntry,
    PlanEntryStatus,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallStatus,
    ToolKind,
)
from pydantic import BaseModel

from lcp_engine import Job, LcpError, State, Worker
from lcp_engine.api.inbox import Question
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.kinds import KindRole, shown_text
from lcp_engine.core.protocol.question_form import FieldOption, FormField
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.safe_text import exact, fenced, hides_nothing, json_block, one_line, sentence, shortened
from lcp_engine.core.summaries import OF_ENDED
from lcp_engine.features.plans.graph import PlanGraph
from lcp_engine.inbox import Diff, Forecast, Review

Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
MOST_CHARACTERS = 2_000_000
"""The most that a person decides on in an editor, which would show a part of more."""
MOST_OF_RESULT = 10_000
ANSWER = "answer"
_LONGEST_TITLE = 200
_KINDS: Mapping[KindRole, ToolKind] = {
    KindRole.LISTS: "read", KindRole.READS: "read", KindRole.WRITES: "edit", KindRole.EDITS: "edit",
    KindRole.DELETES: "delete", KindRole.MOVES: "move", KindRole.MAKES: "edit", KindRole.FINDS: "search",
    KindRole.RECALLS: "read", KindRole.SEARCHES: "search", KindRole.RUNS: "execute", KindRole.PLANS: "think",
}  # fmt: skip
_STATUSES: Mapping[State, ToolCallStatus] = {
    State.HELD: "pending", State.BLOCKED: "pending", State.QUEUED: "pending", State.RUNNING: "in_progress",
    State.SUCCEEDED: "completed",
}  # fmt: skip
_STEPS: Mapping[State, PlanEntryStatus] = {
    State.HELD: "pending", State.BLOCKED: "pending", State.QUEUED: "pending", State.RUNNING: "in_progress",
}  # fmt: skip
_HEADER = re.compile(r"@@ -\S+ \+([0-9]+)")
_NO_FILE = "--- /dev/null"


def call_id(job_id: int) -> str:
    """The id of a job as a tool call."""
    return f"job-{job_id}"


def title_of(job: Job, about: str) -> str:
    """Kind and subject of a job."""
    return shortened(f"{job.kind} {one_line(about)}".rstrip(), _LONGEST_TITLE)


def kind_of(worker: Worker[BaseModel] | None) -> ToolKind:
    """The purpose of a kind."""
    return "other" if worker is None else _KINDS.get(worker.role, "other")


def status_of(state: State) -> ToolCallStatus:
    """A state as the protocol knows it: whatever will not succeed has failed."""
    return _STATUSES.get(state, "failed")


def paths_of(worker: Worker[BaseModel] | None, job: Job, root: str | None) -> list[ToolCallLocation]:
    """The paths that a job names."""
    if worker is None or root is None:
        return []
    try:
        named = worker.paths(worker.read(job.params, f"job {job.id}"))
    except LcpError:
        return []
    return [ToolCallLocation(path=str(Path(root, path))) for path in named]


def text(words: str) -> ContentToolCallContent:
    """Words beside a tool call."""
    return tool_content(text_block(words))


def content_of_review(review: Review, root: str | None) -> tuple[list[Content], bool]:
    """All that a person is shown of a held job before they decide, and whether it is all."""
    look = review.look
    notes = [review.held.has_ended and OF_ENDED, review.approvals and str(review.approvals)]
    notes += [look.caveat if look is not None else "", explain_reason(review.job.reason or "")]
    content: list[Content] = [text(sentence(str(note))) for note in notes if note]
    diffs = look.diffs if look is not None and look.forecast is Forecast.DIFF else None
    params = "" if diffs is not None else json_block(review.job.params)
    if len(params) + sum(len(line) for diff in diffs or () for line in diff.lines) > MOST_CHARACTERS:
        words = f"This is too large to be decided in an editor: `lcp diff {review.job.id}` shows it."
        return [*content, text(words)], False
    shown = [text(fenced(params))] if diffs is None else content_of_diffs(diffs, root)
    return [*content, *shown], look is None or look.is_whole


def content_of_diffs(diffs: Iterable[Diff], root: str | None) -> list[Content]:
    """Changes of files, hunk by hunk, with what the lines do not show."""
    return [part for diff in diffs for part in _content_of_diff(diff, Path(root or "/", diff.path))]


def _content_of_diff(diff: Diff, path: Path) -> Iterator[Content]:
    is_new = diff.lines[:1] == (_NO_FILE,)
    for lines in _hunks(diff.lines[2:]):
        old, new = _sides(lines[1:])
        yield tool_diff_content(str(path), new, None if is_new else old)
    if diff.note is not None:
        yield text(f"{one_line(diff.path)}: {sentence(diff.note)}")
    if not hides_nothing(diff.text):
        yield text(f"Not all characters of it can be seen:\n{fenced(exact(diff.text))}")


def _hunks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    starts = [at for at, line in enumerate(lines) if line.startswith("@@")]
    yield from (lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=False))


def _sides(lines: Iterable[str]) -> tuple[str, str]:
    """The lines of a hunk before and after the change."""
    old, new = list[str](), list[str]()
    last: tuple[list[str], ...] = ()
    for line in lines:
        if line.startswith("\\"):  # the line before it has no end
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = {"-": (old,), "+": (new,)}.get(line[:1], (old, new))
        for side in last:
            side.append(f"{line[1:]}\n")
    return "".join(old), "".join(new)


def places_of_diffs(diffs: Iterable[Diff], root: str | None) -> list[ToolCallLocation]:
    """The first changed line of each file."""
    found = []
    for diff in diffs:
        first = next((header for line in diff.lines if (header := _HEADER.match(line))), None)
        line = None if first is None else int(first[1])
        found.append(ToolCallLocation(path=str(Path(root or "/", diff.path)), line=line))
    return found


def content_of_end(job: Job, worker: Worker[BaseModel] | None) -> list[Content]:
    """The outcome of a job that has changed no file."""
    if job.error is not None:
        return [text(sentence(str(job.error.get("user_message", ""))))]
    if job.state is not State.SUCCEEDED:
        return [text(sentence(explain_reason(job.reason or str(job.state))))]
    told = shown_text(job.result or {}, None if worker is None else worker.shows)
    return [text(fenced(shortened(told, MOST_OF_RESULT)))] if told else []


def raw_input_of(job: Job) -> JsonObject | None:
    """The params of a job, unless they are large."""
    return job.params if len(str(job.params)) <= MOST_OF_RESULT else None


def form_of(question: Question) -> ElicitationSchema:
    """The form of a question; one without fields has a field `answer`."""
    fields = question.fields or (
        FormField(
            id=ANSWER, label="Answer", required=True, type="select" if question.options else "text",
            options=[FieldOption(value=option) for option in question.options] or None,
        ),
    )  # fmt: skip
    required = [one.id for one in fields if one.required]
    stated = {"properties": {one.id: _property(one) for one in fields}, "required": required}
    return ElicitationSchema.model_validate(stated)


def _property(field: FormField) -> JsonObject:
    options: list[JsonValue] = [{"const": one.value, "title": one.shown} for one in field.options or ()]
    types: dict[str, JsonObject] = {
        "number": {"type": "number", "minimum": field.min, "maximum": field.max},
        "checkbox": {"type": "boolean"},
        "date": {"type": "string", "format": "date"},
        "select": {"type": "string", "oneOf": options},
        "radio": {"type": "string", "oneOf": options},
        "multi_select": {"type": "array", "items": {"anyOf": options}},
    }
    shown: JsonObject = {"title": field.label, "description": field.help, "default": field.default}
    stated = {**types.get(field.type, {"type": "string"}), **shown}
    return {key: value for key, value in stated.items() if value is not None}


def entries_of(graphs: Iterable[PlanGraph]) -> Sequence[PlanEntry]:
    """The steps of all plans."""
    return tuple(
        plan_entry(
            one_line(step.name or f"{step.kind} {step.about}"), status=_STEPS.get(step.state, "completed")
        )
        for graph in graphs
        for step in graph.steps
    )
