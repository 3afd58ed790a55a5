"""The mission `fix-tests` recognises what runs the tests of a project, and turns those of several languages green."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.parity.projects import NODE, PROJECTS, PYTHON, RUST, C, Project
from tests.shipped_missions.conftest import Stage, Twin, spec_of
from tests.tables import table
from tests.walls import NEEDS_LANDLOCK, NEEDS_OVERLAY

from lcp_engine import Engine, LcpError
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.parse import outline_mission
from lcp_engine.features.programs.suites.found_suites import suite_of, with_found
from lcp_engine.features.programs.suites.suites import recognised_suite
from lcp_engine.shipped_missions import shipped_missions

if TYPE_CHECKING:
    from pathlib import Path

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "It is mended."}
GIVE_UP: JsonValue = {"ok": False, "action": "error", "error": "it cannot be done"}


def ask(kind: str, **params: JsonValue) -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": kind, "params": params}]}


@NEEDS_OVERLAY
@pytest.mark.parametrize(
    "project",
    [
        pytest.param(one, id=one.name, marks=[] if one in (PYTHON, C) else pytest.mark.proof)
        for one in (PYTHON, NODE, C, RUST)
    ],
)
def test_a_red_project_becomes_green(project: Project, tmp_path: Path) -> None:
    if project.missing:
        pytest.skip(f"{project.missing} is not installed")
    root = project.make(tmp_path, is_broken=True)
    assert project.bug is not None
    path, right, wrong = project.bug
    outline = outline_mission(shipped_missions()["fix-tests"].read_text(), source="fix-tests")
    variables = with_found(outline, {}, lambda: root)
    run = ask("run_command", command=[*variables["command"].split()])
    edit = ask("edit_file", rel_path=path, old_text=wrong, new_text=right)
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        stage = Stage(engine, root)
        mission = stage.run("fix-tests", Twin(variables, [run, DONE, edit, run, DONE]))
        results = [job.result for job in engine.jobs(mission_id=mission.id)]
        assert (mission.outcome, mission.turns) == ("mission_complete", 5), results
        first, _, second = [
            job.result for job in engine.jobs(mission_id=mission.id) if job.kind != "agent_plan"
        ]
    assert first is not None
    assert second is not None
    assert first["exit_code"] != 0
    assert "failed" in str(first["verdict"]) or "Error" in str(first["verdict"])
    assert second["exit_code"] == 0, second["stdout"]
    assert mission.deliverables == [path]


def test_the_command_of_each_project_is_recognised(tmp_path: Path) -> None:
    own = {project.name: suite_of(project.make(tmp_path)) for project in PROJECTS if project.missing is None}
    expected = {
        "python": ".venv/bin/pytest", "node": "npm test --workspaces --if-present", "c": "make test",
        "rust": "cargo test", "go": "go test ./...", "perl": "prove -lr t", "java": None,
    }  # fmt: skip
    found = {name: suite and suite.command for name, suite in own.items() if name in expected}
    assert found == {name: command for name, command in expected.items() if name in found}


CTEST = "ctest --build-and-test . build"
FILES = {
    "Makefile": "CC := cc\n\ntest-all:\n\ncheck: all\n",
    "makefile": ".PHONY: check\nlinux macos: all\nall help test clean:\n\tcd src\n",
    "CMakeLists.txt": "project(x)\nEnable_Testing()\n",
    "package.json": '{"scripts": {"test": "jest"}}',
    "empty.json": "",
    "setup.py": "",
    "test_a.py": "import unittest\n",
}


@table(
    ("names", "command"),
    [
        (["Makefile"], "make check"),
        (["makefile"], "make test"),
        (["Makefile", "package.json"], "npm test"),
        (["package.json", "pnpm-lock.yaml"], "pnpm test"),
        (["package.json", "yarn.lock"], "yarn test"),
        (["setup.py", "test_a.py"], "python3 -m unittest"),
        (["setup.py", "conftest.py", "test_a.py"], "pytest"),
        (["setup.py", ".venv/bin/", ".venv/bin/python", "conftest.py"], ".venv/bin/python -m pytest"),
        (["CMakeLists.txt"], f"{CTEST} --build-generator 'Unix Makefiles' --test-command ctest --output-on-failure"),
        (["pom.xml"], "mvn -o -B test"),
        (["pom.xml", "mvnw"], "./mvnw -o -B test"),
        (["build.gradle.kts", "gradlew"], "./gradlew --offline test"),
        (["Gemfile", "spec/", "spec/a_spec.rb"], "bundle exec rspec"),
        (["composer.json", "vendor/bin/phpunit"], "vendor/bin/phpunit"),
        (["app.csproj"], "dotnet test --no-restore"),
        (["mix.exs"], "mix test"),
        (["t/", "t/a.t"], "prove -lr t"),
        (["README.md"], None),
    ],
)  # fmt: skip
def test_a_suite_is_recognised_by_the_files_of_the_root(names: list[str], command: str | None) -> None:
    found = recognised_suite(names, lambda path: FILES.get(path, ""))
    assert (found and found.command) == command


def test_a_link_out_of_the_root_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "Makefile").symlink_to(tmp_path / "Makefile")
    assert suite_of(root) is None


def test_variables_are_words_and_an_environment(stage: Stage) -> None:
    variables = {"command": "sh -c 'exit 3'", "tests": "a 'b c'", "environment": "A=1 B='2 3'"}
    commands = spec_of("fix-tests", Twin(variables, [DONE])).commands
    assert commands.allow == (("sh", "-c", "exit 3", "..."),)
    assert commands.environment == {"A": "1", "B": "2 3"}
    assert spec_of("fix-tests", Twin(variables, [DONE])).accept[0].command == (
        "sh",
        "-c",
        "exit 3",
        "a",
        "b c",
    )


@table(("key", "value"), [("environment", "A"), ("environment", "=1"), ("command", "sh 'x")])
def test_a_variable_that_is_no_such_words_is_refused(key: str, value: str) -> None:
    with pytest.raises(LcpError, match=r"should be (NAME=VALUE|words as in a shell)"):
        spec_of("fix-tests", Twin({"command": "make", key: value}, [DONE]))


@NEEDS_LANDLOCK
def test_a_check_that_runs_out_of_time_is_no_failure_of_the_planner(stage: Stage) -> None:
    spec = spec_of("fix-tests", Twin({"command": "sleep 30"}, [DONE, GIVE_UP]))
    commands = spec.commands.model_copy(update={"seconds": 0.5})
    launched = stage.engine.launch(spec.model_copy(update={"commands": commands}), root=stage.root)
    stage.engine.work(until_idle=True)
    mission = stage.engine.mission(launched.id)
    assert (mission.status, mission.turns) == ("waiting", 1), (
        "a person is asked, the planner is not sent back"
    )
    [held] = stage.engine.jobs(mission_id=launched.id, states=[State.HELD])
    assert "sleep 30 ends with exit code 0: it ran for more than 0.5 s" in str(held.params["question"])


@NEEDS_LANDLOCK
def test_the_check_runs_once_after_each_completion(stage: Stage) -> None:
    spec = spec_of("fix-tests", Twin({"command": "sh -c 'exit 3'"}, [DONE, DONE, GIVE_UP]))
    launched = stage.engine.launch(spec, root=stage.root)
    stage.engine.work(until_idle=True)
    assert stage.engine.mission(launched.id).status == "failed"
    facts = [event for event in stage.engine.events(launched.id) if "failed_checks" in str(event["data"])]
    assert len(facts) == 2
    assert spec.check_seconds == spec.commands.seconds == 600
