"""Add entries to the text of a configuration file, whose comments and order stay (and take them out again)."""

from __future__ import annotations

import math
import os
import re
import tempfile
from pathlib import Path

import yaml

from lcp_engine.config_file import ConfigFile, parse_config
from lcp_engine.core.policy import Rule
from lcp_engine.errors import ErrorCode, LcpError


def add_entry(path: Path, key: str, entry: str, expected: ConfigFile) -> None:
    """Write `entry`, a line, as the first one under a top-level key of the file, which is created if it is missing.

    Raises `WRONG_STATE`, with the line, and writes nothing, if the file would then not say what is `expected`.
    """
    _replace(path, _with_entry(_text_of(path), key, entry), expected, f"add `{entry}` under `{key}:`")


class UserRules:
    """The rules in a configuration file, to which one is added behind the others."""

    def __init__(self, path: Path, rule: Rule) -> None:
        """Read the file and make its new text. Raises like `add_entry`; nothing is written yet."""
        before = _text_of(path)
        stated = parse_config(before, path)
        flow = yaml.safe_dump(
            rule.as_json(), default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
        )
        entry = f"- {flow.strip()}"
        self._path, self._by_hand = path, f"add `{entry}` under `policy:`"
        self._expected = stated
        self._text = before
        if rule not in stated.policy:
            self._expected = stated.model_copy(update={"policy": (*stated.policy, rule)})
            self._text = _with_last_entry(before, "policy", entry)
        _check(self._text, path, self._expected, self._by_hand)

    def write(self) -> None:
        """Replace the file. Raises `FILE_SYSTEM`."""
        _replace(self._path, self._text, self._expected, self._by_hand)


def remove_entry(path: Path, line: re.Pattern[str], expected: ConfigFile) -> None:
    """Take out the lines that match as a whole. Raises like `add_entry`."""
    text = "".join(one for one in _text_of(path).splitlines(keepends=True) if not line.fullmatch(one.strip()))
    _replace(path, text, expected, f"remove the line that matches `{line.pattern}`")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as refused:
        raise LcpError(ErrorCode.FILE_SYSTEM, f"{path} cannot be read: {refused.strerror}") from refused


def _with_entry(text: str, key: str, entry: str) -> str:
    lines = text.splitlines()
    begins = re.compile(rf"{re.escape(key)}\s*:\s*(#.*)?")
    at = next((place for place, line in enumerate(lines) if begins.fullmatch(line.rstrip())), None)
    if at is None:
        return "\n".join([*lines, f"{key}:", f"  {entry}", ""])
    below = next((line for line in lines[at + 1 :] if line.strip() and not line.lstrip().startswith("#")), "")
    indent = below[: len(below) - len(below.lstrip())]
    if not indent and not below.startswith("- "):
        indent = "  "
    return "\n".join([*lines[: at + 1], f"{indent}{entry}", *lines[at + 1 :], ""])


def _with_last_entry(text: str, key: str, entry: str) -> str:
    """Like `_with_entry`, behind the other entries of the key."""
    lines = text.splitlines()
    begins = re.compile(rf"{re.escape(key)}\s*:\s*(#.*)?")
    at = next((place for place, line in enumerate(lines) if begins.fullmatch(line.rstrip())), None)
    beneath = [] if at is None else lines[at + 1 :]
    count = next((n for n, line in enumerate(beneath) if re.match(r"[^\s#-]", line)), len(beneath))
    entries = [n for n in range(count) if re.match(r"\s*[^\s#]", beneath[n])]
    if at is None or not entries:
        return _with_entry(text, key, entry)
    first = beneath[entries[0]]
    indent = first[: len(first) - len(first.lstrip())]
    end = at + 2 + entries[-1]
    return "\n".join([*lines[:end], f"{indent}{entry}", *lines[end:], ""])


def _replace(path: Path, text: str, expected: ConfigFile, by_hand: str) -> None:
    _check(text, path, expected, by_hand)
    real = path.resolve()
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=real.parent, prefix=f".{real.name}.", delete=False
        ) as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        Path(written.name).chmod(mode)
        Path(written.name).replace(real)
    except OSError as refused:
        raise LcpError(ErrorCode.FILE_SYSTEM, f"{path} cannot be written: {refused.strerror}") from refused


def _check(text: str, path: Path, expected: ConfigFile, by_hand: str) -> None:
    if not _says(text, path, expected):
        message = f"{path} is written in a way that only a person should edit; {by_hand}"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Edit the file by hand.")


def _says(text: str, path: Path, expected: ConfigFile) -> bool:
    try:
        return parse_config(text, path) == expected
    except LcpError:
        return False
