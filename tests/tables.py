"""Check the rows of a table in one test, so that each row costs no more than itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def row(subtests: pytest.Subtests, name: object) -> Iterator[None]:
    """Like `subtests.test`, but reports only a row that does not pass: a report takes longer than most rows."""
    __tracebackhide__ = True
    try:
        yield
    except (Exception, pytest.fail.Exception, pytest.skip.Exception):
        with subtests.test(str(name)):
            raise
