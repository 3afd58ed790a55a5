"""A program works in the stage of a mission as its planner, and what it did waits to be merged."""

from __future__ import annotations

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.walls import NEEDS_OVERLAY

from lcp_engine import Engine, ErrorCode, LcpError
from lcp_engine.core.job_states import State
from lcp_engine.core.programs.walls import Step
from lcp_engine.features.agents.process import AgentPlace
from lcp_engine.features.agents.program import ProgramPlanner, _Turn
from lcp_engine.workers.base import Kept

pytestmark = NEEDS_OVERLAY

KEY = "sk-test-4f9a8b7c6d5e4f3a2b1c"
HEAD = """\
#!/usr/bin/python3
import json, os, subprocess, sys, time, urllib.request
HOME = os.environ["HOME"]
def say(**event): print(json.dumps(event), flush=True)
def item(kind, **more): say(type="item.completed", item={"id": "i", "type": kind, **more})
def done(text):
    item("agent_message", text=text)
    say(type="turn.completed", usage={"input_tokens": 7, "output_tokens": 3})
"""
"""The beginning of agents that print what Codex prints."""


class Desk:
    """A root with two files, and an agent that is a script."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place, place / "root"
        self.root.mkdir()
        (self.root / "a.txt").write_text("one\n")
        (self.root / ".env").write_text("SECRET=1\n")
        self.url, self.agent = sqlite_url(place), place / "agent"
        self.mission = 0
        self.opened = ExitStack()

    def open(self, hosts: JsonValue = None, walls: Sequence[Step] | None = None) -> Engine:
        made = Engine(self.url, commands_network={"hosts": hosts or []}, commands_wall=walls)
        return self.opened.enter_context(made)

    def launch(
        self,
        script: str,
        planner: dict[str, JsonValue] | None = None,
        granted: JsonValue = None,
        **spec: JsonValue,
    ) -> Engine:
        """An engine with the mission, which no runner has begun yet."""
        self.agent.write_text(HEAD + script)
        self.agent.chmod(0o755)
        whole: dict[str, JsonValue] = {
            "goal": "Write notes.",
            "stage": True,
            "planner": {
                "type": "program", "command": [str(self.agent), "{goal}"], "stream": "codex", **(planner or {}),
            },
            **spec,
        }  # fmt: skip
        engine = self.open(granted)
        self.mission = engine.launch(whole, root=self.root).id
        return engine

    def work(
        self,
        script: str,
        planner: dict[str, JsonValue] | None = None,
        granted: JsonValue = None,
        **spec: JsonValue,
    ) -> Engine:
        engine = self.launch(script, planner, granted, **spec)
        engine.work(until_idle=True)
        return engine


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    with made.opened:
        yield made


def merge_of(engine: Engine) -> int:
    (job,) = engine.jobs(states=[State.HELD])
    assert job.kind == "merge"
    return job.id


def test_what_an_agent_did_waits_to_be_merged_and_is_undone_as_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    script = """
item("command_execution", command="make", status="completed")
open("a.txt", "a").write("two\\n"); open("NOTES.md", "w").write("notes\\n")
seen = [os.path.exists(".env"), os.listdir("/tmp"), os.path.exists(sys.argv[0])]
print("noise", "x" * 5_000_000)
done(f"{sys.argv[-1]} {seen} {os.environ['OPENAI_API_KEY']}")
"""
    engine = desk.work(script, {"agent": "codex"})
    assert {path.name for path in desk.root.iterdir()} == {"a.txt", ".env"}
    (turn,) = engine.turns(desk.mission)
    reply = str(turn["reply"])
    assert "Write notes. [False, [], True] …" in reply
    assert "1 call of a tool was seen, and asked nobody:\\n- command_execution make" in reply
    assert (turn["input_tokens"], turn["output_tokens"]) == (7, 3)
    merge = merge_of(engine)
    assert {diff.path for diff in engine.diff(merge, by="ada")} == {"a.txt", "NOTES.md"}
    engine.approve(merge, by="ada")
    engine.work(until_idle=True)
    assert (desk.root / "a.txt").read_text() == "one\ntwo\n"
    engine.undo(desk.mission)
    assert (desk.root / "a.txt").read_text() == "one\n"
    assert not (desk.root / "NOTES.md").exists()


FAILURES: dict[str, tuple[str, str]] = {
    "exit code 0 proves nothing": ("", "agent ended (exit code 0) without saying that it is done"),
    "it says so": ("say(type='turn.failed', error={'message': 'no room'})", "agent failed: no room"),
    "a key is refused": ("say(type='error', message='HTTP 401')\nsys.exit(1)", "agent failed: HTTP 401"),
    "it is silent": ("time.sleep(60)", "agent said nothing for 0.5 s"),
    "it says why on stderr": ("sys.exit('no model')", "(exit code 1) without saying that it is done: no model"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_said_in_words_that_name_the_agent(desk: Desk, name: str) -> None:
    script, said = FAILURES[name]
    once: JsonValue = {"agent_plan": {"retry": {"max_attempts": 1}}}
    engine = desk.work(f"open('new', 'w')\n{script}", {"silence": 0.5 if "0.5" in said else 60.0}, kinds=once)
    (job,) = engine.jobs(kinds=["agent_plan"])
    assert job.error is not None
    assert said in str(job.error["user_message"])
    expected = ErrorCode.PLANNER_REFUSED if "401" in said else ErrorCode.PLANNER_FAILED
    assert job.error["error_code"] == expected
    assert engine.mission(desk.mission).status == "failed"
    assert not (desk.root / "new").exists()


HALF = """
with open("log", "a") as log: log.write(f"begun {os.path.exists(HOME + '/session')} {sys.argv[-1]!r}\\n")
if os.path.exists(HOME + "/session"):
    done("went on")
else:
    open(HOME + "/session", "w")
    subprocess.Popen(["sh", "-c", "while sleep 0.1; do echo >>still; done"])
    open("half", "w"); time.sleep(600)
"""


@pytest.mark.parametrize("on_kill", ["continue", "restart"])
def test_an_agent_that_is_killed_with_its_runner_goes_on(desk: Desk, on_kill: str) -> None:
    engine = desk.launch(HALF, {"on_kill": on_kill})
    command = [sys.executable, "-m", "lcp_engine", "work", "--db", desk.url]
    runner = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    upper = agent_directory(engine, desk.mission) / "up" / "root"
    until = time.monotonic() + 60
    while not (upper / "still").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    engine.work(until_idle=True)
    changed = {diff.path: diff.lines for diff in engine.diff(merge_of(engine), by="ada")}
    if on_kill == "restart":
        assert {*changed} == {"log"}
        assert changed["log"][-1:] == ("+begun True 'Write notes.'",)
    else:
        assert {*changed} == {"log", "half", "still"}
        assert "+begun False 'Write notes.'" in changed["log"]
        assert "The files are as you left them" in changed["log"][-1]


def test_a_turn_whose_end_was_noted_is_finished_without_the_agent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = desk.launch("open('asked', 'a').write('x')\ndone('once')")
    keep = AgentPlace.keep
    kept: list[int] = []

    def interrupted(place: AgentPlace, result: BaseModel) -> Kept:
        kept.append(1)
        if len(kept) == 1:
            raise OSError("interrupted")
        return keep(place, result)

    monkeypatch.setattr(AgentPlace, "keep", interrupted)
    engine.work(until_idle=True)
    (diff,) = engine.diff(merge_of(engine), by="ada")
    assert (diff.path, diff.lines[-2], len(kept)) == ("asked", "+x", 2)


def test_what_was_noted_before_the_machine_was_started_anew_does_not_count(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = desk.launch("open('asked', 'a').write('x')\ndone(str(os.path.exists(HOME + '/before')))")
    keep = AgentPlace.keep

    def interrupted(place: AgentPlace, result: BaseModel) -> Kept:
        if place.here.joinpath("up/home/before").exists():
            return keep(place, result)
        place.here.joinpath("up/home/before").touch()
        note = place.here / "turn.json"
        note.write_text(note.read_text().replace('"boot": "', '"boot": "not '))
        raise OSError("the machine was started anew")

    monkeypatch.setattr(AgentPlace, "keep", interrupted)
    engine.work(until_idle=True)
    (diff,) = engine.diff(merge_of(engine), by="ada")
    assert (diff.path, diff.lines[-2]) == ("asked", "+x")
    assert '"summary": "True"' in str(engine.turns(desk.mission)[0]["reply"])


def test_no_link_that_an_agent_leaves_in_its_home_is_followed(desk: Desk) -> None:
    outside = desk.place / "outside"
    outside.mkdir()
    script = f"""
for name in (".codex", "trajectory.json"):
    place = HOME + "/" + name
    if os.path.isdir(place): import shutil; shutil.rmtree(place)
    if os.path.lexists(place): os.unlink(place)
    os.symlink({str(outside)!r}, place)
open("n", "a").write("x")
done("left links")
"""
    engine = desk.work(script, {"agent": "codex"})
    engine.reject(merge_of(engine), "Again.", by="ada")
    engine.work(until_idle=True)
    (diff,) = engine.diff(merge_of(engine), by="ada")
    assert (diff.path, diff.lines[-2]) == ("n", "+xx")
    assert list(outside.iterdir()) == []
    (second,) = engine.turns(desk.mission)[1:]
    assert "merge (the stage) was rejected: Again." in str(second["prompt"])


def test_what_an_agent_leaves_running_ends_with_it(desk: Desk) -> None:
    script = """
subprocess.Popen(["sh", "-c", "trap '' TERM HUP; while :; do echo x >>grows; sleep 0.01; done"], start_new_session=True)
while not os.path.exists("grows"): time.sleep(0.01)
done("left")
"""
    engine = desk.work(script)
    (diff,) = engine.diff(merge_of(engine), by="ada")
    assert diff.path == "grows"
    upper = agent_directory(engine, desk.mission) / "up" / "root"
    assert not upper.exists()


def agent_directory(engine: Engine, mission: int) -> Path:
    walls = engine.instance.walls
    assert walls is not None
    return walls / str(mission) / "agent"


@contextmanager
def serving() -> Iterator[int]:
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_model_at_a_port_of_this_machine_is_found_there_and_nothing_else_is(desk: Desk) -> None:
    with serving() as port, serving() as other:
        script = f"""
def post(port):
    try: return urllib.request.urlopen(f"http://127.0.0.1:{{port}}/v1", data=b"hi").read().decode()
    except OSError as error: return "refused"
done(f"{{post({port})}} {{post({other})}}")
"""
        granted: JsonValue = [{"name": "model.example", "address": "127.0.0.1", "port": port}]
        engine = desk.work(script, granted=granted, commands={"network": {"hosts": ["model.example"]}})
        (turn,) = engine.turns(desk.mission)
        assert '"summary": "hi refused"' in str(turn["reply"])


REFUSED: dict[str, dict[str, JsonValue]] = {
    "agent changes files by itself, so that the mission needs a stage": {"stage": False},
    "accept: verify asks the planner, and agent answers by work": {"accept": [{"verify": "Is it good?"}]},
    "limits.max_cost: what agent costs is counted by a price of planner.model": {"limits": {"max_cost": 1}},
    "limits.max_cost: agent states no tokens (stream: mini)": {
        "planner": {"stream": "mini"},
        "limits": {"max_cost": 1},
    },
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_an_agent_cannot_hold_is_refused_at_the_launch(desk: Desk, why: str) -> None:
    with pytest.raises(LcpError, match=re.escape(why)):
        desk.launch("", **REFUSED[why])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "launched"),
    [
        (["claude", "-p", "{goal}", "--verbose"], ("claude", "--resume", "s1", "-p", "do it", "--verbose")),
        (["claude"], ("claude",)),
    ],
)
def test_a_command_of_its_own_goes_on_with_a_session_where_its_goal_is(
    command: list[str], launched: tuple[str, ...]
) -> None:
    turn = _Turn(ProgramPlanner(agent="claude", command=command), Mock(), Mock(session="s1"), print)
    assert turn._launch("do it").command == launched


def test_an_agent_without_the_wall_is_refused_at_the_launch(desk: Desk) -> None:
    engine = desk.open(walls=[Step.LANDLOCK])
    planner: JsonValue = {"type": "program", "agent": "codex"}
    with pytest.raises(LcpError, match="codex works behind the wall `overlay` alone") as refused:
        engine.launch({"goal": "x", "stage": True, "planner": planner}, root=desk.root)
    assert refused.value.code is ErrorCode.NOT_ISOLATED


def test_a_key_is_handed_in_only_if_the_preset_or_the_configuration_names_it(desk: Desk) -> None:
    with pytest.raises(LcpError, match=r"planner\.keys: HOME: neither the preset"):
        desk.launch("", {"keys": ["HOME"]})
