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
from collections.abc import Callable, Mapping, Sequence

from tests.attack import (
    api,
    calls,
    chains,
    clients,
    commands,
    editors,
    health,
    models,
    outputs,
    page,
    racing,
    recipes,
    spellings,
)
from tests.ordinary_user import NOBODY, missing, run_as_ordinary_user

PARTS: Mapping[str, Callable[[float, int], bool]] = {
    "races": racing.attack,
    "page": page.attack,
    "api": api.attack,
    "clients": clients.attack,
    "editors": editors.attack,
    "health": health.attack,
    "spellings": spellings.attack,
    "recipes": recipes.attack,
    "outputs": outputs.attack,
    "models": models.attack,
    "commands": commands.attack,
    "calls": calls.attack,
    "chains": chains.attack,
}
"""Each is called with the seconds for one attack and a seed, prints what it counted, and returns whether all held."""
OF_PROGRAMS = ("commands", "calls", "chains")
"""What root tries again as an ordinary user, in a process of that user; the races do it by themselves."""


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
    again = [name for name in OF_PROGRAMS if not given.only or name in given.only]
    if again and missing() is None:
        held.append(_hold_for_an_ordinary_user(again, given.seed))
    return 0 if all(held) else 1


def _hold_for_an_ordinary_user(parts: Sequence[str], seed: int) -> bool:
    only = (word for part in parts for word in ("--only", part))
    done = run_as_ordinary_user("-m", "tests.attack", "--seed", str(seed), *only, seconds=1800)
    print(f"uid {NOBODY}:", *done.stdout.splitlines()[1:], sep="\n  ", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
