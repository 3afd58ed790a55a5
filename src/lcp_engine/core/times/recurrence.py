"""When something is due: once, after each interval of elapsed or of calendar time, or by a cron expression.

Pure but for the time zones, which are read from files.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, islice, takewhile
from typing import NamedTuple, TypeAlias, assert_never

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.times.local_times import moment_of, read_at, refuse, zone_of

MOST_MISSED = 10_000
"""The most due times of a cron expression or of calendar intervals that are counted: a week of minutes."""
NEVER: Micros = 2**63 - 1
"""When that is due next which is due no more."""
LONGEST = 100 * 365 * 86_400 * SECOND
LONGEST_CRON = 200
_UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_PART = re.compile(r"([0-9]+)([wdhms])")
_INTERVAL = re.compile(r"([0-9]{1,9}) ?(day|week|month|year)s?")
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_MOST = {"day": 36_500, "week": 5_200, "month": 1_200, "year": 100}
_ONCE, _CALENDAR, _FROM = "once ", "calendar ", " from "
_SHORTEST_MONTH = 28
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


@dataclass(frozen=True)
class Interval:
    """`count` days, weeks, months or years of the calendar."""

    count: int
    unit: str

    @property
    def text(self) -> str:
        """The interval as `--every` takes it."""
        return f"{self.count}{self.unit}{'s' if self.count > 1 else ''}"


@dataclass(frozen=True)
class Calendar:
    """Due at `start`, a local time in `timezone`, and again after each `interval` by the calendar there.

    In a month without the day of `start` it is due on the last one. A time that daylight saving leaves out is due right
    after the gap, one that comes twice the first time.
    """

    interval: Interval
    start: datetime
    timezone: str

    @property
    def is_clipped(self) -> bool:
        """True if some of its months lack the day of `start`."""
        match self.interval.unit:
            case "month":
                return self.start.day > _SHORTEST_MONTH
            case "year":
                return (self.start.month, self.start.day) == (2, 29)
        return False

    def at(self, n: int) -> datetime:
        """The local time after `n` intervals."""
        steps, unit, start = n * self.interval.count, self.interval.unit, self.start
        if unit in _DAYS:
            return start + timedelta(days=steps * _DAYS[unit])
        years, month = divmod(start.month - 1 + steps * _MONTHS[unit], 12)
        _, last = monthrange(start.year + years, month + 1)
        return start.replace(year=start.year + years, month=month + 1, day=min(start.day, last))

    def last_before(self, local: datetime) -> int:
        """Number of intervals that have surely passed by a local time."""
        unit, start = self.interval.unit, self.start
        if unit in _DAYS:
            passed = (local.date() - start.date()).days // _DAYS[unit]
        else:
            passed = ((local.year - start.year) * 12 + local.month - start.month) // _MONTHS[unit]
        return max(0, passed // self.interval.count - 1)


@dataclass(frozen=True)
class Once:
    """Due at a single time, which has the offset that `timezone` has then."""

    at: datetime
    timezone: str


Recurrence: TypeAlias = Every | Calendar | Once | Cron


class Planned(NamedTuple):
    """A recurrence, and when it is first due."""

    recurrence: Recurrence
    first_due: Micros


class Onward(NamedTuple):
    """When something is due next, and how often it was due meanwhile (cron: at most `MOST_MISSED` are counted)."""

    next_due: Micros
    missed: int


def read_recurrence(
    *, every: str | None, cron: str | None, at: str | None, timezone: str, now: Micros
) -> Planned:
    """A cron expression, or an interval, a time `at` which something is due once, or an interval that begins at a time.

    Raises `INVALID_ARGUMENT`.
    """
    if (cron is None) == (every is None and at is None):
        named = {"cron": cron, "every": every, "at": at}
        given = ", ".join(name for name, value in named.items() if value is not None)
        refuse(f"cron, every or at is expected, and only every and at together; given: {given or 'none'}")
    if cron is not None:
        rule = read_cron(cron, timezone)
        return Planned(rule, first_due(rule, now))
    length = None if every is None else _read_length_or_interval(every)
    start = None if at is None else read_at(at, timezone, now)
    match length:
        case None:
            assert start is not None
            return Planned(Once(start, timezone), moment_of(start))
        case Every():
            return Planned(length, first_due(length, now) if start is None else moment_of(start))
        case Interval():
            begun = start or datetime.fromtimestamp(now // SECOND, zone_of(timezone))
            calendar = Calendar(length, begun.replace(tzinfo=None, fold=0), timezone)
            return Planned(calendar, first_due(calendar, now) if start is None else moment_of(start))


def _read_length_or_interval(text: str) -> Every | Interval:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        if _LENGTH.fullmatch(text):
            return read_every(text)
        refuse(f"every is {text!r}; 30s, 15m, 1h30m or 2w, or 1day, 2weeks, 1month or 1year is expected")
    number, unit = int(found[1]), found[2]
    if not 0 < number <= _MOST[unit]:
        refuse(f"every is {text!r}; 1 to {_MOST[unit]:,} {unit}s are expected")
    return Interval(number, unit)


def read_every(text: str) -> Every:
    """`1h30m` or `7d` as a recurrence. Raises `INVALID_ARGUMENT` if it is not a duration from 1 s to 100 years."""
    if not _LENGTH.fullmatch(text):
        refuse(f"every is {text!r}; a duration like 30s, 15m, 1h30m, 1d or 2w is expected")
    length = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)) * SECOND
    if not 0 < length <= LONGEST:
        refuse(f"every is {text!r}; a duration from 1s to 36500d is expected")
    return Every(length)


def read_cron(expression: str, timezone: str) -> Cron:
    """A cron expression of five fields in a timezone like Europe/Zurich.

    Raises `INVALID_ARGUMENT` for an invalid expression, one that is never due, and an unknown timezone.
    """
    fields = expression.split()
    if len(expression) > LONGEST_CRON:
        refuse(f"cron has {len(expression)} characters; at most {LONGEST_CRON} are accepted")
    if len(fields) != len(_FIELDS):
        names = ", ".join(_FIELDS)
        refuse(f"cron {expression!r} has {len(fields)} fields; five are expected ({names})")
    cron = Cron(" ".join(fields), timezone)
    first_due(cron, 0)
    return cron


def first_due(recurrence: Every | Calendar | Cron, now: Micros) -> Micros:
    """When a recurrence that begins now is first due."""
    match recurrence:
        case Every(length):
            return now + length
        case Calendar():
            return next(_calendar_times(recurrence, now))
        case Cron(expression):
            found = next(_cron_times(recurrence, now), None)
            if found is None:
                refuse(f"cron {expression!r} is not due within 50 years")
            return found


def go_on(recurrence: Recurrence, due: Micros, now: Micros) -> Onward:
    """After the handling of what was due at `due`: when it is due next, and how many times in between were missed."""
    now = max(due, now)
    match recurrence:
        case Every(length):
            missed = (now - due) // length
            return Onward(due + (missed + 1) * length, missed)
        case Once():
            return Onward(NEVER, 0)
        case Calendar():
            passed = takewhile(lambda at: at <= now, _calendar_times(recurrence, due))
        case Cron():
            passed = takewhile(lambda at: at <= now, _cron_times(recurrence, due))
        case _:
            assert_never(recurrence)
    return Onward(first_due(recurrence, now), sum(1 for _ in islice(passed, MOST_MISSED)))


def stored_text(recurrence: Calendar | Once | Cron) -> str:
    """Stored form of a recurrence beside its timezone: a cron expression, or a text that cannot be one."""
    match recurrence:
        case Calendar(interval, start):
            return f"{_CALENDAR}{interval.text}{_FROM}{start.isoformat()}"
        case Once(at):
            return f"{_ONCE}{at.isoformat()}"
        case Cron(expression):
            return expression


def from_stored(every: Micros | None, text: str | None, timezone: str | None) -> Recurrence:
    """A recurrence as it is stored: a length, or a text in a timezone."""
    if every is not None:
        return Every(every)
    assert text is not None
    assert timezone is not None
    if text.startswith(_ONCE):
        return Once(datetime.fromisoformat(text.removeprefix(_ONCE)), timezone)
    if text.startswith(_CALENDAR):
        stated, _, start = text.removeprefix(_CALENDAR).partition(_FROM)
        interval = _read_length_or_interval(stated)
        assert isinstance(interval, Interval)
        return Calendar(interval, datetime.fromisoformat(start), timezone)
    return Cron(text, timezone)


def shown(recurrence: Recurrence) -> JsonObject:
    """A recurrence as it is published: `rule` says it in a few words."""
    found: JsonObject = {
        "rule": _words(recurrence),
        "every": None,
        "cron": None,
        "at": None,
        "timezone": None,
    }
    match recurrence:
        case Every():
            return found | {"every": recurrence.text}
        case Calendar(interval, start, timezone):
            return found | {"every": interval.text, "at": start.isoformat(), "timezone": timezone}
        case Once(at, timezone):
            return found | {"at": at.isoformat(), "timezone": timezone}
        case Cron(expression, timezone):
            return found | {"cron": expression, "timezone": timezone}


def _words(recurrence: Recurrence) -> str:
    match recurrence:
        case Every():
            return f"every {recurrence.text}"
        case Calendar(interval, start, timezone):
            # Before the time, for a narrow terminal shows only the beginning.
            day = f", day {start.day} or last," if recurrence.is_clipped else ""
            return f"every {interval.text}{day} at {start:%H:%M} {timezone}"
        case Once(at, timezone):
            return f"once at {at:%Y-%m-%d %H:%M} {timezone}"
        case Cron(expression, timezone):
            return f"{expression} {timezone}"


def _calendar_times(calendar: Calendar, after: Micros) -> Iterator[Micros]:
    """The due times after a moment, in order."""
    zone = zone_of(calendar.timezone)
    first = calendar.last_before(datetime.fromtimestamp(after // SECOND, zone))
    for n in count(first):
        moment = moment_of(calendar.at(n).replace(tzinfo=zone))
        # Two days of which one is left out by the calendar of the place may begin at the same moment.
        if moment > after:
            after = moment
            yield moment


def _cron_times(cron: Cron, after: Micros) -> Iterator[Micros]:
    """The due times after a moment, in order."""
    from cronsim import CronSim, CronSimError  # loaded only if something recurs

    zone = zone_of(cron.timezone)
    try:
        times = CronSim(cron.expression, datetime.fromtimestamp(after // SECOND, zone))
    except CronSimError as refused:
        name = str(refused).removeprefix("Bad ")
        field = cron.expression.split()[list(_FIELDS).index(name)]
        refuse(f"cron {cron.expression!r}: {name} is {field!r}; expected is {_FIELDS[name]}")
    for at in times:
        moment = int(at.timestamp()) * SECOND
        # In the second of two equal hours a fixed time of the first one is still to come by the wall alone.
        if moment > after:
            yield moment
