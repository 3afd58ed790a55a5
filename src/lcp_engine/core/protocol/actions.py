"""The actions of LCP, which a planner may answer with, and what is wrong with a reply that is none (R2, R3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    PrivateAttr,
    SkipValidation,
    ValidationError,
)
from pydantic_core import ErrorDetails

from lcp_engine.core.protocol.schema_model import SchemaModel
from lcp_engine.core.protocol.strict_json import shown
from lcp_engine.errors import Code
from lcp_engine.feature import find_code

# The output of a JSON parser is JSON: validating a million values again would take seconds.
_Json: TypeAlias = Annotated[JsonValue, SkipValidation]


_RESULT = "Read only where the mission states the schema of its result (`result:`), which it has to fit."


class JobSpec(BaseModel):
    """A job that a planner asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str | None = Field(default=None, max_length=200)
    kind: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    params: dict[str, _Json]
    auto_dispatch: bool | None = None


class Manner(StrEnum):
    """Meaning of a reply in another dialect beyond the LCP action that it is translated into."""

    PLAIN = "plain"
    STEPS = "steps"
    """Its jobs run one after another, each when the one before has succeeded; `max_followups` does not count them."""
    CLARIFICATION = "clarification"
    """A round of questions to a person."""
    VERIFICATION = "verification"
    """A verdict; with jobs, some checks did not pass."""
    FOLLOW_UP = "follow_up"
    """An answer that needs a follow-up: a person decides whether it ends the plan."""


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    commentary: str | None = None
    _recovered: tuple[str, ...] = PrivateAttr(default=())
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _manner: Manner = PrivateAttr(default=Manner.PLAIN)
    _assessment: Mapping[str, JsonValue] = PrivateAttr(default_factory=dict)

    @property
    def manner(self) -> Manner:
        """Meaning of the reply beyond the action; always `PLAIN` for a reply in LCP."""
        return self._manner

    def in_manner(self, manner: Manner) -> Self:
        """The action itself, with its manner set."""
        self._manner = manner
        return self

    @property
    def assessment(self) -> Mapping[str, JsonValue]:
        """Checks, confidence, sources and scores of a response in the universal dialect; empty for a reply in LCP."""
        return self._assessment

    def assessed(self, assessment: Mapping[str, JsonValue]) -> Self:
        """The action itself, with its assessment set."""
        self._assessment = assessment
        return self

    @property
    def recovered(self) -> tuple[str, ...]:
        """Text that was removed around the object, except white space (R1)."""
        return self._recovered

    @property
    def warnings(self) -> tuple[str, ...]:
        """The keys that were ignored (R2), a sentence each."""
        return self._warnings

    def note(self, recovered: tuple[str, ...], warnings: tuple[str, ...]) -> Self:
        """The action itself, with what was removed around it and ignored in it."""
        self._recovered, self._warnings = recovered, warnings
        return self


class CreateFollowupJobs(_Action):
    """Go on with these jobs; without any, the mission is over."""

    ok: Literal[True] = True
    action: Literal["create_followup_jobs"] = "create_followup_jobs"
    new_jobs: tuple[JobSpec, ...]
    is_plan: ClassVar[bool] = False
    """True if its jobs wait for each other, so that each is judged when its turn comes."""

    @property
    def requested(self) -> tuple[JobSpec, ...]:
        """The jobs that this action requests."""
        return self.new_jobs

    @property
    def jobs_at(self) -> str:
        """The place of its jobs in the reply."""
        return "new_jobs"

    def is_unresolved(self, job: JobSpec) -> bool:
        """True if the params of a job refer to results of others: they are read and judged when it runs."""
        return False


class WriteFile(_Action):
    """Write one file: the same as one `write_file` job."""

    ok: Literal[True] = True
    action: Literal["write_file"] = "write_file"
    root: str | None = None
    rel_path: str
    content: str
    mode: Literal["overwrite", "append"] = "overwrite"

    @property
    def requested(self) -> tuple[JobSpec, ...]:
        """The one job that this action requests."""
        params: dict[str, _Json] = {"rel_path": self.rel_path, "content": self.content, "mode": self.mode}
        if self.root is not None:
            params["root"] = self.root
        return (JobSpec(kind="write_file", params=params),)


class AnalysisResult(_Action):
    """End the mission with findings."""

    ok: Literal[True] = True
    action: Literal["analysis_result"] = "analysis_result"
    summary: str
    target_file: str | None = None
    issues: list[_Json] | None = None
    recommendations: list[_Json] | None = None
    result: _Json | None = Field(default=None, description=_RESULT)


class MissionComplete(_Action):
    """End the mission: its goal is reached."""

    ok: Literal[True] = True
    action: Literal["mission_complete"] = "mission_complete"
    summary: str
    deliverables: list[_Json] | None = None
    metrics: dict[str, _Json] | None = None
    result: _Json | None = Field(default=None, description=_RESULT)


class ErrorAction(_Action):
    """End the mission: the planner cannot go on."""

    ok: Literal[False] = False
    action: Literal["error"] = "error"
    error: str
    error_code: str | None = None
    attempted_action: str | None = None
    recovery_suggestion: str | None = None


Action: TypeAlias = CreateFollowupJobs | WriteFile | AnalysisResult | MissionComplete | ErrorAction


def _code(stored: object) -> Code | None:
    return stored if isinstance(stored, Code) else find_code(str(stored))


class Problem(BaseModel):
    """One error in a reply: its path, a message for the planner, and a code if it is not `INVALID_REPLY`."""

    model_config = ConfigDict(frozen=True)

    path: str
    message: str
    code: Annotated[Code | None, PlainValidator(_code)] = None

    @property
    def record(self) -> dict[str, str]:
        """The error as it is stored and printed."""
        return self.model_dump(mode="json", exclude_none=True)


class Malformed(BaseModel):
    """A reply that is not one valid LCP action, with every reason found (R1 to R3)."""

    model_config = ConfigDict(frozen=True)

    errors: tuple[Problem, ...]
    recovered: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def code(self) -> Code | None:
        """The code of its first error; None stands for `INVALID_REPLY`."""
        return self.errors[0].code if self.errors else None


RULE = "rule"
"""The type of an error of a model whose message is a whole sentence."""
MAX_WARNINGS = 20
LONGEST_WARNING = 300
MAX_PROBLEMS = 1000

M = TypeVar("M", bound=BaseModel)


@dataclass
class Findings:
    """Problems make a reply malformed; warnings name ignored keys."""

    problems: list[Problem] = field(default_factory=list)
    _named: list[str] = field(default_factory=list)
    _unnamed: int = 0

    def refuse(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))

    def add(self, problems: Iterable[Problem], *, whole: bool) -> None:
        """Add `problems` at paths that have none yet; those of the whole object only if `whole`."""
        known = {problem.path for problem in self.problems}
        self.problems += (p for p in problems if p.path not in known and (p.path or whole))

    def ignore(self, path: str, reason: str) -> None:
        if len(self._named) < MAX_WARNINGS:
            self._named.append(f"{path}: {reason}")
        else:
            self._unnamed += 1

    def ignore_unknown(self, path: str, keys: Sequence[str], known: Iterable[str]) -> None:
        # There may be millions: beyond the named ones they are only counted.
        named = keys[: MAX_WARNINGS - len(self._named)]
        for key in named:
            self.ignore(join(path, shortened(key)), f"unknown key, ignored{_nearest(key, known)}")
        self._unnamed += len(keys) - len(named)

    @property
    def is_full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    @property
    def warnings(self) -> tuple[str, ...]:
        more = (f"… and {self._unnamed:,} more",) if self._unnamed else ()
        return (*self._named, *more)

    def judge(self, action: Action | None, recovered: tuple[str, ...]) -> Action | Malformed:
        """`action` with the warnings, or what is wrong with it; `recovered` is what was removed around it."""
        if action is None or self.problems:
            return Malformed(errors=tuple(self.problems), recovered=recovered, warnings=self.warnings)
        return action.note(recovered, self.warnings)

    def validate(self, model: type[M], fields: Mapping[str, JsonValue], path: str, place: str) -> M | None:
        """`fields` as `model`; None if they do not fit, with a problem for each reason beneath `path`.

        `place` names what they belong to: `a job`, `list_files`.
        """
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            known = param_names(model)
            for detail in error.errors(include_url=False):
                where, message = _explain(detail, place, known)
                self.refuse(join(path, where), message)
            return None


def bounded(warnings: Sequence[str]) -> list[str]:
    """At most `MAX_WARNINGS` warnings of `LONGEST_WARNING` characters, and how many more there are: what is stored."""
    kept = [
        warning if len(warning) <= LONGEST_WARNING else f"{warning[: LONGEST_WARNING - 1]}…"
        for warning in warnings[: MAX_WARNINGS + 1]
    ]
    left_out = len(warnings) - MAX_WARNINGS
    return kept if left_out <= 1 else [*kept[:MAX_WARNINGS], f"… and {left_out:,} more"]


def join(path: str, key: str) -> str:
    """`key` beneath `path`: `new_jobs[0]` and `kind` make `new_jobs[0].kind`."""
    return f"{path}.{key}" if path and key and not key.startswith("[") else f"{path}{key}"


def shortened(key: str) -> str:
    """A key that a planner wrote, short enough for a path."""
    return key if len(key) <= 60 else f"{key[:60]}…"


def name_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown param 'pattern'; did you mean 'patterns'?`, or the known names if none is near."""
    known = tuple(known)
    hint = _nearest(name, known) or f"; known are {', '.join(known)}"
    return f"unknown {what} '{shortened(name)}'{hint}"


@lru_cache(maxsize=256)
def param_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that `model` reads: names and aliases of its fields, or those that its schema names."""
    if issubclass(model, SchemaModel):
        return model.names
    names: list[str] = []
    for name, info in model.model_fields.items():
        aliases = getattr(info.validation_alias, "choices", [info.validation_alias])
        texts = [alias for alias in aliases if isinstance(alias, str)]
        names += texts if texts and not model.model_config.get("populate_by_name") else [name, *texts]
    return tuple(dict.fromkeys(names))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:60].lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for part in loc:
        path = join(path, f"[{part}]" if isinstance(part, int) else shortened(part))
    return path


def _explain(detail: ErrorDetails, place: str, known: tuple[str, ...]) -> tuple[str, str]:
    loc, context, kind = detail["loc"], detail.get("ctx", {}), detail["type"]
    path = _path(loc)
    name = str(loc[-1]) if loc else place
    if kind == RULE:
        return path, detail["msg"]
    if not loc:
        return path, f"{place}: {detail['msg']}"
    found = shown(detail["input"])
    match kind:
        case "missing":
            return path, f"{place} needs {name}; it is missing"
        case "extra_forbidden":
            return path, name_unknown("param", name, known)
        case "literal_error":
            return path, f"{name} is {context['expected']}; found {found}"
        case "string_pattern_mismatch" if name == "kind":
            return path, f"kind is 1 to 64 of the characters A-Z a-z 0-9 _ . -; found {found}"
        case "string_too_long" | "too_long":
            given, unit = detail["input"], "characters" if kind == "string_too_long" else "entries"
            count = len(given if isinstance(given, list | dict) else str(given))
            return path, f"{name} has at most {context['max_length']:,} {unit}; found {count:,}"
        case "too_short" | "string_too_short" if not detail["input"]:
            return path, f"{name} is not empty; found {found}"
        case _ if kind in _EXPECTED:
            return path, f"{name} is {_EXPECTED[kind]}; found {found}"
        case _:
            return path, f"{name}: {detail['msg']}; found {found}"
