"""Count what happens by the minute and by the hour, and find attempts and replies by their time.

Revision ID: 0034
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "activity",
        sa.Column("step", sa.BigInteger(), primary_key=True),
        sa.Column("at", sa.BigInteger(), primary_key=True),
        sa.Column("measure", sa.Text(), primary_key=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attempts_ended_at", "attempts", ["ended_at", "outcome"])
    where = sa.text("input_tokens IS NOT NULL")
    op.create_index(
        "ix_turns_replied_at",
        "turns",
        ["replied_at", "input_tokens", "output_tokens", "cost", "currency"],
        sqlite_where=where,
        postgresql_where=where,
    )
