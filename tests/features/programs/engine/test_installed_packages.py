"""Commands use the packages that are installed in a root, but for what is denied in them, and through no link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.ordinary_user import NOBODY
from tests.walls import EACH_WALL, NEEDS_LANDLOCK, ground_behind

from lcp_engine.core.mission.spec import Commands
from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.core.programs.walls import Step
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import RunCommandResult, Surroundings, run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.read_file import WORKER as READ_FILE

pytestmark = NEEDS_LANDLOCK


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    for path, text in {
        "node_modules/ok/index.js": "ok", "node_modules/ok/deep/index.js": "deep", "node_modules/pk/index.js": "SECRET",
        "node_modules/.env": "SECRET", "venv/pyvenv.cfg": "cfg", "venv/src/tool/.git/config": "SECRET",
    }.items():  # fmt: skip
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(f"{text}\n")
    (tmp_path / "outside" / "bin").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text("SECRET\n")
    return place


def run(
    root: Path,
    *command: str,
    denied: Sequence[str] = (),
    seconds: float = 60,
    wall: Step = Step.LANDLOCK,
) -> RunCommandResult:
    policy = Policy([Rule(do=Verdict.DENY, paths=tuple(denied))] if denied else [])

    def confined(opened: Root, program: Program) -> Ended:
        return run_program(opened, program, (0, 1), ProgramsUnderWay())

    with Root(root) as opened:
        may_read = READ_FILE.allowed_paths(policy)
        ground = ground_behind(wall, root.parent / "wall")
        return run_behind_wall(
            command,
            Surroundings(
                RootAccess(opened, may_read, ground=ground), Commands(seconds=seconds), (), confined
            ),
        )


def shell(root: Path, script: str, denied: Sequence[str] = (), wall: Step = Step.LANDLOCK) -> str:
    return run(root, "/bin/sh", "-c", script, denied=denied, wall=wall).stdout


@EACH_WALL
@pytest.mark.parametrize(
    ("script", "denied", "said"),
    [
        ("cat node_modules/ok/index.js node_modules/ok/deep/index.js", (), "ok\ndeep\n"),
        ("cat node_modules/.env; cat ROOT/node_modules/.env", (), ""),
        ("cat node_modules/pk/index.js node_modules/ok/index.js; ls node_modules/pk", ("node_modules/pk/",), "ok\n"),
        ("cat node_modules/ok/deep/index.js node_modules/ok/index.js", ("node_modules/ok/deep/**",), "ok\n"),
        ("ls node_modules; cat node_modules/ok/index.js", ("node_modules/**",), ""),
        ("cat node_modules/ok/index.js", ("*.js",), ""),
        ("cat venv/pyvenv.cfg venv/src/tool/.git/config", (), "cfg\n"),
    ],
)  # fmt: skip
def test_what_is_denied_in_packages_is_closed_and_the_rest_is_not(
    root: Path, script: str, denied: Sequence[str], said: str, walls: Sequence[Step]
) -> None:
    assert shell(root, script.replace("ROOT", str(root)), denied, walls[0]) == said


@EACH_WALL
def test_what_is_denied_is_in_packages_under_no_other_name(root: Path, walls: Sequence[Step]) -> None:
    (root / "keys").mkdir()
    (root / "keys" / "mine.txt").write_text("SECRET\n")
    for secret, name in (("node_modules/.env", "ok/env.js"), ("keys/mine.txt", "ok/deep/mine.js")):
        os.link(root / secret, root / "node_modules" / name)
    os.link(root / "venv" / "pyvenv.cfg", root / "node_modules" / "ok" / "cfg.js")
    os.link(root / "node_modules" / ".env", root / "venv" / "env.py")
    script = "cat node_modules/ok/*.js node_modules/ok/deep/mine.js venv/env.py"
    assert shell(root, script, ("keys/",), walls[0]) == "cfg\nok\n"


@EACH_WALL
def test_a_command_reads_no_secret_that_lies_beside_its_program(
    root: Path, walls: Sequence[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = root.parent / "home" / "src" / "tools"
    (tools / "bin").mkdir(parents=True)
    (tools / ".git").mkdir()
    for name in (".env", ".git/config", "it.txt"):
        (tools / name).write_text(f"{name}\n")
    (tools / "bin" / "tool").write_text('#!/bin/sh\nexec sh "$@"\n')
    (tools / "bin" / "tool").chmod(0o755)
    monkeypatch.setenv("HOME", str(root.parent / "home"))
    monkeypatch.setenv("PATH", f"{tools}/bin:{os.environ['PATH']}")
    script = f"cd {tools}; cat .env .git/config it.txt"
    assert run(root, "tool", "-c", script, wall=walls[0]).stdout == "it.txt\n"


@EACH_WALL
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a command as another user")
def test_single_packages_of_another_owner_are_seen(root: Path, walls: Sequence[Step]) -> None:
    for one in (root, *root.rglob("*")):
        os.chown(one, NOBODY, NOBODY)
    assert shell(root, "cat node_modules/ok/index.js", wall=walls[0]) == "ok\n"


@EACH_WALL
def test_a_command_that_uses_packages_has_changed_none(root: Path, walls: Sequence[Step]) -> None:
    assert run(root, "cat", "node_modules/ok/index.js", wall=walls[0]).changed == []


@EACH_WALL
def test_a_command_sees_names_that_are_not_utf8_but_for_secrets(root: Path, walls: Sequence[Step]) -> None:
    for name in (b"caf\xe9.txt", b"stra\xdfe/a.txt", b"stra\xdfe/.env", b"\xe9.pem"):
        path = root / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{path.name!a}\n")
    done = run(
        root,
        "/bin/sh",
        "-c",
        "cat caf*.txt stra*/*.txt *.pem stra*/.env; echo x | tee caf*.txt >/dev/null",
        wall=walls[0],
    )
    assert done.stdout == "'caf\\udce9.txt'\n'a.txt'\n"
    assert done.changed == ["caf\\xe9.txt"]


LISTED: Mapping[Step, Sequence[str]] = {
    Step.OVERLAY: ("ok\npk\n", "ok\ndeep\nindex.js\n", "deep\n"),
    Step.COPY: ("ok\npk\n", "ok\ndeep\nindex.js\n", ""),
    Step.LANDLOCK: (".env\nok\npk\n", "deep\nindex.js\n", ""),
}
"""The names that each wall tells: Landlock can only list a directory as a whole, or not at all."""


@EACH_WALL
def test_names_of_what_is_denied_in_packages_are_told_by_the_weakest_wall_alone(
    root: Path, walls: Sequence[Step]
) -> None:
    tried = (
        ("ls -A node_modules", ()),
        ("ls node_modules; ls node_modules/ok", ("/node_modules/pk",)),
        ("ls node_modules/ok", ("*.js",)),
    )
    assert tuple(shell(root, script, denied, walls[0]) for script, denied in tried) == LISTED[walls[0]]


@pytest.mark.parametrize("target", ["../outside", "OUTSIDE", "link", "venv"])
def test_a_link_in_place_of_packages_leads_nowhere(root: Path, target: str) -> None:
    (root / "link").symlink_to("../outside")
    (root / ".venv").symlink_to(target.replace("OUTSIDE", f"{root.parent}/outside"))
    assert shell(root, f"ls -A; cat .venv/secret {root}/.venv/secret") == "node_modules\nvenv\n"


def test_a_name_that_is_no_text_closes_nothing_but_its_file(root: Path) -> None:
    (root / "node_modules" / os.fsdecode(b"\xff.js")).write_text("SECRET")
    (root / "node_modules" / os.fsdecode(b"\xfe")).mkdir()
    said = shell(root, "cat node_modules/ok/index.js node_modules/*.js", ("node_modules/nothing",))
    assert said == "ok\n"


def test_a_link_that_is_made_after_the_look_leads_nowhere(root: Path) -> None:
    """The program starts later than the copy is made."""

    def confined(opened: Root, program: Program) -> Ended:
        (root / "node_modules" / "ok").rename(root / "node_modules" / "was")
        (root / "node_modules" / "ok").symlink_to(root.parent / "outside")
        return run_program(opened, program, (0, 1), ProgramsUnderWay())

    with Root(root) as opened:
        may_read = READ_FILE.allowed_paths(Policy())
        around = Surroundings(RootAccess(opened, may_read), Commands(), (), confined)
        assert run_behind_wall(["/bin/sh", "-c", "cat node_modules/ok/secret"], around).stdout == ""


@pytest.mark.proof
def test_a_real_virtual_environment_in_the_root_runs_its_own_tests(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")]
    subprocess.run(made, check=True, capture_output=True)
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    here = Path(pytest.__file__).parent.parent
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for place in (here / name, *here.glob(f"{name}-*.dist-info")):
            shutil.copytree(place, packages / place.name)
    shutil.copy(here / "py.py", packages)
    for name in ("certifi/own.pem", "certifi/cacert.pem", ".aws/credentials"):
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(f"{name}\n")
    script = root / ".venv" / "bin" / "pytest"
    script.write_text(f"#!{root}/.venv/bin/python\nimport sys, pytest\nsys.exit(pytest.main())\n")
    script.chmod(0o755)
    (root / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n    assert sys.prefix.endswith('.venv')\n"
    )
    monkeypatch.setenv("PATH", f"{root}/.venv/bin:{os.environ['PATH']}")  # as if it were activated
    for command in (["pytest"], [".venv/bin/pytest"], ["./.venv/bin/python", "-m", "pytest"]):
        ended = run(root, *command)
        assert "1 passed" in ended.stdout, ended
    assert shell(root, f"cat {packages}/certifi/* {packages}/.aws/*") == "certifi/cacert.pem\n", (
        "public certificates are no secret"
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_a_script_that_npm_has_linked_runs(root: Path) -> None:
    script = root / "node_modules" / "ok" / "cli.js"
    script.write_text("#!/usr/bin/env node\nconsole.log(require('other'))\n")
    script.chmod(0o755)
    (root / "node_modules" / ".bin").mkdir()
    (root / "node_modules" / ".bin" / "ok").symlink_to("../ok/cli.js")
    (root / "node_modules" / "other").mkdir()
    (root / "node_modules" / "other" / "index.js").write_text("module.exports = 'of another'\n")
    assert run(root, "node_modules/.bin/ok").stdout == "of another\n"
