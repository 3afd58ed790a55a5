"""Store the tokens of programs (the table `tokens`), each as a hash."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import BigInteger, Column, Integer, Table, Text, bindparam, delete, insert, select

from lcp_engine.clock import Micros
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import metadata

tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("approver", Text),
    Column("per_minute", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    sqlite_with_rowid=False,
)
"""Programs that are let in. `person` is who decides by the token; `approver` is the hash of that person's own token at
the time, if they showed it: it counts as an approver's as long as that is theirs."""


@dataclass(frozen=True)
class TokenRow:
    """A token as it is stored; `scopes` are separated by commas."""

    name: str
    hash: str
    scopes: str
    person: str
    approver: str | None
    per_minute: int
    created_at: Micros
    expires_at: Micros | None


_NAMES = tuple(field.name for field in fields(TokenRow))
_ROWS = select(*(tokens.c[name] for name in _NAMES))
_ALL = Statement(_ROWS.order_by(tokens.c.name))
_WITH_HASH = Statement(_ROWS.where(tokens.c.hash == bindparam("hash")))
_ADD = Statement(insert(tokens).values({name: bindparam(name) for name in _NAMES}))
_REMOVE = Statement(delete(tokens).where(tokens.c.name == bindparam("token")))


def find_tokens(tx: Tx) -> list[TokenRow]:
    """Every token, by name."""
    return [TokenRow(*row) for row in tx.rows(_ALL)]


def token_with(tx: Tx, kept: str) -> tuple[TokenRow | None, Micros]:
    """The token with that hash, and the time of the database."""
    row = tx.row(_WITH_HASH, hash=kept)
    return None if row is None else TokenRow(*row), tx.now


def has_valid(tx: Tx) -> bool:
    """True if a token has not ended."""
    return any(row.expires_at is None or row.expires_at > tx.now for row in find_tokens(tx))


def put_token(tx: Tx, row: TokenRow) -> None:
    """Store a token; the transaction fails if its name is in use."""
    tx.run(_ADD, **{name: getattr(row, name) for name in _NAMES})


def drop_token(tx: Tx, name: str) -> None:
    """Remove a token; nothing happens without one."""
    tx.run(_REMOVE, token=name)
