"""PostgreSQL looks up no parent for each event and attempt; SQLite does so for next to nothing.

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
