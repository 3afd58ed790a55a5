"""Mark pruned missions; index changes by file and by the content before them.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("missions", sa.Column("pruned_at", sa.BigInteger()))
    op.create_index("ix_changes_file", "changes", ["file"])
    op.create_index("ix_changes_sha256_before", "changes", ["sha256_before"])
