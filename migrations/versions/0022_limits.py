"""Keep the limits of kinds, planners and missions, and set aside the jobs that wait for a permit.

Revision ID: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_READY = "state = 'queued' AND run_after IS NULL AND limited_by IS NULL"
_WAITING = "state = 'queued' AND limited_by IS NOT NULL"


def upgrade() -> None:
    op.create_table(
        "limits",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text()),
        sa.Column("mission_id", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        sa.Column("spacing", sa.BigInteger()),
        sa.Column("burst", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("max_running", sa.Integer()),
        sa.Column("full_at", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("holders", sa.Text(), nullable=False, server_default=sa.text("'[]'")),
        sqlite_with_rowid=False,
    )
    op.add_column("jobs", sa.Column("limited_by", sa.Text()))
    op.drop_index("ix_jobs_ready", "jobs")
    order: list[str | sa.TextClause] = [sa.text("priority DESC"), "id"]
    op.create_index(
        "ix_jobs_ready", "jobs", order, sqlite_where=sa.text(_READY), postgresql_where=sa.text(_READY)
    )
    op.create_index(
        "ix_jobs_waiting",
        "jobs",
        ["limited_by", *order],
        sqlite_where=sa.text(_WAITING),
        postgresql_where=sa.text(_WAITING),
    )
