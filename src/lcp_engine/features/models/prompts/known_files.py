"""Derive from a plan's jobs which files are known, read and still to read, and which requests were repeated (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import JsonValue

from lcp_engine.core.kinds import ON_FILES, KindRole
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Kind, Question, SeenJob
from lcp_engine.sandbox.paths import Names, names_of


@dataclass(frozen=True)
class Known:
    """Files that the jobs of a question's plan have shown; paths are relative to the mission's root."""

    jobs: tuple[SeenJob, ...]
    """The settled jobs, oldest first."""
    unread: tuple[str, ...]
    """Files that were listed and not read since they last changed, without binary ones; those that the goal is about
    first, then those of the newest listing."""
    partly: Mapping[str, int]
    """Files that were read or shown in part, with the first line (from 0) that no prompt has shown."""
    read: tuple[str, ...]
    current: frozenset[int]
    """The jobs whose file has not changed since they read it."""
    written: tuple[str, ...]
    has_listing: bool
    has_all: bool
    """Whether the whole tree was listed."""
    tried: frozenset[str]
    """The kinds of settled and waiting jobs."""
    repeated: frozenset[str]
    """The kinds that a stalled plan requested again (R11)."""
    has_tried_search: bool
    """Whether a job of a kind that searches was requested."""
    has_found: bool
    """Whether a job that neither lists nor changes files has succeeded."""


def known_of(question: Question) -> Known:
    """Files that the jobs of the question's plan have shown."""
    known = {job.job_id: job for job in (*question.history(), *question.results)}
    jobs = tuple(known.values())
    view = view_of(question)
    files = _Files(view, unshown_of(question))
    for index, job in enumerate(jobs):
        files.add(job, index)
    waiting = {view.target(job) for job in question.waiting if view.role(job) is KindRole.READS}
    goal = f"{question.goal} {question.prompt}"
    named = {word.rstrip(".") for word in _WORD.findall(goal)}
    about = {word for word in _LONG_WORD.findall(goal.lower()) if word not in _OF_ANY_GOAL}
    unread = [
        path
        for path in files.unread()
        if path not in waiting and question.may_read(path) and (not is_binary(path) or _is_named(path, named))
    ]
    return Known(
        jobs=jobs,
        unread=tuple(sorted(unread, key=lambda path: _rank(path, files.listed, named, about))),
        partly={path: at for path, at in files.partly().items() if path not in waiting},
        read=tuple(files.covered),
        current=frozenset(stretch.job for stretches in files.covered.values() for stretch in stretches),
        written=tuple(files.written),
        has_listing=files.has_listing,
        has_all=files.has_all,
        tried=frozenset(job.kind for job in (*jobs, *question.waiting)),
        repeated=_repeated(question, jobs) if question.stalled else frozenset(),
        has_tried_search=any(view.role(job) is KindRole.SEARCHES for job in (*jobs, *question.waiting)),
        has_found=any(job.state == "succeeded" and view.role(job) not in ON_FILES for job in jobs),
    )


def unshown_of(question: Question) -> Mapping[int, int]:
    """The jobs whose results no prompt has shown to their end, with the first line that none has shown."""
    shown, first = set[int](), dict[int, int]()
    for record in question.prompts():
        shown.update(record.shown)
        for left_out in record.left_out:
            first[left_out.number] = max(first.get(left_out.number, 0), left_out.first)
    unshown = {number: line for number, line in first.items() if number not in shown}
    if not unshown:
        return {}
    return {job: unshown[number] for job, number in question.numbers().items() if number in unshown}


@dataclass(frozen=True)
class View:
    """Way to read the jobs of a mission: by what names they know the root, and what their kinds are for."""

    names: Names
    kinds: Mapping[str, Kind]

    def role(self, job: SeenJob) -> KindRole:
        """Role of the job's kind; `OTHER` if it can no longer be requested."""
        kind = self.kinds.get(job.kind)
        return KindRole.OTHER if kind is None else kind.role

    def found(self, job: SeenJob) -> JsonValue:
        """The part of the job's result that its kind says is worth showing; None if there is none."""
        shows = self.shows(job)
        return None if shows is None else (job.result or {}).get(shows)

    @property
    def recalls(self) -> str | None:
        """The kind that shows the result of an earlier job again; None if there is none."""
        found = (kind.name for kind in self.kinds.values() if kind.role is KindRole.RECALLS)
        return next(found, None)

    def shows(self, job: SeenJob) -> str | None:
        """The key of the job's result that prompts show; None shows the whole result."""
        kind = self.kinds.get(job.kind)
        return None if kind is None else kind.shows

    def target(self, job: SeenJob) -> str | None:
        """The file or directory that a job names, relative to the mission's root; None if it names none in it."""
        root, rel_path, path = (_text(job.params, key) for key in ("root", "rel_path", "path"))
        return self._path(root, rel_path, None if rel_path else path)

    def new_path(self, job: SeenJob) -> str | None:
        """Where a job that moves a file takes it, as `target`."""
        return self._path(_text(job.params, "root"), None, _text(job.params, "new_path"))

    def _path(self, root: str | None, rel_path: str | None, path: str | None) -> str | None:
        try:
            return self.names.place(root=root, rel_path=rel_path, path=path).path
        except LcpError:
            return None


def view_of(question: Question) -> View:
    """Way to read the jobs of this question's mission."""
    names = names_of((question.root,), tuple(question.aliases))
    return View(names, {kind.name: kind for kind in question.kinds})


def line_count(text: str) -> int:
    """Number of lines of a text, the last without a line end included."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


T = TypeVar("T")
_WORD = re.compile(r"[\w./-]+")
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_OF_ANY_GOAL = frozenset(
    {
        "about", "code", "contents", "describe", "directory", "does", "each", "file", "files", "find", "from", "have",
        "into", "list", "name", "names", "project", "read", "report", "root", "that", "them", "then", "this", "tree",
        "what", "where", "which", "whole", "with", "write",
    }
)  # fmt: skip
"""Words that tell nothing about which files a goal is about."""
_BINARY = frozenset(
    {
        "7z", "a", "avif", "bin", "bmp", "bz2", "class", "db", "dll", "dylib", "eot", "exe", "flac", "gif", "gz", "ico",
        "jar", "jpeg", "jpg", "lib", "mkv", "mo", "mov", "mp3", "mp4", "o", "odt", "ogg", "otf", "pdf", "png", "pyc",
        "pyd", "rar", "so", "sqlite", "sqlite3", "tar", "tgz", "tif", "tiff", "ttf", "wasm", "wav", "webm", "webp",
        "whl", "woff", "woff2", "xls", "xlsx", "xz", "zip", "zst",
    }
)  # fmt: skip
"""Suffixes of files that are not text."""


def is_binary(path: str) -> bool:
    """True if a file's name says that it is not text."""
    return path.rsplit("/", 1)[-1].rpartition(".")[2].lower() in _BINARY and "." in path.rsplit("/", 1)[-1]


@dataclass(frozen=True, order=True)
class _Stretch:
    """Lines of a file that a job read and prompts have shown, from `start` up to `stop`."""

    start: int
    stop: int
    job: int


@dataclass
class _Files:
    """The files that jobs have shown so far."""

    view: View
    unshown: Mapping[int, int]
    listed: dict[str, int] = field(default_factory=dict)
    covered: dict[str, list[_Stretch]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    written: dict[str, None] = field(default_factory=dict)
    has_listing: bool = False
    has_all: bool = False

    def add(self, job: SeenJob, index: int) -> None:
        result = job.result if job.state == "succeeded" else None
        match self.view.role(job):
            case KindRole.LISTS if result is not None:
                self._list(job, result, index)
            case KindRole.READS if path := self.view.target(job):
                self._read(path, job, result)
            case KindRole.WRITES | KindRole.EDITS if result is not None and (path := self.view.target(job)):
                self._write(path, result, index)
            case KindRole.DELETES if result is not None and (path := self.view.target(job)):
                self._delete(path)
            case KindRole.MOVES if result is not None and (path := self.view.target(job)):
                self._move(path, self.view.new_path(job))

    def _move(self, path: str, new: str | None) -> None:
        """Keep what was known of the file under its new name."""
        if new is not None:
            _rename(self.listed, path, new)
            _rename(self.covered, path, new)
            _rename(self.totals, path, new)
            _rename(self.written, path, new)
            self.refused.discard(new)
        self._delete(path)

    def _delete(self, path: str) -> None:
        for forget in (self.listed, self.covered, self.totals, self.written):
            forget.pop(path, None)

    def unread(self) -> list[str]:
        return [path for path in self.listed if path not in self.covered and path not in self.refused]

    def partly(self) -> dict[str, int]:
        gaps = {path: _first_gap(self.covered.get(path, [])) for path in self.totals}
        return {path: gap for path, gap in gaps.items() if gap < self.totals[path]}

    def _list(self, job: SeenJob, result: Mapping[str, JsonValue], index: int) -> None:
        base, files = self.view.target(job), self.view.found(job)
        if base is None or not isinstance(files, list):
            return
        # A listing whose patterns matched nothing shows nothing, but one without patterns shows an empty root.
        is_whole = not result.get("patterns") and not result.get("truncated")
        self.has_listing = self.has_listing or is_whole or bool(files)
        self.has_all = self.has_all or (is_whole and not base)
        for name in files:
            # A name that params cannot contain (R3) is not offered.
            if isinstance(name, str) and name.isprintable():
                self.listed[f"{base}/{name}" if base else name] = index

    def _read(self, path: str, job: SeenJob, result: Mapping[str, JsonValue] | None) -> None:
        if result is None:
            if (job.error or {}).get("error_code") == ErrorCode.TOO_LARGE:
                self.totals[path] = 2**31
            self.refused.add(path)
            return
        offset, content, total = job.params.get("offset"), self.view.found(job), result.get("total")
        start = offset if isinstance(offset, int) else 0
        end = start + (line_count(content) if isinstance(content, str) else 0)
        stop = min(end, max(start, self.unshown.get(job.job_id, end)))
        self.covered.setdefault(path, []).append(_Stretch(start, stop, job.job_id))
        if isinstance(total, int):
            self.totals[path] = total
        elif stop < end:
            self.totals[path] = end
        elif path not in self.totals or start == 0:
            self.totals[path] = 0

    def _write(self, path: str, result: Mapping[str, JsonValue], index: int) -> None:
        self.written[path] = None
        before = result.get("sha256_before")
        if before is not None and before == result.get("sha256_after"):
            return
        for forget in (self.covered, self.totals):
            forget.pop(path, None)
        self.refused.discard(path)
        self.listed[path] = index


def _rename(known: dict[str, T], path: str, new: str) -> None:
    if path in known:
        known[new] = known[path]
    else:
        known.pop(new, None)


def _first_gap(stretches: Sequence[_Stretch]) -> int:
    end = 0
    for stretch in sorted(stretches):
        if stretch.start > end:
            return end
        end = max(end, stretch.stop)
    return end


def _rank(
    path: str, listed: Mapping[str, int], named: AbstractSet[str], about: AbstractSet[str]
) -> tuple[bool, bool, int, int, str]:
    """Files that the goal names come first, then those that have a word of it, then those of the newest listing."""
    is_about = not about.isdisjoint(_LONG_WORD.findall(path.lower()))
    return (not _is_named(path, named), not is_about, -listed[path], path.count("/"), path)


def _is_named(path: str, named: AbstractSet[str]) -> bool:
    return path in named or path.rsplit("/", 1)[-1] in named


def _repeated(question: Question, jobs: Sequence[SeenJob]) -> frozenset[str]:
    """The kinds of jobs that the last reply requested again, or that wait or were rejected."""
    first: dict[str, int] = {}
    for job in jobs:
        first.setdefault(identity(job), job.job_id)
    again = (job for job in question.results if job.state == "rejected" or first[identity(job)] != job.job_id)
    return frozenset(job.kind for job in (*again, *question.waiting))


def identity(job: SeenJob) -> str:
    """Identity of what the job asked for: equal for jobs of the same kind and params."""
    params = {key: value for key, value in job.params.items() if value is not None}
    return f"{job.kind} {json.dumps(params, sort_keys=True)}"


def _text(params: Mapping[str, JsonValue], key: str) -> str | None:
    value = params.get(key)
    return value if isinstance(value, str) and value else None
