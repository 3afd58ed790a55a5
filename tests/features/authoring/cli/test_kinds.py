"""`lcp kinds` lists and describes what is installed, and runs its examples."""

from __future__ import annotations

import jsonschema_rs
import pytest
from pydantic import BaseModel, JsonValue
from rich.cells import cell_len
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal

from lcp_engine.core.kinds import tool_ids
from lcp_engine.features.universal.envelopes import ToolDefinition
from lcp_engine.workers import registry
from lcp_engine.workers.base import Example, Worker


class Nothing(BaseModel):
    pass


class Tossed(BaseModel):
    side: str


TOSS = Worker(
    kind="toss",
    params=Nothing,
    result=Tossed,
    execute=lambda params, context: Tossed(side="tails"),
    description="Toss a coin.\x1b[2J",
    examples=(Example({}, {"side": "heads"}),),
).for_any_params()


@pytest.fixture
def toss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTERED, TOSS.kind, TOSS)


def test_the_table_escapes_and_names_each_kind(lcp: Lcp, toss: None) -> None:
    lines = lcp("kinds").out.splitlines()
    assert lines[0].split() == ["kind", "role", "default", "description"]
    assert any(line.startswith("toss ") and " other " in line and " held " in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_the_table_fits_a_terminal_of_80_columns(lcp: Lcp) -> None:
    with Terminal(lcp, "kinds", size=(24, 80)) as terminal:
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert any("write_file" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80


def test_a_kind_is_described(lcp: Lcp) -> None:
    shown = lcp("kinds", "read_file").out
    assert "role        reads; it has no effects" in shown
    assert "rel_path (string, optional): The file, relative to root." in shown
    assert "content (string)" in shown
    described = lcp("kinds", "read_file", "--json").object
    assert (described["kind"], described["role"], described["timeout_seconds"]) == (
        "read_file",
        "reads",
        60.0,
    )
    listed = lcp("kinds", "--json").object["kinds"]
    assert isinstance(listed, list)
    assert described in listed


def test_kinds_are_defined_as_the_tools_of_other_agents(lcp: Lcp, toss: None) -> None:
    """Each is valid by the published schema."""
    defined = lcp("kinds", "--tools").object["tools"]
    assert isinstance(defined, list)
    schema = lcp("schema", "tool_definition").object
    for one in defined:
        jsonschema_rs.validate(schema, one)
        assert ToolDefinition.model_validate(one).as_json() == one
    read = lcp("kinds", "edit_file", "--tools").object
    assert read in defined
    assert (read["id"], read["name"], read["permission_level"]) == ("tool-edit-file", "edit_file", "user")
    params = read["parameters"]
    assert isinstance(params, dict)
    old, every = params["old_text"], params["replace_all"]
    assert isinstance(old, dict)
    assert isinstance(every, dict)
    assert (old["type"], old["required"]) == ("string", True)
    assert (every["type"], every["required"]) == ("boolean", False)
    assert lcp("kinds", "--tools", "--check").code == 2


def test_the_id_of_a_tool_stands_for_its_kind_wherever_one_is_named(lcp: Lcp) -> None:
    assert lcp("kinds", "tool-read-file").out == lcp("kinds", "read_file").out
    assert lcp("schema", "tool-read-file").out == lcp("schema", "read_file").out
    tried = lcp("try", "tool-write-file", '{"path": "a.txt", "content": "a"}', "--root", "root")
    assert (tried.code, (lcp.root / "a.txt").read_text()) == (0, "a")
    jobs: list[JsonValue] = [
        {"kind": "tool-write-file", "params": {"path": "b.txt", "content": "b"}},
        {"kind": "tool-delete-file", "params": {"path": "a.txt"}},
    ]
    asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    mission = lcp.mission(
        asked, lcp.complete, unfulfilled="accept", kinds={"tool-write-file": {"retry": {"max_attempts": 7}}},
        policy=[{"kinds": ["tool-delete-file"], "do": "deny"}],
    )  # fmt: skip
    assert lcp("validate", mission, "--root", "root").err == ""
    assert lcp("run", mission, "--root", "root", "--approve", "tool-write-file").code == 0
    assert ((lcp.root / "a.txt").exists(), (lcp.root / "b.txt").read_text()) == (True, "b")
    listed = lcp("jobs", "--kind", "tool-write-file", "--json").json
    assert isinstance(listed, list)
    assert [job["max_attempts"] for job in listed if isinstance(job, dict)] == [7]
    assert lcp("work", "--kind", "tool-read-file", "--until-idle").code == 0
    refused = lcp("run", mission, "--root", "root", "--approve", "tool-write-fil")
    assert "--approve expects kinds" in refused.err


def test_a_built_in_kind_keeps_its_id_beside_kinds_alike() -> None:
    ids = tool_ids(["read.file", "read_file", "Read_file"])
    assert ids["read_file"] == "tool-read-file"
    assert all(one.startswith("tool-read-file-") for kind, one in ids.items() if kind != "read_file")
    assert len({*ids.values()}) == 3


def test_a_rule_of_the_configuration_may_name_the_id_of_a_tool(lcp: Lcp) -> None:
    config = lcp.home / "config" / "lcp-engine" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("policy: [{kinds: [tool-list-files], do: deny}]\n")
    tried = lcp("try", "list_files", "{}", "--root", "root")
    assert (tried.code, "PATH_DENIED" in tried.out) == (1, True)


def test_an_unknown_kind_is_named_with_the_nearest(lcp: Lcp) -> None:
    done = lcp("kinds", "read_fil")
    assert (done.code, "did you mean read_file" in done.err or "read_file" in done.err) == (1, True)


def test_examples_are_run(lcp: Lcp, toss: None) -> None:
    assert lcp("kinds", "write_file", "--check").out == "write_file: ok\n"
    done = lcp("kinds", "--check")
    assert done.code == 1
    assert "toss: example 1: side is 'tails' in the result; 'heads' is expected\n" in done.out
    found = lcp("kinds", "toss", "--check", "--json").object["kinds"]
    assert isinstance(found, list)
    assert isinstance(found[0], dict)
    assert (found[0]["kind"], found[0]["ok"]) == ("toss", False)
