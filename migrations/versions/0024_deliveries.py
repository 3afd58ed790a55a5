"""Store the notices of the webhook, and what became of each.

Revision ID: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_STATES = ("unsent", "delivered", "outdated", "given_up")
_UNSENT = sa.text("state = 'unsent'")


def upgrade() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("mission_id", _ID, sa.ForeignKey("missions.id"), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tried_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("http_status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.UniqueConstraint("mission_id", "seq"),
        sa.CheckConstraint(" OR ".join(f"state = '{state}'" for state in _STATES), name="state"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_deliveries_unsent", "deliveries", ["id"], sqlite_where=_UNSENT, postgresql_where=_UNSENT
    )
