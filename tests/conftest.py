"""Give each test a database: once a SQLite file, once a PostgreSQL database."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4
from zlib import crc32

import psycopg
import pytest
from execnet import XSpec
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url
from tests.features.programs.wall.overlays import enter_mounts
from tests.forked_workers import forked_workers
from tests.loaded_python import Python, start_fork_server
from tests.walls import check_wall

from lcp_engine.store.db.open import open_database
from lcp_engine.store.schema import every_table

SERVER = os.environ.get("LCP_TEST_POSTGRES_URL")
REQUIRED = bool(os.environ.get("LCP_TEST_REQUIRE_POSTGRES"))

SQLITE, POSTGRES = "sqlite_copy_url", "emptied_postgres_url"
"""The fixtures behind `emptied_database_url`."""

RULES = {"api", "cli", "engine", "planners", "runner", "sandbox", "telemetry", "wall", "web"}
"""Rooms whose tests are about rules, not about a database."""
IN_TURN = {"changes", "crash", "faults", "model"}
"""Rooms whose tests run on one of both databases with each commit, as the commit chooses."""

EMPTY = "; ".join(
    [f"DELETE FROM {table.name}" for table in reversed(every_table())]
    + ["SELECT setval(format('%I', sequencename), 1, false) FROM pg_sequences"]
)
"""Deletes every row in one round trip: for a few of them that is faster than TRUNCATE, which creates new files."""

MEMORY = Path("/dev/shm")  # where Linux mounts memory as a file system
ENOUGH = 4 * 1024**3
"""Free bytes in memory from which on the tests' directories lie there; a test fills some hundred megabytes."""

LONG = {"attack", "crash", "faults", "model", "test_browser.py", "test_llama_server.py", "test_local.py"}
"""Rooms and files whose tests take long. They begin first, so that no process works alone at the end."""

_STARTED = pytest.StashKey[float]()
_FORKS = ExitStack()

COMMIT = os.environ.get("LCP_TEST_COMMIT")
"""Chooses whose turn it is; without it, everything has its turn."""
WEAKER_TURNS = 3
"""Of the tests behind weaker walls one in so many has its turn."""
TURN = int(COMMIT or "1", 16)
"""A number for what a proof chooses from many: where it begins, or a seed."""
REPEATS = int(os.environ.get("LCP_TEST_REPEATS") or 0)
"""How often each test runs; 0 is once, under its own name."""

EXAMPLES = os.environ.get("LCP_TEST_EXAMPLES")
"""How many examples each property is tried with; without it, the same few every time."""

# A machine that is busy with other things is slow, and no property is broken by that.
settings.register_profile(
    "few", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "many", settings.get_profile("few"), derandomize=False, max_examples=int(EXAMPLES or 1)
)
settings.load_profile("many" if EXAMPLES else "few")


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary directories in memory, unless the caller chooses another place: no test depends on a disk.

    Root's tests have mounts of their own, which are gone with the last of its processes, however that ends.
    """
    if os.geteuid() == 0:
        with suppress(OSError):  # a container may refuse it; what needs mounts is skipped there
            enter_mounts()
    if config.getoption("basetemp") is None and _is_roomy(MEMORY):
        os.environ.setdefault("TMPDIR", str(MEMORY))
        tempfile.tempdir = None  # it is read from there again


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[XSpec]) -> None:
    """Fork the test processes from one that has collected the tests, unless it is measured what an import executes."""
    if not config.getoption("cov_source", None):
        interpreter = _FORKS.enter_context(forked_workers(config.args))
        for spec in specs:
            spec.python = interpreter


def pytest_unconfigure() -> None:
    """End the process that test processes are forked from."""
    _FORKS.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each test as often as `make stress` says."""
    if REPEATS:
        metafunc.fixturenames.append("repeat")
        metafunc.parametrize("repeat", range(REPEATS))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose by database, and by turns; put in order.

    It is left to the proofs to show on PostgreSQL, too, what rules do; some, marked `both`, show it each time. Of what
    is marked `turns(n)` one in n is chosen by the commit, and of some rooms one of both databases. A wall knows nothing
    of a database: the weaker ones are shown on SQLite.
    """
    able = list[pytest.Item]()
    for item in items:
        is_weaker = item.get_closest_marker("weaker") is not None
        if is_weaker or (_place(item)[0] in RULES and _is_second(item)):
            item.add_marker(pytest.mark.proof)
        if is_weaker:
            item.add_marker(pytest.mark.turns(WEAKER_TURNS))
        if _has_its_database(item) and not (is_weaker and _is_second(item)):
            able.append(item)
    resting = set() if config.getoption("lf", default=False) else {*_resting(able)}
    chosen = [item for item in able if item not in resting]
    config.hook.pytest_deselected(items=[*({*items} - {*chosen})])
    items[:] = sorted(chosen, key=lambda item: LONG.isdisjoint(_place(item)))


def _place(item: pytest.Item) -> tuple[str, ...]:
    """The room of a test, and the folders and the file in it; the tests of a feature have rooms of the same names."""
    return _below_tests(item.path)


@cache
def _below_tests(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(Path(__file__).parent).parts
    if parts[0] != "features":
        return parts
    return parts[2:] if len(parts) > 3 else parts[1:]  # a feature with one room has no folder for it


def _resting(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests whose turn it is not. With each commit as many of a file have theirs, so that none takes longer."""
    nth = Counter[Path]()
    for item in sorted(items, key=lambda one: crc32(one.nodeid.encode())):
        turns = item.get_closest_marker("turns")
        if turns is not None and COMMIT:
            nth[item.path] += 1
            if (nth[item.path] + crc32(f"{COMMIT} {item.path.name}".encode())) % turns.args[0]:
                yield item


def _has_its_database(item: pytest.Item) -> bool:
    """Whether a test has its turn on its database; without a server, all of them run on SQLite."""
    database = _database(item)
    is_proof = item.get_closest_marker("proof") is not None
    if not COMMIT or SERVER is None or database is None or is_proof or _place(item)[0] not in IN_TURN:
        return True
    both = item.nodeid.replace(database, "database")
    return database == ("sqlite", "postgres")[crc32(f"{COMMIT} {both}".encode()) % 2]


def _is_second(item: pytest.Item) -> bool:
    """Whether a test is the same as another one, on PostgreSQL."""
    return _database(item) == "postgres" and item.get_closest_marker("both") is None


def _database(item: pytest.Item) -> str | None:
    named = (
        item.callspec.id.split("-") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else []
    )
    return next((name for name in ("sqlite", "postgres") if name in named), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Note the processor time of a test for `make times`: its own, and that of the processes that it waited for."""
    yield
    item.user_properties.append(("cpu", f"{_processor_time() - item.stash[_STARTED]:.3f}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_STARTED] = _processor_time()
    check_wall(item)
    yield


def _processor_time() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without collecting garbage, which looks at ten thousand tests again and again.

    What is loaded by then stays, so that it need not be looked at later either.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def _is_roomy(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free >= ENOUGH


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the user's settings or opens the user's database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LCP_")]:
            patch.delenv(name)
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_fork_servers() -> Iterator[None]:
    """The fork servers that this process starts are forks of a loaded interpreter."""
    instead = SimpleNamespace(DEVNULL=subprocess.DEVNULL, Popen=partial(start_fork_server, os.getpid()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lcp_engine.runner.confined.process.subprocess", instead)
        yield


@pytest.fixture
def forked_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of an evaluation that this process runs are forks of a loaded interpreter."""
    started = SimpleNamespace(DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE, Popen=_fork)
    monkeypatch.setattr("lcp_engine.features.evaluation.processor_time.subprocess", started)


def _fork(command: list[str], *, stdin: int, stdout: int, stderr: int, start_new_session: bool) -> Python:
    assert command[0] == sys.executable
    return Python(
        *command[1:], stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=start_new_session
    )


@pytest.fixture(params=["sqlite_copy_url", "postgres_url"], ids=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database at the newest schema, without rows: every test that uses it runs on both kinds."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(params=[SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def emptied_database_url(request: pytest.FixtureRequest) -> str:
    """Like `database_url`, for tests that leave no process behind: other tests use the PostgreSQL database, too."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def new_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that nothing has opened yet, for tests of how it is created."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    url: str = request.getfixturevalue("new_postgres_url")
    return url


@pytest.fixture
def new_postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database that is empty."""
    yield from postgres_database()


@pytest.fixture
def sqlite_copy_url(tmp_path: Path, _sqlite_template: Path) -> str:
    """The URL of a SQLite database at the newest schema, without rows."""
    shutil.copy(_sqlite_template, tmp_path / "lcp.db")
    return sqlite_url(tmp_path)


@pytest.fixture
def postgres_url(_postgres_template: str) -> Iterator[str]:
    """The URL of a PostgreSQL database at the newest schema, without rows."""
    yield from postgres_database(_postgres_template)


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that tests copy: creating one takes longer than many a test."""
    directory = tmp_path_factory.mktemp("template")
    open_database(sqlite_url(directory)).close()
    return directory / "lcp.db"


@pytest.fixture(scope="session")
def _postgres_template() -> Iterator[str]:
    """The name of the database that tests copy."""
    for url in postgres_database():
        open_database(url).close()
        yield str(make_url(url).database)


@pytest.fixture
def emptied_postgres_url(_shared_postgres_url: str, _emptying: psycopg.Connection) -> Iterator[str]:
    """The URL of a database without rows that other tests have used before."""
    yield _shared_postgres_url
    _emptying.execute(EMPTY)


@pytest.fixture(scope="session")
def _emptying(_shared_postgres_url: str) -> Iterator[psycopg.Connection]:
    # What still uses it fails its own test, and does not keep this one waiting for good.
    options = "-c lock_timeout=30s"
    with psycopg.connect(_shared_postgres_url, autocommit=True, options=options) as connection:
        yield connection


@pytest.fixture(scope="session")
def _shared_postgres_url(_postgres_template: str) -> Iterator[str]:
    """The URL of one PostgreSQL database for many tests: even a copy takes longer than most of them.

    Its commits do not wait for the disk: nothing that uses it cuts the power.
    """
    for url in postgres_database(_postgres_template):
        _on_server(f"ALTER DATABASE {make_url(url).database} SET synchronous_commit = off")
        yield url


def sqlite_url(directory: Path) -> str:
    """The URL of the SQLite database in `directory`."""
    return f"sqlite:///{directory / 'lcp.db'}"


def postgres_database(template: str = "template1") -> Iterator[str]:
    if SERVER is None:
        reason = "LCP_TEST_POSTGRES_URL is not set; `tools/postgres pytest` starts a server"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    # A database, not a schema: the channels of LISTEN and NOTIFY belong to a database.
    name = f"lcp_test_{uuid4().hex}"
    _on_server(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
    finally:
        # Runners that a test killed may have left connections.
        _on_server(f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(statement: str) -> None:
    _server().execute(statement)


@cache
def _server() -> psycopg.Connection:
    """One connection for all databases that are created and dropped: its process knows the catalogs by then."""
    assert SERVER is not None
    connection = psycopg.connect(SERVER, autocommit=True)
    atexit.register(connection.close)
    return connection
