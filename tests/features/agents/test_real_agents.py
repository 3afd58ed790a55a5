"""Real agents work against a model of ours: they edit, run, finish, and go on after they were killed.

Each is installed when it is first tested, of the version that its preset names, into a directory that stays. Where that
is not possible, its tests are skipped, or fail with LCP_TEST_REQUIRE_AGENTS.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.features.agents.model_server import LAST_WORDS, Model, serving
from tests.walls import NEEDS_OVERLAY

from lcp_engine import Engine, ErrorCode
from lcp_engine.core.job_states import State
from lcp_engine.features.agents.presets import PRESETS

PLACE = Path(__file__).parents[3] / ".agents"
INSTALL_SECONDS = 300.0
IS_REQUIRED = bool(os.environ.get("LCP_TEST_REQUIRE_AGENTS"))
SUFFIXES = {"claude": "", "gemini": ""}
"""The end of an endpoint; `/v1` of the others."""
KEY = "sk-test-4f9a8b7c6d5e4f3a2b1c"
NOTES = "notes of an agent"
RUN = ("run", "wc -c NOTES.md; echo ran >RAN")
WITHOUT_TOOLS = f"NOTES.md\n```\n{NOTES}\n```\n{LAST_WORDS}"
"""Words that `aider` makes a file of."""
MADE = {"a.txt": "one\n", "NOTES.md": NOTES, "RAN": "ran\n"}

pytestmark = [NEEDS_OVERLAY, pytest.mark.proof, pytest.mark.turns(len(PRESETS))]


def install(agent: str) -> None:
    """Install an agent unless it is there. One that cannot be is skipped, unless it is required."""
    PLACE.mkdir(exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program, package = PRESETS[agent].command[0], PRESETS[agent].package
        if (PLACE / "bin" / program).exists():
            return
        if "==" in package and not IS_REQUIRED:
            pytest.skip(f"{package} takes a minute to install: make agents")
        try:
            _install(agent, program, package)
        except (OSError, subprocess.SubprocessError) as error:
            (pytest.fail if IS_REQUIRED else pytest.skip)(f"{package} cannot be installed: {error}")


def _install(agent: str, program: str, package: str) -> None:
    if "==" not in package:
        npm = (
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--global",
            "--prefix",
            str(PLACE),
            package,
        )
        subprocess.run(npm, check=True, timeout=INSTALL_SECONDS, capture_output=True)
        return
    place = PLACE / agent
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True, timeout=INSTALL_SECONDS)
    pip = (
        str(place / "bin" / "python"),
        "-m",
        "pip",
        "-qq",
        "--disable-pip-version-check",
        "install",
        package,
    )
    subprocess.run(pip, check=True, timeout=INSTALL_SECONDS, capture_output=True)
    (PLACE / "bin").mkdir(exist_ok=True)
    (PLACE / "bin" / program).symlink_to(place / "bin" / program)


class Shop:
    """An engine whose missions have an agent as planner that asks the model at a port."""

    def __init__(self, place: Path, agent: str, model: Model) -> None:
        self.root, self.url, self.agent = place / "root", sqlite_url(place), agent
        self.root.mkdir()
        (self.root / "a.txt").write_text("one\n")
        model.steps = [("write", str(self.root / "NOTES.md"), NOTES), RUN]
        if agent == "mini":
            model.steps = [
                *model.steps,
                ("run", f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {LAST_WORDS}"),
            ]
        granted: JsonValue = [{"name": "model.example", "address": "127.0.0.1", "port": model.port}]
        self.network: JsonValue = {"hosts": granted}
        self.engine = Engine(self.url, commands_network={"hosts": granted})
        endpoint = f"http://127.0.0.1:{model.port}{SUFFIXES.get(agent, '/v1')}"
        self.spec: dict[str, JsonValue] = {
            "goal": "Write NOTES.md and count it.", "stage": True,
            "planner": {"type": "program", "agent": agent, "model": "m", "endpoint": endpoint, "silence": 60},
            "commands": {"network": {"hosts": ["model.example"]}},
            "kinds": {"agent_plan": {"timeout": 120}},
        }  # fmt: skip

    def merged(self, mission: int) -> dict[str, str]:
        """The files of the root once what the mission did is merged."""
        (merge,) = self.engine.jobs(mission_id=mission, states=[State.HELD])
        assert merge.kind == "merge"
        self.engine.diff(merge.id, by="ada")
        self.engine.approve(merge.id, by="ada")
        self.engine.work(until_idle=True, mission_id=mission)
        return {one.name: one.read_text() for one in self.root.iterdir() if one.is_file()}


@contextmanager
def shop(place: Path, agent: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    install(agent)
    monkeypatch.setenv("PATH", f"{PLACE / 'bin'}:{os.environ['PATH']}")
    for name in PRESETS[agent].keys:
        monkeypatch.setenv(name, KEY)
    with serving(model):
        made = Shop(place, agent, model)
        with made.engine:
            yield made


@pytest.mark.parametrize("agent", PRESETS)
def test_an_agent_edits_runs_and_finishes(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model([], WITHOUT_TOOLS if agent == "aider" else LAST_WORDS)
    with shop(tmp_path, agent, model, monkeypatch) as made:
        mission = made.engine.launch(made.spec, root=made.root).id
        made.engine.work(until_idle=True)
        (turn,) = made.engine.turns(mission)
        assert LAST_WORDS in str(turn["reply"]), (
            turn["reply"] or (made.engine.jobs()[0].error or {})["user_message"]
        )
        merged = {name: text.rstrip() for name, text in made.merged(mission).items()}
        assert merged == {
            name: text.rstrip() for name, text in MADE.items() if (name, agent) != ("RAN", "aider")
        }
        made.engine.undo(mission)
        assert [one.name for one in made.root.iterdir()] == ["a.txt"]
        assert model.keys == {KEY}
        assert KEY not in str(turn)


@pytest.mark.parametrize("agent", sorted({*PRESETS} - {"aider"}))
def test_an_agent_that_is_killed_with_its_runner_at_each_step_goes_on(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runners: list[subprocess.Popen[bytes]] = []
    killed: set[int] = set()

    def kill(step: int) -> None:
        if step not in killed:
            killed.add(step)
            runners[-1].kill()

    model = Model([], before=kill)
    with shop(tmp_path, agent, model, monkeypatch) as made:
        (tmp_path / "lcp-engine").mkdir()
        (tmp_path / "lcp-engine" / "config.yaml").write_text(json.dumps({"commands_network": made.network}))
        mission = made.engine.launch(made.spec, root=made.root).id
        command = [sys.executable, "-m", "lcp_engine", "work", "--until-idle", "--db", made.url]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
        while made.engine.mission(mission).status == "running":
            assert len(runners) < 8
            runners.append(subprocess.Popen(command, env=environment, start_new_session=True))
            runners[-1].wait(120)
        assert killed == {0, 1, 2}
        assert len(runners) == 4
        if PRESETS[agent].resume:
            assert model.results.count(0) <= 2, model.results  # its session has what it had done
        assert made.merged(mission) == MADE


@pytest.mark.parametrize("agent", ["codex", "opencode"])
def test_a_key_that_is_refused_ends_the_mission_in_words(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(tmp_path, agent, Model([], status=401), monkeypatch) as made:
        mission = made.engine.launch(made.spec, root=made.root).id
        made.engine.work(until_idle=True)
        (job,) = made.engine.jobs(kinds=["agent_plan"])
        assert made.engine.mission(mission).status == "failed"
        assert job.error is not None
        assert job.error["error_code"] == ErrorCode.PLANNER_REFUSED
        assert f"{agent} failed: " in str(job.error["user_message"])
        assert "OPENAI_API_KEY" in str(job.error)
