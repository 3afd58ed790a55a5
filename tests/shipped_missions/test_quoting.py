"""A file that quotes others is held to what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcp_engine.core.mission.accept import FileQuotes
from lcp_engine.engine.acceptance import misquoted
from lcp_engine.sandbox.root import Root

if TYPE_CHECKING:
    from pathlib import Path

TRUE = (
    "# Open points\n\nThree TODO items:\n\n"
    "- `README.md`: TODO: say how it is installed.\n"
    "-  src/tally/count.py  for word in text.split():  # FIXME: punctuation counts as part of a word\n"
    "- `src/tally/main.py`: # TODO: read from a pipe\n"
)
CASES = [
    (TRUE, None),
    (TRUE + "- nothing else to do\n", None),
    (
        TRUE.replace("from a pipe", "from pipes"),
        "'src/tally/main.py: # TODO: read from a pipe' is not quoted",
    ),
    (
        TRUE.replace("README.md", "src/tally/main.py"),
        "'README.md: TODO: say how it is installed.' is not quoted",
    ),
    (TRUE + "- `README.md`: TODO: rewrite it all\n", "rewrite it all' is in no file that it names"),
    (TRUE + "- `.env`: # TODO: nobody may see this\n", "nobody may see this' is in no file that it names"),
    ("# Open points\n\nNone.\n", "FIXME: punctuation counts as part of a word' is not quoted"),
]


@pytest.mark.parametrize(("text", "fault"), CASES)
def test_a_quotation_is_true_or_told_not_to_be(project: Path, text: str, fault: str | None) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "TODO.md").write_text(text)
    (project / "image.bin").write_bytes(b"\xff TODO \x00")
    check = FileQuotes(path="docs/TODO.md", pattern=r"\b(TODO|FIXME|XXX)\b")
    with Root(project) as root:
        found = misquoted(check, root, lambda path: path != ".env")
    assert found is None if fault is None else fault in str(found)


def test_a_file_that_is_not_there_quotes_nothing(project: Path) -> None:
    with Root(project) as root:
        found = misquoted(FileQuotes(path="docs/TODO.md", pattern="TODO"), root, lambda path: True)
    assert found == "'docs/TODO.md' does not exist"
