"""Store approvals with what was shown, ordered steps, undone changes and probed endpoints.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# SQLite numbers rows itself only in a column whose type is exactly INTEGER.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HELD = sa.text("state = 'held'")
INTENT = sa.text("state = 'intent'")
STATES = "state IN ('intent', 'applied', 'void', 'conflict')"


def upgrade() -> None:
    for name in ("clarifications", "verifications"):
        op.add_column("plans", sa.Column(name, sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("jobs", sa.Column("after_id", ID))
    op.add_column("jobs", sa.Column("held_until", sa.BigInteger()))
    op.create_index("ix_jobs_expiring", "jobs", ["held_until"], sqlite_where=HELD, postgresql_where=HELD)
    for name in ("input_tokens", "output_tokens"):
        op.add_column("attempts", sa.Column(name, sa.Integer()))
    _create_reviewed("reviews", "person")
    _create_reviewed("approvals", "attempt")
    op.create_table(
        "probes",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("found", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "model", name=op.f("pk_probes")),
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "sqlite":
        _rebuild_changes()
    else:
        op.alter_column("changes", "sha256_after", nullable=True)
        op.add_column("changes", sa.Column("undoes", ID))


def _create_reviewed(table: str, second_key: str) -> None:
    attempt = () if second_key == "person" else (sa.Column("attempt", sa.Integer(), nullable=False),)
    op.create_table(
        table,
        sa.Column("job_id", ID, nullable=False),
        *attempt,
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("path", sa.Text()),
        sa.Column("sha256", sa.Text()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f(f"fk_{table}_job_id")),
        sa.PrimaryKeyConstraint("job_id", second_key, name=op.f(f"pk_{table}")),
        sqlite_with_rowid=False,
    )


def _rebuild_changes() -> None:
    """SQLite cannot drop a NOT NULL constraint, so the rows move to a new table."""
    kept = (
        "id, mission_id, job_id, attempt, root, path, file, mode, state, sha256_before, sha256_after, size_bytes, "
        "temporary, made, result, intended_at, closed_at"
    )
    for index in ("ix_changes_job_id", "ix_changes_mission_id", "ix_changes_open"):
        op.drop_index(index, "changes")
    op.rename_table("changes", "changes_before")
    op.create_table(
        "changes",
        sa.Column("id", ID, nullable=False),
        sa.Column("mission_id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("root", "path", "file", "mode", "state")),
        sa.Column("sha256_before", sa.Text()),
        sa.Column("sha256_after", sa.Text()),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("temporary", "made", "result")),
        sa.Column("intended_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger()),
        sa.Column("undoes", ID),
        sa.CheckConstraint(STATES, name=op.f("ck_changes_state")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_changes_job_id")),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name=op.f("fk_changes_mission_id")),
        sa.ForeignKeyConstraint(["sha256_before"], ["blobs.sha256"], name=op.f("fk_changes_sha256_before")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
    )
    op.execute(f"INSERT INTO changes ({kept}) SELECT {kept} FROM changes_before")
    op.drop_table("changes_before")
    op.create_index("ix_changes_job_id", "changes", ["job_id"])
    op.create_index("ix_changes_mission_id", "changes", ["mission_id"])
    op.create_index("ix_changes_open", "changes", ["file"], sqlite_where=INTENT)
