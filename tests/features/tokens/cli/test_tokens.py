"""`lcp tokens` adds, lists and removes what lets programs in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.features.approvers.cli.test_approvers import config

from lcp_engine.api.user import user_name
from lcp_engine.core.json_values import list_in, object_in

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_a_token_is_printed_once_and_kept_as_a_hash(lcp: Lcp) -> None:
    assert "No tokens" in lcp("tokens", "list").err
    done = lcp("tokens", "add", "ci", "--scope", "look,launch", "--limit", "60")
    text = done.out.strip()
    assert (done.code, text.startswith("lcp-token-")) == (0, True)
    assert text not in done.err
    with closing(sqlite3.connect(lcp.database)) as database:
        assert text not in "\n".join(database.iterdump())
    (listed,) = map(object_in, list_in(lcp("tokens", "list", "--json").json))
    assert (listed["name"], listed["scopes"], listed["person"]) == ("ci", ["look", "launch"], user_name())
    assert "look, launch" in lcp("tokens", "list").out
    again = lcp("tokens", "add", "ci", "--json")
    assert (again.code, again.error["error_code"]) == (5, "WRONG_STATE")
    assert lcp("tokens", "remove", "ci").out == "token ci removed\n"
    assert lcp("tokens", "remove", "ci").code == 1


def test_what_no_token_can_have_is_a_usage_error(lcp: Lcp) -> None:
    assert "one of look, launch, decide, admin" in lcp("tokens", "add", "ci", "--scope", "all").err
    assert lcp("tokens", "add", "ci", "--expires", "soon").code == 2
    assert lcp("tokens", "add", "ci", "--limit", "0").code == 2
    assert lcp("tokens", "add", "ci", "--expires", "never").code == 0


def test_a_token_is_an_approvers_only_with_that_persons_own(lcp: Lcp) -> None:
    config(lcp, "")
    token = lcp("approvers", "add", "anna").out.strip()
    assert lcp("tokens", "add", "phone", "--as", "anna").code == 2
    assert lcp("tokens", "add", "phone", "--as", "anna", LCP_APPROVER_TOKEN=token).code == 0
    (listed,) = map(object_in, list_in(lcp("tokens", "list", "--json").json))
    assert (listed["person"], listed["is_approver"]) == ("anna", True)


def test_the_api_is_not_served_to_other_machines_without_a_token(lcp: Lcp) -> None:
    refused = lcp("serve", "--api", "--host", "0.0.0.0", "--port", "0", "--json")
    assert (refused.code, refused.error["error_code"]) == (2, "INVALID_ARGUMENT")
    assert "no token that lets anyone in" in str(refused.error["user_message"])


def test_what_may_be_launched_is_there_and_belongs_to_the_api(lcp: Lcp) -> None:
    assert lcp("serve", "--root", ".").code == 2
    assert "is neither a file nor a shipped mission" in lcp("serve", "--api", "--mission", "nothing").err
    config(lcp, "serve: {api: true, roots: [gone]}")
    assert "is not a directory" in lcp("serve", "--port", "0").err
