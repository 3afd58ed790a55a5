"""Add entries to the text of a configuration file, whose comments and order stay (and take them out again)."""

from __future__ import annotations

import fcntl
import math
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from lcp_engine.config_file import ConfigFile, parse_config
from lcp_engine.core.policy import Rule
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.system.own_places import make_private


@dataclass(frozen=True)
class Edit:
    """A new text for a configuration file, which says what it is to say; nothing is written yet."""

    path: Path
    text: str

    def write(self) -> None:
        """Replace the file, which is created if it is missing. Raises `FILE_SYSTEM`."""
        real = self.path.resolve()
        try:
            make_private(real.parent)
            mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=real.parent, prefix=f".{real.name}.", delete=False
            ) as written:
                written.write(self.text)
                written.flush()
                os.fsync(written.fileno())
            Path(written.name).chmod(mode)
            Path(written.name).replace(real)
        except OSError as refused:
            raise LcpError(
                ErrorCode.FILE_SYSTEM,
                f"{self.path} cannot be written: {refused.strerror}",
                advice=GENERAL,
            ) from refused


def add_entry(path: Path, key: str, entry: str, expected: ConfigFile) -> None:
    """Write `entry`, a line, as the first one under a top-level key of the file, which is created if it is missing.

    Raises `WRONG_STATE`, with the line, and writes nothing, if the file would then not say what is `expected`.
    """
    text = _with_entry(_text_of(path), key, entry, is_last=False)
    _edit(path, text, expected, f"add `{entry}` under `{key}:`").write()


def remove_entry(path: Path, line: re.Pattern[str], expected: ConfigFile) -> None:
    """Take out the lines that match as a whole. Raises like `add_entry`."""
    text = "".join(one for one in _text_of(path).splitlines(keepends=True) if not line.fullmatch(one.strip()))
    _edit(path, text, expected, f"remove the line that matches `{line.pattern}`").write()


def with_rule(path: Path, rule: Rule) -> Edit:
    """The file with a rule of the user after its others; unchanged if it has the rule. Raises like `add_entry`."""
    before = _text_of(path)
    stated = parse_config(before, path)
    if rule in stated.policy:
        return Edit(path, before)
    flow = yaml.safe_dump(
        rule.as_json(), default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    entry = f"- {flow.strip()}"
    expected = stated.model_copy(update={"policy": (*stated.policy, rule)})
    text = _with_entry(before, "policy", entry, is_last=True)
    return _edit(path, text, expected, f"add `{entry}` under `policy:`")


def add_rule(path: Path, rule: Rule) -> None:
    """Write what `with_rule` gives, one rule at a time: of two that are added at once, none is lost. Raises like it."""
    with _alone(path.resolve().parent):
        with_rule(path, rule).write()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    try:
        make_private(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as refused:
        message = f"{directory} cannot be opened: {refused.strerror}"
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from refused
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as refused:
        raise LcpError(
            ErrorCode.FILE_SYSTEM, f"{path} cannot be read: {refused.strerror}", advice=GENERAL
        ) from refused


def _with_entry(text: str, key: str, entry: str, *, is_last: bool) -> str:
    """The text with `entry` as the first or the last line under the key, indented like those that are there."""
    lines = text.splitlines()
    begins = re.compile(rf"{re.escape(key)}\s*:\s*(#.*)?")
    at = next((place for place, line in enumerate(lines, 1) if begins.fullmatch(line.rstrip())), None)
    if at is None:
        return "\n".join([*lines, f"{key}:", f"  {entry}", ""])
    below = next((line for line in lines[at:] if line.strip() and not line.lstrip().startswith("#")), "")
    indent = below[: len(below) - len(below.lstrip())]
    if not indent and not below.startswith("- "):
        indent = "  "
    place = _end_of(lines, at) if is_last else at
    return "\n".join([*lines[:place], f"{indent}{entry}", *lines[place:], ""])


def _end_of(lines: Sequence[str], at: int) -> int:
    """The place behind the last line of a key whose lines begin at `at`; comments behind it belong to what follows."""
    next_key = next((n for n in range(at, len(lines)) if re.match(r"[^\s#-]", lines[n])), len(lines))
    return max((n + 1 for n in range(at, next_key) if re.match(r"\s*[^\s#]", lines[n])), default=at)


def _edit(path: Path, text: str, expected: ConfigFile, by_hand: str) -> Edit:
    """The edit. Raises `WRONG_STATE` if the text does not say what is expected."""
    if not _says(text, path, expected):
        message = f"{path} is written in a way that only a person should edit; {by_hand}"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="Edit the file by hand.")
    return Edit(path, text)


def _says(text: str, path: Path, expected: ConfigFile) -> bool:
    try:
        return parse_config(text, path) == expected
    except LcpError:
        return False
