"""`lcp doctor --commands MISSION` tries the programs of a mission, and says the line that mends what does not run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.walls import NEEDS_LANDLOCK, NEEDS_OVERLAY

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp

pytestmark = NEEDS_LANDLOCK


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def tried(
    lcp: Lcp, *programs: str, commands: dict[str, JsonValue] | None = None, path: str = "", **more: str
) -> Done:
    allow: JsonValue = [[one, "..."] for one in programs]
    mission = lcp.home / "mission.json"
    mission.write_text(json.dumps({"goal": "a", "commands": {"allow": allow, **(commands or {})}}))
    arguments = ("doctor", "--commands", mission, "--root", "root", "--json")
    return lcp(*arguments, PATH=f"{path}{os.pathsep}{os.environ['PATH']}", **more)


def of(done: Done, name: str) -> tuple[JsonValue, JsonValue, JsonValue]:
    checks = done.object["checks"]
    assert isinstance(checks, list)
    (check,) = (one for one in checks if isinstance(one, dict) and one["about"] == name)
    return check["grade"], check["fact"], check["advice"]


def test_programs_that_run_say_their_version(lcp: Lcp) -> None:
    done = tried(lcp, "sh", "python3", "make")
    assert done.code == 0, done.out
    assert of(done, "sh") == ("ok", "starts", None)
    assert of(done, "python3")[0] == "ok"
    assert str(of(done, "python3")[1]).startswith("Python 3.")


def test_a_line_that_is_drawn_is_no_version(lcp: Lcp) -> None:
    place = program(lcp.home / "bin/drawn", "printf '\\n------\\nDrawn 4.4\\n------\\n'").parent
    assert of(tried(lcp, "drawn", path=str(place)), "drawn") == ("ok", "Drawn 4.4", None)


def test_what_a_program_says_before_its_version_is_none(lcp: Lcp) -> None:
    place = program(lcp.home / "bin/first", "echo no settings here; echo 4.6 from there").parent
    program(place / "named", "echo Other/OTP 25 1.2; echo; echo Named 1.14 for Other 24")
    done = tried(lcp, "first", "named", path=str(place))
    assert of(done, "first") == ("ok", "4.6 from there", None)
    assert of(done, "named") == ("ok", "Named 1.14 for Other 24", None)


def test_a_program_that_cannot_read_what_it_needs_is_mended_by_the_line_that_is_shown(
    lcp: Lcp,
) -> None:
    home = lcp.home / "home"
    word, more = home / ".greet/word", home / ".config/greet/more"
    for file in (word, more, home / ".cache/greet/left"):
        file.parent.mkdir(parents=True)
        file.write_text("hello\n")
    place = program(lcp.home / "tools/greet", f"cat {more} > /dev/null && exec cat {word}").parent
    done = tried(lcp, "greet", path=str(place), HOME=str(home))
    assert done.code == 1, done.out
    line = "commands_read: [~/.greet, ~/.config/greet]"
    assert of(done, "greet") == ("fail", "cannot read ~/.greet and ~/.config/greet", line)
    config = Path(lcp.environment["XDG_CONFIG_HOME"], "lcp-engine", "config.yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"{line}\n")
    done = tried(lcp, "greet", path=str(place), HOME=str(home))
    assert (done.code, of(done, "greet")) == (0, ("ok", "hello", None)), done.out


@NEEDS_OVERLAY
@pytest.mark.parametrize("wall", ["overlay", "landlock"])
def test_programs_are_tried_behind_the_wall_that_commands_have(lcp: Lcp, wall: str) -> None:
    place = program(lcp.home / "tools/where", "cat /etc/hostname || echo nowhere").parent
    config = Path(lcp.environment["XDG_CONFIG_HOME"], "lcp-engine", "config.yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"commands_wall: [{wall}]\n")
    done = tried(lcp, "where", path=str(place))
    in_namespaces = wall == "overlay"
    assert ("namespaces" in str(of(done, "wall")[1])) is in_namespaces
    assert (of(done, "where")[1] == "lcp") is in_namespaces


def test_what_does_not_start_is_named(lcp: Lcp) -> None:
    place = program(lcp.home / "tools/refuses", "echo unknown option >&2; exit 3").parent
    program(lcp.root / "good", "exit 1")
    (lcp.root / "bad").write_text("")
    program(lcp.root / "lost", "").write_text("#!/no/interpreter\n")
    done = tried(lcp, "no-such-program", "refuses", "./good", "./bad", "./lost", path=str(place))
    assert done.code == 1
    advice = "Install it, or start the runner with its PATH."
    assert of(done, "no-such-program") == ("fail", "is in no directory of PATH", advice)
    said = "--version: exit code 3: unknown option"
    assert of(done, "refuses") == ("warn", said, "All is well if it has no such option.")
    assert of(done, "./good") == ("ok", "is in the root, and can be executed", None)
    assert of(done, "./bad")[:2] == ("fail", "is not a file that may be executed")
    assert of(done, "./lost")[:2] == ("fail", "its first line names /no/interpreter, which is not there")


def test_a_program_of_the_root_is_not_run(lcp: Lcp) -> None:
    mark = lcp.home / "mark"
    program(lcp.root / "run", f"touch {mark}")
    assert tried(lcp, "./run").code == 0
    assert not mark.exists()


def test_a_network_that_the_user_does_not_allow_is_named(lcp: Lcp) -> None:
    done = tried(lcp, "sh", commands={"network": {"hosts": ["a.example.org"]}})
    assert done.code == 1
    grade, fact, advice = of(done, "network")
    assert grade == "fail"
    assert "a.example.org" in str(fact)
    assert "commands_network: {hosts: [a.example.org]}" in str(advice)


def test_the_lines_fit_a_terminal_of_80_columns(lcp: Lcp) -> None:
    long = program(lcp.home / "tools/long", f"echo {'word ' * 40}").parent
    program(long / "longer", f"echo {'word ' * 40} >&2; exit 2")
    mission = lcp.mission(lcp.complete, commands={"allow": [["long"], ["longer"], ["none"]]})
    done = lcp("doctor", "--commands", mission, "--root", "root", PATH=f"{long}:{os.environ['PATH']}")
    lines = done.out.splitlines()
    ours = [nth for nth, line in enumerate(lines) if line[6:].startswith(("long ", "longer ", "none "))]
    assert len(ours) == 3
    assert max(len(line) for nth in ours for line in lines[nth : nth + 2] if "/" not in line) <= 80


def test_a_mission_without_commands_and_a_missing_file_are_said(lcp: Lcp) -> None:
    assert "allows none" in lcp("doctor", "--commands", lcp.mission(lcp.complete), "--root", "root").out
    done = lcp("doctor", "--commands", "missing.yaml", "--root", "root", "--json")
    assert (done.code, of(done, "commands")[0]) == (1, "fail")
    assert lcp("doctor", "--set", "a=b").code == 2


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_a_toolchain_of_the_home_directory_runs_without_a_line(lcp: Lcp) -> None:
    done = tried(lcp, "cargo", sys.executable)
    assert (of(done, "cargo")[0], of(done, sys.executable)[0]) == ("ok", "ok"), done.out
