"""`lcp init` writes a mission file, by asking or from its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.terminal import Terminal

from lcp_engine.core.mission.parse import parse_mission
from lcp_engine.features.authoring.init import Draft, text_of

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_a_person_answers_and_gets_a_mission_that_runs(lcp: Lcp) -> None:
    with Terminal(lcp, "init", "notes.yaml") as terminal:
        terminal.expect("What should the mission achieve? ")
        terminal.answer("")  # a goal is needed
        terminal.expect("What should the mission achieve? ")
        terminal.answer("Write NOTES.md: what this is.")
        terminal.expect("confined to [.]: ")
        terminal.answer("root")
        terminal.expect("Planner: human, openai, anthropic, local [human]: ")
        terminal.answer("opnai")
        terminal.expect("no planner is named 'opnai'")
        terminal.answer("surveyor")
        terminal.expect("without asking you, such as docs/** [none]: ")
        terminal.answer("docs/** NOTES.md")
        assert terminal.end() == 0
    assert "`lcp run notes.yaml` runs it" in terminal.shown
    spec = parse_mission((lcp.home / "notes.yaml").read_text(), source="notes.yaml")
    assert (spec.name, spec.goal.strip(), spec.root) == ("notes", "Write NOTES.md: what this is.", "root")
    assert (spec.planner.type, spec.policy[0].paths) == ("surveyor", ("docs/**", "NOTES.md"))
    assert lcp("run", "notes.yaml").code == 3


def test_a_model_is_asked_for_with_its_server(lcp: Lcp) -> None:
    with Terminal(lcp, "init", "other.yaml") as terminal:
        for question, answer in (
            ("achieve? ", "Look."),
            (": ", ""),
            ("[human]: ", "openai"),
            ("or a URL [lmstudio]: ", "openai"),
            ("Model [none]: ", ""),
            ("Model [none]: ", "gpt-x"),
            ("[none]: ", ""),
        ):
            terminal.expect(question)
            terminal.answer(answer)
        assert terminal.end() == 0
    spec = parse_mission((lcp.home / "other.yaml").read_text(), source="other.yaml")
    assert (spec.planner.type, spec.planner.options) == ("openai", {"server": "openai", "model": "gpt-x"})
    assert spec.policy == ()


def test_control_d_leaves_and_writes_nothing(lcp: Lcp) -> None:
    with Terminal(lcp, "init") as terminal:
        terminal.expect("achieve? ")
        terminal.type("\x04")
        assert terminal.end() == 2
    assert "nothing was written" in terminal.shown
    assert not (lcp.home / "mission.yaml").exists()


def test_without_a_terminal_the_options_say_it_all(lcp: Lcp) -> None:
    assert "--goal TEXT is required" in lcp("init").err
    done = lcp("init", "--goal", "Write docs.", "--root", "root", "--write", "docs/**", "--json")
    assert done.object == {"file": "mission.yaml"}
    assert lcp("validate", "mission.yaml").code == 0
    assert "planner: {type: human}" in (lcp.home / "mission.yaml").read_text()


def test_the_planner_of_the_environment_is_left_to_it(lcp: Lcp) -> None:
    assert lcp("init", "--goal", "Look.", LCP_PLANNER="surveyor").code == 0
    assert "planner" not in (lcp.home / "mission.yaml").read_text()


def test_a_file_that_exists_is_replaced_only_with_force(lcp: Lcp) -> None:
    (lcp.home / "mission.yaml").write_text("mine")
    done = lcp("init", "--goal", "Look.")
    assert (done.code, "exists already" in done.err) == (5, True)
    assert (lcp.home / "mission.yaml").read_text() == "mine"
    assert lcp("init", "--goal", "Look.", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        (["--goal", " "], 1, "goal: should be text that is not empty"),
        (["--goal", "x", "--planner", "opnai"], 1, "did you mean 'openai'?"),
        (["--goal", "x", "--write", "["], 1, "pattern '[' never matches"),
        (["none/m.yaml", "--goal", "x"], 1, "its directory 'none', which does not exist"),
        (["root", "--goal", "x"], 1, "'root' is a directory; a file is expected"),
    ],
)
def test_what_would_not_run_is_not_written(lcp: Lcp, arguments: list[str], code: int, fact: str) -> None:
    done = lcp("init", *arguments)
    assert (done.code, fact in done.err) == (code, True), done.err
    assert not list(lcp.home.glob("*.yaml"))


def test_a_directory_that_may_not_be_written_is_named(lcp: Lcp) -> None:
    done = lcp("init", "/proc/mission.yaml", "--goal", "x")
    assert (done.code, done.err.startswith("mission '/proc/mission.yaml' cannot be written: ")) == (1, True)


@pytest.mark.parametrize(
    "goal", ["a ${x} b", "two\nlines", "# no comment", "tab\there", "é: 'yes' - {no}", "\x1b[2J"]
)
@pytest.mark.parametrize("name", ["true", "1", "a b", "x: y", "Null", "-"])
def test_every_text_is_read_back_as_it_is(goal: str, name: str) -> None:
    written = text_of(Draft(goal, name, {"type": "human"}, ["*.md", "a, b"]), name)
    spec = parse_mission(written, source="mission")
    assert (spec.goal.removesuffix("\n"), spec.root, spec.name) == (goal, name, name)
    assert spec.policy[0].paths == ("*.md", "a, b")


def test_an_agent_gets_a_stage_and_the_host_of_its_model(lcp: Lcp) -> None:
    assert lcp("init", "--goal", "Look.", "--agent", "codex").code == 0
    assert lcp("validate", "mission.yaml").code == 0
    written = (lcp.home / "mission.yaml").read_text()
    assert "planner: {type: program, agent: codex}\nstage: true\n" in written
    assert "commands: {network: {hosts: [api.openai.com]}}" in written
    assert "did you mean 'codex'?" in lcp("init", "x.yaml", "--goal", "Look.", "--agent", "codes").err
    told = lcp(
        "doctor", "--mission", "mission.yaml", PATH="/usr/bin:/bin", OPENAI_API_KEY="", CODEX_API_KEY=""
    ).out
    assert "Install @openai/codex@" in told
    assert "none of CODEX_API_KEY, OPENAI_API_KEY is set" in told
