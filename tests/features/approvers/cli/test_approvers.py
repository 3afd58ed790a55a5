"""People who decide are named in the configuration, and show a token that nothing but a hash is kept of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from lcp_engine.api.user import user_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Lcp


def config(lcp: Lcp, text: str | None = None) -> Path:
    path = lcp.home / "config" / "lcp-engine" / "config.yaml"
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def test_a_person_is_added_and_their_token_is_printed_once(lcp: Lcp) -> None:
    assert "No approvers" in lcp("approvers", "list").err
    done = lcp("approvers", "add", "anna")
    token = done.out.strip()
    assert (done.code, token.startswith("lcp-approver-"), len(token)) == (0, True, 56)
    assert config(lcp).stat().st_mode & 0o777 == 0o600
    assert token not in config(lcp).read_text()
    assert lcp("approvers", "list").out == "anna\n"
    again = lcp("approvers", "add", "anna")
    assert (again.code, again.out) == (5, "")
    assert "'anna' has a token already" in again.err


def test_comments_and_order_of_the_configuration_stay(lcp: Lcp) -> None:
    text = (
        "# mine\nbusy_seconds: 5  # not longer\n\napprovers:\n    # people\n    ben: sha256:"
        + "0" * 64
        + "\n\npolicy:\n- {do: hold}\n"
    )
    path = config(lcp, text)
    lcp("approvers", "add", "Anna Q.")
    lines = path.read_text().splitlines()
    added = lines.pop(lines.index("approvers:") + 1)
    assert lines == text.splitlines()
    assert added.startswith('    "Anna Q.": sha256:')
    assert lcp("approvers", "remove", "Anna Q.").code == 0
    assert path.read_text() == text
    assert lcp("approvers", "remove", "ben").code == 0
    assert lcp("approvers", "list").out == ""


@pytest.mark.parametrize("text", ["approvers: {}\n", '{"busy_seconds": 5}'])
def test_a_configuration_that_only_a_person_should_edit_stays_as_it_is(lcp: Lcp, text: str) -> None:
    path = config(lcp, text)
    done = lcp("approvers", "add", "anna")
    assert (done.code, done.out, path.read_text()) == (5, "", text)
    assert "only a person should edit; add `anna: sha256:" in done.err


@pytest.mark.parametrize("name", ["", " anna", "a\nb", "x" * 101, "hold_timeout", "a:b"])
def test_a_name_that_nobody_has_is_refused(lcp: Lcp, name: str) -> None:
    done = lcp("approvers", "add", name)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a name of letters, digits, spaces and .@+- is expected" in done.err
    assert not config(lcp).exists()


def test_a_decision_with_a_token_is_recorded_under_its_name(lcp: Lcp) -> None:
    token = lcp("approvers", "add", "anna").out.strip()
    lcp(
        "run",
        lcp.mission(lcp.ask("write_file", path="b.md", content="x"), lcp.complete),
        "--root",
        "root",
        "-q",
    )
    wrong = lcp("approve", 2, "--as", "anna", LCP_APPROVER_TOKEN="of ben")
    assert (wrong.code, "--as 'anna' needs the token of that person; another one was given" in wrong.err) == (
        2,
        True,
    )
    none = lcp("approve", 2, "--as", "anna")
    assert (none.code, "LCP_APPROVER_TOKEN is not set" in none.err) == (2, True)
    unknown = lcp("approve", 2, "--as", "ana", LCP_APPROVER_TOKEN=token)
    assert (unknown.code, "did you mean 'anna'?" in unknown.err) == (2, True)
    assert lcp("approve", 2, "--as", "anna", LCP_APPROVER_TOKEN=token).code == 0
    (decided,) = [
        one for one in json.loads(lcp("job", 2, "--json").out)["events"] if one["event"] == "decided"
    ]
    assert decided["data"]["by"] == "anna"
    late = lcp("reject", 2, "--reason", "no")
    assert (late.code, "anna has approved it" in late.err) == (5, True)
    assert token not in lcp("job", 2).out + (lcp.home / "lcp.db").read_bytes().decode("latin-1")


def test_a_hash_that_is_none_is_refused_in_one_line(lcp: Lcp) -> None:
    config(lcp, yaml.safe_dump({"approvers": {"anna": "the token itself"}}))
    done = lcp("missions")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "approvers.anna: " in done.err


def test_what_a_mission_runs_has_no_token_and_no_secret(lcp: Lcp) -> None:
    """A planner and a worker can never decide: neither a command nor a program of a kind is given what decides."""
    tokens = {"LCP_APPROVER_TOKEN": "of anna", "LINK_SECRET": "a secret that is long enough"}
    mission = lcp.mission(
        lcp.ask("run_command", command=["env"]), lcp.complete,
        commands={"allow": [["env"]]}, policy=[{"kinds": ["run_command"], "do": "auto"}],
    )  # fmt: skip
    done = lcp.run("run", mission, "--root", "root", "-q", **tokens)
    job = json.loads(lcp("job", 2, "--json").out)
    assert (done.code, job["state"]) == (0, "succeeded"), job
    assert "PATH=" in job["result"]["stdout"]
    for value in tokens.values():
        assert value not in json.dumps(job)


def test_a_job_of_two_approvals_says_at_a_terminal_that_it_waits_for_another_person(lcp: Lcp) -> None:
    tokens = {name: lcp("approvers", "add", name).out.strip() for name in ("anna", "ben")}
    mission = lcp.mission(
        lcp.ask("write_file", path="b.md", content="x"), lcp.complete,
        policy=[{"kinds": ["write_file"], "do": "hold", "approvals": 2}],
    )  # fmt: skip
    done = lcp("run", mission, "--root", "root", "--approve", "write_file")
    assert (done.code, "is approved by people of the configuration (anna, ben), not by" in done.err) == (
        3,
        True,
    )
    first = lcp("approve", 2, "--as", "anna", LCP_APPROVER_TOKEN=tokens["anna"])
    assert (first.code, first.out) == (
        0, "job 2 approved; it waits for the approval of ben\n",
    )  # fmt: skip
    assert "lcp work" not in first.err
    assert lcp("held").out.endswith("\njob 2: 1 of 2 approvals, by anna\n")
    (held,) = json.loads(lcp("held", "--json").out)
    assert held["approvals"] == {"needed": 2, "given": ["anna"], "barred": []}
    again = lcp("approve", 2, "--as", "anna", LCP_APPROVER_TOKEN=tokens["anna"])
    assert again.out == "job 2 was already approved; it waits for the approval of ben\n"
    last = lcp("approve", 2, "--as", "ben", LCP_APPROVER_TOKEN=tokens["ben"])
    assert (last.code, last.out) == (0, "job 2 approved\n")
    assert "anna" in lcp("job", 2).out
    assert lcp("work", "--until-idle", "-q").code == 0
    assert (lcp.root / "b.md").read_text() == "x"


def test_a_run_that_approves_by_itself_leaves_what_needs_two_people(lcp: Lcp) -> None:
    mission = lcp.mission(
        lcp.ask("write_file", path="b.md", content="x"), lcp.complete,
        policy=[{"kinds": ["write_file"], "do": "hold", "approvals": 2}],
    )  # fmt: skip
    done = lcp("run", mission, "--root", "root", "--approve", "write_file")
    assert (done.code, "job 2 is approved; it waits for the approval of another person" in done.err) == (
        3,
        True,
    )


@pytest.mark.parametrize("name", ["anna", None])
def test_a_user_of_the_name_of_an_approver_is_none_without_the_token(lcp: Lcp, name: str | None) -> None:
    user = name or user_name()
    lcp("approvers", "add", user)
    mission = lcp.mission(
        lcp.ask("write_file", path="b.md", content="x"), lcp.complete,
        policy=[{"kinds": ["write_file"], "do": "hold", "approvals": 2}],
    )  # fmt: skip
    assert lcp("run", mission, "--root", "root", "-q").code == 3
    done = lcp("approve", 2, LOGNAME=user, USER=user)
    assert (done.code, f"is approved by people of the configuration ({user}), not by {user_name()}" in done.err) == (
        1, True,
    )  # fmt: skip


def test_one_user_is_one_person_whatever_the_environment_says(lcp: Lcp) -> None:
    mission = lcp.mission(
        lcp.ask("write_file", path="b.md", content="x"), lcp.complete,
        policy=[{"kinds": ["write_file"], "do": "hold", "approvals": 2}],
    )  # fmt: skip
    assert lcp("run", mission, "--root", "root", "-q").code == 3
    for name in ("anna", "ben"):
        lcp("approve", 2, LOGNAME=name, USER=name)
    (held,) = json.loads(lcp("held", "--json").out)
    assert held["approvals"]["given"] == [user_name()]
