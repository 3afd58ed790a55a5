"""The form of what is published and read as a whole: times, ids, and keys that are absent rather than null. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from lcp_engine.errors import UnexpectedValue

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def _is_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise UnexpectedValue("should be a time in ISO 8601, such as 2026-01-31T12:00:00Z") from None
    return text


Time: TypeAlias = Annotated[str, AfterValidator(_is_time), Field(json_schema_extra={"format": "date-time"})]
RequestId: TypeAlias = Annotated[str, Field(pattern=f"^req-{UUID}$")]


def _without_null(schema: dict[str, JsonValue]) -> None:
    """In the published schema an optional key is absent rather than null."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    for name, stated in properties.items():
        branches = stated.get("anyOf") if isinstance(stated, dict) else None
        if not isinstance(stated, dict) or not isinstance(branches, list):
            continue
        kept = [branch for branch in branches if branch != {"type": "null"}]
        if len(kept) == 1 and isinstance(kept[0], dict):
            rest = {key: value for key, value in stated.items() if key not in ("anyOf", "default")}
            properties[name] = {**kept[0], **rest}


class Envelope(BaseModel):
    """A part of an envelope. An optional key that has no value is left out of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, json_schema_extra=_without_null)

    def as_json(self) -> dict[str, JsonValue]:
        """The envelope as it is published."""
        return self.model_dump(mode="json", exclude_none=True)
