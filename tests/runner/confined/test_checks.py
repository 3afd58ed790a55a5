"""Acceptance checks run in a process of their own: what a planner wrote cannot take a runner's time or memory (R9)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.patience import wait_until
from tests.runner.confined.conftest import CAPS, HERE

from lcp_engine.api.engine import Engine
from lcp_engine.core.mission.accept import AcceptCheck
from lcp_engine.runner import executor
from lcp_engine.runner.confined.checks import LIMITS, CheckLimits, Checks
from lcp_engine.runner.confined.process import FILE_KINDS, Spawner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation

QUICK = CheckLimits(seconds=1.5, seconds_together=60.0, memory=256 * 1024 * 1024)
HASTY = replace(QUICK, seconds=0.4)
"""For what takes longer than either."""
WAYS = [
    pytest.param(True, id="confined"),
    pytest.param(False, id="limited only", marks=pytest.mark.proof),
]
"""In a confined process, and where the kernel cannot confine one."""
DEPTHS = (50, 900, 5_000, 200_000)
MERGES = "".join(
    ["a0: &a0 {x: 1}\n", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))]
)
LONG: dict[str, Callable[[], str]] = {
    "merges.yaml": lambda: MERGES,
    "flow.yaml": lambda: "[" + "a, " * 3_000_000 + "a]",
    "dots.toml": lambda: "a" + ".a" * 50_000 + " = 1\n",
    "nested.yaml": lambda: "[" * 5_000 + "]" * 5_000,
    "more nested.yaml": lambda: "[" * 200_000 + "]" * 200_000,
}
LARGE: dict[str, Callable[[], str]] = {
    "lines.py": lambda: "a=1\n" * 2_600_000,
    "list.py": lambda: "a = [" + "1," * 5_000_000 + "]\n",
}


@pytest.fixture(params=WAYS)
def checks(request: pytest.FixtureRequest, root: Root) -> Iterator[Checks]:
    with Checks(root, Setup(CAPS), confined=request.param, limits=QUICK) as opened:
        yield opened


@pytest.fixture(params=WAYS)
def hasty_checks(request: pytest.FixtureRequest, root: Root) -> Iterator[Checks]:
    with Checks(root, Setup(CAPS), confined=request.param, limits=HASTY) as opened:
        yield opened


def parses(*paths: str) -> list[AcceptCheck]:
    return [AcceptCheck(file_parses=path) for path in paths]


@pytest.mark.parametrize("name", LONG)
def test_what_takes_too_long_to_parse_fails_the_check_in_words(
    hasty_checks: Checks, place: Path, name: str
) -> None:
    (place / name).write_text(LONG[name]())
    fact = fact_about(hasty_checks, name)
    assert fact.endswith("it took more than 0.4 s; a check may take 0.4 s and 256 MiB of memory")


@pytest.mark.parametrize("name", LARGE)
def test_what_takes_too_much_to_parse_fails_the_check_in_words(
    checks: Checks, place: Path, name: str
) -> None:
    (place / name).write_text(LARGE[name]())
    fact = fact_about(checks, name)
    assert "a check may take 1.5 s and 256 MiB of memory" in fact or "too large" in fact


def fact_about(checks: Checks, name: str) -> str:
    """Why a file does not parse, which costs the runner itself no memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (failed,) = checks.failed(parses(name))
    assert failed.fact.startswith(f"the file {name} parses: it ")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024, "KiB of the runner"
    return failed.fact


def test_the_other_checks_run_all_the_same(checks: Checks, place: Path) -> None:
    (place / "bomb.yaml").write_text(MERGES)
    (place / "good.json").write_text("[1]")
    (place / "bad.json").write_text("[1")
    failed = checks.failed(parses("good.json", "bomb.yaml", "bad.json", "good.json"))
    assert [one.check for one in failed] == [1, 2]
    assert "it does not parse" in failed[1].fact


def test_all_checks_together_have_a_limit(root: Root, place: Path) -> None:
    (place / "bomb.yaml").write_text(MERGES)
    (place / "good.json").write_text("[1]")
    limits = CheckLimits(seconds=0.3, seconds_together=0.2)
    with Checks(root, Setup(CAPS), confined=True, limits=limits) as checks:
        failed = checks.failed(parses("bomb.yaml", "good.json"))
    assert "it took more than 0.3 s" in failed[0].fact
    assert "it was not run: the checks before it took 0.2 s" in failed[1].fact


def test_quotations_without_number_are_limited_too(hasty_checks: Checks, place: Path) -> None:
    (place / "src" / "a.py").write_text("".join(f"x = {n}  # TODO {n}\n" for n in range(20_000)))
    (place / "q.md").write_text("".join(f"- src/a.py: {n} TODO\n" for n in range(80_000)))
    check = {"file_quotes": {"path": "q.md", "files": "src/*.py", "pattern": "TODO"}}
    (failed,) = hasty_checks.failed([AcceptCheck.model_validate(check)])
    assert "it took more than 0.4 s" in failed.fact


@pytest.mark.parametrize(
    ("name", "opens", "closes", "depth"),
    [
        *(("a.json", "[", "]", depth) for depth in DEPTHS),
        *(("a.py", "(", ")", depth) for depth in DEPTHS),
        *(("a.yaml", "[", "]", depth) for depth in DEPTHS[:2]),  # deeper ones take too long
        *(("b.py", "-", "1", depth) for depth in DEPTHS),
    ],
)
def test_deep_nesting_is_named(  # noqa: PLR0917 - a table has as many columns as it has
    checks: Checks, place: Path, name: str, opens: str, closes: str, depth: int
) -> None:
    (place / name).write_text(opens * depth + (closes * depth if closes in ")]" else closes))
    failed = checks.failed(parses(name))
    assert depth == 50 or not failed or "parse" in failed[0].fact
    assert not failed or "ended the process" not in failed[0].fact


def test_a_mission_goes_on_after_a_bomb(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner is told, mends the file, and is done."""
    assert LIMITS.sentence == "a check may take 10 s and 1,024 MiB of memory"
    monkeypatch.setattr(executor, "Checks", partial(Checks, limits=replace(LIMITS, seconds=2.0)))
    policy: JsonValue = [{"kinds": ["write_file"], "do": "auto"}]
    bomb: JsonValue = {
        "kind": "write_file",
        "params": {"rel_path": "a.toml", "content": "a" + ".a" * 50_000 + " = 1\n"},
    }
    good: JsonValue = {"kind": "write_file", "params": {"rel_path": "a.toml", "content": "a = 1\n"}}
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    asked: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [one]} for one in (bomb, good)
    ]
    spec: dict[str, JsonValue] = {
        "name": "m", "goal": "g", "policy": policy, "accept": [{"file_parses": "a.toml"}],
        "planner": {"type": "script", "replies": [asked[0], done, asked[1], done]},
    }  # fmt: skip
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", isolation=Isolation.AUTO) as engine:
        mission = engine.launch(spec, root=place).id
        engine.work(until_idle=True)
        assert engine.mission(mission).status == "completed"
        said = json.dumps([*engine.events(mission_id=mission)], default=str)
        assert "; a check may take 2 s and 1,024 MiB of memory" in said


@pytest.mark.parametrize("confined", WAYS)
def test_a_check_with_a_path_bug_sees_nothing_outside(root: Root, place: Path, *, confined: bool) -> None:
    (place / "l").symlink_to(place.parent / "outside" / "secret.txt")
    stated: list[JsonValue] = [
        {"file_exists": "l"},
        {"file_matches": {"path": "l", "pattern": "CAN.RY"}},
        {"file_parses": "l"},
    ]
    spawner = Spawner({**FILE_KINDS, "bug": "path_bug:WORKER"}, [str(HERE)])
    try:
        with Checks(root, Setup(CAPS), confined=confined, spawned_by=spawner) as checks:
            failed = checks.failed([AcceptCheck.model_validate(one) for one in stated])
    finally:
        spawner.close()
    assert len(failed) == (len(stated) if confined else 0), "without walls the bug is real"


def test_checks_run_where_the_kernel_has_no_pidfd(root: Root, place: Path) -> None:
    (place / "bomb.yaml").write_text(MERGES)
    (place / "good.json").write_text("[1]")
    spawner = Spawner({**FILE_KINDS, "none": "no_pidfd:WORKER"}, [str(HERE)])
    try:
        with Checks(root, Setup(CAPS), confined=False, limits=QUICK, spawned_by=spawner) as checks:
            failed = checks.failed(parses("good.json", "bomb.yaml", "good.json"))
            assert [one.check for one in failed] == [1]
            server = spawner._process
        assert server is not None
        pid = server.pid
        wait_until(lambda: not children_of(pid), "the process that parsed the bomb has not ended")
    finally:
        spawner.close()


def children_of(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


CHECKS = """
import sys
from lcp_engine import Engine
from lcp_engine.sandbox.system.landlock import Isolation
accept = [
    {"file_exists": "a.txt"},
    {"file_matches": {"path": "a.yaml", "pattern": "a: [1]"}},
    *({"file_parses": f"a.{ending}"} for ending in ("yaml", "json", "toml", "py", "txt")),
    {"file_quotes": {"path": "a.md", "files": "[a-z].py", "pattern": "a = "}},
]
spec = {
    "name": "m", "goal": "g", "accept": accept,
    "planner": {"type": "script", "replies": [{"ok": True, "action": "mission_complete", "summary": "done"}]},
}
with Engine(sys.argv[1], isolation=Isolation.REQUIRE) as engine:
    mission = engine.launch(spec, root=sys.argv[2])
    engine.work(until_idle=True)
    print(engine.mission(mission.id).json)
"""


def test_all_that_checks_need_is_loaded_before_its_process_is_confined(tmp_path: Path, place: Path) -> None:
    texts = {"yaml": "a: 1\n", "json": "[1]", "toml": "a = 1\n", "py": "a = 1\n", "md": "- a.py: a = 1\n"}
    for ending, text in texts.items():
        (place / f"a.{ending}").write_text(text)
    command = [sys.executable, "-c", CHECKS, f"sqlite:///{tmp_path / 'lcp.db'}", str(place)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "'status': 'completed'" in said, said
