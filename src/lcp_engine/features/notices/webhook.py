"""Send notices to the webhook: one after the other, signed, again until they are taken or given up."""

from __future__ import annotations

import http.client
import logging
import secrets
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from lcp_engine.clock import SECOND, Micros, iso
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import LcpError
from lcp_engine.features.approvers.secret_keys import read_key
from lcp_engine.features.models.endpoints.deadline import Line, TooLate, within
from lcp_engine.features.notices.composed_notice import compose_notice
from lcp_engine.features.notices.notice import Notice, WaitingMission
from lcp_engine.features.notices.settings import Webhook
from lcp_engine.features.notices.signature import signature
from lcp_engine.features.notices.store import deliveries
from lcp_engine.features.notices.store.deliveries import ATTEMPT_SECONDS, Delivery
from lcp_engine.sandbox.file_access import Shortage, start_thread
from lcp_engine.store.db.json_text import to_json

LOOK_SECONDS = 5.0
"""How often it is found out what other processes have to say."""
_TAKEN = range(200, 300)


class WebhookSender:
    """Sends what is due in a thread of its own, which delays nothing else; a failure is logged when it is the first."""

    def __init__(self, instance: Instance, webhook: Webhook, seconds: float = ATTEMPT_SECONDS) -> None:
        """`seconds` is how long one attempt may take."""
        self._seconds = seconds
        self._instance = instance
        self._database = instance.database
        self._webhook = webhook
        self._news = threading.Event()
        self._is_ending = False
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="lcp-webhook", daemon=True)

    def start(self) -> None:
        """Start the thread unless it is started; one that the system refuses is to be started later."""
        if self._thread.ident is None:
            with suppress(Shortage):
                start_thread(self._thread)

    def wake(self) -> None:
        """Look at once for what is due."""
        self._news.set()

    def hear(self, waits: Mapping[int, int]) -> None:
        """Look at once for the notices of these missions."""
        self.wake()

    def finish(self) -> None:
        """Send what is due, but wait for one slow answer at most; the rest is left to the next runner."""
        self._is_ending = True
        self.wake()
        if self._thread.ident is None:
            self._run()
        else:
            self._thread.join(self._seconds + 1)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last, pause = self._is_ending, LOOK_SECONDS
            try:
                self._send_due()
                pause = self._seconds_until_due()
            except Exception as error:  # noqa: BLE001 -- the top of a thread: what waits is sent later
                self._say(str(error))
            if not is_last:
                self._news.wait(pause)
                self._news.clear()

    def _send_due(self) -> None:
        """Send one notice after the other, until none is due or one fails."""
        while (delivery := self._database.write(deliveries.take)) is not None:
            if not self._send(delivery):
                return

    def _send(self, delivery: Delivery) -> bool:
        compose = partial(compose_notice, self._instance, delivery.mission_id, delivery.seq)
        answer = _ask(self._webhook, compose, self._database.now(), self._seconds)
        why = answer.refusal
        if why is None:
            taken = partial(deliveries.note_delivered, delivery=delivery, status=answer.status)
            self._database.write(taken)
            self._is_failing = False
            return True
        failed = partial(deliveries.note_failed, delivery=delivery, status=answer.status or None, why=why)
        again = self._database.write(failed)
        self._say(why if again is not None else f"{why}; the notice was given up")
        return again is None

    def _seconds_until_due(self) -> float:
        due = self._database.read(deliveries.next_at)
        left = LOOK_SECONDS if due is None else (due - self._database.now()) / SECOND
        return max(0.0, min(left, LOOK_SECONDS))

    def _say(self, fact: str) -> None:
        """Log a failure, unless the one before it was logged and nothing has succeeded since."""
        if not self._is_failing:
            logging.getLogger("lcp_engine").warning(
                "webhook %s: %s; it is tried again, and `lcp deliveries` shows what became of it",
                urlsplit(self._webhook.url).hostname,
                fact,
            )
        self._is_failing = True


@dataclass(frozen=True)
class Answer:
    """Answer of a server: its status, or why there is none."""

    status: int = 0
    fault: str | None = None

    @property
    def refusal(self) -> str | None:
        """Reason why the notice was not taken; None if it was."""
        if self.status in _TAKEN:
            return None
        return self.fault or f"it answered {self.status}; 2xx was expected"


def send_test(webhook: Webhook, now: Micros) -> Answer:
    """Send a notice of no mission, whose `event` is `test`; the database does not keep it."""
    mission = WaitingMission(id=0, uid="req-test", name="test", goal="A test of the webhook.")
    notice = Notice(
        id=f"test-{secrets.token_hex(8)}", event="test", at=iso(now), mission=mission, held=0, jobs=[]
    )
    return _ask(webhook, lambda: notice, now, ATTEMPT_SECONDS)


def _ask(webhook: Webhook, compose: Callable[[], Notice], now: Micros, seconds: float) -> Answer:
    """Answer of the server to a notice, or why there is no answer."""
    try:
        notice = compose()
        body = to_json(notice.as_json()).encode()
        at = now // SECOND
        headers = {
            "content-type": "application/json",
            "user-agent": "lcp-engine",
            "webhook-id": notice.id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(read_key(webhook), notice.id, at, body),
        }
        return Answer(within(seconds, partial(_post, webhook.url, body, headers)))
    except TooLate:
        return Answer(fault=f"no answer came within {seconds:g} s")
    except LcpError as error:
        return Answer(fault=str(error))
    except (OSError, http.client.HTTPException) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return Answer(fault=f"the connection failed: {said}")


def _post(url: str, body: bytes, headers: Mapping[str, str], line: Line) -> int:
    """The status that the server answers with; what else it says is not read, and it leads nowhere else."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, port, timeout=ATTEMPT_SECONDS, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=ATTEMPT_SECONDS)
    try:
        connection.connect()
        line.hold(connection.sock)
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", path, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()
