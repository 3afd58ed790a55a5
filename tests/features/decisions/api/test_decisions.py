"""Decisions of people are listed over all missions: who, what, when, with which words, and what was shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine import Engine, LcpError
from lcp_engine.features.decisions import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcp_engine.features.decisions.calls import Decision

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


def _write(path: str) -> JsonValue:
    return {"kind": "write_file", "params": {"rel_path": path, "content": f"{path}\n"}}


def _hold(engine: Engine, root: Path, *jobs: JsonValue, **spec: JsonValue) -> list[int]:
    """The held jobs of a mission that asks for these; its planner has nothing to add to what people say."""
    first: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}
    planner: JsonValue = {"type": "script", "replies": [first, DONE, DONE]}
    mission = engine.launch({"goal": "Go on.", "planner": planner, **spec}, root=root)
    engine.work(until_idle=True)
    return [job.id for job in engine.jobs(mission_id=mission.id, states=["held"])]


def _told(rows: Sequence[Decision]) -> list[tuple[str, str, str, str]]:
    return [(one.by, one.decision, one.about, one.words) for one in rows]


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Engine:
    (tmp_path / "root").mkdir()
    return Engine(database_url)


@pytest.mark.both
def test_decisions_of_all_missions_have_their_words_and_what_was_shown(
    engine: Engine, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "a.txt").write_text("before\n")
    with engine:
        first, second, third = _hold(engine, root, _write("a.txt"), _write("b.txt"), _write("c.txt"))
        question: JsonValue = {"kind": "ask_user", "params": {"question": "Which one?"}}
        (asked,) = _hold(engine, root, question)
        look = engine.look(first)
        engine.approve(first, by="anna", shown=look.sight, words="But gently.")
        engine.approve(second, by="ben", params={"rel_path": "b.txt", "content": "other\n"})
        engine.reject(third, "Not 100 % \\ _this_.", by='ann"a')
        engine.answer(asked, "The second.", by="anna")
        found = engine.decisions()
        assert found.behind is None
        assert _told(found.rows) == [
            ("anna", "answer", "Which one?", "The second."),
            ('ann"a', "reject", "c.txt", "Not 100 % \\ _this_."),
            ("ben", "approve", "b.txt", ""),
            ("anna", "approve", "a.txt", "But gently."),
        ]
        assert [one.other_params for one in found.rows] == [False, False, True, False]
        approved = found.rows[-1]
        assert (approved.path, approved.found) == ("a.txt", look.sight.found)
        assert [one.job_id for one in engine.decisions(by="anna").rows] == [asked, first]
        assert [one.job_id for one in engine.decisions(by='ann"a').rows] == [third]
        assert engine.decisions(by="ANNA").rows == []
        assert [one.job_id for one in engine.decisions(kind="ask_user").rows] == [asked]
        assert len(engine.decisions(mission_id=approved.mission_id).rows) == 3
        now = engine.instance.database.now()
        assert engine.decisions(since=now).rows == []
        assert len(engine.decisions(until=now, since=0).rows) == 4


@pytest.mark.both
def test_decisions_are_read_page_by_page_however_few_of_them_fit(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SEARCHED", 3)
    with engine:
        limits: JsonValue = {"max_followups": 9}
        held = _hold(engine, tmp_path / "root", *(_write(f"{n}.txt") for n in range(9)), limits=limits)
        for job in held:
            engine.reject(job, "No.", by="anna" if job == held[0] else "ben")
        behind: str | None = None
        found: list[Decision] = []
        for _ in range(9):
            page = engine.decisions(by="anna", limit=2, behind=behind)
            found += page.rows
            behind = page.behind
            if behind is None:
                break
        assert [one.job_id for one in found] == held[:1]
        pages = engine.decisions(limit=2), engine.decisions(limit=2, behind=engine.decisions(limit=2).behind)
        assert [one.job_id for page in pages for one in page.rows] == held[:-5:-1]
        with pytest.raises(LcpError, match="no place in a list"):
            engine.decisions(behind="1.2")


@pytest.mark.both
def test_decisions_of_one_moment_are_on_one_page_each(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SEARCHED", 3)
    with engine:
        for job in (held := _hold(engine, tmp_path / "root", *(_write(f"{n}.txt") for n in range(5)))):
            engine.reject(job, "No.", by="anna")
        engine.instance.database.write(
            lambda tx: tx.plain("UPDATE events SET at = 5 WHERE event = 'decided'")
        )
        first = engine.decisions()
        rest = engine.decisions(behind=first.behind)
        assert [one.job_id for page in (first, rest) for one in page.rows] == held[::-1]


@pytest.mark.both
def test_what_no_database_has_finds_nothing(engine: Engine, tmp_path: Path) -> None:
    with engine:
        (held,) = _hold(engine, tmp_path / "root", _write("a.txt"))
        engine.reject(held, "No.", by="anna")
        for none in (
            engine.decisions(mission_id=10**20), engine.decisions(since=10**20), engine.decisions(by="a\0"),
            engine.decisions(by="\udcff"), engine.decisions(kind="\0"),
        ):  # fmt: skip
            assert not none.rows
        assert [one.job_id for one in engine.decisions(until=10**20, limit=10**20).rows] == [held]
