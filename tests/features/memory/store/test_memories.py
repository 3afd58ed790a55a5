"""What is remembered of roots: stored once, found by terms, counted, limited, attached to the directory itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lcp_engine.clock import SECOND
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.memory.entries import Entry
from lcp_engine.features.memory.store import memories
from lcp_engine.features.memory.store.memories import (
    Origin,
    add_entry,
    change_entry,
    find_root,
    open_root,
    remove_entry,
)
from lcp_engine.features.memory.store.queries import Wanted, find_entries, known_roots
from lcp_engine.features.upkeep.store.prune import prune
from lcp_engine.sandbox.root_identity import RootIdentity, identity_at
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx

ENTRY = Entry(title="Tests", content="They need a database.", tags=("tests", "Setup"), files=("src/app.py",))
ORIGIN = Origin(author="me")


def titles(database: Database, wanted: Wanted) -> list[str]:
    return [row.entry.title for row in database.read(lambda tx: find_entries(tx, wanted))]


def test_an_entry_is_found_by_all_of_its_terms(database: Database) -> None:
    def fill(tx: Tx) -> tuple[int, int]:
        one, other = open_root(tx, "/one", None).id, open_root(tx, "/other", None).id
        add_entry(tx, one, ENTRY, ORIGIN)
        add_entry(tx, one, Entry(title="Größe", content="数据库 database"), ORIGIN)
        add_entry(tx, other, replace(ENTRY, title="Elsewhere"), ORIGIN)
        return one, other

    one, other = database.write(fill)
    assert titles(database, Wanted(one)) == ["Größe", "Tests"]
    assert titles(database, Wanted(one, text="DATABASE they")) == ["Tests"]
    assert titles(database, Wanted(text="database")) == ["Elsewhere", "Größe", "Tests"]
    assert titles(database, Wanted(one, text="GRÖSSE 数据库")) == ["Größe"]
    assert titles(database, Wanted(one, tag="setup", file="src/app.py")) == ["Tests"]
    assert titles(database, Wanted(other, tag="setup")) == ["Elsewhere"]
    assert titles(database, Wanted(one, text="app' OR 1=1 --")) == []
    assert titles(database, Wanted(one, file="app.py")) == []


def test_the_index_follows_changes_and_removals(database: Database) -> None:
    root = database.write(lambda tx: open_root(tx, "/one", None).id)
    number = database.write(lambda tx: add_entry(tx, root, ENTRY, ORIGIN))
    assert number is not None
    database.write(lambda tx: change_entry(tx, number, root, replace(ENTRY, content="They need a network.")))
    assert titles(database, Wanted(root, text="database")) == []
    assert titles(database, Wanted(root, text="network")) == ["Tests"]
    assert database.write(lambda tx: remove_entry(tx, number, root)) is True
    assert database.write(lambda tx: remove_entry(tx, number, root)) is False
    assert titles(database, Wanted(root, text="network")) == []
    assert database.read(faults_in) == []


def test_an_entry_with_the_same_words_is_there_once(database: Database) -> None:
    root = database.write(lambda tx: open_root(tx, "/one", None).id)
    first = database.write(lambda tx: add_entry(tx, root, ENTRY, ORIGIN))
    assert database.write(lambda tx: add_entry(tx, root, replace(ENTRY, importance=9), ORIGIN)) == first
    assert database.read(known_roots) == [(root, "/one", 1)]


def test_a_full_root_takes_no_more_until_something_has_expired(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "MOST_ENTRIES", 2)
    root = database.write(lambda tx: open_root(tx, "/one", None).id)

    def add(title: str, *, expires_at: int | None = None) -> int | None:
        entry = replace(ENTRY, title=title, expires_at=expires_at)
        return database.write(lambda tx: add_entry(tx, root, entry, ORIGIN))

    second = [add("a", expires_at=1), add("b")][1]
    assert add("c") is not None, "the one that has expired made room"
    assert add("d") is None
    assert add("b") == second
    assert titles(database, Wanted(root)) == ["c", "b"]
    assert database.read(faults_in) == []


def test_pruning_removes_what_has_expired(database: Database) -> None:
    root = database.write(lambda tx: open_root(tx, "/one", None).id)
    later = database.now() + 3600 * SECOND
    for title, expires in (("gone", 1), ("stays", later), ("forever", None)):
        entry = replace(ENTRY, title=title, expires_at=expires)
        database.write(partial(add_entry, root_id=root, entry=entry, origin=ORIGIN))
    assert prune(database, ended_before=0).memories == 1
    assert titles(database, Wanted(root)) == ["forever", "stays"]


def test_a_root_is_known_wherever_its_directory_is(database: Database, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    known = database.write(lambda tx: open_root(tx, str(before), identity_at(before)))
    before.rename(after)
    before.mkdir()
    moved = database.write(lambda tx: open_root(tx, str(after), identity_at(after)))
    assert moved.id == known.id
    found = database.read(lambda tx: find_root(tx, str(after), None))
    assert found is not None
    assert (found.id, found.path) == (known.id, str(after))
    assert database.read(lambda tx: find_root(tx, str(before), identity_at(before))) is None


def test_a_path_means_another_root_on_another_machine(database: Database) -> None:
    here, there = RootIdentity("here", 1, 2, 3), RootIdentity("there", 1, 5, 6)
    first = database.write(lambda tx: open_root(tx, "/work", here)).id
    second = database.write(lambda tx: open_root(tx, "/work", there)).id
    again = database.write(lambda tx: open_root(tx, "/work", RootIdentity("here", 1, 9, 9))).id
    is_sqlite = database.backend.name == "sqlite"  # which serves one machine
    assert (second == first) == is_sqlite
    assert again == first, "a directory that was made anew at the path"


def test_check_names_a_wrong_count(database: Database) -> None:
    root = database.write(lambda tx: open_root(tx, "/one", None).id)
    database.write(lambda tx: add_entry(tx, root, ENTRY, ORIGIN))
    database.write(lambda tx: tx.plain("UPDATE memory_roots SET entries = 5"))
    assert database.read(faults_in) == ["memory of root '/one': it counts 5 entries; there are 1"]
