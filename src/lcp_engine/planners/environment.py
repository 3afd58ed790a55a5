"""Environment that a planner is made with: the user's options for it, and what is known about endpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from pydantic import JsonValue

from lcp_engine.core.limits.permits import Limit
from lcp_engine.core.limits.prices import Prices
from lcp_engine.core.mission.spec import Limits
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import MAX_WAIT, Planner

Factory: TypeAlias = Callable[..., Planner]


class ProbeCache(Protocol):
    """Findings of planners about the models at endpoints, as text. No method raises."""

    def find(self, endpoint: str, model: str, /) -> str | None: ...

    def store(self, endpoint: str, model: str, found: str, /) -> None: ...

    def forget(self, endpoint: str, model: str, /) -> None: ...


class Drafts(Protocol):
    """Replies while they are written, for people to see. No method raises."""

    def keep(self, mission_id: int, number: int, said: str, /) -> None:
        """Show the end of what was written so far of the reply to a question. Returns at once."""

    def drop(self, mission_id: int, number: int, /) -> None:
        """Show nothing of it any more."""


class MemoryProbeCache:
    """A `ProbeCache` that lives as long as the process; usable from any thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def find(self, endpoint: str, model: str, /) -> str | None:
        with self._lock:
            return self._found.get((endpoint, model))

    def store(self, endpoint: str, model: str, found: str, /) -> None:
        with self._lock:
            self._found[endpoint, model] = found

    def forget(self, endpoint: str, model: str, /) -> None:
        with self._lock:
            self._found.pop((endpoint, model), None)

    def everything(self) -> dict[tuple[str, str], str]:
        """A copy of what is known, by endpoint and model."""
        with self._lock:
            return dict(self._found)


@dataclass(frozen=True)
class PlannerEnvironment:
    """Environment that planners are made with."""

    options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """The options of the user's configuration by type of planner; those of a mission come before them."""
    probes: ProbeCache = field(default_factory=MemoryProbeCache)
    """What is known about endpoints beyond this process."""
    prices: Prices | None = None
    """What models cost, by the user's configuration."""
    own: Mapping[str, Planner | Factory] = field(default_factory=dict)
    """The planners of this process by name, or what makes them: of the program, or of a file of the operator."""
    drafts: Drafts | None = None
    """Takes what a planner has written of a reply; None where nobody looks."""


EMPTY_ENVIRONMENT = PlannerEnvironment()


def refuse_without_price(planner: Planner, limits: Limits, prices: Prices | None) -> None:
    """Refuse a mission that limits its cost although its model has no price. Raises `INVALID_MISSION`."""
    if limits.max_cost is None or not isinstance(planner, AsksModel):
        return
    name = planner.model_name() if isinstance(planner, NamesModel) else ""
    if not name:
        message = "limits.max_cost: needs the name of the model, whose price counts; planner.model names none"
        advice = "Name the model with planner.model."
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice=advice)
    if prices is None or prices.of_model(name) is None:
        currency = "EUR" if prices is None else prices.currency
        entry = f"{name!r}: {{input: PRICE, output: PRICE}}"
        message = (
            f"limits.max_cost: the model {name!r} has no price; add {entry} to prices.models in config.yaml "
            f"(of a million tokens, in prices.currency, such as {currency})"
        )
        advice = "State the price in the configuration file, or limit max_tokens instead."
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice=advice)


@runtime_checkable
class AsksModel(Protocol):
    """A planner whose questions cost tokens."""

    def most_tokens(self) -> int | None:
        """The most tokens that one attempt at a question takes, prompt and reply; None if only the server knows."""


@runtime_checkable
class NamesModel(Protocol):
    """A planner whose model can have a price."""

    def model_name(self) -> str:
        """The name of the model that is asked; empty if only the server knows."""


@runtime_checkable
class AsksEndpoint(Protocol):
    """A planner that asks a server which planners of other missions may ask, too."""

    def endpoint_limit(self) -> tuple[str, Limit] | None:
        """The name of what it asks, and what limits the questions of all missions to it; None without a limit."""


@runtime_checkable
class WaitsForServer(Protocol):
    """A planner whose questions wait together with others when the server that they ask asks to wait."""

    def server_wait(self) -> tuple[str, float]:
        """The name of the server, and of what it counts requests by, and the most seconds that a question waits."""


def server_wait_of(planner: Planner) -> tuple[str, float]:
    """Name and seconds of `planner` for a server that asks to wait; without a name, each question waits alone."""
    return planner.server_wait() if isinstance(planner, WaitsForServer) else ("", MAX_WAIT)


@runtime_checkable
class Placeable(Protocol):
    """A planner that reads the user's options and the environment itself; its own options are the mission's."""

    def placed(self, planner_environment: PlannerEnvironment, /) -> Planner:
        """The planner that answers. Raises `INVALID_ARGUMENT` for options of the user that cannot be used."""
