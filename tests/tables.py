"""Check the rows of a table in one test: a test of its own for each costs more than most rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from itertools import product
from re import Pattern
from typing import TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]
Named: TypeAlias = tuple[str, Mapping[str, object]]
LONGEST = 100
"""Characters of a text that is a name itself."""
PARAM = type(pytest.param())

_TABLES: dict[Test, tuple[Test, list[Named] | None]] = {}
"""What each table was made of, so that another can be put around it."""


@contextmanager
def row(subtests: pytest.Subtests, name: str) -> Iterator[None]:
    """Like `subtests.test`, but reports only a row that does not pass: a report takes longer than most rows."""
    __tracebackhide__ = True
    try:
        yield
    except (Exception, pytest.fail.Exception, pytest.skip.Exception):
        with subtests.test(name):
            raise


def table(
    names: str | Sequence[str],
    rows: Iterable[object],
    ids: Iterable[str] | Callable[..., object] | None = None,
) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but one test, which names each row that does not pass.

    The rows share the fixtures of the test: what must be fresh for each is made by the test itself.
    """
    listed = (names,) if isinstance(names, str) else tuple(names)
    named = [*_named(listed, rows, ids)]

    def decorate(test: Test) -> Test:
        raw, inner = _TABLES.get(test, (test, None))
        whole = named if inner is None else [*_both(inner, named)]

        @wraps(raw)
        def checked(*args: object, subtests: pytest.Subtests, **fixtures: object) -> None:
            assert whole, "the table is empty"
            for name, values in whole:
                with row(subtests, name):
                    raw(*args, **fixtures, **values)

        own = inspect.signature(test)
        fixtures = [one for name, one in own.parameters.items() if name not in (*listed, "subtests")]
        added = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        checked.__signature__ = own.replace(parameters=[*fixtures, added])  # type: ignore[attr-defined]  # PEP 362
        _TABLES[checked] = raw, whole
        return checked

    return decorate


def _both(inner: Iterable[Named], outer: Iterable[Named]) -> Iterator[Named]:
    for (last, more), (first, values) in product(outer, inner):
        yield f"{first}-{last}", {**values, **more}


def _named(
    names: tuple[str, ...], rows: Iterable[object], ids: Iterable[str] | Callable[..., object] | None
) -> Iterator[Named]:
    """The values of each row, with the name that `parametrize` would give it."""
    stated = None if ids is None or callable(ids) else iter(ids)
    for number, given in enumerate(rows):
        name: object = None if stated is None else next(stated)
        one = given
        if isinstance(given, PARAM):
            assert not given.marks, "a mark is for a test, not for a row"
            name, one = given.id, given.values if len(names) > 1 else given.values[0]
        values = tuple(one) if len(names) > 1 and isinstance(one, Iterable) else (one,)
        if name is None:
            shown = [_shown(value, f"{key}{number}", ids) for key, value in zip(names, values, strict=True)]
            name = "-".join(shown)
        yield str(name).encode("unicode_escape").decode("ascii"), dict(zip(names, values, strict=True))


def _shown(value: object, otherwise: str, ids: Iterable[str] | Callable[..., object] | None) -> str:
    given = ids(value) if callable(ids) else None
    if given is not None:
        return str(given)
    match value:
        case str(text):
            return text if len(text) <= LONGEST else otherwise
        case bytes(raw):
            return raw.decode("ascii", "backslashreplace")
        case Pattern(pattern=text):
            return str(text)
        case int() | float() | complex() | Enum() | None as plain:
            return str(plain)
        case known if callable(known) and hasattr(known, "__name__"):
            return str(known.__name__)
        case _:
            return otherwise
