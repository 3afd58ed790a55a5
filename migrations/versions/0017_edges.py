"""Give jobs a table of edges instead of one job that each may follow, and count what each still waits for.

The column that named the one before becomes the count: a dropped column would leave a gap in PostgreSQL.

Revision ID: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

NEXT_TURN = sa.text("state = 'blocked' AND reason IS NOT NULL AND coalesce(waits_for, 0) = 0")
OPEN_SUB_PLAN = sa.text("job_id IS NOT NULL AND outcome IS NULL")


def upgrade() -> None:
    op.create_table(
        "edges",
        sa.Column("after_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "needs = 'success' OR needs = 'failure' OR needs = 'end'", name=op.f("ck_edges_needs")
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_edges_job_id", "edges", ["job_id"])
    op.execute(
        "INSERT INTO edges (after_id, job_id, needs) "
        "SELECT after_id, id, 'success' FROM jobs WHERE after_id IS NOT NULL"
    )
    op.add_column("jobs", sa.Column("followers", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.execute(
        "UPDATE jobs SET followers = (SELECT count(*) FROM edges e WHERE e.after_id = jobs.id) "
        "WHERE id IN (SELECT after_id FROM edges)"
    )
    op.execute("ALTER TABLE jobs RENAME COLUMN after_id TO waits_for")
    op.execute(
        "UPDATE jobs SET waits_for = (SELECT count(*) FROM edges e JOIN jobs b ON b.id = e.after_id "
        "WHERE e.job_id = jobs.id AND b.state <> 'succeeded') WHERE waits_for IS NOT NULL"
    )
    op.create_index(
        "ix_jobs_next_turn", "jobs", ["mission_id", "id"], sqlite_where=NEXT_TURN, postgresql_where=NEXT_TURN
    )
    op.create_index("ix_plans_job_id", "plans", ["job_id"])
    op.create_index(
        "ix_plans_open", "plans", ["mission_id", "id"],
        sqlite_where=OPEN_SUB_PLAN, postgresql_where=OPEN_SUB_PLAN,
    )  # fmt: skip
