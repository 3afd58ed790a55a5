"""Turn values into text that every database stores, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pydantic_core

from lcp_engine.core import json_values
from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import UNSTORABLE
from lcp_engine.errors import Json

JsonObject: TypeAlias = json_values.JsonObject


def to_json(value: Json | Mapping[str, JsonValue] | Sequence[JsonValue]) -> str:
    """Compact JSON; readable for people in every script."""
    try:
        return pydantic_core.to_json(value, fallback=_plain).decode()
    except ValueError:  # a lone surrogate: no UTF-8 has it
        return _escaped(_ENCODER.encode(value))


def from_json(text: str) -> JsonObject:
    """The object that `to_json` wrote."""
    try:
        value: JsonObject = pydantic_core.from_json(text)
    except ValueError:  # a lone surrogate
        value = json.loads(text)
    return value


def storable(text: str) -> str:
    """`text` with U+0000 and lone surrogates written as JSON escapes: either way it is not a valid reply (R1)."""
    return _escaped(text)


def fingerprint(kind: str, params: Mapping[str, JsonValue]) -> str:
    """Hash that equal requests share (R11): kind and params, whatever the order of the keys."""
    canonical = json.dumps([kind, params], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=12).hexdigest()


def _escaped(text: str) -> str:
    return UNSTORABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
