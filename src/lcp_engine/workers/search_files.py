"""The kind `search_files`: find lines in the text files of a directory tree."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.core.policy import Ruling, Verdict
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.errors import ErrorCode, Failed, LcpError, system_advice
from lcp_engine.sandbox.reading.list_tree import list_files
from lcp_engine.sandbox.reading.read_text import read_bytes
from lcp_engine.sandbox.reading.search_text import Finder, finder_of, matching_lines, searchable, shown_line
from lcp_engine.sandbox.root import Opened, refusal
from lcp_engine.workers.base import Context, Example, Hold, Worker
from lcp_engine.workers.list_files import filters_of
from lcp_engine.workers.params import ContentText, Params, PathText, PatternText, Result

_LIMIT = 100
_MOST_BYTES = 256 * 1024
"""Of all lines that are found."""
_SKIPPED_SHOWN = 100
_BATCH = 128 * 1024
"""Bytes of files that are searched together."""


class SearchFilesParams(Params):
    """`patterns` are those of `list_files`. A pattern is RE2, and matches within a line; `^` and `$` are its ends."""

    text: ContentText = Field(min_length=1, max_length=1000, description="What the lines contain.")
    root: PathText | None = Field(
        default=None, description="The mission's root, an alias of it, or a directory in it."
    )
    patterns: list[PatternText] | None = Field(default=None, description="Which files, as in list_files.")
    is_pattern: bool | None = Field(default=None, description="Whether text is an RE2 pattern.")
    ignore_case: bool | None = None
    context: int | None = Field(
        default=None, ge=0, le=20, description="How many lines to show before and after."
    )
    limit: int | None = Field(default=None, ge=1, le=1000, description="How many lines to find at most.")

    @field_validator("text")
    @classmethod
    def _is_in_a_line(cls, text: str) -> str:
        if "\n" in text:
            raise PydanticCustomError("line_feed", "holds a line feed; lines are searched one by one")
        return text


class SearchFilesResult(Result):
    """`lines` are as grep writes them: `path:12:text` where it was found, `path-11-text` around it, `--` between.

    Paths are relative to `root`, in order of their bytes. If `truncated`, the search ended at the limit. `skipped`
    names files that were not searched and why; files that a rule denies are not named, and binary ones only counted.
    """

    action: Literal["search_files_result"] = "search_files_result"
    lines: list[str]
    root: str
    found: int
    """Lines that were found, without those around them."""
    files: int
    """How many files were searched, with binary ones."""
    binary: int = Field(default=0, exclude_if=lambda value: not value)
    truncated: bool = Field(default=False, exclude_if=lambda value: not value)
    skipped: list[str] = Field(default=[], exclude_if=lambda value: not value)


def execute(params: SearchFilesParams, context: Context) -> SearchFilesResult | Hold | Failed:
    """Searches the files that `list_files` lists and `read_file` may read, each opened without following a link."""
    try:
        finder = finder_of(
            params.text, is_pattern=bool(params.is_pattern), ignore_case=bool(params.ignore_case)
        )
        patterns = compile_patterns(params.patterns or ())
        place = context.names.place(root=params.root)
        if (refused := context.judge(place.path and f"{place.path}/")) is not None:
            return refused
        context.root.check_place(place)
        cap = context.caps.listed_paths
        listing = list_files(context.root, place.path, patterns, limit=cap, filters=filters_of(context))
    except LcpError as error:
        return error.failed
    except OSError as error:
        where = params.root or "."
        return Failed(
            ErrorCode.FILE_SYSTEM,
            f"{where!r}: {error.strerror or error}",
            {"errno": error.errno},
            system_advice(error),
        )
    search = _Search(context, place.path, finder, params.context or 0, params.limit or _LIMIT)
    search.run(listing.files)
    unlisted = listing.total - len(listing.files)
    left_out = [f"{unlisted:,} files beyond the first {cap:,}: narrow the patterns"] if unlisted else []
    return SearchFilesResult(
        lines=search.lines,
        root=params.root or ".",
        found=search.found,
        files=search.files,
        binary=search.binary,
        truncated=search.is_full,
        skipped=[*left_out, *listing.skipped, *search.skipped][:_SKIPPED_SHOWN],
    )


@dataclass
class _Search:
    context: Context
    base: str
    finder: Finder
    around: int
    limit: int
    lines: list[str] = field(default_factory=list)
    found: int = 0
    files: int = 0
    binary: int = 0
    skipped: list[str] = field(default_factory=list)
    is_full: bool = False
    left: int = _MOST_BYTES

    def run(self, paths: list[str]) -> None:
        """Search files, until the limit is reached."""
        for directory, group in groupby(paths, lambda path: path.rpartition("/")[0]):
            of_directory = [*group]
            if len(of_directory) == 1:
                self._search_each(of_directory, self.context.root.open_file)
            else:
                self._search_directory(directory, of_directory)
            if self.is_full:
                return

    def _search_directory(self, directory: str, paths: list[str]) -> None:
        root = self.context.root
        try:
            descriptor = root.open_directory(f"{self.base}/{directory}".strip("/"))
        except OSError as error:
            self.skipped.append(refusal(error, directory or ".").failed.message)
            return
        try:
            self._search_each(paths, partial(root.open_file_in, descriptor))
        finally:
            os.close(descriptor)

    def _search_each(self, paths: list[str], open_file: Callable[[str], Opened]) -> None:
        """Read files and search them by the batch. Most hold nothing, so this loop is tight."""
        judge, prefix = self.context.policy, f"{self.base}/" if self.base else ""
        batch: list[tuple[str, bytes]] = []
        size = 0
        for path in paths:
            ruling = judge(prefix + path)
            if ruling.verdict is not Verdict.AUTO and self._is_left_out(path, ruling):
                continue
            data = self._read(open_file, prefix + path, path)
            if data is None:
                continue
            batch.append((path, data))
            size += len(data)
            if size > _BATCH:
                self._search_batch(batch)
                if self.is_full:
                    return
                batch, size = [], 0
        self._search_batch(batch)

    def _search_batch(self, batch: list[tuple[str, bytes]]) -> None:
        """Search files one by one, unless all of them together have nothing."""
        joined = b"\n".join([data for _, data in batch]) if self.finder.joins else None
        if joined is not None and self._has_nothing(joined):
            self.files += len(batch)
            return
        for path, data in batch:
            self.files += 1
            if self._has_nothing(data):
                continue
            self._search(path, data)
            if self.is_full:
                return

    def _has_nothing(self, data: bytes) -> bool:
        """True if the bytes alone tell so, because UTF-8 and bare line feeds are all that there is."""
        is_plain = data.isascii() and b"\r" not in data and b"\0" not in data
        return self.finder.find(data, 0) is None and is_plain

    def _is_left_out(self, path: str, ruling: Ruling) -> bool:
        """True if policy keeps a file from being searched, which is said unless a rule denies the file."""
        if ruling.verdict is Verdict.HOLD and self.context.is_granted(ruling):
            return False
        if ruling.verdict is Verdict.HOLD or ruling.reason.code is not ReasonCode.RULE:
            self.skipped.append(f"{path}: {ruling.reason.text}")
        return True

    def _read(self, open_file: Callable[[str], Opened], path: str, shown: str) -> bytes | None:
        """The content of the file at `path`; None if it cannot be read."""
        try:
            opened = open_file(path)
            try:
                if opened.path != path:
                    return None  # it has become a link, and links are not listed
                return read_bytes(opened.descriptor, opened.size, self.context.caps.read_bytes, shown)
            finally:
                os.close(opened.descriptor)
        except LcpError as error:
            if error.code is not ErrorCode.PATH_NOT_FOUND:  # it was deleted since it was listed
                self.skipped.append(error.failed.message)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ELOOP}:
                self.skipped.append(refusal(error, shown).failed.message)
        return None

    def _search(self, path: str, raw: bytes) -> None:
        data = searchable(raw)
        if data is None:
            self.binary += 1
            return
        columns: dict[int, int] = {}  # by line
        number, at = 1, 0
        for first, _, start, _ in matching_lines(data, self.finder.find):
            if self.found + len(columns) == self.limit:
                self.is_full = True
                break
            number, at = number + data.count(b"\n", at, first), first
            columns[number] = len(data[first:start].decode(errors="replace"))
        if columns:
            self._show(path, data.removesuffix(b"\n").split(b"\n"), columns)

    def _show(self, path: str, lines: list[bytes], columns: dict[int, int]) -> None:
        """The lines that were found and those around them, each once."""
        shown = 0
        for number, column in columns.items():
            if self.left <= 0:
                self.is_full = True
                return
            first = max(number - self.around, shown + 1)
            if self.around and self.lines and (first > shown + 1 or not shown):
                self.lines.append("--")
            for other in range(first, number):
                self._add(f"{path}-{other}-", lines[other - 1], 0)
            self._add(f"{path}:{number}:", lines[number - 1], column)
            self.found += 1
            shown = number
            for other in range(number + 1, min(number + self.around, len(lines)) + 1):
                if other in columns:
                    break
                self._add(f"{path}-{other}-", lines[other - 1], 0)
                shown = other

    def _add(self, place: str, line: bytes, column: int) -> None:
        text = place + shown_line(line.decode(errors="replace"), column)
        self.lines.append(text)
        self.left -= len(text)


WORKER = Worker(
    kind="search_files",
    params=SearchFilesParams,
    result=SearchFilesResult,
    execute=execute,
    description="Find lines in the text files of a directory.",
    has_effects=False,
    paths=lambda params: () if params.root is None else (params.root,),
    role=KindRole.FINDS,
    shows="lines",
    examples=(
        Example(
            params={"root": ".", "text": "TODO", "patterns": ["**/*.py"]},
            result={"lines": ["src/main.py:2:# TODO: greet"], "found": 1},
            files={"src/main.py": "print('hello')\n# TODO: greet\n", "README.md": "TODO\n"},
        ),
    ),
    judged_as=("read_file", "list_files"),
    confined="lcp_engine.workers.search_files:WORKER",
)
