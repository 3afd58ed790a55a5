"""What the pages read, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import JsonValue

from lcp_engine.api import Engine
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import LARGEST, JobFilter, Page

T = TypeVar("T")
JOBS: list[JsonValue] = [
    {"kind": "write_file", "params": {"rel_path": "Ünï_100%.md", "content": 'say "hi"'}},
    {"kind": "write_file", "params": {"rel_path": "b.md", "content": "x" * LARGEST}},
    {"kind": "read_file", "params": {"rel_path": "gone.txt"}},
]
REPLIES: list[JsonValue] = [
    {"ok": True, "action": "create_followup_jobs", "new_jobs": JOBS},
    {"ok": True, "action": "mission_complete", "summary": "Done."},
]


class Books:
    """A database in which one mission ran: turn 1 asked for jobs 2 to 4, of which 2 and 3 are held; 5 is turn 2."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def read(self, look: Callable[[Tx], T]) -> T:
        return self.engine.site.database.read(look)

    def page(
        self, wanted: JobFilter, *, behind: int | None = None, limit: int = 9, newest_first: bool = False
    ) -> Page:
        return self.read(
            lambda tx: pages.page_jobs(tx, wanted, behind=behind, limit=limit, newest_first=newest_first)
        )

    def ids(self, wanted: JobFilter) -> Sequence[object]:
        return [row["id"] for row in self.page(wanted).rows]


@pytest.fixture
def books(database_url: str, tmp_path: Path) -> Iterator[Books]:
    root = tmp_path / "root"
    root.mkdir()
    with Engine(database_url) as engine:
        engine.launch({"goal": "Try.", "planner": {"type": "script", "replies": REPLIES}}, root=root)
        engine.work(until_idle=True)
        yield Books(engine)


def test_jobs_are_found_by_every_filter(books: Books) -> None:
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
        assert books.ids(wanted) == found, wanted


def test_a_page_ends_where_the_next_one_begins(books: Books) -> None:
    first = books.page(JobFilter(), limit=3, newest_first=True)
    assert ([row["id"] for row in first.rows], first.behind) == ([5, 4, 3], 3)
    rest = books.page(JobFilter(), behind=first.behind, limit=3, newest_first=True)
    assert ([row["id"] for row in rest.rows], rest.behind) == ([2, 1], None)
    assert [row["id"] for row in books.page(JobFilter(), behind=3, limit=9).rows] == [4, 5]
    missions = books.read(lambda tx: pages.page_missions(tx, before=None, status="completed", limit=1))
    assert ([row["id"] for row in missions.rows], missions.behind) == ([1], None)


def test_what_is_large_is_left_out_of_a_page(books: Books) -> None:
    params = [row["params"] for row in books.page(JobFilter(states=["held"])).rows]
    assert params == [{"rel_path": "Ünï_100%.md", "content": 'say "hi"'}, None]


def test_moves_questions_and_counts_are_read_for_a_range_of_jobs(books: Books) -> None:
    assert books.read(pages.count_held) == 2
    assert books.read(pages.count_runners) == 0
    moves = books.read(lambda tx: pages.find_moves(tx, 1, 4, 4))
    assert [move["event"] for move in moves] == ["queued", "started", "failed"]
    heads = books.read(lambda tx: pages.find_turn_heads(tx, 1, 1, 4))
    assert [(head["number"], head["job_id"]) for head in heads] == [(1, 1)]
    assert books.read(lambda tx: pages.find_turn(tx, 1, 2))["action"] == "mission_complete"
