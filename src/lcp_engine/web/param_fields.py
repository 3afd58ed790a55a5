"""Make fields of a job's params, and params of fields again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.core.protocol.strict_json import Broken, StrictDecoder
from lcp_engine.core.safe_text import block, json_block
from lcp_engine.errors import ErrorCode, LcpError

_WIDTH = 120


@dataclass(frozen=True)
class Field:
    """A param in a form. A `raw` one is text as it is, any other is JSON; an empty one that was not `given` is none."""

    name: str
    text: str
    raw: bool
    given: bool
    about: str = ""
    fault: str = ""

    @property
    def rows(self) -> int:
        """The height of its box; 0 for one line."""
        lines = self.text.count("\n") + len(self.text) // _WIDTH
        return min(24, lines + 2) if lines or not self.raw or "content" in self.name else 0


def fields_of(model: type[BaseModel], params: Mapping[str, JsonValue]) -> list[Field]:
    """The params that are given, then those that could be."""
    about = {name: field.description or "" for name, field in model.model_fields.items()}
    given = {name: value for name, value in params.items() if value is not None}
    return [
        *(_given(name, value, about.get(name, "")) for name, value in given.items()),
        *(_absent(model, name, about[name]) for name in about if name not in given),
    ]


def read_fields(
    model: type[BaseModel], fields: Sequence[Field]
) -> tuple[dict[str, JsonValue], list[Field], bool]:
    """The params that were typed, the fields with what is wrong with each, and whether anything is."""
    params: dict[str, JsonValue] = {}
    faults: dict[str, str] = {}
    for field in fields:
        if not field.text and not (field.given and field.raw):
            continue
        try:
            params[field.name] = field.text if field.raw else read_value(field.text)
        except LcpError as refused:
            faults[field.name] = str(refused)
    faults = faults or _faults(model, params)
    names = {field.name for field in fields}
    # What is about no field, or about several, stands beside the first.
    rest = "; ".join(text for name, text in faults.items() if name not in names)
    marked = [replace(field, fault=faults.get(field.name, "")) for field in fields]
    if rest and marked:
        marked[0] = replace(marked[0], fault="; ".join(filter(None, [marked[0].fault, rest])))
    return params, marked, not faults


def read_value(text: str) -> JsonValue:
    """The one JSON value that a person typed. Raises `INVALID_PARAMS`."""
    stripped = text.strip()
    found = StrictDecoder(stripped).decode(0)
    if isinstance(found, Broken):
        raise LcpError(ErrorCode.INVALID_PARAMS, f"has to be JSON: {found.message}")
    if found.end != len(stripped):
        raise LcpError(ErrorCode.INVALID_PARAMS, "has to be one JSON value; there is more behind it")
    return found.value


def _given(name: str, value: JsonValue, about: str) -> Field:
    # Browsers change line ends, and nobody could see or type the rest: such a text is edited as JSON.
    if isinstance(value, str) and "\r" not in value and block(value) == value:
        return Field(name, value, raw=True, given=True, about=about)
    return Field(name, json_block(value), raw=False, given=True, about=about)


def _absent(model: type[BaseModel], name: str, about: str) -> Field:
    return Field(name, "", raw=_is_text(model, name), given=False, about=about)


def _is_text(model: type[BaseModel], name: str) -> bool:
    """Whether what is typed for a param is text, rather than JSON."""
    stated = model.model_json_schema().get("properties", {}).get(name, {})
    return any(kind.get("type") == "string" for kind in (stated, *stated.get("anyOf", [])))


def _faults(model: type[BaseModel], params: Mapping[str, JsonValue]) -> dict[str, str]:
    try:
        model.model_validate(params)
    except ValidationError as refused:
        faults: dict[str, str] = {}
        for error in refused.errors(include_url=False):
            name = str(error["loc"][0]) if error["loc"] else ""
            faults[name] = "; ".join(filter(None, [faults.get(name), error["msg"]]))
        return faults
    return {}
