"""Check from outside what a scenario has left behind: by the files and plain SQL, without the engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import sha256
from pathlib import Path

from tests.faults.program import FILE
from tests.faults.stage import ENDED, Stage


def problems(stage: Stage) -> list[str]:
    """What contradicts that nothing is lost, nothing happens twice, and every state is true; empty if nothing does."""
    return [
        *_lost(stage),
        *([] if stage.others_write else _lines(stage)),
        *_untrue(stage),
        *([] if stage.others_write else _chains(stage)),
        *_paid(stage),
        *_inconsistent(stage),
    ]


def _lost(stage: Stage) -> list[str]:
    """Every acknowledged mission and each of its jobs is there and has ended."""
    there = {mission for (mission,) in stage.rows("SELECT id FROM missions")}
    found = [
        f"mission {mission} was acknowledged and is not there"
        for mission in stage.wanted
        if mission not in there
    ]
    jobs: Counter[object] = Counter()
    for mission, job, state in stage.rows(
        "SELECT mission_id, id, state FROM jobs WHERE kind NOT IN ('agent_plan', 'undo')"
    ):
        jobs[mission] += 1
        if state not in ENDED or (state != "succeeded" and not stage.may_fail):
            found.append(f"job {job} is {state}: {_error(stage, job)}")
    return found + [
        f"mission {mission} has {jobs[mission]} jobs instead of {len(wanted.lines)}"
        for mission, wanted in stage.wanted.items()
        if jobs[mission] != len(wanted.lines) and wanted.lines
    ]


def _lines(stage: Stage) -> list[str]:
    """Each wanted line is in its file once, and nothing else is."""
    wanted: dict[Path, list[str]] = defaultdict(list)
    for mission in stage.wanted.values():
        wanted[mission.place] += mission.lines
    found = []
    for place, lines in wanted.items():
        there = Counter((place / FILE).read_text().split() if (place / FILE).exists() else [])
        found += [f"{line} is {there[line]} times in {place.name}" for line in lines if there[line] > 1]
        if not stage.may_fail:
            missing = [line for line in lines if there[line] == 0]
            found += [f"{len(missing)} lines are not in {place.name}, {missing[0]} first"] if missing else []
        strange = [line for line in there if line not in lines]
        found += (
            [f"{len(strange)} lines do not belong in {place.name}, {strange[0]} first"] if strange else []
        )
        found += [f"{file.name} was left in {place.name}" for file in place.glob(".lcp-*")]
    return found


def _untrue(stage: Stage) -> list[str]:
    """A job has succeeded if and only if its change was applied, once; no intent is left open.

    One that was cancelled may have been about to.
    """
    applied = Counter(
        job for (job,) in stage.rows("SELECT job_id FROM changes WHERE state = 'applied' AND undoes IS NULL")
    )
    states = stage.rows(
        "SELECT id, state FROM jobs WHERE kind NOT IN ('agent_plan', 'undo', 'merge', 'move_file', 'run_command')"
    )
    found = [
        f"job {job} is {state} and changed its file {applied[job]} times"
        for job, state in states
        if applied[job] != (state == "succeeded") and not (state == "cancelled" and applied[job] == 1)
    ]
    return found + [
        f"change {change} was left open"
        for (change,) in stage.rows("SELECT id FROM changes WHERE state = 'intent'")
    ]


def _chains(stage: Stage) -> list[str]:
    """Each change of a file begins with what the one before it left, and the last one left what is there."""
    found = []
    last: dict[tuple[Path, object], object] = {}
    query = "SELECT mission_id, path, id, sha256_before, sha256_after FROM changes WHERE state = 'applied' ORDER BY id"
    for mission, path, change, before, after in stage.rows(query):
        assert isinstance(mission, int)
        name = (stage.wanted[mission].place, path)
        if name in last and last[name] != before:
            found.append(f"change {change} of {path} does not begin with what the one before it left")
        last[name] = after
    for (place, path), after in last.items():
        file = place / str(path)
        there = sha256(file.read_bytes()).hexdigest() if file.exists() else None
        if there != after:
            found.append(f"{path} in {place.name} is not what the last change left")
    return found


def _paid(stage: Stage) -> list[str]:
    """Each reply that was paid for is stored, and its tokens are counted."""
    if not stage.paid:
        return []
    used = stage.number("SELECT count(*) FROM turns WHERE reply IS NOT NULL")
    stored = stage.number("SELECT CAST(coalesce(sum(output_tokens), 0) AS INTEGER) FROM missions")
    found = [] if used == stage.paid else [f"{stage.paid} replies were paid, {used} are used"]
    return found if stored == stage.paid else [*found, f"{stage.paid} tokens were paid, {stored} are counted"]


def _inconsistent(stage: Stage) -> list[str]:
    said = stage.lcp("db", "check")
    return (
        []
        if said.returncode == 0
        else [f"lcp db check: {said.stdout.strip()[-500:]} {said.stderr.strip()[-500:]}"]
    )


def _error(stage: Stage, job: object) -> object:
    return stage.rows(f"SELECT error FROM jobs WHERE id = {job}")[0][0]
