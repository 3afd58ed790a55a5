"""`lcp approve`, `reject`, `cancel`, `resume`, `retry`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.cli.conftest import Lcp


@pytest.fixture
def waiting(lcp: Lcp) -> Lcp:
    """One mission that waits with the held jobs 2 and 3."""
    jobs = [{"kind": "write_file", "params": {"rel_path": name, "content": name}} for name in ("b", "c")]
    ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}
    done = lcp("run", lcp.mission(json.dumps(ask), lcp.complete, lcp.complete), "--root", "root", "-q")
    assert done.code == 3
    return lcp


def test_held_lists_what_waits_and_why(waiting: Lcp) -> None:
    held = json.loads(waiting("held", "--json").out)
    assert [(job["id"], job["state"]) for job in held] == [(2, "held"), (3, "held")]
    assert "kinds with effects wait for a person" in waiting("held").out


def test_deciding_twice_is_harmless_and_deciding_otherwise_a_conflict(waiting: Lcp) -> None:
    assert waiting("approve", 2).out == "job 2 approved\n"
    again = waiting("approve", 2)
    assert (again.code, again.out) == (0, "job 2 was already approved\n")
    otherwise = waiting("reject", 2, "--reason", "no")
    assert otherwise.code == 5
    assert otherwise.err.startswith("job 2 is queued; only held jobs can be rejected: ")


def test_all_decides_a_mission_and_what_cannot_be_decided_keeps_nothing_back(waiting: Lcp) -> None:
    mixed = waiting("approve", 99, 3)
    assert (mixed.code, mixed.out) == (1, "job 3 approved\n")
    assert "job 99 is not in the database" in mixed.err
    assert waiting("approve", "--all", "--mission", 1).out == "job 2 approved\n"


def test_a_person_may_approve_with_other_params(waiting: Lcp) -> None:
    params = json.dumps({"rel_path": "d", "content": "mine"})
    assert waiting("approve", 2, "--params", params).code == 0
    waiting("reject", 3, "--reason", "one is enough")
    waiting("work", "--until-idle", "-q")
    assert (waiting.root / "d").read_text() == "mine"
    assert not (waiting.root / "b").exists()
    assert "one is enough" in waiting("report", 1).out


def test_an_edit_to_a_path_outside_the_root_is_refused_at_once(waiting: Lcp) -> None:
    refused = waiting("approve", 2, "--params", json.dumps({"rel_path": "../d", "content": "mine"}), "--json")
    assert (refused.error["error_code"], waiting("held", "--json").out.count('"held"')) == (
        "PATH_OUTSIDE_ROOT",
        2,
    )


def test_the_diff_of_a_job_says_which_files_it_has_changed_in_its_state(waiting: Lcp) -> None:
    waiting("approve", 2)
    assert waiting("diff", 2).err == "job 2 is queued and has changed no files\n"


@pytest.mark.parametrize(
    "arguments",
    [["approve"], ["approve", "--all", "2"], ["approve", "2", "--edit", "--params", "{}"],
     ["approve", "2", "3", "--edit"],
     ["approve", "2", "--mission", "1"], ["approve", "2", "3", "--params", "{}"],
     ["approve", "2", "--params", "[]"], ["reject", "2"], ["approve", "x"]],
)  # fmt: skip
def test_contradictory_options_are_a_usage_error(lcp: Lcp, arguments: list[str]) -> None:
    done = lcp(*arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_a_cancelled_mission_is_resumed_with_another_limit(waiting: Lcp) -> None:
    assert waiting("cancel", 1).out == "mission 1 cancelled\n"
    wrong = waiting("resume", 1, "--set", "limits.max_trns=9")
    assert (wrong.code, "did you mean 'max_turns'?" in wrong.err) == (2, True)
    resumed = waiting("resume", 1, "--set", "limits.max_turns=9", "--json").object
    assert isinstance(resumed["limits"], dict)
    assert (resumed["status"], resumed["limits"]["max_turns"]) == ("running", 9)
    assert waiting("retry", 2).out == "job 2 held\n"  # nobody had approved it
    again = waiting("retry", 2)
    assert (again.code, again.err.count("\n")) == (5, 1)


def test_all_lists_the_jobs_and_asks_nothing_without_a_terminal(waiting: Lcp) -> None:
    done = waiting("approve", "--all")
    assert (done.code, done.out) == (0, "job 2 approved\njob 3 approved\n")
    listed = done.err.splitlines()
    assert listed[0].split() == ["id", "kind", "about", "held", "since", "why"]
    assert [line.split()[0] for line in listed[1:3]] == ["2", "3"]
    assert waiting("approve", "--all").out == "No held jobs.\n"


def test_all_shows_what_it_approves_and_leaves_out_what_cannot_be_shown(lcp: Lcp) -> None:
    params: list[dict[str, JsonValue]] = [
        {
            "rel_path": "docs/././././././././././././././././././../.github/workflows/ci.yml",
            "content": "on: push\n",
        },
        {"root": ".github/workflows", "rel_path": "README.md", "content": "x\u200b \n"},
        {"rel_path": "long", "content": "x\n" * 200_001},
    ]
    (lcp.root / "docs").mkdir()  # else the kernel finds no docs/..
    jobs = [{"kind": "write_file", "params": each} for each in params]
    ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}
    lcp("run", lcp.mission(json.dumps(ask), lcp.complete, lcp.complete), "--root", "root", "-q")
    held = lcp("held").out
    for path in (".github/workflows/ci.yml", ".github/workflows/README.md"):
        assert held.count(f"  {path}  ") == 1
    assert "docs/" not in held
    done = lcp("approve", "--all")
    assert (done.code, done.out) == (3, "job 2 approved\njob 3 approved\n")
    assert "\njob 2: write_file .github/workflows/ci.yml\n" in done.err
    assert "\n+on: push\n" in done.err
    assert "\n+x<U+200B><U+0020>\n" in done.err
    assert (
        "job 4 (write_file long) is left out: what it would change is too large to be shown in full"
        in done.err
    )
    assert lcp("job", 4, "--json").object["state"] == "held"
    refused = lcp("approve", "--all", "--json")
    assert (refused.code, refused.error["error_code"]) == (3, "NOT_SHOWN")
    assert lcp("approve", 4).code == 0


def test_all_without_confirmation_decides_nothing(waiting: Lcp) -> None:
    with Terminal(waiting, "approve", "--all") as terminal:
        terminal.expect("approve these 2 jobs? [y/N]: ")
        terminal.answer("n")
        assert terminal.end() == 1
        assert "nothing was decided" in terminal.shown
    assert len(json.loads(waiting("held", "--json").out)) == 2


def test_a_file_that_changed_is_shown_again_and_the_next_approval_is_for_that(waiting: Lcp) -> None:
    waiting("diff", 2)
    (waiting.root / "b").write_text("mine\n")
    refused = waiting("approve", 2)
    assert (refused.code, refused.out) == (5, "")
    assert "\n-mine\n" in refused.err
    assert waiting("approve", 2).code == 0
    (waiting.root / "c").mkdir()
    as_json = waiting("approve", 3, "--json")
    assert (as_json.code, as_json.error["error_code"]) == (5, "CONFLICT")
    assert waiting("approve", 3, "--json").code == 5  # no person was shown anything


def test_an_approval_with_a_mark_is_for_what_was_shown_with_it(waiting: Lcp) -> None:
    (waiting.root / "b").write_text("one\n")
    first = waiting("diff", 2)
    mark = first.err.partition("--shown ")[2].split("`")[0]
    (waiting.root / "b").write_text("two\n")
    second = waiting("diff", 2, "--json").object["shown"]  # somebody with the same name, elsewhere
    refused = waiting("approve", 2, "--shown", mark)
    assert (refused.code, refused.out) == (5, "")
    assert f"was not shown last with the mark '{mark}'" in refused.err
    assert waiting("job", 2, "--json").object["state"] == "held"
    (waiting.root / "b").write_text("three\n")
    assert waiting("approve", 2, "--shown", second, "--json").code == 5
    third = waiting("diff", 2, "--json").object["shown"]
    assert waiting("approve", 2, "--shown", third).code == 0
    assert waiting("approve", 2, 3, "--shown", "x").code == 2


def test_params_are_edited_in_the_editor_of_the_user(waiting: Lcp) -> None:
    done = waiting("approve", 2, "--edit", EDITOR="sed -i s/b/d/g")
    assert (done.code, done.out) == (0, "job 2 approved\n")
    waiting("work", "--until-idle", "-q")
    assert (waiting.root / "d").read_text() == "d"


@pytest.mark.parametrize(
    ("editor", "fact"),
    [("false", "ended with 1"), ("true", "are unchanged"), ("truncate -s0", "is empty"),
     ("no-such-editor", "not be started"), ("sed -i s/{/[/", "JSON object"),
     ("sed -i s/content/text/", "params.text: unknown param"),
     ('sed -i s/"b"/".env"/g', "denied"), ('"', "is not a command"), (" ", "blank")],
)  # fmt: skip
def test_a_failed_edit_changes_nothing(waiting: Lcp, editor: str, fact: str) -> None:
    before = waiting("job", 2, "--json").object
    done = waiting("approve", 2, "--edit", VISUAL=editor, TMPDIR=str(waiting.home))
    assert done.code in (1, 2)
    assert fact in done.err
    assert done.err.count("\n") == 1
    assert ("your edit is kept in" in done.err) == editor.startswith("sed")
    assert waiting("job", 2, "--json").object == before


def _edited_by(lcp: Lcp, editor: object) -> dict[str, str]:
    return {"EDITOR": str(editor), "TMPDIR": str(lcp.home)}


def test_an_edit_that_cannot_be_used_is_kept(waiting: Lcp) -> None:
    done = waiting("approve", 2, "--edit", VISUAL="sed -i s/{/[/", TMPDIR=str(waiting.home))
    kept = Path(done.err.rstrip().partition("kept in ")[2])
    assert kept.read_text().startswith("[")
    assert kept.stat().st_mode & 0o077 == 0 or kept.parent.stat().st_mode & 0o077 == 0


def test_the_editor_opens_again_with_the_invalid_text(waiting: Lcp) -> None:
    script = waiting.home / "editor"
    script.write_text(
        '#!/bin/sh\ngrep -q "^\\[" "$1" && sed -i "s/^\\[/{/; s/b/d/g" "$1" || sed -i "s/^{/[/" "$1"\n'
    )
    script.chmod(0o755)
    with Terminal(waiting, "approve", 2, "--edit", environment=_edited_by(waiting, script)) as terminal:
        assert "is not a JSON object" in terminal.expect("Enter edits ")
        kept = Path(terminal.expect(" again, Ctrl-D leaves it there: "))
        assert kept.read_text().startswith("[")
        terminal.answer("")
        assert terminal.end() == 0
        assert "job 2 approved" in terminal.shown
    assert not kept.parent.exists()
    assert waiting("job", 2, "--json").object["params"] == {"rel_path": "d", "content": "d"}


def test_an_edit_that_is_left_is_named(waiting: Lcp) -> None:
    with Terminal(
        waiting, "approve", 2, "--edit", environment=_edited_by(waiting, "sed -i s/content/text/")
    ) as terminal:
        terminal.expect("Enter edits ")
        kept = Path(terminal.expect(" again"))
        terminal.type("\x04")
        assert terminal.end() == 2
        assert f"your edit is kept in {kept}" in " ".join(terminal.shown.split())
    assert '"text"' in kept.read_text()


def test_policy_explain_names_the_rule_that_decided(lcp: Lcp) -> None:
    rules: list[JsonValue] = [
        {"kinds": ["read_file"], "do": "deny"},
        {"kinds": ["write_file"], "paths": ["docs/**"], "do": "hold"},
    ]
    held = lcp.ask("write_file", rel_path="docs/a.md", content="x")
    lcp("run", lcp.mission(held, lcp.complete, policy=rules), "--root", "root", "-q")
    shown = lcp("policy", "explain", 2)
    assert shown.code == 0
    assert "→ mission          mission rule 2 (write_file docs/**) says hold: decides" in shown.out
    assert "mission rule 1 (read_file) says deny: kind does not match" in shown.out
    found = lcp("policy", "explain", 2, "--json").object
    assert (found["verdict"], found["because"]) == ("hold", "mission rule 2 (write_file docs/**) says hold")
    assert lcp("policy", "explain", 99).err == "job 99 is not in the database\n"
