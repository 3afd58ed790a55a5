"""Serve MCP over streamable HTTP to programs with a token."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import dataclass

import uvicorn
from anyio.to_thread import run_sync
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.mcp_server.clients import TOKEN
from lcp_engine.features.mcp_server.door import McpDoor
from lcp_engine.features.mcp_server.stdio import MOST_BYTES
from lcp_engine.features.tokens.calls import Denied, Gate
from lcp_engine.web.access import ACCESS
from lcp_engine.web.connections import (
    BACKLOG,
    ClosingServer,
    ConnectionLimits,
    descriptor_limit,
    limited_protocol,
    saying_errors_once,
)

PATH = "/mcp"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_PORT = re.compile(r":[0-9]+\Z")
_IDLE_SECONDS = 600
_MOST_SESSIONS = 64


class HttpServer:
    """Serves clients on a bound socket, until `stop` is called from any thread.

    Raises `INVALID_ARGUMENT` for an address that cannot be bound, and like `Tokens.gate`.
    """

    def __init__(self, door: McpDoor, host: str, port: int) -> None:
        gate = door.engine.tokens.gate(only_here=host in LOOPBACK)
        self.token = gate.token
        self._socket = _listen(host, port)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}{PATH}"
        config = uvicorn.Config(
            _Admission(_app(door), gate, is_local=host in LOOPBACK),
            http=limited_protocol(ConnectionLimits().within(descriptor_limit())),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = ClosingServer(config)

    def run(self) -> None:
        try:
            with saying_errors_once():
                self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        self._server.should_exit = True


class PageDoor:
    """MCP as a door of the page's server. Its sessions begin with the first request, and end with `close`."""

    def __init__(self, door: McpDoor, gate: Gate) -> None:
        self._app = _app(door)
        self._admission = _Admission(self._app, gate, is_local=False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._is_open = asyncio.Event()
        self._sessions: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._sessions is None:
            self._loop = asyncio.get_running_loop()
            self._sessions = self._loop.create_task(self._hold())
        await self._is_open.wait()
        await self._admission(scope, receive, send)

    async def _hold(self) -> None:
        # The task group of the sessions ends in the task in which it began.
        async with self._app.router.lifespan_context(self._app):
            self._is_open.set()
            await self._closing.wait()

    def close(self) -> None:
        """End the sessions. May be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._closing.set)


def _app(door: McpDoor) -> Starlette:
    return door.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MOST_BYTES,
        session_idle_timeout=_IDLE_SECONDS,
        max_sessions=_MOST_SESSIONS,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        ),  # _Admission does it
    )


@dataclass(frozen=True)
class _Admission:
    """Passes on requests with a token that do not come from somebody else's page in a browser."""

    app: ASGIApp
    gate: Gate
    is_local: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._foreign(headers)
        if refused is None:
            address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
            found = await run_sync(
                lambda: self.gate.admit(headers.get("authorization"), None, address=address)
            )
            if isinstance(found, Denied):
                refused = found
            else:
                scope["state"] = {**scope.get("state", {}), ACCESS: True, TOKEN: found}
                known = AccessToken(token="", client_id=found.name, scopes=[*found.scopes])  # it is not kept
                scope["user"] = AuthenticatedUser(known)
        await (self.app if refused is None else _answer(refused))(scope, receive, send)

    def _foreign(self, headers: Headers) -> Denied | None:
        """Refuse the request of a page in a browser, or one for another host's name (DNS rebinding)."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.is_local and _PORT.sub("", host).strip("[]").lower() not in LOOPBACK:
            return _denied(421, f"the host {host[:100]!r} is not this server")
        if origin is not None and origin.partition("://")[2] != host:
            return _denied(403, f"requests of the page {origin[:100]!r} are not answered")
        return None


def _denied(status: int, fact: str) -> Denied:
    return Denied(
        status,
        Failed(ErrorCode.NOT_ALLOWED, fact, advice="Send requests to its own address, and none from a page."),
    )


def _answer(denied: Denied) -> ASGIApp:
    """A problem (RFC 9457) with the code of the error."""
    failed = denied.failed
    headers = {"WWW-Authenticate": "Bearer"} if denied.status == 401 else {}  # Unauthorized
    if denied.retry_after is not None:
        headers["Retry-After"] = str(denied.retry_after)
    problem = {
        "status": denied.status, "title": failed.message, "error_code": failed.code, "detail": failed.recommendation,
    }  # fmt: skip
    return JSONResponse(problem, denied.status, headers, media_type="application/problem+json")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as refused:
        fact = getattr(refused, "strerror", None) or str(refused)
        message = f"lcp mcp cannot listen on {host} port {port}: {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    bound.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # else each answer waits for an acknowledgement
    return bound
