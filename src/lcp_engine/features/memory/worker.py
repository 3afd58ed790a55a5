"""The kind `remember`: keep a note in the memory of the mission's root, for later missions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.features.memory.entries import (
    MOST_CONTENT,
    MOST_FILES,
    MOST_TAGS,
    MOST_TITLE,
    USUAL_IMPORTANCE,
    Entry,
    checked,
)
from lcp_engine.features.memory.mission_keys import MemoryKeys
from lcp_engine.workers.base import Context, Example, Stored, Worker
from lcp_engine.workers.params import Params, Result


class RememberParams(Params):
    """A note about the root, as later missions are shown it."""

    title: str = Field(min_length=1, max_length=MOST_TITLE, description="What it is about, on one line.")
    content: str = Field(
        min_length=1, max_length=MOST_CONTENT, description="What later missions should know."
    )
    tags: list[str] | None = Field(default=None, max_length=MOST_TAGS, description="Words to find it by.")
    files: list[str] | None = Field(
        default=None, max_length=MOST_FILES, description="The files that it is about."
    )
    importance: int = Field(default=USUAL_IMPORTANCE, ge=1, le=10, description="From 1, low, to 10, high.")


class RememberResult(Result):
    """What is remembered now."""

    action: Literal["remember_result"] = "remember_result"
    title: str


@dataclass(frozen=True)
class MemoryEffect(Stored):
    """An entry of memory that a worker returns and the engine stores together with the job's success (R18)."""

    entry: Entry
    result: BaseModel
    """The job's result."""
    stored_by: ClassVar[str] = "lcp_engine.features.memory.lessons:PROPOSALS"


def execute(params: RememberParams, context: Context) -> MemoryEffect | Failed:
    """The entry, which is stored with the success of the job."""
    if context.job_id is None:
        message = "remember keeps a note of a mission; outside of one there is none"
        return Failed(ErrorCode.NOT_ALLOWED, message, advice="Use it in a mission, or `lcp memory add`.")
    entry = checked(
        Entry(
            title=params.title,
            content=params.content,
            tags=tuple(params.tags or ()),
            files=tuple(params.files or ()),
            importance=params.importance,
            source="planner_note",
        )
    )
    return MemoryEffect(entry, RememberResult(title=entry.title))


WORKER = Worker(
    "remember",
    RememberParams,
    RememberResult,
    execute,
    description="Keep a note about this root for later missions: what they cannot find out at once.",
    has_effects=False,
    reads_files=False,
    is_offered=lambda spec: MemoryKeys.of(spec).memory.propose,
    paths=lambda params: tuple(params.files or ()),
    examples=(
        Example(
            {"title": "Tests need a database", "content": "Start it with make db.", "files": ["Makefile"]},
            {"title": "Tests need a database"},
            is_run=False,
        ),
    ),
)
