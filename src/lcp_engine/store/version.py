"""The version of the schema."""

from __future__ import annotations

HEAD = "0037"
"""The newest migration; a database of this version needs no alembic."""
REPLACED = ("0009", "0032", "347f1ede")
"""The first and the last of the versions between releases whose migrations are gone, and the last commit with them."""
MIGRATION_LOCK = 0x6C6370
"""The advisory lock ("lcp") under which a PostgreSQL database is created or upgraded."""
