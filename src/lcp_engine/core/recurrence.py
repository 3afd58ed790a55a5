"""When something recurring is due: after each interval, or by a cron expression.

Pure but for the time zones, which are read from files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import NamedTuple, NoReturn, TypeAlias

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import ErrorCode, LcpError

MOST_MISSED = 10_000
"""The most due times of a cron expression that are counted: a week of minutes."""
LONGEST = 100 * 365 * 86_400 * SECOND
LONGEST_CRON = 200
_UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_PART = re.compile(r"([0-9]+)([wdhms])")
_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 and in one of the months, L (the last) or LW (the last weekday)",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 (0 and 7 are Sunday) or SUN-SAT, with L (the last) or #2 (the second) behind it",
}


@dataclass(frozen=True)
class Every:
    """Due after each `length` of elapsed time; changes of the local time do not matter."""

    length: Micros

    @property
    def text(self) -> str:
        """The length as `read_every` takes it."""
        rest, parts = self.length // SECOND, []
        for unit in "dhms":
            count, rest = divmod(rest, _UNITS[unit])
            parts += [f"{count}{unit}"] if count else []
        return "".join(parts)


@dataclass(frozen=True)
class Cron:
    """Due at the minutes of `expression` in the local time of `timezone`.

    As in Debian's cron: a fixed time that daylight saving leaves out is due right after the gap, one that comes twice
    is due the first time. With a `*` at the beginning of minute or hour it goes by time that passes: nothing is made up
    for, and both of two equal hours count.
    """

    expression: str
    timezone: str


Recurrence: TypeAlias = Every | Cron


class Onward(NamedTuple):
    """When something is due next, and how often it was due meanwhile (cron: at most `MOST_MISSED` are counted)."""

    next_due: Micros
    missed: int


def read_recurrence(*, every: str | None, cron: str | None, timezone: str) -> Recurrence:
    """Exactly one of a length of time and a cron expression. Raises `INVALID_ARGUMENT`."""
    if (every is None) == (cron is None):
        given = "neither is" if every is None else "both are"
        _refuse(f"exactly one of every and cron is expected; {given} given")
    return read_cron(cron, timezone) if cron is not None else read_every(every or "")


def read_every(text: str) -> Every:
    """`1h30m` or `7d` as a recurrence. Raises `INVALID_ARGUMENT` if it is not a duration from 1 s to 100 years."""
    if not _LENGTH.fullmatch(text):
        _refuse(f"every is {text!r}; a duration like 30s, 15m, 1h30m, 1d or 2w is expected")
    length = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)) * SECOND
    if not 0 < length <= LONGEST:
        _refuse(f"every is {text!r}; a duration from 1s to 36500d is expected")
    return Every(length)


def read_cron(expression: str, timezone: str) -> Cron:
    """A cron expression of five fields in a timezone like Europe/Zurich.

    Raises `INVALID_ARGUMENT` for an invalid expression, one that is never due, and an unknown timezone.
    """
    fields = expression.split()
    if len(expression) > LONGEST_CRON:
        _refuse(f"cron has {len(expression)} characters; at most {LONGEST_CRON} are accepted")
    if len(fields) != len(_FIELDS):
        names = ", ".join(_FIELDS)
        _refuse(f"cron {expression!r} has {len(fields)} fields; five are expected ({names})")
    cron = Cron(" ".join(fields), timezone)
    first_due(cron, 0)
    return cron


def first_due(recurrence: Recurrence, now: Micros) -> Micros:
    """When a recurrence that begins now is first due."""
    match recurrence:
        case Every(length):
            return now + length
        case Cron(expression):
            found = next(_times(recurrence, now), None)
            if found is None:
                _refuse(f"cron {expression!r} is not due within 50 years")
            return found


def go_on(recurrence: Recurrence, due: Micros, now: Micros) -> Onward:
    """After the handling of what was due at `due`: when it is due next, and how many times in between were missed."""
    now = max(due, now)
    match recurrence:
        case Every(length):
            missed = (now - due) // length
            return Onward(due + (missed + 1) * length, missed)
        case Cron():
            passed = takewhile(lambda at: at <= now, _times(recurrence, due))
            return Onward(first_due(recurrence, now), sum(1 for _ in islice(passed, MOST_MISSED)))


def _times(cron: Cron, after: Micros) -> Iterator[Micros]:
    """The due times after a moment, in order."""
    from cronsim import CronSim, CronSimError  # loaded only if something recurs

    zone = _zone(cron.timezone)
    try:
        times = CronSim(cron.expression, datetime.fromtimestamp(after // SECOND, zone))
    except CronSimError as refused:
        name = str(refused).removeprefix("Bad ")
        field = cron.expression.split()[list(_FIELDS).index(name)]
        _refuse(f"cron {cron.expression!r}: {name} is {field!r}; expected is {_FIELDS[name]}")
    for at in times:
        moment = int(at.timestamp()) * SECOND
        # In the second of two equal hours a fixed time of the first one is still to come by the wall alone.
        if moment > after:
            yield moment


def is_timezone(name: str) -> bool:
    """Whether the timezone is known on this machine."""
    try:
        _zone(name)
    except LcpError:
        return False
    return True


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        close = get_close_matches(name, available_timezones(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        _refuse(f"timezone {name!r} is not known here; one like Europe/Zurich is expected{hint}")


def _refuse(message: str) -> NoReturn:
    raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
