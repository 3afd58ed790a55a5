"""Drop foreign keys of events and attempts on PostgreSQL, where each insert would look up the parent row.

Revision ID: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEYS = (("events", "mission_id"), ("attempts", "job_id"))


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table, column in KEYS:
            op.drop_constraint(f"fk_{table}_{column}", table, type_="foreignkey")
