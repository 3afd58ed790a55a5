"""Let programs in by tokens, and remember what they wrote.

Revision ID: 0037
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("hash", sa.Text(), nullable=False, unique=True),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("approver", sa.Text()),
        sa.Column("per_minute", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "api_writes",
        sa.Column("token", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("done", sa.Text()),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", sa.Text()),
        sa.Column("at", sa.BigInteger(), nullable=False, index=True),
        sqlite_with_rowid=False,
    )
