"""Say what a mission would do, as far as that is known before its first turn; write nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import MERGE
from lcp_engine.core.limits.prices import Price, Prices
from lcp_engine.core.mission.spec import MissionSpec, WorstCase, expected_result
from lcp_engine.core.policy import STAGED, Policy, Rule, Verdict
from lcp_engine.core.protocol.actions import CreateFollowupJobs, JobSpec, WriteFile, param_names
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.core.summaries import nearest, subject_of
from lcp_engine.engine import admission as admit
from lcp_engine.engine.admission import Admission, permission_ruling, ruling_on
from lcp_engine.engine.points import root_provider
from lcp_engine.engine.turn_queue import turn_attempts
from lcp_engine.features.authoring.idle_rules import idle_rules, rules_by_path
from lcp_engine.features.authoring.store import open_missions
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import (
    AsksModel,
    NamesModel,
    PlannerEnvironment,
    refuse_without_price,
)
from lcp_engine.planners.registry import make_planner
from lcp_engine.planners.simple import ScriptPlanner, check_script
from lcp_engine.store.db.open import find_version, opened
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.workers.base import ExecutedBy, Worker, Workers, params_of

GIT_SECONDS = 20.0


@dataclass(frozen=True)
class KindOutlook:
    """What becomes of jobs of a kind: the verdict where no rule about certain paths matches, and those rules."""

    kind: str
    verdict: Verdict
    reason: str
    by_path: tuple[str, ...] = ()

    @property
    def json(self) -> dict[str, JsonValue]:
        return {
            "kind": self.kind, "verdict": self.verdict.value, "reason": self.reason, "by_path": [*self.by_path],
        }  # fmt: skip


@dataclass(frozen=True)
class ScriptedJob:
    """A job that reply `reply` of a script requests and that policy will not simply run: held or denied."""

    reply: int
    kind: str
    about: str
    verdict: Verdict
    reason: str

    @property
    def json(self) -> dict[str, JsonValue]:
        return {
            "reply": self.reply, "kind": self.kind, "about": self.about, "verdict": self.verdict.value,
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class RootOutlook:
    """The root as it is now. `branch` is None outside of a git work tree, `changed` if git cannot tell."""

    path: str
    is_writable: bool
    branch: str | None
    changed: int | None
    missions: tuple[int, ...]
    """Missions over the same root that have not ended."""

    @property
    def json(self) -> dict[str, JsonValue]:
        return {
            "path": self.path, "writable": self.is_writable, "branch": self.branch,
            "uncommitted": self.changed, "missions": [*self.missions],
        }  # fmt: skip


@dataclass(frozen=True)
class DryRun:
    """What is known of a mission before its first turn."""

    spec: MissionSpec
    root: RootOutlook
    asks_model: bool
    kinds: tuple[KindOutlook, ...]
    script: tuple[ScriptedJob, ...]
    worst_case: WorstCase
    warnings: tuple[str, ...]

    @property
    def json(self) -> dict[str, JsonValue]:
        spec = self.spec
        return {
            "valid": True,
            "name": spec.name,
            "goal": spec.goal,
            "planner": {"type": spec.planner.type, "dialect": spec.planner.dialect, "model": self.asks_model},
            "root": self.root.json,
            "kinds": [kind.json for kind in self.kinds],
            "script": [job.json for job in self.script],
            "limits": spec.limits.model_dump(mode="json"),
            "worst_case": self.worst_case.json,
            "accept": [check.description for check in spec.accept],
            "endings": [*spec.endings],
            "warnings": [*self.warnings],
        }


def dry_run(
    spec: MissionSpec,
    root: Path,
    url: str | None,
    admission: Admission,
    planner_environment: PlannerEnvironment,
) -> DryRun:
    """What the mission would do over `root`; the database at `url` is only read, None if there is none yet.

    A model's server is not asked. Raises `NO_PLANNER` and `INVALID_MISSION` for a planner that cannot be made, and the
    errors of a database that cannot be used.
    """
    planner = make_planner(spec.planner, planner_environment)
    refuse_without_price(planner, spec.limits, planner_environment.prices)
    outlook = _root(root, _missions(url, str(root)))
    policy = admission.policy(spec, str(root))
    workers = admission.workers
    warnings = _root_warnings(outlook) + idle_rules_of(spec, root, admission)
    warnings += check_script(planner, spec.planner, params_of(workers), expected_result(spec))
    warnings += _script_warnings(planner, spec, workers)
    return DryRun(
        spec,
        outlook,
        isinstance(planner, AsksModel),
        tuple(
            _kind(worker, spec, policy, admission.user_rules)
            for _, worker in sorted(workers.items())
            if worker.command is None or spec.commands.allow
        )
        + (
            (KindOutlook(MERGE, Verdict.HOLD, "every merge waits for a person"),)
            if root_provider().is_private(spec)
            else ()
        ),
        tuple(_scripted(planner, spec, policy, workers)),
        worst_case(spec, planner_environment),
        tuple(warnings),
    )


def idle_rules_of(spec: MissionSpec, root: Path, admission: Admission) -> list[str]:
    """The rules of a mission that do nothing, or not what they say, and why."""
    workers = admission.workers
    has_paths = {kind: worker.executed_by is ExecutedBy.RUNNER for kind, worker in workers.items()}
    has_paths[MERGE] = True  # of a stage; it may do what every kind that writes may
    found = idle_rules(spec.policy, admission.user_rules, has_paths)
    if not root_provider().is_private(spec):
        named = [number for number, rule in enumerate(spec.policy, 1) if MERGE in rule.kinds]
        found += [f"mission rule {number}: only a mission with `stage: true` has a merge" for number in named]
    return found + _not_lifted(spec.policy, admission.policy(spec, str(root)), workers)


def worst_case(spec: MissionSpec, planner_environment: PlannerEnvironment) -> WorstCase:
    """The most that the mission can cost."""
    planner = make_planner(spec.planner, planner_environment)
    attempt = planner.most_tokens() if isinstance(planner, AsksModel) else 0
    question_tokens = None if attempt is None else attempt * turn_attempts(spec)
    return WorstCase(spec.limits, question_tokens, _price_of(planner, planner_environment.prices))


def _price_of(planner: Planner, prices: Prices | None) -> tuple[Price, str] | None:
    """The price of the planner's model, with its currency; None if no price is stated for it."""
    if prices is None:
        return None
    price = prices.of_model(planner.model_name() if isinstance(planner, NamesModel) else "")
    return None if price is None else (price, prices.currency)


def _missions(url: str | None, root: str) -> tuple[int, ...]:
    """The open missions of the root."""
    if url is None or find_version(url) is None:
        return ()
    with opened(url, BUSY_SECONDS) as database:
        return tuple(database.read(lambda tx: open_missions(tx, root)))


def _root(root: Path, missions: tuple[int, ...]) -> RootOutlook:
    branch, changed = _git(root)
    return RootOutlook(str(root), os.access(root, os.W_OK | os.X_OK), branch, changed, missions)


def _git(root: Path) -> tuple[str | None, int | None]:
    """The branch and the number of uncommitted paths beneath the root; None for what git does not tell."""
    git = shutil.which("git")
    if git is None:
        return None, None
    # The repository's own filters are commands, which `git status` would run on files that may have changed.
    if _output_of(git, root, ["config", "--local", "--includes", "--get-regexp", r"^(filter|extensions)\."]):
        branch = _output_of(git, root, ["symbolic-ref", "--short", "--quiet", "HEAD"])
        return (branch.strip() or None) if branch else None, None
    found = _output_of(
        git, root, ["status", "--porcelain=v1", "--branch", "-z", "--ignore-submodules=all", "--", "."]
    )
    if found is None:
        return None, None
    head, *paths = found.rstrip("\0").split("\0")
    name = re.sub(r"^## (No commits yet on )?|\.\.\..*$", "", head)
    return name, sum(re.match(r"[ MTADRCU?!]{2} ", path) is not None for path in paths)


def _output_of(git: str, root: Path, command: Sequence[str]) -> str | None:
    """What a git command prints; None if it fails. It refreshes no index and starts no hook, monitor or transport.

    The files of a bare repository are files of a root like others, which a mission may have written.
    """
    settings = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.bareRepository=explicit")
    options = ["--no-optional-locks", *(word for one in settings for word in ("-c", one))]
    try:
        done = subprocess.run(  # noqa: S603 -- git, found on PATH, as this user would run it
            [git, *options, *command], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=GIT_SECONDS,
            # Objects that a repository lacks would be fetched, by a command that its own settings name.
            env={**os.environ, "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _root_warnings(root: RootOutlook) -> list[str]:
    warnings = []
    if not root.is_writable:
        warnings.append(f"root {root.path} is not writable; jobs that write will fail")
    if root.missions:
        ids = ", ".join(map(str, root.missions))
        several = len(root.missions) > 1
        warnings.append(
            f"mission{'s' * several} {ids} in the same root {'have' if several else 'has'} not ended"
        )
    return warnings


_PATHS = {"rel_path", "path", "root"}
"""Params that name a path, in kinds of the engine and by convention."""


def _kind(worker: Worker[BaseModel], spec: MissionSpec, policy: Policy, users: Sequence[Rule]) -> KindOutlook:
    kind, has_effects = worker.kind, worker.has_effects
    if worker.writes or not _PATHS.isdisjoint(param_names(worker.params)):
        ruling = policy.elsewhere(worker.named, has_effects=has_effects)
    else:
        ruling = policy.judge(worker.named, has_effects=has_effects, writes=worker.writes)
    verdict, reason = ruling.verdict, ruling.reason
    by_kind = permission_ruling(worker, spec)
    if by_kind is not None and verdict is not Verdict.DENY:
        verdict, reason = by_kind
    elif (
        verdict is Verdict.HOLD
        and root_provider().is_private(spec)
        and (worker.writes or worker.command is not None)
    ):
        verdict, reason = STAGED.verdict, STAGED.reason
    by_path = [
        f"{name} ({', '.join(rule.paths or ())}): {rule.do}"
        for name, rule in rules_by_path(spec.policy, users, worker.named)
        if by_kind is None and worker.executed_by is ExecutedBy.RUNNER
    ]
    return KindOutlook(kind, verdict, str(reason), tuple(by_path))


def _requests(planner: Planner, spec: MissionSpec, workers: Workers) -> Iterator[tuple[int, JobSpec]]:
    """The jobs that a script's replies request, each with the number of its reply."""
    replies = (
        planner.read(spec.planner.dialect, params_of(workers)) if isinstance(planner, ScriptPlanner) else ()
    )
    for number, reply in enumerate(replies, 1):
        if isinstance(reply, CreateFollowupJobs | WriteFile):
            yield from ((number, job) for job in reply.requested)


def _script_warnings(planner: Planner, spec: MissionSpec, workers: Workers) -> list[str]:
    """What is missing for a script: replies, or workers for what they request."""
    if isinstance(planner, ScriptPlanner) and not planner.replies:
        return ["planner.replies is empty; the first question ends the mission as failed"]
    return [
        f"reply {number} requests kind {job.kind!r}, which no worker executes; it will be held; "
        f"{nearest(job.kind, [kind for kind, _ in workers.items()])}"
        for number, job in _requests(planner, spec, workers)
        if workers.get(job.kind) is None
    ]


def _scripted(planner: Planner, spec: MissionSpec, policy: Policy, workers: Workers) -> Iterator[ScriptedJob]:
    """The jobs of a script that will be held or denied."""
    for number, job in _requests(planner, spec, workers):
        worker = workers.get(job.kind)
        params = None if worker is None else admit.params_of(worker, job.params)
        if worker is None or params is None:
            continue
        verdict, reason, _ = ruling_on(policy, worker, params, spec)
        if verdict is Verdict.AUTO and job.auto_dispatch is False:
            verdict, reason = Verdict.HOLD, because(ReasonCode.PLANNER_REVIEW)
        if verdict is not Verdict.AUTO:
            about = subject_of(job.params, job.name)
            yield ScriptedJob(number, job.kind, about, verdict, str(reason))


_DENIALS = {ReasonCode.SECRETS, ReasonCode.ENGINE_FILES, ReasonCode.GIT_CONFIG, ReasonCode.GIT_FILES}


def _not_lifted(rules: Sequence[Rule], policy: Policy, workers: Workers) -> list[str]:
    """Files that a rule of the mission names and the default policy denies all the same."""
    found = []
    for number, rule in enumerate(rules, 1):
        named = [path.lstrip("/") for path in rule.paths or () if not re.search(r"[*?\[!\\]", path)]
        kinds = [worker for kind, worker in workers.items() if "*" in rule.kinds or kind in rule.kinds]
        for path in named if rule.do is not Verdict.DENY else ():
            rulings = [
                policy.judge(
                    worker.named, has_effects=worker.has_effects, writes=worker.writes, paths=(path,)
                )
                for worker in kinds
                if worker.executed_by is ExecutedBy.RUNNER
            ]
            denial = next((ruling for ruling in rulings if ruling.reason.code in _DENIALS), None)
            if denial is not None:
                found.append(
                    f"mission rule {number}: {path!r} stays denied: {denial.reason}; only a user's rule lifts that"
                )
    return found
