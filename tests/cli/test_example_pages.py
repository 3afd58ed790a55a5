"""The examples of docs/plans.md, docs/stage.md and docs/approvals.md run as they are printed.

Those of docs/kinds.md run in test_worker_files.py. A job or mission of an example has the number that it has here.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import JsonValue

from lcp_engine import Engine

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code in that language, in their order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def do(lcp: Lcp, page: str, begin: str, *more: str, **numbers: int) -> Done:
    """Run the command that a page prints and that begins so, with our numbers in the place of its own, and `more`."""
    lines = re.findall(r"^    \$ lcp (.*)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    (line,) = (line for line in lines if line.startswith(begin))
    words = shlex.split(line, comments=True)
    return lcp(*(numbers.get(f"n{word}", word) for word in words), *more)


def held(lcp: Lcp, mission: int) -> int:
    """The one job of a mission that waits."""
    found = lcp("jobs", "--mission", mission, "--state", "held", "--json").json
    assert isinstance(found, list)
    (job,) = found
    assert isinstance(job, dict)
    number = job["id"]
    assert isinstance(number, int)
    return number


def test_the_plan_of_the_page_says_how_large_a_project_is(lcp: Lcp) -> None:
    example, condition, _ = blocks("plans.md", "yaml")
    (lcp.root / "README.md").write_text("It adds up prices.\n")
    for name in ("a.py", "b.py"):
        (lcp.root / name).write_text("")
    count = len([*lcp.root.rglob("*.py")])
    (lcp.home / "report.yaml").write_text(example)
    assert lcp("plan", "check", "report.yaml").code == 0
    assert lcp("run", "report.yaml", "--root", "root", "--approve", "all").code == 0
    assert (lcp.root / "SIZE.md").read_text() == f"{count} files\n\nIt adds up prices.\n"
    assert do(lcp, "plans.md", "plan show 1").code == 0
    plan = yaml.safe_load(example)
    step = {"id": "step-004", "tool": "list_files", "parameters": {}, **yaml.safe_load(condition)}
    plan["plan"]["steps"].append(step)
    (lcp.home / "more.yaml").write_text(yaml.safe_dump(plan))
    assert lcp("plan", "check", "more.yaml").code == 0


def test_the_fallback_of_the_page_takes_the_place_of_a_plan_that_failed(lcp: Lcp) -> None:
    (lcp.root / "a.py").write_text("")
    (lcp.home / "list.yaml").write_text(blocks("plans.md", "yaml")[2])
    assert lcp("run", "list.yaml", "--root", "root", "--approve", "all").code == 0
    assert "a.py" in (lcp.root / "LIST.md").read_text()
    assert "the fallback from-files: 2 of 2 steps succeeded" in str(
        lcp("show", "1", "--json").object["summary"]
    )


def test_what_a_result_leaves_out_is_there_for_references_and_conditions(lcp: Lcp) -> None:
    (lcp.root / "a.md").write_text("one\ntwo")
    keys = ("1.total", "1.truncated", "1.skipped", "1.sizes", "2.total", "2.truncated", "3.binary")
    words = " ".join(f"$output.step-00{key}" for key in keys)
    steps: list[JsonValue] = [
        {"id": "step-001", "tool": "list_files", "parameters": {}},
        {"id": "step-002", "tool": "read_file", "parameters": {"path": "a.md"}},
        {"id": "step-003", "tool": "search_files", "parameters": {"text": "two"}},
        {"id": "step-004", "tool": "write_file", "parameters": {"path": "b.md", "content": words}},
        {
            "id": "step-005", "tool": "write_file", "parameters": {"path": "c.md", "content": "c"},
            "condition": {"type": "expression", "expression": "step-002.result.total == 2"},
        },
    ]  # fmt: skip
    (lcp.home / "plan.yaml").write_text(
        json.dumps({"name": "all", "goal": "Say it.", "plan": {"steps": steps}})
    )
    assert lcp("run", "plan.yaml", "--root", "root", "--approve", "all").code == 0
    listed = int((lcp.root / "b.md").read_text().split()[0])
    assert (lcp.root / "b.md").read_text() == f"{listed} false [] null 2 false 0"
    assert listed >= 1
    assert (lcp.root / "c.md").read_text() == "c"
    assert "total" not in lcp("job", "1", "--json").out, "the result itself stays as it was"


def test_the_plan_that_the_page_has_a_planner_answer_with_copies_what_is_there(lcp: Lcp) -> None:
    reply, jobs = blocks("plans.md", "json")
    (lcp.root / "README.md").write_text("It adds up prices.\n")
    done: JsonValue = {
        "response_type": "custom",
        "status": "success",
        "message": "Done.",
        "custom_fields": {},
    }
    planner: JsonValue = {"type": "script", "dialect": "universal", "replies": [json.loads(reply), done]}
    mission = lcp.mission(planner=planner)
    lcp("run", mission, "--root", "root", "--approve", "all")
    assert (lcp.root / "COPY.md").read_text() == "It adds up prices.\n"
    (lcp.root / "README.md").write_text("It subtracts.\n")
    lcp("run", lcp.mission(json.loads(jobs), lcp.complete), "--root", "root", "--approve", "all")
    assert (lcp.root / "COPY.md").read_text() == "It subtracts.\n"


def write(path: str, content: str) -> JsonValue:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content}}


def ask(*jobs: JsonValue) -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


def test_a_stage_is_shown_approved_and_undone_as_the_page_says(lcp: Lcp) -> None:
    (lcp.root / "a.md").write_text("old\n")
    lcp.mission(ask(write("a.md", "new\n")), lcp.complete).rename(lcp.home / "tidy.yaml")
    assert do(lcp, "stage.md", "run tidy.yaml", "--root", "root").code == 3
    assert (lcp.root / "a.md").read_text() == "old\n"
    merge = held(lcp, 1)
    assert do(lcp, "stage.md", "diff 42", n42=merge).code == 0
    assert do(lcp, "stage.md", "approve 42", n42=merge).code == 0
    lcp("work", "--until-idle")
    assert (lcp.root / "a.md").read_text() == "new\n"
    assert do(lcp, "stage.md", "undo 7", n7=1).code == 0
    assert (lcp.root / "a.md").read_text() == "old\n"


def test_a_program_takes_and_edits_parts_of_a_merge_as_the_page_says(lcp: Lcp) -> None:
    lines = [f"{number}\n" for number in range(40)]
    (lcp.root / "a.md").write_text("".join(lines))
    changed = "".join(["first\n", *lines[1:-1], "last\n"])
    mission = lcp.mission(ask(write("a.md", changed), write("b.md", "teh end\n")), lcp.complete, stage=True)
    assert lcp("run", mission, "--root", "root").code == 3
    (example,) = blocks("stage.md", "python")
    code = compile(example.replace("42", str(held(lcp, 1))), "stage.md", "exec")
    with Engine(f"sqlite:///{lcp.database}") as engine:
        exec(code, {"engine": engine})  # the example is ours
    lcp("work", "--until-idle")
    assert (lcp.root / "a.md").read_text() == "".join(["first\n", *lines[1:]])
    assert (lcp.root / "b.md").read_text() == "the end\n"


def test_a_rule_is_added_shown_and_taken_back_as_the_page_says(lcp: Lcp) -> None:
    first, second = ask(write("docs/a.md", "a")), ask(write("docs/b.md", "b"))
    assert lcp("run", lcp.mission(first, second, lcp.complete), "--root", "root").code == 3
    assert do(lcp, "approvals.md", "approve 12 --always mission", n12=held(lcp, 1)).code == 0
    lcp("work", "--until-idle")
    assert do(lcp, "approvals.md", "approve 12 --always user", n12=held(lcp, 1)).code == 0
    shown = do(lcp, "approvals.md", "policy rules 3", n3=1)
    assert (shown.code, "docs/" in shown.out) == (0, True)
    assert do(lcp, "approvals.md", "policy remove 3 1", n3=1, n1=1).code == 0


def test_the_form_of_the_page_is_filled_in_as_it_says(lcp: Lcp) -> None:
    form, _ = blocks("approvals.md", "json")
    assert lcp("run", lcp.mission(ask(json.loads(form)), lcp.complete), "--root", "root").code == 3
    question = held(lcp, 1)
    assert do(lcp, "approvals.md", "answer 12 --form", n12=question).code == 0
    result = lcp("job", question, "--json").object["result"]
    assert isinstance(result, dict)
    assert result["values"] == {"version": "2.0", "channel": "stable", "day": "2026-12-01"}
    assert result["words"] == "not on a Friday, please"


def test_several_people_approve_as_the_page_says(lcp: Lcp) -> None:
    rules = yaml.safe_load(blocks("approvals.md", "yaml")[-1])
    mission = lcp.mission(ask(write("deploy/run.sh", "x")), lcp.complete, **rules)
    assert lcp("run", mission, "--root", "root").code == 3
    job = held(lcp, 1)
    refused = lcp("approve", job)
    assert (refused.code, "who launched mission 1" in refused.err) == (1, True)
