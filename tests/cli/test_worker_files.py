"""Kinds of jobs in a Python file of the user: `--workers`, `LCP_WORKERS` and `workers` in config.yaml."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.cli.conftest import Lcp
from tests.features.programs.runner.plain_server import write_plain_server
from tests.tables import table
from tests.walls import NEEDS_LANDLOCK

SHOUT = '''\
from __future__ import annotations

from pydantic import BaseModel

import lcp_engine
from lcp_engine import Example


class Words(BaseModel):
    text: str


class Shouted(BaseModel):
    ok: bool = True
    text: str


@lcp_engine.worker("shout", params=Words, result=Shouted, has_effects=False, examples=[Example({"text": "hi"})])
def shout(params: Words) -> Shouted:
    """Say it louder."""
    return Shouted(text=params.text.upper())
'''


@pytest.fixture
def shout(lcp: Lcp) -> Path:
    file = lcp.home / "shout.py"
    file.write_text(SHOUT)
    return file


def test_a_mission_uses_a_kind_of_a_file(lcp: Lcp, shout: Path) -> None:
    mission = lcp.mission(lcp.ask("shout", text="hi"), lcp.complete)
    done = lcp("run", mission, "--root", "root", "--workers", "shout.py")
    assert (done.code, done.err.count("shout")) == (0, 1), done.err
    job = lcp("--workers", shout, "job", "2", "--json").object
    assert isinstance(job["result"], dict)
    assert (job["kind"], job["state"], job["result"]["text"]) == ("shout", "succeeded", "HI")


def test_without_the_file_its_jobs_wait(lcp: Lcp, shout: Path) -> None:
    mission = lcp.mission(lcp.ask("shout", text="hi"), lcp.complete)
    assert lcp("launch", mission, "--root", "root", "--workers", "shout.py").code == 0
    assert lcp("work", "--until-idle").code == 0
    held = lcp("job", "2", "--json").object
    assert (held["state"], held["reason"]) == ("held", "no_worker")
    assert lcp("--workers", "shout.py", "approve", "2").code == 0
    assert lcp("work", "--until-idle", LCP_WORKERS="shout.py").code == 0
    assert lcp("show", "1", "--json").object["status"] == "completed"


@pytest.mark.parametrize("way", ["option", "environment", "configuration"])
def test_it_is_named_in_three_ways(lcp: Lcp, shout: Path, way: str) -> None:
    config = Path(lcp.environment["XDG_CONFIG_HOME"]) / "lcp-engine" / "config.yaml"
    if way == "configuration":
        config.parent.mkdir(parents=True)
        config.write_text(f"workers: [{os.path.relpath(shout, config.parent)}]\n")
    option = ["--workers", shout] if way == "option" else []
    variables = {"LCP_WORKERS": f"{shout}{os.pathsep}shout.py"} if way == "environment" else {}
    described = lcp("kinds", "shout", "--json", *option, **variables).object
    assert described["description"] == "Say it louder."
    assert lcp("kinds", "--check", "shout", *option, **variables).code == 0
    tried = lcp("try", "shout", '{"text": "a"}', "--root", "root", *option, **variables)
    assert tried.object["result"] == {"ok": True, "text": "A"}
    assert "shout" in lcp("schema", "lcp", *option, **variables).out


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("x = (", "line 1: SyntaxError: '(' was never closed"),
        ("\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("raise SystemExit(7)", "line 1: SystemExit: 7"),
        ("import not_there_at_all", "line 1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("x = 1\n", "it registers no kind of job; a function with `@lcp_engine.worker(…)` does"),
        (SHOUT.replace('"shout"', '"read_file"'), "this worker: kind 'read_file' has another worker already"),
        (SHOUT + SHOUT.partition("\n")[2], "this worker: kind 'shout' has another worker already"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(lcp: Lcp, text: str, fact: str) -> None:
    (lcp.home / "broken.py").write_text(text)
    for command in (["kinds"], ["work", "--until-idle"], ["schema", "lcp"]):
        done = lcp(*command, LCP_WORKERS="broken.py")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"workers {lcp.home / 'broken.py'}: ")
        assert fact in done.err
    found = lcp("doctor", "--json", LCP_WORKERS="broken.py")
    assert fact in found.out
    # What only reads is not kept from it.
    assert lcp("missions", LCP_WORKERS="broken.py").code == 0


@pytest.mark.parametrize("name", ["missing.py", "missing.yaml", "root", "root/a.md", "mission-0.yaml"])
def test_anything_else_is_not_a_file_of_kinds(lcp: Lcp, name: str) -> None:
    lcp.mission(lcp.complete)
    done = lcp("kinds", "--workers", name)
    assert (done.code, f"workers {lcp.home / name}: " in done.err) == (2, True)


def blocks_of_guide(title: str) -> list[tuple[str, str]]:
    """The language and the text of each block of code in a section of docs/kinds.md."""
    guide = (Path(__file__).parents[2] / "docs" / "kinds.md").read_text()
    section = guide.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def commands_in(text: str) -> list[list[str]]:
    lines = (shlex.split(line, comments=True) for line in text.splitlines())
    return [words[1:] for words in lines if words[:1] == ["lcp"]]


def test_the_commands_of_the_guide_run(lcp: Lcp) -> None:
    (_, code), (_, commands), *_ = blocks_of_guide("A kind of your own")
    (lcp.home / "look_up.py").write_text(code)
    asked: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "look_up", "params": {"word": "oven"}}],
    }
    replies: list[JsonValue] = [asked, lcp.complete]
    lcp.mission(*replies).rename(lcp.home / "mission.yaml")
    told = commands_in(commands)
    assert len(told) == 4
    shown = [lcp(*command) for command in told]
    assert [done.code for done in shown] == [0] * 4
    assert "Say what a word means." in shown[0].out
    assert "It bakes." in shown[2].out
    job = lcp("job", "2", "--json").object
    assert (job["kind"], job["state"]) == ("look_up", "succeeded")


@NEEDS_LANDLOCK
def test_the_commands_of_the_guide_to_programs_run(lcp: Lcp) -> None:
    (_, described), (_, script), (_, commands), *_ = blocks_of_guide("A kind in any language")
    (lcp.home / "kinds.yaml").write_text(described)
    (lcp.home / "look_up.sh").write_text(script)
    told = commands_in(commands)
    assert len(told) == 4
    missing = lcp(*told[0])
    assert (missing.code, "it cannot be executed" in missing.err) == (2, True)
    (lcp.home / "look_up.sh").chmod(0o755)
    shown = [lcp(*command) for command in told]
    assert [done.code for done in shown] == [0] * 4, shown[0].err
    assert "needs       nothing but the system's programs" in shown[0].out
    assert "It bakes." in shown[2].out
    assert "It bakes." in shown[3].out
    asked: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "define", "params": {"word": word}} for word in ("oven", "stove")],
    }
    mission = lcp.mission(asked, lcp.complete, unfulfilled="accept")
    lcp("run", mission, "--root", "root", "--workers", "kinds.yaml")
    jobs = [lcp("job", number, "--json").object for number in ("2", "3")]
    assert [job["state"] for job in jobs] == ["succeeded", "failed"]
    assert "the word is unknown" in str(jobs[1]["error"])


def tool(lcp: Lcp, **changed: JsonValue) -> Path:
    """A file with the tool that the guide defines, and the program beside it."""
    blocks = blocks_of_guide("A kind in any language")
    (lcp.home / "look_up.sh").write_text(blocks[1][1])
    (lcp.home / "look_up.sh").chmod(0o755)
    (stated,) = (json.loads(text) for language, text in blocks if language == "json" and "tool-" in text)
    file = lcp.home / "tool.json"
    merged = {**stated, **changed}
    file.write_text(
        json.dumps({key: value for key, value in merged.items() if value is not None}, indent="\t")
    )
    return file


@NEEDS_LANDLOCK
def test_a_tool_of_another_agent_is_a_kind(lcp: Lcp) -> None:
    defined = lcp("kinds", "tool-define-word", "--tools", "--workers", tool(lcp)).object
    assert (defined["id"], defined["name"]) == ("tool-define-word", "define_word")
    several: JsonValue = {"tools": [{**defined, "command": "./look_up.sh"}]}
    (lcp.home / "tools.json").write_text(json.dumps(several))
    for file in ("tool.json", "tools.json"):
        assert lcp("kinds", "define_word", "--tools", "--workers", file).object == defined
    assert lcp("kinds", "--check", "define_word", "--workers", "tool.json").code == 0


WORD: dict[str, JsonValue] = {"type": "string", "description": "The word.", "default": "oven"}


@NEEDS_LANDLOCK
def test_a_parameter_that_is_not_given_has_its_default(lcp: Lcp) -> None:
    most: JsonValue = {"type": "integer", "description": "How many.", "maximum": 3}
    file = tool(lcp, parameters={"word": WORD, "most": most}, examples=None, category="words")
    tried = lcp("try", "define_word", "{}", "--root", "root", "--workers", file).object
    assert tried["result"] == {"meaning": "It bakes."}
    above = lcp("try", "define_word", '{"most": 4}', "--root", "root", "--workers", file)
    assert "4 is greater than the maximum of 3" in above.out


@table(
    ("changed", "said"),
    [
        ({"command": None}, "tool-define-word.command: is required and missing: the program that executes"),
        ({"description": None}, "tool-define-word.description: is required and missing"),
        ({"comand": "x"}, "tool-define-word.comand: is not a known key; did you mean 'command'?"),
        ({"id": "define"}, "define.id: should match ^tool-[a-z0-9-]+$"),
        ({"result_schema": {"type": "string"}}, "result: the JSON Schema of an object is expected: its type"),
        ({"parameters": {"word": {**WORD, "default": 1}}}, "params: a JSON Schema is expected: the default of word"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tool_is_named(lcp: Lcp, changed: dict[str, JsonValue], said: str) -> None:
    done = lcp("kinds", "--workers", tool(lcp, **changed))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"workers {lcp.home / 'tool.json'}: " in done.err
    assert said in done.err


@pytest.mark.proof
@NEEDS_LANDLOCK
def test_the_commands_of_the_guide_to_servers_run(lcp: Lcp) -> None:
    (_, described), (_, server), (_, commands) = blocks_of_guide("Kinds from an MCP server")
    (lcp.home / "servers.yaml").write_text(described)
    (lcp.home / "words.py").write_text(server)
    path = f"{Path(sys.executable).parent}{os.pathsep}{lcp.environment['PATH']}"
    told = commands_in(commands)
    early = lcp(*told[1], PATH=path)
    assert (early.code, "`lcp kinds --update` asks for them" in early.err) == (2, True)
    updated, described_kind, tried = (lcp(*command, PATH=path) for command in told)
    assert [updated.code, described_kind.code, tried.code] == [0, 0, 0], updated.err
    assert "words.look_up  new     Say what a word means." in updated.out
    assert "held for a person" in described_kind.out
    assert "It bakes." in tried.out
    again = lcp(*told[0], "--json", PATH=path).object
    assert again == {"files": [{"file": str(lcp.home / "servers.tools.json"), "tools": []}]}
    (lcp.home / "words.py").write_text(server.replace("Say what", "Tell what"))
    refused = lcp(*told[2], PATH=path)
    assert "says something else of its tool 'look_up' than when it was accepted" in refused.out
    changed = lcp(*told[0], PATH=path)
    assert "changed: description" in changed.out


@pytest.mark.proof
@NEEDS_LANDLOCK
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_commands_of_the_guide_to_servers_from_npm_run(lcp: Lcp) -> None:
    (_, described), (_, commands) = blocks_of_guide("An MCP server from npm")
    (lcp.home / "servers.yaml").write_text(described)
    install, *_ = commands.splitlines()
    quick = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0"]
    installed = subprocess.run(
        [*shlex.split(install), *quick],
        cwd=lcp.home,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if installed.returncode != 0:
        pytest.skip(f"npm installs nothing here: {installed.stderr.strip().splitlines()[:1]}")
    path = os.environ["PATH"]
    updated, tried = (lcp(*command, PATH=path) for command in commands_in(commands))
    assert (updated.code, tried.code) == (0, 0), updated.err + tried.err
    assert "memory.read_graph" in updated.out
    assert '"entities"' in tried.out
    (lcp.home / "servers.yaml").write_text(re.sub(r"\n +needs:.*", "", described))
    refused = lcp(*commands_in(commands)[0], PATH=path)
    assert (refused.code, "Node.js v" in refused.err) == (1, False), refused.err


@NEEDS_LANDLOCK
def test_update_keeps_the_tools_of_the_servers_that_answer(lcp: Lcp) -> None:
    write_plain_server(
        lcp.home / "words.py",
        "@tool\ndef look_up():\n    pass\nMORE += [{'name': 'any', 'inputSchema': {'anyOf': []}}]\n",
    )
    (lcp.home / "silent.py").write_text("raise SystemExit('no licence')")
    (lcp.home / "servers.yaml").write_text(
        json.dumps(
            {
                "mcp": {
                    "silent": {"command": [sys.executable, "./silent.py"]},
                    "missing": {"command": "lcp-nothing-of-that-name", "tools": ["one"]},
                    "words": {"command": [sys.executable, "./words.py"]},
                }
            }
        )
    )
    update = ["kinds", "--update", "--workers", "servers.yaml"]
    first = lcp(*update)
    assert first.code == 1
    assert re.search(
        r"^mcp\.silent: .*: no licence\nmcp\.missing: no program is named", first.err, re.MULTILINE
    )
    assert re.search(r"^words\.look_up +new", first.out, re.MULTILINE)
    assert re.search(
        r'^words\.any +left out +inputSchema.type: "object" is expected', first.out, re.MULTILINE
    )
    assert lcp("kinds", "words.look_up", "--workers", "servers.yaml").code == 0
    again = lcp(*update, "--json")
    file = json.loads(again.out)["files"][0]
    assert (again.code, [*file["failed"]]) == (1, ["silent", "missing"])
    assert [(tool["kind"], tool["change"]) for tool in file["tools"]] == [("words.any", "refused")]
    (lcp.home / "servers.yaml").write_text("mcp: {missing: {command: lcp-nothing-of-that-name}}")
    alone = lcp(*update)
    assert (alone.code, alone.out) == (2, "")


def test_update_needs_a_server(lcp: Lcp) -> None:
    done = lcp("kinds", "--update")
    assert (done.code, "no file of kinds states an MCP server" in done.err) == (2, True)
    assert lcp("kinds", "--update", "read_file").code == 2


def test_a_file_of_programs_is_loaded_whole_or_not_at_all(lcp: Lcp) -> None:
    (lcp.home / "kinds.yaml").write_text("one: {command: cat}\nread_file: {command: cat}\n")
    done = lcp("kinds", "--workers", "kinds.yaml")
    assert (done.code, "kind 'read_file' has another worker already" in done.err) == (2, True)


@pytest.mark.parametrize("stated", ["cat", "=cat", "x=", "x= "])
def test_a_program_on_the_command_line_has_a_kind(lcp: Lcp, stated: str) -> None:
    done = lcp("kinds", "--exec", stated)
    assert done.code == 2
    assert (
        "1 to 64 of the characters" in done.err
        if stated == "=cat"
        else "KIND=PROGRAM is expected" in done.err
    )


@pytest.mark.proof
def test_a_job_shows_what_its_program_wrote_to_stderr(lcp: Lcp) -> None:
    program = lcp.home / "talk.sh"
    program.write_text(
        "#!/bin/sh\nread -r job\nprintf 'first\\n\\033[31mlast' >&2\necho '{\"result\": {}}'\n"
    )
    program.chmod(0o755)
    mission = lcp.mission(lcp.ask("talk"), lcp.complete)
    run = lcp("run", mission, "--root", "root", "--exec", "talk=./talk.sh", "--approve", "talk")
    assert run.code == 0, run.err
    shown = lcp("job", "2").out
    assert re.search(
        r"\n  1  succeeded  runner .*\n    stderr:\n    │ first\n    │ <U\+001B>\[31mlast\n", shown
    )
    assert lcp("job", "2", "--json").object["attempts"][0]["stderr"] == "first\n\x1b[31mlast"  # type: ignore[index,call-overload]


def test_no_job_touches_the_program_of_a_kind(lcp: Lcp) -> None:
    program = lcp.root / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    write = lcp.ask("write_file", rel_path="program", content="x")
    mission = lcp.mission(write, lcp.complete, policy=[{"do": "auto"}], unfulfilled="accept")
    lcp("run", mission, "--root", "root", "--exec", "x=root/program")
    assert program.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("name", ["kinds.py", "link.py"])
def test_no_job_touches_the_file(lcp: Lcp, name: str) -> None:
    (lcp.root / "kinds.py").write_text(SHOUT)
    (lcp.root / "link.py").symlink_to("kinds.py")
    changes = [lcp.ask("write_file", rel_path=path, content="x") for path in ("kinds.py", "link.py")]
    mission = lcp.mission(*changes, lcp.complete, policy=[{"do": "auto"}], unfulfilled="accept")
    lcp("run", mission, "--root", "root", "--workers", f"root/{name}")
    assert (lcp.root / "kinds.py").read_text() == SHOUT
    assert (lcp.root / "link.py").is_symlink()
    assert not (lcp.root / "__pycache__").exists()
    tried = lcp("try", "read_file", '{"rel_path": "kinds.py"}', "--root", "root", "--workers", f"root/{name}")
    assert "the engine's own files are denied" in tried.out


def test_no_compiled_code_beside_the_file_runs(lcp: Lcp, shout: Path) -> None:
    evil = compile("raise SystemExit('evil')", str(shout), "exec")
    status = shout.stat()
    header = importlib.util.MAGIC_NUMBER + struct.pack("<LLL", 0, int(status.st_mtime), status.st_size)
    cache = Path(importlib.util.cache_from_source(str(shout)))
    cache.parent.mkdir()
    cache.write_bytes(header + marshal.dumps(evil))
    assert lcp("kinds", "shout", "--workers", shout).code == 0


MINE = """\
from __future__ import annotations

import json

from lcp_engine import Planner, Question, Reply


class Mine(Planner):
    def __init__(self, *, word: str = "hi") -> None:
        self._word = word

    def answer(self, question: Question, /) -> Reply:
        return Reply(json.dumps({"ok": True, "action": "mission_complete", "summary": f"{self._word} {question.goal}"}))
"""


@pytest.mark.parametrize(
    ("planner", "summary"),
    [(None, "hi Greet."), ("surveyor", "hi Greet."), ({"type": "mine", "word": "ho"}, "ho Greet.")],
)
def test_a_planner_of_a_file_answers_a_mission(lcp: Lcp, planner: JsonValue, summary: str) -> None:
    (lcp.home / "mine.py").write_text(MINE)
    stated = {"goal": "Greet.", "root": "root"} | ({} if planner is None else {"planner": planner})
    (lcp.home / "greet.json").write_text(json.dumps(stated))
    done = lcp("run", "greet.json", "--planner-file", "mine.py")
    assert done.code == 0, done.err
    shown = lcp("show", "1", "--json").object
    assert (shown["summary"], shown["planner"]) == (summary, "mine")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (
            "x = 1\n",
            "one class with a method answer(question) is expected, or a variable planner; found: none",
        ),
        ("class A:\n    def answer(self, q): ...\nclass B(A): ...\n", "found: A, B"),
        ("1 / 0\n", "line 1: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_without_one_planner_is_refused(lcp: Lcp, text: str, fact: str) -> None:
    (lcp.home / "mine.py").write_text(text)
    refused = lcp("run", "survey", "--root", "root", "--planner-file", "mine.py")
    assert (refused.code, "--planner-file " in refused.err, fact in refused.err) == (2, True, True), (
        refused.err
    )


def test_no_mission_names_a_file_of_a_planner(lcp: Lcp) -> None:
    (lcp.home / "mine.py").write_text(MINE)
    (lcp.home / "greet.json").write_text(json.dumps({"goal": "Greet.", "planner": {"type": "mine.py"}}))
    refused = lcp("run", "greet.json", "--root", "root")
    assert "no planner is named 'mine.py'" in refused.err
