"""Count the jobs that missions left open, in the view `mission_overview`.

Revision ID: 0031
"""

from __future__ import annotations

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes no table: views are made anew after any migration."""
