"""Pages that are written from code say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

from lcp_engine.errors import MEANINGS, ErrorCode

PROJECT = Path(__file__).resolve().parent.parent


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorCode)


def test_the_page_of_errors_is_what_the_taxonomy_says() -> None:
    written = runpy.run_path(str(PROJECT / "tools" / "errors.py"))["page"]()
    assert (PROJECT / "docs" / "errors.md").read_text(encoding="utf-8") == written, "python tools/errors.py"
