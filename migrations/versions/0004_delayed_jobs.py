"""Index delayed jobs separately, so that a claim does not scan them.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

READY = "state = 'queued' AND run_after IS NULL"
DELAYED = "state = 'queued' AND run_after IS NOT NULL"


def upgrade() -> None:
    op.drop_index("ix_jobs_ready", "jobs")
    op.drop_index("ix_jobs_due", "jobs")
    where = sa.text(READY)
    op.create_index(
        "ix_jobs_ready", "jobs", [sa.text("priority DESC"), "id"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text(DELAYED)
    op.create_index("ix_jobs_due", "jobs", ["run_after"], sqlite_where=where, postgresql_where=where)
