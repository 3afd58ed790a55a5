"""Delayed jobs in an index of their own: who claims walks past none of them.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

QUEUED = "state = 'queued'"
READY = "state = 'queued' AND run_after IS NULL"
DELAYED = "state = 'queued' AND run_after IS NOT NULL"


def upgrade() -> None:
    _index_again(ready=READY, due=DELAYED)


def downgrade() -> None:
    _index_again(ready=QUEUED, due=QUEUED)


def _index_again(*, ready: str, due: str) -> None:
    op.drop_index("ix_jobs_ready", "jobs")
    op.drop_index("ix_jobs_due", "jobs")
    where = sa.text(ready)
    op.create_index(
        "ix_jobs_ready", "jobs", [sa.text("priority DESC"), "id"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text(due)
    op.create_index("ix_jobs_due", "jobs", ["run_after"], sqlite_where=where, postgresql_where=where)
