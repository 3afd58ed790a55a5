"""The mission file: goal, root, planner, limits, policy, acceptance checks; and the most that it can cost. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError

from lcp_engine.core.limits.money import told_amount
from lcp_engine.core.limits.permits import MOST_RUNNING, RateLimit
from lcp_engine.core.limits.prices import Amount, Price
from lcp_engine.core.mission.accept import AcceptCheck, CommandParts, Frozen, words_of
from lcp_engine.core.paths.patterns import compile_rule
from lcp_engine.core.policy import Rule
from lcp_engine.core.programs.network import NO_NETWORK, NetworkUse
from lcp_engine.core.protocol.actions import RULE
from lcp_engine.core.protocol.read_reply import Dialect, dialects
from lcp_engine.core.protocol.result_schema import ResultSchema, check_schema
from lcp_engine.core.settings.feature_settings import models_of, with_fields
from lcp_engine.core.summaries import duration, size
from lcp_engine.errors import LcpError, UnexpectedValue
from lcp_engine.feature import installed, load


class _Figures(Frozen):
    """A mapping of numbers."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: JsonValue) -> JsonValue:
        if isinstance(value, bool):
            raise UnexpectedValue("should be a number")
        return value


class Limits(_Figures):
    """Caps of one mission. Seconds are of running time, bytes of file content; null is without limit."""

    max_followups: int = Field(default=5, ge=1, description="Jobs of one reply.")
    overflow: Literal["refuse", "hold"] = Field(
        default="refuse",
        description="What becomes of the jobs of a reply beyond `max_followups`: the planner is told to send fewer, or "
        "a person decides about them.",
    )
    max_jobs: int = Field(default=100, ge=0, description="Jobs of the whole mission.")
    max_running: int | None = Field(
        default=None,
        ge=1,
        le=MOST_RUNNING,
        description="Jobs of the mission that run at once, on all runners; the others wait.",
    )
    max_turns: int = Field(
        default=25,
        ge=1,
        description="Turns; then the planner gets a last one, in which it can only end the mission.",
    )
    max_seconds: float | None = Field(
        default=1800,
        gt=0,
        description="Seconds in which at least one job runs; waiting for a person is free.",
    )
    max_tokens: int | None = Field(default=None, ge=0, description="Tokens of all prompts and replies.")
    max_cost: Amount | None = Field(
        default=None,
        description="What all prompts and replies may cost, in the currency of the configuration, which has the prices "
        "(planners.md).",
    )
    max_depth: int = Field(
        default=5,
        ge=0,
        description="How deep plans may be nested: a job `agent_plan` in a plan is one level deeper.",
    )
    max_bytes_written: int | None = Field(
        default=100 * 1024 * 1024,
        ge=0,
        description="Bytes that jobs write into files, and that the database keeps of what they replace.",
    )
    max_corrections: int = Field(
        default=2, ge=0, description="How often the planner may correct one malformed reply in the same turn."
    )
    max_stalled: int = Field(
        default=3,
        ge=1,
        description="Replies in a row that request nothing new; then the mission ends as `no_progress`.",
    )


LAST_TURN_SHARE = 0.1
LAST_TURN_LEAST = 5.0


def seconds_of_last_turn(max_seconds: float) -> float:
    """Time that the last turn may take beyond `max_seconds`, with all that is tried again (R6)."""
    return max(LAST_TURN_LEAST, max_seconds * LAST_TURN_SHARE)


_STORED = {"is_stored": True}


def _known_dialect(name: Dialect, info: ValidationInfo) -> Dialect:
    if info.context != _STORED and name not in dialects():  # a stored one may be of a feature that is gone
        raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, dialects()))})
    return name


def _list_dialects(schema: dict[str, JsonValue]) -> None:
    schema["enum"] = [*dialects()]


class PlannerSpec(BaseModel):
    """Which planner answers, and what its replies are read as; every further key is an option of it.

    A bare name has none.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(
        min_length=1, description="The name of the planner (planners.md); further keys are its options."
    )
    dialect: Annotated[Dialect, AfterValidator(_known_dialect)] = Field(
        default="lcp", description="What its replies are read as.", json_schema_extra=_list_dialects
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: JsonValue) -> JsonValue:
        return {"type": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, JsonValue]:
        """Like `_from_name`, the schema accepts a bare name."""
        return {"anyOf": [{"type": "string", "minLength": 1}, handler.resolve_ref_schema(handler(schema))]}

    @property
    def options(self) -> dict[str, JsonValue]:
        return dict(self.model_extra or {})


def _variables_of(value: JsonValue) -> JsonValue:
    """`A=1 B="2 3"` as a mapping; other values as they are."""
    words = words_of(value)
    if not isinstance(value, str) or not isinstance(words, list):
        return value
    pairs = [str(word).partition("=") for word in words]
    if strange := [name for name, given, _ in pairs if not (name and given)]:
        raise UnexpectedValue(f"should be NAME=VALUE, not {strange[0]!r}")
    return {name: text for name, _, text in pairs}


def _are_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    try:
        compile_rule(patterns, grants=True)
    except LcpError as error:
        raise PydanticCustomError(RULE, "{said}", {"said": str(error)}) from error
    return patterns


class Commands(Frozen):
    """Which commands jobs may run, and how (commands.md)."""

    allow: tuple[CommandParts, ...] = Field(
        default=(),
        description='Programs with their arguments, such as [pytest, -q, "..."]. In an argument `*` and `?` stand for '
        'characters; "..." at the end for any further arguments. Nothing else can be run.',
    )
    environment: Annotated[
        dict[str, str], BeforeValidator(_variables_of, json_schema_input_type=dict[str, str] | str)
    ] = Field(
        default={},
        description="Variables of their environment, which is empty but for a few: a mapping, or NAME=VALUE in a text.",
    )
    seconds: float = Field(default=120, gt=0, le=3600, description="How long a command may run.")
    network: NetworkUse = Field(
        default=NO_NETWORK,
        description="Hosts that they may reach, `{hosts: [registry.example.org]}`, or `host`; none by default. The "
        "configuration (`commands_network`) has to allow it.",
    )
    changes: Literal["drop", "hold"] = Field(
        default="drop",
        description="Fate of the files that a command changes outside of a stage: they are named in its result and "
        "dropped, or one held job `apply` brings them into the root once a person approves it.",
    )
    show: Annotated[tuple[str, ...], AfterValidator(_are_patterns)] = Field(
        default=(),
        description="Patterns of files that git tracks and commands see although their names are those of secrets, "
        "such as `certs/*.pem`; what a rule denies or holds stays hidden.",
    )


NO_COMMANDS = Commands()


class Retry(_Figures):
    """Number of attempts of a job of the kind, and the wait between them."""

    max_attempts: int | None = Field(
        default=None, ge=1, le=100, description="How many executions may fail before the job does."
    )
    delay: float | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="Seconds before the second attempt; they double with each failure.",
    )


class KindSettings(_Figures):
    """Terms for the jobs of one kind in place of what the kind states; its name is the key."""

    timeout: float | None = Field(
        default=None, gt=0, le=86_400, description="Seconds that one attempt may take."
    )
    retry: Retry = Field(default=Retry(), description="Attempts after one that failed.")
    rate_limit: RateLimit | None = Field(
        default=None, description="How often jobs of the mission may start; beside the limit of the kind."
    )
    max_running: int | None = Field(
        default=None, ge=1, le=MOST_RUNNING, description="How many jobs of the mission may run at once."
    )


def _is_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    check_schema(schema)
    return schema


class ResultSpec(Frozen):
    """Schema of the `result` of the reply that completes the mission."""

    schema_: Annotated[
        dict[str, JsonValue],
        AfterValidator(_is_schema),
        WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}),
    ] = Field(
        alias="schema",
        description="A JSON Schema (draft 2020-12): the name of a file, relative to the mission file, or the schema "
        "itself.",
    )


class Background(Frozen):
    """Facts about the editor and the project of the user who sent the request that a mission was launched for."""

    text: str = Field(description="What each turn is shown of it; empty if the request states nothing.")
    files: tuple[str, ...] = Field(description="The files that are open, as the request names them.")
    content: str = Field(description="A hash of the request, but of its time.")


Ending = Literal["analysis_result", "mission_complete"]

NO_PLANNER = "none"
"""The planner of a mission that asks none."""
Spec = TypeVar("Spec", bound="MissionSpec")
LONGEST_HOLD = 100 * 365 * 24 * 3600


class MissionSpec(Frozen):
    """A mission as its file states it, with the keys of the engine itself; `mission_model` has those of features, too.

    A held job without a decision is rejected after `hold_timeout` seconds.
    """

    name: str = Field(default="mission", min_length=1, max_length=200, description="For lists and reports.")
    description: str | None = Field(default=None, max_length=500, description="One line, for lists.")
    goal: str = Field(
        min_length=1, pattern=r"\S", description="What the mission should achieve, in words for the planner."
    )
    root: str | None = Field(
        default=None,
        min_length=1,
        description="The directory that the mission is confined to, relative to the file; without it, "
        "the directory of the file. `--root` comes first.",
    )
    root_aliases: tuple[str, ...] = Field(
        default=(),
        description="Further names that a planner may use for the root: a path of another machine, as in a recorded "
        "conversation.",
    )
    planner: PlannerSpec = Field(
        description="Who answers: the name of a planner, or a mapping with its options. A file may leave it out "
        "(planners.md)."
    )
    limits: Limits = Field(default=Limits(), description="The caps of the mission.")
    policy: tuple[Rule, ...] = Field(
        default=(), description="Rules about jobs; the first that matches decides (approvals.md)."
    )
    commands: Commands = Field(
        default=NO_COMMANDS, description="The commands that jobs may run; none by default."
    )
    kinds: dict[str, KindSettings] = Field(
        default={}, description="Settings for kinds of jobs, by the kind (missions.md)."
    )
    accept: tuple[AcceptCheck, ...] = Field(
        default=(),
        description="Checks that have to pass before the mission can be completed; each states one.",
    )
    endings: tuple[Ending, ...] = Field(
        default=(),
        max_length=2,
        description="The actions that may complete the mission, such as `analysis_result` to find issues; any by "
        "default.",
    )
    result: ResultSpec | None = Field(
        default=None,
        description="What the reply that completes the mission has to carry as its `result` (missions.md).",
    )
    continue_: Literal["per_batch", "per_result", "per_decision"] = Field(
        default="per_batch",
        alias="continue",
        description="When the planner gets its next turn: when no job of a reply runs or may run any more, "
        "although others are held; after each job; or when a person has decided on the held ones, too.",
    )
    on_job_failure: Literal["report", "fail"] = Field(
        default="report", description="What a failed job does: the planner is told, or the mission ends."
    )
    on_limit: Literal["end", "hold"] = Field(
        default="end",
        description="What happens when the turns, seconds, tokens or money of the mission are used up: it ends after a "
        "last turn, or a person is asked for more (approvals.md).",
    )
    unfulfilled: Literal["report", "accept"] = Field(
        default="report",
        description="How a mission ends that is complete though a change that it asked for was refused or failed: with "
        "exit code 4, or 0.",
    )
    allow_admin: SkipJsonSchema[bool] = False
    """Granted by who launches it; a file with this key is refused."""
    background: SkipJsonSchema[Background | None] = None
    """Stated by the request that it was launched for; a file with this key is refused."""
    hold_timeout: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_HOLD,
        description="Seconds after which a held job without a decision is rejected.",
    )

    @property
    def check_seconds(self) -> float:
        """The time of all commands of acceptance checks, beside that of the turn that claims to be done."""
        return self.commands.seconds * sum(check.command is not None for check in self.accept)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, JsonValue]:
        """Lists the keys of features where they say."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made)["properties"]
        order = [*properties]
        for key, (_, before) in installed().mission_keys.items():
            if key in properties:
                order.remove(key)
                order.insert(order.index(before) + 1, key)
        for key in order:
            properties[key] = properties.pop(key)
        return made


class MissionKeys(Frozen):
    """Keys of a feature in the mission file: its fields, each of which has a default and a description."""

    @classmethod
    def of(cls, spec: MissionSpec) -> Self:
        """The keys of a mission, or their defaults."""
        known: object = spec
        return known if isinstance(known, cls) else cls()


@cache
def mission_model() -> type[MissionSpec]:
    """A mission with the keys of all features."""
    return with_keys(MissionSpec)


def with_keys(kernel: type[Spec]) -> type[Spec]:
    """The model with the keys of all features besides."""
    return with_fields(kernel, models_of(installed().mission_keys, MissionKeys))


@lru_cache(maxsize=256)
def spec_of(text_: str) -> MissionSpec:
    """The mission's spec, from its stored text; keys of features that are not there are left out where they may be."""
    try:
        return mission_model().model_validate_json(text_)
    except ValidationError:
        stated: dict[str, JsonValue] = json.loads(text_)
        known = {one.alias or name for name, one in mission_model().model_fields.items()}
        decisive = {key for key in load("lcp_engine.features:DECISIVE", tuple) if stated.get(key)}
        kept = {key: stated[key] for key in stated.keys() & (known | decisive)}
        return mission_model().model_validate(kept, context=_STORED)


def expected_result(spec: MissionSpec) -> ResultSchema | None:
    """Result that the reply has to carry that completes the mission; None if it states nothing."""
    return None if spec.result is None else _result_schema(json.dumps(spec.result.schema_))


@lru_cache(maxsize=64)
def _result_schema(text: str) -> ResultSchema:
    return ResultSchema(json.loads(text))


_BEYOND = 2
"""Questions beyond a limit of tokens: the one that reaches it, and the last turn."""


@dataclass(frozen=True)
class WorstCase:
    """The most of everything, the last turn included (R6).

    `question_tokens` is the most that one question takes, retries included: 0 if no model is asked, None if only the
    model's server knows.
    """

    limits: Limits
    question_tokens: int | None
    price: tuple[Price, str] | None = None
    """The price of the model, with its currency."""

    @property
    def questions(self) -> int:
        """Questions to the planner: each turn with all its corrections, and the last turn, which has none."""
        return self.limits.max_turns * (1 + self.limits.max_corrections) + 1

    @property
    def tokens(self) -> int | None:
        """Tokens of prompts and replies; None if they are unbounded."""
        if self.question_tokens is None:
            return None
        most = self.questions * self.question_tokens
        limit = self.limits.max_tokens
        return most if limit is None else min(most, limit + _BEYOND * self.question_tokens)

    @property
    def seconds(self) -> float | None:
        """Seconds of running time in which the planner is asked; None if they are unbounded."""
        most = self.limits.max_seconds
        return None if most is None else most + seconds_of_last_turn(most)

    @property
    def json(self) -> dict[str, JsonValue]:
        """The figures; null is without limit."""
        return {
            "turns": self.limits.max_turns + 1,
            "questions": self.questions,
            "jobs": self.limits.max_jobs,
            "seconds": self.seconds,
            "bytes_written": self.limits.max_bytes_written,
            "tokens": self.tokens,
        }

    @property
    def line(self) -> str:
        """The worst case in one line for people; what nothing bounds names its limit."""
        limits, time, written = self.limits, self.seconds, self.limits.max_bytes_written
        parts = [
            f"{limits.max_turns + 1:,} turns",
            f"{self.questions:,} questions",
            f"{limits.max_jobs:,} jobs",
            "any time (limits.max_seconds)" if time is None else duration(time),
            "any bytes (limits.max_bytes_written)" if written is None else f"{size(written)} written",
        ]
        if self.question_tokens != 0:
            parts.append(self._told_tokens())
            if self.price is not None:
                parts.append(self._told_cost(*self.price))
        return f"worst case: {', '.join(parts)}"

    def _told_cost(self, price: Price, currency: str) -> str:
        most = self.limits.max_cost
        if most is None:
            if self.tokens is None:
                return f"any cost in {currency} (limits.max_cost)"
            return told_amount(price.most(self.tokens), currency)
        limit = f"{told_amount(most, currency)} and {_BEYOND} questions"
        if self.question_tokens is None:
            return limit
        return f"{limit} of {told_amount(price.most(self.question_tokens), currency)}"

    def _told_tokens(self) -> str:
        if self.tokens is not None:
            return f"{self.tokens:,} tokens"
        limit = self.limits.max_tokens
        return (
            "any tokens (limits.max_tokens)" if limit is None else f"{limit:,} tokens and {_BEYOND} questions"
        )
