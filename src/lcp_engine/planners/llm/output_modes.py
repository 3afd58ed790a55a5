"""Choose how a server is made to write one action: each mode of a ladder asks for less than the one before (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import BaseModel, ValidationError

from lcp_engine.planners.llm.errors import Again, Trouble


class Rung(StrEnum):
    """What the server is sent beside the prompt."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT_WITH_SCHEMA = "json_object_with_schema"
    JSON_OBJECT = "json_object"
    PROMPT = "prompt"


@dataclass(frozen=True)
class Step:
    """A rung; `in_envelope` wraps the schema in `{"action": …}`, because some servers refuse a union at the root."""

    rung: Rung
    in_envelope: bool = False


@dataclass(frozen=True)
class Probe:
    """What is known about how a model at an endpoint can be asked."""

    endpoint: str
    model: str
    step: Step = Step(Rung.JSON_SCHEMA)
    without: frozenset[str] = frozenset()
    """Parameters and keywords of schemas that the server refused."""
    is_found: bool = False
    """Whether the server has answered at this step; from then on one refusal does not change it."""
    doubts: int = 0
    """How many questions in a row were answered only at a lower step."""

    def found(self) -> Probe:
        return replace(self, is_found=True)


def ask_for_less(probe: Probe, trouble: Trouble, ladder: Sequence[Step]) -> Probe | None:
    """What to try after `trouble`: without the word that it names, or the next step; None if nothing is left."""
    if not is_about_asking(trouble):
        return None
    for word in OPTIONAL:
        if word not in probe.without and re.search(rf"\b{word}\b", trouble.said):
            return replace(probe, without=probe.without | {word})
    return _lower(probe, ladder)


def is_about_asking(trouble: Trouble) -> bool:
    """Whether the server may have refused the form of the request, and not its content or model."""
    if trouble.is_about_context or trouble.is_about_model or trouble.again is Again.LOADING:
        return False
    return trouble.status in _REFUSALS


def probe_text(probe: Probe) -> str:
    """The probe as caches store it."""
    step = {"rung": probe.step.rung.value, "in_envelope": probe.step.in_envelope}
    doubts = {"doubts": probe.doubts} if probe.doubts else {}
    return json.dumps({**step, "without": sorted(probe.without), **doubts})


def read_probe(endpoint: str, model: str, text: str, ladder: Sequence[Step]) -> Probe | None:
    """The probe that `probe_text` wrote; None if it cannot be read or its step is not one of `ladder`."""
    try:
        stored = _Stored.model_validate_json(text)
    except ValidationError:
        return None
    step = Step(stored.rung, stored.in_envelope)
    without = stored.without & set(OPTIONAL)
    if step not in ladder:
        return None
    return Probe(endpoint, model, step, without, is_found=True, doubts=stored.doubts)


class _Stored(BaseModel):
    rung: Rung
    in_envelope: bool
    without: frozenset[str]
    doubts: int = 0


OPTIONAL = (
    "stream_options", "max_tokens", "temperature", "seed", "repeat_penalty", "minItems", "maxItems", "minimum",
    "maximum", "minLength", "maxLength",
)  # fmt: skip
_REFUSALS = frozenset({400, 415, 422, 500, 501})


def _lower(probe: Probe, ladder: Sequence[Step]) -> Probe | None:
    position = ladder.index(probe.step) + 1 if probe.step in ladder else 0
    return replace(probe, step=ladder[position]) if position < len(ladder) else None
