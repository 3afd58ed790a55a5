"""A mission that waits is decided by signed links, over HTTP, from what its notice says; then it is undone."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp, Object

COUNT = 40


def configure(lcp: Lcp, port: int = 8470, **keys: object) -> None:
    place = lcp.home / "config" / "lcp-engine"
    place.mkdir(parents=True)
    secret = place / "links.secret"
    secret.write_text("a secret that is long enough")
    secret.chmod(0o600)
    links = {"url": f"http://localhost:{port}", "secret_file": "links.secret", "expires": "2h"}
    (place / "config.yaml").write_text(json.dumps({"links": links, **keys}))


@contextmanager
def serving(lcp: Lcp, port: int) -> Iterator[None]:
    with lcp.start("serve", "--port", port, "-q") as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://")
        yield
        server.send_signal(signal.SIGTERM)


def visit(url: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
    """The status and the text at an address, or those of the answer to a form."""
    parts = urlsplit(url)
    connection = HTTPConnection("127.0.0.1", parts.port or 80, timeout=60)
    body = None if fields is None else urlencode(fields)
    kind = {} if fields is None else {"content-type": "application/x-www-form-urlencoded"}
    connection.request("GET" if fields is None else "POST", parts.path, body, {"host": parts.netloc, **kind})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.proof
def test_a_mission_of_40_writes_is_decided_by_signed_links_and_undone(lcp: Lcp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = lcp.home / "keep.sh"
    program.write_text('#!/bin/sh\ncat > "$0.json"\n')
    program.chmod(0o755)
    configure(lcp, port, on_wait=[str(program)])
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"path": f"docs/{n}.md", "content": f"# {n}\n"}}
        for n in range(COUNT)
    ]
    asked: Object = {**lcp.ask("-"), "new_jobs": jobs}
    limits: Object = {"max_followups": COUNT}
    assert lcp("run", lcp.mission(asked, lcp.complete, limits=limits), "--root", "root", "-q").code == 3
    held = json.loads((lcp.home / "keep.sh.json").read_text())["jobs"]
    assert len(held) == COUNT
    with serving(lcp, port):
        for job in held[:-1]:
            (link,) = job["links"]
            status, page = visit(link["url"])
            shown = re.search(r'name="shown" value="([^"]+)"', page)
            assert status == 200
            assert shown is not None
            status, done = visit(link["url"], {"decision": "approve", "shown": unescape(shown[1])})
            assert (status, "Approved." in done) == (200, True)
        status, done = visit(held[-1]["links"][0]["url"], {"decision": "reject", "reason": "one too many"})
        assert (status, "Rejected." in done) == (200, True)
        assert visit(held[0]["links"][0]["url"])[0] == 410
    lcp("work", "--until-idle", "-q")
    written = {path.name for path in (lcp.root / "docs").iterdir()}
    assert written == {f"{n}.md" for n in range(COUNT - 1)}
    assert "one too many" in lcp("job", held[-1]["id"]).out
    assert lcp("undo", 1).code == 0
    assert not (lcp.root / "docs").exists()


def test_link_prints_a_link_of_one_job(lcp: Lcp) -> None:
    configure(lcp)
    lcp("run", lcp.mission(lcp.ask("write_file", path="b.md", content="x")), "--root", "root", "-q")
    done = lcp("link", 2, "--expires", "30m")
    assert re.fullmatch(r"http://localhost:8470/d/[\w-]+\.[\w-]{43}\n", done.out)
    assert (done.code, "it decides job 2 once" in done.err) == (0, True)
    assert lcp("link", 2, "--json").object["job_id"] == 2
    assert not lcp("link", 2, "-q").err


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        (["99"], 1, "job 99 is not in the database"),
        (["1"], 5, "job 1 is succeeded; only held jobs can be decided by a link"),
        (["2", "--expires", "soon"], 2, "--expires 'soon': a duration is expected, such as 30m, 2h or 1d"),
        (["2", "--expires", "0h"], 2, "--expires '0h': a duration is expected"),
    ],
)
def test_a_link_that_cannot_be_made_is_refused_in_words(
    lcp: Lcp, arguments: list[str], code: int, fact: str
) -> None:
    configure(lcp)
    lcp("run", lcp.mission(lcp.ask("write_file", path="b.md", content="x")), "--root", "root", "-q")
    done = lcp("link", *arguments)
    assert (done.code, done.out) == (code, "")
    assert fact in done.err


def test_without_a_configuration_a_link_says_what_it_needs(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.ask("write_file", path="b.md", content="x")), "--root", "root", "-q")
    done = lcp("link", 2)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "signed links need `links` in config.yaml, with url and secret_file or secret_env" in done.err


def test_the_doctor_says_whether_links_can_be_signed(lcp: Lcp) -> None:
    configure(lcp)
    assert "localhost, and its secret can be read" in lcp("doctor").out
    (lcp.home / "config" / "lcp-engine" / "links.secret").chmod(0o644)
    done = lcp("doctor")
    assert (done.code, "should be readable by its user alone; its mode is 0644" in done.out) == (1, True)
