"""Every error code has one meaning and one class of errors, and the page about them is up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from tests.tables import table

from lcp_engine.errors import MEANINGS, ErrorCode, LcpError

PROJECT = Path(__file__).resolve().parent.parent


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorCode)


@table("code", ErrorCode)
def test_each_code_is_raised_and_caught_as_one_class_of_errors(code: ErrorCode) -> None:
    classes = [one for one in LcpError.__subclasses__() if code in one.codes]
    assert len(classes) == 1
    with pytest.raises(classes[0], match="gone") as raised:
        raise LcpError(code, "gone", {"id": 1})
    assert (raised.value.code, raised.value.failed.details) == (code, {"id": 1})


def test_the_page_of_errors_is_what_the_taxonomy_says() -> None:
    written = runpy.run_path(str(PROJECT / "tools" / "errors.py"))["page"]()
    assert (PROJECT / "docs" / "errors.md").read_text(encoding="utf-8") == written, "python tools/errors.py"
