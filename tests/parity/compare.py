"""Compare what a suite does outside and inside: the same project, made twice, test by test."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import JsonValue
from tests.parity.inside import run_inside
from tests.parity.projects import Project

from lcp_engine.core.programs.walls import Step

EXPECTED = Path(__file__).parent / "expected.toml"
MISSING = "missing"
SECONDS = 300


@dataclass(frozen=True)
class Outcomes:
    """The outcome of each test outside and inside, and what the engine says of the run inside."""

    outside: Mapping[str, str]
    inside: Mapping[str, str]
    said: str

    @property
    def differences(self) -> dict[str, tuple[str, str]]:
        """The tests whose outcomes differ, with both of them."""
        pairs = {
            name: (self.outside.get(name, MISSING), self.inside.get(name, MISSING))
            for name in {**self.outside, **self.inside}
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class Difference:
    """A difference that is known: a pattern of tests, and the steps of the wall at which they differ."""

    project: str
    tests: str
    at: Sequence[str]
    why: str
    of_root: bool = False
    """True if an ordinary user can do it nowhere."""

    def applies(self, project: str, wall: Step) -> bool:
        return self.project == project and wall in self.at and (os.geteuid() == 0 or not self.of_root)


def compare(project: Project, place: Path, wall: Step, command: Sequence[str] | None = None) -> Outcomes:
    """Run the suite of a project outside, and inside as a job of a mission; each has a project of its own."""
    words = [*(command or project.command)]
    outside = _outside(project, project.make(place / "outside"), words)
    root = project.make(place / "inside")
    result = run_inside(
        root, words, place / "lcp.db", wall, environment={**project.environment}, seconds=SECONDS
    )
    inside = project.outcomes(str(result.get("stdout", "")))
    return Outcomes(project.outcomes(outside), inside, _summary(result))


def known_differences() -> list[Difference]:
    return [Difference(**one) for one in tomllib.loads(EXPECTED.read_text())["difference"]]


def faults(project: str, wall: Step, found: Outcomes, known: Sequence[Difference]) -> Iterator[str]:
    """Differences that are not known, and those that are known and were not found."""
    applying = [one for one in known if one.applies(project, wall)]
    for name, (outside, inside) in found.differences.items():
        if not any(fnmatchcase(name, one.tests) for one in applying):
            yield f"{wall}: {project}: {name}: {outside} outside, {inside} inside"
    for one in applying:
        if not any(fnmatchcase(name, one.tests) for name in found.differences):
            yield f"{wall}: {project}: {one.tests}: is the same outside and inside; delete it from {EXPECTED.name}"
    if not found.outside:
        yield f"{project}: no test ran outside"


def _outside(project: Project, root: Path, words: Sequence[str]) -> str:
    program = str(root / words[0]) if "/" in words[0] else words[0]
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("LCP_", "PYTEST_", "GIT_"))
    }
    done = subprocess.run(
        [program, *words[1:]],
        cwd=root,
        env={**own, "LANG": "C.UTF-8", "NO_COLOR": "1", **project.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def _summary(result: Mapping[str, JsonValue]) -> str:
    """The end of a run inside, on one line."""
    told = [str(result.get("ended") or f"exit code {result.get('exit_code')}")]
    told += [str(result[key]) for key in ("verdict", "wall") if result.get(key)]
    return " ".join("; ".join([*told, str(result.get("stderr", ""))[-300:]]).split())
