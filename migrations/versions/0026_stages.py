"""Record the stages that missions work in, and which changes are in one.

Revision ID: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "stages",
        sa.Column("mission_id", ID, sa.ForeignKey("missions.id"), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("root_identity", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("changes", sa.Column("staged", sa.SmallInteger()))
