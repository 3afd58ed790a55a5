"""Show a program the root of its mission behind the strongest wall that there is: itself, or a copy of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lcp_engine.core.programs.walls import Step
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap
from lcp_engine.features.programs.wall.layers.working_copy import WorkingCopy, working_copy
from lcp_engine.features.programs.wall.steps import Found
from lcp_engine.features.programs.wall.toolchains import Toolchain
from lcp_engine.features.programs.wall.views.masks import Rights
from lcp_engine.features.programs.wall.views.shown_directories import SHARED
from lcp_engine.features.programs.wall.views.view import HOME, Bind, View
from lcp_engine.features.programs.wall.workspace import Ground, Workspace, owner_of, workspace
from lcp_engine.sandbox.root import Root, refusal

ON_A_COPY = "this machine can only run it on a copy, of which nothing is kept"


@dataclass(frozen=True)
class RootAccess:
    """A root, and what a program may see of it.

    `may_read` says which of its files may be copied, `rights` which paths are seen where the root itself is seen; by
    default the same. `ground` is where the wall keeps what it needs; without it, a copy is made.
    """

    root: Root
    may_read: Callable[[str], bool]
    rights: Rights | None = None
    ground: Ground | None = None


@dataclass(frozen=True)
class SeenRoot:
    """The root as a program sees it: it begins at `directory`, and finds what is written in `home` at `home_path`.

    It is a `copy`, or the root itself, over which `place` is.
    """

    directory: str
    home: Path
    home_path: str
    copy: WorkingCopy | None = None
    place: Workspace | None = None
    view: View | None = None
    tool: Bubblewrap | None = None
    owned: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()

    def with_toolchain(self, toolchain: Toolchain, *, is_host: bool) -> View | None:
        """The view with a toolchain, whose caches can be written if that is possible."""
        if self.view is None:
            return None
        view = replace(self.view, binds=(*self.view.binds, *toolchain.binds()), host_network=is_host)
        if self.place is None:
            return view
        return replace(view, overlays=(*view.overlays, *map(self.place.overlay_of_cache, toolchain.caches)))

    def hidden(self, places: Sequence[str]) -> list[str]:
        """Those of the places that are hidden from it: all but the root where it is seen."""
        return [one for one in places if self.view is None or one != self.directory]

    @property
    def step(self) -> Step:
        """The wall that it is seen behind."""
        if self.place is not None:
            return Step.OVERLAY
        return Step.LANDLOCK if self.view is None else Step.COPY

    @property
    def without_git(self) -> str:
        """Reason why the repository of the root is not seen; empty if it is, there is none, or this is a copy."""
        return "" if self.place is None else self.place.without_git

    def told(self, text: str) -> str:
        """Output of a program with paths of a copy that lies elsewhere as they are called in the root."""
        return text if self.copy is None or self.view is not None else self.copy.told(text)

    @property
    def masked(self) -> list[str]:
        """Paths of the root that are hidden from it, sorted, as far as they were counted."""
        if self.place is not None:
            return sorted(self.place.masks.masked)
        return [] if self.copy is None else sorted(self.copy.masked)


@contextmanager
def seen_root(access: RootAccess, name: str) -> Iterator[SeenRoot]:
    """The root for a program that people call `name`; what it changes is gone at the end, unless it was kept.

    Raises `NOT_ISOLATED`, `TOO_LARGE`, `FILE_SYSTEM`, and what `workspace` raises.
    """
    ground = access.ground
    if ground is not None and ground.found.step is Step.NONE:
        raise _not_confined(name, ground)
    directory = tempfile.gettempdir()
    try:
        if ground is None or ground.found.step is not Step.OVERLAY:
            is_shown = ground is not None and ground.found.step is Step.COPY
            owner = owner_of(access.root) if is_shown else None
            with working_copy(access.root, access.may_read, owner) as copy:
                yield _elsewhere(copy) if ground is None else _of_copy(copy, access.root, ground.found, owner)
            return
        directory = str(ground.directory)
        with workspace(access.root, ground, access.rights or Rights(access.may_read, "")) as place:
            made = place.made
            yield SeenRoot(made.path, made.home, HOME, place=place, view=place.view, tool=ground.found.tool)
    except OSError as error:
        raise refusal(error, directory) from error


def _not_confined(name: str, ground: Ground) -> LcpError:
    message = f"{name} cannot be confined: {'; '.join(ground.found.reasons)}"
    advice = ground.found.advice or "Name a wall that holds here in commands_wall (docs/commands.md)."
    return LcpError(ErrorCode.NOT_ISOLATED, message, advice=advice)


def _elsewhere(copy: WorkingCopy) -> SeenRoot:
    """The copy where it lies, for Landlock alone."""
    files, home = str(copy.files), str(copy.home)
    return SeenRoot(
        files, copy.home, home, copy, owned=(files, home), packages=copy.shared, listed=copy.listed
    )


def _of_copy(copy: WorkingCopy, root: Root, found: Found, owner: tuple[int, int] | None) -> SeenRoot:
    """The copy at the path of the root, with the packages of the root, if there are namespaces for it."""
    if found.step is not Step.COPY:
        return _elsewhere(copy)
    path = root.copy_of or root.path
    packages = {one: one.removeprefix(f"{root.path}/").removeprefix(f"{path}/") for one in copy.shared}
    for name in SHARED:
        if (copy.files / name).is_symlink():
            made = copy.make_room_for(name, packages.values())
            if owner is not None:
                os.chown(made, *owner)  # places of single packages are made in it
    binds = [Bind(str(copy.files), path, writable=True), Bind(str(copy.home), HOME, writable=True)]
    binds += [Bind(one, f"{path}/{inner}", is_link_refused=True) for one, inner in packages.items()]
    return SeenRoot(path, copy.home, HOME, copy, view=View(binds=binds, user=owner), tool=found.tool)
