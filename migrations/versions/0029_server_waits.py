"""Let questions wait for a server that asks to wait.

Revision ID: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in ("waits_since", "waits_until"):
        op.add_column("turns", sa.Column(column, sa.BigInteger()))
    op.create_table(
        "server_waits",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
