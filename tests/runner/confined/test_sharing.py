"""Two missions, or a mission and an editor, that write one file through confined processes lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine.api.engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.system.landlock import Isolation

APPENDS = """
import sys
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import only
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps
confinement = Confinement(Caps())
with Root(sys.argv[1]) as root:
    files = confinement.files(60)
    for number in range(int(sys.argv[3])):
        with files.lock([(root, "log/lines")]) as locked:
            target = only(locked)
            current = target.read(None)
            line = f"{sys.argv[2]}-{number}\\n".encode()
            target.replace((current.data if current else b"") + line, temporary_name())
confinement.close()
"""
PROCESSES, LINES = 4, 200


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url, isolation=Isolation.REQUIRE) as opened:
        yield opened


@pytest.mark.proof
def test_no_line_of_four_processes_is_lost(place: Path) -> None:
    running = [Python("-c", APPENDS, place, nth, LINES) for nth in range(PROCESSES)]
    assert [one.wait() for one in running] == [0] * PROCESSES
    lines = (place / "log" / "lines").read_text().split()
    assert sorted(lines) == sorted(f"{nth}-{number}" for nth in range(PROCESSES) for number in range(LINES))
    assert [path.name for path in (place / "log").iterdir()] == ["lines"]


def held_write(engine: Engine, place: Path, content: str, mode: str = "overwrite") -> int:
    """A mission of its own whose one write of a.txt waits for a person, who has seen what it would change."""
    params: JsonValue = {"rel_path": "a.txt", "content": content, "mode": mode}
    asks: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "write_file", "params": params}],
    }
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    spec: dict[str, JsonValue] = {
        "name": "m", "goal": "g", "planner": {"type": "script", "replies": [asks, done]},
    }  # fmt: skip
    mission = engine.launch(spec, root=place).id
    engine.work(until_idle=True)
    (job,) = engine.jobs(mission_id=mission, states=[State.HELD])
    assert engine.diff(job.id)
    return job.id


def test_of_two_missions_the_second_does_not_write_over_the_first(engine: Engine, place: Path) -> None:
    first, second = held_write(engine, place, "first\n"), held_write(engine, place, "second\n")
    for job in (first, second):
        engine.approve(job)
    engine.work(until_idle=True)
    states = {engine.job(job).state for job in (first, second)}
    assert states == {State.SUCCEEDED, State.HELD}
    written = "first\n" if engine.job(first).state == State.SUCCEEDED else "second\n"
    assert (place / "a.txt").read_text() == written
    late = first if engine.job(first).state == State.HELD else second
    assert engine.diff(late)
    engine.approve(late)
    engine.work(until_idle=True)
    assert engine.job(late).state == State.SUCCEEDED


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_what_an_editor_wrote_meanwhile_is_kept(engine: Engine, place: Path, mode: str) -> None:
    job = held_write(engine, place, "from the mission\n", mode)
    engine.approve(job)
    (place / "a.txt").write_text("from the editor\n")
    engine.work(until_idle=True)
    assert engine.job(job).state == State.HELD
    assert (place / "a.txt").read_text() == "from the editor\n"
    engine.diff(job)
    (place / "a.txt").write_text("from the editor again\n")
    with pytest.raises(LcpError) as refused:
        engine.approve(job)
    assert refused.value.code is ErrorCode.CONFLICT
    engine.work(until_idle=True)
    assert (place / "a.txt").read_text() == "from the editor again\n"
