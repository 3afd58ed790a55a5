from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import pytest
from starlette.testclient import TestClient
from tests.loaded_python import Python
from tests.patience import PATIENCE_SECONDS, in_thread, wait_until
from tests.web.conftest import ADDRESS, HOME, Visitor, serving

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates
from lcp_engine.web.events import Watch
from lcp_engine.web.kept_keys import kept_secrets
from lcp_engine.web.server import PageServer, serve

if TYPE_CHECKING:
    from tests.web.conftest import House


class _Process:
    """`lcp serve` as a process of its own, over a database of the test."""

    def __init__(self, home: Path, *arguments: str, path: Path | None = None) -> None:
        places = {f"XDG_{name}_HOME": str(home) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
        paths = [str(path)] if path else []
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        self.process = Python(
            "-m", "lcp_engine", "--db", f"sqlite:///{home / 'lcp.db'}", "serve", *arguments,
            env={**os.environ, **places, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home,
        )  # fmt: skip

    def link(self) -> str:
        """The first line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The exit code and what stands on stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def fail(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@contextmanager
def _listening(server: PageServer, path: str) -> Iterator[IO[bytes]]:
    visitor = Visitor()
    link = server.link
    visitor.get(link).close()
    with visitor.get(urljoin(link, path)) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.readline() == b"retry: 2000\n"
        yield stream


def _news(stream: IO[bytes]) -> object:
    for line in stream:
        if line.startswith(b"data: "):
            return json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended")


def test_the_command_prints_a_link_that_lets_in_and_listens_on_loopback_only(tmp_path: Path) -> None:
    page = _Process(tmp_path, "--port", "0")
    link = page.link()
    found = re.fullmatch(r"http://(lcp-[0-9a-f]{20}\.localhost):(\d+)/\?token=[\w-]{43}", link)
    assert found
    with Visitor().get(link) as answer:
        assert b"No missions yet" in answer.read()
    assert Visitor().status(link) == 401
    assert _status(int(found[2]), found[1]) == 401
    assert _status(int(found[2]), "127.0.0.1") == 403
    listening = _addresses(int(found[2]))
    assert listening == {"127.0.0.1"}
    code, err = page.end()
    assert code == 0
    assert err.splitlines() == [
        "the link gives one browser access to the page: keep it secret; Ctrl-C stops the server",
        "a browser has used the link; this one is for another browser:",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_page_although_somebody_looks(tmp_path: Path, number: signal.Signals) -> None:
    page = _Process(tmp_path, "--port", "0", "--quiet", "--threads", "1")
    link = page.link()
    visitor = Visitor()
    visitor.get(link).close()
    with visitor.get(link.partition("?")[0] + "events") as stream:
        stream.readline()
        assert page.end(number) == (0, "")


def test_each_link_lets_in_one_browser_and_the_next_one_is_printed(tmp_path: Path) -> None:
    page = _Process(tmp_path, "--port", "0", "--quiet")
    links = []
    for _ in range(3):
        links.append(page.link())
        visitor = Visitor()
        assert visitor.status(links[-1]) == 200
        assert visitor.status(links[-1]) == 200  # opened again in the same browser
        assert Visitor().status(links[-1]) == 401
    assert len({*links}) == 3
    assert page.end() == (0, "")


def test_the_page_goes_on_when_nothing_reads_its_links(tmp_path: Path) -> None:
    page = _Process(tmp_path, "--port", "0", "--quiet")
    link, visitor = page.link(), Visitor()
    assert page.process.stdout is not None
    page.process.stdout.close()
    assert visitor.status(link) == 200
    assert visitor.status(urljoin(link, "/inbox")) == 200
    page.process.send_signal(signal.SIGTERM)
    assert page.process.stderr is not None
    with page.process.stderr as stderr:
        page.process.wait(PATIENCE_SECONDS)
        assert stderr.read() == ""
    assert page.process.returncode == 0


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "LOCALHOST:PORT"])
def test_a_name_that_others_share_is_the_link_s_and_the_danger_is_named(tmp_path: Path, name: str) -> None:
    page = _Process(tmp_path, "--port", "0", "--quiet", "--name", name.replace("PORT", "9000"))
    link = page.link()
    expected = r"localhost:9000" if "PORT" in name else rf"{re.escape(name)}:\d+"
    assert re.match(rf"http://{expected}/\?token=", link)
    code, err = page.end()
    assert code == 0
    assert "its cookie goes to every port of this machine" in err


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_nothing_else_answers_on_the_other_loopback_address(house: House, host: str) -> None:
    with closing(PageServer(house.engine, host=host, port=0)) as page:
        for other in ("127.0.0.1", "::1"):
            with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET) as taker:
                taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):
                    taker.bind((other, page.port))


def test_a_page_that_could_be_mistaken_for_another_does_not_start(house: House) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LcpError, match=f"cannot listen on ::1 port {port}: Address already in use"):
            PageServer(house.engine, port=port)


def test_a_browser_keeps_its_access_over_a_restart_until_it_is_signed_out(tmp_path: Path) -> None:
    first = _Process(tmp_path, "--port", "0")
    link, visitor = first.link(), Visitor()
    port = str(urlsplit(link).port)
    assert visitor.status(link) == 200
    first.end()
    home = link.partition("?")[0]
    second = _Process(tmp_path, "--port", port)
    assert second.link().partition("?")[0] == home
    assert visitor.status(home) == 200
    assert Visitor().status(home) == 401
    assert Visitor().status(link) == 401, "a link of an earlier start lets nobody in"
    second.end()
    (kept,) = tmp_path.rglob("page/*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    third = _Process(tmp_path, "--port", port, "--sign-out")
    assert (new := third.link().partition("?")[0]) != home
    assert visitor.status(new) == 401
    third.end()


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text('{"cookie": "x", "csrf": "x", "name": "x"}'),
        lambda path: path.write_bytes(b"\xff" * 10_000),
        lambda path: path.chmod(0o644),
        lambda path: os.utime(path, (0, 0)),
        lambda path: os.utime(path, (2**33, 2**33)),
        lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")),
        _make_pipe,
    ],
    ids=["no JSON", "no keys", "no text", "others may read it", "old", "of the future", "a link", "a pipe"],
)
def test_keys_that_others_could_know_or_that_are_none_are_replaced(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    path = tmp_path / "page" / "keys.json"
    kept = kept_secrets(path)
    assert kept_secrets(path).cookie == kept.cookie
    assert kept_secrets(path).token != kept.token
    spoil(path)
    fresh = kept_secrets(path)
    assert {fresh.cookie, fresh.csrf, fresh.name}.isdisjoint({kept.cookie, kept.csrf, kept.name})
    assert kept_secrets(path).cookie == fresh.cookie
    assert path.is_file()
    assert not path.is_symlink()


def test_the_page_is_served_where_its_keys_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "lcp-engine").mkdir()
    (tmp_path / "lcp-engine" / "page").write_text("no directory")
    server = _Process(tmp_path, "--port", "0")
    assert Visitor().status(server.link()) == 200
    code, err = server.end()
    assert code == 0
    assert "browsers will need a link again after a restart" in err


def test_json_prints_the_link_as_an_object(tmp_path: Path) -> None:
    page = _Process(tmp_path, "--port", "0", "--json")
    assert json.loads(page.link())["link"].startswith("http://lcp-")
    assert page.end() == (0, "")


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = _Process(tmp_path, "--port", str(port)).fail()
    assert code == 2
    assert err == f"the page cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.proof
def test_without_the_extra_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "site" / "starlette").mkdir(parents=True)
    (tmp_path / "site" / "starlette" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'starlette'\", name='starlette')\n"
    )
    code, err = _Process(tmp_path, path=tmp_path / "site").fail()
    assert code == 2
    assert (
        err
        == "the page needs the extra 'web' (starlette is missing): pip install '.[web]' in a clone of lcp-engine\n"
    )


def test_bound_everywhere_its_own_link_works_and_the_danger_is_named(tmp_path: Path) -> None:
    page = _Process(tmp_path, "--port", "0", "--host", "0.0.0.0")
    host, port = re.fullmatch(r"http://([^:]+):(\d+)/.*", page.link()).groups()  # type: ignore[union-attr]  # it matches
    assert host == socket.gethostname()
    statuses = {name: _status(int(port), name) for name in (host, "127.0.0.1", "10.1.2.3", "evil.example")}
    assert statuses == {host: 401, "127.0.0.1": 401, "10.1.2.3": 401, "evil.example": 403}
    code, err = page.end()
    assert code == 0
    assert "0.0.0.0 may be reachable from other machines" in err


def test_a_request_without_an_end_is_refused_and_the_page_goes_on(house: House) -> None:
    with serving(house.engine) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as peer:
            peer.sendall(b"GET /" + b"x" * 100_000)
            assert peer.recv(12) == b"HTTP/1.1 400"
        assert _status(server.port, "127.0.0.1") == 403


def test_an_address_that_is_none_is_refused(house: House) -> None:
    with pytest.raises(LcpError, match=r"cannot listen on no-such-host\.invalid") as refused:
        serve(house.engine, "no-such-host.invalid", 0)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_news_of_a_mission_come_as_they_happen(house: House) -> None:
    house.launch(house.complete)
    with serving(house.engine) as server, _listening(server, "/missions/1/events") as stream:
        house.work()
        assert _news(stream) == {"mission": 1, "seq": house.engine.event_counts()[1]} or _news(stream)


def test_news_of_all_missions_name_the_mission(house: House) -> None:
    house.run(house.complete)
    with serving(house.engine) as server, _listening(server, "/events") as stream:
        mission_id = house.launch(house.complete)
        assert _news(stream) == {"mission": mission_id, "seq": house.engine.event_counts()[mission_id]}


def test_a_runner_that_came_and_went_between_two_looks_is_news_if_a_page_showed_it(house: House) -> None:
    house.launch(house.complete)
    context = PageContext(house.engine, make_templates(), house.keys.csrf)
    watch = Watch(context)
    with TestClient(make_app(context, house.keys, ADDRESS), base_url=HOME) as browser:
        browser.get("/", params={"token": house.keys.token})
        assert "runners" not in str(watch._look(with_runners=True))
        runner = house.engine.runner()
        with in_thread(runner.run, runner.stop):
            wait_until(house.engine.runners)
            assert "no runner is running" not in browser.get("/missions/1").text
        assert {"runners": []} in watch._look(with_runners=True)[0]
        assert {"runners": []} not in watch._look(with_runners=True)[0]


def test_pages_are_compressed_and_events_are_not(house: House) -> None:
    with serving(house.engine) as server:
        visitor, link = Visitor(), server.link
        zipped = {"Accept-Encoding": "gzip"}
        with visitor.get(link, **zipped) as page:
            assert page.headers["content-encoding"] == "gzip"
            assert b"No missions yet" in gzip.decompress(page.read())
        with visitor.get(urljoin(link, "/events"), **zipped) as events:
            assert events.headers["content-encoding"] is None
            assert events.readline() == b"retry: 2000\n"
            mission_id = house.launch(house.complete)
            assert _news(events) == {"mission": mission_id, "seq": house.engine.event_counts()[mission_id]}


def test_the_page_stops_although_somebody_listens(house: House) -> None:
    with serving(house.engine) as server, _listening(server, "/events") as stream:
        server.stop()
        assert stream.read() is not None


def _status(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/", headers={"Host": f"{host}:{port}"})
    status = connection.getresponse().status
    connection.close()
    return status


def _addresses(port: int) -> set[str]:
    """Where this machine listens on a port, out of /proc/net."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    local = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {
        socket.inet_ntoa(int(address, 16).to_bytes(4, "little"))
        for address, number in local
        if int(number, 16) == port
    }
