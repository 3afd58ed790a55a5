"""The missions that come with the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lcp_engine.core.mission.parse import Outline, outline_mission
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError

_PACKAGE = Path(__file__).parent
# The wheel has the missions in the package, a checkout at its top.
_PLACES = (_PACKAGE / "missions", _PACKAGE.parent.parent / "missions")


@dataclass(frozen=True)
class Offer:
    """A shipped mission that can be launched by its name."""

    name: str
    outline: Outline


def offers() -> list[Offer]:
    """Every shipped mission with its outline, by name."""
    found = shipped_missions().items()
    return [
        Offer(name, outline_mission(path.read_text(encoding="utf-8"), source=name)) for name, path in found
    ]


def shipped_missions() -> dict[str, Path]:
    """The file of every shipped mission by its name, which is the file's name without suffix."""
    place = next((place for place in _PLACES if place.is_dir()), None)
    return {path.stem: path for path in sorted(place.glob("*.yaml"))} if place else {}


def find_mission(name: str) -> Path:
    """The file of the shipped mission `name`. Raises `LcpError` (`NOT_FOUND`)."""
    missions = shipped_missions()
    if name not in missions:
        hint = nearest(name, list(missions))
        raise LcpError(ErrorCode.NOT_FOUND, f"mission: {name!r} is not a shipped mission; {hint}")
    return missions[name]
