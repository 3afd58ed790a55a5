"""`lcp do` runs a goal of the command line as a mission, and prints it as one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

PLANNER = """
import json
from lcp_engine import Reply

class Notes:
    def answer(self, question):
        action = {"ok": True, "action": "write_file", "rel_path": "NOTES.md", "content": question.goal}
        if question.results:
            action = {"ok": True, "action": "mission_complete", "summary": question.goal}
        return Reply(json.dumps(action), prompt=question.prompt)
"""


def test_a_goal_is_worked_on_in_the_root_and_can_be_approved_in_advance(lcp: Lcp) -> None:
    (lcp.home / "notes.py").write_text(PLANNER)
    own = ("--planner-file", "notes.py", "--root", "root")
    held = lcp("do", "Say ${what}.", "--var", "what=yes", *own)
    assert (held.code, "`lcp approve 2`" in held.err) == (3, True)
    done = lcp("do", "-", "--approve", "write_file", "--json", *own, stdin="Say\nmore.\n")
    ended = json.loads(done.out.splitlines()[-1])
    assert (done.code, ended["summary"], ended["name"]) == (0, "Say\nmore.", "Say more.")
    assert (lcp.root / "NOTES.md").read_text() == "Say\nmore."


@pytest.mark.parametrize(
    "goal",
    [
        "Say ${what} and $${not} this.",
        "  no\n\n  trailing \nspaces: # ${what}",
        "true",
        "\t${what} \U000e0041 \u200b ü \\ud83d\\ude00 \\\U000e0041",
        "long " * 50 + "${what}",
    ],
)
def test_the_printed_mission_runs_unchanged_and_is_the_same(lcp: Lcp, goal: str) -> None:
    script = json.dumps([{"ok": True, "action": "mission_complete", "summary": "cost ${x}"}])
    arguments = (
        "do", goal, "--root", "root", "--planner", "script", "--set", f"planner.replies={script}", "--stage",
        "--set", "limits.max_turns=3", "--set", "policy=[{kinds: [write_file], do: auto}]",
        "--set", "continue=per_result",
        "--set", 'commands={allow: [[make, "..."]], environment: {"A B": "0o17", C: "1e3", D: "no"}}',
        *(("--var", "what=a ${b}") if "${what}" in goal else ()),
    )  # fmt: skip
    for name, printed in (
        ("m.yaml", lcp(*arguments, "--print")),
        ("m.json", lcp(*arguments, "--print", "--json")),
    ):
        assert (printed.code, printed.err, lcp.database.exists()) == (0, "", False)
        (lcp.home / "elsewhere").mkdir(exist_ok=True)
        (lcp.home / "elsewhere" / name).write_text(printed.out, encoding="utf-8")
    ran = [lcp(*arguments), lcp("run", "elsewhere/m.yaml"), lcp("run", "elsewhere/m.json")]
    assert [done.code for done in ran] == [0, 0, 0]
    stated = [lcp("show", number, "--json").object for number in (1, 2, 3)]
    keys = ("name", "goal", "root", "planner", "limits", "summary")
    assert {key: stated[0][key] for key in keys} == {key: stated[1][key] for key in keys}
    assert {key: stated[1][key] for key in keys} == {key: stated[2][key] for key in keys}


def test_what_cannot_be_done_is_said_in_one_line(lcp: Lcp) -> None:
    (lcp.home / "m.yaml").write_text("goal: x\n")
    for arguments, code, said in (
        (("Do it.",), 1, "planner: none is named; choose one with `--planner NAME` (acp, anthropic, human, "),
        (("  ", "--planner", "human"), 2, "a goal in words for the planner is expected; it is blank"),
        (("-", "--planner", "human"), 2, "a goal in words for the planner is expected; stdin is empty"),
        (
            ("Say ${x}.", "--planner", "human"),
            2,
            "lcp do: goal: the variable 'x' has no value; give it with --var x=",
        ),
        (("Do it.", "--planner", "human", "--var", "x=1"), 2, "--var x: no variable is named so"),
        (("Do it.", "--planner", "human", "--set", "limit.max_turns=1"), 2, "did you mean 'limits'?"),
        (("Do it.", "--planner", "human", "--approve", "writefile"), 2, "did you mean 'write_file'?"),
        (("Do it.", "--planner", "humann"), 1, "did you mean 'human'?"),
        (("Do it.", "--planner", "human", "--root", "gone"), 1, "does not exist; a directory is expected"),
        (
            ("Do it.", "--planner", "human", "--root", "/"),
            2,
            "root: '/' is the whole file system; a directory below",
        ),
        (
            ("Do it.", "--planner", "human", "--root", "C:\\x"),
            1,
            "'C:\\x' is a path of Windows; a directory of this",
        ),
        (
            ("Do it.", "--planner", "human", "--root", "\\\\s\\x"),
            1,
            "a mission names such a path in `root_aliases`",
        ),
        (("Do", "it.", "--planner", "human"), 2, 'one goal is expected, in quotes: lcp do "Do it."'),
        (("m.yaml",), 2, "'m.yaml' is a file, which `lcp run m.yaml` runs"),
    ):
        done = lcp("do", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), (arguments, done)
        assert said in done.err
    assert not lcp.database.exists()
    assert "`lcp do` takes a goal in words" in lcp("run", "Write the notes").err
