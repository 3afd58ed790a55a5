"""Programs of this machine learn how a process is, and a database that hangs or a slow client delays nobody."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient
from tests.features.telemetry.conftest import Site
from tests.patience import wait_until

from lcp_engine.errors import LcpError
from lcp_engine.features.telemetry.health import MOST_CONNECTIONS, Watch, serving_health
from lcp_engine.store.version import HEAD
from lcp_engine.web.access import WATCHED, Address, Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 8470
HOME = f"http://127.0.0.1:{PORT}"


def _get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    with serving_health(site.engine.instance, 0) as address:
        yield int(address.rpartition(":")[2])


def test_it_says_in_words_what_is_missing(site: Site) -> None:
    watch = Watch(site.engine.instance)
    assert watch.answer("/readyz") == (
        503,
        "runners: none is alive; `lcp work` starts one\n",
        "text/plain; charset=utf-8",
    )
    database, change = site.engine.instance.database, "UPDATE alembic_version SET version_num = '{}'"
    database.write(lambda tx: tx.plain(change.format("9999")))
    answer = watch.answer("/readyz")
    database.write(lambda tx: tx.plain(change.format(HEAD)))  # others use the same database
    assert answer is not None
    assert answer.status == 503
    assert answer.text.startswith("migration: the database is newer than this runner")
    health = watch.answer("/healthz")
    assert health is not None
    assert (health.status, health.text) == (200, "ok\n")


def test_it_is_ready_while_a_runner_works(site: Site) -> None:
    runner = site.engine.runner()
    thread = threading.Thread(target=runner.run)
    thread.start()
    watch = Watch(site.engine.instance)
    try:
        wait_until(lambda: _status(watch, "/readyz") == 200)
        site.pass_time(60)  # longer than its leases last; the kernel says that it lives
        assert _status(Watch(site.engine.instance), "/readyz") == 200
    finally:
        runner.stop()
        thread.join()


def test_a_database_that_hangs_costs_one_thread(site: Site) -> None:
    watch, goes_on = Watch(site.engine.instance, seconds=0.01), threading.Event()
    read = site.engine.instance.database.read
    site.engine.instance.database.read = lambda work: (goes_on.wait(), read(work))[1]  # type: ignore[method-assign]
    before = threading.active_count()
    answers = [watch.answer(path) for path in ("/readyz", "/metrics") for _ in range(20)]
    assert {(one.status, one.text) for one in answers if one} == {(503, "database: it does not answer\n")}
    assert threading.active_count() <= before + 2
    goes_on.set()
    wait_until(lambda: _status(watch, "/metrics") == 200)


def _status(watch: Watch, path: str) -> int:
    answer = watch.answer(path)
    assert answer is not None
    return answer.status


def test_only_programs_of_this_machine_are_answered(port: int) -> None:
    assert _get(port, "/healthz?from=probe") == (200, "ok\n")
    assert _get(port, "/metrics")[0] == 200
    assert _get(port, "/missions")[0] == 404
    assert _get(port, "/metrics", Host="example.org")[0] == 403
    assert _get(port, "/metrics", Origin="http://example.org")[0] == 403


def test_connections_without_end_are_refused_and_those_that_end_make_room(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(b"GET /healthz HTTP/1.0\r\n")
        refused = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        assert refused.recv(1) == b""

    def answers() -> bool:
        try:
            return _get(port, "/healthz") == (200, "ok\n")
        except OSError:
            return False

    wait_until(answers)


def test_a_port_that_is_taken_is_said(site: Site, port: int) -> None:
    taken = re.escape(f"--health cannot listen on 127.0.0.1 port {port}")
    with pytest.raises(LcpError, match=taken), serving_health(site.engine.instance, port):
        pass


@pytest.fixture
def app(site: Site) -> ASGIApp:
    context = PageContext(site.engine, make_templates(), "csrf")
    return make_app(context, Secrets(), Address(PORT, frozenset({f"127.0.0.1:{PORT}", "page.example.org"})))


def _ask(app: ASGIApp, path: str, *, client: str = "127.0.0.1", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(app, base_url=HOME, client=(client, 50000)).get(path, headers=named).status_code


def test_the_page_answers_programs_of_this_machine_without_access(app: ASGIApp) -> None:
    assert [_ask(app, path) for path in WATCHED] == [200, 503, 200]
    assert _ask(app, "/") == 401
    assert _ask(app, "/healthz/") == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"client": "192.0.2.1"},
        {"host": "page.example.org"},
        {"host": "example.org"},
        {"x_forwarded_for": "192.0.2.1"},
        {"forwarded": "for=192.0.2.1"},
        {"origin": "http://127.0.0.1:8470"},
    ],
    ids=str,
)
def test_the_page_answers_nobody_else_without_access(app: ASGIApp, headers: dict[str, str]) -> None:
    assert {_ask(app, path, **headers) for path in WATCHED} <= {401, 403}
