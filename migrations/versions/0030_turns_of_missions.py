"""Let missions take turns: order ready jobs by mission, and record when each mission was served.

Revision ID: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_READY = "state = 'queued' AND run_after IS NULL AND limited_by IS NULL"
_WAITING = "state = 'queued' AND limited_by IS NOT NULL"


def upgrade() -> None:
    op.add_column("missions", sa.Column("served_at", sa.BigInteger()))
    op.add_column("runners", sa.Column("passed", ID, nullable=False, server_default=sa.text("0")))
    order: list[str | sa.TextClause] = [sa.text("priority DESC"), "mission_id", "id"]
    for name, columns, which in (
        ("ix_jobs_ready", order, _READY),
        ("ix_jobs_waiting", ["limited_by", *order], _WAITING),
    ):
        op.drop_index(name, "jobs")
        where = sa.text(which)
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
