"""Store which files of held jobs a person has viewed.

Revision ID: 0033
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "viewed_files",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("person", sa.Text(), primary_key=True),
        sa.Column("mark", sa.Text(), primary_key=True),
        sa.Column("was_seen", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
