"""Tokens of programs: add, list, remove; and check the one that a request brings, within its limit."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from urllib.parse import unquote

from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.user import user_name
from lcp_engine.clock import Micros, iso, micros
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import (
    GENERAL,
    Code,
    ErrorCode,
    ErrorType,
    Failed,
    LcpError,
    LimitReached,
    Meaning,
    Refused,
)
from lcp_engine.features.approvers.rules import hash_of
from lcp_engine.features.approvers.settings import ApproverSettings
from lcp_engine.features.tokens.store import (
    TokenRow,
    drop_token,
    find_tokens,
    has_valid,
    put_token,
    token_with,
)
from lcp_engine.store.ledger import Ledger

TOKEN_REFUSED = Code(Meaning(
    "TOKEN_REFUSED", Refused, ErrorType.PERMISSION,
    "A program's token is missing, unknown, ended, has not the scope for this, or was sent in an address.",
    "Send the token of `lcp tokens add` in the header `Authorization`.", status=403,
))  # fmt: skip
TOO_MANY_REQUESTS = Code(Meaning(
    "TOO_MANY_REQUESTS", LimitReached, ErrorType.RESOURCE,
    "A program's token has made as many requests as it may for now.",
    "Ask again after the seconds of `Retry-After`.", retry=True, status=429,
))  # fmt: skip
PREFIX = "lcp-token-"
"""Beginning of each token, so that whoever finds one knows what it is."""
GENERATED = "generated"
"""The name of the token that a server makes for itself; no other one has it."""
PER_MINUTE = 600
"""Requests that a token may make, unless it was added with another limit."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_BEARER = re.compile(r"bearer +([!-~]+) *", re.IGNORECASE)


class Scope(StrEnum):
    """A thing that a token lets a program do; none includes another."""

    LOOK = "look"
    """Read all that the database has."""
    LAUNCH = "launch"
    """Launch and fork missions, where the operator allows it."""
    DECIDE = "decide"
    """Decide on jobs and steer missions."""
    ADMIN = "admin"
    """Change what outlasts missions: schedules, memory, rules of a mission."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token as it was when it was read; the text of it is kept nowhere."""

    name: str
    scopes: tuple[Scope, ...]
    person: str
    """Who decides by it."""
    per_minute: int
    """Requests that it may make in a minute."""
    created_at: datetime
    expires_at: datetime | None
    """From then on it lets nothing in; None if it does not end."""
    approver: str | None = field(default=None, repr=False)
    """The hash of the person's own token, if they showed it."""

    @property
    def uid(self) -> str:
        """The name of this token and of no other: not of one that is added by the same name later."""
        return f"{self.name} {self.created_at.isoformat(timespec='microseconds')}"

    @property
    def json(self) -> JsonObject:
        """The object that `lcp tokens list --json` prints."""
        return {
            "name": self.name, "scopes": [*self.scopes], "person": self.person,
            "is_approver": self.approver is not None, "per_minute": self.per_minute,
            "created_at": self.created_at.isoformat(timespec="microseconds"),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(timespec="microseconds"),
        }  # fmt: skip


@dataclass(frozen=True)
class Denied:
    """A request that is not let in: why, with the HTTP status, and in how many seconds it may come again."""

    status: int
    failed: Failed
    retry_after: int | None = None


@dataclass(frozen=True)
class Tokens:
    """The tokens of a database; `Engine.tokens` is one."""

    _instance: Instance

    def add(
        self,
        name: str,
        scopes: Collection[Scope],
        *,
        lasts: timedelta | None = None,
        person: str | None = None,
        is_approver: bool = False,
        per_minute: int = PER_MINUTE,
    ) -> str:
        """Add a token, and return it: this is the only time that its text is known.

        It lasts for ever without `lasts`. Decisions by it are those of `person`, by default the user of this process;
        they count as an approver's with `is_approver`: the caller has checked that person's own token. Raises
        `INVALID_ARGUMENT`, and `WRONG_STATE` for a name in use.
        """
        _check(name, scopes, lasts, per_minute)
        known = self._instance.settings(ApproverSettings).approvers
        if is_approver and person not in known:
            message = f"{person!r} is not an approver; {nearest(person or '', [*known])}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        kept = known[person] if is_approver and person is not None else None
        text = _new_token()
        stated = ",".join(scope for scope in Scope if scope in scopes)
        length = None if lasts is None else micros(lasts)
        self._instance.write(
            _add, (name, hash_of(text), stated, person or user_name(), kept, per_minute), length
        )
        return text

    def all(self) -> list[Token]:
        """Every token, also those that have ended, by name."""
        return [_token(row) for row in self._instance.read(find_tokens)]

    def remove(self, name: str) -> None:
        """Remove a token, which lets nothing in from now on. Raises `NOT_FOUND`."""
        self._instance.write(_remove, name)

    def gate(self, *, only_here: bool) -> Gate:
        """The gate of a server; with a token of its own, if the database has none that lets anyone in.

        Raises `INVALID_ARGUMENT` then, unless only this machine reaches the server.
        """
        if self._instance.read(has_valid):
            return Gate(self._instance)
        if not only_here:
            message = "there is no token that lets anyone in, and other machines would reach this server"
            advice = "Add one first: `lcp tokens add NAME --scope look`."
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=advice)
        return Gate(self._instance, token=_new_token())

    def decider(self, token: Token) -> str:
        """The name under which a decision by this token is recorded.

        Raises `NOT_ALLOWED` if the token would pass for an approver's, and is not: the person's own token was not shown
        when it was added, or is another one by now.
        """
        known = self._instance.settings(ApproverSettings).approvers.get(token.person)
        if known == token.approver:
            return token.person
        fact = "is not an approver any more" if known is None else "has not shown their own token for it"
        message = f"token {token.name} decides nothing: {token.person} {fact}"
        advice = f"Remove it, and add it with `lcp tokens add {token.name} --as NAME`."
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=advice)


class TokenCalls(KernelEngine):
    """Calls about tokens."""

    @property
    def tokens(self) -> Tokens:
        """The tokens by which programs are let in."""
        return Tokens(self.instance)


@dataclass
class Gate:
    """Lets the requests of programs in, each token within its limit; one for each server, and for all its threads."""

    _instance: Instance = field(repr=False)
    _clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By token, the requests that it may make at once, and when that was counted."""
    token: str | None = field(default=None, repr=False)
    """One for this server alone, as long as it runs: it looks, launches and decides for this process's user."""
    _opened_at: datetime = field(default_factory=partial(datetime.now, UTC))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(
        self, authorization: str | None, scope: Scope | None, *, address: str = "", is_new: bool = True
    ) -> Token | Denied:
        """The token of a request with this header, if it has the scope; None asks for none.

        `address` is the path and query of the request: a token in it is refused, since others write addresses down.
        A request that is not new was let in before, and does not count again.
        """
        if PREFIX in unquote(address):
            fact = "a token was sent in an address, which is written down on its way"
            return _denied(
                400, fact, "Remove that token, and send another one in the header `Authorization`."
            )
        found = _BEARER.fullmatch(authorization or "")
        if found is None:
            return _denied(401, "the header `Authorization: Bearer TOKEN` is expected", "Send a token.")
        token = self._known(found[1])
        if isinstance(token, Denied):
            return token
        if scope is not None and scope not in token.scopes:
            fact = f"token {token.name} may {_listed(token.scopes)}; this needs {scope}"
            return _denied(403, fact, f"Add a token with `--scope {scope}`.")
        seconds = self._take(token) if is_new else None
        if seconds is None:
            return token
        message = f"token {token.name} has made {token.per_minute} requests a minute, which is its limit"
        return Denied(429, Failed(TOO_MANY_REQUESTS, message, advice=GENERAL), retry_after=seconds)

    def _known(self, text: str) -> Token | Denied:
        kept = hash_of(text)
        if self.token is not None and hmac.compare_digest(hash_of(self.token), kept):
            return Token(
                name=GENERATED, scopes=(Scope.LOOK, Scope.LAUNCH, Scope.DECIDE), person=user_name(),
                per_minute=PER_MINUTE, created_at=self._opened_at, expires_at=None,
            )  # fmt: skip
        # It is looked up by a hash of 256 random bits, of which the time of an index tells nothing that helps.
        row, now = self._instance.read(token_with, kept)
        if row is None or not hmac.compare_digest(row.hash, kept):
            return _denied(401, "no token is the one that was sent", "Add one with `lcp tokens add NAME`.")
        if row.expires_at is not None and row.expires_at <= now:
            fact = f"token {row.name} has ended at {iso(row.expires_at)}"
            return _denied(401, fact, f"Remove it, and add it anew: `lcp tokens remove {row.name}`.")
        return _token(row)

    def _take(self, token: Token) -> int | None:
        """Count a request; None if the token may make it, else after how many seconds it may."""
        each = 60 / token.per_minute
        with self._lock:
            now = self._clock()
            left, since = self._left.get(token.name, (float(token.per_minute), now))
            left = min(token.per_minute, left + (now - since) / each)
            self._left[token.name] = (left - 1 if left >= 1 else left, now)
        return None if left >= 1 else int((1 - left) * each) + 1


def _new_token() -> str:
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def _check(name: str, scopes: Collection[Scope], lasts: timedelta | None, per_minute: int) -> None:
    if not _NAME.fullmatch(name) or name == GENERATED:
        message = (
            f"{name[:80]!r} is given; a name of letters, digits and _.- is expected, and not {GENERATED!r}"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if not scopes:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"token {name} has no scope; {_listed(tuple(Scope))} are there"
        )
    if lasts is not None and lasts <= timedelta():
        message = f"token {name} lasts {lasts.total_seconds():g} s; more than 0 is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if not 1 <= per_minute <= 1_000_000:
        message = f"token {name} may make {per_minute} requests a minute; 1 to 1,000,000 are expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def _add(ledger: Ledger, given: tuple[str, str, str, str, str | None, int], length: Micros | None) -> None:
    name, now = given[0], ledger.tx.now
    if any(row.name == name for row in find_tokens(ledger.tx)):
        advice = f"Choose another name, or end that token with `lcp tokens remove {name}`."
        raise LcpError(ErrorCode.WRONG_STATE, f"a token is called {name!r} already", advice=advice)
    put_token(ledger.tx, TokenRow(*given, now, None if length is None else now + length))


def _remove(ledger: Ledger, name: str) -> None:
    names = [row.name for row in find_tokens(ledger.tx)]
    if name not in names:
        raise LcpError(ErrorCode.NOT_FOUND, f"no token is called {name!r}; {nearest(name, names)}")
    drop_token(ledger.tx, name)


def _token(row: TokenRow) -> Token:
    return Token(
        name=row.name,
        scopes=tuple(Scope(scope) for scope in row.scopes.split(",")),
        person=row.person,
        per_minute=row.per_minute,
        created_at=datetime.fromisoformat(iso(row.created_at)),
        expires_at=None if row.expires_at is None else datetime.fromisoformat(iso(row.expires_at)),
        approver=row.approver,
    )


def _denied(status: int, fact: str, advice: str) -> Denied:
    return Denied(status, Failed(TOKEN_REFUSED, fact, advice=advice))


def _listed(scopes: Collection[Scope]) -> str:
    return ", ".join(scopes)
