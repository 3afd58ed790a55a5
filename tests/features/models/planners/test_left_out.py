"""What a prompt leaves out is recorded, said with its size, and can be read, however little room there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from markupsafe import escape
from starlette.testclient import TestClient
from tests.web.conftest import ADDRESS, HOME

from lcp_engine import Engine
from lcp_engine.core.summaries import left_out_line
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from pydantic import JsonValue
    from tests.features.models.planners.conftest import FaultServer

DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})
LISTED = json.dumps(
    {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "list_files", "params": {"root": "."}}],
    }
)
LINES = 700
NEXT = re.compile(r'read_file "(\w+\.log)"[^\n]*\n(?:```\n[^`]*```\n)?\[[^\]\n]*offset (\d+)')


def look(*reads: tuple[str, int | None]) -> str:
    jobs: JsonValue = [
        {"kind": "read_file", "params": {"root": ".", "rel_path": path}}
        if offset is None
        else {
            "kind": "read_file",
            "params": {"root": ".", "rel_path": path, "offset": offset, "limit": LINES},
        }
        for path, offset in reads
    ]
    return json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": jobs})


@pytest.fixture
def engine(new_database_url: str) -> Iterator[Engine]:
    with Engine(new_database_url) as engine:
        yield engine


def run(engine: Engine, root: Path, faults: FaultServer, **limits: JsonValue) -> int:
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096, "max_tokens": 512,
    }  # fmt: skip
    faults.tokenize = faults.counts
    spec: dict[str, JsonValue] = {"goal": "Read all logs.", "planner": planner, "limits": {**limits}}
    mission = engine.launch(spec, root=root)
    engine.work(until_idle=True)
    return mission.id


def prompts(faults: FaultServer) -> list[str]:
    return ["\n".join(contents(request.body["messages"])) for request in faults.requests]


def contents(messages: JsonValue) -> list[str]:
    assert isinstance(messages, list)
    return [str(message["content"]) for message in messages if isinstance(message, dict)]


def left_out(engine: Engine, mission: int, turn: int) -> list[dict[str, JsonValue]]:
    """What the prompt of the turn at this place left out."""
    parts = engine.turns(mission)[turn]["left_out"]
    assert isinstance(parts, list)
    return [part for part in parts if isinstance(part, dict)]


def write_logs(root: Path, *names: str) -> None:
    for name in names:
        text = "".join(f"{name} has line {number}\n" for number in range(1, LINES + 1))
        (root / f"{name}.log").write_text(text)


def test_two_cut_files_are_both_read_to_the_end_by_a_model_that_asks_for_offset_after_offset(
    engine: Engine, tmp_path: Path, faults: FaultServer
) -> None:
    write_logs(tmp_path, "a", "b")
    asked: dict[str, int] = {"a.log": 0, "b.log": 0}

    def answer(to: BaseHTTPRequestHandler) -> None:
        """As a model does that goes on where its prompt says, and has no other way."""
        new = prompts(faults)[-1].partition("# New results")[2]
        further = {path: int(line) for path, line in NEXT.findall(new) if int(line) > asked[path]}
        if not new:
            reply = LISTED
        elif "list_files" in new:
            reply = look(("a.log", None), ("b.log", None))
        else:
            reply = look(*further.items()) if further else DONE
        asked.update(further)
        faults.says(reply)(to)

    faults.play(answer)
    mission = run(engine, tmp_path, faults, max_turns=100)
    assert engine.mission(mission).outcome == "mission_complete"
    told = "\n".join(prompts(faults))
    for name in ("a", "b"):
        missing = [n for n in range(1, LINES + 1) if f"{name} has line {n}\n" not in told]
        assert missing == [], f"lines of {name}.log that no prompt showed"
    assert engine.replay(mission).differences == ()


def test_what_was_left_out_is_in_the_record_of_the_turn_and_stays_readable(
    engine: Engine, tmp_path: Path, faults: FaultServer
) -> None:
    write_logs(tmp_path, "a", "b")
    (tmp_path / "c.txt").write_text("short\n")
    replies = (LISTED, look(("a.log", None)), look(("b.log", None), ("c.txt", None)), DONE)
    faults.play(*map(faults.says, replies))
    mission = run(engine, tmp_path, faults)
    turns = engine.turns(mission)
    assert [turn["context_tokens"] for turn in turns] == [4096] * 4
    whole = (tmp_path / "a.log").stat().st_size
    told = {str(part["what"]): part for part in left_out(engine, mission, 3)}
    assert list(told) == ['read_file "b.log"', 'read_file "a.log"']
    dropped, cut = told['read_file "a.log"'], told['read_file "b.log"']
    assert (dropped["is_whole"], dropped["lines"], dropped["bytes"]) == (True, LINES, whole)
    assert left_out_line(dropped) == f'read_file "a.log": all of it, {LINES} lines, {whole:,} bytes'
    assert (cut["is_whole"], cut["first"]) == (False, LINES - int(str(cut["lines"])))
    prompt = prompts(faults)[3]
    (before,) = left_out(engine, mission, 2)
    assert f"{whole:,} bytes; read it with read_file, offset {before['first']}" in prompt
    schema = json.dumps(faults.requests[3].body["response_format"])
    assert '"enum": ["a.log", "b.log"]' in schema.replace('["b.log", "a.log"]', '["a.log", "b.log"]')


def test_to_ask_again_for_what_a_prompt_showed_nothing_of_is_no_stall(
    engine: Engine, tmp_path: Path, faults: FaultServer
) -> None:
    write_logs(tmp_path, "a", "b")
    again = [look((f"{name}.log", None)) for name in "abababab"]
    faults.play(*map(faults.says, (LISTED, *again, DONE)))
    mission = run(engine, tmp_path, faults)
    assert engine.mission(mission).outcome == "mission_complete"
    assert "nothing new was requested" not in "".join(prompts(faults))
    assert engine.replay(mission).differences == ()


def test_to_ask_again_for_what_it_shows_the_beginning_of_is_one_and_its_rest_stays_readable(
    engine: Engine, tmp_path: Path, faults: FaultServer
) -> None:
    write_logs(tmp_path, "a")
    faults.play(*map(faults.says, (LISTED, *[look(("a.log", None))] * 5)))
    mission = run(engine, tmp_path, faults)
    assert engine.mission(mission).outcome == "no_progress"
    assert "nothing new was requested 1 times in a row" in prompts(faults)[3]
    (cut,) = left_out(engine, mission, 3)
    schema = json.dumps(faults.requests[3].body["response_format"])
    assert f'"offset": {{"type": "integer", "enum": [{cut["first"]}]}}' in schema
    assert engine.replay(mission).differences == ()


def test_people_see_what_was_left_out(
    engine: Engine, new_database_url: str, tmp_path: Path, faults: FaultServer
) -> None:
    write_logs(tmp_path, "a")
    faults.play(*map(faults.says, (LISTED, look(("a.log", None)), DONE)))
    mission = run(engine, tmp_path, faults)
    (cut,) = left_out(engine, mission, 2)
    first, lines, size = (int(str(cut[key])) for key in ("first", "lines", "bytes"))
    line = f'read_file "a.log": from line {first + 1:,} on, {lines} lines, {size:,} bytes'
    turn = engine.turns(mission)[2]
    command = [sys.executable, "-m", "lcp_engine", "--db", new_database_url, "job", str(turn["job_id"])]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"left out of the prompt:\n  {line}\n" in shown.stdout
    alone = subprocess.run([*command, "--prompt"], capture_output=True, text=True, check=True)
    assert alone.stderr == f"left out of the prompt:\n  {line}\n"
    assert "left out of the prompt" not in alone.stdout, "what is piped elsewhere is the prompt"
    keys = Secrets()
    app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
    with TestClient(app, base_url=HOME) as browser:
        page = browser.get(f"/missions/{mission}/questions/3", params={"token": keys.token})
    assert f"<h3>Left out of the prompt</h3>\n  <ul><li>{escape(line)}</li></ul>" in page.text
    assert "4,096 tokens of context" in page.text
