"""Record what questions and missions cost.

Revision ID: 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("turns", "missions"):
        op.add_column(table, sa.Column("cost", sa.Text()))
        op.add_column(table, sa.Column("currency", sa.Text()))
    op.add_column(
        "missions", sa.Column("unpriced", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
