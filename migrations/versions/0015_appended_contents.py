"""Store of a content that an append has made only what was appended.

Revision ID: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

APPENDED = sa.text("base IS NOT NULL")


def upgrade() -> None:
    op.add_column("blobs", sa.Column("base", sa.Text()))
    op.create_index("ix_blobs_base", "blobs", ["base"], sqlite_where=APPENDED, postgresql_where=APPENDED)
