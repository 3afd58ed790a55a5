"""Define what a planner finds where it runs: what the user has set for it, and what is known of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from lcp_engine.planners.base import Planner


class Probes(Protocol):
    """What planners have found out about models, kept for later processes. No method raises."""

    def find(self, endpoint: str, model: str, /) -> str | None: ...

    def keep(self, endpoint: str, model: str, found: str, /) -> None: ...

    def forget(self, endpoint: str, model: str, /) -> None: ...


class NoProbes:
    """Probes of nobody: nothing is known and nothing is kept."""

    def find(self, endpoint: str, model: str, /) -> str | None:
        return None

    def keep(self, endpoint: str, model: str, found: str, /) -> None:
        """Nothing is kept."""

    def forget(self, endpoint: str, model: str, /) -> None:
        """There is nothing to forget."""


@dataclass(frozen=True)
class Surroundings:
    """`options` are those of the user's configuration, by the type of planner; a mission's own count before them."""

    options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    probes: Probes = field(default_factory=NoProbes)


NOWHERE = Surroundings()


@runtime_checkable
class AsksModel(Protocol):
    """A planner whose questions cost tokens."""

    def most_tokens(self) -> int | None:
        """The most that one attempt at a question takes, prompt and reply; None where only the server knows."""


@runtime_checkable
class Placeable(Protocol):
    """A planner that looks around before it answers: the mission's options are its own, all others it looks up."""

    def placed(self, surroundings: Surroundings, /) -> Planner:
        """The planner that answers. Raises `INVALID_ARGUMENT` for what the user has set and cannot be used."""
