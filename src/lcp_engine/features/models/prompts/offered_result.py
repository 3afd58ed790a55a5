"""Write the schema of a mission's result as a constrained decoder takes it: never narrower, but where it has to be.

What the strict vocabulary does not have (patterns, lengths, conditions) is left out; the reply is checked all the same.
References become definitions, so that a schema may refer to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from lcp_engine.features.universal.json_schema import Schema, any_of, strict

NAME = "result"
REFERENCE: Mapping[str, JsonValue] = {"$ref": f"#/$defs/{NAME}"}
_BRANCHES = ("anyOf", "oneOf")
_KEPT = ("description", "type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SHAPES = ("$ref", "type", "properties", "items", "const", "enum", "anyOf", "oneOf", "allOf")
_ANY: Schema = {}
_MOST_MERGED = 20


def offered_result(schema: Mapping[str, JsonValue]) -> dict[str, Schema]:
    """The definitions of the strict schema that `REFERENCE` refers to."""
    offered = _Offered(schema)
    offered.refer("#")
    return offered.definitions


class _Offered:
    def __init__(self, document: Mapping[str, JsonValue]) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Schema] = {}

    def refer(self, pointer: str) -> Schema:
        """A reference to the definition of what `pointer` leads to; anything if it leads nowhere."""
        name = self._names.get(pointer)
        if name is None:
            found = self._find(pointer)
            if found is None:
                return _ANY
            name = NAME if not self._names else f"{NAME}_{len(self._names)}"
            self._names[pointer] = name
            self.definitions[name] = {}
            self.definitions[name] = strict(self._loose(found))
        return {"$ref": f"#/$defs/{name}"}

    def _find(self, pointer: str) -> dict[str, JsonValue] | None:
        """Find what a pointer within the document leads to; names and other documents are not followed."""
        place: JsonValue = dict(self._document)
        for step in pointer.removeprefix("#").split("/")[1:] if pointer.startswith("#") else [pointer]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict):
                place = place.get(key)
            elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
                place = place[int(key)]
            else:
                return None
        return place if isinstance(place, dict) else None

    def _loose(self, part: JsonValue) -> Schema:
        """The part in the words that `strict` reads; what it would read as narrower than it is, is left out."""
        if not isinstance(part, dict):
            return _ANY
        if isinstance(pointer := part.get("$ref"), str):
            return self.refer(pointer)
        if "allOf" in part:
            return self._loose(self._merged(part))
        if isinstance(part.get("type"), list):
            return any_of([self._loose({**part, "type": name}) for name in _list(part["type"])])
        branches = next((_list(part[key]) for key in _BRANCHES if key in part), [])
        shaped = [
            branch
            for branch in branches
            if isinstance(branch, dict) and any(key in branch for key in _SHAPES)
        ]
        if shaped and len(shaped) == len(branches) and "properties" not in part:
            return any_of([self._loose(branch) for branch in shaped])
        return self._value(part)

    def _value(self, part: Mapping[str, JsonValue]) -> Schema:
        kept: Schema = {key: part[key] for key in _KEPT if key in part}
        match part.get("type"):
            case _ if "const" in part or "enum" in part:
                return kept
            case "object" | None if "properties" in part or part.get("required"):
                return {**kept, "type": "object", **self._object(part)}
            case "object" if isinstance(part.get("additionalProperties"), dict):
                return {**kept, "additionalProperties": self._loose(part["additionalProperties"])}
            case "array" | None if "items" in part or "prefixItems" in part or part.get("type") == "array":
                return {**kept, "type": "array", "items": self._items(part)}
            case _:
                return kept

    def _object(self, part: Mapping[str, JsonValue]) -> Schema:
        """The properties, those too that are required and not described."""
        given, required = part.get("properties"), _list(part.get("required"))
        described = given if isinstance(given, dict) else {}
        names = [*described, *(str(name) for name in required if name not in described)]
        return {
            "properties": {name: self._loose(described.get(name)) for name in names},
            "required": [*required],
        }

    def _items(self, part: Mapping[str, JsonValue]) -> Schema:
        kinds = [
            *_list(part.get("prefixItems")),
            *([part["items"]] if isinstance(part.get("items"), dict) else []),
        ]
        return any_of([self._loose(kind) for kind in kinds]) if kinds else _ANY

    def _merged(self, part: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The part with all that `allOf` adds to it."""
        pending: list[JsonValue] = [{key: value for key, value in part.items() if key != "allOf"}]
        pending += _list(part["allOf"])
        merged: dict[str, JsonValue] = {}
        for _ in range(_MOST_MERGED):
            if not pending:
                break
            one = pending.pop(0)
            if not isinstance(one, dict):
                continue
            if isinstance(pointer := one.get("$ref"), str):
                pending.append(dict(self._find(pointer) or {}))
                continue
            pending += _list(one.get("allOf"))
            properties = {**_dict(merged.get("properties")), **_dict(one.get("properties"))}
            required = [*_list(merged.get("required")), *_list(one.get("required"))]
            merged |= {key: value for key, value in one.items() if key not in ("allOf", "if", "then", "else")}
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": [*dict.fromkeys(map(str, required))]} if required else {}
        return merged


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else []


def _dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}
