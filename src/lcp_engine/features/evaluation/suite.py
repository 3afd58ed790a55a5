"""Read a suite: missions with what is expected of them, and the planners that are tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NoReturn, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.mission.accept import CommandParts, ConfinedPath, Pattern
from lcp_engine.core.mission.parse import build_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.yaml import NotReadable, read_document
from lcp_engine.core.refused_values import explain_first
from lcp_engine.errors import ErrorCode, LcpError

StatedPlanner: TypeAlias = str | JsonObject
"""A planner as a mission file states it: its type, or an object with its options."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")]
KindName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
MOST_MISSIONS = 1_000
MOST_PLANNERS = 20
MOST_REPETITIONS = 100


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Expectation(_Stated):
    """What is expected of a mission beside its end."""

    facts: tuple[Pattern, ...] = Field(
        default=(),
        max_length=50,
        description="Regular expressions (RE2), each to be found in what the mission ends with: summary, issues, "
        "recommendations, result.",
    )
    reads: tuple[ConfinedPath, ...] = Field(
        default=(), max_length=200, description="Files that the mission has to read."
    )
    uses: tuple[KindName, ...] = Field(
        default=(), max_length=50, description="Kinds of which a job has to succeed."
    )
    check: CommandParts | None = Field(
        default=None,
        description="A program, with its arguments, that ends with exit code 0 if what came of the mission is right "
        "(eval.md).",
    )


class SuiteFile(_Stated):
    """A suite, as its file states it; a mission has the keys of a mission file, and `expect`."""

    name: Name = Field(description="The name of the suite.")
    description: str | None = Field(default=None, max_length=500, description="What it is for.")
    planners: dict[Name, str | dict[str, JsonValue]] = Field(
        default={},
        max_length=MOST_PLANNERS,
        description="The planners that are tried, by a name of your own, each as in a mission file.",
    )
    repeat: int = Field(
        default=1, ge=1, le=MOST_REPETITIONS, description="How often each mission is run with each planner."
    )
    defaults: dict[str, JsonValue] = Field(
        default={}, description="Keys of a mission file for every mission that does not state them."
    )
    missions: tuple[dict[str, JsonValue], ...] = Field(
        min_length=1,
        max_length=MOST_MISSIONS,
        description="The missions, each with a `name`, a `goal`, a `root` that is copied for each run, relative to the "
        "file, and `expect`.",
    )


@dataclass(frozen=True)
class SuiteMission:
    """One mission of a suite."""

    name: str
    root: str
    """The directory that each run gets a copy of, as the file states it."""
    expect: Expectation
    stated: Mapping[str, JsonValue]
    """The keys of a mission file, without a planner."""
    place: str
    """The file and index where it is stated, for messages."""

    def with_planner(self, planner: StatedPlanner) -> MissionSpec:
        """What is launched: the mission with a planner. Raises `INVALID_MISSION`."""
        return build_mission({**self.stated, "planner": planner}, source=self.place)


@dataclass(frozen=True)
class Suite:
    """Missions with what is expected of them, and the planners that are tried."""

    name: str
    planners: Mapping[str, StatedPlanner]
    repeat: int
    missions: tuple[SuiteMission, ...]


def parse_suite(text: str, *, source: str) -> Suite:
    """The suite that `text` (YAML or JSON) states; every mission in it is valid.

    Raises `INVALID_MISSION`, with the place, what is expected there, and the nearest known name.
    """
    try:
        stated = SuiteFile.model_validate(_mapping(text, source))
    except ValidationError as refused:
        _refuse(f"{source}: {explain_first(refused, SuiteFile)}")
    missions: dict[str, SuiteMission] = {}
    for index, one in enumerate(stated.missions):
        mission = _mission(stated, one, f"{source}: missions.{index}")
        if mission.name in missions:
            fact = f"{mission.name!r} is the name of an earlier one; each needs its own"
            _refuse(f"{mission.place}.name: {fact}")
        missions[mission.name] = mission
    return Suite(stated.name, stated.planners, stated.repeat, tuple(missions.values()))


def _mapping(text: str, source: str) -> dict[str, JsonValue]:
    try:
        value = read_document(text)
    except NotReadable as refused:
        _refuse(f"{source}: {refused}")
    if not isinstance(value, dict):
        _refuse(f"{source}: a mapping with `name` and `missions` is expected")
    return value


class _Head(BaseModel):
    """What a mission of a suite needs beside the keys of any mission."""

    model_config = ConfigDict(frozen=True)

    name: Name
    root: Annotated[str, Field(min_length=1)]
    expect: Expectation = Expectation()


def _mission(suite: SuiteFile, stated: dict[str, JsonValue], place: str) -> SuiteMission:
    for key in ("expect", "planner", "plan"):
        if key in suite.defaults:
            _refuse(
                f"{place.rpartition(':')[0]}: defaults.{key}: cannot be the same for every mission; leave it out"
            )
    if "planner" in stated:
        _refuse(f"{place}.planner: the planners of a suite are listed under `planners`; leave it out")
    whole = {**suite.defaults, **stated}
    try:
        head = _Head.model_validate({key: whole[key] for key in ("name", "root", "expect") if key in whole})
    except ValidationError as refused:
        _refuse(f"{place}.{explain_first(refused, _Head)}")
    keys = {key: value for key, value in whole.items() if key not in ("root", "expect")}
    mission = SuiteMission(head.name, head.root, head.expect, keys, place)
    for planner in (*suite.planners.values(), "human"):
        mission.with_planner(planner)
    return mission


def _refuse(message: str) -> NoReturn:
    raise LcpError(ErrorCode.INVALID_MISSION, message)
