"""Time each page beside a million finished jobs, and a change until it is on twenty open pages."""

from __future__ import annotations

import http.client
import json
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.parse import urlsplit

from pydantic import JsonValue

from benchmarks.ended import fill_with_ended
from benchmarks.figures import Figure, Goal, quantile
from benchmarks.setting import PROJECT, Setting
from lcp_engine import Engine
from lcp_engine.web.access import Secrets
from lcp_engine.web.server import PageServer

MISSIONS, EACH = 101, 10_000
TIMES = 15
DIFFS = 50
READERS, CHANGES = 20, 30
LARGE = 50
"""A mission in the middle of the history."""


def run(setting: Setting) -> list[Figure]:
    figures = _measure(setting, "SQLite", setting.sqlite)
    if setting.postgres is not None:
        figures += _measure(setting, "PostgreSQL", setting.new_postgres)
    return figures


def _measure(setting: Setting, name: str, new: object) -> list[Figure]:
    assert callable(new)
    with new() as url, TemporaryDirectory(dir=setting.place) as root, Engine(url) as engine:
        fill_with_ended(engine.instance.database, MISSIONS, EACH)
        held = _hold(engine, Path(root))
        with _served(engine) as visitor:
            beside = f"beside {MISSIONS * EACH:,} finished jobs, {name}"
            figures = [
                Figure(
                    f"{what} {beside}",
                    "ms",
                    spent := visitor.measure(path),
                    value=spent,
                    goal=Goal(50, at_least=False, unit="ms"),
                )
                for what, path in _pages(held).items()
            ]
            lags = _lags(engine, held, visitor)
    slowest, goal = quantile(lags, 0.99), Goal(500, at_least=False, unit="ms")
    note = f"median {statistics.median(lags):.0f}"
    what = f"a change until it is on {READERS} open pages, 99 %, {name}"
    return [*figures, Figure(what, "ms", slowest, value=slowest, goal=goal, note=note)]


def _pages(held: int) -> Mapping[str, str]:
    mission = f"/missions/{LARGE}"
    return {
        "the missions": "/",
        "the missions by text": "/?text=nowhere",
        "a mission": mission,
        "a mission's timeline": f"{mission}/timeline",
        "a mission's history": f"{mission}/history",
        "a mission's report": f"{mission}/report",
        "a mission's settings": f"/missions/{MISSIONS + 1}/settings",
        "the jobs": "/jobs",
        "the failed jobs": "/jobs?state=failed",
        "the jobs by text": "/jobs?text=nowhere",
        "a job": f"/jobs/{held}",
        f"the inbox with {DIFFS} held jobs": "/inbox",
        f"the inbox with {DIFFS} diffs": "/inbox/all",
        "the overview": "/overview",
    }


def _hold(engine: Engine, root: Path) -> int:
    """Hold writes, each of a change in the middle of a file of 60 lines; the id of the first."""
    jobs: list[JsonValue] = []
    for number in range(DIFFS):
        text = "".join(f"line {line} of file {number}\n" for line in range(60))
        (root / f"{number}.py").write_text(text)
        content = text.replace("line 30 of", "line thirty of")
        jobs.append({"kind": "write_file", "params": {"rel_path": f"{number}.py", "content": content}})
    asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    planner: dict[str, JsonValue] = {"type": "script", "replies": [asked]}
    spec: dict[str, JsonValue] = {
        "goal": "Change files.",
        "planner": planner,
        "limits": {"max_followups": DIFFS},
    }
    engine.launch(spec, root=root)
    engine.work(until_idle=True)
    return engine.jobs(states=["held"])[0].id


class _Visitor:
    """A browser with access that keeps its connection."""

    def __init__(self, server: PageServer, cookie: str) -> None:
        self.host = urlsplit(server.link).netloc
        self.port, self.cookie = server.port, f"lcp-{server.port}={cookie}"
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)

    def get(self, path: str) -> bytes:
        headers = {"Host": self.host, "Cookie": self.cookie, "Accept-Encoding": "gzip"}
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise SystemExit(f"{path} answered {answer.status}")
        return text

    def measure(self, path: str) -> float:
        """The median, in milliseconds."""
        self.get(path)
        spent = []
        for _ in range(TIMES):
            began = time.perf_counter()
            self.get(path)
            spent.append((time.perf_counter() - began) * 1000)
        return statistics.median(spent)


@contextmanager
def _served(engine: Engine) -> Iterator[_Visitor]:
    keys = Secrets()
    server = PageServer(engine, port=0, secrets=keys)
    thread = Thread(target=server.run)
    thread.start()
    try:
        yield _Visitor(server, keys.cookie)
    finally:
        server.stop()
        thread.join()


def _lags(engine: Engine, job: int, visitor: _Visitor) -> list[float]:
    """Milliseconds from the commit of a change until a page has it, for each change and each open page."""
    mission = engine.job(job).mission_id
    word = secrets.token_hex(4)
    where = [str(visitor.port), visitor.host, visitor.cookie, f"/missions/{mission}/events", f"/jobs/{job}"]
    command = [sys.executable, "-m", "benchmarks.page_readers", *where, str(READERS), str(CHANGES), word]
    made: list[float] = []
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as readers:
        assert readers.stdout is not None
        readers.stdout.readline()
        for number in range(CHANGES):
            engine.say(mission, f"change {number} of {word}", job_id=job)
            made.append(time.monotonic())
            readers.stdout.readline()  # all have it
        seen: list[list[float]] = json.loads(readers.stdout.readline())
    return [(at - made[number]) * 1000 for number, ats in enumerate(seen) for at in ats]
