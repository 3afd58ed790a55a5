"""Caches that programs of a mission write in their home and over those of this user, and their parts of its layer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from lcp_engine.features.programs.wall.layers.trail import DIRECTORY, Trail
from lcp_engine.features.programs.wall.layers.upper import Act, Move
from lcp_engine.features.programs.wall.views.covers import Base, Bases
from lcp_engine.sandbox.directories import status_of

ROOT, HOME_PART = "root", "home"
"""Parts of a layer: what lies over the root, and the caches of the home. Others have the names of their places."""
IN_HOME = (
    ".bun/install/cache", ".cabal/packages", ".cabal/store", ".cache", ".cargo/git", ".cargo/registry", ".ccache",
    ".composer/cache", ".conan2/p", ".elm", ".gradle/caches", ".gradle/jdks", ".gradle/native", ".gradle/wrapper",
    ".hex/packages", ".ivy2/cache", ".julia/artifacts", ".julia/compiled", ".julia/packages", ".julia/registries",
    ".local/share/NuGet", ".local/share/pnpm/store", ".local/state/cabal/store", ".m2/repository", ".m2/wrapper",
    ".npm/_cacache", ".nuget/packages", ".pub-cache", ".sbt/boot", ".stack", ".yarn/berry/cache", "go/pkg/mod",
)  # fmt: skip
"""Places of the home that are caches. Nothing else of it is there for later programs, such as settings."""
_LONGEST_NAME = 255


def part_of(place: str) -> str:
    """Name of the part of a layer that lies over a cache of this user."""
    name = quote(place, safe="")
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(os.fsencode(place)).hexdigest()


def bases_of(root: Base, *directories: Path) -> Bases:
    """Bases of all parts that the directories have."""
    found = {name: unquote(name) for one in directories for name in os.listdir(one)}
    shown = {name: Base(place) for name, place in found.items() if place[0] == "/" and os.path.isdir(place)}
    return Bases({ROOT: root, **shown})


def written_caches(up: Path) -> Iterator[Move]:
    """Moves of all that a program wrote into caches, by the upper directories of its parts. Links are not followed."""
    top = os.open(up, DIRECTORY)
    try:
        with Trail(top) as trail:
            paths = [f"{HOME_PART}/{place}" for place in IN_HOME]
            paths += [name for name in os.listdir(top) if name not in {ROOT, HOME_PART}]
            for path in paths:
                at = path.rfind("/") + 1
                with suppress(OSError):
                    if status_of(trail.open(path[:at]), path[at:]) is not None:
                        yield Move(path, Act.MOVE)
    finally:
        os.close(top)
