"""Write Markdown from untrusted text: names and contents of files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

# More characters are special at the start of a line than within it; within a word `_` is not.
_SPECIAL = re.compile(
    r"[\\`*\[\]<|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#\w])|^[>#+=:-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]"
)
_CODE_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_BACKTICKS = re.compile("`+")
# Control, format (bidirectional overrides, zero width), surrogate, private use, not assigned, line and paragraph.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""`text` on one line; invisible characters are escaped, such as `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _UNSEEN else char for char in text)


def short(text: str, length: int) -> str:
    """`text` with white space collapsed, cut to `length` characters."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def plain(text: str, length: int = 300) -> str:
    """`text` with everything special in Markdown or HTML escaped, except whole code spans."""
    pieces = _CODE_SPAN.split(short(text, length))
    return "".join(code(piece) if odd % 2 else _escaped(piece) for odd, piece in enumerate(pieces))


def code(text: str, length: int = 120) -> str:
    """A code span; also fit for a table."""
    text = visible(text)
    if len(text) > length:
        text = f"{text[: length // 2]}…{text[-length // 2 :]}"
    ticks = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if len(ticks) > 1 or text != text.strip() or not text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def cell(markdown: str) -> str:
    """Like `markdown`, for a cell of a table: a bar would end it, in a code span too."""
    return re.sub(r"(?<!\\)\|", r"\\|", markdown)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a heading that ends in `:` belongs to a column of numbers."""
    ruler = ["---:" if title.endswith(":") else "---" for title in head]
    lines = [[title.rstrip(":") for title in head], ruler, *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def size(count: int) -> str:
    """Bytes for people, in powers of 1,000."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB", "GB"):
        count_of_unit = count / 1000 ** ("kB", "MB", "GB").index(unit) / 1000
        if count_of_unit < 999.5:
            return f"{count_of_unit:.1f} {unit}" if count_of_unit < 99.95 else f"{count_of_unit:.0f} {unit}"
    return f"{count / 1000**4:.1f} TB"


def number(count: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `1,234 files`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def share(part: int, whole: int) -> str:
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or part == 0 else f"{percent:.1f} %"


def listing(items: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`."""
    head = ", ".join(items[:most])
    return head if len(items) <= most else f"{head} and {len(items) - most:,} more"


def _escaped(words: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", visible(words))


def _escape(char: str) -> str:
    if char in "\t\n\r":
        return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}[char]
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
