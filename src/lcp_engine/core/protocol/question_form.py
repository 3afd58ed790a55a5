"""Forms: the fields that a question to a person may have, and the values that a person gives them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, TypeAlias, assert_never

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from lcp_engine.core.protocol.actions import RULE, Problem
from lcp_engine.core.safe_text import shortened
from lcp_engine.core.summaries import nearest

MOST_FIELDS = 20
MOST_CHOICES = 50
LONGEST_TEXT = 10_000
"""Characters of one value."""
_YES = frozenset({"yes", "y", "true", "on", "1"})
_NO = frozenset({"no", "n", "false", "off", "0"})
_NUMBER = re.compile(r"[-+]?[0-9]{1,300}")
_ORDINAL = re.compile(r"#?([+-]?[0-9]+)[.)]?", re.ASCII)
"""A number as people write one before an option: `3`, `3.`, `3)`, `#3`."""

Type: TypeAlias = Literal["text", "textarea", "number", "select", "radio", "multi_select", "checkbox", "date"]
CHOOSING = ("select", "radio", "multi_select")
"""The types of fields that offer options."""
ENTERING = ("text", "textarea", "number", "checkbox", "date")
"""The others."""
_Word = Annotated[str, Field(min_length=1, max_length=1000)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FieldOption(_Part):
    """One of the values to choose from; a bare text is value and label."""

    value: _Word = Field(description="The value.")
    label: _Word | None = Field(default=None, description="What the person sees; by default the value.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: JsonValue) -> JsonValue:
        return {"value": value} if isinstance(value, str) else value

    @property
    def shown(self) -> str:
        return self.label or self.value


class FormField(_Part):
    """One thing that a person fills in."""

    id: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")] = Field(
        description="The key of its value, such as due_date."
    )
    type: Type = Field(default="text", description="What is filled in.")
    label: _Word = Field(description="What the person is asked.")
    help: _Word | None = Field(default=None, description="A sentence of explanation.")
    placeholder: _Word | None = Field(
        default=None, description="What an empty field shows, such as an example; never a value."
    )
    required: bool = Field(default=False, description="Whether it needs a value.")
    options: Annotated[list[FieldOption], Field(max_length=MOST_CHOICES)] | None = Field(
        default=None, validate_default=True, description="What a select, radio or multi_select offers."
    )
    min: float | None = Field(default=None, description="The least number.")
    max: float | None = Field(default=None, description="The greatest number.")
    default: JsonValue = Field(default=None, description="The value if nothing is entered.")

    @model_validator(mode="before")
    @classmethod
    def _read_other_words(cls, value: JsonValue) -> JsonValue:
        """Read a field of seed 004: several of the options of its checkbox may be ticked, and help is `help_text`."""
        if not isinstance(value, dict):
            return value
        field = {key: part for key, part in value.items() if key != "help_text"}
        if value.get("help_text"):
            field.setdefault("help", value["help_text"])
        if field.get("placeholder") == "":
            del field["placeholder"]
        if field.get("type") == "multi-select" or (field.get("type") == "checkbox" and field.get("options")):
            field["type"] = "multi_select"
        return field

    @field_validator("options")
    @classmethod
    def _fit_the_type(
        cls, options: list[FieldOption] | None, info: ValidationInfo
    ) -> list[FieldOption] | None:
        kind = info.data.get("type", "text")
        if kind in CHOOSING and not options:
            raise PydanticCustomError(RULE, "a {kind} needs options", {"kind": kind})
        if kind not in CHOOSING and options:
            raise PydanticCustomError(
                RULE, "options belong to select, radio and multi_select, not to {kind}", {"kind": kind}
            )
        values = [option.value for option in options or ()]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise PydanticCustomError(RULE, "the option '{value}' is there twice", {"value": twice[:60]})
        return options

    @field_validator("min", "max")
    @classmethod
    def _bound_numbers(cls, bound: float | None, info: ValidationInfo) -> float | None:
        if bound is not None and (kind := info.data.get("type")) != "number":
            raise PydanticCustomError(
                RULE, "{key} belongs to number, not to {kind}", {"key": info.field_name, "kind": kind}
            )
        least = info.data.get("min") if info.field_name == "max" else None
        if bound is not None and (not math.isfinite(bound) or (least is not None and bound < least)):
            raise PydanticCustomError(RULE, "max is a number, not below min")
        return bound

    @model_validator(mode="after")
    def _takes_its_default(self) -> FormField:
        if self.default is not None and isinstance(found := self.read(self.default), Wrong):
            raise PydanticCustomError(
                RULE, "the default of {id}: {fact}", {"id": self.id, "fact": found.fact}
            )
        return self

    @property
    def expectation(self) -> str:
        """Expected entry, in a few words."""
        match self.type:
            case "text" | "textarea":
                return "text"
            case "number":
                bounds = (("from", self.least), ("to", self.most))
                return " ".join(["a number", *(f"{word} {bound}" for word, bound in bounds if bound)])
            case "select" | "radio":
                return "one of the options"
            case "multi_select":
                return "any of the options"
            case "checkbox":
                return "yes or no"
            case "date":
                return "a date such as 2026-01-31"
            case _:
                assert_never(self.type)

    @property
    def least(self) -> str:
        """The least number, in digits; empty if there is none."""
        return _digits(self.min)

    @property
    def most(self) -> str:
        """The greatest number, in digits; empty if there is none."""
        return _digits(self.max)

    def shown(self, value: JsonValue) -> str:
        """A value of this field, for people."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(self.shown(part) for part in value) or "none"
        return next((option.shown for option in self.options or () if option.value == value), str(value))

    def read(self, entered: JsonValue) -> JsonValue | Wrong:
        """The value that was entered: as JSON, or in the words of a person."""
        match self.type:
            case "text" | "textarea":
                return self._text(entered)
            case "number":
                return self._number(entered)
            case "select" | "radio":
                return self._choice(entered)
            case "multi_select":
                return self._choices(entered)
            case "checkbox":
                word = entered.strip().casefold() if isinstance(entered, str) else entered
                is_yes = word is True or (isinstance(word, str) and word in _YES)
                is_no = word is False or (isinstance(word, str) and word in _NO)
                return is_yes if is_yes or is_no else self._wrong(entered)
            case "date":
                return self._date(entered)
            case _:
                assert_never(self.type)

    def _text(self, entered: JsonValue) -> JsonValue | Wrong:
        if not isinstance(entered, str):
            return self._wrong(entered)
        if len(entered) > LONGEST_TEXT:
            return Wrong(f"at most {LONGEST_TEXT:,} characters are kept; found {len(entered):,}")
        return entered.strip()

    def _number(self, entered: JsonValue) -> JsonValue | Wrong:
        if isinstance(entered, str):
            word = entered.strip()
            try:
                number: float = int(word) if _NUMBER.fullmatch(word) else float(word)
            except ValueError:
                return self._wrong(entered)
        elif isinstance(entered, bool) or not isinstance(entered, int | float):
            return self._wrong(entered)
        else:
            number = entered
        is_within = (self.min is None or number >= self.min) and (self.max is None or number <= self.max)
        return number if is_within and math.isfinite(number) else self._wrong(entered)

    def _choice(self, entered: JsonValue) -> str | Wrong:
        options = self.options or ()
        if isinstance(entered, str):
            word = entered.strip()
            for names in ([one.value for one in options], [one.shown for one in options]):
                folded = [name.strip().casefold() for name in names]
                if word in names or word.casefold() in folded:
                    return options[
                        names.index(word) if word in names else folded.index(word.casefold())
                    ].value
            near = nearest(word[:60], [one.value for one in options])
            return Wrong(f"{_told(entered)} is not one of the options; {near}")
        return self._wrong(entered)

    def _choices(self, entered: JsonValue) -> JsonValue | Wrong:
        chosen = entered if isinstance(entered, list) else [entered]
        values: list[JsonValue] = []
        for one in chosen[: MOST_CHOICES + 1]:
            value = self._choice(one)
            if isinstance(value, Wrong):
                return value
            if value not in values:
                values.append(value)
        return values

    def _date(self, entered: JsonValue) -> str | Wrong:
        try:
            # Not date.fromisoformat alone: it also reads 20260131 and 2026-W05.
            if isinstance(entered, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", entered.strip(), re.ASCII):
                return date.fromisoformat(entered.strip()).isoformat()
        except ValueError:
            pass
        return self._wrong(entered)

    def _wrong(self, entered: JsonValue) -> Wrong:
        return Wrong(f"{self.expectation} is expected; found {_told(entered)}")


@dataclass(frozen=True)
class Wrong:
    """Entry that is not a value of the field, with the reason."""

    fact: str


@dataclass(frozen=True)
class Filled:
    """The values of a form by the ids of its fields, in their order; fields without a value are left out."""

    values: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Unfilled:
    """Faults of a form that is not filled in: the path of each problem is the id of a field."""

    problems: tuple[Problem, ...]


def fill_in(fields: Sequence[FormField], entered: Mapping[str, JsonValue]) -> Filled | Unfilled:
    """The values of `fields`; what is blank or missing has the field's default."""
    problems = [
        Problem(
            path=name,
            message=f"the form has no such field; {nearest(name[:60], [field.id for field in fields])}",
        )
        for name in entered
        if name not in {field.id for field in fields}
    ]
    values: dict[str, JsonValue] = {}
    for field in fields:
        stated = entered.get(field.id)
        stated = field.default if _is_blank(stated) else stated
        value = None if stated is None else field.read(stated)
        if isinstance(value, Wrong):
            problems.append(Problem(path=field.id, message=value.fact))
        elif not _is_blank(value):
            values[field.id] = value
        elif field.required:
            problems.append(
                Problem(path=field.id, message=f"{field.expectation} is required; nothing was entered")
            )
    return Unfilled(tuple(problems)) if problems else Filled(values)


def as_words(fields: Sequence[FormField], values: Mapping[str, JsonValue]) -> str:
    """The values of a form in a line for each."""
    return "\n".join(
        f"{field.label}: {field.shown(values[field.id])}" for field in fields if field.id in values
    )


def _is_blank(value: JsonValue) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _digits(bound: float | None) -> str:
    # Not `:g`, which makes 1.23457e+06 of 1234567.
    return (
        "" if bound is None else str(int(bound)) if bound.is_integer() and abs(bound) < 1e15 else str(bound)
    )


def _told(value: JsonValue) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def pick(options: Sequence[str], said: str, *, is_whole: bool = False) -> int | None:
    """The number of the option that `said` selects, from 1; None for any other answer.

    Its whole text selects an option; its number, or a beginning that no other option has, do so unless `said` has to be
    `is_whole`. Case does not matter.
    """
    wanted = said.strip().casefold()
    for at, option in enumerate(options, 1):
        if option.strip().casefold() == wanted:
            return at
    if is_whole:
        return None
    number = _ORDINAL.fullmatch(said.strip())
    if number is not None and number[1].isdigit() and 1 <= int(number[1][:9]) <= len(options):
        return int(number[1][:9])
    close = _beginning_with(options, said)
    return close[0] if len(close) == 1 else None


def _beginning_with(options: Sequence[str], said: str) -> list[int]:
    """The numbers of the options that begin with what was said."""
    wanted = said.strip().casefold()
    return [at for at, option in enumerate(options, 1) if option.strip().casefold().startswith(wanted)]


def slip(options: Sequence[str], said: str) -> str | None:
    """Reason why an answer that selects no option looks like one that should; None for an answer in own words."""
    if options and _ORDINAL.fullmatch(said.strip()):
        return f"has no option {shortened(said.strip(), 20)}"
    count = len(_beginning_with(options, said))
    return f"has {count} options that begin with {shortened(said.strip(), 40)!r}" if count > 1 else None
