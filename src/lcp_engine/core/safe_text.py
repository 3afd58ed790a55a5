"""Make text safe to display: characters that are not visible are written as escapes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Printable: TypeAlias = Mapping[str, object] | Sequence[object] | str | float | bool | None

# Controls, and what reorders or hides text: escape sequences, bidirectional overrides, lone surrogates.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_BLOCK = re.compile(f"[{_UNSEEN}]")
_IN_LINE = re.compile(f"[\t\n{_UNSEEN}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def one_line(text: str) -> str:
    """`text` on one line, with everything invisible escaped."""
    return _IN_LINE.sub(_escape, text)


def block(text: str) -> str:
    """`text` with its line breaks, and everything else invisible escaped."""
    return _IN_BLOCK.sub(_escape, text)


def json_block(value: Printable) -> str:
    """`value` as indented JSON without invisible characters; parsing it gives `value` again."""
    return _IN_BLOCK.sub(_escape_in_json, json.dumps(value, ensure_ascii=False, indent=2, default=list))


def json_line(value: Printable) -> str:
    """Like `json_block`, on one line and as short as possible."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=list)
    return _IN_BLOCK.sub(_escape_in_json, text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _escape_in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"
