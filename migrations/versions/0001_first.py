"""The first schema.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers rows itself only in a column whose type is exactly INTEGER.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
QUEUED = sa.text("state = 'queued'")
LIVE = sa.text("state IN ('held', 'blocked', 'queued', 'running')")


def upgrade() -> None:
    _create_missions()
    _create_plans()
    _create_jobs()
    _create_attempts()
    _create_events()
    _create_turns()
    _create_blobs()
    _create_changes()
    _create_runners()


def _create_missions() -> None:
    op.create_table(
        "missions",
        sa.Column("id", ID, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("root", sa.Text(), nullable=True),
        sa.Column("planner", sa.Text(), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("deliverables", sa.Text(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("turns", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("questions", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("input_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes_written", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("requested", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("events", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("changed_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("held", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("blocked", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("queued", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("running", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("succeeded", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("rejected", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancelled", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("root_plan", ID, nullable=True),
        sa.Column("asking", ID, nullable=True),
        sa.Column("ran", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("running_since", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'waiting', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_missions_status"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_missions"),
        sa.UniqueConstraint("key", name="uq_missions_key"),
        sa.UniqueConstraint("uid", name="uq_missions_uid"),
    )


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", ID, nullable=False),
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=True),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("open", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("held", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("asked_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("corrections", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("stalled", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("refused", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name="fk_plans_mission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_mission_id", "plans", ["mission_id"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", ID, nullable=False),
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("plan_id", ID, nullable=True),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("auto_dispatch", sa.SmallInteger(), nullable=True),
        sa.Column("role", sa.Text(), server_default=sa.text("'work'"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("approved", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("run_after", sa.BigInteger(), nullable=True),
        sa.Column("runner_id", ID, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("settled_seq", sa.Integer(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("role IN ('work', 'turn', 'step')", name=op.f("ck_jobs_role")),
        sa.CheckConstraint(
            "state IN ('held', 'blocked', 'queued', 'running', "
            "'succeeded', 'failed', 'rejected', 'skipped', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name="fk_jobs_mission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index(
        "ix_jobs_fingerprint",
        "jobs",
        ["mission_id", "fingerprint"],
        sqlite_where=sa.text("fingerprint IS NOT NULL"),
        postgresql_where=sa.text("fingerprint IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_ready",
        "jobs",
        [sa.text("priority DESC"), "id"],
        sqlite_where=QUEUED,
        postgresql_where=QUEUED,
    )
    op.create_index("ix_jobs_due", "jobs", ["run_after"], sqlite_where=QUEUED, postgresql_where=QUEUED)
    op.create_index("ix_jobs_live", "jobs", ["mission_id", "id"], sqlite_where=LIVE, postgresql_where=LIVE)
    op.create_index(
        "ix_jobs_running",
        "jobs",
        ["runner_id"],
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "ix_jobs_settled",
        "jobs",
        ["plan_id", "settled_seq"],
        sqlite_where=sa.text("plan_id IS NOT NULL"),
        postgresql_where=sa.text("plan_id IS NOT NULL"),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("runner_id", ID, nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_attempts"),
        sqlite_with_rowid=False,
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_id", ID, nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name="fk_events_mission_id"),
        sa.PrimaryKeyConstraint("mission_id", "seq", name="pk_events"),
        sqlite_with_rowid=False,
    )


def _create_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("plan_id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("corrects", sa.Integer(), nullable=True),
        sa.Column("last_turn", sa.Text(), nullable=True),
        sa.Column("after_seq", sa.Integer(), nullable=False),
        sa.Column("until_seq", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("replied_at", sa.BigInteger(), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("errors", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.Integer(), nullable=True),
        sa.Column("output_tokens", sa.Integer(), nullable=True),
        sa.Column("latency", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name="fk_turns_mission_id"),
        sa.PrimaryKeyConstraint("mission_id", "number", name="pk_turns"),
        sa.UniqueConstraint("job_id", name="uq_turns_job_id"),
    )


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_blobs"),
    )


def _create_changes() -> None:
    op.create_table(
        "changes",
        sa.Column("id", ID, nullable=False),
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sha256_before", sa.Text(), nullable=True),
        sa.Column("sha256_after", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("temporary", sa.Text(), nullable=False),
        sa.Column("made", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("intended_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('intent', 'applied', 'void', 'conflict')", name=op.f("ck_changes_state")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_changes_job_id"),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name="fk_changes_mission_id"),
        sa.ForeignKeyConstraint(["sha256_before"], ["blobs.sha256"], name="fk_changes_sha256_before"),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
    )
    op.create_index("ix_changes_job_id", "changes", ["job_id"])
    op.create_index("ix_changes_mission_id", "changes", ["mission_id"])
    op.create_index(
        "ix_changes_open",
        "changes",
        ["file"],
        sqlite_where=sa.text("state = 'intent'"),
        postgresql_where=sa.text("state = 'intent'"),
    )


def _create_runners() -> None:
    op.create_table(
        "runners",
        sa.Column("id", ID, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("alive_until", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_runners"),
        sa.UniqueConstraint("uid", name="uq_runners_uid"),
    )
