"""Store what each requested job would have an effect on, so that a mission can list what was never done.

Of older jobs only those that write files say it in a form that is known here.

Revision ID: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("effect", sa.Text()))
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    rel_path, path, root = (_param(name, is_sqlite) for name in ("rel_path", "path", "root"))
    op.execute(
        f"UPDATE jobs SET effect = '/' || coalesce({rel_path}, {path}) WHERE fingerprint IS NOT NULL "
        f"AND kind IN ('write_file', 'rewrite_file') AND {root} IS NULL"
    )


def _param(name: str, is_sqlite: bool) -> str:
    return f"json_extract(params, '$.{name}')" if is_sqlite else f"(params::json ->> '{name}')"
