"""Describe what a program sees at the path of a root, and where its changes of it are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

HOME = "/home/lcp"
"""Where a program in namespaces finds its home directory."""


@dataclass(frozen=True)
class Overlay:
    """Directories that lie above each other and are seen as one at `path`, which is absolute.

    `lower` are the directories from the lowest to the highest; none of them is changed. What is written goes into
    `upper`, which is empty at first and belongs to one program alone; `work` is an empty directory on the same file
    system, for the kernel. Without `upper` the overlay is read only.
    """

    path: str
    lower: Sequence[str]
    upper: str = ""
    work: str = ""
    expected: tuple[int, int] | None = None
    """Device and inode of the lowest directory: another one in its place is not mounted."""


@dataclass(frozen=True)
class Bind:
    """A file or directory `source` that is seen at `path`, read only unless `writable`."""

    source: str
    path: str
    writable: bool = False
    is_link_refused: bool = False
    """True for one that is left out if its path passes a link by now."""


@dataclass(frozen=True)
class View:
    """Everything that a program sees besides the system.

    An overlay or bind within another one comes after it. Where overlays are refused, `binds` has a copy of the root,
    writable, at the path of the root, and there are no `overlays`.
    """

    overlays: Sequence[Overlay] = ()
    binds: Sequence[Bind] = ()
    user: tuple[int, int] | None = None
    """User and group that it runs as, if this process is root: the owner of the root."""
    host_network: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that what is bound needs."""
