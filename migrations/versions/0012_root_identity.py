"""Store which directory the root of a mission was. Older missions are only checked for a link in its place.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("missions", sa.Column("root_identity", sa.Text()))
