"""The shipped plan: parallel steps, a condition, a fallback, references and a step for the planner, exactly once."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.loaded_python import Python
from tests.shipped_missions.conftest import Twin, spec_of

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.policy import Verdict

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.shipped_missions.conftest import Stage

NOTES: JsonValue = {"ok": True, "action": "analysis_result", "summary": "- It counts words."}
GIVES_UP: JsonValue = {"ok": False, "action": "error", "error": "no words"}
CHANGELOG = "# Changelog\n\n## 1.0\n\n- Count words.\n"


def test_the_notes_are_written_in_the_words_of_the_planner(stage: Stage) -> None:
    (stage.root / "CHANGELOG.md").write_text(CHANGELOG)
    mission = stage.run("release-notes", Twin({}, [NOTES]))
    assert (mission.outcome, mission.turns) == ("plan_complete", 1)
    assert (stage.root / "RELEASE_NOTES.md").read_text() == "# Release notes\n\n- It counts words.\n"
    assert "The project has 2 open points" in (stage.root / "KNOWN_ISSUES.md").read_text()

    assert stage.engine.replay(mission.id).is_same


def test_without_open_points_nothing_is_listed(stage: Stage) -> None:
    (stage.root / "CHANGELOG.md").write_text(CHANGELOG)
    for file in ("README.md", "src/tally/main.py"):
        (stage.root / file).write_text("# Tally\n")
    mission = stage.run("release-notes", Twin({}, [NOTES]))
    assert mission.outcome == "plan_complete"
    assert not (stage.root / "KNOWN_ISSUES.md").exists()


def test_where_the_planner_gives_up_the_changelog_is_copied(stage: Stage) -> None:
    (stage.root / "CHANGELOG.md").write_text(CHANGELOG)
    mission = stage.run("release-notes", Twin({}, [GIVES_UP]))
    assert mission.outcome == "plan_complete"
    assert "the fallback plan-5a0c7f5e" in str(mission.summary)
    assert (stage.root / "RELEASE_NOTES.md").read_text() == f"# Release notes\n\n{CHANGELOG}\n"
    assert stage.engine.replay(mission.id).is_same


def test_without_a_changelog_the_mission_fails_and_says_what_was_missing(stage: Stage) -> None:
    mission = stage.run("release-notes", Twin({}, [NOTES]))
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert "$output.step-001.files[0]: $output.step-001.files is a list of 0" in str(mission.summary)


def _succeeded(engine: Engine, mission_id: int) -> list[str]:
    return [str(event["job_id"]) for event in engine.events(mission_id) if event["event"] == "succeeded"]


def _kill_after_a_job(command: list[str], engine: Engine, mission_id: int, seconds: float) -> None:
    """Kill a runner `seconds` after a job has succeeded in it: each life gets on, however slow its start is."""
    before = len(_succeeded(engine, mission_id))
    runner = Python(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while runner.poll() is None and len(_succeeded(engine, mission_id)) == before:
        with suppress(subprocess.TimeoutExpired):
            runner.wait(0.02)
    with suppress(subprocess.TimeoutExpired):
        runner.wait(seconds)
    runner.kill()
    runner.wait()


@pytest.mark.proof
@pytest.mark.parametrize(("seed", "replies"), [(0, [NOTES]), (1, [GIVES_UP])], ids=["plan", "fallback"])
def test_runners_killed_at_random_do_every_step_exactly_once(
    tmp_path: Path, seed: int, replies: list[JsonValue]
) -> None:
    root, url, chance = tmp_path / "root", f"sqlite:///{tmp_path}/lcp.db", random.Random(seed)
    root.mkdir()
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    (root / "README.md").write_text("# Tally\n\nTODO: say how it is installed.\n")
    spec = spec_of("release-notes", Twin({}, replies))
    free = spec.model_copy(
        update={"policy": tuple(rule.model_copy(update={"do": Verdict.AUTO}) for rule in spec.policy[:2])}
    )
    with Engine(url) as engine:
        mission_id = engine.launch(free, root=root).id
        command = ["-m", "lcp_engine", "--db", url, "work", "--until-idle"]
        for _ in range(30):
            _kill_after_a_job(command, engine, mission_id, chance.uniform(0, 0.4))
            if engine.mission(mission_id).status.has_ended:
                break
        deadline = time.monotonic() + 60
        while not engine.mission(mission_id).status.has_ended and time.monotonic() < deadline:
            engine.work(until_idle=True)
        mission = engine.mission(mission_id)
        assert mission.outcome == "plan_complete", mission.summary
        assert set(Counter(_succeeded(engine, mission_id)).values()) == {1}
        applied = Counter(
            change["path"] for change in engine.changes(mission_id) if change["state"] == "applied"
        )
        assert set(applied.values()) == {1}
        assert (root / "RELEASE_NOTES.md").read_text().startswith("# Release notes\n\n")
        assert engine.replay(mission_id).is_same
    assert check_database(url, kept_bytes=10) == []
