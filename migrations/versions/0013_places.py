"""Store in which directory of which machine a file was changed. Older changes have the place of their mission.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("changes", sa.Column("root_identity", sa.Text()))
