from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from lcp_engine.core.safe_text import block, json_block, one_line
from lcp_engine.core.summaries import age, duration, gist, size, subject
from lcp_engine.web.pages.missions import Branch, build_tree
from lcp_engine.web.timeline_chart import MOMENTS, THINNEST, WIDTH, Timeline, draw

START = datetime(2026, 1, 1, tzinfo=UTC)


def _moves(job_id: int, *moves: tuple[float, str]) -> list[dict[str, JsonValue]]:
    return [
        {"job_id": job_id, "at": (START + timedelta(seconds=at)).isoformat(), "event": event}
        for at, event in moves
    ]


def _draw(*moves: list[dict[str, JsonValue]], until: float = 0) -> Timeline:
    ids = [of_job[0]["job_id"] for of_job in moves if of_job]
    return draw(
        [{"id": job_id} for job_id in ids],
        [move for of_job in moves for move in of_job],
        START + timedelta(seconds=until),
    )


def test_a_bar_is_the_states_of_a_job_on_the_axis() -> None:
    drawn = _draw(_moves(1, (0, "queued"), (1, "started"), (4, "succeeded")))
    wait, run = drawn.bars[0].segments
    assert (wait.state, wait.x, wait.is_run, wait.seconds) == ("queued", 0, False, 1)
    assert (run.state, run.is_run, run.seconds) == ("succeeded", True, 3)
    assert run.x + run.width == pytest.approx(WIDTH)
    assert (drawn.bars[0].waited, drawn.bars[0].ran) == (1, 3)


def test_each_attempt_shows_what_it_led_to() -> None:
    drawn = _draw(_moves(1, (0, "queued"), (0, "started"), (1, "backed_off"), (2, "started"), (3, "failed")))
    assert [part.state for part in drawn.bars[0].segments if part.is_run] == ["queued", "failed"]


def test_what_has_not_ended_lasts_until_now() -> None:
    drawn = _draw(_moves(1, (0, "queued"), (1, "started")), until=5)
    assert drawn.bars[0].segments[-1].seconds == 4
    assert drawn.bars[0].segments[-1].state == "running"


def test_a_long_wait_is_drawn_shorter_and_says_so() -> None:
    first = _moves(1, (0, "queued"), (0, "started"), (1, "succeeded"))
    second = _moves(2, (1, "held"), (7201, "approved"), (7201, "started"), (7202, "succeeded"))
    drawn = _draw(first, second)
    assert drawn.seconds == 7202
    assert [cut.seconds for cut in drawn.cuts] == [7200]
    assert drawn.bars[0].segments[1].width > WIDTH / 4
    held = drawn.bars[1].segments[0]
    assert (held.state, held.seconds) == ("held", 7200)


def test_a_moment_is_still_seen() -> None:
    drawn = _draw(
        _moves(1, (0, "queued"), (0, "started"), (100, "succeeded")),
        _moves(2, (99.999, "queued"), (100, "cancelled")),
    )
    moment = drawn.bars[1].segments[0]
    assert moment.width >= THINNEST
    assert moment.x + moment.width <= WIDTH + 0.01


def test_marks_that_would_read_alike_say_how_much_later_they_are() -> None:
    drawn = _draw(
        _moves(1, (0, "queued"), (0, "started"), (1, "succeeded")),
        _moves(2, (1, "held"), (90_001, "approved"), (90_001, "started"), (90_011, "succeeded")),
    )
    assert drawn.bars[1].held == 90_000
    assert drawn.labels[0] == "0"
    assert drawn.labels[-3:] == ["1 d 1 h", "+2.6 s", "+5.3 s"]
    assert len({*drawn.labels}) == len(drawn.labels)
    assert len(drawn.moments) == MOMENTS
    assert _draw(_moves(1, (0, "queued"))).labels == ["0"] * 5


def test_nothing_is_an_empty_drawing() -> None:
    assert draw([], [], START) == Timeline([], [], 0.0, [0.0] * 5)
    assert draw([{"id": 1}], [], START).bars[0].segments == []


def test_jobs_hang_on_the_turn_that_asked_for_them() -> None:
    jobs: list[dict[str, JsonValue]] = [
        {"id": 1, "parent_id": None},
        {"id": 2, "parent_id": 1},
        {"id": 3, "parent_id": 2},
        {"id": 4, "parent_id": None},
        {"id": 5, "parent_id": 99},
    ]
    roots = build_tree(jobs, [{"job_id": 1, "number": 1}, {"job_id": 99, "number": 2}])
    assert [_ids(root) for root in roots] == [[1, [2, [3]]], [4], [5]]
    assert roots[0].questions == [{"job_id": 1, "number": 1}]
    assert roots[0].size == 3


def _ids(branch: Branch) -> list[object]:
    return [branch.job["id"], *(_ids(below) for below in branch.branches)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0614, "61 ms"),
        (1, "1.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (93, "1 min 33 s"),
        (3600, "1 h"),
        (7320, "2 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_two_parts_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes_and_ages_are_in_the_largest_unit() -> None:
    assert [size(count) for count in (0, 999, 1000, 4_900_000)] == ["0 B", "999 B", "1.0 kB", "4.9 MB"]
    ages = [
        age(START.isoformat(), START + timedelta(seconds=seconds)) for seconds in (0, 5, 90, 7200, 200_000)
    ]
    assert ages == ["now", "5 s ago", "1 min ago", "2 h ago", "2 d ago"]


@pytest.mark.parametrize(
    ("params", "name", "words"),
    [
        ({"rel_path": "a\nb"}, None, "a<U+000A>b"),
        ({"patterns": ["a", "b", "c", "d"]}, None, "a b c … 4 patterns"),
        ({}, "Name", "Name"),
        ({"x": 1}, None, '{"x": 1}'),
        (None, None, ""),
    ],
)
def test_a_job_is_about_its_path_patterns_or_name(params: JsonValue, name: str | None, words: str) -> None:
    assert subject({"params": params, "name": name}) == words


def test_what_came_of_a_job_is_told_in_a_few_words() -> None:
    assert gist({"action": "list_files_result", "files": ["a"], "total": 5000}) == "1 of 5,000 files"
    assert gist({"action": "write_file_result", "created": True, "size_bytes": 1200}) == "created, 1.2 kB"
    assert gist({"action": "mission_complete", "summary": "Done.\nReally."}) == "Done. Really."
    assert gist(None) == ""


def test_invisible_characters_are_seen() -> None:
    assert block("a\tb\n\x1b[0m\u202e") == "a\tb\n<U+001B>[0m<U+202E>"
    assert one_line("a\tb\n\r") == "a<U+0009>b<U+000A><U+000D>"
    assert json_block("\ud800\x7f\u2028\t") == '"\\ud800\\u007f\\u2028\\t"'


def test_the_axis_has_marks_at_equal_distances_also_across_shortened_idle_time() -> None:
    busy = _draw(_moves(1, (0, "queued"), (0, "started"), (10, "succeeded")))
    assert busy.ticks == pytest.approx([0, 2, 4, 6, 8])
    idle = _draw(
        _moves(1, (0, "queued"), (0, "started"), (10, "succeeded")),
        _moves(2, (10, "queued"), (1010, "started"), (1020, "succeeded")),
    )
    assert idle.ticks[:3] == pytest.approx([0, 4.8, 9.6])
    assert idle.ticks[3] == pytest.approx(1010 + 0.4)
    assert [*idle.ticks] == sorted(idle.ticks)
    assert _draw(_moves(1, (0, "queued"))).ticks == [0] * 5
