"""Store what the reply that completed a mission says of itself: checks, confidence, sources, scores.

Revision ID: 0032
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("missions", sa.Column("assessment", sa.Text()))
