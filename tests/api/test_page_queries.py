from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import JobFilter, Page, PageQueries
from lcp_engine.store.queries.pages import LARGEST

JOBS: list[JsonValue] = [
    {"kind": "write_file", "params": {"rel_path": "Ünï_100%.md", "content": 'say "hi"'}},
    {"kind": "write_file", "params": {"rel_path": "b.md", "content": "x" * LARGEST}},
    {"kind": "read_file", "params": {"rel_path": "gone.txt"}},
]
REPLIES: list[JsonValue] = [
    {"ok": True, "action": "create_followup_jobs", "new_jobs": JOBS},
    {"ok": True, "action": "mission_complete", "summary": "Done."},
]


def ids(page: Page) -> list[object]:
    return [row["id"] for row in page.rows]


@pytest.fixture
def queries(emptied_database_url: str, tmp_path: Path) -> Iterator[PageQueries]:
    """One mission: turn 1 requested the jobs 2 to 4, of which 2 and 3 are held; job 5 is turn 2."""
    root = tmp_path / "root"
    root.mkdir()
    with Engine(emptied_database_url) as engine:
        engine.launch({"goal": "Try.", "planner": {"type": "script", "replies": REPLIES}}, root=root)
        engine.work(until_idle=True)
        yield PageQueries(engine.instance)


def test_jobs_are_found_by_every_filter(queries: PageQueries) -> None:
    table: list[tuple[JobFilter, list[int]]] = [
        (JobFilter(), [1, 2, 3, 4, 5]),
        (JobFilter(mission_id=2), []),
        (JobFilter(states=["held"], mission_id=1), [2, 3]),
        (JobFilter(kind="read_file"), [4]),
        (JobFilter(text="100%"), [2]),
        (JobFilter(text="_100"), [2]),
        (JobFilter(text='say "hi"'), [2]),
        (JobFilter(text="GONE"), [4]),
        (JobFilter(text="1%0"), []),
        (JobFilter(text="%"), [2]),
        (JobFilter(text="\\"), []),
    ]
    for wanted, found in table:
        assert ids(queries.jobs(wanted, behind=None, limit=9)) == found, wanted


def test_a_search_stops_after_some_ids_and_goes_on_there(
    queries: PageQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcp_engine.store.queries.pages.JOBS_SEARCHED", 2)
    wanted = JobFilter(kind="agent_plan")
    found, behind = [], None
    for _ in range(3):
        page = queries.jobs(wanted, behind=behind, limit=9, newest_first=True)
        found.append(ids(page))
        behind = page.behind
    assert (found, behind) == ([[5], [], [1]], None)
    upwards = queries.jobs(wanted, behind=None, limit=9)
    assert (ids(upwards), upwards.behind) == ([1], 2)
    held = JobFilter(states=["held"], text="b.md")
    assert ids(queries.jobs(held, behind=None, limit=9, newest_first=True)) == [3], "an index finds those"
    counts = queries.job_counts(JobFilter(kind="agent_plan"))
    assert (counts.by_state, counts.are_all) == ({"succeeded": 1}, False)


def test_jobs_of_each_state_are_counted_as_the_filter_says(queries: PageQueries) -> None:
    table: list[tuple[JobFilter, dict[str, int]]] = [
        (JobFilter(), {"held": 2, "succeeded": 2, "failed": 1}),
        (JobFilter(mission_id=1, states=["held"]), {"held": 2, "succeeded": 2, "failed": 1}),
        (JobFilter(mission_id=7), {}),
        (JobFilter(kind="write_file"), {"held": 2}),
        (JobFilter(text="gone"), {"failed": 1}),
        (JobFilter(text="gone", mission_id=1), {"failed": 1}),
    ]
    for wanted, expected in table:
        counts = queries.job_counts(wanted)
        assert {state: count for state, count in counts.by_state.items() if count} == expected, wanted
        assert counts.are_all


@pytest.mark.parametrize("wanted", [JobFilter(text="\0"), JobFilter(kind="a\0b"), JobFilter(text="x\0")])
def test_no_text_has_a_null_character(queries: PageQueries, wanted: JobFilter) -> None:
    assert ids(queries.jobs(wanted, behind=None, limit=9)) == []
    assert not any(queries.job_counts(wanted).by_state.values())
    assert queries.held_heads(wanted, limit=9) == []


def test_the_oldest_missions_are_a_page_of_their_own(queries: PageQueries, tmp_path: Path) -> None:
    for text, status, expected in [
        ("", "", [1]),
        ("try", "", [1]),
        ("", "running", []),
        ("no", "", []),
        ("", "\0", []),
    ]:
        assert ids(queries.oldest_missions(status=status, text=text, limit=9)) == expected


def test_a_page_ends_where_the_next_one_begins(queries: PageQueries) -> None:
    first = queries.jobs(JobFilter(), behind=None, limit=3, newest_first=True)
    assert (ids(first), first.behind) == ([5, 4, 3], 3)
    rest = queries.jobs(JobFilter(), behind=first.behind, limit=3, newest_first=True)
    assert (ids(rest), rest.behind) == ([2, 1], None)
    assert ids(queries.jobs(JobFilter(), behind=3, limit=9)) == [4, 5]
    missions = queries.missions(before=None, status="completed", limit=1)
    assert (ids(missions), missions.behind) == ([1], None)


@pytest.mark.parametrize(
    ("text", "found"), [("", 1), ("TRY", 1), ("done", 1), ("roo", 1), ("T_y", 0), ("Try%", 0), ("\0", 0)]
)
def test_missions_are_found_and_counted_by_their_words(queries: PageQueries, text: str, found: int) -> None:
    assert len(queries.missions(before=None, status="", text=text, limit=9).rows) == found
    assert queries.mission_counts(text).by_status == ({"completed": 1} if found else {})


def test_jobs_are_set_in_their_mission_with_the_words_of_their_turn(queries: PageQueries) -> None:
    rows = queries.jobs(JobFilter(), behind=None, limit=9).rows
    settings = queries.settings_of(rows)
    assert {setting.goal for setting in settings.values()} == {"Try."}
    assert settings[2].words is None
    assert queries.settings_of([]) == {}


def test_the_overview_has_roots_and_counts(queries: PageQueries) -> None:
    (root,) = queries.roots(limit=9).rows
    assert (root.missions, root.open, root.held, root.newest) == (1, 0, 2, 1)
    assert root.root.endswith("root")
    assert queries.overview().jobs["held"] == 2


def test_what_is_large_is_left_out_of_a_page(queries: PageQueries) -> None:
    held = queries.jobs(JobFilter(states=["held"]), behind=None, limit=9)
    params = [row["params"] for row in held.rows]
    assert params == [{"rel_path": "Ünï_100%.md", "content": 'say "hi"'}, None]


def test_state_changes_questions_and_counts_are_read_for_a_range_of_jobs(queries: PageQueries) -> None:
    assert queries.held_count() == 2
    assert queries.runners() == []
    (job,) = queries.jobs(JobFilter(kind="read_file"), behind=None, limit=9).rows
    changes = queries.state_changes(1, [job])
    assert [change["event"] for change in changes] == ["queued", "started", "failed"]
    heads = queries.turn_heads(1, 1, 4)
    assert [(head["number"], head["job_id"]) for head in heads] == [(1, 1)]
    assert queries.turn(1, 2)["action"] == "mission_complete"
