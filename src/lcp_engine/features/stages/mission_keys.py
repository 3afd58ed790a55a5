"""State in a mission file that it works in a stage. Pure."""

from __future__ import annotations

from pydantic import Field

from lcp_engine.core.mission.spec import MissionKeys


class StageKeys(MissionKeys):
    """The key `stage`."""

    stage: bool = Field(
        default=False,
        description="Whether it works in a private copy of the root, and a person approves once, at the end, what is "
        "merged into the root (stage.md).",
    )
