"""Jobs are found where they can be, and none is missed, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.api.engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import JobFilter

JOBS: JsonValue = [
    {"name": "look", "kind": "list_files", "params": {}},
    {"name": "miss", "kind": "read_file", "params": {"rel_path": "not-there"}},
    {"name": "ask", "kind": "write_file", "params": {"rel_path": "a.md", "content": "x"}},
]
REPLIES: JsonValue = [{"ok": True, "action": "create_followup_jobs", "new_jobs": JOBS}]
EMPTY_ENVIRONMENT = 10**6


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Iterator[Engine]:
    """Three missions side by side, so that their jobs alternate, and one that has just begun."""
    planner: JsonValue = {"type": "script", "replies": REPLIES}
    spec = {"goal": "x", "planner": planner}
    with Engine(database_url) as engine:
        for _ in range(3):
            engine.launch(spec, root=tmp_path)
        engine.work(until_idle=True, threads=2)
        engine.launch(spec, root=tmp_path)
        yield engine


@table("newest_first", [False, True])
@table("mission", [None, 1, 2, 3, 4, EMPTY_ENVIRONMENT])
def test_every_job_that_fits_is_found(engine: Engine, mission: int | None, newest_first: bool) -> None:
    read = engine.instance.database.read
    everything = sorted(engine.jobs(), key=lambda job: job.id, reverse=newest_first)
    assert len(everything) > 12
    for states in ([], *([state.value] for state in State), ["failed", "held"], ["held", "queued"]):
        wanted = [
            job.id for job in everything
            if mission in (None, job.mission_id) and (not states or job.state in states)
        ]  # fmt: skip
        found = engine.jobs(mission_id=mission, states=states, newest_first=newest_first)
        assert [job.id for job in found] == wanted
        few = engine.jobs(mission_id=mission, states=states, newest_first=newest_first, limit=2)
        assert [job.id for job in few] == wanted[:2]
        sought = JobFilter(mission, states)
        heads = read(partial(pages.find_held_heads, wanted=sought, among=None, limit=99))
        assert [head.id for head in heads] == sorted(wanted)


def test_a_page_goes_on_where_the_one_before_ended(engine: Engine) -> None:
    seen: list[JsonValue] = []
    behind = None
    while True:
        of_mission = partial(pages.page_jobs, wanted=JobFilter(2), behind=behind, limit=2)
        page = engine.instance.database.read(of_mission)
        seen += [row["id"] for row in page.rows]
        behind = page.behind
        if behind is None:
            break
    assert seen == [job.id for job in engine.jobs(mission_id=2)]
