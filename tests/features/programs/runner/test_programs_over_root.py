"""Programs of kinds that need the root run behind the wall of commands, and what they change has the same end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.walls import NEEDS_OVERLAY

from lcp_engine import Engine, Job, Mission
from lcp_engine.features.programs.servers.external_worker import kinds_in

pytestmark = NEEDS_OVERLAY

BUILD = """\
read -r job
cat .env 2>/dev/null && exit 1
echo new >a.txt
rm b.txt
mkdir -p out && echo built >out/built
echo key >key.pem
echo "{\\"result\\": {\\"in\\": \\"$PWD\\"}}"
"""
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


class Workshop:
    """A root with a few files, and a kind `build` whose program changes them."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place, place / "root"
        self.root.mkdir()
        for name, text in {
            "a.txt": "old\n",
            "b.txt": "b\n",
            ".env": "SECRET=1\n",
            ".gitignore": "out/\n",
        }.items():
            (self.root / name).write_text(text)
        (place / "build").write_text(f"#!/bin/sh\n{BUILD}")
        (place / "build").chmod(0o755)

    def run(self, needs: JsonValue, **spec: JsonValue) -> tuple[Engine, Mission, Job]:
        """The first job of a mission that requests it, once nothing is left to do."""
        workers = [*kinds_in({"build": {"command": "./build", "needs": {"root": needs}}}, self.place)]
        engine = Engine(sqlite_url(self.place), workers=workers)
        reply: JsonValue = {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [{"kind": "build", "params": {}}],
        }
        whole: dict[str, JsonValue] = {
            "goal": "Build it.",
            "planner": {"type": "script", "replies": [reply, DONE]},
            "policy": [{"kinds": ["build"], "do": "auto"}],
            **spec,
        }
        launched = engine.launch(whole, root=self.root).id
        engine.work(until_idle=True)
        return engine, engine.mission(launched), engine.jobs(kinds=["build"])[0]

    @staticmethod
    def said(job: Job) -> tuple[str, list[str]]:
        """Where the program ran, and what was not kept."""
        assert job.result is not None
        left_out = job.result.get("left_out", [])
        assert isinstance(left_out, list)
        return str(job.result["in"]), [*map(str, left_out)]

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.root.iterdir() if path.is_file()}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


BEFORE = {"a.txt": "old\n", "b.txt": "b\n", ".env": "SECRET=1\n", ".gitignore": "out/\n"}
AFTER = {"a.txt": "new\n", ".env": "SECRET=1\n", ".gitignore": "out/\n"}


def test_it_sees_the_root_at_its_own_path_without_secrets(workshop: Workshop) -> None:
    engine, _, job = workshop.run("read")
    with engine:
        assert workshop.said(job)[0] == str(workshop.root)
        assert workshop.files() == BEFORE


def test_in_a_stage_its_changes_become_part_of_that_and_are_merged(workshop: Workshop) -> None:
    engine, mission, job = workshop.run("write", stage=True)
    with engine:
        where, (left_out,) = workshop.said(job)
        assert where == str(workshop.root)
        assert "key.pem" in left_out
        (merge,) = engine.jobs(kinds=["merge"])
        assert_it_is_applied_and_undone(workshop, engine, mission, merge)


def test_they_wait_for_a_person_where_the_mission_holds_them(workshop: Workshop) -> None:
    engine, mission, job = workshop.run("write", commands={"changes": "hold"})
    with engine:
        (held,) = engine.jobs(kinds=["apply"])
        assert (job.result or {})["held_as_job"] == held.id
        assert_it_is_applied_and_undone(workshop, engine, mission, held)


def assert_it_is_applied_and_undone(workshop: Workshop, engine: Engine, mission: Mission, held: Job) -> None:
    assert workshop.files() == BEFORE
    engine.approve(held.id)
    engine.work(until_idle=True)
    assert workshop.files() == AFTER
    engine.undo(mission.id)
    engine.work(until_idle=True)
    assert workshop.files() == BEFORE


def test_elsewhere_they_are_dropped_and_named(workshop: Workshop) -> None:
    engine, _, job = workshop.run("write")
    with engine:
        _, (said,) = workshop.said(job)
        assert all(one in said for one in ("commands.changes", "a.txt", "b.txt", "key.pem"))
        assert workshop.files() == BEFORE


def test_a_kind_that_states_no_changes_fails_with_them(workshop: Workshop) -> None:
    engine, _, job = workshop.run(needs=True, stage=True)
    with engine:
        assert job.error is not None
        assert job.error["error_code"] == "NOT_ALLOWED"
        assert "a.txt" in str(job.error["user_message"])
        assert workshop.files() == BEFORE
