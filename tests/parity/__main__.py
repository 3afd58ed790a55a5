"""Run the suite of each project outside and behind each wall, and say where they differ: `make parity`.

Usage: python -m tests.parity [WALL | PROJECT]… | --table

`--table` writes the table of the walls into docs/isolation.md instead.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.parity.compare import compare, faults, known_differences
from tests.parity.projects import PROJECTS, Project
from tests.parity.walls import table
from tests.walls import missing

from lcp_engine.core.programs.walls import WALLS, Step

PAGE = Path(__file__).parent.parent.parent / "docs" / "isolation.md"
TABLE = re.compile(r"(?<=<!-- walls: python -m tests\.parity --table -->\n)(?:\|[^\n]*\n)*")


def with_table(page: str) -> str:
    """The page with the table in its place."""
    return TABLE.sub(lambda _: f"{table()}\n", page)


def main(given: list[str]) -> int:
    if given == ["--table"]:
        PAGE.write_text(with_table(PAGE.read_text()))
        return 0
    names = {project.name for project in PROJECTS}
    if unknown := [one for one in given if one not in (*WALLS, *names)]:
        print(f"{', '.join(unknown)}: neither a wall nor a project", file=sys.stderr)
        return 2
    wrong = list[str]()
    for wall in [step for step in WALLS if step in given] or WALLS:
        if (why := missing(wall)) is not None:
            print(f"{wall}: left out: {why}")
            continue
        for project in PROJECTS:
            if names.isdisjoint(given) or project.name in given:
                wrong += _compared(project, wall)
    print(
        "\n".join(["not as stated in expected.toml:", *wrong]) if wrong else "every difference is known",
        file=sys.stderr if wrong else sys.stdout,
    )
    return 1 if wrong else 0


def _compared(project: Project, wall: Step) -> list[str]:
    """Print what one project does behind a wall; returns what is not as stated."""
    title = f"{wall}: {project.name}"
    if project.missing is not None:
        print(f"{title}: left out: {project.missing} is not installed")
        return []
    with TemporaryDirectory(prefix="lcp-parity-") as place:
        found = compare(project, Path(place), wall)
    differing = found.differences
    told = f": {found.said}" if differing else ""
    print(f"{title}: {len(found.outside)} tests, {len(differing)} differ{told}", flush=True)
    for name, (outside, inside) in differing.items():
        print(f"    {name}: {outside} outside, {inside} inside")
    return [*faults(project.name, wall, found, known_differences())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
