"""Let only the person in who started the page: host, origin, token and cookie, sizes, headers."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1024 * 1024
"""A body has at most so many bytes: an edited job and its surroundings."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" a browser sends forms with `Origin: null`, which tells us nothing.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC = "/static/"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Keys:
    """The secrets of one run of the page: `token` stands in the link, `cookie` in the browser, `csrf` in the forms."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


@dataclass(frozen=True)
class Door:
    """Where the page is: the cookie's name, and the hosts by which it may be called."""

    port: int
    names: Collection[str] = LOOPBACK
    any_address: bool = False

    @property
    def cookie(self) -> str:
        # Browsers keep one jar for all ports of a host.
        return f"lcp-{self.port}"

    def is_ours(self, host: str) -> bool:
        """Whether a `Host` header names this page. An address cannot be rebound by somebody's DNS, a name can."""
        name = urlsplit(f"//{host}").hostname or ""
        return name in self.names or (self.any_address and _is_address(name))


Refuse = Callable[[int, str], Response]


class Gate:
    """Passes on what comes from the person's own browser; everything else gets a refusal."""

    def __init__(self, app: ASGIApp, *, keys: Keys, door: Door, refuse: Refuse) -> None:
        self._app = app
        self._keys = keys
        self._door = door
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer = self._objection(request) or self._entrance(request)
        sending = _with_headers(send, request.url.path)
        await (answer or self._app)(scope, receive, sending)

    def _objection(self, request: Request) -> Response | None:
        """Why a request is refused whoever sent it."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return self._refuse(
                403, f"the page is not called {host!r}; open the link that `lcp serve` printed"
            )
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return self._refuse(403, f"requests come from this page itself; this one came from {origin}")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return self._refuse(413, f"a request has at most {MOST_BYTES} bytes; this one has {length}")
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            return self._door.is_ours(host)
        except ValueError:
            return False

    def _entrance(self, request: Request) -> Response | None:
        """Let a browser in that has the cookie; give it to one that has the token."""
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            return self._welcome(request.url.path) if _same(token, self._keys.token) else self._turn_away()
        if request.url.path.startswith(STATIC):
            return None
        shown = request.cookies.get(self._door.cookie, "")
        return None if _same(shown, self._keys.cookie) else self._turn_away()

    def _welcome(self, path: str) -> Response:
        # The token leaves the address bar. One slash: `//host` would lead elsewhere.
        answer = RedirectResponse("/" + path.lstrip("/\\"), status_code=303)
        answer.set_cookie(self._door.cookie, self._keys.cookie, path="/", httponly=True, samesite="strict")
        return answer

    def _turn_away(self) -> Response:
        return self._refuse(401, "this browser is not let in yet; open the link that `lcp serve` printed")


def _with_headers(send: Send, path: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Cache-Control"] = "no-cache" if path.startswith(STATIC) else "no-store"
        await send(message)

    return sending


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
