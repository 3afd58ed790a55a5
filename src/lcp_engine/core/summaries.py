"""Summaries for people: what a job is about, its result, durations and sizes. Pure."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from posixpath import normpath
from typing import TypeAlias

from lcp_engine.core.json_values import JsonValue, int_in, list_in, object_in
from lcp_engine.core.safe_text import Shown, one_line, shortened, without_escapes

Object: TypeAlias = Mapping[str, JsonValue]
_WIDTH = 100
_LARGER = (("d", 86_400), ("h", 3_600), ("min", 60))


_OF_SEARCHES = {"text", "root", "patterns", "is_pattern", "ignore_case", "context", "limit"}
"""Params of a job that is told by its text; with any other one, all are shown."""


def named_path(params: Object) -> str | None:
    """The path that params name, beneath their `root`; None if they name none.

    Resolved as far as that is possible without the mission's root.
    """
    path = next((params[key] for key in ("rel_path", "path") if isinstance(params.get(key), str)), None)
    if not isinstance(path, str) or "://" in path:
        return path if isinstance(path, str) else None
    root = params.get("root")
    whole = path if not isinstance(root, str) or path.startswith("/") else f"{root}/{path}"
    return normpath(whole) if whole else whole


def subject(
    job: Object, path_of: Callable[[Object], str | None] = named_path, *, most: int = _WIDTH
) -> Shown:
    """Subject of a job, on one line: its path in full, its patterns or question, else its name or params."""
    name = job["name"]
    params = job["params"] if job["params"] is not None else job.get("about")
    return subject_of(object_in(params), None if name is None else str(name), path_of, most=most)


def subject_of(
    params: Object,
    name: str | None,
    path_of: Callable[[Object], str | None] = named_path,
    *,
    most: int = _WIDTH,
) -> Shown:
    """Like `subject`, of a job's params and name."""
    path, new = path_of(params), params.get("new_path")
    if path is not None:
        return one_line(f"{path} → {new}" if isinstance(new, str) else path)
    for key in ("question", "user_prompt"):
        if isinstance(params.get(key), str):
            return _phrase(str(params[key]), most)
    if "corrects" in params:
        return Shown(f"question {params['corrects']} once more")
    patterns, notices = params.get("patterns"), params.get("notices")
    if isinstance(notices, list) and notices:
        return _phrase(str(notices[0]), most)
    command = params.get("command")
    if isinstance(command, list) and params.keys() <= {"command"}:
        return Shown(one_line(shortened(shlex.join(map(str, command)), most)))
    searched = params.get("text")
    if isinstance(searched, str) and params.keys() <= _OF_SEARCHES:
        where = params.get("root") if patterns is None else _patterns(list_in(patterns), params.get("root"))
        return Shown(f"{_phrase(searched, most)}{f' in {one_line(str(where))}' if where else ''}")
    if isinstance(patterns, list):
        return _patterns(patterns, params.get("root"))
    number, offset = params.get("number"), params.get("offset")
    if isinstance(number, int) and params.keys() <= {"number", "offset", "limit"}:
        return Shown(f"number {number}{f', from line {offset + 1} on' if isinstance(offset, int) else ''}")
    return one_line(shortened(name or _dump(params), most))


def _patterns(patterns: Sequence[JsonValue], root: JsonValue) -> Shown:
    shown = one_line(shortened(" ".join(str(pattern) for pattern in patterns[:3]), 60))
    more = f" … {len(patterns)} patterns" if len(patterns) > 3 else ""
    where = f" in {one_line(root)}" if isinstance(root, str) else ""
    return Shown(f"{shown}{more}{where}")


def as_question(params: Object) -> str:
    """A question to a person, with one option or field of its form on each line."""
    options, fields = params.get("options"), params.get("fields")
    listed = options if isinstance(options, list) else []
    lines = [f"  {number}) {one}" for number, one in enumerate(listed, 1)]
    lines += (
        [_field_line(field) for field in fields if isinstance(field, dict)]
        if isinstance(fields, list)
        else []
    )
    return "\n".join([question_in(params), *lines])


def question_in(params: Object) -> str:
    """The words of a question; those of a form of seed 004, as earlier versions stored it, are its title."""
    return str(params.get("question") or params.get("title") or "")


def _field_line(field: Object) -> str:
    """A field of a form: its key, what it takes, and what it asks."""
    options = field.get("options")
    values = (
        [one.get("value") if isinstance(one, dict) else one for one in options]
        if isinstance(options, list)
        else []
    )
    taken = "|".join(map(str, values)) or field.get("type") or "text"
    needed = ", required" if field.get("required") is True else ""
    return f"  {field.get('id')} ({taken}{needed}): {field.get('label')}"


def gist(result: Object | None) -> str:
    """The result of a job, on one line."""
    if not result:
        return ""
    told = _GISTS.get(str(result.get("action")))
    said = told(result) if told else result.get("summary") or result.get("commentary") or result.get("error")
    return _phrase(said if isinstance(said, str) else _dump(result), 300)


def _phrase(text: str, most: int = _WIDTH) -> Shown:
    """Words for people on one line; line ends and the white space between words mean nothing in them."""
    return shortened(" ".join(text.split()), most)


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def duration(seconds: float) -> str:
    """A duration for people, with two significant units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for position, (unit, length) in enumerate(_LARGER):
        if seconds >= length:
            smaller, part = ("s", 1) if position == len(_LARGER) - 1 else _LARGER[position + 1]
            rest = int(seconds % length) // part
            return f"{int(seconds // length)} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)


OF_ENDED = "its mission has ended: approved, it still runs, and the planner is not asked again"
"""A note for a held job whose mission has ended."""


def status_of(mission: Object) -> str:
    """The status of a mission for people: one that is completed with open jobs has `ended`."""
    status, left = str(mission["status"]), int_in(mission["open"])
    return f"{'ended' if status == 'completed' else status}, {left:,} open" if left else status


def unfulfilled_note(ids: Sequence[int], held: Sequence[int], mission: int) -> str:
    """The jobs of a mission whose effect did not happen, on one line; `held` are those that can still be approved."""
    refused = [number for number in ids if number not in {*held}]
    was, waits = ("was" if len(refused) == 1 else "were"), ("waits" if len(held) == 1 else "wait")
    parts = [f"{_jobs(refused)} {was} refused or failed"] if refused else []
    if held:
        parts.append(f"{_jobs(held)} {waits} for a person (`lcp held --mission {mission}`)")
    return f"unfulfilled: {', '.join(parts)}"


_MOST_NAMED = 8
_MOST_SEARCHED = 64 * 1024
"""Characters of output in which its last line is looked for."""


def _jobs(ids: Sequence[int]) -> str:
    """`job 3`, `jobs 3 and 5`."""
    if len(ids) == 1:
        return f"job {ids[0]}"
    named = [str(number) for number in ids[:_MOST_NAMED]]
    last = named.pop() if len(ids) <= _MOST_NAMED else f"{len(ids) - _MOST_NAMED:,} more"
    return f"jobs {', '.join(named)} and {last}"


def age(at: str, now: datetime) -> str:
    """Time since a moment, in the largest unit."""
    seconds = max(0, int((now - datetime.fromisoformat(at)).total_seconds()))
    for unit, length in _LARGER:
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago" if seconds else "now"


def nearest(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown name: the nearest of `known`, else all of them."""
    close = nearest_name(word, known)
    return f"known: {', '.join(sorted(known)) or 'none'}" if close is None else f"did you mean {close!r}?"


def nearest_name(word: str, known: Sequence[str]) -> str | None:
    """The nearest of `known`; None if none is near."""
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.6)), None)


def _count_files(result: Object) -> str:
    files = result.get("files")
    count = len(files) if isinstance(files, list) else 0
    total = result.get("total")
    if isinstance(total, int):
        return f"{count:,} of {total:,} files"
    return f"{count:,} file{'' if count == 1 else 's'}"


def _size_read(result: Object) -> str:
    count = result.get("size_bytes")
    return size(count) if isinstance(count, int) else ""


def _written(result: Object) -> str:
    return ", ".join(filter(None, ("created" if result.get("created") else "written", _size_read(result))))


def _deleted(_: Object) -> str:
    return "deleted"


def _made(result: Object) -> str:
    return "made" if result.get("created") else "was there already"


def _moved(result: Object) -> str:
    return f"moved to {result.get('new_path')}"


def _edited(result: Object) -> str:
    return f"edited, {_size_read(result)}"


def _found(result: Object) -> str:
    found, files = result.get("found"), result.get("files")
    if not isinstance(found, int) or not isinstance(files, int):
        return ""
    cut = ", the first ones" if result.get("truncated") else ""
    return f"{found:,} line{'' if found == 1 else 's'} in {files:,} file{'' if files == 1 else 's'}{cut}"


def _asked(result: Object) -> str:
    """Requests of a turn: in the planner's words, if there are any."""
    said, count = result.get("commentary"), result.get("jobs")
    if isinstance(said, str) and said:
        return said
    if isinstance(count, int):
        return f"{count} job{'' if count == 1 else 's'}"
    return f"write {result.get('rel_path')}"


def _dump(value: Object) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _answered(result: Object) -> str:
    return f"{result.get('by')}: {result.get('answer')}"


def _ran(result: Object) -> str:
    """The end of a command, with the verdict of what it ran, else with the last line that it wrote."""
    last = result.get("verdict") or _last_line(f"{result.get('stdout') or ''}\n{result.get('stderr') or ''}")
    how, used = result.get("ended") or f"exit code {result.get('exit_code')}", result.get("cpu_seconds")
    cpu = f", {duration(used)} CPU" if isinstance(used, int | float) and used >= 1 else ""
    return f"{how}{cpu}: {last}" if last else f"{how}{cpu}"


def _last_line(output: str) -> str:
    """The last line with something in it, as a terminal would leave it: a progress bar writes over its own."""
    lines = without_escapes(output[-_MOST_SEARCHED:]).split("\n")
    texts = (line.rstrip("\r").rpartition("\r")[2] for line in reversed(lines))
    return next((text for text in texts if text.strip()), "")


def _recalled(result: Object) -> str:
    """Whose result was shown, and how much of it."""
    content = str(result.get("content"))
    lines = content.count("\n") + (not content.endswith("\n"))
    total = result.get("total")
    of = f" of {total:,}" if isinstance(total, int) else ""
    return (
        f"number {result.get('number')} ({result.get('kind')}), {lines:,} line{'' if lines == 1 else 's'}{of}"
    )


_GISTS: Mapping[str, Callable[[Object], str]] = {
    "ask_user_result": _answered,
    "create_followup_jobs": _asked,
    "delete_file_result": _deleted,
    "edit_file_result": _edited,
    "make_directory_result": _made,
    "move_file_result": _moved,
    "write_file": _asked,
    "list_files_result": _count_files,
    "read_file_result": _size_read,
    "recall_result": _recalled,
    "run_command_result": _ran,
    "search_files_result": _found,
    "write_file_result": _written,
}


def left_out_line(part: Mapping[str, JsonValue]) -> str:
    """Line about the part of a job's result that a prompt left out."""
    lines, size, first = (int_in(part.get(key)) for key in ("lines", "bytes", "first"))
    much = f"{lines:,} line{'' if lines == 1 else 's'}, {size:,} byte{'' if size == 1 else 's'}"
    where = "all of it" if part.get("is_whole") else f"from line {first + 1:,} on"
    return f"{part.get('what')}: {where}, {much}"
