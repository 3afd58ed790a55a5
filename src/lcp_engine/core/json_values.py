"""JSON values, and functions that narrow them to the type that is expected: any other value reads as an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pydantic import JsonValue
else:  # what annotations name at run time: pydantic's own takes long to load
    JsonValue = list | dict | str | bool | int | float | None

__all__ = ["JsonObject", "JsonValue", "int_in", "list_in", "object_in"]

JsonObject: TypeAlias = dict[str, JsonValue]


def object_in(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def list_in(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def int_in(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
