"""Bring a database of 0.2.0 to where it has memory, stages, limits, upkeep, edges between steps, and all since.

It stands for 25 steps, of which the ones between are gone: `REPLACED` in `lcp_engine.store.version` names who had them.
Versions until 0008 stored the reasons of events as sentences alone. Their wording is fixed, so this is the one place
that may read it, to add codes, and the acceptance checks that failed.

Revision ID: 0033
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0008"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
EXPIRING = sa.text("expires_at IS NOT NULL")
SQLITE_TERMS = (
    """CREATE VIRTUAL TABLE memory_terms
    USING fts5(terms, content='memories', content_rowid='id', detail='none', columnsize=0, tokenize='ascii')""",
    """CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
    """CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms); END""",
    """CREATE TRIGGER memories_changed AFTER UPDATE OF terms ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
)
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
    if not op.get_context().as_sql:  # SQL that is printed is for new databases, which have no events
        _add_codes(op.get_bind())
    _create_tables()
    _create_memory()
    _add_columns()
    _add_effects()
    _add_edges()
    _create_indexes()


def _create_tables() -> None:
    op.create_table(
        "network_roots",
        sa.Column("root", sa.Text(), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "edges",
        sa.Column("after_id", ID, primary_key=True),
        sa.Column("job_id", ID, primary_key=True),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "needs = 'success' OR needs = 'failure' OR needs = 'end'", name=op.f("ck_edges_needs")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stated_plans",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "limits",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text()),
        sa.Column("mission_id", ID),
        sa.Column("spacing", sa.BigInteger()),
        sa.Column("burst", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("max_running", sa.Integer()),
        sa.Column("full_at", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("holders", sa.Text(), nullable=False, server_default=sa.text("'[]'")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "upkeep",
        sa.Column("duty", sa.Text(), primary_key=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("runner_id", ID),
        sa.Column("done_at", sa.BigInteger()),
        sa.Column("found", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("failed_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", ID, primary_key=True),
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tried_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("http_status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.UniqueConstraint("mission_id", "seq"),
        sa.CheckConstraint(
            "state = 'unsent' OR state = 'delivered' OR state = 'outdated' OR state = 'given_up'",
            name="state",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "used_links",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("job_id", ID, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stages",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("root_identity", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "server_waits",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "viewed_files",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("person", sa.Text(), primary_key=True),
        sa.Column("mark", sa.Text(), primary_key=True),
        sa.Column("was_seen", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )


def _create_memory() -> None:
    op.create_table(
        "memory_roots",
        sa.Column("id", ID, primary_key=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text()),
        sa.Column("entries", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.UniqueConstraint("path", "machine"),
    )
    op.create_index("ix_memory_roots_identity", "memory_roots", ["identity"])
    op.create_table(
        "memories",
        sa.Column("id", ID, primary_key=True),
        sa.Column("uid", sa.Text(), nullable=False, unique=True),
        sa.Column("root_id", ID, sa.ForeignKey("memory_roots.id"), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("related", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("importance", sa.SmallInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("author", sa.Text()),
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id")),
        sa.Column("job_id", ID),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.UniqueConstraint("root_id", "fingerprint"),
        sa.CheckConstraint("importance BETWEEN 1 AND 10", name="importance"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memories_mission_id", "memories", ["mission_id"])
    op.create_index("ix_memories_newest", "memories", ["root_id", "id"])
    op.create_index("ix_memories_important", "memories", ["root_id", "importance", "id"])
    op.create_index(
        "ix_memories_expiring", "memories", ["expires_at"], sqlite_where=EXPIRING, postgresql_where=EXPIRING
    )
    if op.get_context().dialect.name == "sqlite":
        for sql in SQLITE_TERMS:
            op.execute(sql)
    else:
        terms = "array_to_tsvector(string_to_array(terms, ' '))"
        op.execute(f"CREATE INDEX ix_memories_terms ON memories USING gin ({terms})")


def _add_columns() -> None:
    """Columns of each table in the order in which they came, which is that of the schema."""
    text, long, zero = sa.Text(), sa.BigInteger(), sa.text("0")
    _add("jobs", effect=text)
    op.add_column("jobs", sa.Column("followers", sa.Integer(), nullable=False, server_default=zero))
    _add("jobs", terms=text, limited_by=text)
    _add("turns", warnings=text, memories=text, completions=text, until_ran=long)
    _add("turns", cost=text, currency=text, waits_since=long, waits_until=long)
    _add("missions", root_identity=text, session_id=text, user_id=text)
    _add("missions", result=text, target_file=text, issues=text, recommendations=text)
    _add("missions", cost=text, currency=text)
    op.add_column("missions", sa.Column("unpriced", sa.Integer(), nullable=False, server_default=zero))
    _add("missions", served_at=long, assessment=text)
    _add("changes", root_identity=text, staged=sa.SmallInteger())
    _add("blobs", base=text)
    op.add_column(
        "runners", sa.Column("silent_roots", sa.Text(), nullable=False, server_default=sa.text("'[]'"))
    )
    op.add_column("runners", sa.Column("passed", ID, nullable=False, server_default=zero))
    _add("attempts", stderr=text)
    _add("plans", stated=text, on_failure=text, failed_job=ID)


def _add(table: str, **columns: sa.Text | sa.BigInteger | sa.SmallInteger) -> None:
    for name, kind in columns.items():
        op.add_column(table, sa.Column(name, kind))


def _add_effects() -> None:
    """Note what each write was about, beside its fingerprint."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    rel_path, path, root = (_param(name, is_sqlite) for name in ("rel_path", "path", "root"))
    op.execute(
        f"UPDATE jobs SET effect = '/' || coalesce({rel_path}, {path}) WHERE fingerprint IS NOT NULL "
        f"AND kind IN ('write_file', 'rewrite_file') AND {root} IS NULL"
    )


def _param(name: str, is_sqlite: bool) -> str:
    return f"json_extract(params, '$.{name}')" if is_sqlite else f"(params::json ->> '{name}')"


def _add_edges() -> None:
    """Give jobs edges instead of one job that each may follow, and count what each still waits for.

    The column that named the one before becomes the count: a dropped column would leave a gap in PostgreSQL.
    """
    op.execute(
        "INSERT INTO edges (after_id, job_id, needs) "
        "SELECT after_id, id, 'success' FROM jobs WHERE after_id IS NOT NULL"
    )
    op.execute(
        "UPDATE jobs SET followers = (SELECT count(*) FROM edges e WHERE e.after_id = jobs.id) "
        "WHERE id IN (SELECT after_id FROM edges)"
    )
    op.execute("ALTER TABLE jobs RENAME COLUMN after_id TO waits_for")
    op.execute(
        "UPDATE jobs SET waits_for = (SELECT count(*) FROM edges e JOIN jobs b ON b.id = e.after_id "
        "WHERE e.job_id = jobs.id AND b.state <> 'succeeded') WHERE waits_for IS NOT NULL"
    )


def _create_indexes() -> None:
    order: list[str | sa.TextClause] = [sa.text("priority DESC"), "mission_id", "id"]
    op.drop_index("ix_jobs_ready", "jobs")
    for name, table, columns, which in (
        ("ix_missions_session", "missions", ["session_id"], "session_id IS NOT NULL"),
        ("ix_blobs_base", "blobs", ["base"], "base IS NOT NULL"),
        ("ix_edges_job_id", "edges", ["job_id"], None),
        (
            "ix_jobs_next_turn",
            "jobs",
            ["mission_id", "id"],
            "state = 'blocked' AND reason IS NOT NULL AND coalesce(waits_for, 0) = 0",
        ),
        ("ix_plans_job_id", "plans", ["job_id"], None),
        ("ix_plans_open", "plans", ["mission_id", "id"], "job_id IS NOT NULL AND outcome IS NULL"),
        ("ix_deliveries_unsent", "deliveries", ["id"], "state = 'unsent'"),
        ("ix_used_links_job_id", "used_links", ["job_id"], None),
        ("ix_jobs_ready", "jobs", order, "state = 'queued' AND run_after IS NULL AND limited_by IS NULL"),
        ("ix_jobs_waiting", "jobs", ["limited_by", *order], "state = 'queued' AND limited_by IS NOT NULL"),
    ):
        where = None if which is None else sa.text(which)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def _add_codes(connection: sa.Connection) -> None:
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
