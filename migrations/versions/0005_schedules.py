"""Add schedules: missions that are launched repeatedly.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# SQLite numbers rows itself only in a column whose type is exactly INTEGER.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("schedule IS NOT NULL AND ended_at IS NULL")


def upgrade() -> None:
    op.add_column("missions", sa.Column("schedule", sa.Text()))
    op.create_index(
        "ix_missions_scheduled", "missions", ["schedule"], sqlite_where=OPEN, postgresql_where=OPEN
    )
    op.create_table(
        "schedules",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("every", sa.BigInteger()),
        sa.Column("cron", sa.Text()),
        sa.Column("timezone", sa.Text()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("overlap", "spec", "root")),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        *(_counter(name) for name in ("missed", "skipped")),
        sa.Column("last_due_at", sa.BigInteger()),
        sa.Column("last_at", sa.BigInteger()),
        sa.Column("last_outcome", sa.Text()),
        _counter("last_missed"),
        sa.Column("mission_id", ID),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("overlap IN ('skip', 'allow')", name=op.f("ck_schedules_overlap")),
        sa.CheckConstraint("last_outcome IN ('launched', 'skipped')", name=op.f("ck_schedules_last_outcome")),
        sa.CheckConstraint(
            "(every IS NULL) = (cron IS NOT NULL AND timezone IS NOT NULL)",
            name=op.f("ck_schedules_recurrence"),
        ),
        sa.ForeignKeyConstraint(["mission_id"], ["missions.id"], name=op.f("fk_schedules_mission_id")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedules")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_schedules_due_at", "schedules", ["due_at"])


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False, server_default=sa.text("0"))
