"""Reasons for the state of a job: a code with data for programs, and the sentence made from them for people (R23).

Pure. Rewording a sentence changes nothing but the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lcp_engine.core.json_values import JsonValue


class ReasonCode(StrEnum):
    """Reason to hold, reject, skip, cancel or queue a job again. Stored in the history: never rename one."""

    ADMIN_NOT_ALLOWED = "admin_not_allowed"
    ALWAYS_HELD = "always_held"
    ANSWERED_BEFORE = "answered_before"
    APPLY = "apply"
    APPLY_CONFLICT = "apply_conflict"
    APPLY_REFUSED = "apply_refused"
    ASKED_TO_WAIT = "asked_to_wait"
    CANCELLED_BY = "cancelled_by"
    COMMAND = "command"
    CONDITION_UNMET = "condition_unmet"
    CONFLICT = "conflict"
    DEFAULT_AUTO = "default_auto"
    DEFAULT_DENIALS = "default_denials"
    DEFAULT_HOLD = "default_hold"
    DRIFT = "drift"
    ELSEWHERE = "elsewhere"
    ENGINE_FILES = "engine_files"
    FILE_BUSY = "file_busy"
    GIT_CONFIG = "git_config"
    GIT_FILES = "git_files"
    HELD_BEFORE = "held_before"
    HOLD_TIMEOUT = "hold_timeout"
    IRREVERSIBLE = "irreversible"
    LIMIT_REACHED = "limit_reached"
    MAX_BYTES_WRITTEN = "max_bytes_written"
    MAX_DEPTH = "max_depth"
    MAX_FOLLOWUPS = "max_followups"
    MAX_JOBS = "max_jobs"
    MAX_RUNNING = "max_running"
    MERGE = "merge"
    MERGE_CONFLICT = "merge_conflict"
    MERGE_REFUSED = "merge_refused"
    MISSION_ENDED = "mission_ended"
    NETWORK_ROOT = "network_root"
    NOT_JUDGED = "not_judged"
    NOT_STARTED = "not_started"
    NO_WORKER = "no_worker"
    PLAN_ABORTED = "plan_aborted"
    PLAN_ENDED = "plan_ended"
    PLANNER_REVIEW = "planner_review"
    QUESTION = "question"
    RATE_LIMIT = "rate_limit"
    REJECTED = "rejected"
    REJECTED_BEFORE = "rejected_before"
    REPLY_WANTED = "reply_wanted"
    RULE = "rule"
    RUNNER_DIED = "runner_died"
    SAME_REPLY = "same_reply"
    SECRETS = "secrets"
    SHORTAGE = "shortage"
    STAGED = "staged"
    STEP_ENDED = "step_ended"
    STEP_ORDER = "step_order"
    """A blocked step: one before it has not ended yet as it needs."""
    STEP_REFUSED = "step_refused"
    TURN_ORDER = "turn_order"
    """A blocked turn: a mission asks one turn at a time, in the order of job ids (R7)."""
    TWO_FORMS = "two_forms"


BY_PERSON = frozenset(
    {
        ReasonCode.REJECTED,
        ReasonCode.REJECTED_BEFORE,
        ReasonCode.ANSWERED_BEFORE,
        ReasonCode.HOLD_TIMEOUT,
    }
)
"""A person decided so, of this job or an equal one, or decided too late: they may change their mind and retry it."""

_SENTENCES: Mapping[ReasonCode, str] = {
    ReasonCode.ADMIN_NOT_ALLOWED: "kind {kind} needs a mission that was launched with allow_admin",
    ReasonCode.ALWAYS_HELD: "kind {kind} has the permission level {level} and always waits for a person",
    ReasonCode.ANSWERED_BEFORE: "it equals job {job}, which {by} answered: {answer}",
    ReasonCode.APPLY: "what the command of job {job} changed ({files}) waits to be applied to the root",
    ReasonCode.APPLY_CONFLICT: "not applied: changed since the command began: {files}",
    ReasonCode.APPLY_REFUSED: "not applied: {fact}",
    ReasonCode.ASKED_TO_WAIT: "the model's server asks to wait",
    ReasonCode.CANCELLED_BY: "cancelled by {by}",
    ReasonCode.COMMAND: "no entry of commands.allow fits; {entry} would fit exactly this command",
    ReasonCode.CONDITION_UNMET: "its condition does not hold: {condition}",
    ReasonCode.CONFLICT: "the file is not what it was when the change was made",
    ReasonCode.DEFAULT_AUTO: "default policy: kinds without effects run",
    ReasonCode.DEFAULT_DENIALS: "default policy: secrets, .git and the engine's own files are denied",
    ReasonCode.DEFAULT_HOLD: "default policy: kinds with effects wait for a person",
    ReasonCode.DRIFT: "the file has changed since this was approved",
    ReasonCode.ELSEWHERE: "it may have changed the file on another machine, where a runner has to find that out",
    ReasonCode.ENGINE_FILES: "default policy: the engine's own files are denied",
    ReasonCode.FILE_BUSY: "another job is changing files in that directory",
    ReasonCode.GIT_CONFIG: "default policy: reading .git/config is denied",
    ReasonCode.GIT_FILES: "default policy: writing .git and .gitmodules is denied",
    ReasonCode.HELD_BEFORE: "it was held before",
    ReasonCode.HOLD_TIMEOUT: "no decision within {seconds:g} s (hold_timeout)",
    ReasonCode.IRREVERSIBLE: (
        "the file has {size} bytes, above the {most} that are kept: this write could not be undone"
    ),
    ReasonCode.LIMIT_REACHED: "the mission reached {limit}",
    ReasonCode.MAX_BYTES_WRITTEN: (
        "the mission may write max_bytes_written = {most} bytes, has {left} left and this job needs {needed}"
    ),
    ReasonCode.MAX_DEPTH: "plans may nest max_depth = {most} deep; this one is {depth} deep",
    ReasonCode.MAX_FOLLOWUPS: "more than max_followups ({most}) in one reply",
    ReasonCode.MAX_JOBS: "the mission may have max_jobs = {most} jobs, and has them",
    ReasonCode.MAX_RUNNING: "as many jobs run as {of} may have (max_running: {most})",
    ReasonCode.MERGE: "what the mission did in its stage ({files}) waits to be merged into the root",
    ReasonCode.MERGE_CONFLICT: "not merged, as the diff says at each: {files}",
    ReasonCode.MERGE_REFUSED: "not merged: {fact}",
    ReasonCode.MISSION_ENDED: "the mission has ended",
    ReasonCode.NETWORK_ROOT: "another machine writes to the root, and locks may not exclude it",
    ReasonCode.NOT_JUDGED: "policy has not judged it",
    ReasonCode.NOT_STARTED: "not started",
    ReasonCode.NO_WORKER: "no worker executes this kind",
    ReasonCode.PLAN_ABORTED: "step {step} (job {job}) {fault}, and that ends the plan",
    ReasonCode.PLAN_ENDED: "the plan has ended",
    ReasonCode.PLANNER_REVIEW: "the planner asked for review (auto_dispatch: false)",
    ReasonCode.QUESTION: "it is a question to a person",
    ReasonCode.RATE_LIMIT: "{of} may start {often} (rate_limit)",
    ReasonCode.REJECTED: "{words}",
    ReasonCode.REJECTED_BEFORE: "it equals job {job}, which a person rejected: {words}",
    ReasonCode.REPLY_WANTED: "a person has to bring the planner's reply",
    ReasonCode.RULE: "{origin} rule {number} ({what}) says {verdict}",
    ReasonCode.RUNNER_DIED: "runner {runner} (pid {pid}) died",
    ReasonCode.SAME_REPLY: "one reply requests it {times} times, and it is one job",
    ReasonCode.SECRETS: "default policy: secrets are denied",
    ReasonCode.SHORTAGE: "the system starts no further process or thread",
    ReasonCode.STAGED: "the mission works in a stage, whose merge waits for a person",
    ReasonCode.STEP_ENDED: "job {job}, the step before it, {fault}",
    ReasonCode.STEP_ORDER: "the step before it has not succeeded yet",
    ReasonCode.STEP_REFUSED: "the step before it was refused",
    ReasonCode.TURN_ORDER: "another turn is asked before it",
    ReasonCode.TWO_FORMS: (
        "the directory {name} looks the same as {other}, which an earlier job names in another Unicode form"
    ),
}
_BARE = frozenset(
    {
        ReasonCode.CONFLICT,
        ReasonCode.DRIFT,
        ReasonCode.ELSEWHERE,
        ReasonCode.NO_WORKER,
        ReasonCode.STEP_ORDER,
        ReasonCode.TURN_ORDER,
    }
)
"""Stored as the code alone, without its sentence: logic and older databases compare a job's reason with them."""
FILE_CHANGED = frozenset({ReasonCode.CONFLICT, ReasonCode.DRIFT, ReasonCode.ELSEWHERE})
"""A held job whose file has, or may have, changed: it needs a decision of its own."""


_USERS_RULE = "Leave the file alone; only a rule in the user's configuration that names it allows it."
_ADVICE: Mapping[ReasonCode, str] = {
    ReasonCode.ADMIN_NOT_ALLOWED: "Do without it; only who launches a mission can allow such kinds (--allow-admin).",
    ReasonCode.ANSWERED_BEFORE: "Go on with that answer, or ask something else.",
    ReasonCode.COMMAND: "Use a command that is allowed; only who wrote the mission file can add the entry.",
    ReasonCode.DEFAULT_DENIALS: _USERS_RULE,
    ReasonCode.ENGINE_FILES: "Leave the engine's own files alone.",
    ReasonCode.GIT_CONFIG: _USERS_RULE,
    ReasonCode.GIT_FILES: _USERS_RULE,
    ReasonCode.HOLD_TIMEOUT: "Propose it again once a person can decide, or raise hold_timeout in the mission file.",
    ReasonCode.MAX_BYTES_WRITTEN: "Write less; a higher limits.max_bytes_written counts when the mission is resumed.",
    ReasonCode.MAX_DEPTH: "Do it in this plan instead of a further one.",
    ReasonCode.MAX_JOBS: "Finish with what is there; a higher limits.max_jobs counts when the mission is resumed.",
    ReasonCode.REJECTED_BEFORE: "Read the person's reason, and propose something else or end the mission.",
    ReasonCode.REJECTED: "Read the person's reason, and propose something else or nothing.",
    ReasonCode.RULE: "Do without it; only a change of that rule allows it.",
    ReasonCode.SECRETS: _USERS_RULE,
    ReasonCode.STEP_REFUSED: "Correct the step before it, then propose both again.",
    ReasonCode.TWO_FORMS: "Name it as the job before it does: the escapes tell the two apart.",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A code with the data of its sentence. `words` are given instead for what is stored, or has no code."""

    code: ReasonCode | None
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    words: str | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The sentence for people."""
        if self.words is not None or self.code is None:
            return self.words or ""
        return sentence(self.code, self.data)

    @property
    def advice(self) -> str | None:
        """Advice about a refusal for this reason; None if the advice of its error code fits."""
        return None if self.code is None else _ADVICE.get(self.code)

    @property
    def record(self) -> dict[str, JsonValue]:
        """The reason as it is stored in an event."""
        if self.code is None:
            return {"reason": self.text}
        coded: dict[str, JsonValue] = {"reason": self.text, "code": self.code.value}
        return {**coded, "about": dict(self.data)} if self.data else coded


def because(code: ReasonCode, **data: JsonValue) -> Reason:
    """The reason of that code; `data` fills its sentence."""
    return Reason(code, data)


def stated(words: str) -> Reason:
    """A reason in the words of a person, a plug-in or an error: no logic depends on it."""
    return Reason(None, words=words)


def sentence(code: ReasonCode, data: Mapping[str, JsonValue]) -> str:
    """The one place where sentences are made."""
    return _SENTENCES[code].format_map(data)


def recorded(record: Mapping[str, JsonValue]) -> Reason | None:
    """The reason that an event states; None if it states none."""
    text, about = record.get("reason"), record.get("about")
    if text is None:
        return None
    code = recorded_code(record)
    return Reason(code, about if isinstance(about, dict) else {}, str(text))


def recorded_code(record: Mapping[str, JsonValue]) -> ReasonCode | None:
    """The code of the reason that an event states."""
    code = record.get("code")
    return ReasonCode(str(code)) if code in _CODES else None


_CODES = frozenset(code.value for code in ReasonCode)


def told_wait(waits_for: Mapping[str, JsonValue]) -> str:
    """Words for what the question of a mission waits for: `waits_for` of the mission, which is not empty."""
    return sentence(ReasonCode(str(waits_for["code"])), waits_for)


def explain_reason(reason: str) -> str:
    """A job's reason in words, if it is stored as a code alone."""
    return _SENTENCES[ReasonCode(reason)] if reason in _BARE else reason
