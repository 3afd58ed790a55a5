"""Record which machine writes to a root on a network file system, and which roots do not answer a runner.

Revision ID: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "network_roots",
        sa.Column("root", sa.Text(), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column(
        "runners", sa.Column("silent_roots", sa.Text(), nullable=False, server_default=sa.text("'[]'"))
    )
