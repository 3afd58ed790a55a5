"""A mission file of one's own: checked first, launched once, and nothing lost that was typed."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from tests.features.models.planners.conftest import faults
from tests.web.conftest import House
from tests.web.test_browser import chromium, window

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer
    from tests.web.test_browser import Window

__all__ = ["chromium", "faults", "window"]

TEXT = """goal: Say <hello> to ${who}.
planner:
  type: script
  replies: [{"ok": true, "action": "mission_complete", "summary": "done"}]
variables: {who: Whom to greet.}
"""


def _fields(house: House, **fields: str) -> dict[str, str | list[str]]:
    return {
        "text": TEXT,
        "variables": "who=you",
        "root": str(house.root),
        "way": "launch",
        "key": "k",
        **fields,
    }


def test_a_mission_is_checked_and_nothing_is_launched(house: House) -> None:
    page = house.post("/launch/own", _fields(house, way="check"))
    assert page.status == 200
    assert "The mission is valid; nothing was launched." in page.words
    assert "Say <hello> to you." in page.words
    assert "Waits for you" in page.words
    assert house.engine.missions() == []
    assert TEXT in unescape(page.text)


def test_a_mission_is_launched_once(house: House) -> None:
    for _ in range(2):
        house.post("/launch/own", _fields(house))
    (mission,) = house.engine.missions()
    assert mission.goal == "Say <hello> to you."


def test_a_plan_that_stands_alone_is_launched_and_its_faults_have_lines(house: House) -> None:
    text = "id: main\nsteps:\n  - id: look\n    tool: tool-list-files\n    parameters: {}\n"
    wrong = house.post("/launch/own", _fields(house, text=text.replace("tool: tool-", "tol: "), variables=""))
    assert "line 4" in wrong.words
    house.post("/launch/own", _fields(house, text=text, variables=""))
    assert [mission.name for mission in house.engine.missions()] == ["main"]


@pytest.mark.parametrize("way", ["check", "launch"])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": ""}, "enter the text of a mission file"),
        ({"text": "goal: [a"}, "line 1"),
        ({"text": "goal: a\ngoal: b\n"}, "the key 'goal' is there twice"),
        ({"text": TEXT + "limit: 3\n"}, "limit"),
        ({"variables": ""}, "who"),
        ({"variables": "who"}, "one NAME=VALUE a line is expected, not 'who'"),
        ({"root": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"text": "goal: x\nplanner: {type: none-such}\n", "variables": ""}, "none-such"),
        ({"text": "goal: \u202e\0\n", "variables": ""}, "line 1"),
    ],
    ids=[
        "empty",
        "no YAML",
        "twice",
        "unknown key",
        "no value",
        "no pair",
        "no root",
        "no planner",
        "control",
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(
    house: House, fields: dict[str, str], expected: str, way: str
) -> None:
    page = house.post("/launch/own", _fields(house, **fields, way=way))
    assert 400 <= page.status < 500
    assert expected in page.words
    assert house.engine.missions() == []
    if "text" not in fields:
        assert TEXT in unescape(page.text)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"root": "/nowhere/at/all"}, "root"),
        ({"variables": "who"}, "variables"),
        ({"text": "goal: [a"}, "text"),
    ],
)
def test_only_the_field_that_is_at_fault_is_marked(
    house: House, fields: dict[str, str], at_fault: str
) -> None:
    page = house.post("/launch/own", _fields(house, **fields))
    marked = re.findall(r'<(?:input|textarea) id="(\w+)"[^>]*aria-invalid="true"', page.text)
    assert marked == [at_fault]


def test_a_mission_without_a_planner_advises_what_can_be_done_on_the_page(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LCP_PLANNER", "LCP_PLANNER_ENDPOINT", "LCP_PLANNER_BASE_URL", "LCP_PLANNER_SERVER"):
        monkeypatch.delenv(name, raising=False)
    page = house.post("/launch/own", _fields(house, text="goal: Say hello.\n", variables=""))
    assert (page.status, "add one, such as planner: {type: human}" in page.words) == (422, True)
    assert "--planner" not in page.words


def test_every_error_is_said_with_its_line_which_is_marked_in_the_text(house: House) -> None:
    text = (
        TEXT
        + "limits:\n  max_turns: many\n  max_followups: 3\npolicy:\n  - {kinds: [write_file], do: maybe}\n"
    )
    page = house.post("/launch/own", _fields(house, text=text, way="check"))
    assert page.status == 422
    assert "line 7: limits.max_turns: should be a whole number" in page.words
    assert "line 10: policy.0.do: should be 'auto', 'hold' or 'deny'" in page.words
    assert "7 ▸ max_turns: many" in page.words
    assert "10 ▸ - {kinds: [write_file], do: maybe}" in page.words
    assert "▸ goal" not in page.words


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("goal: a\nplan:\n  steps:\n    - {id: step-001, tool: no_such_kind}\n", 4),
        ("goal: a\nplanner:\n  type: script\n  replies:\n    - {action: mission_complete}\n    - {}\n", 5),
    ],
    ids=["a step of a plan", "a reply"],
)
def test_what_only_the_kinds_tell_is_marked_too(house: House, text: str, line: int) -> None:
    page = house.post("/launch/own", _fields(house, text=text, variables="", way="check"))
    assert (page.status, f"line {line}: " in page.words) == (422, True), page.words[:900]
    assert f"{line} ▸ - {{" in page.words


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("goal: a\nplanner: {type: human\n", 3),
        ("goal: a\n\ngoal: b\n", 3),
        ('{"goal": "x",\n "planner": "human",\n "limits": {"max_turns": -1}}', 3),
    ],
    ids=["unclosed", "twice", "JSON"],
)
def test_one_error_is_marked_too(house: House, text: str, line: int) -> None:
    page = house.post("/launch/own", _fields(house, text=text, variables="", way="check"))
    assert (page.status, f"line {line}" in page.words) == (422, True), page.words[:900]


def test_what_is_nested_too_deeply_marks_nothing(house: House) -> None:
    page = house.post("/launch/own", _fields(house, text="goal: " + "[" * 3000, variables="", way="check"))
    assert 400 <= page.status < 500


def test_a_file_is_read_into_the_form_checked_and_launched(window: Window) -> None:
    page = window.open("/launch/own")
    chosen = page.get_by_label("Or read it from a file")
    chosen.set_input_files({"name": "a.yaml", "mimeType": "text/yaml", "buffer": TEXT.encode()})
    page.wait_for_function("byId('text').value.includes('Say <hello>')")
    page.get_by_label("Variables").fill("who=you")
    page.get_by_label("Directory").fill(str(window.house.root))
    page.get_by_role("button", name="Check").click()
    page.get_by_text("The mission is valid; nothing was launched.").wait_for()
    assert page.get_by_label("Mission file").input_value() == TEXT
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url("**/missions/1?note=launched")


@pytest.mark.proof
def test_a_file_that_is_too_large_is_not_read_and_keeps_nobody_from_typing(window: Window) -> None:
    page = window.open("/launch/own")
    page.get_by_label("Mission file").fill("goal: [a")
    chosen = page.get_by_label("Or read it from a file")
    chosen.set_input_files({"name": "a.yaml", "mimeType": "text/yaml", "buffer": b"x" * 250_001})
    page.wait_for_function("byId('file').validity.customError")
    assert "250,000 bytes" in page.evaluate("byId('file').validationMessage")
    assert page.get_by_label("Mission file").input_value() == "goal: [a"
    page.get_by_role("button", name="Check").click()
    page.get_by_text("Where in the file").wait_for()


def test_without_javascript_the_text_is_pasted(window: Window) -> None:
    page = window.open("/launch/own", java_script_enabled=False)
    assert page.get_by_label("Or read it from a file").is_hidden()
    page.get_by_label("Mission file").fill(TEXT)
    page.get_by_label("Variables").fill("who=you")
    page.get_by_label("Directory").fill(str(window.house.root))
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url("**/missions/1?note=launched")


def test_the_planner_of_a_mission_is_tested_in_place(house: House, faults: FaultServer) -> None:
    faults.play(faults.says(json.dumps(house.complete)))
    planner = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 8192}
    text = json.dumps({"goal": "Look.", "planner": planner})
    page = house.post("/launch/own", _fields(house, text=text, variables="", way="test"))
    assert "10 of 10" in page.words
    assert text in unescape(page.text)
    assert house.engine.missions() == []
    faults.play(faults.refuses(401, "no such <key>"))
    page = house.post("/launch/own", _fields(house, text=text, variables="", way="test"))
    assert "fail" in page.words
    assert "<key>" not in page.text


def test_a_planner_without_a_model_is_only_made(house: House) -> None:
    fields = {"mission": "survey", "root": str(house.root), "way": "test"}
    page = house.post("/launch", fields)
    assert "which uses no model" in page.words
    assert page.status == 200
    assert house.engine.missions() == []
