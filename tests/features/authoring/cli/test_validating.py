"""`lcp validate` and `lcp run --dry-run` say what a mission would do, and write nothing."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.policy import Rule
from lcp_engine.features.authoring.idle_rules import idle_rules

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def outlook(found: JsonValue, kind: str) -> JsonValue:
    assert isinstance(found, list)
    return next(one["verdict"] for one in found if isinstance(one, dict) and one["kind"] == kind)


def test_it_says_what_runs_waits_and_is_denied(lcp: Lcp) -> None:
    rules: list[JsonValue] = [
        {"kinds": ["write_file"], "paths": ["docs/**"], "do": "auto"},
        {"kinds": ["rewrite_file"], "do": "deny"},
    ]
    mission = lcp.mission(lcp.complete, policy=rules, accept=[{"file_exists": "a.md"}])
    done = lcp("validate", mission, "--root", "root", "--json")
    assert done.code == 0
    kinds = done.object["kinds"]
    assert [outlook(kinds, kind) for kind in ("read_file", "write_file", "rewrite_file", "ask_user")] == [
        "auto", "hold", "deny", "hold",
    ]  # fmt: skip
    assert done.object["accept"] == ["the file a.md exists"]
    assert done.object["warnings"] == []
    shown = lcp("validate", mission, "--root", "root").out
    by_path = "by path mission rule 1 (docs/**): auto, for edit_file, make_directory, write_file "
    assert by_path in " ".join(shown.split())
    assert "denied      rewrite_file\n" in shown
    # A path stays whole, so that it can be copied.
    assert max(len(line) for line in shown.splitlines() if "/" not in line) <= 80


def test_of_a_staged_mission_only_the_merge_is_held(lcp: Lcp) -> None:
    rule: JsonValue = {"kinds": ["merge"], "do": "hold", "approvals": 2}
    staged = lcp(
        "validate", lcp.mission(lcp.complete, stage=True, policy=[rule]), "--root", "root", "--json"
    ).object
    runs = [outlook(staged["kinds"], kind) for kind in ("write_file", "delete_file", "merge", "ask_user")]
    assert runs == ["auto", "auto", "hold", "hold"]
    assert staged["warnings"] == []
    other = lcp("validate", lcp.mission(lcp.complete, policy=[rule]), "--root", "root", "--json").object
    assert other["warnings"] == ["mission rule 1: only a mission with `stage: true` has a merge"]


def test_the_actions_that_may_complete_it_are_named(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, endings=["analysis_result"])
    assert (
        "endings     completed by analysis_result alone\n" in lcp("validate", mission, "--root", "root").out
    )
    assert lcp("validate", mission, "--root", "root", "--json").object["endings"] == ["analysis_result"]
    plain = lcp("validate", lcp.mission(lcp.complete), "--root", "root")
    assert "endings" not in plain.out


def test_nothing_is_written(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("write_file", rel_path="b.txt", content="x"), lcp.complete)
    before = sorted(path for path in lcp.home.rglob("*"))
    for command in (["validate"], ["run", "--dry-run", "--approve", "all"]):
        for url in (lcp.environment["LCP_DATABASE_URL"], ""):
            assert lcp(*command, mission, "--root", "root", LCP_DATABASE_URL=url).code == 0
    assert sorted(path for path in lcp.home.rglob("*")) == before


def test_a_dry_run_names_what_would_be_approved_without_asking(lcp: Lcp) -> None:
    done = lcp("run", lcp.mission(lcp.complete), "--root", "root", "--dry-run", "--approve", "write_file")
    assert "approved    write_file, without asking\n" in done.out
    refused = lcp("run", lcp.mission(lcp.complete), "--root", "root", "--dry-run", "--approve", "write_fil")
    assert (refused.code, "did you mean 'write_file'?" in refused.err) == (2, True)


def test_an_invalid_mission_is_refused_as_run_would(lcp: Lcp) -> None:
    mission = lcp.home / "m.yaml"
    mission.write_text(
        "goal: Say ${what}.\nplanner: {type: script, replies: []}\nvariables: {what: What to say.}\n"
    )
    for command in (["validate"], ["run", "--dry-run"]):
        done = lcp(*command, mission, "--root", "root", "--json")
        assert (done.code, done.error["error_code"], done.out) == (1, "INVALID_MISSION", "")
        assert lcp(*command, mission, "--root", "root", "--var", "what=yes").code == 0
        assert lcp(*command, mission, "--root", "gone", "--var", "what=yes", "--json").error[
            "error_code"
        ] == ("PATH_NOT_FOUND")


def test_it_names_missions_in_the_same_root_and_the_state_of_git(lcp: Lcp) -> None:
    git = [
        "git",
        "-C",
        str(lcp.root),
        "-c",
        "init.defaultBranch=main",
        "-c",
        "user.name=n",
        "-c",
        "user.email=e",
    ]
    for arguments in (["init", "-q"], ["add", "a.md"], ["commit", "-qm", "first"]):
        subprocess.run(
            [*git, *arguments], check=True, env={"PATH": os.environ["PATH"], "HOME": str(lcp.home)}
        )
    mission = lcp.mission(lcp.complete)
    lcp("launch", mission, "--root", "root")
    done = lcp("validate", mission, "--root", "root", "--json")
    root = done.object["root"]
    assert isinstance(root, dict)
    assert (root["writable"], root["branch"], root["uncommitted"], root["missions"]) == (True, "main", 1, [1])
    assert done.object["warnings"] == ["mission 1 in the same root has not ended"]


def test_it_runs_no_filter_of_the_repository(lcp: Lcp) -> None:
    proof = lcp.home / "filter-ran"
    git = ["git", "-C", str(lcp.root), "-c", "init.defaultBranch=main"]
    for arguments in (["init", "-q"], ["add", "a.md"], ["config", "filter.own.clean", f"touch {proof}; cat"]):
        subprocess.run(
            [*git, *arguments], check=True, env={"PATH": os.environ["PATH"], "HOME": str(lcp.home)}
        )
    (lcp.root / ".gitattributes").write_text("* filter=own\n")
    (lcp.root / "a.md").write_text("something else of the same kind\n")
    root = lcp("validate", lcp.mission(lcp.complete), "--root", "root", "--json").object["root"]
    assert isinstance(root, dict)
    assert (root["branch"], root["uncommitted"], proof.exists()) == ("main", None, False)


@pytest.mark.parametrize("place", [".", ".git"])
def test_it_fetches_no_objects_by_a_command_of_the_repository(lcp: Lcp, place: str) -> None:
    proof, repository = lcp.home / "fetched", lcp.root / place
    files = {
        "HEAD": "ref: refs/heads/main\n",
        "refs/heads/main": f"{'1' * 40}\n",
        "objects/there": "",
        "config": f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {lcp.root}\n"
        f'[remote "it"]\nurl = .\npromisor = true\nuploadpack = "touch {proof}; false"\n',
    }
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    assert lcp("validate", lcp.mission(lcp.complete), "--root", "root").code == 0
    assert not proof.exists()
    subprocess.run(["git", "status"], cwd=lcp.root, capture_output=True, check=False)
    assert proof.exists(), "the control"


def test_a_database_that_cannot_be_used_is_an_error_now_and_not_at_launch(lcp: Lcp) -> None:
    done = lcp("validate", lcp.mission(lcp.complete), "--root", "root", "--db", "sqlite:////nowhere/lcp.db")
    assert (done.code, "needs its directory /nowhere" in done.err) == (1, True)


HAS_PATHS = {"read_file": True, "write_file": True, "ask_user": False}


@pytest.mark.parametrize(
    ("rules", "facts"),
    [
        ([{"do": "hold"}], []),
        ([{"kinds": ["write_file"], "do": "auto"}, {"do": "hold"}], []),
        ([{"paths": ["docs/**"], "do": "auto"}, {"paths": ["*.md"], "do": "hold"}], []),
        ([{"paths": ["**"], "do": "auto"}, {"do": "hold"}], []),
        ([{"paths": ["*", "!a"], "do": "auto"}, {"paths": ["a"], "do": "hold"}], []),
        (
            [{"do": "hold"}, {"do": "deny"}],
            ["mission rule 2: it can never match: mission rule 1 decides first"],
        ),
        (
            [{"kinds": ["read_file"], "do": "hold"}, {"kinds": ["read_file"], "paths": ["a"], "do": "deny"}],
            ["mission rule 2: it can never match: mission rule 1 decides first"],
        ),
        (
            [{"paths": ["**"], "do": "hold"}, {"paths": ["a"], "do": "deny"}],
            ["mission rule 2: it can never match: mission rule 1 decides first"],
        ),
        (
            [{"paths": ["a"], "do": "hold"}, {"paths": ["a"], "do": "deny"}],
            ["mission rule 2: it can never match: mission rule 1 decides first"],
        ),
        ([{"kinds": [], "do": "deny"}], ["mission rule 1: it can never match: it names no kind"]),
        ([{"paths": [], "do": "deny"}], ["mission rule 1: it can never match: its list of paths is empty"]),
        (
            [{"kinds": ["ask_user"], "paths": ["a"], "do": "deny"}],
            ["mission rule 1: it can never match: jobs of kind ask_user have no path"],
        ),
        (
            [{"kinds": ["write_fil"], "do": "deny"}],
            ["mission rule 1: no worker executes kind 'write_fil'; did you mean 'write_file'?"],
        ),
        ([{"do": "deny", "final": True}], ["mission rule 1: `final` counts in a user's rules only"]),
    ],
)
def test_a_rule_without_effect_is_named(rules: list[dict[str, JsonValue]], facts: list[str]) -> None:
    assert idle_rules([Rule.model_validate(rule) for rule in rules], (), HAS_PATHS) == facts


def test_the_users_final_rules_come_first() -> None:
    final = Rule.model_validate({"do": "deny", "final": True})
    own = Rule.model_validate({"kinds": ["read_file"], "do": "auto"})
    assert idle_rules([own], [final], HAS_PATHS) == [
        "mission rule 1: it can never match: final user rule 1 decides first"
    ]


def test_a_file_that_stays_denied_is_named(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, policy=[{"kinds": ["read_file"], "paths": [".env"], "do": "auto"}])
    warnings = lcp("validate", mission, "--root", "root", "--json").object["warnings"]
    assert isinstance(warnings, list)
    assert [str(warning).startswith("mission rule 1: '.env' stays denied: ") for warning in warnings] == [
        True
    ]


@pytest.mark.parametrize("command", [("run",), ("launch",)], ids=" ".join)
def test_a_rule_without_effect_is_named_when_its_mission_begins(lcp: Lcp, command: tuple[str, ...]) -> None:
    mission = lcp.mission(
        lcp.complete, policy=[{"kinds": ["fs.*"], "do": "deny"}, {"kinds": ["merge"], "do": "hold"}]
    )
    done = lcp(*command, mission, "--root", "root")
    assert done.code == 0
    shown = " ".join(done.err.split())
    assert "mission rule 1: no worker executes kind 'fs.*'" in shown
    assert "mission rule 2: only a mission with `stage: true` has a merge" in shown
    assert "mission rule" not in lcp(*command, mission, "--root", "root", "--quiet").err


def test_a_script_says_what_will_be_held_denied_or_executed_by_nothing(lcp: Lcp) -> None:
    mission = lcp.mission(
        lcp.ask("write_file", rel_path="b.txt", content="x"),
        lcp.ask("read_file", rel_path=".env"),
        lcp.ask("read_fil", rel_path="a.md"),
        lcp.complete,
    )
    done = lcp("validate", mission, "--root", "root")
    shown = " ".join(done.out.split())
    assert "script reply 1: write_file b.txt is held: default policy: kinds with effects wait" in shown
    assert "script reply 2: read_file .env is denied: default policy: secrets are denied" in shown
    assert "reply 3 requests kind 'read_fil', which no worker executes" in shown
    script = lcp("validate", mission, "--root", "root", "--json").object["script"]
    assert isinstance(script, list)
    assert [one["verdict"] for one in script if isinstance(one, dict)] == ["hold", "deny"]
    empty = lcp("validate", lcp.mission(), "--root", "root", "--json").object["warnings"]
    assert empty == ["planner.replies is empty; the first question ends the mission as failed"]


def test_a_character_that_is_not_seen_is_named_once(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, name="a", goal="bell\x07")
    assert "a: bell<U+0007>\n" in lcp("validate", mission, "--root", "root").out


def test_a_rule_that_never_matches_is_not_said_to_decide_by_path(lcp: Lcp) -> None:
    rules: list[JsonValue] = [
        {"kinds": ["write_file"], "do": "hold"},
        {"kinds": ["write_file"], "paths": ["docs/**"], "do": "auto"},
        {"kinds": ["read_file"], "paths": ["any*"], "do": "deny"},
        {"kinds": ["list_files"], "paths": ["*", "!a"], "do": "hold"},
    ]
    done = lcp("validate", lcp.mission(lcp.complete, policy=rules), "--root", "root", "--json")
    kinds = done.object["kinds"]
    assert isinstance(kinds, list)
    by_path = {str(one["kind"]): one["by_path"] for one in kinds if isinstance(one, dict) and one["by_path"]}
    assert by_path == {
        "edit_file": ["mission rule 3 (any*): deny"],
        "list_files": ["mission rule 4 (*, !a): hold"],
        "move_file": ["mission rule 3 (any*): deny"],
        "read_file": ["mission rule 3 (any*): deny"],
        "search_files": ["mission rule 3 (any*): deny", "mission rule 4 (*, !a): hold"],
    }
    assert [outlook(kinds, kind) for kind in ("read_file", "list_files")] == ["auto", "hold"]
