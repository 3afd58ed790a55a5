"""Kill the server of a request at every point, and send the request again to the next one: done once, the same answer.

Usage: python -m tests.crash.requests [--step K] [--first N] DATABASE_URL DIRECTORY

A mission is launched, decided on, answered and undone over HTTP, each write at a server of its own, a forked process.
Prints one JSON object a line, like tests.crash.matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue
from tests.crash.matrix import MISSED, differences
from tests.crash.points import Killer, WatchedBackend
from tests.crash.processes import ask, begin, do, end_of, import_all
from tests.crash.stories import DONE, Object, Place, picture, tree

from lcp_engine import Engine
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.http_api.server import open_api
from lcp_engine.features.http_api.settings import ServeSettings
from lcp_engine.features.tokens.calls import Scope
from lcp_engine.web.server import PageServer

T = TypeVar("T")
WRITES: list[JsonValue] = [
    {"kind": "write_file", "params": {"rel_path": f"{name}.txt", "content": f"{name}\n"}} for name in "abc"
]
QUESTION: Object = {"kind": "ask_user", "params": {"question": "Which?", "options": ["red", "blue"]}}
SPEC: Object = {
    "goal": "Write and ask.",
    "planner": {
        "type": "script",
        "replies": [
            {"ok": True, "action": "create_followup_jobs", "new_jobs": [*WRITES, QUESTION]},
            DONE,
        ],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    import_all(given.url)
    token = ask(partial(_add_token, given.url), given.directory / "token.json")
    calm = Telling(given.url, token, _place(given.directory / "undisturbed"))
    wanted = calm.tell()
    _say("undisturbed", calm.problems)
    for at in range(given.first, calm.passed + 1, given.step):
        telling = Telling(given.url, token, _place(given.directory / str(at)), at)
        told = telling.tell()
        _say(telling.point or MISSED, telling.problems + differences(wanted, told))


def _say(point: str, problems: list[str]) -> None:
    print(json.dumps({"story": "requests", "point": point, "problems": problems}), flush=True)


def _add_token(url: str) -> str:
    with Engine(url) as engine:
        return engine.tokens.add("crash", {*Scope}, per_minute=1_000_000)


def _place(directory: Path) -> Place:
    place = Place(directory)
    place.root.mkdir(parents=True)
    (place.root / "a.txt").write_text("before\n")
    return place


@dataclass
class Telling:
    """One run; its server is killed at point `at`, 0 is the undisturbed run."""

    url: str
    token: str
    place: Place
    at: int = 0
    point: str = ""
    passed: int = 0
    problems: list[str] = field(default_factory=list)
    _calm: int = 0
    """The port of a server that is not killed."""

    def tell(self) -> Object:
        """Do everything and return the outcome."""
        with self._serving() as self._calm:
            answers = self._answers()
        self._expect(tree(self.place) == {"a.txt": "before\n"}, f"the files are {tree(self.place)}")
        self.problems += self._ask(lambda _: check_database(self.url))
        return {**self._ask(lambda engine: picture(engine, self.place)), "answers": answers}

    def _answers(self) -> Object:
        mission = self._write("/missions", {"root": str(self.place.root), "spec": SPEC})["id"]
        self._expect(do(self._work) == 0, "a runner failed")
        listed = map(object_in, list_in(self._read(f"/held?mission={mission}")["items"]))
        held = {str(job["about"]): job["id"] for job in listed}
        one, question = held.pop("a.txt"), held.pop("Which?")
        shown: dict[JsonValue, JsonValue] = {
            job: self._read(f"/held/{job}")["shown"] for job in (one, *held.values())
        }
        approved = self._write(f"/jobs/{one}/approve", {"shown": shown[one]})
        jobs: list[JsonValue] = [{"job": job, "shown": shown[job]} for job in held.values()]
        decided = self._write("/decisions", {"decision": "approve", "jobs": jobs})
        asked = object_in(self._read(f"/held/{question}")["question"])["shown"]
        answered = self._write(f"/jobs/{question}/answer", {"text": "blue", "shown": asked})
        self._expect(do(self._work) == 0, "a runner failed")
        undo: Object = {"shown": self._read(f"/missions/{mission}/undo")["shown"]}
        return {
            "approve": [approved["changed"], object_in(approved["job"])["state"]],
            "decide": [decided["done"] == [*held.values()], decided["refused"]],
            "answer": [answered["changed"], object_in(answered["job"])["result"]],
            "undo": self._write(f"/missions/{mission}/undo", undo)["files"],
        }

    def _write(self, path: str, body: Object) -> Object:
        """The answer in the end: of a server that may be killed before it, else of the next one."""
        trace = self.place.directory / "trace"
        trace.unlink(missing_ok=True)
        key = f"{path} {self.place.directory.name}"
        at = 0 if self.point else max(self.at - self.passed, 0)
        with self._serving((at, trace)) as port:
            first = self._send(port, "POST", path, body, key)
        names = trace.read_text().splitlines() if trace.exists() else []
        self.passed += len(names)
        if first is None:
            self._expect(bool(at) and len(names) == at, f"{path}: the server died at {names[-1:]}")
            self.point = f"{path}: {names[-1]}"
        again = [self._send(self._calm, "POST", path, body, key) for _ in range(2)]
        is_same = again[0] is not None and again[0] == again[1] and first in (None, again[0])
        self._expect(is_same, f"{path} is answered with {first}, then with {again}")
        return again[0] or {}

    def _read(self, path: str) -> Object:
        return self._send(self._calm, "GET", path) or {}

    def _send(
        self, port: int, method: str, path: str, body: Object | None = None, key: str = ""
    ) -> Object | None:
        """The answer; None if the server dies before it."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, f"/v1{path}", json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            found = object_in(json.loads(answer.read()))
        except (HTTPException, ConnectionError):
            return None
        finally:
            connection.close()
        self._expect(answer.status < 400, f"{method} {path}: {found}")
        return found

    @contextmanager
    def _serving(self, watched: tuple[int, Path] | None = None) -> Iterator[int]:
        """A server in a process of its own, which is killed at the end; its port."""
        reading, writing = os.pipe()
        child = begin(partial(self._serve, writing, watched))
        os.close(writing)
        try:
            with os.fdopen(reading) as said:
                yield int(said.readline())
        finally:
            os.kill(child, signal.SIGKILL)
            end_of(child)

    def _serve(self, writing: int, watched: tuple[int, Path] | None) -> None:
        with Engine(self.url, isolation="off") as engine:
            api = open_api(
                engine, ServeSettings(roots=(str(self.place.root),)), engine.tokens.gate(only_here=True)
            )
            server = PageServer(engine, port=0, doors={"/v1": api})
            if watched is not None:
                killer, database = Killer(*watched), engine.instance.database
                database.backend = WatchedBackend(database.backend, killer)
                killer.watch_files()
            os.write(writing, f"{server.port}\n".encode())
            os.close(writing)
            server.run()

    def _work(self) -> None:
        with Engine(self.url, isolation="off") as engine:
            engine.work(until_idle=True)

    def _ask(self, question: Callable[[Engine], T]) -> T:
        def asked() -> T:
            with Engine(self.url, isolation="off") as engine:
                return question(engine)

        return ask(asked, self.place.directory / "answer.json")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)


if __name__ == "__main__":
    main()
