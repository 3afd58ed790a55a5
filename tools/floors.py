"""Print the lowest version of each dependency that pyproject.toml allows, as requirements for pip-compile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
EXTRAS = ("postgres", "web", "llm")
REQUIREMENT = re.compile(r"(?P<name>[\w-]+(?:\[\w+\])?)>=(?P<floor>[\d.]+)(?:,<[\d.]+)?")


def floors(pyproject: Path) -> list[str]:
    """`name==version` for each dependency of the engine and of its extras. A dependency without a floor is an error."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    found = [REQUIREMENT.fullmatch(line) for line in lines]
    return (
        [f"{match['name']}=={match['floor']}" for match in found if match] if all(found) else _refuse(lines)
    )


def _refuse(lines: list[str]) -> list[str]:
    without = [line for line in lines if not REQUIREMENT.fullmatch(line)]
    raise SystemExit(f"expected NAME>=VERSION: {', '.join(without)}")


if __name__ == "__main__":
    print("\n".join(floors(PROJECT / "pyproject.toml")))
