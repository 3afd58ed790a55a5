"""Choose how a server is made to write one action: each mode of a ladder asks for less than the one before (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import BaseModel, ValidationError

from lcp_engine.features.models.endpoints.errors import PARAMETERS, Again, Trouble


class Rung(StrEnum):
    """Parts of a request beside the prompt."""

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
    """Known ways to ask a model at an endpoint."""

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
    """Probe to try after `trouble`; None if nothing is left.

    Without the word that it names, else the next step. Below the last one of a model that has not answered yet, without
    each parameter in turn: servers refuse parameters without naming them, too.
    """
    if not is_about_asking(trouble):
        return None
    word = _named(probe, trouble)
    if word is None and (lower := _lower(probe, ladder)) is not None:
        return lower
    if word is None and trouble.status in _OF_CLIENT and not probe.is_found:
        word = next((name for name in PARAMETERS if name in (trouble.optional or ())), None)
    return None if word is None or word in probe.without else replace(probe, without=probe.without | {word})


def is_about_asking(trouble: Trouble) -> bool:
    """True if the server may have refused the form of the request, and not its content or model."""
    if trouble.is_about_context or trouble.is_about_model or trouble.again is Again.LOADING:
        return False
    return trouble.status in _REFUSALS


def described(probe: Probe) -> str:
    """Way in which the model is asked, for people: the mode, and what is left out since the server refused it."""
    without, instead = probe.without, ""
    if "max_tokens" in without and "max_completion_tokens" not in without:
        without, instead = without - {"max_tokens"}, ", with max_completion_tokens instead of max_tokens"
    left_out = f", without {', '.join(sorted(without))}" if without else ""
    return f"{probe.step.rung.value}{' in an envelope' if probe.step.in_envelope else ''}{left_out}{instead}"


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


KEYWORDS = ("minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength")
OPTIONAL = (*PARAMETERS, *KEYWORDS)
_REMEDIES = frozenset({"temperature", "seed"})
"""Parameters that a later request may have although this one did not."""
_WITH_SCHEMA = frozenset({Rung.JSON_SCHEMA, Rung.JSON_OBJECT_WITH_SCHEMA})
_FORMAT = frozenset({"response_format", "output_config", "tools", "tool_choice"})
_OF_CLIENT = frozenset({400, 415, 422})
_REFUSALS = _OF_CLIENT | {500, 501}


def _named(probe: Probe, trouble: Trouble) -> str | None:
    """The parameter, or keyword of a schema, that a server refuses by name; None if it names none, or the format."""
    # A model may be called "seed".
    text = (
        re.sub(rf"(?<!\w){re.escape(probe.model)}(?!\w)", " ", trouble.told) if probe.model else trouble.told
    )
    if trouble.words.param not in _FORMAT:
        sent = trouble.optional if trouble.optional is not None else frozenset(PARAMETERS)
        for names in (sent - probe.without, _REMEDIES - probe.without):
            if (name := trouble.words.param) in names or (name := _first_in(text, names)):
                return name
    if probe.step.rung not in _WITH_SCHEMA:
        return None
    return next(
        (word for word in KEYWORDS if word not in probe.without and re.search(rf"\b{word}\b", text)), None
    )


def _first_in(text: str, names: AbstractSet[str]) -> str:
    """The name that stands first in the text, in the spelling of any server (`maxTokens`); none if the format does."""
    places = {match.start(): name for name in {*names, *_FORMAT} if (match := _pattern(name).search(text))}
    first = places[min(places)] if places else ""
    return "" if first in _FORMAT else first


def _pattern(name: str) -> re.Pattern[str]:
    # "Stream" is a word of prose, too.
    word = name.replace("_", "_?") if name != "stream" else "[\"'`]stream[\"'`]"
    return re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE)


def _lower(probe: Probe, ladder: Sequence[Step]) -> Probe | None:
    position = ladder.index(probe.step) + 1 if probe.step in ladder else 0
    return replace(probe, step=ladder[position]) if position < len(ladder) else None
