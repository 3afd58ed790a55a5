"""Name the engine's own places, which no job may touch wherever they are: configuration can run commands."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

APP = "lcp-engine"
CONFIGURATION = "config.yaml"
_MORE: dict[str, None] = {}


def make_private(directory: Path) -> None:
    """Make a directory, and those missing above it, for this user alone whatever the umask is. Raises `OSError`."""
    for part in reversed(directory.parents):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def protect(place: Path) -> None:
    """Make a file one of the engine's own in this process, with what a link at its path leads to."""
    _MORE.update(dict.fromkeys((os.path.abspath(place), os.path.realpath(place))))


def own_places() -> tuple[str, ...]:
    """The engine's directories, the configuration that a link leads to, and what is protected. Some may not exist."""
    from platformdirs import user_config_path

    configuration = os.path.realpath(user_config_path(APP) / CONFIGURATION)
    return tuple(dict.fromkeys((*own_directories(), configuration, *_MORE)))


def own_directories() -> tuple[str, ...]:
    """The directories of this user's configuration, data, state and cache, with links resolved."""
    from platformdirs import user_cache_path, user_config_path, user_data_path, user_state_path

    places = (user_config_path, user_data_path, user_state_path, user_cache_path)
    return tuple(os.path.realpath(place(APP)) for place in places)


def beneath(places: Iterable[str], root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Those of `places` that lie in `root`, relative to it; "" for one that `root` itself lies in."""
    directory = Path(root)
    inside = []
    for place in places:
        if directory.is_relative_to(place):
            inside.append("")
        elif Path(place).is_relative_to(directory):
            inside.append(str(Path(place).relative_to(directory)))
    return tuple(inside)
