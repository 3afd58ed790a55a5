"""A wall that commands may not have here is refused in one line, with advice that helps; nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.walls import NEEDS_LANDLOCK

from lcp_engine import Engine, Isolation, Job, LcpError
from lcp_engine.core.programs.walls import Step
from lcp_engine.features.programs.wall import bubblewrap
from lcp_engine.features.programs.wall.bubblewrap import find_bubblewrap

REFUSES = "bwrap: Creating new namespace failed: Operation not permitted"


def _setuid(path: Path) -> None:
    shutil.copy("/bin/true", path)
    path.chmod(0o4755)


def _saying(version: str, refusal: str = "") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        script = f"[ $1 = --version ] && exec echo bubblewrap {version}\necho '{refusal}' >&2\nexit 1"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


CASES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "missing": (lambda path: None, "bubblewrap is not installed", "Install the system's package bubblewrap"),
    "old": (_saying("0.4.1"), "is version 0.4.1; 0.8 is needed", "Install bubblewrap 0.8 or newer"),
    "setuid": (_setuid, "is setuid, which it must not be", "chmod u-s,g-s "),
    "refused": (_saying("0.11.0", REFUSES), REFUSES, "Allow programs of this user to make user namespaces"),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def refused(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """A machine whose bubblewrap may not be used: a part of the reason, and of the advice."""
    make, reason, advice = request.param
    monkeypatch.setattr(bubblewrap, "PLACES", (str(tmp_path / "bwrap"),))
    monkeypatch.setattr(bubblewrap, "packaged", tuple)
    make(tmp_path / "bwrap")
    find_bubblewrap.cache_clear()
    yield reason, advice
    find_bubblewrap.cache_clear()


def ran(
    place: Path, walls: Sequence[str] | None = None, isolation: Isolation = Isolation.AUTO
) -> tuple[Job, list[Path]]:
    """A command of a mission, and what is left of its wall."""
    (place / "root").mkdir()
    command: JsonValue = ["sh", "-c", "echo it runs"]
    jobs: JsonValue = [{"kind": "run_command", "params": {"command": command}}]
    asks: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
    spec: dict[str, JsonValue] = {
        "goal": "Run.",
        "planner": {"type": "script", "replies": [asks, done]},
        "commands": {"allow": [command]},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
    }
    with Engine(sqlite_url(place), isolation=isolation, commands_wall=walls) as engine:
        mission = engine.launch(spec, root=place / "root")
        engine.work(until_idle=True)
        (job,) = engine.jobs(mission_id=mission.id, kinds=["run_command"])
        walls_place = engine.instance.walls
        assert walls_place is not None
        return job, [*walls_place.iterdir()] if walls_place.exists() else []


@pytest.mark.parametrize(
    ("walls", "isolation"),
    [(["overlay"], Isolation.AUTO), (None, Isolation.REQUIRE)],
    ids=["named", "required"],
)
def test_a_wall_that_is_refused_says_why_and_what_helps(
    refused: tuple[str, str], walls: Sequence[str] | None, isolation: Isolation, tmp_path: Path
) -> None:
    job, left = ran(tmp_path, walls, isolation)
    assert job.error is not None
    message, advice = str(job.error["user_message"]), str(job.error["recommended_actions"])
    assert job.error["error_code"] == "NOT_ISOLATED"
    assert message.startswith("sh cannot be confined: overlay: ")
    assert refused[0] in message
    assert refused[1] in advice
    assert "\n" not in message + advice
    assert left == []


@NEEDS_LANDLOCK
def test_without_that_the_weakest_wall_is_used_where_it_may_be(
    refused: tuple[str, str], tmp_path: Path
) -> None:
    job, left = ran(tmp_path)
    assert (job.result or {}).get("stdout") == "it runs\n", (job.error, refused)
    assert left == []


def test_a_wall_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LcpError) as caught:
        Engine(sqlite_url(tmp_path), commands_wall=[Step.COPY, "jail"])
    assert str(caught.value) == "commands_wall.1: should be 'overlay', 'copy' or 'landlock', not \"jail\""
