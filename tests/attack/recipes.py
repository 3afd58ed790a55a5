"""Attack the recipes of docs/policy.md as a planner could, and count what was read or changed against a rule."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.api.test_policy_page import RECIPES, got_through


def attack(seconds: float, seed: int) -> bool:
    """Each recipe once, in a root and in a stage."""
    through = 0
    for title, rules, rows in RECIPES:
        for stage in (False, True):
            with tempfile.TemporaryDirectory(prefix="lcp-recipe-") as place:
                found = got_through(Path(place), title, rules, rows, stage=stage)
            through += len(found)
            for path in found:
                print(f"recipes: {title!r}{' in a stage' if stage else ''}: {path} got through")
    print(f"recipes: {len(RECIPES)} recipes, in a root and in a stage: {through} paths got through")
    return through == 0
