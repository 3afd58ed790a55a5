"""State what a feature adds to the kernel, as one value, and put together what the installed features state."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lcp_engine.errors import Code, ErrorCode, LcpError

T = TypeVar("T")
GROUP = "lcp_engine.features"
"""Entry points of features that other packages have: each is a `Feature`."""
KERNEL = 3
"""Raised with each point that is added here."""
_NONE: Mapping[str, str] = MappingProxyType({})


class Feature(NamedTuple):
    """Places `module:attribute` of what a feature adds, each of which is loaded when it is first used.

    Its package is `lcp_engine.features.NAME`, which imports nothing else, and calls its value `FEATURE`. Of a point
    that is one place, only one feature can state it; of a mapping, only one each name.
    """

    name: str
    needs: tuple[str, ...] = ()
    """Names of the features without which this one is left out."""
    kernel: int = KERNEL
    """The kernel that it is written for; it is left out of an older one."""

    plan_type: str | None = None
    """The type of plans whose steps are stated."""
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
    """Says, by the settings, what is called before a transaction is committed that lets missions wait for a person."""
    readers: Mapping[str, str] = _NONE
    """Other dialects than LCP, by their name: a `Reader` each."""
    refuse_echo: str | None = None
    """What refuses the words of a model that end a plan and are no answer."""
    probes: str | None = None
    """Cache of what planners find out about endpoints."""
    drafts: str | None = None
    """Where people see what planners are writing."""
    sections: tuple[str, ...] = ()
    """What questions are asked with besides the findings of their plan."""
    chores: tuple[str, ...] = ()
    """What runners do besides their jobs, in the order in which they begin; they end in the opposite one."""
    foreign_programs: str | None = None
    """How a confined process runs a foreign program."""
    file_of_kinds: str | None = None
    """What the command line loads kinds with from a file."""
    kind_of_program: str | None = None
    """What the command line loads a kind with for a program."""
    kinds: Mapping[str, str] = _NONE
    """Workers of further kinds of jobs."""
    planners: Mapping[str, str] = _NONE
    """Planners by the type that a mission names."""
    codes: Mapping[str, str] = _NONE
    """Error codes by their name: each a `Code` that has it."""
    tables: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Tables by their name: the place, and the column with which a row is pruned: `mission_id`, `job_id` or nothing."""
    mission_keys: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Keys of the mission file: the `MissionKeys` whose fields they are, and the key that they are listed behind."""
    mission_checks: tuple[str, ...] = ()
    """Functions that are given an instance and the spec of a mission before it is stored, and refuse it."""
    launch_notes: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Notes on missions at their launch, by their keys: the function that is given the admission of jobs, the spec
    and the root, and returns JSON or None; and the one that tells people of that JSON, a line each."""
    settings: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Keys of the configuration file: the `FeatureSettings` whose fields they are, and the variable of the environment
    that comes before the key, or nothing."""
    commands: Mapping[str, tuple[str, str, str]] = MappingProxyType({})
    """Commands of `lcp` by their name: the section of its help, the place, the line in that help. `db NAME` is one
    of the group `db`, which is also its section."""
    left_overs: tuple[str, ...] = ()
    """Functions that name what is left over on this machine, for `lcp db check` and `lcp doctor`."""
    duties: tuple[str, ...] = ()
    """Functions that say what was done last for the database, for `lcp db stats` and `lcp doctor`."""
    findings: tuple[str, ...] = ()
    """Functions that examine the installation, for `lcp doctor`: given the database's URL, the settings, and whether it
    is there and at the newest version."""
    pages: Mapping[str, str] = _NONE
    """Functions that return a page, by the form of its path."""
    actions: Mapping[str, str] = _NONE
    """Functions that carry out what a page sends, by the form of its path."""
    routes: tuple[str, ...] = ()
    """Sequences of further routes of the page."""
    doors: Mapping[str, str] = _NONE
    """Functions that open what programs use on the page's server, by the beginning of its paths: each takes the engine,
    the settings of `lcp serve`, and whether only this machine reaches it."""
    engine_calls: tuple[str, ...] = ()
    """Classes of further methods of `Engine`, each a `KernelEngine`."""
    history_calls: tuple[str, ...] = ()
    """Classes of further methods of `History` and `Engine`, each a `KernelHistory`, which load nothing slow."""


@cache
def added() -> Feature:
    """All that the features of this package add, as if one stated it; `needs` are their names."""
    return _joined(Feature("all"), shipped(), _OWN)


@cache
def installed() -> Feature:
    """Like `added`, with the features of other packages, which take a while to be found."""
    from lcp_engine.plug_ins import offered_in  # not for commands that only read

    found = (_value(f"{one.name} ({one.value})", one.load) for one in offered_in(GROUP))
    own = _OWN._replace(kinds=dict.fromkeys(load("lcp_engine.workers.registry:OWN", frozenset), ""))
    return _joined(added(), [one for one in found if one is not None], own)


def available() -> Feature:
    """`installed` if something has looked for it, else `added`: whoever only reads need not look."""
    return installed() if installed.cache_info().currsize else added()


@cache
def shipped() -> Sequence[Feature]:
    """The features of this package, by name."""
    with os.scandir(Path(__file__).with_name("features")) as places:
        names = sorted(one.name for one in places if one.is_dir() and not one.name.startswith("_"))
    found = (_value(name, partial(_load, f"{GROUP}.{name}:FEATURE")) for name in names)
    return [one for one in found if one is not None]


def find_code(name: str) -> Code | None:
    """The error code with a name; None if neither the kernel nor an available feature has it."""
    known = ErrorCode.__members__.get(name)
    if known is not None or (place := available().codes.get(name)) is None:
        return known
    return next((code for _, code in load_all((place,), Code) if code == name), None)


def all_codes() -> Iterator[Code]:
    """The error codes of the kernel, then those of available features."""
    yield from ErrorCode
    yield from filter(None, map(find_code, available().codes))


def absent(key: str) -> str | None:
    """Words about a key of a file if it is one of a feature of this package that is not there."""
    owner = load(f"{GROUP}:KEYS", dict).get(key)
    is_missing = owner is not None and owner not in added().needs
    return f"the feature {owner}, which has this key, is not installed" if is_missing else None


def load(place: str | None, kind: type[T]) -> T:
    """The value at a place. Raises TypeError if it is of another type, `NOT_INSTALLED` where no feature states one, and
    for what a place of another package raises.
    """
    if place is None:
        raise LcpError(ErrorCode.NOT_INSTALLED, f"no installed feature has a {kind.__name__}")
    try:
        value = _load(place)
    except Exception as raised:  # importing runs the code of others
        if is_shipped(place):
            raise
        raise LcpError(ErrorCode.NOT_INSTALLED, f"{place} cannot be loaded: {in_a_line(raised)}") from raised
    if not isinstance(value, kind):
        raise TypeError(f"{place} is no {kind.__name__}")
    return value


def load_all(places: Iterable[str], kind: type[T]) -> Iterator[tuple[str, T]]:
    """Each place with its value. A place of another package that cannot be loaded is left out."""
    for place in places:
        try:
            yield place, load(place, kind)
        except (LcpError, TypeError) as raised:
            if is_shipped(place):
                raise
            leave_out(place, raised)


def is_shipped(place: str) -> bool:
    """True for a place in this package."""
    return place.startswith("lcp_engine.")


def leave_out(origin: str, raised: Exception) -> None:
    """Do without what is at `origin` from now on, and say so in one line."""
    if origin not in _left_out:
        import logging  # slow to import, hardly ever needed

        _left_out.add(origin)
        logging.getLogger("lcp_engine").warning("feature %s is left out: %s", origin, in_a_line(raised))


def is_left_out(origin: str) -> bool:
    return origin in _left_out


def in_a_line(raised: Exception) -> str:
    kind = "" if isinstance(raised, LcpError | Unfit) else f"{type(raised).__name__}: "
    return " ".join(f"{kind}{raised}".split())


_left_out = set[str]()


def _load(place: str) -> object:
    module, _, name = place.partition(":")
    value: object = getattr(import_module(module), name)
    return value


def _value(origin: str, find: Callable[[], object]) -> Feature | None:
    """The feature that `find` returns; None if it raises."""
    try:
        if isinstance(found := find(), Feature):
            return found
        raise Unfit(f"a Feature is expected, it is a {type(found).__name__}")
    except Exception as raised:  # noqa: BLE001 -- importing runs the code of others, which may raise anything
        leave_out(origin, raised)
        return None


class Unfit(Exception):
    """A feature that cannot be added, with the reason."""


def _joined(first: Feature, found: Sequence[Feature], own: Feature) -> Feature:
    """Sum of the first and what is found, as far as nothing is missing and no name is taken, also of the `own` ones."""
    start = _sum(own, first)._replace(name=first.name, needs=first.needs)
    while True:
        names, joined = {*first.needs, *(one.name for one in found)}, start
        for one in found:
            try:
                joined = _both(joined, one, names)
            except Unfit as reason:
                leave_out(one.name, reason)
                found = [other for other in found if other is not one]
                break
        else:
            return Feature._make(map(_without, joined, own))


def _both(known: Feature, new: Feature, names: Collection[str]) -> Feature:
    if missing := [one for one in new.needs if one not in names]:
        raise Unfit(f"it needs {missing[0]!r}, which is not installed")
    if new.kernel > KERNEL:
        raise Unfit(f"it needs kernel {new.kernel}, this is {KERNEL}")
    if new.name in known.needs:
        raise Unfit("another one has its name")
    return _sum(known, new)._replace(needs=(*known.needs, new.name))


def _without(joined: object, own: object) -> object:
    if isinstance(joined, Mapping) and isinstance(own, Mapping):
        return {name: one for name, one in joined.items() if name not in own}
    return joined


def _sum(known: Feature, new: Feature) -> Feature:
    points = zip(Feature._fields[3:], known[3:], new[3:], strict=True)
    return Feature._make((*known[:3], *(_sum_of_point(*point) for point in points)))


def _sum_of_point(point: str, known: object, new: object) -> object:
    if not new:
        return known
    match known, new:
        case tuple(), tuple():
            return known + new
        case Mapping(), Mapping():
            if taken := known.keys() & new.keys():
                raise Unfit(f"{min(taken)!r} of its {point} is taken")
            return {**known, **new}
        case None, str():
            return new
        case _:
            raise Unfit(f"another one has a {point}" if isinstance(known, str) else f"its {point} is {new!r}")


# fmt: off
_OWN = Feature(
    "kernel",
    tables=dict.fromkeys((
        "missions", "plans", "jobs", "server_waits", "edges", "results", "attempts", "reviews", "approvals", "events",
        "turns", "viewed_files", "blobs", "changes", "stages", "runners", "network_roots",
    ), ("", "")),
    commands=dict.fromkeys((
        "run", "launch", "work", "missions", "show", "watch", "report", "changes", "jobs", "job", "held", "diff",
        "runners", "serve", "approve", "reject", "answer", "undo", "say", "cancel", "resume", "retry", "db", "doctor",
        "completion", "help", "version",
    ), ("", "", "")),
    settings=dict.fromkeys((
        "database_url", "busy_seconds", "away_seconds", "isolation", "policy", "caps", "planners", "prices",
        "workers",
    ), ("", "")),
    mission_keys=dict.fromkeys((
        "name", "description", "goal", "root", "root_aliases", "planner", "limits", "policy", "commands", "kinds",
        "accept", "endings", "result", "continue", "on_job_failure", "on_limit", "unfulfilled", "allow_admin",
        "background", "hold_timeout", "variables",
    ), ("", "")),
    codes=dict.fromkeys(ErrorCode.__members__, ""),
    readers={"lcp": ""},
    planners=dict.fromkeys(("none", "replay", "script"), ""),
)
"""Names that no feature may take, beside the kinds of the kernel."""
# fmt: on
