"""Kinds that are programs of any language: what they are asked, what they may answer, and what is there for them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.loaded_python import Python
from tests.patience import in_thread, wait_until
from tests.tables import table
from tests.walls import NEEDS_LANDLOCK

from lcp_engine import Engine, ErrorCode, LcpError
from lcp_engine.core.policy import Policy
from lcp_engine.features.authoring.run_job import JobResult, run_job
from lcp_engine.features.programs.execution import Commands
from lcp_engine.features.programs.servers import external
from lcp_engine.features.programs.servers.external_worker import Needs, kinds_in
from lcp_engine.features.programs.servers.load_files import load_workers
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root
from lcp_engine.workers import registry
from lcp_engine.workers.base import Answered, Caps, Context, Worker

pytestmark = NEEDS_LANDLOCK

Stated = dict[str, JsonValue]
ONCE = "import json, sys; job = json.load(sys.stdin)\n"
MANY = "import json, os, sys, time\nfor line in sys.stdin:\n    job = json.loads(line)\n"


@pytest.fixture
def kind(tmp_path: Path) -> Callable[..., Worker[BaseModel]]:
    """Writes a program in Python, or a shell script, and describes the kind `k` that it executes.

    Python starts without the packages that are installed, since to look for them takes time.
    """

    def make(source: str, *, shell: bool = False, **stated: JsonValue) -> Worker[BaseModel]:
        program = tmp_path / "program"
        program.write_text(f"#!{'/bin/sh' if shell else f'{sys.executable} -IS'}\n{source}")
        program.chmod(0o755)
        (worker,) = kinds_in({"k": {"command": "./program", "has_effects": False, **stated}}, tmp_path)
        return worker

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def ask(worker: Worker[BaseModel], root: Path, **params: JsonValue) -> JobResult:
    return run_job("k", params, root, workers={"k": worker})


def failure(worker: Worker[BaseModel], root: Path) -> tuple[str, str]:
    error = ask(worker, root).error
    assert error is not None
    return error.error_code, error.user_message


def test_a_shell_script_answers_a_job(kind: Callable[..., Worker[BaseModel]], root: Path) -> None:
    worker = kind('read -r job; echo "{\\"result\\": {\\"asked\\": $job}}"', shell=True)
    done = ask(worker, root, word="oven")
    assert done.result == {"asked": {"id": 0, "attempt": 1, "kind": "k", "params": {"word": "oven"}}}


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_a_script_of_node_answers_a_job(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.js"
    program.write_text("process.stdin.on('data', () => console.log('{\"result\": {\"ok\": true}}'))\n")
    (worker,) = kinds_in({"k": {"command": ["node", "./program.js"], "has_effects": False}}, tmp_path)
    assert ask(worker, root).result == {"ok": True}


def test_a_program_of_a_toolchain_is_shown_that_without_credentials(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uvx` here is a script that answers with what it can read."""
    home = tmp_path / "home"
    tools, credentials = home / ".local/share/uv/tools/own/answer", home / ".local/share/uv/credentials/all"
    for file in (tools, credentials, home / ".cargo/config.toml"):
        file.parent.mkdir(parents=True)
        file.write_text(file.parent.name)
    program = home / ".local/bin/uvx"
    program.parent.mkdir()
    paths = f"{tools} {credentials} {home}/.cargo/config.toml"
    program.write_text(
        f'#!/bin/sh\nread -r job; said="$(cat {paths} 2>/dev/null)"\n'
        'echo "{\\"result\\": {\\"said\\": \\"$said$UV_TOOL_DIR\\"}}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (worker,) = kinds_in({"k": {"command": ["uvx"], "has_effects": False}}, tmp_path)
    assert ask(worker, root).result == {"said": f"own{home}/.local/share/uv/tools"}


def test_a_long_lived_program_answers_many_jobs_of_a_runner(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path
) -> None:
    source = (
        "    print(json.dumps({'id': job['id'], 'result': {'pid': os.getpid(), 'job': job}}), flush=True)"
    )
    worker = kind(MANY + source, long_lived=True)
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        ids = [engine.enqueue("k", {"n": n}) for n in range(20)]
        engine.work(until_idle=True)
        results = [engine.job(one).result or {} for one in ids]
    assert len({result["pid"] for result in results}) == 1
    assert [result["job"] for result in results] == [
        {"id": one, "attempt": 1, "kind": "k", "params": {"n": n}} for n, one in enumerate(ids)
    ]
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(results[0]["pid"])), 0)


@pytest.mark.parametrize(
    "error",
    [
        "'y' * 5_000_000",
        "{'message': 'no', 'all': 'y' * 5_000_000}",
        "{'message': 'y' * 5_000_000, 'of': [1]}",
    ],
)
def test_a_long_error_is_not_kept_whole(
    kind: Callable[..., Worker[BaseModel]], root: Path, error: str
) -> None:
    told = ask(kind(ONCE + f"print(json.dumps({{'error': {error}}}))"), root).error
    assert told is not None
    assert len(json.dumps(told.as_json())) < 70_000
    details = told.technical_details
    said = str(details.get("message", told.user_message))
    assert said == "no" or said.endswith("… (4,934,464 more characters are left out)")
    assert ("left_out" in details) == ("{" in error)


def test_each_attempt_has_a_number_of_its_own(kind: Callable[..., Worker[BaseModel]], tmp_path: Path) -> None:
    source = ONCE + "print(json.dumps({'result': job} if job['attempt'] == 2 else {'error': 'not yet'}))"
    with Engine(sqlite_url(tmp_path), workers=[kind(source, backoff=0)]) as engine:
        job = engine.enqueue("k", {})
        engine.work(until_idle=True)
        assert engine.job(job).result == {"id": job, "attempt": 2, "kind": "k", "params": {}}


WRONG: dict[str, tuple[str, ErrorCode, str]] = {
    "says nothing": ("cat > /dev/null", ErrorCode.WORKER_FAILED, "expected on stdout; it wrote 0"),
    "two lines": ("echo '{}'; echo '{}'", ErrorCode.WORKER_FAILED, "it wrote 2: '{}' and more"),
    "no JSON": ("echo Hello", ErrorCode.WORKER_FAILED, "a line of JSON is expected, it answered 'Hello'"),
    "bytes": ("printf '\\377\\n'", ErrorCode.WORKER_FAILED, "a line of JSON is expected"),
    "NaN": ("echo '{\"result\": {\"n\": NaN}}'", ErrorCode.WORKER_FAILED, "NaN is not JSON"),
    "deep": ("head -c 100000 /dev/zero | tr '\\0' '['", ErrorCode.WORKER_FAILED, "a line of JSON is expected"),
    "a list": ("echo '[1]'", ErrorCode.WORKER_FAILED, "an object is expected, it answered [1]"),
    "neither": ("echo '{\"ok\": true}'", ErrorCode.WORKER_FAILED, "it has ok"),
    "both": ("echo '{\"result\": {}, \"error\": \"no\"}'", ErrorCode.WORKER_FAILED, "it has result, error"),
    "result is not an object": ("echo '{\"result\": 3}'", ErrorCode.WORKER_FAILED, "it has result"),
    "empty error": ("echo '{\"error\": \"\"}'", ErrorCode.WORKER_FAILED, "error is expected to be a text"),
    "another job": ("echo '{\"id\": 9, \"result\": {}}'", ErrorCode.WORKER_FAILED, "its id is 9, 0 is expected"),
    "states an error with a code": (
        "echo '{\"error\": {\"message\": \"gone\", \"code\": \"PATH_NOT_FOUND\"}}'", ErrorCode.PATH_NOT_FOUND, "gone"
    ),
    "a code of the database": (
        "echo '{\"error\": {\"message\": \"x\", \"code\": \"DATABASE_BUSY\"}}'", ErrorCode.WORKER_FAILED, "x"
    ),
    "a code that is not text": (
        "echo '{\"error\": {\"message\": \"x\", \"code\": {}}}'", ErrorCode.WORKER_FAILED, "x"
    ),
    "states an error": ("echo '{\"error\": {\"message\": \"no such word\"}}'", ErrorCode.WORKER_FAILED, "no such word"),
    "an error with its exit code": ("echo '{\"error\": \"no\"}'; exit 3", ErrorCode.WORKER_FAILED, "no"),
    "exit code": ("echo why >&2; exit 3", ErrorCode.WORKER_FAILED, "its program ended with exit code 3: why"),
    "a result, and an exit code": ("echo '{\"result\": {}}'; exit 3", ErrorCode.WORKER_FAILED, "exit code 3"),
    "a signal": ("kill -KILL $$", ErrorCode.WORKER_DIED, "its program ended by signal 9"),
    "hangs": ("sleep 60", ErrorCode.TIMEOUT, "it did not answer within 1 s, and was ended"),
    "closes its pipes and hangs": ("exec >&- 2>&- <&-; sleep 60", ErrorCode.TIMEOUT, "did not answer within 1 s"),
    "an answer without end": ("cat /dev/zero", ErrorCode.TOO_LARGE, "it answered more than 1,000,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_program_does_wrong_is_one_clear_error(
    kind: Callable[..., Worker[BaseModel]], root: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(external, "MOST_ANSWER", 1_000_000)
    script, code, message = WRONG[wrong]
    found = failure(kind(script, shell=True, timeout=1 if code is ErrorCode.TIMEOUT else 60), root)
    assert found[0] == code
    assert message in found[1]
    assert len(found[1]) < 700


LONG_WRONG: dict[str, tuple[str, ErrorCode, str]] = {
    "no id": ("print('{\"result\": {}}', flush=True)", ErrorCode.WORKER_FAILED, "it has no id, 0 is expected"),
    "goes on": ("sys.stdout.write('{}\\n{}\\n'); sys.stdout.flush()", ErrorCode.WORKER_FAILED, "it went on with '{}"),
    "ends": ("sys.exit(0)", ErrorCode.WORKER_FAILED, "its program ended with exit code 0 without an answer"),
    "half a line": ("sys.stdout.write('{'); sys.exit(4)", ErrorCode.WORKER_FAILED, "exit code 4"),
    "hangs": ("time.sleep(60)", ErrorCode.TIMEOUT, "it did not answer within 1 s"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", LONG_WRONG)
def test_what_a_long_lived_program_does_wrong_ends_it(
    kind: Callable[..., Worker[BaseModel]], root: Path, wrong: str
) -> None:
    source, code, message = LONG_WRONG[wrong]
    seconds = 1 if code is ErrorCode.TIMEOUT else 60
    found = failure(kind(MANY + f"    {source}\n", long_lived=True, timeout=seconds), root)
    assert found[0] == code
    assert message in found[1]


def test_a_program_that_ended_or_spoke_between_two_jobs_is_replaced(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path
) -> None:
    source = textwrap.indent(
        "print(json.dumps({'id': job['id'], 'result': {'pid': os.getpid()}}), flush=True)\n"
        "while not os.path.exists(job['params']['sign']): time.sleep(0.01)\n"
        "if job['params']['then'] == 'ends': sys.exit(0)\n"
        "if job['params']['then'] == 'speaks': print('more', flush=True)\n",
        "    ",
    )
    ids: list[int] = []
    with Engine(sqlite_url(tmp_path), workers=[kind(MANY + source, long_lived=True)]) as engine:
        runner = engine.runner()

        def is_seen(then: str) -> bool:
            """Whether the engine would see what the program that waits for jobs has done."""
            (commands,) = runner._executor._executing.values()
            assert isinstance(commands, Commands)
            idle = [one for pool in commands._programs._idle.values() for one in pool]
            return [one.is_quiet for one in idle] == [not then]

        with in_thread(runner.run, runner.stop):
            for then in ("ends", "speaks", ""):
                sign = tmp_path / f"answered {then}"
                ids.append(engine.enqueue("k", {"then": then, "sign": str(sign)}))
                wait_until(lambda: engine.job(ids[-1]).state == "succeeded")
                sign.touch()
                wait_until(partial(is_seen, then))
        jobs = [engine.job(one) for one in ids]
    assert [(job.state, job.attempt) for job in jobs] == [("succeeded", 1)] * 3
    assert len({(job.result or {})["pid"] for job in jobs}) == 3


def test_stderr_is_kept_with_a_failure_up_to_its_last_bytes(
    kind: Callable[..., Worker[BaseModel]], root: Path
) -> None:
    script = "i=0; head -c 3000000 /dev/zero | tr '\\0' 'x' >&2; echo; echo the end >&2; exit 1"
    error = ask(kind(script, shell=True), root).error
    assert error is not None
    stderr = str((error.technical_details or {})["stderr"])
    assert stderr.endswith("the end")
    assert len(stderr) <= external.MOST_STDERR


def stderr_of(engine: Engine, job: int) -> JsonValue:
    """What the JSON of a job has for its only attempt."""
    (attempt,) = engine.job(job).attempts
    assert isinstance(attempt, dict)
    return attempt["stderr"]


def test_stderr_of_a_success_is_kept_with_its_attempt_up_to_its_last_bytes(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "sk-0123456789abcdef")
    source = ONCE + (
        "import os\nif job['params']['talks']:\n"
        "    print('x' * 3_000_000, os.environ['API_KEY'], '\\0 the end', file=sys.stderr)\n"
        "print(json.dumps({'result': {'ok': True}}))"
    )
    worker = kind(source, needs={"environment": ["API_KEY"]})
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        talks, is_quiet = (engine.enqueue("k", {"talks": talks}) for talks in (True, False))
        engine.work(until_idle=True)
        said = str(stderr_of(engine, talks))
        assert said.endswith("xx … \N{REPLACEMENT CHARACTER} the end")
        assert 8000 < len(said) <= external.MOST_STDERR
        assert stderr_of(engine, is_quiet) is None
        assert engine.job(talks).result == {"ok": True}


def test_stderr_of_a_long_lived_program_is_kept_with_the_job_that_it_was_at(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path
) -> None:
    source = MANY + (
        "    print('at', job['params']['n'], file=sys.stderr, flush=True)\n"
        "    print(json.dumps({'id': job['id'], 'result': {}}), flush=True)\n"
    )
    with Engine(sqlite_url(tmp_path), workers=[kind(source, long_lived=True)]) as engine:
        ids = [engine.enqueue("k", {"n": n}) for n in range(8)]
        engine.work(until_idle=True, threads=1)
        said = [str(stderr_of(engine, job) or "") for job in ids]
    # Jobs that are sent together are answered together: what is written may be read with one before.
    assert " ".join(said).split() == " ".join(f"at {n}" for n in range(8)).split()
    assert said[0].startswith("at 0")


def test_what_a_program_leaves_behind_ends_with_it(
    kind: Callable[..., Worker[BaseModel]], root: Path
) -> None:
    script = 'sleep 600 & echo "{\\"result\\": {\\"pid\\": $!}}"'
    result = ask(kind(script, shell=True), root).result
    assert result is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(result["pid"])), 0)


def test_a_program_finds_nothing_but_what_its_kind_needs(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "of_root").write_text("secret")
    beside = tmp_path / "beside"
    beside.write_text("secret")
    monkeypatch.setenv("SECRET", "secret")
    source = ONCE + textwrap.dedent(f"""
        import os, socket
        def works(call):
            try:
                call()
            except OSError as error:
                return type(error).__name__
            return True
        print(json.dumps({{"result": {{
            "root": works(lambda: open({str(root / "of_root")!r}).read()),
            "beside": works(lambda: open({str(beside)!r}).read()),
            "network": works(socket.socket),
            "writes": works(lambda: open("here", "w").write("x")),
            "outside": works(lambda: open({str(tmp_path / "new")!r}, "w")),
            "environment": sorted(os.environ), "files": os.listdir("."),
        }}}}))
    """)
    result = ask(kind(source), root).result
    assert result is not None
    names = result.pop("environment")
    assert isinstance(names, list)
    assert set(names) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "TERM",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "LC_CTYPE",
    }
    refused = "PermissionError"
    assert result == {
        "root": refused, "beside": refused, "network": refused, "writes": True, "outside": refused, "files": ["here"],
    }  # fmt: skip


@pytest.mark.skipif(not os.access("/opt", os.W_OK), reason="/opt cannot be written")
@pytest.mark.parametrize("long_lived", [False, True])
def test_a_program_does_not_see_a_root_in_a_place_of_the_system(
    kind: Callable[..., Worker[BaseModel]], *, long_lived: bool
) -> None:
    source = """
for line in sys.stdin:
    try:
        found = open(json.loads(line)["params"]["path"]).read()
    except OSError as error:
        found = error.strerror
    print(json.dumps({"id": json.loads(line)["id"], "result": {"found": found}}), flush=True)
"""
    worker = kind(f"import json, sys\n{source}", long_lived=long_lived)
    with TemporaryDirectory(dir="/opt") as place:
        root = Path(place, "root")
        root.mkdir()
        for file in (root / "a.txt", Path(place, "b.txt")):
            file.write_text("seen")
        assert ask(worker, root, path=str(root / "a.txt")).result == {"found": "Permission denied"}
        assert ask(worker, root, path=f"{place}/b.txt").result == {"found": "seen"}


def test_a_program_that_needs_the_root_gets_a_copy_without_secrets(
    kind: Callable[..., Worker[BaseModel]], root: Path
) -> None:
    for name in ("a.txt", ".env"):
        (root / name).write_text("before")
    source = (
        ONCE
        + "import os; open('a.txt', 'a').write('x'); print(json.dumps({'result': {'files': os.listdir()}}))"
    )
    said = "what it changed in the root is lost: a.txt"
    dropped = {"files": ["a.txt"], "left_out": [said]}
    assert ask(kind(source, needs={"root": "read"}), root).result == dropped
    assert (root / "a.txt").read_text() == "before"


NODE = """node:internal/modules/esm/resolve:283
    throw new ERR_MODULE_NOT_FOUND(
          ^

Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/x.js' imported from /y.js
    at finalizeResolution (node:internal/modules/esm/resolve:283:11) {
  code: 'ERR_MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
NPM = """npm error code E404
npm error 404 Not Found - GET /nothing
npm error
npm notice
npm notice New minor version of npm available! 11.19.1 -> 11.21.2
npm error A complete log of this run can be found in: /home/x/.npm/_logs/x.log
"""
PANIC = "panic: no licence\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:4 +0x1d\nexit status 2\n"
TRACE = "Traceback (most recent call last):\n  File 'x', line 1, in <module>\nImportError: no module 'x'\n"


@table(
    ("wrote", "said"),
    [
        (NODE, "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/x.js' imported from /y.js"),
        (NPM, "npm error code E404 | npm error 404 Not Found - GET /nothing"),
        (PANIC, "panic: no licence | main.main() | exit status 2"),
        (TRACE, "ImportError: no module 'x'"),
        ("one\ntwo\nthree\nfour\n", "two | three | four"),
        ("  only\n  indented\n", "only"),
        ("", ""),
    ],
)
def test_a_message_has_the_last_lines_that_say_something(wrote: str, said: str) -> None:
    assert external.telling_lines(wrote) == said


def test_a_program_whose_changes_of_the_root_would_be_lost_fails(
    kind: Callable[..., Worker[BaseModel]], root: Path
) -> None:
    source = "read -r job; echo said >&2; echo x >sk-0123456789; mkdir made; echo '{\"result\": {}}'"
    said = "what it changed in the root is lost: made/, sk-0123456789"
    error = ask(kind(source, shell=True, needs={"root": True}), root).error
    assert error is not None
    assert (error.error_code, error.user_message) == ("NOT_ALLOWED", f"k: {said}")
    assert error.technical_details == {"stderr": "said", "lost": ["made/", "sk-0123456789"]}
    assert all(one in str(error.recommended_actions) for one in ("root: read", "root: write"))
    closed: JsonValue = {"type": "object", "additionalProperties": False}
    worker = kind(source, shell=True, needs={"root": "read"}, result=closed)
    judge = Policy().for_kind(worker.named, has_effects=False, writes=False)
    with Root(root) as opened:
        context = Context(opened, (), judge, Caps())
        over = external.ProgramRoot(RootAccess(opened, lambda _: True))
        answer = external.ExternalPrograms().execute(worker, worker.params(), context, over)
    assert answer == Answered(worker.result(), f"said\n{said}")
    assert list(root.iterdir()) == []


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"hello")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_the_network_is_there_for_a_program_that_needs_it(
    kind: Callable[..., Worker[BaseModel]], root: Path, port: int
) -> None:
    source = ONCE + (
        f"import socket; said = socket.create_connection(('127.0.0.1', {port})).recv(9).decode()\n"
        "try:\n    socket.socket(socket.AF_UNIX)\nexcept OSError:\n    said += ', no others'\n"
        "print(json.dumps({'result': {'said': said}}))"
    )
    assert ask(kind(source, needs={"network": True}), root).result == {"said": "hello, no others"}


def test_a_variable_of_the_environment_is_given_and_never_told(
    kind: Callable[..., Worker[BaseModel]], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs: JsonValue = {"environment": ["API_KEY"]}
    source = "import os, sys; print(os.environ['API_KEY'], file=sys.stderr); print(os.environ['API_KEY'])"
    worker = kind(source, needs=needs)
    code, message = failure(worker, root)
    assert code == ErrorCode.WORKER_FAILED
    assert "needs the environment variable API_KEY, which this runner does not have" in message
    monkeypatch.setenv("API_KEY", "sk-0123456789abcdef")
    assert "sk-0123456789abcdef" not in json.dumps(ask(worker, root).error, default=str)
    told = kind("import json, os; print(json.dumps({'result': {'key': os.environ['API_KEY']}}))", needs=needs)
    assert ask(told, root).result == {"key": "…"}


SECRETS = ['Zq7"kW9x', "pässwort1", 'a/b\\c"d12', "hunter22", "123456", "sk-0123456789abcdef", " spaced7\n"]
SAYS: dict[str, str] = {
    "a value": "print(json.dumps({'result': {'is': key}}))",
    "in the middle of a value": "print(json.dumps({'result': {'is': ['x' + key + 'y', {'z': key}]}}))",
    "a name": "print(json.dumps({'result': {key: 1, '…': 2}}))",
    "every character escaped": (
        "print('{\"result\": {\"is\": \"' + ''.join('\\\\u%04x' % ord(c) for c in key) + '\"}}')"
    ),
    "a slash escaped": "print(json.dumps({'result': {'is': key}}).replace('/', '\\\\/'))",
    "a number": "print(json.dumps({'result': {'is': int(key) if key.isdigit() else key}}))",
    "JSON in JSON": "print(json.dumps({'result': {'is': json.dumps(json.dumps({'key': key}))}}))",
    "an error": "print(json.dumps({'error': 'bad ' + key}))",
    "details of an error": "print(json.dumps({'error': {'message': 'no', key: [key, {'of': key}]}}))",
    "no answer": "print('I know ' + json.dumps(key))",
    "an answer that is cut": "print('x' * 95 + key)",
    "two lines": "print(json.dumps(key)); print()\nprint(key)",
    "no object": "print(json.dumps([key]))",
    "wrong keys": "print(json.dumps({key: 1}))",
    "another id": "print(json.dumps({'id': key, 'result': {}}))",
    "in two pieces": (
        "said = json.dumps({'result': {'is': key}})\n"
        "for part in (said[:18], said[18:]): sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.05)"
    ),
    "stderr": "print(json.dumps(key), key, repr(key), file=sys.stderr); print('{\"result\": {}}')",
    "stderr that is cut": "sys.stderr.write('x' * 99 + key + 'y' * 8186); print('{\"result\": {}}')",
    "stderr of a failure": "print(key, file=sys.stderr); sys.exit(json.dumps(key))",
    "percent": "print(json.dumps({'result': {'is': ['https://a/?k=' + quote(key, safe=''), quote_plus(key)]}}))",
    "base64": (
        "told = [b64encode(b'abc'[:n] + key.strip().encode()).decode() for n in range(3)]\n"
        "print(json.dumps({'result': {'is': told}}))"
    ),
    "hex": "print(json.dumps({'result': {'is': [key.encode().hex(), key.encode().hex(' ').upper()]}}))",
}  # fmt: skip
COMMON = {"a value", "an error", "in two pieces", "stderr", "base64"}
"""What `make test` looks at; the proofs look at all."""


@pytest.mark.parametrize(
    "how", [how if how in COMMON else pytest.param(how, marks=pytest.mark.proof) for how in SAYS]
)
def test_no_spelling_of_a_variable_is_stored(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for nth, secret in enumerate(SECRETS):
        monkeypatch.setenv(f"KEY_{nth}", secret)
    source = (
        "from base64 import b64encode\nfrom urllib.parse import quote, quote_plus\nimport os, time\n"
        f"key = os.environ[job['params']['name']]\n{SAYS[how]}\n"
    )
    names: list[JsonValue] = [f"KEY_{nth}" for nth in range(len(SECRETS))]
    worker = kind(ONCE + source, needs={"environment": names}, max_attempts=1)
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        ids = [engine.enqueue("k", {"name": name}) for name in names]
        engine.work(until_idle=True)
        told = [engine.job(one) for one in ids]
    for secret, job in zip(SECRETS, told, strict=True):
        said = [
            text for text in texts_in([job.result, job.error, job.attempts]) if not BY_CHANCE.fullmatch(text)
        ]
        assert [text for text in said if tells(text, secret)] == []
    assert b"spaced7" not in (tmp_path / "lcp.db").read_bytes()
    assert [job.state for job in told] in (["succeeded"] * len(told), ["failed"] * len(told))


BY_CHANCE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00|(?:err|req)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""A time, or an id that the engine made: the digits may be anything, also those of a short secret."""


def texts_in(value: object) -> list[str]:
    """All texts of a value, and its names."""
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts_in(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in texts_in(one)]
    return [str(value)]


def tells(text: str, secret: str) -> bool:
    """Whether someone who reads the text finds most of the secret, in a usual encoding."""
    key = secret.strip()
    coded = [b64encode(bytes(n) + key.encode()).decode()[4:-4] for n in range(3)]
    spelled = [
        key[: len(key) - 2],
        key[2:],
        quote(key, safe=""),
        json.dumps(key)[1:-1],
        key.encode().hex(),
        *coded,
    ]
    bare = text.replace("\\", "").replace(" ", "").lower()
    return any(len(one) > 3 and one.replace("\\", "").lower() in bare for one in spelled)


def test_a_variable_that_is_split_between_two_jobs_is_not_stored(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", 'Zq7"kW9x')
    source = MANY + (
        "    half = job['params']['half']\n"
        "    os.write(2, os.environ['KEY'].encode()[slice(*half)])\n"
        "    print(json.dumps({'id': job['id'], 'result': {}}), flush=True)\n"
    )
    worker = kind(source, long_lived=True, needs={"environment": ["KEY"]})
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        halves: list[list[JsonValue]] = [[0, 5], [5, 8]]
        ids = [engine.enqueue("k", {"half": [*half]}) for half in halves]
        engine.work(until_idle=True, threads=1)
        said = [str(stderr_of(engine, job) or "") for job in ids]
    assert "".join(said) == "…"


def test_files_that_a_kind_names_can_be_read(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "oven").write_text("It bakes.")
    source = (
        ONCE + f"print(json.dumps({{'result': {{'is': open({str(tmp_path / 'words' / 'oven')!r}).read()}}}}))"
    )
    assert ask(kind(source, needs={"read": ["words"]}), root).result == {"is": "It bakes."}


def test_at_most_so_many_of_a_program_are_at_a_job(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path
) -> None:
    source = ONCE + "import time; began = time.time(); time.sleep(0.2)\n"
    source += "print(json.dumps({'result': {'began': began, 'ended': time.time()}}))"
    with Engine(sqlite_url(tmp_path), workers=[kind(source, concurrency=1, has_effects=False)]) as engine:
        ids = [engine.enqueue("k", {"n": n}) for n in range(4)]
        engine.work(until_idle=True, threads=4)
        spans = sorted(
            (float(str(r["began"])), float(str(r["ended"])))
            for r in (engine.job(i).result or {} for i in ids)
        )
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_a_program_ends_with_a_runner_that_is_killed(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path
) -> None:
    worker = kind(MANY + "    time.sleep(600)\n", long_lived=True)
    marker = f"lcp-test-{os.getpid()}-{time.monotonic_ns()}"
    (tmp_path / "kinds.yaml").write_text(
        json.dumps({"k": {"command": ["./program", marker], "long_lived": True, "has_effects": False}})
    )
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        engine.enqueue("k", {})
    runner = Python(
        "-m", "lcp_engine", "work", "--db", sqlite_url(tmp_path), "--workers", "kinds.yaml",
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: processes(marker) != [])
        runner.send_signal(signal.SIGKILL)
        wait_for(lambda: processes(marker) == [])
    finally:
        runner.kill()
        runner.wait()


def processes(marker: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_many_threads_share_programs_that_stay(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path
) -> None:
    source = "    print(json.dumps({'id': job['id'], 'result': job['params']}), flush=True)"
    with Engine(sqlite_url(tmp_path), workers=[kind(MANY + source, long_lived=True)]) as engine:
        with ThreadPoolExecutor(4) as pool:
            ids = list(pool.map(lambda n: engine.enqueue("k", {"n": n}), range(200)))
        engine.work(until_idle=True, threads=4)
        found = sorted(int(str((engine.job(one).result or {})["n"])) for one in ids)
    assert found == list(range(200))


def test_of_jobs_that_are_sent_together_only_the_one_at_fault_fails(
    kind: Callable[..., Worker[BaseModel]], tmp_path: Path
) -> None:
    source = textwrap.indent(
        "n = job['params']['n']\n"
        "if n == 5: os._exit(7)\n"
        "if n == 9: print('{', flush=True)\n"
        "elif n == 12: time.sleep(60)\n"
        "elif n == 14: print(json.dumps({'id': job['id'], 'error': 'no'}), flush=True)\n"
        "else:\n"
        "    result = {'n': n, 'long': 'x' * job['params']['size']}\n"
        "    print(json.dumps({'id': job['id'], 'result': result}), flush=True)\n",
        "    ",
    )
    worker = kind(MANY + source, long_lived=True, max_attempts=1, timeout=5)
    with Engine(sqlite_url(tmp_path), workers=[worker]) as engine:
        ids = [engine.enqueue("k", {"n": n, "size": n * 1000, "pad": "y" * n * 300}) for n in range(120)]
        engine.work(until_idle=True)
        jobs = [engine.job(one) for one in ids]
    failed = {n: str(job.error) for n, job in enumerate(jobs) if job.state == "failed"}
    assert sorted(failed) == [5, 9, 12, 14]
    for n, message in ((5, "exit code 7"), (9, "a line of JSON"), (12, "within 5 s"), (14, "no")):
        assert message in failed[n]
    assert [(job.result or {})["n"] for n, job in enumerate(jobs) if n not in failed] == [
        n for n in range(120) if n not in failed
    ]


TEXTS: JsonValue = {"anyOf": [{"type": "string"}, {"type": ["array", "null"]}]}
STATED: dict[str, tuple[JsonValue, str]] = {
    "not a mapping": ([], "a mapping is expected, from the name of each kind to what it is"),
    "no command": ({"k": {}}, "k.command: is required and missing"),
    "an empty command": ({"k": {"command": ""}}, "k.command: "),
    "half a quote": ({"k": {"command": "'x"}}, "k.command: No closing quotation"),
    "unknown key": ({"k": {"command": "cat", "param": {}}}, "k.param: is not a known key; did you mean"),
    "unknown need": ({"k": {"command": "cat", "needs": {"net": True}}}, "k.needs.net: is not a known key"),
    "no program": ({"k": {"command": "./nothing"}}, "there is no such file"),
    "not installed": ({"k": {"command": "lcp-nothing-of-that-name"}}, "no program is named"),
    "not executable": ({"k": {"command": "./plain"}}, "it cannot be executed"),
    "a directory": ({"k": {"command": "./"}}, "it cannot be executed"),
    "no schema": (
        {"k": {"command": "cat", "params": {"type": "objekt"}}},
        "params: a JSON Schema is expected",
    ),
    "no object": (
        {"k": {"command": "cat", "result": {"type": "string"}}},
        "result: the JSON Schema of an object",
    ),
    "alternatives": (
        {"k": {"command": "cat", "params": TEXTS}},
        "params: the JSON Schema of an object is expected: none of",
    ),
    "nested": (
        {"k": {"command": "cat", "result": {"allOf": [{"oneOf": [TEXTS]}]}}},
        "none of its alternatives",
    ),
    "another document": (
        {"k": {"command": "cat", "params": {"$ref": "http://127.0.0.1:9/x.json"}}},
        "Retrieval is disabled",
    ),
    "role": ({"k": {"command": "cat", "role": "writes"}}, "role writes is for kinds of the engine"),
    "both": ({"k": {"command": "cat", "long_lived": True, "needs": {"root": True}}}, "cannot be long_lived"),
    "another root": (
        {"k": {"command": "cat", "needs": {"root": "all"}}},
        "k.needs.root: should be true, false, read or write",
    ),
    "reads nothing": ({"k": {"command": "cat", "needs": {"read": ["nothing"]}}}, "needs.read: there is no"),
    "reads everything": ({"k": {"command": "cat", "needs": {"read": ["/"]}}}, "needs.read: / contains"),
}


@pytest.mark.parametrize("wrong", STATED)
def test_a_wrong_description_is_refused(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "plain").write_text("")
    stated, message = STATED[wrong]
    with pytest.raises(LcpError, match=r".") as refused:
        list(kinds_in(stated, tmp_path))
    assert message in str(refused.value)


def test_params_and_results_are_held_against_their_schemas(
    kind: Callable[..., Worker[BaseModel]], root: Path
) -> None:
    schema: JsonValue = {
        "type": "object",
        "properties": {"word": {"$ref": "#/$defs/word"}, "most": {"type": ["integer", "null"]}},
        "required": ["word", "most"],
        "additionalProperties": False,
        "$defs": {"word": {"type": "string", "pattern": "^(a+)+$"}},
    }
    script = 'read -r job; echo \'{"result": {"n": "x"}}\''
    worker = kind(
        script, shell=True, params=schema, result={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    assert 'its result is not what its schema describes: n: "x" is not of type' in failure_of(
        ask(worker, root, word="aa")
    )
    assert "word: 3 is not of type" in failure_of(ask(worker, root, word=3, most=1))
    assert "does not match" in failure_of(ask(worker, root, word="a" * 5000 + "b"))
    assert "'more' was unexpected" in failure_of(ask(worker, root, word="a", more=1))


def failure_of(done: JobResult) -> str:
    assert done.error is not None
    return done.error.user_message


PYTHON = """
import os, socket
from pydantic import BaseModel
import lcp_engine
from lcp_engine import Context, ErrorCode, Failed, Needs
from lcp_engine.kinds import FileEffect

class Anything(BaseModel, extra="allow"):
    pass

def tries(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return True

@lcp_engine.worker("alone", params=Anything, result=Anything, has_effects=False, needs=Needs(environment=["API_KEY"]))
def alone(params: Anything, context: Context) -> Anything:
    print("is not an answer")
    return Anything(
        pid=os.getpid(), network=tries(socket.socket), passwd=tries(lambda: open("/etc/shadow")),
        key=os.environ.get("API_KEY"), home=tries(lambda: os.listdir(HOME)), job=[context.job_id, context.attempt],
    )

@lcp_engine.worker("looks", params=Anything, result=Anything, has_effects=False, needs=Needs(root=True))
def looks(params: Anything, context: Context) -> Anything:
    return Anything(files=sorted(os.listdir(context.root.path)))

@lcp_engine.worker("fails", params=Anything, result=Anything, has_effects=False, needs=Needs())
def fails(params: Anything) -> Anything:
    if params.how == "raises":
        raise ValueError("no\\nlines")
    if params.how == "effect":
        return FileEffect("x", "x", "overwrite", lambda applied: Anything())
    if params.how == "exits":
        os._exit(3)
    return Failed(ErrorCode.PATH_NOT_FOUND, "it is gone", {"where": "here"})
"""


def test_a_kind_in_python_has_what_it_needs_and_nothing_else(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "sk-0123456789abcdef")
    monkeypatch.setenv("SECRET", "secret")
    for name in ("a.txt", ".env"):
        (root / name).write_text("before")
    (tmp_path / "py.py").write_text(PYTHON.replace("HOME", repr(str(tmp_path))))
    workers = loaded(tmp_path / "py.py", ["alone", "looks", "fails"])
    try:
        with Engine(sqlite_url(tmp_path), workers=workers) as engine:
            ids = [engine.enqueue("alone", {}) for _ in range(3)]
            engine.work(until_idle=True)
            results = [engine.job(one).result or {} for one in ids]
        assert len({result.pop("pid") for result in results}) == 1
        refused = "PermissionError"
        assert results == [
            {"network": refused, "passwd": refused, "key": "…", "home": refused, "job": [one, 1]}
            for one in ids
        ]
        table = {worker.kind: worker for worker in workers}
        assert run_job("looks", {}, root, workers=table).result == {"files": ["a.txt"]}
        errors = {how: run_job("fails", {"how": how}, root, workers=table).error for how in HOW}
        found = {how: (error.error_code, error.user_message) for how, error in errors.items() if error}
        assert found == HOW
    finally:
        registry.unregister(["alone", "looks", "fails"])


HOW = {
    "raises": ("WORKER_FAILED", "fails: its worker raised ValueError: no lines"),
    "effect": (
        "WORKER_FAILED",
        "it returned an effect on 'x': only kinds without `needs` can change the root",
    ),
    "exits": ("WORKER_FAILED", "fails: its program ended with exit code 3"),
    "returns": ("PATH_NOT_FOUND", "it is gone"),
}


def loaded(file: Path, kinds: list[str]) -> list[Worker[BaseModel]]:
    load_workers(file)
    return [registry.find_registered(kind) for kind in kinds]


def test_a_kind_with_needs_is_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(params: BaseModel) -> BaseModel:
        return params

    monkeypatch.setattr(nowhere, "__module__", "__main__")
    with pytest.raises(LcpError, match="its function is expected in a file"):
        registry.worker("nowhere", params=BaseModel, result=BaseModel, needs=Needs())(nowhere)


def test_a_program_reads_of_the_packages_of_a_root_what_is_not_denied_and_follows_no_link(
    kind: Callable[..., Worker[BaseModel]], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside" / "bin").mkdir(parents=True)
    for path in ("root/node_modules/ok.js", "root/node_modules/.env", "outside/bin/x", "outside/pyvenv.cfg"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (root / "venv").symlink_to("../outside")
    places = f"node_modules/ok.js node_modules/.env venv/bin/x {root}/*/.env {tmp_path}/outside/*"
    source = f"read -r job; said=$(cat {places})"
    worker = kind(
        f'{source}; echo "{{\\"result\\": {{\\"said\\": \\"$said\\"}}}}"', shell=True, needs={"root": True}
    )
    assert ask(worker, root).result == {"said": "root/node_modules/ok.js"}


@pytest.mark.parametrize(
    "interpreter", ["//bin/sh", "/etc/../bin/sh", "/proc/self/root/bin/sh", "ROOT/venv/bin/sh"]
)
def test_no_interpreter_of_a_program_opens_the_file_system(
    root: Path, tmp_path: Path, interpreter: str
) -> None:
    """`venv` is a link, and leads to what looks like a virtual environment."""
    (tmp_path / "outside" / "bin").mkdir(parents=True)
    (tmp_path / "outside" / "bin" / "sh").symlink_to("/bin/sh")
    for name in ("secret", "pyvenv.cfg"):
        (tmp_path / "outside" / name).write_text("SECRET")
    (root / "venv").symlink_to("../outside")
    program = tmp_path / "program"
    said = f"$(cat {tmp_path}/outside/secret /etc/shadow)"
    first = f"#!{interpreter.replace('ROOT', str(root))}"
    program.write_text(f'{first}\nread -r job; echo "{{\\"result\\": {{\\"said\\": \\"{said}\\"}}}}"\n')
    program.chmod(0o755)
    (worker,) = kinds_in({"k": {"command": "./program", "has_effects": False}}, tmp_path)
    found = ask(worker, root)
    assert found.result == {"said": ""} or (found.error and found.error.error_code == "FILE_SYSTEM")
