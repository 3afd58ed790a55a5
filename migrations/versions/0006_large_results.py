"""Store each large result once, in a separate table.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

THERE = sa.text("result_sha256 IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "results",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_results")),
    )
    op.add_column("jobs", sa.Column("result_sha256", sa.Text()))
    op.create_index(
        "ix_jobs_result_sha256", "jobs", ["result_sha256"], sqlite_where=THERE, postgresql_where=THERE
    )
