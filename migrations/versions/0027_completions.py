"""Record the completions of a question one by one, and until when its last attempt may take.

Revision ID: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("completions", sa.Text()))
    op.add_column("turns", sa.Column("until_ran", sa.BigInteger()))
