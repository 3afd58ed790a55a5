"""Local times on both sides of changes of clocks. Pure but for the time zones, which are read from files."""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from typing import NoReturn

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import ErrorCode, LcpError

FARTHEST = 100 * 365 * 86_400 * SECOND
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOUR = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?"
_OFFSET = r"Z|[+-][0-9]{2}:[0-9]{2}"
_AT = re.compile(f"(?P<day>{_DAY})(?:[T ](?P<hour>{_HOUR})(?:{_OFFSET})?)?|{_HOUR}")


def read_at(text: str, timezone: str, now: Micros) -> datetime:
    """`2026-12-01T09:00` in the timezone, perhaps with an offset from UTC; `09:00` is the next one.

    Raises `INVALID_ARGUMENT` for what is not such a time, one that daylight saving leaves out, the past, and what is
    more than 100 years away.
    """
    zone = zone_of(timezone)
    found = _AT.fullmatch(text)
    if found is None or (found["day"] and not found["hour"] and _is_day(text)):
        refuse(f"at is {text!r}; a time like 2026-12-01T09:00, 2026-12-01T09:00+01:00 or 09:00 is expected")
    try:
        at = _next(text, zone, now) if found["day"] is None else datetime.fromisoformat(text)
        at = at.replace(tzinfo=zone) if at.tzinfo is None else at.astimezone(zone)
        moment = moment_of(at)
    except (ValueError, OverflowError) as wrong:
        refuse(f"at is {text!r}, which is not a time: {wrong}")
    if not _exists(at):
        after = _local(moment, zone)
        before = _local(moment - SECOND, zone).replace(tzinfo=None) + timedelta(seconds=1)
        refuse(
            f"at {text!r} does not exist in {timezone}: clocks go from {before:%H:%M} to {after:%H:%M} then"
        )
    if moment <= now:
        refuse(f"at {text!r} is in the past; it is {_local(now, zone).isoformat(timespec='seconds')} now")
    if moment - now > FARTHEST:
        refuse(f"at {text!r} is more than 100 years away")
    return at


def moment_of(local: datetime) -> Micros:
    """When it is so late in its zone: right after the gap if daylight saving leaves the time out."""
    zone = local.tzinfo
    if zone is None or _exists(local):
        return int(local.timestamp()) * SECOND
    early, late = (int(local.replace(fold=fold).timestamp()) for fold in (1, 0))
    seconds = range(early, late + 1)
    after = local.replace(fold=1).utcoffset() or timedelta()
    change = bisect_left(seconds, after, key=lambda second: _offset(second, zone))
    return seconds[change] * SECOND


def is_timezone(name: str) -> bool:
    """True if the timezone is known on this machine."""
    try:
        zone_of(name)
    except LcpError:
        return False
    return True


def zone_of(name: str) -> tzinfo:
    """The timezone of that name. Raises `INVALID_ARGUMENT`."""
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        close = get_close_matches(name, available_timezones(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        refuse(f"timezone {name!r} is not known here; one like Europe/Zurich is expected{hint}")


def refuse(message: str) -> NoReturn:
    raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _is_day(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _next(hour: str, zone: tzinfo, now: Micros) -> datetime:
    """The next time that a clock in the zone shows `hour`."""
    today = _local(now, zone).date()
    at = datetime.fromisoformat(f"{today}T{hour}").replace(tzinfo=zone)
    return at if moment_of(at) > now else at + timedelta(days=1)


def _exists(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None)


def _local(moment: Micros, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment // SECOND, zone)


def _offset(second: int, zone: tzinfo) -> timedelta:
    return datetime.fromtimestamp(second, zone).utcoffset() or timedelta()
