"""Run the suite of each project outside and inside, and say where they differ: `make parity`.

`--table` writes the differences of the overlay into docs/commands.md instead.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.parity.compare import compare, faults, known_differences, table
from tests.parity.projects import PROJECTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "commands.md"
TABLE = re.compile(r"(?<=<!-- differences: python -m tests\.parity --table -->\n)(?:\|[^\n]*\n)*")


def with_table(page: str) -> str:
    """The page with the table in its place."""
    return TABLE.sub(lambda _: f"{table()}\n", page)


def main(given: list[str]) -> int:
    if given == ["--table"]:
        PAGE.write_text(with_table(PAGE.read_text()))
        return 0
    known, wrong = known_differences(), list[str]()
    for project in PROJECTS:
        if given and project.name not in given:
            continue
        if project.missing is not None:
            print(f"{project.name}: left out: {project.missing} is not installed")
            continue
        with TemporaryDirectory(prefix="lcp-parity-") as place:
            found = compare(project, Path(place))
        differing = found.differences
        print(
            f"{project.name}: {len(found.outside)} tests, {len(differing)} differ{': ' if differing else ''}",
            end="",
        )
        print(found.said if differing else "", flush=True)
        for name, (outside, inside) in differing.items():
            print(f"    {name}: {outside} outside, {inside} inside")
        wrong += faults(project.name, found, known)
    print(
        "\n".join(["not as stated in expected.toml:", *wrong]) if wrong else "every difference is known",
        file=sys.stderr if wrong else sys.stdout,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
