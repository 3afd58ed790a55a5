"""Remember entries of roots beyond their missions, with an index of their terms.

Revision ID: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_EXPIRING = sa.text("expires_at IS NOT NULL")
_SQLITE_TERMS = (
    """CREATE VIRTUAL TABLE memory_terms
    USING fts5(terms, content='memories', content_rowid='id', detail='none', columnsize=0, tokenize='ascii')""",
    """CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
    """CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms); END""",
    """CREATE TRIGGER memories_changed AFTER UPDATE OF terms ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
)


def upgrade() -> None:
    op.create_table(
        "memory_roots",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text()),
        sa.Column("entries", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.UniqueConstraint("path", "machine"),
    )
    op.create_index("ix_memory_roots_identity", "memory_roots", ["identity"])
    op.create_table(
        "memories",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("uid", sa.Text(), nullable=False, unique=True),
        sa.Column("root_id", _ID, sa.ForeignKey("memory_roots.id"), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("related", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("importance", sa.SmallInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("author", sa.Text()),
        sa.Column("mission_id", _ID, sa.ForeignKey("missions.id")),
        sa.Column("job_id", _ID),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.UniqueConstraint("root_id", "fingerprint"),
        sa.CheckConstraint("importance BETWEEN 1 AND 10", name="importance"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memories_mission_id", "memories", ["mission_id"])
    op.create_index("ix_memories_newest", "memories", ["root_id", "id"])
    op.create_index("ix_memories_important", "memories", ["root_id", "importance", "id"])
    op.create_index(
        "ix_memories_expiring", "memories", ["expires_at"], sqlite_where=_EXPIRING, postgresql_where=_EXPIRING
    )
    op.add_column("turns", sa.Column("memories", sa.Text()))
    if op.get_context().dialect.name == "sqlite":
        for sql in _SQLITE_TERMS:
            op.execute(sql)
    else:
        terms = "array_to_tsvector(string_to_array(terms, ' '))"
        op.execute(f"CREATE INDEX ix_memories_terms ON memories USING gin ({terms})")
