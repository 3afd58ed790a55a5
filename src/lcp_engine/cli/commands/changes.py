"""Show file changes and undo them (`lcp diff`, `lcp changes`, `lcp undo`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import job_ids, mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import make_console, print_err, print_json, print_out
from lcp_engine.cli.console.terminal import page
from lcp_engine.cli.tables import (
    Span,
    Table,
    end_of,
    fact_column,
    id_column,
    number_column,
    print_table,
    rows_in,
    text_column,
)
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.kinds import TURN
from lcp_engine.core.safe_text import Shown, exact, json_block, one_line, shortened
from lcp_engine.core.summaries import size
from lcp_engine.errors import GENERAL, ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine import Job
    from lcp_engine.api.engine import Engine
    from lcp_engine.inbox import Diff, Sight, Undo


_STYLES = {"-": "red", "+": "green", "@": "cyan", "\\": "dim"}
_CONTINUED = "\u00a6"

_WORDS = {
    "created": "put back",
    "changed": "restored",
    "removed": "removed",
    "left": "left: it is not empty",
}


@click.command(
    "diff",
    cls=LcpCommand,
    examples=(
        "lcp diff 12            what held job 12 would change, or what job 12 has changed",
        "lcp diff --mission 3   all changes of mission 3, each file from its first content to its last",
    ),
)
@click.argument("job", type=int, shell_complete=job_ids, metavar="[J]", required=False)
@click.option(
    "--mission", type=int, shell_complete=mission_ids, metavar="M", help="Show all changes of mission M."
)
@pass_invocation
def diff_command(invocation: Invocation, job: int | None, mission: int | None) -> int:
    """Show what job J would change, or has changed, as a unified diff.

    Your approval of a held job is bound to the diff you were shown. Turns change no files: of a turn, all changes of
    its mission are shown.
    """
    if (job is None) == (mission is None):
        raise click.UsageError("exactly one of J and --mission M is expected", click.get_current_context())
    with invocation.engine() as engine:
        found = None if job is None else engine.job(job)
        if found is not None and found.kind == TURN:
            mission = found.mission_id
            if not (invocation.quiet or invocation.json):
                print_err(f"job {job} is a turn, which changes no files; showing its mission, {mission}")
            found = None
        caveat, mark = "", None
        if found is not None:
            diffs = engine.diff(found.id)
            caveat, mark = _what_was_shown(engine, found, diffs)
            of = {"job_id": found.id, "mission_id": found.mission_id, "state": found.state}
        else:
            of = {"job_id": None, "mission_id": mission, "state": None}
            diffs = engine.mission_diff(mission or 0)
    if invocation.json:
        print_json(
            {**of, "files": [diff.json for diff in diffs], "unforeseeable": bool(caveat), "shown": mark}
        )
    elif diffs:
        print_diffs(diffs)
        if mark and not invocation.quiet:
            print_err(f"`lcp approve {job} --shown {mark}` approves what is shown here and nothing else")
    elif caveat:
        print_err(f"job {job}: {caveat}; `lcp job {job}` shows its params")
    elif not invocation.quiet:
        print_err(_no_files(mission, found))
    return Exit.DONE


def _no_files(mission: int | None, job: Job | None) -> str:
    if job is None:
        return f"mission {mission} has changed no files"
    if job.state == State.HELD:
        return f"job {job.id} would change no files"
    return f"job {job.id} is {job.state} and has changed no files"


def _what_was_shown(engine: Engine, job: Job, diffs: Sequence[Diff]) -> tuple[str, str | None]:
    """Notes for a held job without a diff, and its approval mark."""
    seen = engine.last_seen(job.id) if job.state == State.HELD else None
    if seen is None:
        return "", None
    return "" if diffs else engine.look(job.id).caveat, seen.mark


def print_diffs(diffs: Sequence[Diff]) -> None:
    """Print diffs on stdout: coloured on a terminal, and in a pager if they are longer than it."""
    console = make_console(sys.stdout)
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        show_diffs(console, diffs)
        return
    page(lambda shown: show_diffs(shown, diffs))


def seen_with(engine: Engine, job_id: int, mark: str) -> Sight:
    """Sight that `lcp diff` showed this person with that mark. Raises `CONFLICT` if it has shown something since."""
    seen = engine.last_seen(job_id)
    if seen is None or seen.mark != mark:
        message = (
            f"job {job_id} was not shown last with the mark {mark!r}: check it again with `lcp diff {job_id}`"
        )
        raise LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)
    return seen


def show_diffs(console: Console, diffs: Sequence[Diff]) -> None:
    """Print diffs on a console, to the last character."""
    for diff in diffs:
        _show_lines(console, diff, diff.lines)


def show_excerpt(console: Console, diffs: Sequence[Diff], most: int) -> bool:
    """Print the first `most` lines, each cut to three lines of the terminal; whether that was all, which it says."""
    room, width, is_whole = most, 3 * console.width, True
    for diff in diffs:
        lines = tuple(_cut(line, width) for line in diff.lines[:room])
        is_whole = is_whole and lines == diff.lines[:room] and len(lines) == len(diff.lines)
        room -= len(lines)
        _show_lines(console, diff, lines)
    left = sum(len(diff.lines) for diff in diffs) - (most - room)
    if left:
        console.print(f"<{left:,} more lines>")
    return is_whole


def show_job(console: Console, job: Job, diff: Diff | None) -> None:
    """Print in full what a held job would change or, without a diff, its params."""
    if diff is None:
        show_params(console, job)
    else:
        show_diffs(console, [diff])


def job_rows(job: Job, diff: Diff | None, width: int) -> list[Span]:
    """Rows that `show_job` prints on a terminal of that width, row by row."""
    if diff is not None:
        return [*_diff_rows(diff, diff.lines, width)]
    return [Span(row) for line in _param_lines(job) for row in _rows(line, width)]


def diff_rows(diffs: Sequence[Diff], width: int) -> list[Span]:
    """Rows that `show_diffs` prints on a terminal of that width, row by row."""
    return [row for diff in diffs for row in _diff_rows(diff, diff.lines, width)]


def file_line(diff: Diff, number: int, width: int, *, is_viewed: bool) -> str:
    """A file in a list of those that a job would change, on one line: number, end of its path, lines, mark."""
    counts = f"+{diff.added:,} -{diff.removed:,}{' viewed' if is_viewed else ''}"
    room = width - len(counts) - len(str(number)) - 3
    return f"{number} {end_of(one_line(diff.path), max(room, 1))}  {counts}"


def show_params(console: Console, job: Job, most: int | None = None) -> bool:
    """Print the params, or their first `most` lines, each cut to three lines of the terminal; whether that was all."""
    lines = _param_lines(job)
    cut = lines if most is None else [shortened(line, 3 * console.width) for line in lines[:most]]
    for line in cut:
        for row in _rows(line, _width(console)):
            console.out(row, highlight=False)
    if len(lines) > len(cut):
        console.print(f"<{len(lines) - len(cut):,} more lines>")
    return cut == lines


def _param_lines(job: Job) -> list[Shown]:
    """Params as JSON; texts with several lines follow as text, each line behind a bar."""
    texts = {key: value for key, value in job.params.items() if isinstance(value, str) and "\n" in value}
    rest = {key: value for key, value in job.params.items() if key not in texts}
    lines = [Shown(line) for line in json_block(rest).split("\n")]
    for key, text in texts.items():
        lines += [Shown(f"  {one_line(key)}:"), *(Shown(f"  │ {line}") for line in exact(text).split("\n"))]
    return lines


def _show_lines(console: Console, diff: Diff, lines: Sequence[str]) -> None:
    for row in _diff_rows(diff, lines, _width(console)):
        console.out(row.text, style=row.style or None, highlight=False)


def _diff_rows(diff: Diff, lines: Sequence[str], width: int | None) -> Iterator[Span]:
    """Lines of a diff as rows of a terminal; without lines its note."""
    if not diff.lines:
        for row in _rows(f"{one_line(diff.path)}: {one_line(diff.note or '')}".removeprefix(": "), width):
            yield Span(row)
        return
    for number, line in enumerate(lines):
        style = "bold" if number < 2 else _STYLES.get(line[:1], "")
        for row in _rows(_visible(line), width):
            yield Span(row, style)
    if diff.note is not None:
        for row in _rows(f"({one_line(diff.note)})", width):
            yield Span(row, "yellow")


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else Shown(f"{line[:1]}{shortened(line[1:], most - 1)}")


def _visible(line: str) -> str:
    """A line of a diff as it is shown: its sign, and its text to the last character."""
    return line if isinstance(line, Shown) else line[:1] + exact(line[1:])


def _width(console: Console) -> int | None:
    return console.width if console.is_terminal else None


def _rows(line: str, width: int | None) -> list[str]:
    """A line as rows of a terminal; the first character of a further row is none that a line of a diff begins with.

    Rows are broken behind blanks, where there are any.
    """
    if width is None:
        return [line]
    first, *rest = rows_in(line.expandtabs(), max(2, width - 1)) or [""]
    return [first, *(f"{_CONTINUED}{row}" for row in rest)]


@click.command("changes", cls=LcpCommand, examples=("lcp changes 3", "lcp changes 3 --json"))
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@pass_invocation
def changes_command(invocation: Invocation, mission: int) -> int:
    """List the file changes of mission M in order, with job, sizes and state.

    State intent: begun and not confirmed; void: never happened; conflict: the file had been changed by someone else.
    """
    with invocation.history() as history:
        history.mission(mission)
        found = history.changes(mission)
    if invocation.json:
        print_json([*found])
    elif found:
        print_table(changes_table(found), sys.stdout)
    else:
        print_out(f"mission {mission} has changed no files")
    return Exit.DONE


@click.command("undo", cls=LcpCommand, examples=("lcp undo 3 --dry-run", "lcp undo 3", "lcp undo --job 14"))
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="[M]", required=False)
@click.option("--job", type=int, shell_complete=job_ids, metavar="J", help="Undo only the changes of job J.")
@click.option("--dry-run", is_flag=True, help="Check and print what would be done; change nothing.")
@click.option("--shown", metavar="MARK", help="Do exactly what --dry-run named so, or nothing.")
@pass_invocation
def undo_command(
    invocation: Invocation, mission: int | None, job: int | None, *, dry_run: bool, shown: str | None
) -> int:
    """Restore files to what they were before mission M, or before job J.

    All files or none: if one differs from what the last change left, or a later job has changed it, nothing is done
    and the exit code is 5. An undo is a job itself, which `lcp undo --job` can undo.
    """
    if (mission is None) == (job is None):
        raise click.UsageError("exactly one of M and --job J is expected", click.get_current_context())
    with invocation.engine() as engine:
        done = engine.undo(mission, job_id=job, dry_run=dry_run, shown=shown)
    if invocation.json:
        print_json(done.json)
    else:
        _print_undo(done, f"mission {mission}" if job is None else f"job {job}")
    return Exit.DONE


def _print_undo(done: Undo, name: str) -> None:
    if done.resumed is not None and not done.dry_run:
        print_out(f"job {done.resumed}, an interrupted undo, is finished")
    for file in done.files:
        word = _WORDS[str(file["change"])]
        print_out(f"{one_line(str(file['path']))} {f'would be {word}' if done.dry_run else word}")
    if not done.files:
        print_out(f"{name} has nothing to undo")
    elif done.dry_run:
        print_out(f"`--shown {done.shown}` in place of `--dry-run` does this")
    else:
        print_out(f"`lcp undo --job {done.job_id}` reverts this")


def changes_table(changes: Sequence[JsonObject]) -> Table:
    """Changes of files with the jobs that made them."""
    table = Table([
        id_column("job"),
        fact_column("change"),
        number_column("size", spare=0),
        fact_column("state"),
        text_column("path", least=20),
    ])  # fmt: skip
    for change in changes:
        table.add(
            str(change["job_id"]),
            str(change["change"]),
            _sizes(change),
            _state(change),
            _path(change),
        )
    return table


def _path(change: Mapping[str, JsonValue]) -> str:
    if (new := change.get("moved_to")) is not None:
        return f"{change['path']}, moved to {new}"
    if (old := change.get("moved_from")) is not None:
        return f"{change['path']}, moved from {old}"
    return str(change["path"])


def _sizes(change: Mapping[str, JsonValue]) -> str:
    """The sizes before and after; - where there is no file, or a directory."""
    if str(change["path"]).endswith("/"):
        return "-"
    both = (
        change["size_before"],
        None if change["sha256_after"] is None else change["size_bytes"],
    )
    return " → ".join(size(one) if isinstance(one, int) else "-" for one in both)


def _state(change: Mapping[str, JsonValue]) -> str:
    state = str(change["state"])
    if change["undone_by"] is not None:
        return f"undone by job {change['undone_by']}"
    if change["undoes"] is not None:
        state = f"{state}, an undo"
    return state if change["has_pre_image"] else f"{state}, cannot be undone"
