"""Find what people decided by its time, over all missions.

Revision ID: 0036
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    where = sa.text("event IN ('decided', 'consented')")
    op.create_index(
        "ix_events_decisions",
        "events",
        ["at", "mission_id", "seq"],
        sqlite_where=where,
        postgresql_where=where,
    )
