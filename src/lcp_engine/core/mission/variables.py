"""Fill in what a mission file leaves open: its variables (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, TypeAdapter, model_validator

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}|\$\{")


class NotFilled(ValueError):
    """A variable has no value, or what stands for one is none; the message says which, in one line."""


class Variable(BaseModel):
    """What a mission file says about one of its variables; a bare text is the description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = Field(min_length=1)
    default: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: JsonValue) -> JsonValue:
        return {"description": value} if isinstance(value, str) else value


VARIABLES = TypeAdapter(dict[Name, Variable])


def with_defaults(declared: Mapping[str, Variable], given: Mapping[str, str]) -> dict[str, str]:
    """A value for every declared variable; a default may name variables that are declared before it.

    Raises `NotFilled`, naming every variable without a value with what it is for.
    """
    open_ = [name for name, variable in declared.items() if variable.default is None and name not in given]
    if open_:
        said = "; ".join(
            f"the variable {name!r} has no value: {declared[name].description}" for name in open_
        )
        raise NotFilled(f"{said}; give it with {' '.join(f'--var {name}=VALUE' for name in open_)}")
    values = dict(given)
    for name, variable in declared.items():
        if name not in values and variable.default is not None:
            filled = fill(variable.default, values, f"variables.{name}.default", lambda missing: "")
            values[name] = str(filled)
    return values


def fill(value: JsonValue, values: Mapping[str, str], where: str, hint: Callable[[str], str]) -> JsonValue:
    """`value` with `${name}` replaced in every text of it; `$${` stands for `${`, and what is filled in is left alone.

    Raises `NotFilled` with `where` it stands; `hint` says what to do about a variable without a value.
    """

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if not found[1]:
            raise NotFilled(
                f"{where}: '${{' begins a variable such as ${{name}}; '$${{' stands for the characters"
            )
        if found[1] not in values:
            raise NotFilled(f"{where}: the variable {found[1]!r} has no value{hint(found[1])}")
        return values[found[1]]

    if isinstance(value, str):
        return _VARIABLE.sub(replace, value)
    if isinstance(value, list):
        return [fill(item, values, f"{where}.{index}", hint) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: fill(item, values, f"{where}.{key}", hint) for key, item in value.items()}
    return value


def names_in(value: JsonValue) -> set[str]:
    """The names of the variables that stand in `value`."""
    if isinstance(value, str):
        return {found[1] for found in _VARIABLE.finditer(value) if found[1]}
    parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return {name for part in parts for name in names_in(part)}
