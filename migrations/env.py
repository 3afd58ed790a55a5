"""Run the migrations over the connection that the engine passes, or over a URL for the `alembic` command."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Column, Connection, ForeignKeyConstraint, create_engine
from sqlalchemy.pool import NullPool

from lcp_engine.store.schema import VIEWS, every_table, metadata


def main() -> None:
    connection = context.config.attributes.get("connection")
    if isinstance(connection, Connection):
        _migrate(connection)
    elif context.is_offline_mode():
        _print_sql(_url())
    else:
        with create_engine(_url(), poolclass=NullPool).begin() as own:
            _migrate(own)


def _migrate(connection: Connection) -> None:
    # In the caller's transaction, so that several processes that open a new database migrate it once.
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_server_default=True,
        include_object=_is_described,
    )
    _refuse_to_go_back()
    with context.begin_transaction():
        _drop_views()
        context.run_migrations()
        if context.get_context().get_current_heads() == context.get_head_revisions():
            _create_views(connection.dialect.name == "sqlite")


def _is_described(found: object, name: str | None, kind: str, reflected: bool, _: object) -> bool:
    """False for what metadata and the description of a database must differ in, so that it is not compared.

    That is the index of the terms of memories, an index in descending order, which SQLite does not describe, and what
    only the other database has.
    """
    if kind == "table":
        return not (reflected and str(name).startswith("memory_terms"))
    if kind == "index":
        return name != "ix_memories_terms" and not (
            context.get_bind().dialect.name == "sqlite" and name in _DESCENDING
        )
    if isinstance(found, ForeignKeyConstraint):
        return found.info.get("dialect", "") in ("", context.get_bind().dialect.name)
    return True


_DESCENDING = {
    index.name
    for table in every_table()
    for index in table.indexes
    if not all(isinstance(one, Column) for one in index.expressions)
}


def _print_sql(url: str) -> None:
    context.configure(url=url, target_metadata=metadata, literal_binds=True)
    _refuse_to_go_back()
    if context.get_starting_revision_argument() is not None:
        message = "SQL is printed for new databases only: stored rows are upgraded too, by `lcp db upgrade`"
        raise SystemExit(message)
    with context.begin_transaction():
        _drop_views()
        context.run_migrations()
        _create_views(url.startswith("sqlite"))


def _refuse_to_go_back() -> None:
    if context.get_context().opts["fn"].__name__ == "downgrade":
        message = (
            "a database is not brought back to an older version: restore a backup from before it was upgraded"
        )
        raise SystemExit(message)


def _drop_views() -> None:
    """Views are not migrated: they are dropped before the tables change and created again at the end."""
    for view in VIEWS:
        context.execute(f"DROP VIEW IF EXISTS {view.name}")


def _create_views(is_sqlite: bool) -> None:
    for view in VIEWS:
        context.execute(view.create(is_sqlite))


def _url() -> str:
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get("LCP_DATABASE_URL")
    if isinstance(url, str):
        return url
    message = "alembic needs a database: -x url=URL or LCP_DATABASE_URL; neither is set"
    raise SystemExit(message)


main()
