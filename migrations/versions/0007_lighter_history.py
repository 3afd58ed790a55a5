"""PostgreSQL looks up no parent for each event and attempt; SQLite does so for next to nothing.

Revision ID: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEYS = (("events", "mission_id", "missions"), ("attempts", "job_id", "jobs"))


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table, column, _ in KEYS:
            op.drop_constraint(f"fk_{table}_{column}", table, type_="foreignkey")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table, column, parent in KEYS:
            op.create_foreign_key(f"fk_{table}_{column}", table, parent, [column], ["id"])
