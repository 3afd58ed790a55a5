"""A database is created or upgraded once, to the same schema either way, and nothing else is touched."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool
from tests.patience import join, wait_until

from lcp_engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.create import migration_config, migrations_directory, upgrade
from lcp_engine.store.db.open import open_database
from lcp_engine.store.schema import VIEWS
from lcp_engine.store.version import HEAD

TABLES = {
    "missions", "plans", "jobs", "attempts", "reviews", "approvals", "events", "turns", "blobs", "changes", "runners",
    "probes", "schedules", "results", "edges", "upkeep", "stated_plans", "limits",
}  # fmt: skip

_ROWS_OF_0001 = (
    """INSERT INTO missions (uid, name, goal, spec, status, created_at)
    VALUES ('req-1', 'm', 'g', '{}', 'running', 1)""",
    """INSERT INTO jobs (mission_id, kind, params, state, created_at)
    VALUES (1, 'write_file', '{}', 'succeeded', 1)""",
    """INSERT INTO changes (mission_id, job_id, attempt, root, path, file, mode, state, sha256_after, size_bytes,
        temporary, made, result, intended_at)
    VALUES (1, 1, 1, '/r', 'a', '/r/a', 'overwrite', 'applied', 'ff', 3, '.t', '[]', '{}', 1)""",
    """INSERT INTO turns (mission_id, number, turn, plan_id, job_id, after_seq, until_seq, asked_at, reply, action)
    VALUES (1, 1, 1, 1, 1, 0, 0, 1, '{}', 'error')""",
)


def test_migrations_and_metadata_make_the_same_schema(new_database_url: str) -> None:
    with _connected(new_database_url) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()
        migrated = _schema(connection)
        _drop_all(connection)
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        created = _schema(connection)
    assert migrated == created
    assert {name for kind, name, *_ in created if kind == "view"} == {view.name for view in VIEWS}
    assert {name for kind, name, *_ in created if kind == "table"} >= TABLES or "postgres" in new_database_url


def test_the_sql_that_is_printed_makes_the_same_schema(new_database_url: str) -> None:
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        created = _schema(connection)
        _drop_all(connection)
    printed = StringIO()
    config = _config_at(new_database_url, printed)
    command.upgrade(config, "head", sql=True)
    if new_database_url.startswith("sqlite"):
        with closing(sqlite3.connect(new_database_url.removeprefix("sqlite:///"))) as database:
            database.executescript(printed.getvalue())
    else:
        with psycopg.connect(new_database_url) as server:
            server.execute(printed.getvalue().encode())
    with _connected(new_database_url) as connection:
        assert _schema(connection) == created
    with pytest.raises(SystemExit, match="lcp db upgrade"):
        command.upgrade(config, "0009:head", sql=True)


def test_alembic_finds_nothing_that_a_new_database_lacks(new_database_url: str) -> None:
    open_database(new_database_url).close()
    said = StringIO()
    command.check(_config_at(new_database_url, said))
    assert said.getvalue() == "No new upgrade operations detected.\n"


def test_no_database_is_brought_back_to_an_older_version(new_database_url: str) -> None:
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        before = _schema(connection)
        config = migration_config()
        config.attributes["connection"] = connection
        with pytest.raises(SystemExit, match="restore a backup"):
            command.downgrade(config, "-1")
    with _connected(new_database_url) as connection:
        assert _schema(connection) == before


def test_a_developers_alembic_makes_the_same_database(new_database_url: str) -> None:
    ini = migrations_directory().parent / "alembic.ini"
    if not ini.exists():
        pytest.skip("alembic.ini is not installed with the package")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "alembic",
            "-c",
            ini,
            "-x",
            f"url={_for_alembic(new_database_url)}",
            "upgrade",
            "head",
        ],
        check=True,
        capture_output=True,
    )
    with _connected(new_database_url) as connection:
        migrated = _schema(connection)
    database = open_database(new_database_url)
    database.close()
    with _connected(new_database_url) as connection:
        assert _schema(connection) == migrated
        assert connection.execute(text("SELECT count(*) FROM job_history")).scalar() == 0


def test_the_check_on_states_is_the_enumeration(new_database_url: str) -> None:
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        (check,) = (sql for kind, name, sql in _checks(connection) if name == "ck_jobs_state")
    assert set(re.findall(r"'(\w+)'", check)) == {state.value for state in State}


def test_the_newest_version_is_alembics_head() -> None:
    assert ScriptDirectory.from_config(migration_config()).get_heads() == [HEAD]


def test_a_new_and_an_up_to_date_database_need_no_alembic(new_database_url: str) -> None:
    script = (
        "import sys; from lcp_engine.store.db.open import open_database;"
        "open_database(sys.argv[1]).close(); open_database(sys.argv[1]).close();"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, new_database_url], check=True)


def test_an_older_database_is_upgraded_and_keeps_its_rows(new_database_url: str, tmp_path: Path) -> None:
    open_database(new_database_url).close()
    _with_a_newer_migration(tmp_path)
    with _connected(new_database_url) as connection:
        connection.execute(
            text(
                "INSERT INTO runners (uid, host, boot, pid, started_at, alive_until) VALUES ('a', 'h', 'b', 1, 2, 3)"
            )
        )
        connection.commit()
    for _ in range(2):  # also by a process that comes late; a runner that is gone is no reason to wait
        upgrade(new_database_url, HEAD, tmp_path / "migrations")
    with _connected(new_database_url) as connection:
        assert connection.execute(text("SELECT uid, mood FROM runners")).all() == [("a", "calm")]
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
        assert connection.execute(text("SELECT count(*) FROM mission_overview")).scalar() == 0


def test_no_upgrade_pulls_the_tables_from_under_an_older_runner(
    new_database_url: str, tmp_path: Path
) -> None:
    newer = _with_a_newer_migration(tmp_path)
    errors: list[LcpError] = []

    def work(engine: Engine) -> None:
        try:
            engine.work()
        except LcpError as error:
            errors.append(error)

    with Engine(new_database_url) as engine:
        runner = Thread(target=work, args=[engine], daemon=True)
        runner.start()
        wait_until(engine.runners)
        named = re.escape(
            f"runner 1 (process {os.getpid()} on {engine.runners()[0].host}) of the older version"
        )
        with pytest.raises(LcpError, match=named) as refused:
            upgrade(new_database_url, HEAD, newer)
        assert refused.value.code is ErrorCode.DATABASE_VERSION
        job = engine.enqueue("ask_user", {"question": "Well?"})
        upgrade(new_database_url, HEAD, newer, force=True)
        join(runner)
        assert [error.code for error in errors] == [ErrorCode.DATABASE_VERSION]
        assert "the database is newer than this runner; upgrade and restart" in str(errors[0])
        assert not engine.runners()
        assert engine.job(job).state != "running"
        with pytest.raises(LcpError, match="the database is newer than this runner"):
            engine.work(until_idle=True)


def test_a_database_of_the_first_schema_keeps_its_missions_and_changes(new_database_url: str) -> None:
    with _connected(new_database_url) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in _ROWS_OF_0001:
            connection.execute(text(statement))
        connection.commit()
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        assert connection.execute(text("SELECT path, sha256_after FROM changes")).all() == [("a", "ff")]
        assert connection.execute(text("SELECT state FROM job_history")).all() == [("succeeded",)]
        assert connection.execute(text("SELECT action, warnings FROM turn_history")).all() == [
            ("error", None)
        ]
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == HEAD


def test_steps_that_followed_one_another_have_edges_and_counts(new_database_url: str) -> None:
    with _connected(new_database_url) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")
        connection.execute(
            text(
                "INSERT INTO missions (uid, name, goal, spec, status, created_at) "
                "VALUES ('req-1', 'm', 'g', '{}', 'running', 1)"
            )
        )
        for after, state in (("NULL", "succeeded"), ("1", "failed"), ("2", "skipped"), ("NULL", "queued")):
            connection.execute(
                text(
                    "INSERT INTO jobs (mission_id, kind, params, state, created_at, after_id) "
                    f"VALUES (1, 'agent_plan', '{{}}', '{state}', 1, {after})"
                )
            )
        connection.commit()
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        edges = connection.execute(text("SELECT after_id, job_id, needs FROM edges ORDER BY job_id")).all()
        assert edges == [(1, 2, "success"), (2, 3, "success")]
        counts = connection.execute(text("SELECT waits_for, followers FROM jobs ORDER BY id")).all()
        assert counts == [(None, 1), (0, 1), (1, 0), (None, 0)]


@pytest.mark.parametrize("version", ["0009", "0020", "0032"])
def test_a_database_between_two_releases_is_told_what_upgrades_it(
    new_database_url: str, version: str
) -> None:
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))
        connection.commit()
    with pytest.raises(LcpError, match=f"at version '{version}', which was in no release") as refused:
        open_database(new_database_url)
    assert refused.value.code is ErrorCode.DATABASE_VERSION
    assert "Install commit 347f1ede, bring the database to 0033" in refused.value.failed.recommendation


def test_a_database_of_a_newer_engine_is_refused(new_database_url: str) -> None:
    open_database(new_database_url).close()
    with _connected(new_database_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.commit()
        before = _schema(connection)
    with pytest.raises(LcpError, match="'9999'") as refused:
        open_database(new_database_url)
    assert refused.value.code is ErrorCode.DATABASE_VERSION
    with _connected(new_database_url) as connection:
        assert _schema(connection) == before


def test_a_database_of_something_else_is_refused_and_left_alone(new_database_url: str) -> None:
    with _connected(new_database_url) as connection:
        connection.execute(text("CREATE TABLE recipes (title TEXT)"))
        connection.commit()
    with pytest.raises(LcpError, match="recipes") as refused:
        open_database(new_database_url)
    assert refused.value.code is ErrorCode.DATABASE_VERSION
    with _connected(new_database_url) as connection:
        assert {row[1] for row in _schema(connection) if row[0] in ("table", "column")} <= {
            "recipes",
            "recipes.title",
        }


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, this is not a database. " * 50)
    before = file.read_bytes()
    with pytest.raises(LcpError, match=re.escape(str(file))) as refused:
        open_database(f"sqlite:///{file}")
    assert refused.value.code is ErrorCode.DATABASE_VERSION
    assert file.read_bytes() == before
    # The error holds the frames in which a connection was made: nothing but the engine closes it.
    opened = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert file not in opened


def test_a_database_in_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LcpError, match="needs its directory") as refused:
        open_database(f"sqlite:///{tmp_path}/missing/lcp.db")
    assert refused.value.code is ErrorCode.DATABASE_FAILED


def test_a_new_file_belongs_to_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "lcp.db"
    before = os.umask(0)
    try:
        open_database(f"sqlite:///{file}").close()
        database = open_database(f"sqlite:///{file}")
        database.write(lambda tx: tx.plain("UPDATE alembic_version SET version_num = version_num"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.proof
def test_processes_that_open_a_new_database_at_once_create_it_once(new_database_url: str) -> None:
    script = (
        "import sys; from lcp_engine.store.db.open import open_database;"
        "print('ready', flush=True); sys.stdin.readline(); database = open_database(sys.argv[1]);"
        "print(database.read(lambda tx: tx.query_plain('SELECT version_num FROM alembic_version')))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, new_database_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate() for process in processes]
    assert [(out.strip(), error) for out, error in said] == [(f"[('{HEAD}',)]", "")] * len(processes)


def _with_a_newer_migration(directory: Path) -> Path:
    migrations = directory / "migrations"
    shutil.copytree(migrations_directory(), migrations)
    (migrations / "versions" / "9999_mood.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '9999'\ndown_revision = '{HEAD}'\n\n\n"
        "def upgrade():\n    with op.batch_alter_table('runners') as table:\n"
        "        table.add_column(sa.Column('mood', sa.Text(), server_default='calm'))\n"
    )
    return migrations


def _config_at(url: str, printed: StringIO) -> Config:
    """What `alembic -x url=URL` has, with what it prints."""
    config = migration_config()
    config.stdout = config.output_buffer = printed
    config.cmd_opts = Namespace(x=[f"url={_for_alembic(url)}"])
    return config


def _connected(url: str) -> Connection:
    return create_engine(_for_alembic(url), poolclass=NullPool).connect()


def _for_alembic(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def _drop_all(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        Path(str(connection.engine.url.database)).unlink()
    else:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
        connection.commit()


def _schema(connection: Connection) -> set[tuple[str, str, str]]:
    """Everything that the database knows about the schema, in its own words; the version table left out."""
    found = (
        _sqlite_schema(connection) if connection.dialect.name == "sqlite" else _postgres_schema(connection)
    )
    return {row for row in found if "alembic_version" not in row[1]}


def _sqlite_schema(connection: Connection) -> Iterator[tuple[str, str, str]]:
    for kind, name, sql in connection.execute(text("SELECT type, name, sql FROM sqlite_master")):
        if kind != "table":
            yield kind, name, " ".join(str(sql).split())
            continue
        body, _, rest = str(sql).partition("(")[2].rpartition(")")
        # A table's columns stand in the order of their definition, its constraints do not matter that way.
        # SQLite appends a column that is added later behind the constraints.
        parts = [" ".join(part.split()) for part in re.split(r",(?![^()]*\))", body)]
        columns = [part for part in parts if not part.startswith("CONSTRAINT")]
        constraints = sorted(part for part in parts if part.startswith("CONSTRAINT"))
        yield "table", name, repr((columns, constraints, rest.strip()))


_POSTGRES = {
    "column": (
        "SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || "
        "coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || a.attnum FROM pg_attribute a "
        "JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
        "WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped"
    ),
    "constraint": (
        "SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace"
    ),
    "index": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "view": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
}


def _postgres_schema(connection: Connection) -> Iterator[tuple[str, str, str]]:
    for kind, query in _POSTGRES.items():
        for name, definition in connection.execute(text(query)):
            yield kind, str(name), str(definition)


def _checks(connection: Connection) -> Iterator[tuple[str, str, str]]:
    if connection.dialect.name == "sqlite":
        (sql,) = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'jobs'")).one()
        for name, check in re.findall(r"CONSTRAINT (\w+) CHECK (.*)", sql):
            yield "check", name, check
    else:
        query = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c'"
        for name, check in connection.execute(text(query)):
            yield "check", name, check


def test_a_foreign_sqlite_file_keeps_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE recipes (title TEXT)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(LcpError):
        open_database(f"sqlite:///{file}")
    assert file.read_bytes() == before
