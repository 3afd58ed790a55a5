"""Many rows are written as they are, whether with a statement each or with one for all."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from lcp_engine.store.db.database import Database
from lcp_engine.store.db.statements import Statement, insert_rows, update_rows
from lcp_engine.store.db.transaction import Tx

NOTES = Table("notes", MetaData(), Column("id", Integer), Column("weight", Integer), Column("said", Text))
TEXTS = [
    None, "", "NULL", "null", " ", ",", "{}", "{a,b}", '"', '""', "\\", '\\"', "\\n", "a\nb\tc", "'", "%s", "Grüße ☃",
    '{"a": "b\\\\c", "d": [null, 1]}', "\x01", "None",
]  # fmt: skip
WEIGHTS = [None, 0, -1, 2**31 - 1]

NEW = insert_rows(NOTES, ("id", "weight", "said"))
CHANGED = update_rows(
    {"note": NOTES.c.id, "new": NOTES.c.said},
    lambda given: NOTES.update().where(NOTES.c.id == given("note")).values(said=given("new")),
)
ALL = Statement(NOTES.select().order_by(NOTES.c.id))


@pytest.fixture(autouse=True)
def _notes(database: Database) -> None:
    database.write(lambda tx: tx.plain("CREATE TABLE notes (id INTEGER, weight INTEGER, said TEXT)"))


@pytest.mark.parametrize(
    "texts", [TEXTS, TEXTS[1:], TEXTS[:1] * 3, TEXTS[-1:]], ids=["mixed", "texts", "none", "one"]
)
def test_many_rows_are_read_as_they_were_written(database: Database, texts: list[str | None]) -> None:
    rows = [(n, WEIGHTS[n % len(WEIGHTS)], text) for n, text in enumerate(texts)]
    database.write(lambda tx: tx.many(NEW, rows))
    assert database.read(lambda tx: tx.rows(ALL)) == rows


def test_many_rows_are_changed_each_by_its_own(database: Database) -> None:
    def write(tx: Tx) -> None:
        tx.many(NEW, [(n, n, "before") for n in range(len(TEXTS) + 1)])
        tx.change_all(CHANGED, [*enumerate(TEXTS)])

    database.write(write)
    said = [row[2] for row in database.read(lambda tx: tx.rows(ALL))]
    assert said == [*TEXTS, "before"]


def test_a_row_that_has_to_be_changed_and_is_not_there_undoes_everything(database: Database) -> None:
    def write(tx: Tx) -> None:
        tx.many(NEW, [(1, 1, "before")])
        tx.change_all(CHANGED, [(1, "after"), (2, "after")])

    with pytest.raises(AssertionError, match="1 of 2 rows"):
        database.write(write)
    assert database.read(lambda tx: tx.rows(ALL)) == []
