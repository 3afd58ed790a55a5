"""State what a feature adds to the kernel, as one value, and put together what the installed features state."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lcp_engine.errors import ErrorCode, LcpError

T = TypeVar("T")
_NONE: Mapping[str, str] = MappingProxyType({})


class Feature(NamedTuple):
    """Places `module:attribute` of what a feature adds, each of which is loaded when it is first used.

    Its package is `lcp_engine.features.NAME`, which imports nothing else, and calls its value `FEATURE`. Of a point
    that is one place, only one feature can state it; of a mapping, only one each name.
    """

    name: str
    needs: tuple[str, ...] = ()
    """Names of the features without which this one is left out."""

    plan_type: str | None = None
    """The type of plans whose steps are stated."""
    stated_plan: str | None = None
    """The form in which a mission states its plan."""
    order_reader: str | None = None
    """Reader of replies whose jobs wait for each other."""
    askers: Mapping[str, str] = _NONE
    """What a person's decision on jobs of a kind does to the end of the mission."""
    end_gates: tuple[str, ...] = ()
    """What a mission waits for before it ends."""
    engine_kinds: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """The kinds of jobs that the engine makes and a person approves: their workers, and how they are shown and done."""
    command_execution: str | None = None
    """How jobs and acceptance checks are executed that are commands or external programs."""
    observers: tuple[str, ...] = ()
    """What takes note of what happens in missions."""
    decision_gate: str | None = None
    """Who may approve jobs, and how many people have to."""
    claim_gate: str | None = None
    """Which jobs that are due may start."""
    root_provider: str | None = None
    """Other places for the files of missions than their roots."""
    note_waits: str | None = None
    """Called before a transaction is committed that lets missions wait for a person, if there is a webhook."""
    readers: Mapping[str, str] = _NONE
    """Readers of replies in other dialects than LCP."""
    refuse_echo: str | None = None
    """What refuses the words of a model that end a plan and are no answer."""
    probes: str | None = None
    """Cache of what planners find out about endpoints."""
    section: str | None = None
    """What questions are asked with besides the findings of their plan."""
    chores: tuple[str, ...] = ()
    """What runners do besides their jobs, in the order in which they begin; they end in the opposite one."""
    foreign_programs: str | None = None
    """How a confined process runs a foreign program."""
    file_of_kinds: str | None = None
    """What the command line loads kinds with from a file."""
    kind_of_program: str | None = None
    """What the command line loads a kind with for a program."""
    kinds: tuple[str, ...] = ()
    """Further kinds that are built in."""
    tables: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Tables by their name: the place, and the column of the mission or job with which a row is pruned, or nothing."""
    commands: Mapping[str, tuple[str, str, str]] = MappingProxyType({})
    """Commands of `lcp` by their name: the section of its help, the place, the line in that help."""
    pages: Mapping[str, str] = _NONE
    """Functions that return a page, by the form of its path."""
    actions: Mapping[str, str] = _NONE
    """Functions that carry out what a page sends, by the form of its path."""
    routes: tuple[str, ...] = ()
    """Sequences of further routes of the page."""
    engine_calls: tuple[str, ...] = ()
    """Classes of further methods of `Engine`, each a `KernelEngine`."""
    history_calls: tuple[str, ...] = ()
    """Classes of further methods of `History` and `Engine`, each a `KernelHistory`, which load nothing slow."""


@cache
def added() -> Feature:
    """All that the features of this package add, as if one stated it."""
    return reduce(_joined, shipped(), Feature("all"))


@cache
def shipped() -> Sequence[Feature]:
    """The features of this package, by name."""
    with os.scandir(__path__[0]) as found:
        names = sorted(one.name for one in found if one.is_dir() and not one.name.startswith("_"))
    return [import_module(f"{__name__}.{name}").FEATURE for name in names]


def load(place: str | None, kind: type[T]) -> T:
    """The value at a place. Raises TypeError if it is of another type, `NOT_INSTALLED` where no feature states one."""
    if place is None:
        raise LcpError(ErrorCode.NOT_INSTALLED, f"no installed feature has a {kind.__name__}")
    module, _, name = place.partition(":")
    value: object = getattr(import_module(module), name)
    if not isinstance(value, kind):
        raise TypeError(f"{place} is no {kind.__name__}")
    return value


def _joined(known: Feature, new: Feature) -> Feature:
    points = zip(Feature._fields[2:], known[2:], new[2:], strict=True)
    return Feature._make((known.name, (), *(_both(*point) for point in points)))


def _both(point: str, known: object, new: object) -> object:
    """Raises ValueError for a name that is taken."""
    match known, new:
        case tuple(), tuple():
            return known + new
        case Mapping(), Mapping():
            if taken := known.keys() & new.keys():
                raise ValueError(f"{point}: {min(taken)!r} is taken")
            return {**known, **new}
        case _ if known is not None and new is not None:
            raise ValueError(f"{point}: taken by another feature")
        case _:
            return known if new is None else new
