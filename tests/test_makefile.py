from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

PROJECT = Path(__file__).resolve().parent.parent
REQUIREMENTS = PROJECT / "requirements"
WORKFLOWS = PROJECT / ".github" / "workflows"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `make` reads of a fresh clone. It knows nothing of a `make` that runs the tests."""
    for name in ("MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(PROJECT / "Makefile", tmp_path)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    shutil.copytree(REQUIREMENTS, tmp_path / "requirements")
    return tmp_path


def _would_run(clone: Path, *given: str) -> str:
    command = ["make", "--dry-run", "--no-print-directory", *given]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout


def _set_up(clone: Path, *stamps: str) -> None:
    """What a set-up leaves in the environment."""
    (clone / ".venv").mkdir()
    for stamp in stamps:
        (clone / ".venv" / stamp).touch()


def test_a_survey_installs_the_engine_alone(clone: Path) -> None:
    would_run = _would_run(clone, "survey")
    assert "--requirement requirements/engine.txt" in would_run
    assert "dev.txt" not in would_run


def test_a_check_installs_every_tool(clone: Path) -> None:
    _set_up(clone, "engine")
    assert "--requirement requirements/dev.txt" in _would_run(clone, "check")


def test_a_check_holds_the_code_to_the_limits_of_its_rooms(clone: Path) -> None:
    assert "tools/budget.py" in _would_run(clone, "check")


@pytest.mark.parametrize("stamps", [("engine",), ("engine", "ready")])
def test_a_survey_installs_nothing_where_that_is_done(clone: Path, stamps: tuple[str, ...]) -> None:
    _set_up(clone, *stamps)
    assert "pip" not in _would_run(clone, "survey")


def test_a_survey_leaves_the_tools_where_they_are(clone: Path) -> None:
    _set_up(clone, "engine", "ready")
    (clone / ".venv" / "engine").unlink()
    assert "pip" not in _would_run(clone, "survey")


@pytest.mark.parametrize("target", ["survey", "check"])
def test_an_interrupted_set_up_starts_from_nothing(clone: Path, target: str) -> None:
    _set_up(clone)
    assert "venv --clear .venv" in _would_run(clone, target)


VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("there", "chosen"), [(None, ".venv"), (VERSION, ".venv"), ("3.10", f".venv-{VERSION}")]
)
@pytest.mark.parametrize("named", ["version", "path"])
def test_a_chosen_interpreter_leaves_the_environment_of_another_one(
    clone: Path, monkeypatch: pytest.MonkeyPatch, named: str, there: str | None, chosen: str
) -> None:
    (clone / "bin").mkdir()
    (clone / "bin" / f"python{VERSION}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(clone / "bin"), prepend=os.pathsep)
    if there is not None:
        (clone / ".venv" / "lib" / f"python{there}").mkdir(parents=True)
    python = VERSION if named == "version" else sys.executable
    would_run = _would_run(clone, "check", f"PYTHON={python}")
    assert f"-m venv --clear {chosen}\n" in would_run
    assert f"\n{chosen}/bin/mypy\n" in would_run


def test_an_interpreter_that_does_not_start_is_refused(clone: Path) -> None:
    _set_up(clone, "engine", "ready")
    command = ["make", "--dry-run", "check", "PYTHON=3.999"]
    refused = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "PYTHON=python3.999 does not start" in refused.stderr


def test_the_engine_alone_has_every_dependency_in_the_versions_that_are_tested() -> None:
    engine, everything = (
        dict(PIN.findall((REQUIREMENTS / name).read_text())) for name in ("engine.txt", "dev.txt")
    )
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    needed = {re.split(r"[\[><=]", line)[0] for line in project["project"]["dependencies"]}
    assert needed <= set(engine)
    assert engine.items() <= everything.items()
    assert not {"mypy", "playwright", "psycopg", "starlette"} & set(engine)


def test_the_lowest_versions_are_those_that_the_project_allows() -> None:
    printed = subprocess.run(
        [sys.executable, PROJECT / "tools" / "floors.py"], capture_output=True, text=True, check=True
    ).stdout
    floors = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)$", printed, re.MULTILINE))
    lowest = dict(PIN.findall((REQUIREMENTS / "lowest.txt").read_text()))
    assert {name: Version(lowest[name]) for name in floors} == {
        name: Version(floor) for name, floor in floors.items()
    }
    assert "starlette" in floors


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.name)
def test_actions_are_pinned_by_commit(file: Path) -> None:
    used = re.findall(r"uses: (\S+)", file.read_text())
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)


def test_an_image_is_built_from_all_that_the_wheel_is_made_of_and_from_nothing_else() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        stated = tomllib.load(file)
    project, wheel = stated["project"], stated["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["readme"], *project["license-files"]}
    needed |= {path.partition("/")[0] for path in wheel["only-include"]}
    lines = (PROJECT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[1] == "*"
    assert needed <= kept
    assert all((PROJECT / name).exists() for name in kept)
