"""Tell a planner what it may ask for: the kinds of jobs that policy and permissions leave it (R5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.policy import Verdict
from lcp_engine.engine.jobs.admission import Bench
from lcp_engine.planners.base import Kind
from lcp_engine.workers.base import Permission

READING = "read_file"


def allowed_kinds(bench: Bench, spec: MissionSpec, root: str | None) -> tuple[Kind, ...]:
    """The kinds that are not denied altogether; a rule about paths may still hold or deny a job."""
    policy = bench.policy(spec, root)
    kinds: list[Kind] = []
    for name, worker in bench.workers.items():
        verdict = policy.judge(name, has_effects=worker.has_effects, writes=worker.writes).verdict
        is_refused = worker.permission is Permission.ADMIN and not spec.allow_admin
        if verdict is Verdict.DENY or is_refused:
            continue
        is_held = verdict is Verdict.HOLD or worker.permission is not Permission.USER or worker.asks_person
        kinds.append(Kind(name, worker.description, worker.params, is_held))
    return tuple(kinds)


def writable(bench: Bench, spec: MissionSpec, root: str | None) -> Mapping[str, Sequence[str]]:
    """The files that each kind may write, where policy names them one by one; other kinds may write any."""
    policy = bench.policy(spec, root)
    named = {
        kind: policy.only_files(kind, has_effects=worker.has_effects, writes=True)
        for kind, worker in bench.workers.items()
        if worker.writes
    }
    return {kind: files for kind, files in named.items() if files is not None}


def may_read(bench: Bench, spec: MissionSpec, root: str | None) -> Callable[[str], bool]:
    """Whether a path may be asked for by `read_file`."""
    judge = bench.policy(spec, root).for_kind(READING, has_effects=False, writes=False)
    return lambda path: judge(path).verdict is not Verdict.DENY
