"""Tell clients apart: their names, what their tokens let them do, and what each was shown last."""

from __future__ import annotations

from dataclasses import dataclass, field
from hmac import compare_digest
from secrets import token_hex
from threading import Lock
from typing import TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST
from starlette.requests import Request

from lcp_engine import Engine, LcpError
from lcp_engine.core.safe_text import is_storable, one_line
from lcp_engine.errors import GENERAL, ErrorCode
from lcp_engine.features.mcp_server.values import refusal
from lcp_engine.features.tokens.calls import TOKEN_REFUSED, Scope, Token
from lcp_engine.inbox import Sight

L = TypeVar("L")
MOST_SHOWN = 1_000
"""Jobs and undos whose marks are kept; the oldest go first."""
TOKEN = "lcp.token"  # noqa: S105  # a name
"""The key of the client's token in the state of an HTTP request."""
_SCOPES = {"launch": Scope.LAUNCH, **dict.fromkeys(("answer", "approve", "reject", "undo"), Scope.DECIDE)}
"""Scopes of tokens that tools need; the others need `look`."""


def client_name(ctx: Context[L, object]) -> str | None:
    """The name of the client's token, else the one that it gives itself, which proves nothing; None without one."""
    if (token := token_of(ctx.request_context.request)) is not None:
        return token.name
    stated = ctx.session.client_params
    return None if stated is None else one_line(stated.client_info.name)[:60] or None


def token_of(request: object) -> Token | None:
    """The token by which the client was let in; None over stdin, where there is no request."""
    if request is None:
        return None
    assert isinstance(request, Request)
    token: Token = request.scope["state"][TOKEN]
    return token


async def within_scope(ctx: ServerRequestContext[Served, object], call_next: CallNext) -> HandlerResult:
    """Refuse what the client's token does not let it do, and arguments that are no text."""
    if ctx.method == "prompts/get":  # the SDK would log a traceback
        raise MCPError(INVALID_PARAMS, "this server has no prompts")
    token, params = token_of(ctx.request), ctx.params or {}
    if ctx.method == "tools/call" and not is_storable(params):
        message = "text is expected; an argument has half a character, or the character U+0000"
        return refusal(LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL))
    needed = Scope.LOOK
    if ctx.method == "tools/call":
        needed = _SCOPES.get(str(params.get("name")), Scope.LOOK)
    if token is None or needed in token.scopes or ctx.method not in ("tools/call", "resources/read"):
        return await call_next(ctx)
    message = f"token {token.name} may {', '.join(token.scopes)}; this needs {needed}"
    refused = LcpError(TOKEN_REFUSED, message, advice=f"Add a token with `--scope {needed}`.")
    if ctx.method == "resources/read":
        raise MCPError(INVALID_REQUEST, f"{refused.code}: {refused}. {refused.failed.recommendation}")
    return refusal(refused)


@dataclass(frozen=True)
class Served:
    """The engine that clients are served, and the names of those who may approve."""

    engine: Engine
    approve_for: frozenset[str]

    def approver(self, ctx: Context[L, object]) -> str:
        """The client that calls. Raises `NOT_ALLOWED` unless the operator lets it approve."""
        name = client_name(ctx)
        if name is None or name not in self.approve_for:
            message = f"the operator of this server did not let {name or 'a client without a name'} approve"
            advice = (
                "Show it to your person: `lcp approve` or the page decides, or `lcp mcp --approve-for NAME`."
            )
            raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)
        return name


@dataclass
class Shown:
    """Looks of clients: the last one at each job or undo, under a mark that only this look has."""

    _last: dict[tuple[str, str], tuple[str, Sight | str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def keep(self, client: str, subject: str, seen: Sight | str) -> str:
        """Keep it in the place of what was shown before; the mark."""
        mark = token_hex(8)
        with self._lock:
            self._last.pop((client, subject), None)
            self._last[client, subject] = (mark, seen)
            while len(self._last) > MOST_SHOWN:
                self._last.pop(next(iter(self._last)))
        return mark

    def seen(self, client: str, subject: str, mark: str) -> Sight | str:
        """Return what was shown with that mark. Raises `CONFLICT` if it is not the last of this subject and client."""
        last, seen = self._last.get((client, subject), ("", ""))
        if not compare_digest(last.encode(), mark.encode()) or not seen:
            message = f"{subject} was not shown last to this client with the mark {mark[:40]!r}; nothing was decided"
            raise LcpError(
                ErrorCode.CONFLICT, message, advice="Look at it again, and use the mark that is shown then."
            )
        return seen

    def forget(self, client: str, subject: str) -> None:
        """Let its mark decide nothing more."""
        self._last.pop((client, subject), None)
