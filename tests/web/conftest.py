"""A page over a real engine, as a browser sees it: cookie, origin, form token."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import ClassVar, TypeAlias
from urllib.parse import urljoin, urlsplit, urlunsplit

import pytest
from pydantic import JsonValue
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from tests.patience import in_thread

from lcp_engine.api.engine import Engine
from lcp_engine.web.access import Address, Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.connections import ConnectionLimits
from lcp_engine.web.context import PageContext, make_templates
from lcp_engine.web.server import PageServer

Object: TypeAlias = dict[str, JsonValue]
PORT = 8470
HOME = f"http://127.0.0.1:{PORT}"
ADDRESS = Address(PORT, frozenset({f"{name}:{PORT}" for name in ("127.0.0.1", "localhost", "[::1]")}))


@dataclass
class Answer:
    """The response that a browser received."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def words(self) -> str:
        """The visible text, on one line."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.text)).split())


@dataclass
class House:
    """An engine, the page over it, and a browser with access."""

    engine: Engine
    root: Path
    app: ASGIApp
    keys: Secrets
    browser: TestClient
    complete: ClassVar[Object] = {"ok": True, "action": "mission_complete", "summary": "All done."}
    home: ClassVar[str] = HOME

    @staticmethod
    def job(kind: str, /, *, name: str | None = None, **params: JsonValue) -> Object:
        """A job as a planner requests it."""
        return {"kind": kind, "params": params, **({"name": name} if name else {})}

    @staticmethod
    def ask(*jobs: JsonValue, commentary: str = "Look around.") -> Object:
        """A reply that requests jobs."""
        return {"ok": True, "action": "create_followup_jobs", "commentary": commentary, "new_jobs": [*jobs]}

    def launch(self, *replies: JsonValue, **spec: JsonValue) -> int:
        """A mission whose planner answers with `replies`; its id."""
        planner: Object = {"type": "script", "replies": [*replies]}
        return self.engine.launch({"goal": "Find out.", "planner": planner, **spec}, root=self.root).id

    def work(self) -> None:
        self.engine.work(until_idle=True)

    def run(self, *replies: JsonValue, **spec: JsonValue) -> int:
        """Like `launch`, once everything that may run has run."""
        mission_id = self.launch(*replies, **spec)
        self.work()
        return mission_id

    def hold(self, path: str = "notes.md", content: str = "# Notes\n") -> int:
        """The id of a held job that would write a file."""
        self.run(self.ask(self.job("write_file", rel_path=path, content=content)), self.complete)
        return self.engine.jobs(states=["held"])[-1].id

    def picture(self) -> dict[str, tuple[int, bytes | None]]:
        """What is in the root: each entry with its mode bits, and the bytes of each file."""
        return {
            str(path.relative_to(self.root)): (
                path.stat().st_mode,
                path.read_bytes() if path.is_file() else None,
            )
            for path in self.root.rglob("*")
        }

    def get(self, path: str, **headers: str) -> Answer:
        return self._answer(self.browser.get(path, headers=headers))

    def post(self, path: str, fields: Mapping[str, str | list[str]] | None = None, **headers: str) -> Answer:
        """Submit a form of the page, as a browser does."""
        sent = {"csrf": self.keys.csrf, **(fields or {})}
        return self._answer(self.browser.post(path, data=sent, headers={"Origin": HOME, **headers}))

    def shown(self, path: str, name: str = "shown") -> dict[str, str | list[str]]:
        """The hidden field of that name on a page, which says what the page showed."""
        found = re.search(rf'name="{re.escape(name)}" value="([^"]+)"', self.get(path).text)
        assert found, path
        return {name: unescape(found[1])}

    def approve(self, job_id: int) -> Answer:
        """Open a job and approve it."""
        return self.post(f"/jobs/{job_id}/approve", self.shown(f"/jobs/{job_id}"))

    def stranger(self) -> TestClient:
        """A browser without access."""
        return TestClient(self.app, base_url=HOME, follow_redirects=False)

    @staticmethod
    def _answer(response: object) -> Answer:
        status, text, headers = (getattr(response, name) for name in ("status_code", "text", "headers"))
        return Answer(status, text, headers)


@contextmanager
def serving(
    engine: Engine,
    *,
    port: int = 0,
    names: tuple[str, ...] = (),
    limits: ConnectionLimits | None = None,
    secrets: Secrets | None = None,
    evals: Path | None = None,
) -> Iterator[PageServer]:
    """Serve the page in a thread, on a free port if none is given."""
    server = PageServer(engine, port=port, names=names, limits=limits, secrets=secrets, evals=evals)
    with in_thread(server.run, server.stop):
        yield server


class Visitor:
    """A browser that finds every name below `localhost`, as browsers do and the resolver of libc does not."""

    def __init__(self) -> None:
        self.cookie = ""

    def get(self, link: str, **headers: str) -> HTTPResponse:
        """The answer at an address, after its redirects."""
        parts = urlsplit(link)
        assert parts.port
        connection = HTTPConnection("127.0.0.1", parts.port, timeout=60)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        connection.request(
            "GET", target, headers={"Host": parts.netloc, "Connection": "close", **cookie, **headers}
        )
        answer = connection.getresponse()
        self.cookie = answer.headers.get("set-cookie", self.cookie).partition(";")[0]
        if answer.status == HTTPStatus.SEE_OTHER:
            answer.close()
            return self.get(urljoin(link, answer.headers["location"]), **headers)
        return answer

    def status(self, link: str) -> int:
        """The status of the answer."""
        with self.get(link) as answer:
            return answer.status


@contextmanager
def open_house(place: Path, url: str) -> Iterator[House]:
    """A house over that database, with a root that has one file."""
    root = place / "root"
    root.mkdir()
    (root / "a.md").write_text("# a\n")
    keys = Secrets()
    with Engine(url) as engine:
        app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
        with TestClient(app, base_url=HOME) as browser:
            assert browser.get("/", params={"token": keys.token}).status_code == 200
            yield House(engine, root, app, keys, browser)


@pytest.fixture
def house(tmp_path: Path, sqlite_copy_url: str) -> Iterator[House]:
    with open_house(tmp_path, sqlite_copy_url) as house:
        yield house


@pytest.fixture
def house_on_postgresql(tmp_path: Path, emptied_postgres_url: str) -> Iterator[House]:
    with open_house(tmp_path, emptied_postgres_url) as house:
        yield house
