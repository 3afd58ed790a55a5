"""Exchange one request with a model's server: within its time, without its key in any word of ours."""

from __future__ import annotations

import ipaddress
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import JsonValue

from lcp_engine.planners.llm.errors import Again, Trouble, trouble_of
from lcp_engine.planners.llm.stream import Answer, Unreadable, read_answer
from lcp_engine.planners.llm.types import ModelSettings

if TYPE_CHECKING:
    import httpx2

_MOST_ERROR_BYTES = 64 * 1024


class Exchange:
    """Sends requests to one endpoint; usable from any thread. `transport` takes the place of the network in tests."""

    def __init__(
        self,
        settings: ModelSettings,
        headers: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        import httpx2

        self.where = settings.endpoint
        self._settings = settings
        self._clock = clock
        self._client = httpx2.Client(
            headers={"User-Agent": "lcp-engine", **headers},
            # A proxy cannot reach the servers of this machine.
            trust_env=not is_loopback(settings.endpoint),
            transport=transport,
        )
        # A planner ends with its mission, unannounced; its connections end with it.
        weakref.finalize(self, self._client.close)

    def post(self, path: str, body: Mapping[str, JsonValue], deadline: float) -> Answer | Trouble:
        """What `path` answers; `deadline` is a time of the clock."""
        return self._send("POST", path, body, deadline)

    def get(self, path: str, deadline: float) -> Answer | Trouble:
        """Like `post`, without a body."""
        return self._send("GET", path, None, deadline)

    def _send(
        self, method: str, path: str, body: Mapping[str, JsonValue] | None, deadline: float
    ) -> Answer | Trouble:
        import httpx2

        silence = min(self._settings.first_byte_seconds, max(deadline - self._clock(), 0.001))
        timeout = httpx2.Timeout(silence, connect=min(self._settings.connect_seconds, silence))
        try:
            with self._client.stream(method, f"{self.where}{path}", json=body, timeout=timeout) as response:
                chunks = self._in_time(response.iter_bytes(), deadline)
                if response.is_success:
                    return self._accept(read_answer(chunks))
                text = _beginning(chunks).decode("utf-8", "replace")
                return trouble_of(
                    self.where, response.status_code, response.headers, self._settings.scrub(text)
                )
        except _TooLate:
            expectation = f"a whole completion within {self._settings.total_seconds:g} s is expected"
            return Trouble(f"{self.where}: {expectation}, it took longer")
        except httpx2.ConnectTimeout:
            return self._late(f"a connection within {self._settings.connect_seconds:g} s", "none was made")
        except httpx2.TimeoutException:
            return self._late(f"an answer within {silence:g} s", "nothing came")
        except httpx2.ConnectError as refused:
            fact = f"no connection was made: {self._settings.scrub(str(refused))}"
            return Trouble(
                f"{self.where}: a model's server is expected to listen there, {fact}", Again.BACK_OFF
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as refused:
            fact = f"the connection broke: {self._settings.scrub(str(refused)) or type(refused).__name__}"
            return Trouble(f"{self.where}: a whole answer is expected, {fact}", Again.BACK_OFF)

    def _accept(self, answer: Answer | Unreadable) -> Answer | Trouble:
        if isinstance(answer, Answer):
            return answer
        fact = f"this came: {self._settings.scrub(answer.fact)}"
        return Trouble(f"{self.where}: events or a JSON object are expected, {fact}")

    def _late(self, expectation: str, fact: str) -> Trouble:
        return Trouble(f"{self.where}: {expectation} is expected, {fact}", Again.ONCE)

    def _in_time(self, chunks: Iterator[bytes], deadline: float) -> Iterator[bytes]:
        """`chunks`, while there is time: a server that drips never falls silent."""
        for chunk in chunks:
            if self._clock() > deadline:
                raise _TooLate
            yield chunk


def is_loopback(endpoint: str) -> bool:
    """Whether the endpoint is on this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class _TooLate(Exception):
    """The time for the whole answer is over."""


def _beginning(chunks: Iterator[bytes]) -> bytes:
    text = b""
    for chunk in chunks:
        text += chunk
        if len(text) > _MOST_ERROR_BYTES:
            break
    return text[:_MOST_ERROR_BYTES]
