"""The version of the schema."""

from __future__ import annotations

HEAD = "0033"
"""The newest migration; a database of this version needs no alembic."""
MIGRATION_LOCK = 0x6C6370
"""The advisory lock ("lcp") under which a PostgreSQL database is created or upgraded."""
