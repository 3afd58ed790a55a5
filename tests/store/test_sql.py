from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Text, bindparam, text

from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.statements import Statement

TYPES = {"many": int, "name": str, "most": int}
STATEMENTS = (
    "SELECT id FROM jobs",
    "SELECT id FROM jobs WHERE kind = :name AND id < :many LIMIT :most",
    "SELECT id FROM jobs WHERE (name LIKE :name OR kind LIKE :name) AND error NOT LIKE '%x%'",
    "SELECT lower(:name) FROM jobs WHERE params LIKE '%\"verifies\":%' LIMIT :most",
)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("written", STATEMENTS)
def test_sql_is_what_sqlalchemy_makes_of_it(written: str, database: str) -> None:
    used = {name: kind for name, kind in TYPES.items() if f":{name}" in written}
    binds = (bindparam(name, type_=BigInteger() if kind is int else Text()) for name, kind in used.items())
    assert Sql(written, **used).sql(database) == Statement(text(written).bindparams(*binds)).sql(database)


def test_a_param_without_a_type_is_refused() -> None:
    with pytest.raises(KeyError):
        Sql("SELECT id FROM jobs WHERE id = :id").sql("postgresql")


def test_params_reach_the_database(database_url: str, tmp_path: Path) -> None:
    database = open_database(database_url)
    asked = Sql("SELECT :many + 1, :name || '%', '100 %'", many=int, name=str)
    assert [*database.read(lambda tx: tx.rows(asked, many=2**40, name="a:b"))[0]] == [
        2**40 + 1,
        "a:b%",
        "100 %",
    ]
    database.close()
