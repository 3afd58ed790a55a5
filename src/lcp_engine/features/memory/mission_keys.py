"""State in a mission file what is done with the memory of its root. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcp_engine.core.mission.accept import Frozen
from lcp_engine.core.mission.spec import MissionKeys


class MemoryUse(Frozen):
    """What a mission does with the memory of its root (memory.md)."""

    read: bool = Field(default=True, description="Each turn is shown what may concern it.")
    characters: int = Field(
        default=6_000, ge=0, le=100_000, description="The most that one turn is shown, in characters."
    )
    write: bool = Field(
        default=True, description="What it found, what people said and why it failed is remembered."
    )
    propose: bool = Field(
        default=False, description="The planner may propose entries, with jobs of the kind `remember`."
    )
    tags: tuple[Annotated[str, Field(min_length=1, max_length=50)], ...] = Field(
        default=(),
        max_length=10,
        description="Entries with one of these tags are shown first; entries of the mission get them.",
    )


class MemoryKeys(MissionKeys):
    """The key `memory`."""

    memory: MemoryUse = Field(
        default=MemoryUse(), description="What the mission does with the memory of its root (memory.md)."
    )
