"""Read the spec of a stored mission."""

from __future__ import annotations

from functools import lru_cache

from lcp_engine.core.mission.spec import MissionSpec


@lru_cache(maxsize=256)
def spec_of(text_: str) -> MissionSpec:
    """The mission's spec, from its stored text."""
    return MissionSpec.model_validate_json(text_)
