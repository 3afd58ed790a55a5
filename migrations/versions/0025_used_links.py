"""Store which signed links were used.

Revision ID: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "used_links",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_used_links_job_id", "used_links", ["job_id"])
