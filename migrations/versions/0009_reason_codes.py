"""Add the codes of reasons, and the failed acceptance checks of turns, to the events of older versions.

Those versions stored sentences only. Their wording is fixed, so this is the one place that may read it.

Revision ID: 0009
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

Data: TypeAlias = dict[str, object]
Change: TypeAlias = dict[str, object]
Event: TypeAlias = tuple[int, int, str, str]

MISSIONS_AT_ONCE = 500
EXACT = {
    "default policy: kinds with effects wait for a person": "default_hold",
    "default policy: reading .git/config is denied": "git_config",
    "default policy: secrets are denied": "secrets",
    "default policy: the engine's own files are denied": "engine_files",
    "default policy: writing .git and .gitmodules is denied": "git_files",
    "a person has to bring the planner's reply": "reply_wanted",
    "it is a question to a person": "question",
    "it was held before": "held_before",
    "nobody judged it": "not_judged",
    "not started": "not_started",
    "the mission has ended": "mission_ended",
    "the plan has ended": "plan_ended",
    "the planner asked for review (auto_dispatch: false)": "planner_review",
    "the step before it was refused": "step_refused",
}
PATTERNS = (
    (re.compile(r"cancelled by (?P<by>.*)", re.DOTALL), "cancelled_by"),
    (re.compile(r"the mission reached (?P<limit>max_\w+)"), "limit_reached"),
    (
        re.compile(r"the file has \d+ bytes, above the \d+ that are kept: this write could not be undone"),
        "irreversible",
    ),
    (re.compile(r"job \d+, the step before it, (?:has failed|was \w+)"), "step_ended"),
    (re.compile(r"kind \S+ has the permission level \w+ and always waits for a person"), "always_held"),
    (re.compile(r"kind \S+ needs a mission that was launched with allow_admin"), "admin_not_allowed"),
    (re.compile(r"more than max_followups \(\d+\) in one reply"), "max_followups"),
    (re.compile(r"nobody decided within \S+ s \(hold_timeout\)"), "hold_timeout"),
    (re.compile(r"plans may nest max_depth = \d+ deep; this one is \d+ deep"), "max_depth"),
    (re.compile(r"runner \d+ \(pid \d+\) died"), "runner_died"),
    (re.compile(r"the mission may have max_jobs = \d+ jobs, and has them"), "max_jobs"),
    (re.compile(r"the mission may write max_bytes_written = .*"), "max_bytes_written"),
    (re.compile(r"(?:final )?(?:mission|user, final|user) rule \d+ \(.*\) says \w+", re.DOTALL), "rule"),
)
REASONED = (
    *("held", "blocked", "refused", "rejected", "released", "rescued", "held_again", "skipped", "cancelled"),
    *("retried_held", "retried_in_turn", "approved_in_turn", "mission_cancelled"),
)
EVENTS = sa.text(
    f"SELECT mission_id, seq, event, data FROM events WHERE mission_id > :low AND mission_id <= :high "
    f"AND data IS NOT NULL AND event IN ({', '.join(map(repr, REASONED))}) ORDER BY mission_id, seq"
)
UPDATE = sa.text("UPDATE events SET data = :data WHERE mission_id = :mission AND seq = :seq")
CHECKED = sa.text("SELECT id, spec, summary FROM missions WHERE spec LIKE '%\"accept\":[{%' ORDER BY id")
TURNS = sa.text(
    "SELECT j.id, j.params, e.seq, e.data FROM jobs j JOIN events e ON e.mission_id = j.mission_id AND e.job_id = j.id "
    "WHERE j.mission_id = :mission AND j.role <> 'work' AND e.event IN ('succeeded', 'delegated', 'failed') "
    "ORDER BY j.id, e.seq"
)
QUESTIONS = sa.text("SELECT id, params FROM jobs WHERE mission_id = :mission AND role = 'turn' ORDER BY id")
ASKED = sa.text(
    "SELECT j.parent_id, e.data FROM events e JOIN jobs j ON j.id = e.job_id "
    "WHERE e.mission_id = :mission AND e.event = 'person_asked' AND e.data IS NOT NULL"
)


def upgrade() -> None:
    if op.get_context().as_sql:
        return  # SQL that is printed is for new databases, which have no events
    connection = op.get_bind()
    highest = connection.scalar(sa.text("SELECT coalesce(max(id), 0) FROM missions"))
    for low in range(0, highest, MISSIONS_AT_ONCE):
        found = connection.execute(EVENTS, {"low": low, "high": low + MISSIONS_AT_ONCE})
        rows = [(row[0], row[1], row[2], row[3]) for row in found]
        _update(connection, [*_coded(rows), *_cancelled(connection, rows)])
    for mission, spec, summary in connection.execute(CHECKED).all():
        _update(connection, _checked(connection, mission, json.loads(spec), summary))


def _update(connection: sa.Connection, changes: Sequence[Change]) -> None:
    if changes:
        connection.execute(UPDATE, changes)


def _change(mission: int, seq: int, data: Data) -> Change:
    return {
        "mission": mission,
        "seq": seq,
        "data": json.dumps(data, ensure_ascii=False, separators=(",", ":")),
    }


def _coded(rows: Sequence[Event]) -> Iterator[Change]:
    for mission, seq, event, text in rows:
        data = json.loads(text)
        reason = data.get("reason")
        if isinstance(reason, str) and "code" not in data and (coded := _code(event, reason)) is not None:
            yield _change(mission, seq, {**data, **coded})


def _code(event: str, reason: str) -> Data | None:
    if event == "rejected":
        is_timeout = _matched(reason) == {"code": "hold_timeout"}
        return {"code": "hold_timeout" if is_timeout else "rejected"}
    return _matched(reason)


def _matched(reason: str) -> Data | None:
    if reason in EXACT:
        return {"code": EXACT[reason]}
    for pattern, code in PATTERNS:
        if (found := pattern.fullmatch(reason)) is not None:
            named = {name: value for name, value in found.groupdict().items() if value is not None}
            return {"code": code, "about": named} if named else {"code": code}
    return None


def _cancelled(connection: sa.Connection, rows: Sequence[Event]) -> Iterator[Change]:
    """Who cancelled each mission: as the jobs that were cancelled with it say, else its summary."""
    for at, (mission, seq, event, text) in enumerate(rows):
        if event != "mission_cancelled":
            continue
        later = (
            json.loads(row[3]).get("reason")
            for row in rows[at:]
            if row[0] == mission and row[2] == "cancelled"
        )
        summary = connection.scalar(sa.text("SELECT summary FROM missions WHERE id = :id"), {"id": mission})
        named = (_matched(str(reason)) for reason in (*later, summary))
        about = next((found["about"] for found in named if found is not None and "about" in found), None)
        if isinstance(about, dict) and "by" in about:
            yield _change(mission, seq, {**json.loads(text), "by": about["by"]})


def _checked(
    connection: sa.Connection, mission: int, spec: Mapping[str, object], summary: str | None
) -> list[Change]:
    """The failed checks of each turn: as a person was asked, the planner told in its next turn, or the summary says."""
    listed = spec.get("accept")
    checks = [_description(check) for check in listed] if isinstance(listed, list) else []
    if not any(checks):
        return []
    to_person = _to_person(connection, mission)
    questions = [(row[0], json.loads(row[1])) for row in connection.execute(QUESTIONS, {"mission": mission})]
    last = {row[0]: row for row in connection.execute(TURNS, {"mission": mission})}
    changes: list[Change] = []
    for job, _, seq, text in last.values():
        notices = (params.get("notices") for later, params in questions if later > job)
        told = to_person.get(job) or next((one for one in notices if isinstance(one, list)), [summary or ""])
        failed = _failed(checks, [str(one) for one in told])
        if failed:
            changes.append(_change(mission, seq, {**json.loads(text or "{}"), "failed_checks": failed}))
    return changes


def _to_person(connection: sa.Connection, mission: int) -> dict[int, list[object]]:
    asked = (
        (row[0], json.loads(row[1]).get("unmet")) for row in connection.execute(ASKED, {"mission": mission})
    )
    return {turn: listed for turn, listed in asked if turn is not None and isinstance(listed, list)}


def _failed(checks: Sequence[str | None], told: Sequence[str]) -> list[Data]:
    """A fact begins with the description of its check, whatever comes before it."""
    return [
        {"check": index, "fact": text[text.find(f"{check}: ") :]}
        for index, check in enumerate(checks)
        for text in told
        if check is not None and f"{check}: " in text
    ]


def _description(check: Mapping[str, object]) -> str | None:
    """How the versions before described a check; None for a question that the planner verifies."""
    quotes, matches = check.get("file_quotes"), check.get("file_matches")
    if isinstance(quotes, dict):
        return f"the file {quotes['path']} quotes each line of {quotes.get('files', '*')} with {quotes['pattern']}"
    if isinstance(matches, dict):
        return f"the file {matches['path']} matches {matches['pattern']}"
    for name, verb in (("file_exists", "exists"), ("file_parses", "parses")):
        if check.get(name):
            return f"the file {check[name]} {verb}"
    return None
