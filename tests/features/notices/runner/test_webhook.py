"""The webhook hears of each wait, signed and in order, whatever its server does, and nothing waits for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from lcp_engine import Engine
from lcp_engine.clock import SECOND, Micros
from lcp_engine.features.notices.settings import Webhook
from lcp_engine.features.notices.store import deliveries
from lcp_engine.features.notices.webhook import WebhookSender
from lcp_engine.store.db.transaction import Tx

SECRET = "a secret of the tests, long enough"
START: Micros = 1_795_000_000 * SECOND
ASK: JsonValue = {
    "ok": True, "action": "create_followup_jobs",
    "new_jobs": [{"kind": "write_file", "params": {"path": "a.md", "content": "new"}}],
}  # fmt: skip
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
SPEC: dict[str, JsonValue] = {"goal": "Look.", "planner": {"type": "script", "replies": [ASK, DONE]}}


@dataclass
class Receiver:
    """A server that answers as its list says, 204 in the end, and keeps what it was sent; 0 is not an answer at all."""

    answers: list[int] = field(default_factory=list)
    taken: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    has_ended: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.taken]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        status = self.answers.pop(0) if self.answers else 204
        if status == 0:
            self.has_ended.wait(60)
            return
        self.taken.append(({name.lower(): value for name, value in handler.headers.items()}, body))
        handler.send_response(status)
        handler.send_header("location", "http://127.0.0.1:1/elsewhere")
        handler.end_headers()


@contextmanager
def serving(receiver: Receiver) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the library
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?of=lcp"
    try:
        yield receiver
    finally:
        receiver.has_ended.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with serving(Receiver()) as made:
        yield made


class Lab:
    """A database with a webhook, whose time a test sets, and missions that wait."""

    def __init__(self, url: str, root: Path, webhook: Webhook) -> None:
        self.now = START
        self.webhook = webhook
        self.engine = Engine(url, clock=lambda: self.now, webhook=webhook)
        self.root = root
        root.mkdir()

    def wait(self, count: int = 1) -> list[int]:
        """Missions that wait for a person; nothing is sent yet."""
        made = [self.engine.launch(SPEC, root=self.root).id for _ in range(count)]
        for mission in made:
            self.run(mission)
        return made

    def run(self, mission: int) -> None:
        """Work on a mission in a runner without the webhook."""
        silent = Engine(self.engine.instance.url, clock=lambda: self.now)
        silent.instance.database.before_waiting_commit = self.engine.instance.database.before_waiting_commit
        silent.work(until_idle=True, mission_id=mission)
        silent.close()

    def send(self, seconds: float = 5.0) -> None:
        """Have a runner send what is due now."""
        sender = WebhookSender(self.engine.instance, self.webhook, seconds)
        sender.start()
        sender.finish()

    @property
    def states(self) -> list[JsonValue]:
        return [one["state"] for one in reversed(self.engine.deliveries())]

    @property
    def last(self) -> dict[str, JsonValue]:
        return self.engine.deliveries()[0]


@pytest.fixture
def lab(database_url: str, tmp_path: Path, receiver: Receiver) -> Iterator[Lab]:
    made = Lab(database_url, tmp_path / "root", Webhook(url=receiver.url, secret_env="HOOK_SECRET"))
    yield made
    made.engine.close()


def test_a_notice_is_signed_as_receivers_check_it(lab: Lab, receiver: Receiver) -> None:
    (mission,) = lab.wait()
    lab.send()
    ((headers, body),) = receiver.taken
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert int(headers["webhook-timestamp"]) == START // SECOND
    notice = json.loads(body)
    assert (notice["id"], notice["mission"]["id"]) == (headers["webhook-id"], mission)
    assert notice["jobs"][0]["diff"]["added"] == 1
    assert (lab.states, lab.last["http_status"], lab.last["attempts"]) == (["delivered"], 204, 1)


def test_a_secret_in_base64_is_the_key_that_it_encodes(
    lab: Lab, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b"0123456789abcdef"
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{base64.b64encode(key).decode()}")
    lab.wait()
    lab.send()
    ((headers, body),) = receiver.taken
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    assert (
        headers["webhook-signature"] == f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"
    )


def test_what_a_server_refuses_is_sent_again_later_each_time_and_before_all_others(
    lab: Lab, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    lab.wait(3)
    receiver.answers += [500, 302, 404]
    with caplog.at_level(logging.WARNING):
        for pause in (5, 10, 20):
            lab.send()
            assert lab.states == ["unsent"] * 3
            lab.now += pause * SECOND - 1
            lab.send()
            lab.now += 1
    lab.send()
    assert lab.states == ["delivered"] * 3
    assert [one["attempts"] for one in reversed(lab.engine.deliveries())] == [4, 1, 1]
    first, second, third = dict.fromkeys(receiver.ids)
    assert receiver.ids == [first] * 4 + [second, third]
    assert [one["notice"] for one in reversed(lab.engine.deliveries())] == [first, second, third]
    assert "it answered 500; 2xx was expected" in caplog.text


def test_a_server_that_fails_for_a_day_gets_a_bounded_number_of_requests_and_then_the_next_notice(
    lab: Lab, receiver: Receiver
) -> None:
    lab.wait()
    receiver.answers += [500] * 1000
    while lab.states == ["unsent"]:
        lab.send()
        lab.now = max(lab.now, lab.engine.instance.database.read(deliveries.next_at) or 0)
    assert lab.states == ["given_up"]
    assert 20 < len(receiver.taken) < 40
    assert lab.now - START < 26 * 3600 * SECOND
    assert lab.last["error"] == "it answered 500; 2xx was expected"
    receiver.answers.clear()
    lab.wait()
    lab.send()
    assert lab.states == ["given_up", "delivered"]


def test_a_server_that_hangs_delays_no_mission_and_not_the_end_of_the_runner(
    lab: Lab, receiver: Receiver
) -> None:
    receiver.answers += [0] * 10
    lab.wait(2)
    spec: dict[str, JsonValue] = {"goal": "Go on.", "planner": {"type": "script", "replies": [DONE]}}
    mission = lab.engine.launch(spec, root=lab.root).id
    sender = WebhookSender(lab.engine.instance, lab.webhook, 0.5)
    sender.start()
    lab.run(mission)
    assert lab.engine.mission(mission).status == "completed"
    began = time.monotonic()
    sender.finish()
    assert time.monotonic() - began < 5
    assert (lab.states, lab.last["attempts"]) == (["unsent", "unsent"], 0)
    assert lab.engine.deliveries()[1]["error"] == "no answer came within 0.5 s"


def test_a_notice_whose_mission_waits_no_more_is_not_sent(lab: Lab, receiver: Receiver) -> None:
    first, second = lab.wait(2)
    for job in lab.engine.jobs(mission_id=first, states=["held"]):
        lab.engine.reject(job.id, "no")
    lab.run(first)
    lab.send()
    assert lab.states == ["outdated", "delivered"]
    assert [json.loads(body)["mission"]["id"] for _, body in receiver.taken] == [second]


def test_a_mission_that_waits_anew_silences_no_other_one(lab: Lab, receiver: Receiver) -> None:
    job: JsonValue = {"kind": "write_file", "params": {"path": "b.md", "content": "new"}}
    more: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}
    spec: dict[str, JsonValue] = {**SPEC, "planner": {"type": "script", "replies": [ASK, more, DONE]}}
    (first,) = lab.wait()
    lab.send()
    again = lab.engine.launch(spec, root=lab.root).id
    lab.run(again)
    lab.send()
    for held in lab.engine.jobs(mission_id=again, states=["held"]):
        lab.engine.approve(held.id)
    lab.run(again)
    lab.send()
    (other,) = lab.wait()
    lab.send()
    told = [json.loads(body)["mission"]["id"] for _, body in receiver.taken]
    assert told == [first, again, again, other]
    assert lab.states == ["delivered"] * 4


def test_a_sender_that_died_is_followed_by_another_one_with_the_same_id(lab: Lab, receiver: Receiver) -> None:
    lab.wait()
    database = lab.engine.instance.database

    def begin(tx: Tx) -> bool:
        return deliveries.take(tx) is not None

    assert database.write(begin)
    lab.send()
    assert receiver.taken == []
    lab.now += 30 * SECOND
    lab.send()
    assert (len(receiver.taken), lab.states, lab.last["attempts"]) == (1, ["delivered"], 2)


def test_the_end_of_an_attempt_that_was_given_up_changes_nothing(lab: Lab) -> None:
    lab.wait()
    database = lab.engine.instance.database
    late = database.write(deliveries.take)
    assert late is not None
    lab.now += 31 * SECOND
    assert database.write(deliveries.take) is not None
    database.write(partial(deliveries.note_failed, delivery=late, status=500, why="late"))
    assert lab.last["error"] is None


def test_two_runners_send_each_notice_once_and_in_order(lab: Lab, receiver: Receiver) -> None:
    lab.wait(6)
    senders = [WebhookSender(lab.engine.instance, lab.webhook) for _ in range(2)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.finish()
    lab.send()
    assert receiver.ids == [one["notice"] for one in reversed(lab.engine.deliveries())]
    assert len(receiver.ids) == 6


@pytest.mark.parametrize(
    ("stated", "fact"),
    [
        (None, "the environment variable HOOK_SECRET should have a secret; it is not set"),
        ("short", "the secret of HOOK_SECRET should have 16 bytes or more"),
        ("whsec_%%%", "in Base64 if it begins with whsec_"),
    ],
)
def test_without_a_usable_secret_nothing_is_sent_and_the_reason_is_stored(
    lab: Lab, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, stated: str | None, fact: str
) -> None:
    if stated is None:
        monkeypatch.delenv("HOOK_SECRET")
    else:
        monkeypatch.setenv("HOOK_SECRET", stated)
    lab.wait()
    lab.send()
    assert (receiver.taken, lab.states) == ([], ["unsent"])
    assert fact in str(lab.last["error"])


def test_a_secret_file_is_for_its_user_alone(
    lab: Lab, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_SECRET")
    file = tmp_path / "hook.secret"
    lab.webhook = Webhook(url=receiver.url, secret_file=str(file))
    lab.wait()
    lab.send()
    assert "it cannot be read: No such file or directory" in str(lab.last["error"])
    file.write_text(f"{SECRET}\n")
    file.chmod(0o644)
    lab.now += 5 * SECOND
    lab.send()
    assert "should be readable by its user alone; its mode is 0644" in str(lab.last["error"])
    file.chmod(0o600)
    lab.now += 10 * SECOND
    lab.send()
    assert lab.states == ["delivered"]


def test_the_secret_is_in_neither_database_nor_log(
    lab: Lab, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers += [500]
    lab.wait()
    with caplog.at_level(logging.DEBUG):
        lab.send()
    assert SECRET not in caplog.text + json.dumps(lab.engine.deliveries()) + str(receiver.taken)


@pytest.mark.parametrize(
    ("url", "fact"),
    [
        ("http://example.org/hook", "http to another machine is not encrypted"),
        ("ftp://example.org/", "should begin with https:// and name a host"),
        ("https:///hook", "should begin with https:// and name a host"),
        ("https://me:it@example.org/", "neither a user name nor a fragment"),
        ("https://example.org:port/", "should be a URL"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, fact: str) -> None:
    with pytest.raises(ValidationError, match=fact):
        Webhook(url=url, secret_env="X")


@pytest.mark.parametrize("sources", [{}, {"secret_env": "A", "secret_file": "b"}])
def test_a_webhook_names_one_place_of_its_secret(sources: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either secret_env or secret_file is needed"):
        Webhook.model_validate({"url": "https://example.org/", **sources})


def test_what_a_pruned_mission_was_to_say_goes_with_it(lab: Lab) -> None:
    from lcp_engine.features.upkeep.store.prune import prune

    (mission,) = lab.wait()
    lab.wait()
    lab.engine.cancel(mission)
    lab.now += SECOND
    pruned = prune(lab.engine.instance.database, ended_before=lab.now)
    assert (pruned.missions, [one["mission_id"] for one in lab.engine.deliveries()]) == (1, [2])


def test_a_mission_that_a_rolled_back_transaction_let_wait_is_not_told(lab: Lab) -> None:
    lab.wait()
    database = lab.engine.instance.database

    def undo(tx: Tx) -> None:
        deliveries.add(tx, 1, 999)
        raise KeyError

    with pytest.raises(KeyError):
        database.write(undo)
    assert len(lab.engine.deliveries()) == 1
