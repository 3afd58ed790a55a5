"""What runners do regularly for the database itself: retention, backups, integrity checks. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

from lcp_engine.clock import micros
from lcp_engine.core.recurrence import Every, read_every
from lcp_engine.errors import LcpError

_NAMED = {"hourly": "1h", "daily": "1d", "weekly": "1w"}
_EVERY = f"{', '.join(_NAMED)} or a duration such as 12h, 3d or 2w"
_KEEP = re.compile(r"\s*keep\s+([1-9][0-9]{0,5})\s*")


class Duty(StrEnum):
    """What is done regularly."""

    RETENTION = "retention"
    BACKUP = "backup"
    CHECK = "check"


def _read_length(value: object) -> timedelta:
    """A duration as it is written in Python or in a file. Raises ValueError."""
    return value if isinstance(value, timedelta) else _length(value, value, "a duration such as 30d or 12w")


def _read_rhythm(value: object) -> timedelta:
    """Like `_read_length`, or `daily`. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    return _length(_NAMED.get(value, value) if isinstance(value, str) else value, value, _EVERY)


def _length(text: object, stated: object, expected: str) -> timedelta:
    try:
        return timedelta(microseconds=read_every(text if isinstance(text, str) else "").length)
    except LcpError:
        raise ValueError(f"{stated!r} is given; {expected} is expected") from None


_AsText = PlainSerializer(lambda length: Every(micros(length)).text, return_type=str)
_More = Field(gt=timedelta())
Length: TypeAlias = Annotated[
    timedelta, _More, BeforeValidator(_read_length, json_schema_input_type=str), _AsText
]
Rhythm: TypeAlias = Annotated[
    timedelta, _More, BeforeValidator(_read_rhythm, json_schema_input_type=str), _AsText
]


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Retention(_Stated):
    """Missions that ended so long ago are removed, once a day, as `lcp db prune` does."""

    after: Length = Field(description="How long a mission stays after its end, such as `30d`.")
    keep: Annotated[int, Field(ge=0)] = Field(
        default=0, description="The missions that ended last stay, so many, whatever their age."
    )
    preimages: bool = Field(
        default=False, description="Also remove missions whose changes of files could still be undone."
    )


class Backups(_Stated):
    """The database is copied into a file, as `lcp db backup` does; older ones of it are deleted."""

    every: Rhythm = Field(description="`hourly`, `daily`, `weekly` or a duration such as `12h`.")
    keep: Annotated[int, Field(ge=1)] = Field(default=7, description="How many backups stay, the newest.")
    to: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="An existing directory, relative to this file; without it, one beside a SQLite file, or one in "
        "the data directory for PostgreSQL.",
    )


class Checks(_Stated):
    """The database is checked, as `lcp db check` does."""

    every: Rhythm = Field(description="`hourly`, `daily`, `weekly` or a duration such as `12h`.")


def _read_retention(value: JsonValue | Retention) -> JsonValue | Retention:
    return {"after": value} if isinstance(value, str | int | float) else value


def _read_backups(value: JsonValue | Backups) -> JsonValue | Backups:
    """`daily, keep 7` as its parts. Raises ValueError."""
    if not isinstance(value, str | int | float):
        return value
    every, _, rest = str(value).partition(",")
    if not rest:
        return {"every": every.strip()}
    found = _KEEP.fullmatch(rest)
    if found is None:
        raise ValueError(
            f"{value!r} is given; a rhythm and a number from 1 are expected, such as `daily, keep 7`"
        )
    return {"every": every.strip(), "keep": int(found[1])}


def _read_checks(value: JsonValue | Checks) -> JsonValue | Checks:
    return {"every": value} if isinstance(value, str | int | float) else value


StatedRetention: TypeAlias = Annotated[
    Retention | None, BeforeValidator(_read_retention, json_schema_input_type=str | Retention | None)
]
StatedBackups: TypeAlias = Annotated[
    Backups | None, BeforeValidator(_read_backups, json_schema_input_type=str | Backups | None)
]
StatedChecks: TypeAlias = Annotated[
    Checks | None, BeforeValidator(_read_checks, json_schema_input_type=str | Checks | None)
]


class Upkeep(_Stated):
    """What runners do regularly; None: not done. Texts such as `30d` and `daily, keep 7` are accepted."""

    retention: StatedRetention = None
    backup: StatedBackups = None
    check: StatedChecks = None

    @property
    def directory(self) -> str | None:
        """The directory that is stated for backups."""
        return None if self.backup is None else self.backup.to
