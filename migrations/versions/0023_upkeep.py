"""Record when retention, backups and integrity checks were done and are due.

Revision ID: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "upkeep",
        sa.Column("duty", sa.Text(), primary_key=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("runner_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("done_at", sa.BigInteger()),
        sa.Column("found", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("failed_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sqlite_with_rowid=False,
    )
