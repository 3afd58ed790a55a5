"""Colour the lines of a diff by the syntax of their file, with Pygments.

The text is a stranger's, and some expressions of Pygments take long for some texts. So there is a table of languages,
and limits of length and time, beyond which lines have no colours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcp_engine.web.diff_view import ExcerptLine

LONGEST_LINE = 400
LONGEST_TEXT = 20_000
"""Characters of lines that are read together."""
SECONDS = 0.2
"""Time for them."""

_LANGUAGES = {
    "bash": ".sh .bash", "c": ".c .h", "cpp": ".cc .cpp .hpp", "csharp": ".cs", "css": ".css", "go": ".go",
    "html": ".html .htm", "java": ".java", "javascript": ".js .mjs .jsx", "json": ".json", "kotlin": ".kt",
    "python": ".py .pyi", "rust": ".rs", "sql": ".sql", "swift": ".swift", "toml": ".toml",
    "typescript": ".ts .tsx", "yaml": ".yaml .yml",
}  # fmt: skip
_BY_SUFFIX = {suffix: language for language, suffixes in _LANGUAGES.items() for suffix in suffixes.split()}
_CLASSES = (
    ("Token.Keyword", "k"), ("Token.Literal.String", "s"), ("Token.Comment", "c"), ("Token.Literal.Number", "m"),
    ("Token.Name.Function", "f"), ("Token.Name.Class", "f"), ("Token.Name.Decorator", "f"), ("Token.Name.Tag", "f"),
    ("Token.Name.Attribute", "f"),
)  # fmt: skip
"""What begins with the first is drawn as the second."""
Tint = tuple[int, int, str]
"""A range of characters, and the class of what they are."""


def tints_of(path: str, lines: Sequence[ExcerptLine]) -> list[tuple[Tint, ...]]:
    """The tints of each line, whose text begins with its sign; none of a file in an unknown language."""
    found = [tuple[Tint, ...]()] * len(lines)
    language = _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())
    for side in (("same", "del"), ("same", "add")) if language else ():
        for places in _runs(lines, side):
            text = "".join(f"{lines[at].text[1:]}\n" for at in places)
            for at, tints in zip(places, _by_line(text, _tokens(str(language), text)), strict=True):
                found[at] = tints
    return found


def _runs(lines: Sequence[ExcerptLine], side: tuple[str, str]) -> Iterator[list[int]]:
    """The places of the lines of one side that are read together: those of a hunk, up to a line that is too long."""
    run, left = list[int](), LONGEST_TEXT
    for at, line in enumerate(lines):
        is_of_side = line.css_class in side
        left -= len(line.text) if is_of_side else 0
        if run and (line.css_class == "hunk" or left < 0 or (is_of_side and len(line.text) > LONGEST_LINE)):
            yield run
            run, left = [], LONGEST_TEXT
        if is_of_side and len(line.text) <= LONGEST_LINE:
            run.append(at)
    if run:
        yield run


@lru_cache(maxsize=200)
def _tokens(language: str, text: str) -> tuple[Tint, ...]:
    """The tokens of a text that have a colour."""
    from pygments.lexers import get_lexer_by_name

    found: list[Tint] = []
    ends = time.monotonic() + SECONDS
    for at, kind, value in get_lexer_by_name(language).get_tokens_unprocessed(text):
        if time.monotonic() > ends:
            return ()
        name = str(kind)
        if css_class := next((drawn for begins, drawn in _CLASSES if name.startswith(begins)), None):
            found.append((at, at + len(value), css_class))
    return tuple(found)


def _by_line(text: str, tokens: Sequence[Tint]) -> Iterator[tuple[Tint, ...]]:
    """The tokens of each line, counted from its sign; one of several lines is cut."""
    lines = text[:-1].split("\n")
    starts = accumulate((len(line) + 1 for line in lines), initial=0)
    at = 0
    for line, start in zip(lines, starts, strict=False):
        end, tints = start + len(line), list[Tint]()
        while at < len(tokens) and tokens[at][0] < end:
            first, last, css_class = tokens[at]
            if max(first, start) < min(last, end):
                tints.append((max(first, start) - start + 1, min(last, end) - start + 1, css_class))
            if last > end:
                break
            at += 1
        yield tuple(tints)
