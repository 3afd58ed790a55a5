"""Show in a stage the directories that it was made without, those that git ignores: installed packages, for instance.

An overlay has the root itself below the stage; between the two, whiteouts hide all of the root but these directories.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.features.programs.wall.layers.trail import Trail
from lcp_engine.features.programs.wall.views.covers import names_by_directory
from lcp_engine.features.programs.wall.views.masks import Tree, digest, kept_layer, mode_of
from lcp_engine.sandbox.root import Root

SHARED = ("node_modules", ".venv", "venv")
"""Directories of installed packages: a copy leads to those of the root, which can be read and executed."""


@dataclass(frozen=True)
class Shown:
    """The `directories` of a root that a stage shows, and the files in them that it has itself."""

    directories: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


def keep_ignored(stage: Path, shown: Shown) -> None:
    """Store beside a stage which directories of the root it was made without. Raises OSError."""
    text = json.dumps([shown.directories, shown.copied])
    _list_of(stage).write_text(text, encoding="ascii")


def forget_ignored(stage: Path) -> None:
    """Remove what `keep_ignored` stored. Raises OSError."""
    _list_of(stage).unlink(missing_ok=True)


def shown_in(stage: Root, root: Root) -> Shown:
    """The directories of a root that its stage was made without, where both have the directory around them."""
    try:
        directories, copied = _stored(_list_of(Path(stage.path)).read_bytes())
    except FileNotFoundError:
        directories, copied = _listed_by_links(stage), []
    with Trail(stage.descriptor) as above, Trail(root.descriptor) as below:
        shown = [
            path for path in directories if above.has(path[: path.rfind("/") + 1]) and below.has(f"{path}/")
        ]
    beneath = tuple(f"{path}/" for path in shown)
    return Shown(tuple(shown), tuple(path for path in copied if path.startswith(beneath)))


def _stored(text: bytes) -> list[list[str]]:
    if not text.startswith(b"[["):  # of an earlier commit: names of directories, separated by NUL
        return [[os.fsdecode(path) for path in text.split(b"\0") if path], []]
    stored: list[list[str]] = json.loads(text)
    return stored


def _listed_by_links(stage: Root) -> list[str]:
    """The list of a stage of version 0.2, which has links to packages in their place: they give way to it."""
    links = list[str]()
    for name in SHARED:
        with suppress(OSError):
            if os.readlink(name, dir_fd=stage.descriptor) == f"{stage.copy_of}/{name}":
                links.append(name)
    keep_ignored(Path(stage.path), Shown(tuple(links)))
    for name in links:
        os.unlink(name, dir_fd=stage.descriptor)
    return links


def _list_of(stage: Path) -> Path:
    return stage.parent.parent / f".ignored-{stage.name}"


@contextmanager
def hidden_but(shown: Shown, root: Root, place: Path) -> Iterator[str]:
    """A layer that hides all of a root but what its stage shows; `place` is kept. Raises OSError."""
    place.mkdir(mode=0o700, exist_ok=True)
    tree = _whiteouts_around(shown, root)
    with kept_layer(place, digest(tree), lambda: tree) as directory:
        yield directory


def _whiteouts_around(shown: Shown, root: Root) -> Tree:
    tree: Tree = {}
    with Trail(root.descriptor) as trail:
        for above, names in names_by_directory(shown.directories).items():
            tree[above.rstrip("/")] = mode_of(root, above.rstrip("/"))
            tree |= {f"{above}{name}": None for name in os.listdir(trail.open(above)) if name not in names}
    for above in names_by_directory(shown.copied):
        tree.setdefault(above.rstrip("/"), mode_of(root, above.rstrip("/")))
    return tree | dict.fromkeys(shown.copied)
