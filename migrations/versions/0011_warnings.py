"""Store what was ignored in a planner's reply. Replies of older versions have no warnings.

Revision ID: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("warnings", sa.Text()))
