"""What a planner claims of files is compared with what was read, without a model."""

from __future__ import annotations

from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.claims import deliverables_of, faults_of_issues
from lcp_engine.core.protocol.actions import AnalysisResult, MissionComplete

READ = {"src/a.py": "def load(path):\n    return  eval(path.read())\n", "b.md": "# B\n"}


@table(
    ("issues", "fault"),
    [
        ([], None),
        (["src/a.py: it evaluates what it reads"], None),
        (["src/a.py: `return eval(path.read())` runs any code"], None),
        (["In b.md, `x` and `load()` are not explained."], None),
        ([{"file": "src/a.py", "line": 2}], None),
        (None, "issues is missing; state it, as [] if there are none"),
        (["17.1.1.1"], 'issues[0] names no file that was read: "17.1.1.1"'),
        (["c.py: bad", "b.md: bad"], 'issues[0] names no file that was read: "c.py: bad"'),
        (["lib/src/a.py: bad"], 'issues[0] names no file that was read: "lib/src/a.py: bad"'),
        (
            ["src/a.py: `import os, sys, re` is not used"],
            'issues[0] quotes what is not in src/a.py: "import os, sys, re"',
        ),
        ([7], 'issues[0] names no file that was read: "7"'),
    ],
)
def test_each_issue_names_a_file_that_was_read_and_quotes_what_is_there(
    issues: list[JsonValue] | None, fault: str | None
) -> None:
    assert faults_of_issues(AnalysisResult(summary="s", issues=issues), READ) == fault


def test_many_wrong_issues_are_counted() -> None:
    said = faults_of_issues(AnalysisResult(summary="s", issues=["x"] * 9), READ)
    assert said is not None
    assert said.endswith("; and 4 more")


def test_an_ending_without_issues_states_none() -> None:
    assert faults_of_issues(MissionComplete(summary="s"), READ) == (
        "mission_complete states no issues; analysis_result does"
    )


def test_deliverables_are_texts() -> None:
    assert deliverables_of(MissionComplete(summary="s", deliverables=["a.md", {"path": "b"}])) == [
        "a.md",
        '{"path": "b"}',
    ]
    assert deliverables_of(AnalysisResult(summary="s")) == []
