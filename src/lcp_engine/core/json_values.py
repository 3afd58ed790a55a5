"""Narrow JSON values to the type that is expected; a value of another type reads as an empty one."""

from __future__ import annotations

from pydantic import JsonValue


def object_in(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def list_in(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def int_in(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
