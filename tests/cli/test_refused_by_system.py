"""What the operating system refuses is an error in words with a code, in every command, and no defect of lcp."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcp_engine.cli.console.output import explain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Lcp


def call(lcp: Lcp, arguments: Sequence[str], **environment: str) -> tuple[int, str]:
    """Exit code and stderr of `lcp`, run by a user for whom permissions count."""
    with without_capabilities():
        done = lcp(*arguments, **environment)
    return done.code, done.err


@contextmanager
def without_capabilities() -> Iterator[None]:
    """Have permissions count for root, too: no capability is effective in this thread and those that it starts."""
    before = _capabilities()
    _set_capabilities([(0, permitted, inheritable) for _, permitted, inheritable in before])
    try:
        yield
    finally:
        _set_capabilities(before)


# capget and capset of Linux: a version and a process (0: this thread); then effective, permitted, inheritable, twice.
_HEADER = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
_SETS = struct.Struct("=III")
_LIBC = ctypes.CDLL(None, use_errno=True)


def _capabilities() -> list[tuple[int, ...]]:
    sets = ctypes.create_string_buffer(2 * _SETS.size)
    assert _LIBC.capget(ctypes.create_string_buffer(_HEADER), sets) == 0
    return [*_SETS.iter_unpack(sets.raw[: 2 * _SETS.size])]


def _set_capabilities(stated: Sequence[tuple[int, ...]]) -> None:
    sets = b"".join(_SETS.pack(*one) for one in stated)
    assert (
        _LIBC.capset(ctypes.create_string_buffer(_HEADER), ctypes.create_string_buffer(sets, len(sets))) == 0
    )


def closed_directory(lcp: Lcp) -> dict[str, str]:
    (lcp.home / "closed").mkdir()
    (lcp.home / "closed").chmod(0)
    return {"LCP_DATABASE_URL": f"sqlite:///{lcp.home / 'closed' / 'lcp.db'}"}


def closed_file(lcp: Lcp) -> dict[str, str]:
    lcp.database.write_bytes(b"")
    lcp.database.chmod(0)
    return {}


def read_only_directory(lcp: Lcp) -> dict[str, str]:
    (lcp.home / "closed").mkdir()
    (lcp.home / "closed").chmod(0o555)
    return {"LCP_DATABASE_URL": f"sqlite:///{lcp.home / 'closed' / 'lcp.db'}"}


def directory_instead(lcp: Lcp) -> dict[str, str]:
    lcp.database.mkdir()
    return {}


def beneath_a_file(lcp: Lcp) -> dict[str, str]:
    (lcp.home / "closed").write_text("")
    return {"LCP_DATABASE_URL": f"sqlite:///{lcp.home / 'closed' / 'lcp.db'}"}


def too_long(lcp: Lcp) -> dict[str, str]:
    return {"LCP_DATABASE_URL": f"sqlite:///{lcp.home / ('n' * 300)}"}


def link_in_a_circle(lcp: Lcp) -> dict[str, str]:
    lcp.database.symlink_to(lcp.database)
    return {}


def broken_file(lcp: Lcp) -> dict[str, str]:
    lcp.database.write_text("This is a letter to a friend. " * 40)
    return {}


def no_runtime_directory(lcp: Lcp) -> dict[str, str]:
    lcp.database.with_name(f"{lcp.database.name}-run").write_text("")
    return {}


COMMANDS = ("jobs", "run mission-0.yaml --root root")
PLACES: Sequence[Callable[[Lcp], dict[str, str]]] = (
    closed_directory, closed_file, read_only_directory, directory_instead, beneath_a_file, too_long,
    link_in_a_circle, broken_file, no_runtime_directory,
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_database_that_is_out_of_reach_is_named(lcp: Lcp, place: Callable[[Lcp], dict[str, str]]) -> None:
    lcp.mission(lcp.complete)
    environment = place(lcp)
    # What only reads needs no runtime directory.
    for command in COMMANDS[1:] if place is no_runtime_directory else COMMANDS:
        code, err = call(lcp, [*command.split(), "--json"], **environment)
        error = json.loads(err)["error"]
        assert (code, error["error_code"].partition("_")[0]) == (1, "DATABASE"), err
        assert str(lcp.home) in error["user_message"]


@pytest.mark.parametrize(
    "command",
    ["held", "missions", "show 1", "approve 1", "changes 1", "undo 1", "watch 1", "schedule list", "work --until-idle",
     "serve", "replay 1", "db check", "db stats", "db upgrade", "db backup copy.db", "doctor"],
)  # fmt: skip
def test_every_command_says_who_may_not_enter_what(lcp: Lcp, command: str) -> None:
    code, err = call(lcp, command.split(), **closed_directory(lcp))
    assert code == 1
    if command != "doctor":  # which prints its findings on stdout
        assert err.endswith(f"may not enter {lcp.home / 'closed'}\n")


def apart(lcp: Lcp, *arguments: str) -> tuple[int, str, str]:
    """In a process of its own, without the powers of root: what this one has opened of a database, SQLite shares."""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*powerless, *lcp.command(*arguments)],
        cwd=lcp.home, env=dict(lcp.environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.proof
@pytest.mark.skipif(os.getuid() == 0 and shutil.which("setpriv") is None, reason="root has no setpriv")
def test_the_file_beside_the_database_is_named_that_is_read_only(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    shm = lcp.home / f"{lcp.database.name}-shm"
    # SQLite gives its files the mode that the database has when it makes them.
    lcp.database.chmod(0o444)
    with without_capabilities(), closing(sqlite3.connect(lcp.database)) as reader:
        reader.execute("SELECT count(*) FROM jobs").fetchone()
    lcp.database.chmod(0o644)
    code, _, err = apart(lcp, "launch", "mission-0.yaml", "--root", "root")
    assert (code, err.endswith(f"may not read and write {shm}\n")) == (1, True), err


READING = (
    "missions", "show 1", "report 1", "jobs", "job 2", "held", "diff 2", "changes 1", "runners", "memory list",
    "policy explain 2", "schedule list", "db check", "db stats", "db backup copy.db",
)  # fmt: skip
WRITING = ("approve 2", "run mission-0.yaml --root root", "work --until-idle", "db prune --older-than 0s")


@contextmanager
def read_only(lcp: Lcp, file: int, directory: int) -> Iterator[tuple[Lcp, Path]]:
    """A database with a held job, which is as it was in the end."""
    store = lcp.home / "store"
    store.mkdir()
    database = store / "lcp.db"
    here = replace(lcp, environment={**lcp.environment, "LCP_DATABASE_URL": f"sqlite:///{database}"})
    write = lcp.ask("write_file", rel_path="b.txt", content="x")
    here("run", here.mission(write, here.complete), "--root", "root", "-q")
    before = sorted(store.iterdir())
    database.chmod(file)
    store.chmod(directory)
    try:
        yield here, database
    finally:
        store.chmod(0o755)
    assert sorted(store.iterdir()) == before


def test_a_database_that_is_read_only_is_listed_and_not_changed(lcp: Lcp) -> None:
    with read_only(lcp, 0o444, 0o555) as (here, database):
        for command in READING:
            code, err = call(here, command.split())
            assert (code, "read-only" in err) == (0, False), (command, err)
        for command in WRITING:
            code, err = call(here, command.split())
            last = err.splitlines()[-1]
            assert (code, last.startswith(f"database {database} is read-only: user ")) == (1, True), (
                command,
                err,
            )


@pytest.mark.proof
@pytest.mark.skipif(os.getuid() == 0 and shutil.which("setpriv") is None, reason="root has no setpriv")
@pytest.mark.parametrize(("file", "directory"), [(0o444, 0o755), (0o600, 0o555)])
def test_a_read_only_file_or_directory_is_enough(lcp: Lcp, file: int, directory: int) -> None:
    with read_only(lcp, file, directory) as (here, database):
        for command in ("missions", "diff 2", "db backup copy.db"):
            code, out, err = apart(here, *command.split())
            assert (code, "read-only" in err) == (0, False), (command, out, err)
        code, _, err = apart(here, "approve", "2")
        assert (code, err.startswith(f"database {database} is read-only: user ")) == (1, True), err


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("run closed/m.yaml", 1),
        ("doctor --mission closed/m.yaml", 1),
        ("check closed/reply", 1),
        ("run mission-0.yaml --root closed/x", 1),
        ("work --until-idle --root a=closed/x", 1),
        ("db backup closed/copy.db", 1),
        ("try list_files @closed/x --root root", 1),
        ("fork 1 --turn 1 --reply closed/x", 1),
    ],
)
def test_an_argument_that_is_out_of_reach_is_named(lcp: Lcp, command: str, code: int) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    closed_directory(lcp)
    found, err = call(lcp, command.split())
    assert found == code, err
    assert "internal error" not in err
    if not command.startswith("doctor"):
        assert "Permission denied" in err
        assert "[Errno" not in err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "'/x': Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "an error: No space left on device"),
        (OSError(errno.EMFILE, "Too many open files", "/x"), "'/x': Too many open files"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "/x", None, "/y"), "'/x' to '/y': Invalid"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (OSError("a text alone"), "a text alone"),
    ],
)
def test_an_error_of_the_system_is_no_defect_anywhere(
    error: OSError, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error, as_json=True) == 1
    stated = json.loads(capsys.readouterr().err)["error"]
    assert stated["error_code"] == "FILE_SYSTEM"
    assert words in stated["user_message"]


def test_a_user_without_a_home_directory_is_told_so_in_a_line(lcp: Lcp) -> None:
    done = lcp.run("list", HOME="relative")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "the home directory of this user is 'relative': set HOME to the absolute path of a directory\n"
    )
