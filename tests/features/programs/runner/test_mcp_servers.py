"""Kinds that are tools of MCP servers, over stdin and stdout and over HTTP. What these say is what the SDK says.

Tests of how their processes are run use a plain server, which starts in a tenth of the time.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
import uvicorn
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.features.programs.runner.plain_server import plain_tools, write_plain_server
from tests.patience import wait_until
from tests.walls import NEEDS_LANDLOCK

from lcp_engine import Engine, LcpError
from lcp_engine.core.policy import Policy
from lcp_engine.features.authoring.run_job import JobResult, run_job
from lcp_engine.features.programs.servers.external import ExternalPrograms
from lcp_engine.features.programs.servers.external_worker import program_of
from lcp_engine.features.programs.servers.mcp import (
    McpTool,
    ServerTools,
    left_out,
    read_tools,
    servers_in,
    tool_kinds,
    tools_file,
)
from lcp_engine.features.programs.servers.mcp_tools import ask_for_tools, changes_of, keep_tools, known_tools
from lcp_engine.features.programs.wall.programs import descendants
from lcp_engine.runner.confined.process import spawner
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.base import Caps, Context, Worker

if TYPE_CHECKING:
    from mcp.server import MCPServer

pytestmark = NEEDS_LANDLOCK

Kinds = Callable[..., dict[str, Worker[BaseModel]]]
WORDS = """
    import os, sys
    from pathlib import Path
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp_types import ImageContent, TextContent, ToolAnnotations
    from pydantic import BaseModel

    server = MCPServer("words", version="1.0")

    class Meaning(BaseModel):
        meaning: str

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look_up(word: str) -> Meaning:
        '''Say what a word means.'''
        return Meaning(meaning="It bakes." if word == "oven" else "unknown")
"""
MANY = """
    @server.tool()
    def one() -> int:
        return os.getpid()

    @server.tool()
    def two() -> int:
        return os.getpid()

    @server.tool()
    def meta(ctx: Context) -> dict[str, object]:
        return {key: value for key, value in dict(ctx.request_context.meta or {}).items() if "lcp" in key}

    @server.tool(structured_output=False)
    def picture() -> list[TextContent | ImageContent]:
        image = ImageContent(type="image", data="AAAA", mime_type="image/png")
        return [TextContent(type="text", text="Look:"), image]

    @server.tool()
    def raises() -> str:
        raise ValueError("no")

    @server.tool()
    async def asks_a_person(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", Meaning)).action

    @server.tool()
    def reads_outside() -> str:
        return Path("/etc/shadow").read_text()

    @server.tool()
    def is_rather_large() -> str:
        return "x" * 5_000_000

    @server.tool()
    def is_too_large() -> str:
        return "x" * 20_000_000

    @server.tool()
    def dies() -> str:
        os._exit(3)
"""
ENDING = """
    if __name__ == "__main__":
        server.run()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def kinds(tmp_path: Path) -> Kinds:
    """Writes a plain server, and returns the workers of its tools; `then` is the server that runs later."""

    def make(tools: str, *, then: str | None = None, **stated: JsonValue) -> dict[str, Worker[BaseModel]]:
        write_plain_server(tmp_path / "server.py", tools if then is None else then)
        server = servers_in({"words": {"command": [sys.executable, "./server.py"], **stated}})["words"]
        known = {"words": plain_tools(tools)}
        return {worker.kind: worker for worker in tool_kinds("words", server, known, tmp_path)}

    return make


def source_of(more: str = "") -> str:
    return textwrap.dedent(WORDS) + textwrap.dedent(more)


def write_server(directory: Path, more: str = "") -> None:
    (directory / "server.py").write_text(source_of(more) + textwrap.dedent(ENDING))


def loaded(source: str) -> MCPServer:
    module: dict[str, MCPServer] = {}
    exec(source, module)  # our own words
    return module["server"]


def tools_of(source: str) -> ServerTools:
    """What `ask_for_tools` is told by such a server, without the start of two processes."""
    from mcp import Client

    from lcp_engine.features.programs.servers import mcp_bridge

    async def asked() -> ServerTools:
        async with Client(loaded(source)) as client:
            return await mcp_bridge._tools(client, mcp_bridge._Sieve())

    return anyio.run(asked)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Job]]:
    """The jobs that one server was given one after the other, by the names of their tools."""
    place = tmp_path_factory.mktemp("many")
    write_server(place, MANY)
    server = servers_in({"words": {"command": [sys.executable, "./server.py"]}})["words"]
    known = {"words": tools_of(source_of(MANY))}
    workers = list(tool_kinds("words", server, known, place))
    asked = ["look_up", *("one", "two") * 3, "meta", "picture", *WRONG]
    found: dict[str, list[Job]] = {}
    with Engine(sqlite_url(place), workers=workers) as engine:
        ids = [
            engine.enqueue(f"words.{tool}", {"word": "oven"} if tool == "look_up" else {}) for tool in asked
        ]
        engine.work(until_idle=True)
        for tool, job_id in zip(asked, ids, strict=True):
            found.setdefault(tool, []).append(engine.job(job_id))
    return found


def ask(kinds: dict[str, Worker[BaseModel]], kind: str, root: Path, **params: JsonValue) -> JobResult:
    return run_job(kind, params, root, workers=kinds)


def failure(kinds: dict[str, Worker[BaseModel]], kind: str, root: Path) -> tuple[str, str]:
    error = ask(kinds, kind, root).error
    assert error is not None
    return error.error_code, error.user_message


def test_a_tool_is_a_kind_that_is_held_and_described(tmp_path: Path) -> None:
    write_server(tmp_path)
    server = servers_in({"words": {"command": [sys.executable, "./server.py"]}})["words"]
    known = ask_for_tools("words", server, tmp_path)
    assert known == tools_of(source_of())
    (worker,) = tool_kinds("words", server, {"words": known}, tmp_path)
    assert (worker.kind, worker.description, worker.has_effects) == (
        "words.look_up",
        "Say what a word means.",
        True,
    )
    assert worker.params.model_json_schema()["required"] == ["word"]
    program = program_of(worker)
    assert program is not None
    assert program.claims == "changes nothing"
    assert worker.max_attempts == 1


def test_a_job_gets_text_and_value_of_the_tool(settled: dict[str, list[Job]]) -> None:
    (done,) = settled["look_up"]
    assert done.result is not None
    assert done.result["structured"] == {"meaning": "It bakes."}
    assert json.loads(str(done.result["text"])) == {"meaning": "It bakes."}


def test_one_server_answers_the_jobs_of_all_its_kinds(settled: dict[str, list[Job]]) -> None:
    results = [job.result or {} for tool in ("one", "two") for job in settled[tool]]
    assert len(results) == 6
    assert len({json.dumps(result["structured"]) for result in results}) == 1


WRONG = {
    "raises": ("WORKER_FAILED", "Error executing tool raises"),
    "asks_a_person": ("WORKER_FAILED", "elicitation"),
    "reads_outside": ("WORKER_FAILED", "Error executing tool reads_outside"),
    "is_rather_large": ("TOO_LARGE", "at most 8"),
    "is_too_large": ("WORKER_FAILED", "sent a message of more than 16"),
    "dies": ("WORKER_FAILED", "its program ended with exit code 1"),
}


@pytest.mark.parametrize("tool", WRONG)
def test_what_a_tool_does_wrong_fails_its_job(settled: dict[str, list[Job]], tool: str) -> None:
    code, message = WRONG[tool]
    (job,) = settled[tool]
    assert job.error is not None
    assert (job.error["error_code"], message in str(job.error["user_message"])) == (code, True), job.error


def test_a_server_that_hangs_is_ended(kinds: Kinds, root: Path) -> None:
    found = kinds("@tool\ndef bad(): time.sleep(600)\n", timeout=2)
    assert failure(found, "words.bad", root) == (
        "TIMEOUT",
        "words.bad: it did not answer within 2 s, and was ended",
    )


def test_a_server_that_has_ended_is_started_again(kinds: Kinds) -> None:
    leave = """
        @tool
        def leave():
            threading.Timer(0.05, os._exit, (0,)).start()
            return "bye"
    """
    worker = kinds(leave)["words.leave"]
    context = Context(None, (), Policy().for_kind(worker.named, has_effects=False, writes=False), Caps())
    programs = ExternalPrograms()
    try:
        for _ in range(2):
            answer = programs.execute(worker, worker.params(), context, None).outcome
            assert isinstance(answer, BaseModel)
            assert answer.model_dump() == {"text": "bye", "structured": {"result": "bye"}}
            ((running,),) = programs._idle.values()
            wait_until(lambda running=running: not running.is_quiet, "it has not ended")  # type: ignore[misc]  # a lambda
    finally:
        programs.close()


def test_the_client_of_a_server_is_a_fork_that_permits_no_process_itself(kinds: Kinds) -> None:
    """It executes no program, which would have closed what only its supervisor may have."""
    worker = kinds("@tool\ndef stay():\n    return 'here'\n")["words.stay"]
    context = Context(None, (), Policy().for_kind(worker.named, has_effects=False, writes=False), Caps())
    programs = ExternalPrograms()
    try:
        programs.execute(worker, worker.params(), context, None)
        program = program_of(worker)
        assert program is not None
        loaded = spawner(program.call[0])._process
        assert loaded is not None
        supervisor, client, server = map(Path, (f"/proc/{one}" for one in descendants(loaded.pid)))
        commands = {(one / "cmdline").read_bytes() for one in (supervisor, client)}
        assert commands == {Path(f"/proc/{loaded.pid}/cmdline").read_bytes()}
        assert b"server.py" in (server / "cmdline").read_bytes()
        opened = [{str(link.readlink()) for link in (one / "fd").iterdir()} for one in (supervisor, client)]
        assert ["anon_inode:seccomp notify" in links for links in opened] == [True, False]
    finally:
        programs.close()


def test_a_tool_that_was_changed_or_removed_is_not_called(kinds: Kinds, tmp_path: Path) -> None:
    tool = "@tool\ndef {}(word):\n    '''{}'''\n    return word\n"
    names = ("changed", "removed", "doubled", "broken")
    before = "".join(tool.format(name, "Say it.") for name in names)
    doubled = (
        tool.format("doubled", "Say it.")
        + 'MORE += [{"name": "doubled", "inputSchema": {"type": "object"}}]\n'
    )
    broken = 'MORE += [{"name": "broken", "inputSchema": {"anyOf": [{"type": "object"}]}}]\n'
    found = kinds(before, then=tool.format("changed", "Say it to all.") + doubled + broken)
    with Engine(sqlite_url(tmp_path), workers=list(found.values())) as engine:
        ids = [engine.enqueue(f"words.{name}", {"word": "x"}) for name in names]
        engine.work(until_idle=True)
        errors = [engine.job(job).error or {} for job in ids]
    assert [error["error_code"] for error in errors] == ["CONFLICT", "NOT_FOUND", "CONFLICT", "CONFLICT"]
    assert "several tools of this name" in str(errors[2]["user_message"])
    assert 'inputSchema.type: "object" is expected' in str(errors[3]["user_message"])
    assert all("lcp kinds --update" in str(error["user_message"]) for error in errors)


def test_the_job_and_its_attempt_are_handed_in(settled: dict[str, list[Job]]) -> None:
    (done,) = settled["meta"]
    assert done.result is not None
    assert json.loads(str(done.result["text"])) == {"lcp-engine/job": done.id, "lcp-engine/attempt": 1}


def test_a_server_sees_the_root_only_if_it_needs_it(kinds: Kinds, root: Path) -> None:
    tool = "@tool\ndef names():\n    return sorted(os.listdir('.'))\n"
    (root / "a.txt").write_text("a")
    for needs, names in (({}, []), ({"root": True}, ["a.txt"])):
        done = ask(kinds(tool, needs=needs), "words.names", root)
        assert done.result is not None
        assert done.result["structured"] == {"result": names}


def test_content_that_is_no_text_is_named(settled: dict[str, list[Job]]) -> None:
    (done,) = settled["picture"]
    assert done.result == {"text": "Look:", "left_out": ["image/png, 3 B"]}


REFUSED: dict[str, tuple[JsonValue, str]] = {
    "neither": ({}, "a command or a url is expected, and not both"),
    "both": ({"command": "true", "url": "https://example.org"}, "a command or a url is expected, and not both"),
    "another key": ({"comand": "true"}, "mcp.words.comand: is not a known key; did you mean 'command'?"),
    "no url": ({"url": "file:///etc/passwd"}, "url is expected to begin with https:// or http://"),
    "a password": ({"url": "https://me:secret@example.org"}, "url has a password"),
    "in the clear": ({"url": "http://example.org", "token": "T"}, "url is expected to be https"),
    "token": ({"command": "true", "token": "T"}, "token is for a url"),
    "tools": ({"command": "true", "tools": ["lookup"]}, "mcp.words.tools: the server has no tool 'lookup'"),
    "missing": ({"command": "./nothing"}, "there is no such file"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_description_of_a_server_is_checked(tmp_path: Path, case: str) -> None:
    stated, message = REFUSED[case]
    known = {"words": ServerTools(tools=(McpTool(name="look_up", input_schema={"type": "object"}),))}

    def load() -> None:
        (server,) = servers_in({"words": stated}).values()
        list(tool_kinds("words", server, known, tmp_path))

    with pytest.raises(LcpError) as caught:
        load()
    assert message in str(caught.value)


def test_tools_that_cannot_be_kinds_are_left_out(tmp_path: Path) -> None:
    tools = (
        McpTool(name="good", input_schema={"type": "object"}),
        McpTool(name="bad name", input_schema={"type": "object"}),
        McpTool(name="reaches_out", input_schema={"$ref": "https://example.org/schema"}),
        McpTool(name="is_no_object", input_schema={"type": "array"}),
    )
    (server,) = servers_in({"words": {"command": "true"}}).values()
    known = {"words": ServerTools(tools=tools)}
    assert [worker.kind for worker in tool_kinds("words", server, known, tmp_path)] == ["words.good"]


def test_tools_that_cannot_be_told_apart_are_left_out(tmp_path: Path) -> None:
    names = ("good", "a.b", "a/b", "", "a..b", "twice", "twice")
    tools = tuple(McpTool(name=name, input_schema={"type": "object"}) for name in names)
    (server,) = servers_in({"words": {"command": "true"}}).values()
    known = {"words": ServerTools(tools=tools)}  # as files have them that were written before
    assert [worker.kind for worker in tool_kinds("words", server, known, tmp_path)] == ["words.good"]
    reasons = left_out("words", server, tools)
    assert set(reasons) == {"a.b", "a/b", "", "a..b", "twice"}
    assert reasons["a.b"] == reasons["a/b"]
    assert "'a.b' and 'a/b' would all be the kind 'words.a.b'" in reasons["a.b"]
    assert "several tools of this name" in reasons["twice"]
    (chosen,) = servers_in({"words": {"command": "true", "tools": ["a/b"]}}).values()
    assert [worker.kind for worker in tool_kinds("words", chosen, known, tmp_path)] == ["words.a.b"]


REFUSED_TOOLS: list[tuple[JsonValue, str, str]] = [
    ({"name": "any", "inputSchema": {"anyOf": [{"type": "object"}]}}, "any", 'inputSchema.type: "object" is expected'),
    ({"name": "none"}, "none", "inputSchema is missing"),
    ({"inputSchema": {"type": "object"}}, "number 5", "name is missing"),
    (7, "number 6", "the tool: Input should be"),
    ({"name": "out", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}}, "out", "outputSchema.type"),
    ({"name": "hint", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": 7}}, "hint", "readOnlyHint"),
    ({"name": "good", "inputSchema": {}}, "good", "several tools of this name"),
]  # fmt: skip


def test_a_tool_that_is_not_valid_is_refused_and_the_others_are_kept(tmp_path: Path) -> None:
    more = f"MORE += json.loads({json.dumps([tool for tool, _, _ in REFUSED_TOOLS])!r})\n"
    write_plain_server(
        tmp_path / "server.py", "@tool\ndef good():\n    pass\n@tool\ndef fine():\n    pass\n" + more
    )
    server = servers_in({"words": {"command": [sys.executable, "./server.py"]}})["words"]
    found = ask_for_tools("words", server, tmp_path)
    assert [tool.name for tool in found.tools] == ["fine"]
    assert [*found.refused] == [name for _, name, _ in REFUSED_TOOLS if name != "good"] + ["good"]
    for _, name, reason in REFUSED_TOOLS:
        assert reason in found.refused[name], name


def test_a_change_of_a_tool_is_told_by_its_keys() -> None:
    before = McpTool(name="tool", description="Say it.", input_schema={"type": "object"})
    after = before.model_copy(update={"description": "Say it to all."})
    (change,) = changes_of(ServerTools(tools=(before,)), ServerTools(tools=(after,)))
    assert change.changed == ("description",)


def test_what_servers_said_is_kept_beside_the_file(tmp_path: Path) -> None:
    (server,) = servers_in({"words": {"command": "true"}}).values()
    found = ServerTools(server="words 1", tools=(McpTool(name="tool", input_schema={"type": "object"}),))
    file = tmp_path / "kinds.yaml"
    assert keep_tools(file, {"words": server, "gone": server}, {"words": found, "gone": found}) == tools_file(
        file
    )
    keep_tools(file, {"words": server, "silent": server}, {})
    assert read_tools(tools_file(file)) == {"words": found, "silent": ServerTools(unanswered=True)}
    assert list(tool_kinds("silent", server, read_tools(tools_file(file)), tmp_path)) == []
    tools_file(file).write_text("[]")
    with pytest.raises(LcpError, match="the tools of MCP servers are expected"):
        read_tools(tools_file(file))
    assert known_tools(file) == {}


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit('no licence')")
    (server,) = servers_in({"words": {"command": [sys.executable, "./server.py"]}}).values()
    with pytest.raises(LcpError, match=r"its tools could not be asked for: .*: no licence$"):
        ask_for_tools("words", server, tmp_path)
    (tmp_path / "server.py").write_text("raise SystemExit(1)")
    with pytest.raises(
        LcpError, match=r"exit code 1; it wrote nothing to stderr, and has only what its needs"
    ):
        ask_for_tools("words", server, tmp_path)


@pytest.fixture
def http_server() -> Iterator[int]:
    """A server over HTTP on a port of this machine. It needs no process of its own: it could be anywhere."""
    app = loaded(source_of()).streamable_http_app()
    serving = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serving.run, args=([listening],))
        thread.start()
        yield listening.getsockname()[1]
        serving.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def test_a_server_over_http_is_asked(
    http_server: int, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS_TOKEN", "a-secret-of-words")
    stated: JsonValue = {"url": f"http://127.0.0.1:{http_server}/mcp", "token": "WORDS_TOKEN"}
    (server,) = servers_in({"words": stated}).values()
    known = {"words": ask_for_tools("words", server, tmp_path)}
    found = {worker.kind: worker for worker in tool_kinds("words", server, known, tmp_path)}
    done = ask(found, "words.look_up", root, word="oven")
    assert done.result is not None
    assert done.result["structured"] == {"meaning": "It bakes."}


HOSTILE = """
import gzip, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

seen = open(sys.argv[1], "a", buffering=1)

class Hostile(BaseHTTPRequestHandler):
    def log_message(self, *said): pass

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen.write(f"{self.server.server_port} {self.headers['Authorization']}\\n")
        if "id" not in asked or "method" not in asked:
            return self.answer(b"", 202)
        said = lambda result: json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        text = lambda text: said({"content": [{"type": "text", "text": text}]})
        if asked["method"] == "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "hostile", "version": "1"}
            return self.answer(said({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}))
        if asked["method"] != "tools/call":
            names = ["big", "packed", "elsewhere", "deep", "cut"]
            return self.answer(said({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}))
        match asked["params"]["name"]:
            case "big": self.answer(text("x" * 20_000_000))
            case "packed": self.answer(gzip.compress(text("x" * 20_000_000), 1), Content_Encoding="gzip")
            case "elsewhere": self.answer(b"", 307, Location=f"http://127.0.0.1:{other.server_port}/")
            case "deep": self.answer(text("x").replace(b'"x"', b"[" * 100_000))
            case "cut": self.answer(b"{", **{"Content-Length": 500})

other, server = (ThreadingHTTPServer(("127.0.0.1", 0), Hostile) for _ in range(2))
threading.Thread(target=other.serve_forever, daemon=True).start()
print(server.server_port, other.server_port, flush=True)
server.serve_forever()
"""


def test_a_hostile_server_over_http_fails_its_jobs_and_learns_nothing_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.setenv("WORDS_TOKEN", "a-secret-of-words")
    program = [sys.executable, str(tmp_path / "hostile.py"), str(tmp_path / "seen")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port, other = process.stdout.readline().split()
            stated: JsonValue = {"url": f"http://127.0.0.1:{port}/mcp", "token": "WORDS_TOKEN"}
            (server,) = servers_in({"words": stated}).values()
            known = {"words": ask_for_tools("words", server, tmp_path)}
            found = {worker.kind: worker for worker in tool_kinds("words", server, known, tmp_path)}
            told = {kind.removeprefix("words."): failure(found, kind, root) for kind in found}
        finally:
            process.kill()
    for name, said in {
        "big": "the MCP server sent a message of more than 16",
        "packed": "the MCP server sent a compressed answer",
        "elsewhere": f"Redirect to http://127.0.0.1:{other}/ not followed",
        "deep": "Failed to parse JSON response",
        "cut": "without sending complete message body",
    }.items():
        code, message = told[name]
        assert (code, said in message) == ("WORKER_FAILED", True), (name, message)
    lines = (tmp_path / "seen").read_text().splitlines()
    assert f"{port} Bearer a-secret-of-words" in lines
    assert not any(line.startswith(f"{other} ") for line in lines)


def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    (server,) = servers_in({"words": {"url": "http://127.0.0.1:9/mcp"}}).values()
    with pytest.raises(LcpError, match="the MCP server cannot be used"):
        ask_for_tools("words", server, tmp_path)
