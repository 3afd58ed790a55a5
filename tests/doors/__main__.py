"""Send what OpenAPI allows and forbids to the API, by the tens of thousands: `make doors`.

Usage: python -m tests.doors [--requests N] [--seed N] [--database sqlite|postgres]…

Schemathesis makes the requests from docs/openapi.json, for a token of each scope and one of all. Half-way the server is
killed and started again. Ends with 1 for an answer that is a defect (500) or not as the document says.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.features.tokens.calls import Scope

PROJECT = Path(__file__).parent.parent.parent
DOCUMENT = PROJECT / "docs" / "openapi.json"
TOOL = PROJECT / ".venv-doors" / "bin" / "st"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "missing_required_header", "ignored_auth",
)  # fmt: skip
ENDLESS = "/v1/events"
"""A stream has no end; tests/features/http_api/web/test_api.py reads it."""
EVERY = frozenset(Scope)
ANYWAY = 35
"""Requests that the tool makes to each operation, beside those that are asked for."""


@dataclass(frozen=True)
class Tried:
    """A run of the tool: how many requests it made, and what it found wrong."""

    requests: int
    is_well: bool
    said: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="make doors")
    parser.add_argument("--requests", type=int, default=20_000, help="about so many on each database")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="repeats an earlier run")
    parser.add_argument("--database", action="append", choices=("sqlite", "postgres"), help="only this one")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    server = os.environ.get("LCP_TEST_POSTGRES_URL")
    names = given.database or ["sqlite", *(["postgres"] if server else [])]
    held = [_holds(name, given.requests, given.seed) for name in names]
    return 0 if all(held) else 1


def _holds(database: str, requests: int, seed: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="lcp-doors-") as home, _database(database, Path(home)) as url:
        tried = try_api(url, Path(home), requests, seed)
    count = sum(one.requests for one in tried)
    faults = [one for one in tried if not one.is_well]
    print(f"{database}: {count:,} requests, {len(faults)} of {len(tried)} runs found faults", flush=True)
    for one in faults:
        print(one.said)
    return not faults


def try_api(url: str, home: Path, requests: int, seed: int, *, is_sample: bool = False) -> list[Tried]:
    """Each token twice, with the server killed in between; a sample is of the token of all scopes, once."""
    root = home / "root"
    root.mkdir()
    tokens = _furnish(url, root)
    phases = "fuzzing" if is_sample else "examples,coverage,fuzzing,stateful"
    if is_sample:
        tokens = {"all": tokens["all"]}
    each = max(1, requests // (2 * len(tokens) * _operations()) - ANYWAY)
    tried: list[Tried] = []
    port = 0
    for half in range(1 if is_sample else 2):
        with serving(url, home, root, port) as port:
            tried += [_try(port, token, each, seed + half, phases) for token in tokens.values()]
    return tried


def _operations() -> int:
    return len(re.findall(r'"operationId"', DOCUMENT.read_text(encoding="utf-8")))


def _try(port: int, token: str, each: int, seed: int, phases: str) -> Tried:
    done = subprocess.run(
        [
            TOOL, "--no-color", "run", DOCUMENT, "--url", f"http://127.0.0.1:{port}",
            "--header", f"Authorization: Bearer {token}",
            "--max-examples", str(each), "--seed", str(seed), "--checks", ",".join(CHECKS), "--exclude-path", ENDLESS,
            "--request-timeout", "70", "--continue-on-failure", "--phases", phases, "--generation-database", "none",
        ],
        capture_output=True, text=True, check=False, cwd=PROJECT / "tests" / "doors",
    )  # fmt: skip
    said = done.stdout + done.stderr
    found = re.search(r"([\d,]+) generated", said)
    return Tried(
        int(found[1].replace(",", "")) if found else 0, done.returncode == 0 and found is not None, said
    )


def _furnish(url: str, root: Path) -> dict[str, str]:
    """Missions in several states, and a token of each scope and one of all."""
    write: JsonValue = {"kind": "write_file", "params": {"rel_path": "a.md", "content": "a\n"}}
    asks: JsonValue = {"kind": "ask_user", "params": {"question": "Which?", "options": ["red", "blue"]}}
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    request: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [write, asks]}
    with Engine(url) as engine:
        for replies in ([done], [request, done], [request, done]):
            planner: JsonValue = {"type": "script", "replies": replies}
            engine.launch({"goal": "g", "planner": planner}, root=root)
        engine.memory.add("Title", "Content", root=root)
        engine.add_schedule(
            "daily", {"goal": "g", "planner": {"type": "script", "replies": [done]}}, root=root, every="1h"
        )
        engine.work(until_idle=True)
        made = {str(scope): engine.tokens.add(scope, {scope}, per_minute=1_000_000) for scope in Scope}
        return made | {"all": engine.tokens.add("all", EVERY, per_minute=1_000_000)}


@contextmanager
def serving(
    url: str, home: Path, root: Path, port: int = 0, started: list[subprocess.Popen[str]] | None = None
) -> Iterator[int]:
    """`lcp serve --api` with a runner, which is killed at the end; its port, and its process as `started`."""
    command = [
        "-m",
        "lcp_engine",
        "--db",
        url,
        "serve",
        "--api",
        "--port",
        str(port),
        "--threads",
        "1",
        "--root",
        str(root),
    ]
    with (home / "stderr.txt").open("a") as errors, subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=errors, text=True,
        env={**os.environ, **{f"XDG_{name}_HOME": str(home) for name in ("DATA", "CONFIG", "STATE", "CACHE")}},
    ) as server:  # fmt: skip
        assert server.stdout is not None
        link = server.stdout.readline()
        if started is not None:
            started.append(server)
        try:
            yield int(urlsplit(link).port or 0)
        finally:
            server.send_signal(signal.SIGKILL)


@contextmanager
def _database(name: str, home: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{home / 'lcp.db'}"
        return
    server = os.environ["LCP_TEST_POSTGRES_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE doors")
    try:
        yield f"{server.rpartition('/')[0]}/doors"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE doors WITH (FORCE)")


if __name__ == "__main__":
    sys.exit(main())
