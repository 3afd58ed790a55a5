"""Caches that a command of a mission writes are there for the next one, and for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.engine.conftest import Lab
from tests.features.programs.engine.test_run_command import AUTO, DONE, ask
from tests.tables import table
from tests.walls import NEEDS_OVERLAY

from lcp_engine.features.programs.wall.layers.layer import Layer

pytestmark = NEEDS_OVERLAY
NOBODY = 65534
LOOK = "cat ~/.cache/x 2>/dev/null || echo cold"
WARM = "mkdir -p ~/.cache && echo warm > ~/.cache/x"


def results(lab: Lab, *commands: list[str], seconds: int = 20) -> list[dict[str, JsonValue]]:
    allowed: JsonValue = {"allow": [[one[0], "..."] for one in commands], "seconds": seconds}
    mission = lab.run(*map(ask, commands), DONE, commands=allowed, policy=[*AUTO])
    ran = (job for job in lab.jobs(mission.id) if job.kind == "run_command")
    return [job.result or {"stdout": str(job.error)} for job in ran]


def said(lab: Lab, *scripts: str, seconds: int = 20) -> list[str]:
    found = results(lab, *(["sh", "-c", one] for one in scripts), seconds=seconds)
    return [str(one["stdout"]).strip() for one in found]


@table(
    "first",
    [
        pytest.param(f"{WARM}; mkdir ~/.config; echo x > ~/.config/x", id="alone"),
        pytest.param(f"{WARM}; echo x > source", id="beside source that is dropped"),
        pytest.param(f"{WARM}; false", id="by a command that does not pass"),
        pytest.param(f"{WARM}; mkdir -p ~/.cargo/registry; chmod 0 ~/.cargo ~/.cache; true", id="closed"),
    ],
)
def test_a_cache_is_there_for_the_next_command_and_settings_are_not(lab: Lab, first: str) -> None:
    found = said(lab, first, f"chmod u+rwx ~/.cache; {LOOK}; ls ~/.config 2>&1 | grep -c x")
    assert found[1] == "warm\n0"
    assert [path.name for path in lab.root.iterdir()] == []


@pytest.mark.parametrize("end", ["sleep 60", "kill -9 $$"])
def test_a_command_that_was_stopped_or_killed_leaves_no_cache(lab: Lab, end: str) -> None:
    assert said(lab, WARM, f"echo half > ~/.cache/x; {end}", LOOK, seconds=2)[2] == "warm"


def test_another_mission_begins_without_the_cache(lab: Lab) -> None:
    assert said(lab, WARM, LOOK)[1] == "warm"
    assert said(lab, LOOK) == ["cold"]


def test_a_full_cache_is_emptied_and_output_is_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {**(Layer.__init__.__kwdefaults__ or {}), "most_files": 30}
    monkeypatch.setattr(Layer.__init__, "__kwdefaults__", defaults)
    (lab.root / ".gitignore").write_text("out/\n")
    fill = "mkdir -p ~/.cache/more out; for n in $(seq {}); do touch ~/.cache/more/$n; done; touch out/{}"
    count = "ls ~/.cache/more 2>/dev/null | wc -l; ls out"
    commands = [["sh", "-c", one] for one in (fill.format(20, 20), count, fill.format(40, 40), count)]
    first, warm, full, cold = results(lab, *commands)
    assert "left_out" not in first
    assert warm["stdout"] == "20\n20\n"
    assert "caches: " in str(full["left_out"])
    assert cold["stdout"] == "0\n20\n40\n"


def test_links_in_the_place_of_caches_lead_nothing_out_of_the_wall(lab: Lab, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "registry").mkdir(parents=True)
    (outside / "registry/x").write_text("SECRET")
    plant = (
        f"ln -s {outside} ~/.cargo; ln -s {outside} ~/.cache; mkdir ~/.npm; ln -s {outside} ~/.npm/_cacache"
    )
    look = "ls -A ~; cat ~/.cache/registry/x ~/.cargo/registry/x ~/.npm/_cacache/registry/x; rm ~/.cache"
    _, found, again = said(lab, plant, look, f"{WARM}; {LOOK}")
    assert found.split() == [".cache", ".npm"]
    assert again == "warm"
    assert [path.name for path in outside.rglob("*")] == ["registry", "x"]


def test_a_cache_of_this_user_is_seen_below_what_the_mission_wrote_into_it(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, programs = tmp_path / "npm", tmp_path / "bin"
    for name in (".npmrc", "mine", "old"):
        (home / "in").mkdir(parents=True, exist_ok=True)
        (home / ("" if name == ".npmrc" else "in") / name).write_text(f"{name}\n")
    programs.mkdir()
    (programs / "npm").write_text('#!/bin/sh\ncd "$npm_config_cache" && eval "$1"\n')
    (programs / "npm").chmod(0o755)
    monkeypatch.setenv("npm_config_cache", str(home))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    look = "cat in/mine in/old in/new; ls -A . in"
    first = ["npm", "echo new | tee in/new in/mine; rm in/old; touch .npmrc"]
    _, before = results(lab, first, ["npm", look])
    assert before["stdout"] == "new\nnew\n.:\nin\n\nin:\nmine\nnew\n"
    assert {path.name: path.read_text() for path in home.rglob("*") if path.is_file()} == {
        ".npmrc": ".npmrc\n",
        "mine": "mine\n",
        "old": "old\n",
    }

    def change() -> None:
        (home / "in/mine").write_text("newer\n")

    lab.meanwhile.append(change)
    do: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "do", "params": {}}],
    }
    commands: JsonValue = {"allow": [["npm", "..."]], "seconds": 20}
    mission = lab.run(ask(first), do, ask(["npm", look]), DONE, commands=commands, policy=[*AUTO])
    *_, last = (job for job in lab.jobs(mission.id) if job.kind == "run_command")
    assert last.result is not None
    assert str(last.result["stdout"]).startswith("newer\nnew\n"), last.result


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs commands as another user")
def test_the_owner_of_a_root_goes_on_writing_beside_what_was_kept(lab: Lab) -> None:
    (lab.root / "src/in").mkdir(parents=True)
    (lab.root / ".gitignore").write_text("*.o\n")
    for path in (lab.root, *lab.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    first = "mkdir -p ~/.cargo/registry; touch ~/.cargo/registry/a src/in/a.o"
    again = "touch ~/.cargo/b ~/.cargo/registry/b src/in/b.o src/c.o && ls ~/.cargo/registry src/in && id -u"
    assert said(lab, first, again)[1].split() == [
        "/home/lcp/.cargo/registry:", "a", "b", "src/in:", "a.o", "b.o", str(NOBODY)
    ]  # fmt: skip
