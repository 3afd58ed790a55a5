"""Describe jobs and their results in a prompt (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import commonprefix
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.core.kinds import CHANGES, ON_FILES, KindRole, shown_text
from lcp_engine.core.safe_text import fenced, json_line, one_line, quoted
from lcp_engine.features.models.prompts.known_files import View, is_binary, line_count
from lcp_engine.planners.base import LeftOut, SeenJob

Count: TypeAlias = Callable[[str], int]

MOST_WORDS = 300


@dataclass(frozen=True)
class Body:
    """The result of a job as text."""

    job: SeenJob
    text: str
    path: str | None = None
    """The file that was read; None for other results."""
    first: int = 0
    """The number of the first line in the file, from 0."""
    total: int = 0
    """How many lines the file has."""
    items: str = "lines"
    """What the lines are, if not lines of a file."""
    read_on: str | None = None
    """The kind and params that show lines further down, beside `offset` and `limit`; None if there are none."""
    has_end: bool = False
    """True for the output of a program, whose end counts as much as its beginning."""


@dataclass(frozen=True)
class Shown:
    """A body as the prompt shows it: `kept` of it; `goes_on` is the first line that was left out."""

    text: str
    kept: str
    goes_on: int | None = None


def headline(job: SeenJob, view: View) -> str:
    """A job and its outcome, in one line."""
    return f"{what(job, view)}: {_outcome(job, view)}"


def what(job: SeenJob, view: View) -> str:
    """A job in one line, without its outcome."""
    return f"{job.kind}{_object(job, view)}"


def left_out(told: Body, kept: str | None, number: int, view: View) -> LeftOut | None:
    """Part that is left out of a body of which `kept` is shown, None for nothing of it; None if it is shown whole."""
    shown = kept or ""
    left = byte_count(told.text) - byte_count(shown)
    if not left and kept is not None:
        return None
    return LeftOut(
        number,
        what(told.job, view),
        first=told.first + line_count(commonprefix((told.text, shown))),
        lines=line_count(told.text) - line_count(shown),
        bytes=left,
        is_whole=not shown,
    )


def body(job: SeenJob, view: View) -> Body | None:
    """Text that a prompt can show of a job beside its headline; None if nothing."""
    result = job.result
    if job.state != "succeeded" or result is None:
        return None
    found, role, total = view.found(job), view.role(job), result.get("total")
    if role is KindRole.READS and isinstance(found, str):
        offset = job.params.get("offset")
        first = offset if isinstance(offset, int) else 0
        last = first + line_count(found)
        count = total if isinstance(total, int) else last
        return Body(job, found, view.target(job), first, count, read_on=job.kind)
    if role is KindRole.RECALLS and isinstance(found, str):
        offset = job.params.get("offset")
        first = offset if isinstance(offset, int) else 0
        count = total if isinstance(total, int) else first + line_count(found)
        return Body(job, found, first=first, total=count, read_on=recall(view, recalled_number(job)))
    if role is KindRole.LISTS and isinstance(found, list):
        lines = "\n".join(f"{listed_name(name)}{_BINARY * is_binary(name)}" for name in map(str, found))
        return Body(job, lines, total=total if isinstance(total, int) else len(found), items="files")
    if role in (*CHANGES, KindRole.ASKS):
        return None
    whole = shown_text(result, view.shows(job))
    return Body(job, whole, total=line_count(whole), has_end=role is KindRole.RUNS) if whole else None


_BINARY = "  (binary)"


def listed_paths(job: SeenJob, view: View) -> list[str]:
    """The files that a job listed, by their paths in the root."""
    base, found = view.target(job), view.found(job)
    names = [str(name) for name in found] if isinstance(found, list) else []
    return [f"{base}/{name}" if base else name for name in names]


def recalled_number(job: SeenJob) -> int | None:
    """The number of the job whose result this one shows again."""
    number = job.params.get("number")
    return number if isinstance(number, int) else None


def recall(view: View, number: int | None) -> str | None:
    """The kind and params that show the result of the job with this number again; None if there is no such kind."""
    return None if view.recalls is None or number is None else f"{view.recalls}, number {number}"


def show(given: Body, tokens: int, count: Count) -> Shown:
    """The body in a fence; a longer one is cut to about `tokens`, and followed by how to read the rest."""
    # What says that it is left out takes as much room as a short text.
    is_short = count(given.text) <= max(tokens, _MARKER // 2)
    if given.has_end and not is_short and (both := _both_ends(given, tokens - 2 * _MARKER, count)):
        return both
    text = given.text if is_short else cut(given.text, max(tokens - _MARKER, 0), count)
    last = given.first + line_count(text)
    if len(text) == len(given.text) and last >= given.total:
        return Shown(fenced(text), text)
    said = f"[{_cut_at(given, text, last)}{_advice(given, last)}]"
    whole = "\n".join(part for part in (fenced(text) if text else "", said) if part)
    return Shown(whole, text, last if last < given.total else None)


def _both_ends(given: Body, tokens: int, count: Count) -> Shown | None:
    """The first and the last lines of a body, each in a fence; None if there is no room for both."""
    half = max(tokens // 2, 0)
    first = cut(given.text, half, count)
    last = _cut_start(given.text[len(first) :], half, count)
    if not first.endswith("\n") or not last:
        return None
    goes_on = line_count(first)
    middle = given.text[len(first) : -len(last)]
    left = (
        f"{counted(line_count(middle), 'lines')} of {given.total:,}, {counted(byte_count(middle), 'bytes')}"
    )
    said = f"[left out here: {left}{_advice(given, goes_on)}]"
    return Shown(f"{fenced(first)}\n{said}\n{fenced(last)}", first + last, goes_on)


def _cut_start(text: str, tokens: int, count: Count) -> str:
    """The last lines of `text` with at most `tokens`; empty if its last line is too long."""
    kept = text
    while kept and (needed := count(kept)) > tokens:
        kept = kept[len(kept) - min(len(kept) - 1, len(kept) * tokens // max(needed, 1)) :]
    return kept if len(kept) == len(text) else kept.partition("\n")[2]


def _cut_at(given: Body, text: str, last: int) -> str:
    """Where a body is cut, and how much of it is left out."""
    left = byte_count(given.text) - byte_count(text)
    more = f", {counted(left, 'bytes')} left out" if left else ""
    if last == given.first:
        return f"left out here: {counted(given.total - last, given.items)}, {counted(left, 'bytes')}"
    if not left or text.endswith("\n"):
        return f"cut here: {given.items} {given.first + 1} to {last} of {given.total:,} are shown{more}"
    # The rest of a line that is too long cannot be read: offsets count lines.
    start = text.rfind("\n") + 1
    line, whole = text[start:], given.text[start:].partition("\n")[0]
    said = f"line {last} of {given.total:,} is cut" if given.path is not None else "cut in a line"
    return f"{said}: {byte_count(line):,} of its {counted(byte_count(whole), 'bytes')} are shown{more}"


def by_directory(paths: Sequence[str], most: int) -> list[tuple[str, int]]:
    """At most `most` directories with how many of the files are in them; a file counts for the deepest that is shown.

    The largest directories are divided first. The root is an empty text.
    """
    tree = _Directory("")
    for path in paths:
        tree.add(path)
    shown, open_ = list[tuple[str, int]](), [tree]
    while open_:
        largest = max(open_, key=lambda each: each.files)
        room = most - len(shown) - len(open_)
        if room < 1 or not largest.inner:
            break
        open_.remove(largest)
        inner = sorted(largest.inner.values(), key=lambda each: (-each.files, each.path))[:room]
        own = largest.files - sum(each.files for each in inner)
        shown += [(largest.path, own)] if own else []
        open_ += inner
    return sorted([*shown, *((each.path, each.files) for each in open_)])


@dataclass
class _Directory:
    path: str
    files: int = 0
    """How many files are beneath it."""
    inner: dict[str, _Directory] = field(default_factory=dict)

    def add(self, path: str) -> None:
        at = self
        at.files += 1
        for name in path.split("/")[:-1]:
            at = at.inner.setdefault(name, _Directory(f"{at.path}{name}/"))
            at.files += 1


def directory_lines(paths: Sequence[str], most: int) -> list[str]:
    """A line for each directory with its number of files; see `by_directory`."""
    return [
        f"{listed_name(path) if path else './'}: {counted(files, 'files')}"
        for path, files in by_directory(paths, most)
    ]


def byte_count(text: str) -> int:
    """Number of bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def plain(text: str, most: int = MOST_WORDS) -> str:
    """`text` on one line, shortened and escaped: a file's name may contain a line end and further words."""
    line = " ".join(text.split()) if not text.isprintable() else text
    line = line if line.isprintable() else json.dumps(line)[1:-1]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def listed_name(name: str) -> str:
    """A file's name on a line of its own inside a fence: as it is, or as a JSON string if it has odd characters."""
    return name if _USUAL.fullmatch(name) and one_line(name) == name else json_line(name)


_USUAL = re.compile(r"[^`\"<>\\\s][^`\"<>\\]*")
_MARKER = 40
_MOST_PATTERNS = 10


def _object(job: SeenJob, view: View) -> str:
    """The subject of a job: its file, patterns, question or params."""
    role, given = view.role(job), job.params.get("rel_path") or job.params.get("path")
    if role is KindRole.LISTS:
        patterns, base = job.params.get("patterns"), view.target(job)
        told = (
            ", ".join(quoted(str(each)) for each in patterns[:_MOST_PATTERNS])
            if isinstance(patterns, list)
            else ""
        )
        return f" {told or 'all files'}" + (f" in {quoted(base)}" if base else "")
    if role is KindRole.RECALLS and (number := recalled_number(job)) is not None:
        return f" number {number}"
    if role in ON_FILES and given is not None:
        new = f" to {quoted(view.new_path(job) or '')}" if role is KindRole.MOVES else ""
        return f" {quoted(view.target(job) or str(given))}{new}"
    for key in ("user_prompt", "question"):
        if isinstance(job.params.get(key), str):
            return f" {fold(str(job.params[key]))}"
    kept = {key: value for key, value in job.params.items() if value is not None}
    return f" {fold(json.dumps(kept, ensure_ascii=False))}" if kept else ""


def fold(text: str) -> str:
    """The beginning of a text, in quotes."""
    return json.dumps(plain(" ".join(text.split()), 120), ensure_ascii=False)


def _outcome(job: SeenJob, view: View) -> str:
    match job.state:
        case "succeeded":
            return _success(job, job.result or {}, view)
        case "held":
            return "waits for a person" + (f" ({plain(job.reason)})" if job.reason else "")
        case "rejected":
            return f"refused: {_why(job)}"
        case "failed":
            return f"failed: {_why(job)}"
        case state:
            return f"{state}: {_why(job)}" if job.reason or job.error else state


def _success(job: SeenJob, result: Mapping[str, JsonValue], view: View) -> str:
    found, role, total = view.found(job), view.role(job), result.get("total")
    if role is KindRole.LISTS and isinstance(found, list):
        return counted(len(found), "files") + (f" of {total:,}" if isinstance(total, int) else "")
    if role in (KindRole.READS, KindRole.RECALLS) and isinstance(found, str):
        offset = job.params.get("offset")
        first = offset if isinstance(offset, int) else 0
        lines = line_count(found)
        part = f" (from line {first + 1} on, of {total:,})" if isinstance(total, int) else ""
        return counted(lines, "lines") + part
    if role is KindRole.DELETES:
        return "deleted"
    if role is KindRole.MOVES:
        return "moved"
    if role is KindRole.MAKES:
        return "made" if result.get("created", True) else "was there already"
    if role in CHANGES:
        size = result.get("size_bytes")
        return "written" + (f", it has {counted(size, 'bytes')} now" if isinstance(size, int) else "")
    summary = result.get("summary") or result.get("answer") or result.get("verdict")
    return f"done, {fold(summary)}" if isinstance(summary, str) else "done"


def counted(count: int, words: str) -> str:
    """A number of things, such as `files`."""
    return f"{count:,} {words.removesuffix('s') if count == 1 else words}"


def _why(job: SeenJob) -> str:
    said = (job.error or {}).get("user_message") or job.reason
    return plain(str(said)) if said else "no reason was given"


def _advice(given: Body, last: int) -> str:
    if given.items == "files":
        return '; list a part with patterns such as "src/**"'
    if given.read_on is None or last >= given.total:
        return ""
    return f"; read on with {given.read_on}, offset {last}, limit {max(20, last - given.first)}"


def cut(text: str, tokens: int, count: Count) -> str:
    """The beginning of `text` with at most `tokens`, up to a line end if there is one."""
    kept = text
    while kept and (needed := count(kept)) > tokens:
        kept = kept[: min(len(kept) - 1, len(kept) * tokens // max(needed, 1))]
    end = kept.rfind("\n") + 1
    return kept[:end] if end else kept
