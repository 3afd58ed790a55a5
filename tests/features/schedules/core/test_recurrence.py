"""When something that recurs is due, on both sides of every change of clocks."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.times.recurrence import (
    MOST_MISSED,
    NEVER,
    Calendar,
    Cron,
    Every,
    Once,
    first_due,
    from_stored,
    go_on,
    read_cron,
    read_every,
    read_recurrence,
    stored_text,
)
from lcp_engine.core.times.recurrence import (
    shown as published,
)
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.schedules.commands import here

ZURICH = "Europe/Zurich"
HOUR = 3600 * SECOND
MOMENTS = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * SECOND)
FIELDS = st.text(alphabet=f"{string.digits}*/-,L#WMONJA ", max_size=8)


def at(text: str, zone: str = ZURICH) -> Micros:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


def shown(moment: Micros, zone: str = ZURICH) -> str:
    return datetime.fromtimestamp(moment // SECOND, ZoneInfo(zone)).strftime("%m-%d %H:%M %Z")


def dues(recurrence: Every | Calendar | Cron, start: Micros, count: int) -> list[Micros]:
    """The first due times, each reckoned from the one before as a runner does it that is always there."""
    found = [first_due(recurrence, start)]
    while len(found) < count:
        onward = go_on(recurrence, found[-1], found[-1])
        assert onward.missed == 0
        found.append(onward.next_due)
    return found


@table(
    ("text", "seconds", "written"),
    [
        ("30s", 30, "30s"),
        ("90m", 5400, "1h30m"),
        ("1h30m", 5400, "1h30m"),
        ("2w", 14 * 86_400, "14d"),
        ("36500d", 36500 * 86_400, "36500d"),
    ],
)
def test_a_length_is_read_and_written(text: str, seconds: int, written: str) -> None:
    assert read_every(text) == Every(seconds * SECOND)
    assert read_every(text).text == written
    assert read_every(written) == read_every(text)


@table("text", ["", "1", "h", "1.5h", "-1h", "1h 30m", "1y", "٣h", "1H", "0s", "0h0m", "36501d"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(LcpError, match=r"^every is .*; a duration .* is expected") as refused:
        read_every(text)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


@table(
    ("expression", "fact"),
    [
        ("", r"'' has 0 fields"),
        ("* * * *", r"has 4"),
        ("0 * * * * *", r"has 6"),
        ("61 * * * *", r"minute is '61'; expected is 0-59"),
        ("* 24 * * *", r"hour is '24'; expected is 0-23"),
        ("* * 0 * *", r"day-of-month is '0'; expected is 1-31"),
        ("* * * 13 *", r"month is '13'; expected is 1-12 or JAN-DEC"),
        ("* * * * 8", r"day-of-week is '8'; expected is 0-7"),
        ("*/0 * * * *", r"minute is '\*/0'"),
        ("5-1 * * * *", r"minute is '5-1'"),
        ("0 0 30 2 *", r"in one of the months"),
        ("* * */20 * 1L", r"is not due within 50 years"),
        ("9" * 300 + " * * * *", r"at most 200 are accepted"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str, fact: str) -> None:
    with pytest.raises(LcpError, match=fact) as refused:
        read_cron(expression, "UTC")
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


@table("zone", ["", "Europe", "Europe/Zürich", "../etc/passwd", "/etc/localtime", "a\0b", "\udc80"])
def test_what_is_no_timezone_is_refused(zone: str) -> None:
    with pytest.raises(LcpError, match="is not known here; one like Europe/Zurich is expected"):
        read_cron("0 7 * * *", zone)


@given(st.lists(FIELDS, min_size=5, max_size=5), MOMENTS)
def test_any_expression_is_refused_or_due_later(fields: list[str], now: Micros) -> None:
    try:
        cron = read_cron(" ".join(fields), ZURICH)
    except LcpError:
        return
    due = first_due(cron, now)
    assert due > now
    assert go_on(cron, due, due).next_due > due


@given(
    st.builds(
        "{} {} {} * {}".format,
        st.sampled_from(["*", "*/7", "0", "30", "5,35", "10-50/20"]),
        st.sampled_from(["*", "*/2", "1", "2", "2,3", "0-4"]),
        st.sampled_from(["*", "28-30", "L"]),
        st.sampled_from(["*", "SUN", "MON-SAT", "SUN#1"]),
    ),
    st.sampled_from(["2026-03-28 20:00", "2026-10-24 20:00"]),
    st.integers(0, 12 * 3600),
    st.integers(0, 40 * 3600),
)
def test_who_was_away_over_a_change_of_clocks_stands_where_they_stand_who_stayed(
    expression: str, evening: str, start: int, away: int
) -> None:
    cron = read_cron(expression, ZURICH)
    due = first_due(cron, at(evening) + start * SECOND)
    now, stepwise, missed = due + away * SECOND, due, -1
    while stepwise <= now:
        onward = go_on(cron, stepwise, stepwise)
        assert onward.next_due > stepwise
        stepwise, missed = onward.next_due, missed + 1
    assert go_on(cron, due, now) == (stepwise, missed)


def test_hours_are_those_of_the_timezone() -> None:
    cron = read_cron("0  7 * * mon-fri", ZURICH)
    assert cron == Cron("0 7 * * mon-fri", ZURICH)
    friday = at("2026-11-20 06:59")
    assert [shown(due) for due in dues(cron, friday, 3)] == [
        "11-20 07:00 CET", "11-23 07:00 CET", "11-24 07:00 CET"
    ]  # fmt: skip


def test_a_fixed_time_that_daylight_saving_leaves_out_is_due_right_after_the_gap() -> None:
    cron = read_cron("30 2 * * *", ZURICH)
    assert [shown(due) for due in dues(cron, at("2026-03-28 00:00"), 3)] == [
        "03-28 02:30 CET", "03-29 03:00 CEST", "03-30 02:30 CEST"
    ]  # fmt: skip


def test_fixed_times_of_one_gap_are_due_together_once() -> None:
    cron = read_cron("0,20,40 2,3 * * *", ZURICH)
    assert [shown(due) for due in dues(cron, at("2026-03-29 00:00"), 4)] == [
        "03-29 03:00 CEST", "03-29 03:20 CEST", "03-29 03:40 CEST", "03-30 02:00 CEST"
    ]  # fmt: skip


def test_a_fixed_time_that_comes_twice_is_due_the_first_time() -> None:
    cron = read_cron("30 2 * * *", ZURICH)
    assert [shown(due) for due in dues(cron, at("2026-10-25 00:00"), 2)] == [
        "10-25 02:30 CEST",
        "10-26 02:30 CET",
    ]


def test_who_begins_between_two_equal_times_waits_for_the_next_day() -> None:
    cron = read_cron("30 2 * * *", ZURICH)
    second_time = int(datetime(2026, 10, 25, 1, 15, tzinfo=UTC).timestamp()) * SECOND
    assert shown(second_time) == "10-25 02:15 CET"
    assert shown(first_due(cron, second_time)) == "10-26 02:30 CET"


def test_an_interval_by_the_clock_goes_by_time_that_passes() -> None:
    half_hours = read_cron("*/30 * * * *", ZURICH)
    for day in ("2026-03-29 00:15", "2026-10-25 00:15"):
        found = dues(half_hours, at(day), 12)
        assert {later - due for due, later in pairwise(found)} == {HOUR // 2}


def test_minutes_of_an_hour_that_is_not_there_are_not_made_up_for_and_those_of_a_double_hour_all_count() -> (
    None
):
    cron = read_cron("*/30 2 * * *", ZURICH)
    assert [shown(due) for due in dues(cron, at("2026-03-28 02:15"), 2)] == [
        "03-28 02:30 CET",
        "03-30 02:00 CEST",
    ]
    assert [shown(due) for due in dues(cron, at("2026-10-25 00:00"), 5)] == [
        "10-25 02:00 CEST", "10-25 02:30 CEST", "10-25 02:00 CET", "10-25 02:30 CET", "10-26 02:00 CET"
    ]  # fmt: skip


def test_a_length_does_not_care_for_daylight_saving() -> None:
    found = dues(read_every("1d"), at("2026-03-28 12:00"), 2)
    assert [shown(due) for due in found] == ["03-29 13:00 CEST", "03-30 13:00 CEST"]


def test_missed_times_are_counted_and_the_rhythm_stays() -> None:
    assert go_on(read_every("1h"), at("2026-11-20 10:00"), at("2026-11-20 13:30")) == (
        at("2026-11-20 14:00"),
        3,
    )
    assert go_on(read_every("1h"), at("2026-11-20 10:00"), at("2026-11-20 13:00")) == (
        at("2026-11-20 14:00"),
        3,
    )
    daily = read_cron("0 7 * * *", ZURICH)
    assert go_on(daily, at("2026-03-27 07:00"), at("2026-03-30 12:00")) == (at("2026-03-31 07:00"), 3)
    assert go_on(daily, at("2026-03-27 07:00"), at("2026-03-28 07:00")) == (at("2026-03-29 07:00"), 1)


def test_a_clock_that_was_set_back_makes_nothing_due_again() -> None:
    due, before = at("2026-11-20 07:00"), at("2026-11-20 05:00")
    for rule in (read_every("1h"), read_cron("0 7 * * *", ZURICH)):
        assert go_on(rule, due, before) == go_on(rule, due, due)
        assert go_on(rule, due, before).next_due > due


def test_years_of_minutes_are_not_counted_to_the_end() -> None:
    minutes = read_cron("* * * * *", "UTC")
    assert go_on(minutes, at("2016-01-01 00:00", "UTC"), at("2026-01-01 00:00", "UTC")) == (
        at("2026-01-01 00:01", "UTC"),
        MOST_MISSED,
    )


def calendar(every: str, start: str, zone: str = ZURICH) -> Calendar:
    """An interval of the calendar whose first due time is `start`."""
    begun = at(start, zone) - SECOND
    planned = read_recurrence(every=every, cron=None, at=start, timezone=zone, now=begun)
    assert isinstance(planned.recurrence, Calendar)
    assert planned.first_due == at(start, zone)
    return planned.recurrence


def days(rule: Calendar, count: int, zone: str = ZURICH) -> list[str]:
    found = dues(rule, at(rule.start.isoformat(), zone) - SECOND, count)
    return [
        datetime.fromtimestamp(due // SECOND, ZoneInfo(zone)).strftime("%y-%m-%d %H:%M %Z") for due in found
    ]


@table(
    ("every", "start", "expected"),
    [
        ("1month", "2027-01-31 09:00", ["27-01-31", "27-02-28", "27-03-31", "27-04-30", "27-05-31"]),
        ("1 month", "2027-12-30 09:00", ["27-12-30", "28-01-30", "28-02-29", "28-03-30"]),
        ("5months", "2027-10-31 09:00", ["27-10-31", "28-03-31", "28-08-31", "29-01-31"]),
        ("1year", "2028-02-29 09:00", ["28-02-29", "29-02-28", "30-02-28", "31-02-28", "32-02-29"]),
        ("2 weeks", "2026-12-20 09:00", ["26-12-20", "27-01-03", "27-01-17"]),
        ("10days", "2027-03-20 09:00", ["27-03-20", "27-03-30", "27-04-09"]),
    ],
)
def test_the_calendar_sets_the_day_and_short_months_end_earlier(
    every: str, start: str, expected: list[str]
) -> None:
    assert [due[:14] for due in days(calendar(every, start), len(expected))] == [
        f"{day} 09:00" for day in expected
    ]


@table(
    ("every", "start", "expected"),
    [
        ("1day", "2027-03-27 12:00", ["27-03-27 12:00 CET", "27-03-28 12:00 CEST", "27-03-29 12:00 CEST"]),
        ("1day", "2027-03-27 02:30", ["27-03-27 02:30 CET", "27-03-28 03:00 CEST", "27-03-29 02:30 CEST"]),
        ("1month", "2027-02-28 02:00", ["27-02-28 02:00 CET", "27-03-28 03:00 CEST", "27-04-28 02:00 CEST"]),
        ("1week", "2027-03-21 03:00", ["27-03-21 03:00 CET", "27-03-28 03:00 CEST", "27-04-04 03:00 CEST"]),
        ("1day", "2026-10-24 12:00", ["26-10-24 12:00 CEST", "26-10-25 12:00 CET", "26-10-26 12:00 CET"]),
        ("1day", "2026-10-24 02:30", ["26-10-24 02:30 CEST", "26-10-25 02:30 CEST", "26-10-26 02:30 CET"]),
        ("1day", "2026-10-24 03:00", ["26-10-24 03:00 CEST", "26-10-25 03:00 CET", "26-10-26 03:00 CET"]),
    ],
)
def test_calendar_intervals_keep_the_local_time_when_clocks_change(
    every: str, start: str, expected: list[str]
) -> None:
    assert days(calendar(every, start), 3) == expected


def test_a_gap_of_half_an_hour_and_one_of_a_day_end_where_clocks_go_on() -> None:
    lord_howe = calendar("1day", "2026-10-03 02:15", "Australia/Lord_Howe")
    assert [due[:14] for due in days(lord_howe, 3, "Australia/Lord_Howe")] == [
        "26-10-03 02:15", "26-10-04 02:30", "26-10-05 02:15"
    ]  # fmt: skip
    samoa = calendar("1day", "2011-12-29 00:00", "Pacific/Apia")
    assert [due[:14] for due in days(samoa, 3, "Pacific/Apia")] == [
        "11-12-29 00:00", "11-12-31 00:00", "12-01-01 00:00"
    ]  # fmt: skip


def test_the_second_of_two_equal_times_is_first_if_its_offset_says_so() -> None:
    planned = read_recurrence(
        every="1day", cron=None, at="2026-10-25T02:30+01:00", timezone=ZURICH, now=at("2026-10-25 02:30")
    )
    assert shown(planned.first_due) == "10-25 02:30 CET"
    later = go_on(planned.recurrence, planned.first_due, planned.first_due)
    assert (shown(later.next_due), later.missed) == ("10-26 02:30 CET", 0)


def test_an_interval_without_a_time_goes_on_from_now() -> None:
    now = at("2027-01-31 09:17") + SECOND // 2
    planned = read_recurrence(every="1month", cron=None, at=None, timezone=ZURICH, now=now)
    assert planned.first_due == at("2027-02-28 09:17")
    assert go_on(planned.recurrence, planned.first_due, planned.first_due) == (at("2027-03-31 09:17"), 0)


def test_a_length_may_begin_at_a_time() -> None:
    planned = read_recurrence(
        every="1h", cron=None, at="2026-12-01T09:00", timezone=ZURICH, now=at("2026-11-24 12:00")
    )
    assert planned == (Every(HOUR), at("2026-12-01 09:00"))


@given(
    st.sampled_from(["1day", "9days", "1week", "1month", "5months", "1year"]),
    st.sampled_from(["2026-03-27 02:30", "2026-10-23 02:30", "2027-01-31 23:59", "2028-02-29 00:00"]),
    st.integers(0, 4000 * 24),
)
def test_calendar_intervals_are_the_same_for_a_runner_that_was_away(
    every: str, start: str, away: int
) -> None:
    rule, due = calendar(every, start), at(start)
    now, stepwise, missed = due + away * HOUR, due, -1
    while stepwise <= now:
        onward = go_on(rule, stepwise, stepwise)
        assert (onward.next_due > stepwise, onward.missed) == (True, 0)
        stepwise, missed = onward.next_due, missed + 1
    assert go_on(rule, due, now) == (stepwise, missed)


def test_what_is_due_once_is_due_no_more() -> None:
    planned = read_recurrence(
        every=None, cron=None, at="2026-12-01T09:00", timezone=ZURICH, now=at("2026-11-24 12:00")
    )
    assert planned.first_due == at("2026-12-01 09:00")
    assert isinstance(planned.recurrence, Once)
    assert go_on(planned.recurrence, planned.first_due, at("2027-01-01 00:00")) == (NEVER, 0)


@table(
    ("text", "expected"),
    [
        ("2026-12-01T09:00", "2026-12-01 09:00"),
        ("2026-12-01 09:00:30", "2026-12-01 09:00:30"),
        ("2026-12-01T09:00Z", "2026-12-01 10:00"),
        ("2026-12-01T09:00-05:00", "2026-12-01 15:00"),
        ("12:00", "2026-11-25 12:00"),
        ("12:01", "2026-11-24 12:01"),
    ],
)
def test_a_time_is_local_or_has_an_offset(text: str, expected: str) -> None:
    now = at("2026-11-24 12:00")
    planned = read_recurrence(every=None, cron=None, at=text, timezone=ZURICH, now=now)
    assert planned.first_due == at(expected)


@table(
    ("text", "fact"),
    [
        ("soon", "a time like 2026-12-01T09:00, 2026-12-01T09:00.01:00 or 09:00 is expected"),
        ("", "is expected"),
        ("2026-12-01", "is expected"),
        ("2026-12-01T09", "is expected"),
        ("٢026-12-01T09:00", "is expected"),
        ("2026-02-30", "which is not a time: day "),
        ("2026-02-30T09:00", "which is not a time: day "),
        ("25:00", "which is not a time: hour "),
        ("0001-01-01T00:00", "which is not a time: "),
        ("9999-12-31T23:59-14:00", "which is not a time: "),
        ("2027-03-28T02:30", "does not exist in Europe/Zurich: clocks go from 02:00 to 03:00 then"),
        ("2026-11-24T12:00", r"is in the past; it is 2026-11-24T12:00:00\+01:00 now"),
        ("2126-11-24T12:00", "is more than 100 years away"),
    ],
)
def test_what_is_no_time_to_come_is_refused(text: str, fact: str) -> None:
    with pytest.raises(LcpError, match=fact) as refused:
        read_recurrence(every=None, cron=None, at=text, timezone=ZURICH, now=at("2026-11-24 12:00"))
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


@table(
    ("every", "fact"),
    [
        ("0month", "every is '0month'; 1 to 1,200 months are expected"),
        ("101years", "every is '101years'; 1 to 100 years are expected"),
        ("1fortnight", "or 1day, 2weeks, 1month or 1year is expected"),
        ("1month2days", "or 1day, 2weeks, 1month or 1year is expected"),
        ("1  month", "or 1day, 2weeks, 1month or 1year is expected"),
    ],
)
def test_what_is_no_interval_is_refused(every: str, fact: str) -> None:
    with pytest.raises(LcpError, match=fact):
        read_recurrence(every=every, cron=None, at=None, timezone=ZURICH, now=0)


@table(
    ("every", "cron", "time"),
    [
        (None, None, None),
        ("1h", "* * * * *", None),
        (None, "* * * * *", "09:00"),
        ("1h", "* * * * *", "09:00"),
    ],
)
def test_only_an_interval_and_a_time_go_together(
    every: str | None, cron: str | None, time: str | None
) -> None:
    with pytest.raises(LcpError, match="cron, every or at is expected, and only every and at together"):
        read_recurrence(every=every, cron=cron, at=time, timezone=ZURICH, now=0)


@table(
    ("every", "time", "rule"),
    [
        (None, "2026-12-01T09:00Z", "once at 2026-12-01 10:00 Europe/Zurich"),
        ("2 weeks", "2026-12-01T09:00", "every 2weeks at 09:00 Europe/Zurich"),
        ("1months", "2026-12-31T09:00", "every 1month, day 31 or last, at 09:00 Europe/Zurich"),
        ("1year", "2026-12-31T09:00", "every 1year at 09:00 Europe/Zurich"),
        ("4years", "2028-02-29T09:00", "every 4years, day 29 or last, at 09:00 Europe/Zurich"),
    ],
)
def test_what_is_stored_is_what_was_read(every: str | None, time: str, rule: str) -> None:
    now = at("2026-11-24 12:00")
    found = read_recurrence(every=every, cron=None, at=time, timezone=ZURICH, now=now).recurrence
    assert not isinstance(found, Every)
    again = from_stored(None, stored_text(found), ZURICH)
    assert published(again) == published(found)
    assert go_on(again, now, now) == go_on(found, now, now)
    assert published(found)["rule"] == rule


@given(MOMENTS, st.integers(1, 10**9), st.integers(0, 10**10))
def test_a_length_keeps_its_grid_however_late_it_is(due: Micros, seconds: int, late: int) -> None:
    length, now = seconds * SECOND, due + late * SECOND
    onward = go_on(Every(length), due, now)
    assert onward.next_due == due + (onward.missed + 1) * length
    assert onward.next_due - length <= now < onward.next_due


def test_the_timezone_of_the_machine_is_found(tmp_path: Path) -> None:
    linked, copied = tmp_path / "localtime", tmp_path / "copied"
    (tmp_path / "zoneinfo" / "Europe").mkdir(parents=True)
    linked.symlink_to(tmp_path / "zoneinfo" / "Europe" / "Zurich")
    copied.touch()
    assert here({}, linked) == "Europe/Zurich"
    assert here({"TZ": ":Asia/Tokyo"}, linked) == "Asia/Tokyo"
    assert here({"TZ": "CET-1CEST"}, linked) == "Europe/Zurich"
    assert here({}, copied) == "UTC"
