"""Show in a stage the directories that it was made without, those that git ignores: installed packages, for instance.

An overlay has the root itself below the stage; between the two, whiteouts hide all of the root but these directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lcp_engine.sandbox.root import Root
from lcp_engine.wall.covers import names_by_directory
from lcp_engine.wall.installed_packages import SHARED
from lcp_engine.wall.masks import Tree, digest, kept_layer, mode_of
from lcp_engine.wall.trail import Trail


def keep_ignored(stage: Path, directories: Iterable[str]) -> None:
    """Store beside a stage which directories of the root it was made without. Raises OSError."""
    _list_of(stage).write_bytes(b"\0".join(map(os.fsencode, sorted(directories))))


def forget_ignored(stage: Path) -> None:
    """Remove what `keep_ignored` stored. Raises OSError."""
    _list_of(stage).unlink(missing_ok=True)


def shown_in(stage: Root, root: Root) -> tuple[str, ...]:
    """The directories of a root that its stage was made without, where both have the directory around them."""
    try:
        stored = _list_of(Path(stage.path)).read_bytes()
    except FileNotFoundError:
        stored = _listed_by_links(stage)
    with Trail(stage.descriptor) as above, Trail(root.descriptor) as below:
        return tuple(
            path
            for path in map(os.fsdecode, filter(None, stored.split(b"\0")))
            if above.has(path[: path.rfind("/") + 1]) and below.has(f"{path}/")
        )


def _listed_by_links(stage: Root) -> bytes:
    """The list of a stage of version 0.2, which has links to packages in their place: they give way to it."""
    leads_to = {name: f"{stage.copy_of}/{name}" for name in SHARED}
    links = list[str]()
    for name, place in leads_to.items():
        with suppress(OSError):
            if os.readlink(name, dir_fd=stage.descriptor) == place:
                links.append(name)
    keep_ignored(Path(stage.path), links)
    for name in links:
        os.unlink(name, dir_fd=stage.descriptor)
    return b"\0".join(map(os.fsencode, links))


def _list_of(stage: Path) -> Path:
    return stage.parent.parent / f".ignored-{stage.name}"


@contextmanager
def hidden_but(shown: Sequence[str], root: Root, place: Path) -> Iterator[str]:
    """A layer that hides all that a root has but the directories `shown`; `place` is kept. Raises OSError."""
    place.mkdir(mode=0o700, exist_ok=True)
    tree = _whiteouts_around(shown, root)
    with kept_layer(place, digest(tree), lambda: tree) as directory:
        yield directory


def _whiteouts_around(shown: Sequence[str], root: Root) -> Tree:
    tree: Tree = {}
    with Trail(root.descriptor) as trail:
        for above, names in names_by_directory(shown).items():
            tree[above.rstrip("/")] = mode_of(root, above.rstrip("/"))
            tree |= {f"{above}{name}": None for name in os.listdir(trail.open(above)) if name not in names}
    return tree
