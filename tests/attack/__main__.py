"""Attack the engine as other programs, files, pages and servers could: `make attack`, `make races`.

Usage: python -m tests.attack [--seconds N] [--seed N] [--only PART]…

Ends with 1 when something leaked, was changed, hung, or was left open.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
from collections.abc import Callable, Mapping

from tests.attack import calls, chains, commands, models, outputs, page, racing, recipes, spellings

PARTS: Mapping[str, Callable[[float, int], bool]] = {
    "races": racing.attack,
    "page": page.attack,
    "spellings": spellings.attack,
    "recipes": recipes.attack,
    "outputs": outputs.attack,
    "models": models.attack,
    "commands": commands.attack,
    "calls": calls.attack,
    "chains": chains.attack,
}
"""Each is called with the seconds for one attack and a seed, prints what it counted, and returns whether all held."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack")
    parser.add_argument("--seconds", type=float, default=1, help="how long each attack lasts")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats an earlier run")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    given = parser.parse_args()
    random.seed(given.seed)
    print(f"seed {given.seed}, Linux {platform.release()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(
        prefix="lcp-attack-"
    ) as home:  # nothing is left where the user's files are
        os.environ.update({f"XDG_{name}_HOME": home for name in ("DATA", "CONFIG", "STATE", "CACHE")})
        held = [
            attack(given.seconds, given.seed)
            for name, attack in PARTS.items()
            if not given.only or name in given.only
        ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
