"""Settings of upkeep: retention, backups and integrity checks, which runners do for the database. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from lcp_engine.core.settings.feature_settings import FeatureSettings, Length, Rhythm

_KEEP = re.compile(r"\s*keep\s+([1-9][0-9]{0,5})\s*")


class Duty(StrEnum):
    """What is done regularly."""

    RETENTION = "retention"
    BACKUP = "backup"
    CHECK = "check"


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


class Upkeep(FeatureSettings):
    """What runners do regularly; None: not done. Texts such as `30d` and `daily, keep 7` are accepted."""

    retention: StatedRetention = Field(
        default=None,
        description="Runners remove missions that ended so long ago, such as `30d`, once a day (database.md); without "
        "it, all stay.",
    )
    backup: StatedBackups = Field(
        default=None,
        description="Runners make backups regularly and keep the newest, such as `daily, keep 7` (database.md).",
    )
    check: StatedChecks = Field(
        default=None,
        description="Runners check the database regularly, such as `weekly` (database.md).",
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with an absolute directory of backups."""
        if self.backup is None or self.backup.to is None:
            return self
        backup = self.backup.model_copy(update={"to": place(self.backup.to)})
        return self.model_copy(update={"backup": backup})

    def protected(self) -> Iterable[str]:
        """The directory of backups, if one is stated."""
        return () if self.backup is None or self.backup.to is None else (self.backup.to,)
