"""Rewrite checks and the index of unsettled jobs, so that a write to SQLite builds no temporary table for them.

Revision ID: 0008
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

Condition = Callable[[str, tuple[str, ...]], str]
CHECKS = {
    ("missions", "status"): ("running", "waiting", "completed", "failed", "cancelled"),
    ("jobs", "state"): (
        *("held", "blocked", "queued", "running"),
        *("succeeded", "failed", "rejected", "skipped", "cancelled"),
    ),
    ("jobs", "role"): ("work", "turn", "step"),
    ("changes", "state"): ("intent", "applied", "void", "conflict"),
    ("schedules", "overlap"): ("skip", "allow"),
    ("schedules", "last_outcome"): ("launched", "skipped"),
}


def upgrade() -> None:
    _index_again("ended_at IS NULL")
    _replace_checks(_as_list, _as_alternatives)


def _as_list(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(map(repr, values))})"


def _as_alternatives(column: str, values: tuple[str, ...]) -> str:
    return " OR ".join(f"{column} = '{value}'" for value in values)


def _index_again(where: str) -> None:
    op.drop_index("ix_jobs_live", "jobs")
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["mission_id", "id"],
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def _replace_checks(old: Condition, new: Condition) -> None:
    is_sqlite = op.get_context().dialect.name == "sqlite"
    if is_sqlite:
        op.execute("PRAGMA writable_schema = ON")
    for (table, column), values in CHECKS.items():
        name = f"ck_{table}_{column}"
        if is_sqlite:
            # SQLite's documented way to change a CHECK: the rows stay in place, however many there are. Creating the
            # index again tells other connections that the schema has changed.
            before, after = (
                f"{name} CHECK ({make(column, values)})".replace("'", "''") for make in (old, new)
            )
            op.execute(
                f"UPDATE sqlite_master SET sql = replace(sql, '{before}', '{after}') WHERE name = '{table}'"
            )
        else:
            op.drop_constraint(op.f(name), table, type_="check")
            op.create_check_constraint(op.f(name), table, new(column, values))
    if is_sqlite:
        op.execute("PRAGMA writable_schema = RESET")
