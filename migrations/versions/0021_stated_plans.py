"""Store the plans that missions state, and what they say of the jobs of their steps.

Revision ID: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "stated_plans",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("plans", sa.Column("stated", sa.Text()))
    op.add_column("plans", sa.Column("on_failure", sa.Text()))
    op.add_column("plans", sa.Column("failed_job", ID))
    op.add_column("jobs", sa.Column("terms", sa.Text()))
