"""Tokens let programs in: each by its scopes, until its end, within its limit, as the person whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from lcp_engine import Engine
from lcp_engine.api.user import user_name
from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.rules import hash_of
from lcp_engine.features.tokens.calls import PREFIX, Denied, Gate, Scope, Token

START: Micros = 1_795_000_000 * SECOND


class Hall:
    """An engine and a gate whose times a test sets."""

    def __init__(self, url: str) -> None:
        self.now, self.seconds = START, 0.0
        self.engine = Engine(url, clock=lambda: self.now, approvers={"anna": hash_of("of anna")})
        self.gate = Gate(self.engine.instance, _clock=lambda: self.seconds)

    def admit(self, text: str, scope: Scope = Scope.LOOK, address: str = "") -> Token | Denied:
        return self.gate.admit(f"Bearer {text}", scope, address=address)

    def refused(self, text: str, scope: Scope = Scope.LOOK, address: str = "") -> tuple[int, str]:
        found = self.admit(text, scope, address)
        assert isinstance(found, Denied)
        return found.status, found.failed.message


@pytest.fixture
def hall(emptied_database_url: str) -> Iterator[Hall]:
    made = Hall(emptied_database_url)
    with made.engine:
        yield made


@pytest.mark.both
def test_a_token_lets_in_what_its_scopes_say_until_it_ends_or_is_removed(hall: Hall) -> None:
    text = hall.engine.tokens.add("ci", {Scope.LAUNCH, Scope.LOOK}, lasts=timedelta(hours=1))
    (kept,) = hall.engine.tokens.all()
    assert hall.admit(text) == kept
    assert (kept.scopes, kept.person) == ((Scope.LOOK, Scope.LAUNCH), user_name())
    assert hall.refused(text, Scope.DECIDE) == (403, "token ci may look, launch; this needs decide")
    hall.now += 3600 * SECOND
    status, message = hall.refused(text)
    assert (status, message.startswith("token ci has ended at ")) == (401, True)
    hall.engine.tokens.remove("ci")
    assert hall.refused(text) == (401, "no token is the one that was sent")
    with pytest.raises(LcpError, match="no token is called 'ci'"):
        hall.engine.tokens.remove("ci")


def test_nothing_keeps_the_text_of_a_token(hall: Hall) -> None:
    text = hall.engine.tokens.add("ci", {Scope.LOOK})
    (kept,) = hall.engine.tokens.all()
    assert (text.startswith(PREFIX), len(text)) == (True, len(PREFIX) + 43)
    assert text not in f"{kept!r}{kept.json}{hall.gate!r}"
    assert "of anna" not in repr(kept)


@pytest.mark.parametrize(
    ("header", "address", "status"),
    [
        (None, "", 401),
        ("Basic abc", "", 401),
        ("Bearer ", "", 401),
        ("Bearer a b", "", 401),
        ("Bearer \ud800", "", 401),
        ("Bearer TEXT", "/v1/missions?token=TEXT", 400),
        (None, "/v1/missions/TEXT", 400),
        (None, "/v1/missions?token=lcp%2Dtoken%2D0", 400),
    ],
)
def test_a_token_is_taken_from_its_header_alone(
    hall: Hall, header: str | None, address: str, status: int
) -> None:
    text = hall.engine.tokens.add("ci", {Scope.LOOK})
    found = hall.gate.admit(
        header and header.replace("TEXT", text), None, address=address.replace("TEXT", text)
    )
    assert isinstance(found, Denied)
    assert (found.status, found.failed.code) == (status, "TOKEN_REFUSED")
    assert text not in f"{found!r}"


def test_a_token_has_a_limit_of_its_own_that_fills_up_again(hall: Hall) -> None:
    text = hall.engine.tokens.add("ci", {Scope.LOOK}, per_minute=30)
    other = hall.engine.tokens.add("other", {Scope.LOOK})
    for _ in range(30):
        assert isinstance(hall.admit(text), Token)
    denied = hall.admit(text)
    assert isinstance(denied, Denied)
    assert (denied.status, denied.failed.code, denied.retry_after) == (429, "TOO_MANY_REQUESTS", 3)
    assert isinstance(hall.admit(other), Token)
    hall.seconds += 2
    assert isinstance(hall.admit(text), Token)
    assert isinstance(hall.admit(text), Denied)


def test_a_request_that_is_refused_costs_nothing_of_the_limit(hall: Hall) -> None:
    text = hall.engine.tokens.add("ci", {Scope.LOOK}, per_minute=1)
    for _ in range(3):
        assert hall.refused(text, Scope.ADMIN)[0] == 403
    assert isinstance(hall.admit(text), Token)


def test_a_token_that_a_server_makes_is_of_that_server_alone(hall: Hall) -> None:
    hall.gate = hall.engine.tokens.gate(only_here=True)
    text = hall.gate.token or ""
    token = hall.admit(text, Scope.DECIDE)
    assert isinstance(token, Token)
    assert token.person == user_name()
    assert hall.refused(text, Scope.ADMIN)[0] == 403
    elsewhere = Gate(hall.engine.instance).admit(f"Bearer {text}", None)
    assert isinstance(elsewhere, Denied)
    assert elsewhere.status == 401
    assert hall.engine.tokens.all() == []


def test_tokens_that_have_ended_are_as_good_as_none_to_a_server_that_starts(hall: Hall) -> None:
    hall.engine.tokens.add("ci", {Scope.LOOK}, lasts=timedelta(hours=1))
    assert hall.engine.tokens.gate(only_here=False).token is None
    hall.now += 3600 * SECOND
    assert hall.engine.tokens.gate(only_here=True).token is not None
    with pytest.raises(LcpError, match="no token that lets anyone in"):
        hall.engine.tokens.gate(only_here=False)


def test_a_token_decides_as_an_approver_only_if_that_person_has_shown_theirs(hall: Hall) -> None:
    tokens = hall.engine.tokens
    tokens.add("plain", {Scope.DECIDE}, person="ben")
    tokens.add("feigned", {Scope.DECIDE}, person="anna")
    tokens.add("shown", {Scope.DECIDE}, person="anna", is_approver=True)
    feigned, plain, shown = tokens.all()
    assert (tokens.decider(plain), tokens.decider(shown)) == ("ben", "anna")
    with pytest.raises(LcpError, match="anna has not shown their own token for it") as refused:
        tokens.decider(feigned)
    assert refused.value.code is ErrorCode.NOT_ALLOWED
    changed = Engine(hall.engine.instance.url, approvers={"anna": hash_of("a new one")})
    with changed, pytest.raises(LcpError, match="anna has not shown their own token"):
        changed.tokens.decider(shown)
    with (
        Engine(hall.engine.instance.url) as without,
        pytest.raises(LcpError, match="not an approver any more"),
    ):
        without.tokens.decider(shown)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a b"}, "a name of letters"),
        ({"name": "generated"}, "and not 'generated'"),
        ({"scopes": set()}, "has no scope"),
        ({"lasts": timedelta()}, "lasts 0 s"),
        ({"per_minute": 0}, "may make 0 requests"),
        ({"person": "bob", "is_approver": True}, "'bob' is not an approver"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(hall: Hall, given: dict[str, object], message: str) -> None:
    arguments = {"name": "ci", "scopes": {Scope.LOOK}, **given}
    with pytest.raises(LcpError, match=message):
        hall.engine.tokens.add(**arguments)  # type: ignore[arg-type]
    assert hall.engine.tokens.all() == []
