"""`lcp shell` shows a person what a command of a mission sees, and keeps nothing of what they change."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.walls import NEEDS_NAMESPACES, NEEDS_OVERLAY

from lcp_engine.cli.console.exits import Exit
from lcp_engine.core.programs.walls import Step
from lcp_engine.store.host.liveness import digest_of

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

pytestmark = NEEDS_OVERLAY


def launched(lcp: Lcp, *replies: JsonValue, **keys: JsonValue) -> None:
    (lcp.root / ".env").write_text("TOKEN=x\n")
    lcp("run", lcp.mission(*(replies or (lcp.complete,)), **keys), "--root", "root", "-q")


def configured(lcp: Lcp, line: str) -> None:
    config = Path(lcp.environment["XDG_CONFIG_HOME"], "lcp-engine", "config.yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"{line}\n")


def left_runs(lcp: Lcp) -> list[Path]:
    walls = lcp.home / "state" / "lcp-engine-wall" / digest_of(f"sqlite:///{lcp.database}")
    return [*walls.glob("*/runs/*")]


def as_command(lcp: Lcp, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lcp.command("shell", 1, "--", "sh", "-c", script),
        cwd=lcp.home,
        env={**lcp.environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    "wall", [Step.OVERLAY, pytest.param(Step.COPY, marks=[NEEDS_NAMESPACES, pytest.mark.weaker])]
)
def test_a_command_sees_what_the_mission_sees_and_leaves_nothing(lcp: Lcp, wall: Step) -> None:
    configured(lcp, f"commands_wall: [{wall}]")
    launched(lcp)
    done = as_command(lcp, "pwd; ls -A; read word; echo $word > new.txt; cat new.txt; exit 7", "typed\n")
    assert done.stdout.split() == [str(lcp.root), "a.md", "main.py", "typed"], done.stderr
    assert done.returncode == 7
    hidden = "; 1 masked path" if wall is Step.OVERLAY else ""
    assert done.stderr == f"mission 1: what you change here is dropped at the end{hidden}\n"
    assert sorted(path.name for path in lcp.root.iterdir()) == [".env", "a.md", "main.py"]
    assert left_runs(lcp) == []


def test_a_mission_shows_what_its_commands_left_until_it_ends(lcp: Lcp) -> None:
    (lcp.root / ".gitignore").write_text("out/\n")
    build = lcp.ask("run_command", command=["sh", "-c", "mkdir out && head -c 200000 /dev/zero > out/a"])
    mission = lcp.mission(
        build,
        lcp.ask("run_command", command=["true"]),
        lcp.ask("ask_user", question="Go on?"),
        commands={"allow": ["sh ...", "true"]},
        policy=[{"kinds": ["run_command"], "do": "auto"}],
    )
    done = lcp("run", mission, "--root", "root", "-q")
    assert done.code == Exit.WAITING, done.err
    assert re.search(r"output of its commands: 20\d\.\d kB in 2 files and directories, ", lcp("show", 1).out)
    output = lcp("show", 1, "--json").object["output"]
    assert isinstance(output, dict)
    assert output["files"] == 2
    lcp("cancel", 1)
    lcp("work", "--until-idle", "-q")
    assert "ignored output" not in lcp("show", 1).out


@pytest.mark.proof
def test_the_stage_of_a_mission_that_waits_is_seen(lcp: Lcp) -> None:
    launched(lcp, lcp.ask("write_file", path="b.md", content="staged\n"), lcp.complete, stage=True)
    done = as_command(lcp, "pwd; cat b.md; echo more >> b.md")
    assert done.stdout == f"{lcp.root}\nstaged\n", done.stderr
    assert as_command(lcp, "cat b.md").stdout == "staged\n"
    assert not (lcp.root / "b.md").exists()


@pytest.mark.proof
def test_there_is_no_network_and_a_signal_is_in_the_exit_code(lcp: Lcp) -> None:
    launched(lcp)
    done = as_command(lcp, "cat /proc/net/dev | grep -vc lo:; kill -9 $$")
    assert (done.stdout.strip(), done.returncode) == ("2", 128 + signal.SIGKILL)


def test_it_is_refused_where_there_are_no_namespaces_and_for_no_mission(lcp: Lcp) -> None:
    configured(lcp, "commands_wall: [landlock]")
    launched(lcp)
    done = lcp("shell", 1, "--", "true")
    assert done.code == 1
    assert "a shell needs namespaces, which it cannot have here: overlay: " in done.err
    assert lcp("shell", 77).code == 1


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
def test_a_shell_at_a_terminal_has_jobs_and_a_size_of_its_own(lcp: Lcp, shell: str) -> None:
    launched(lcp)
    own = {"SHELL": shell, "TERM": "xterm"}
    with Terminal(lcp, "shell", 1, environment=own, size=(24, 90)) as terminal:
        terminal.expect("dropped at the end; 1 masked path")
        terminal.answer("PS1='> '; stty size")
        terminal.expect("24 90")
        terminal.answer("sh -c 'echo $((1 + 1))-$TERM; exec sleep 50'; echo code-$?")
        terminal.expect("2-xterm")
        terminal.type("\x03")
        terminal.expect("^C")
        terminal.answer("sh -c 'echo front-$((1 + 2)); exec sleep 51'")
        terminal.expect("front-3")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.answer("kill -9 %1; wait %1; echo went-$((2 + 3))")
        terminal.expect("went-5")
        terminal.resize(30, 100)
        terminal.answer("echo x > new.txt; stty size")
        terminal.expect("30 100")
        terminal.answer("exit 9")
        assert terminal.end() == 9
    assert not (lcp.root / "new.txt").exists()
    assert left_runs(lcp) == []


def test_a_shell_whose_lcp_is_killed_ends_with_all_that_it_started(lcp: Lcp) -> None:
    launched(lcp)
    with Terminal(lcp, "shell", 1, "--", "sh", "-c", "echo began; exec sleep 97") as terminal:
        terminal.expect("began")
        (run,) = left_runs(lcp)
        terminal.process.kill()
        terminal.process.wait(PATIENCE_SECONDS)
    wait_until(lambda: lcp("work", "--until-idle", "-q").code == 0 and not run.exists())
