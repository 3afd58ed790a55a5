"""Store the session and the user of the request that a mission was launched for.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

OF_SESSION = sa.text("session_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("missions", sa.Column("session_id", sa.Text()))
    op.add_column("missions", sa.Column("user_id", sa.Text()))
    op.create_index(
        "ix_missions_session",
        "missions",
        ["session_id"],
        sqlite_where=OF_SESSION,
        postgresql_where=OF_SESSION,
    )
