"""Tables at every width: no id is cut, no line is wider than the terminal, and nothing invisible is printed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.terminal import Terminal

from lcp_engine.cli.commands.changes import changes_table
from lcp_engine.cli.commands.missions import missions_table
from lcp_engine.cli.job_tables import held_table, jobs_table
from lcp_engine.cli.tables import Part, Table, id_column, plain, text_column, wrap_words
from lcp_engine.features.schedules.commands import schedules_table
from lcp_engine.schedules import Schedule
from lcp_engine.store.queries.records import Mission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import JsonValue
    from tests.cli.conftest import Lcp

    from lcp_engine.store.db.json_text import JsonObject

AT = "2026-11-22T10:11:12.345678+00:00"
HOSTILE = ["", "-", "日本語" * 30, "👨‍👩‍👧👍🏽❤️🇨🇭" * 9, "e\u0301" * 90, "\u202egpj.txt\x1b[31m", "a\nb\tc",
           "word " * 60, "x" * 400, "\u0301\ufe0f\u200d", "held"]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=120))
IDS = st.integers(1, 10**12)
WIDTHS = st.integers(30, 200)
ROWS = st.lists(st.tuples(IDS, IDS, TEXTS, TEXTS), min_size=1, max_size=4)
Row = tuple[int, int, str, str]


def job(number: int, mission: int, kind: str, words: str) -> JsonObject:
    stated: dict[str, JsonValue] = {"id": number, "mission_id": mission, "kind": kind, "name": words}
    return {
        **stated, "turn": 3, "params": {"rel_path": words}, "state": "held", "created_at": AT, "reason": words,
        "error": None, "result": None,
    }  # fmt: skip


def mission(number: int, other: int, name: str, goal: str) -> Mission:
    counts: dict[str, JsonValue] = {"held": 1, "succeeded": other, "rejected": 1}
    return Mission.read({
        "id": number, "uid": "req-1", "name": name, "goal": goal, "root": "/r", "planner": "script",
        "status": "waiting", "outcome": "limit:max_turns", "summary": None, "deliverables": [], "metrics": {},
        "error": None, "limits": {}, "turns": 7, "jobs": counts, "unfulfilled": [], "open": 0, "tokens": {},
        "created_at": AT,
        "started_at": None, "ended_at": None, "session_id": None, "user_id": None, "result": None, "target_file": None,
        "issues": None, "recommendations": None, "cost": None, "waits_for": None, "assessment": None,
    })  # fmt: skip


def schedule(number: int, other: int, cron: str, error: str) -> Schedule:
    return Schedule.read({
        "name": f"nightly-{number}", "rule": f"{cron} Europe/Zurich", "next_due_at": AT,
        "missed": 12, "skipped": 3, "mission": {"id": other, "status": "running"}, "error": error or None,
        "last": {"outcome": "launched", "at": AT, "missed": 4},
    })  # fmt: skip


def change(number: int, other: int, word: str, path: str) -> JsonObject:
    return {
        "job_id": number, "change": "changed", "size_before": 10, "size_bytes": 20, "sha256_after": "x",
        "state": "done", "undone_by": other if word else None, "undoes": None, "has_pre_image": True, "path": path,
    }  # fmt: skip


def tables(rows: list[Row]) -> Iterator[tuple[Table, list[str]]]:
    """Every table with the ids that its rows name."""
    jobs, both = [job(*row) for row in rows], [str(one) for row in rows for one in row[:2]]
    yield jobs_table(jobs), both
    yield held_table(jobs, {rows[0][0]: AT}, of_one_mission=False), both
    yield held_table(jobs, {}, of_one_mission=True), [str(row[0]) for row in rows]
    yield missions_table([mission(*row) for row in rows]), [str(row[0]) for row in rows]
    yield (
        schedules_table([schedule(*row) for row in rows]),
        [f"nightly-{row[0]}" for row in rows] + [str(row[1]) for row in rows],
    )
    undone = [str(row[1]) for row in rows if row[2]]
    yield changes_table([change(*row) for row in rows]), [str(row[0]) for row in rows] + undone


@given(ROWS, WIDTHS)
@example([(1234567, 89, "write_file", "docs/a.md")], 30)
@example([(1, 2, "\ufe0f\u200d", "\u0301\ufe0f" * 99)], 40)
def test_at_every_width_ids_are_whole_and_lines_fit(rows: list[Row], width: int) -> None:
    for table, ids in tables(rows):
        shown = [plain(line) for line in table.lines(width)]
        words = re.findall(r"[\w-]+", "\n".join(shown))
        assert set(ids) <= set(words)
        assert max(map(cell_len, shown)) <= width
        assert all(line == line.rstrip(" ") for line in shown)
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e\u2066]", "".join(shown))


@given(ROWS)
def test_without_a_width_nothing_is_cut(rows: list[Row]) -> None:
    for table, _ in tables(rows):
        shown = [plain(line) for line in table.lines(None)]
        assert len(shown) == 1 + len(rows)
        for line, cells in zip(shown[1:], table.rows, strict=True):
            assert all(cell.rstrip(" ") in line for cell in cells)
            assert line == line.rstrip(" ")


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_the_reason_keeps_room_in_the_table_of_held_jobs(width: int) -> None:
    held = job(123456, 7, "write_file", "docs/deeply/nested/directories/with/long/names/notes.md")
    held["reason"] = "default policy: kinds with effects wait for a person"
    table = held_table([held], {}, of_one_mission=False)
    assert "default policy: kin" in "\n".join(plain(line) for line in table.lines(width))


def test_a_table_knows_whether_a_text_is_cut() -> None:
    table = Table([id_column("id"), text_column("why")])
    table.add("1", "default policy: kinds with effects wait for a person")
    assert [table.is_cut(width) for width in (80, 40, 5)] == [False, True, True]


def test_an_id_that_is_wider_than_the_terminal_is_on_a_line_of_its_own() -> None:
    table = Table([id_column("id"), text_column("name"), id_column("other")])
    table.add("1" * 50, "word " * 20, "2" * 50)
    shown = [plain(line) for line in table.lines(30)]
    assert [line for line in shown if len(line) > 30] == ["1" * 50, f"other: {'2' * 50}"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "  three"]),
        ("  1) first", ["  1)", "  first"]),
        ("longerthanaline x", ["longerth", "analine", "  x"]),
        ("水水水 水水", ["水水水", "  水水"]),
    ],
)
def test_words_are_broken_at_blanks_and_hang(text: str, lines: list[str]) -> None:
    assert wrap_words(text, 8, hang=2) == lines


@given(st.text(alphabet="ab 水", max_size=60), st.integers(min_value=4, max_value=30))
def test_no_line_of_words_is_too_wide_and_none_is_lost(text: str, width: int) -> None:
    lines = wrap_words(text, width, hang=2)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_columns_of_ids_are_never_spare() -> None:
    for table, _ in tables([(1, 2, "a", "b")]):
        assert not [one.name for one in table.columns if one.part is Part.ID and one.spare is not None]


@pytest.mark.parametrize("columns", [30, 40, 80])
def test_a_narrow_terminal_shows_each_id(lcp: Lcp, columns: int) -> None:
    path = "docs/deeply/nested/directories/with/long/names/notes.md"
    waits = lcp("run", lcp.mission(lcp.ask("write_file", path=path, content="x")), "--root", "root", "-q")
    assert waits.code == 3
    for command, number in (("jobs", "2"), ("held", "2"), ("missions", "1")):
        with Terminal(lcp, command, size=(24, columns)) as terminal:
            assert terminal.end() == 0
        lines = terminal.shown.splitlines()
        assert any(line.split()[:1] == [number] for line in lines), terminal.shown
        assert all(cell_len(line) <= columns for line in lines)
        assert "default" in terminal.shown or command != "held"


def test_a_piped_table_is_for_people(lcp: Lcp) -> None:
    path = f"docs/{'long-' * 30}notes.md"
    lcp("run", lcp.mission(lcp.ask("write_file", path=path, content="x")), "--root", "root", "-q")
    for command in ("jobs", "held", "missions"):
        shown = lcp(command, TZ="Asia/Tokyo").out
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?![.+\d])", shown)
        assert all(line == line.rstrip() for line in shown.splitlines())
        assert command == "missions" or path in shown
    (held,) = [line for line in lcp.run("held", TZ="UTC").out.splitlines() if path in line]
    (later,) = [line for line in lcp.run("held", TZ="Asia/Tokyo").out.splitlines() if path in line]
    assert held != later


@pytest.mark.parametrize(
    ("costs", "shown"),
    [
        ([None, None], None),
        ([("0.0054", 0), None], ["0.0054 EUR", "-"]),
        ([("2.5", 3), ("0", 0)], ["2.50 EUR+", "0.00 EUR"]),
    ],
)
def test_missions_have_a_column_of_costs_where_any_is_known(
    costs: list[tuple[str, int] | None], shown: list[str] | None
) -> None:
    missions = []
    for amount, unpriced in [cost or (None, 0) for cost in costs]:
        spent: dict[str, JsonValue] = {"amount": amount, "currency": "EUR", "unpriced": unpriced}
        missions.append(replace(mission(1, 2, "name", "goal"), cost=spent))
    heading, *lines = [plain(line) for line in missions_table(missions).lines(None)]
    assert ("cost" in heading) is (shown is not None)
    for line, cost in zip(lines, shown or [], strict=False):
        assert cost in line
