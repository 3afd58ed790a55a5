"""Access control: host, origin, token and cookie, request size, security headers."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.background import BackgroundTask
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lcp_engine.features.approvers.link import PATH
from lcp_engine.web.forms import MOST_BYTES

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" a browser sends forms with `Origin: null`, which could not be checked.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC = "/static/"
OPEN_TO_ALL = (STATIC, PATH)
"""Addresses that need no access: a signed link is access to its one job."""
WATCHED = ("/healthz", "/readyz", "/metrics")
"""Addresses without names of missions, and without texts, for the programs that watch a server: any of this machine."""
RELAYED = frozenset({"origin", "forwarded", "via", "x-forwarded-for"})
"""Headers of requests that come through a page of a browser, or through a proxy: from anywhere."""
ACCESS = "lcp.access"
"""The key in the scope's state that says that a request came from a browser with access."""
UNKNOWN = "this browser has no access yet"
USED = "this link was used before, or is of an earlier start"
HTTP_PORT = 80
"""The port that browsers leave out of `Host`."""


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class Secrets:
    """The secrets of the page: `cookie` for browsers, `csrf` for the forms, `name` for its host, `token` for the link.

    A token gives access to one browser; the next one then takes its place. Each start has a token of its own.
    """

    token: str = field(default_factory=_new_secret, repr=False)
    cookie: str = field(default_factory=_new_secret, repr=False)
    csrf: str = field(default_factory=_new_secret, repr=False)
    name: str = field(default_factory=lambda: secrets.token_hex(10), repr=False)

    def redeem(self, token: str) -> bool:
        """True if this is the token, which is replaced if it is."""
        if not _is_equal(token, self.token):
            return False
        self.token = _new_secret()
        return True


@dataclass(frozen=True)
class Address:
    """Where the page is served: its port, and the values of `Host` that it accepts, in lower case."""

    port: int
    hosts: frozenset[str]
    any_address: bool = False

    @property
    def cookie(self) -> str:
        # Browsers share cookies between all ports of a host. That matters where people chose its name; the page's own
        # name is a secret.
        return f"lcp-{self.port}"

    def is_own_host(self, host: str) -> bool:
        """True if a `Host` header, as a whole, names this page.

        Any IP address with the page's port may do: DNS rebinding needs a name.
        """
        return host.lower() in self.hosts or (self.any_address and self._is_ip_address(host))

    def is_loopback(self, host: str) -> bool:
        """True if a `Host` header names this page by the addresses that every machine has for itself."""
        named = f"{host}:{HTTP_PORT}" if self.port == HTTP_PORT and ":" not in host else host
        return named in {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    def _is_ip_address(self, host: str) -> bool:
        address = host.removesuffix(f":{self.port}")
        if address == host and self.port != HTTP_PORT:
            return False
        try:
            if address.startswith("[") and address.endswith("]"):
                return ipaddress.IPv6Address(address[1:-1]).scope_id is None
            ipaddress.IPv4Address(address)
        except ValueError:
            return False
        return True


ErrorPage = Callable[[int, str], Response]
OnUsed = Callable[[], None]
"""Called in a thread when the token has been used, and `Secrets` has the next one."""


class AccessControl:
    """Middleware that passes on requests from a browser with the cookie and answers all others with an error page."""

    def __init__(
        self, app: ASGIApp, *, secrets: Secrets, address: Address, error_page: ErrorPage, on_used: OnUsed
    ) -> None:
        self._app = app
        self._on_used = on_used
        self._secrets = secrets
        self._address = address
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        is_free = self._is_watched_from_here(request)
        response = None if is_free else self._check_request(request) or self._check_browser(request)
        await (response or self._app)(scope, receive, _with_headers(send, _path_of(request)))

    def _is_watched_from_here(self, request: Request) -> bool:
        """True for a program of this machine that asks how the server is, and for nothing else."""
        return (
            _path_of(request) in WATCHED
            and request.method == "GET"
            and request.client is not None
            and request.client.host in ("127.0.0.1", "::1")
            and RELAYED.isdisjoint(request.headers)
            and self._address.is_loopback(",".join(request.headers.getlist("host")))
        )

    def _check_request(self, request: Request) -> Response | None:
        """The error page for a request that is refused from any browser."""
        hosts = request.headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._address.is_own_host(host):
            named = repr(host) if len(hosts) == 1 else f"{len(hosts)} hosts"
            return self._error_page(
                403, f"this page is not served as {named}; open the link that `lcp serve` printed"
            )
        if not _path_of(request).startswith("/"):
            return self._error_page(400, "a request names a path of this page, which starts with a slash")
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return self._error_page(403, f"only this page may send requests; this one came from {origin}")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return self._error_page(413, f"a request may have {MOST_BYTES} bytes; this one has {length}")
        return None

    def _check_browser(self, request: Request) -> Response | None:
        """None for a browser with the cookie; a redirect that sets it for one with the token; else a 401."""
        path = _path_of(request)
        cookie = request.cookies.get(self._address.cookie, "")
        has_access = _is_equal(cookie, self._secrets.cookie)
        if has_access:
            request.scope.setdefault("state", {})[ACCESS] = True
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            if has_access:  # the link was opened twice in one browser
                return _without_token(path)
            return self._set_cookie(path) if self._secrets.redeem(token) else self._unauthorized(USED)
        return None if has_access or path.startswith(OPEN_TO_ALL) else self._unauthorized(UNKNOWN)

    def _set_cookie(self, path: str) -> Response:
        response = _without_token(path)
        response.set_cookie(
            self._address.cookie, self._secrets.cookie, path="/", httponly=True, samesite="strict"
        )
        response.background = BackgroundTask(self._on_used)
        return response

    def _unauthorized(self, fact: str) -> Response:
        return self._error_page(401, f"{fact}; open the newest link that `lcp serve` printed")


def _without_token(path: str) -> Response:
    # It removes the token from the address bar. One slash: `//host` would lead to another host.
    return RedirectResponse("/" + path.lstrip("/\\"), status_code=303)


def _path_of(request: Request) -> str:
    """The path that is routed. `request.url` is put together from `Host`, which anyone may write."""
    path: str = request.scope["path"]
    return path


def _with_headers(send: Send, path: str) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Cache-Control"] = "no-cache" if path.startswith(STATIC) else "no-store"
        await send(message)

    return send_with_headers


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
