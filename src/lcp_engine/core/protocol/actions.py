"""Define the actions of LCP: what a planner may answer (R2, seed 003)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PrivateAttr, SkipValidation

# What comes out of a JSON parser is JSON: to look at each of a million values again would take seconds.
_Json: TypeAlias = Annotated[JsonValue, SkipValidation]


class JobSpec(BaseModel):
    """A job that a planner asks for (R3)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str | None = Field(default=None, max_length=200)
    kind: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    params: dict[str, _Json] = Field(default_factory=dict)
    auto_dispatch: bool | None = None


class Manner(StrEnum):
    """What a reply is that LCP itself cannot say, but a translated dialect can.

    `STEPS`: its jobs come one after another, each when the one before has succeeded, and `max_followups` does not count
    them. `CLARIFICATION`: a round of questions to a person. `VERIFICATION`: a verdict; with jobs, checks did not pass.
    """

    PLAIN = "plain"
    STEPS = "steps"
    CLARIFICATION = "clarification"
    VERIFICATION = "verification"


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    commentary: str | None = None
    _recovered: tuple[str, ...] = PrivateAttr(default=())
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _manner: Manner = PrivateAttr(default=Manner.PLAIN)

    @property
    def manner(self) -> Manner:
        """What more the reply is; always `PLAIN` for one that is LCP itself."""
        return self._manner

    def in_manner(self, manner: Manner) -> Self:
        """The action itself, told what more it is."""
        self._manner = manner
        return self

    @property
    def recovered(self) -> tuple[str, ...]:
        """What was removed around the object, white space aside (R1)."""
        return self._recovered

    @property
    def warnings(self) -> tuple[str, ...]:
        """Keys that were ignored, each named (R2)."""
        return self._warnings

    def note(self, recovered: tuple[str, ...], warnings: tuple[str, ...]) -> Self:
        """The action itself, told what was removed around it and ignored in it."""
        self._recovered, self._warnings = recovered, warnings
        return self


class CreateFollowupJobs(_Action):
    """Go on with these jobs; without any, the mission is over."""

    ok: Literal[True] = True
    action: Literal["create_followup_jobs"] = "create_followup_jobs"
    new_jobs: tuple[JobSpec, ...]

    @property
    def requested(self) -> tuple[JobSpec, ...]:
        """The jobs that this action asks for."""
        return self.new_jobs


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
        """The one job that this action asks for."""
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


class MissionComplete(_Action):
    """End the mission: its goal is reached."""

    ok: Literal[True] = True
    action: Literal["mission_complete"] = "mission_complete"
    summary: str
    deliverables: list[_Json] | None = None
    metrics: dict[str, _Json] | None = None


class ErrorAction(_Action):
    """End the mission: the planner cannot go on."""

    ok: Literal[False] = False
    action: Literal["error"] = "error"
    error: str
    error_code: str | None = None
    attempted_action: str | None = None
    recovery_suggestion: str | None = None


Action: TypeAlias = CreateFollowupJobs | WriteFile | AnalysisResult | MissionComplete | ErrorAction


class Problem(BaseModel):
    """One reason why a text is not what it should be: where, and what."""

    model_config = ConfigDict(frozen=True)

    path: str
    message: str


class Malformed(BaseModel):
    """A reply that is not one valid LCP action, with every reason found (R1 to R3)."""

    model_config = ConfigDict(frozen=True)

    errors: tuple[Problem, ...]
    recovered: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
