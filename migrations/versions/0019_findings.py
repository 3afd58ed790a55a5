"""Store what the reply that completed a mission has found. Missions of older versions have none of it.

Revision ID: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("result", "target_file", "issues", "recommendations"):
        op.add_column("missions", sa.Column(name, sa.Text()))
