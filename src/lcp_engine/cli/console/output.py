"""Print data on stdout and errors on stderr, as text or JSON."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.wrapping import fitted, hang_of, terminal_width
from lcp_engine.core.health import Finding, broken
from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import Printable, json_block, json_line, sentence
from lcp_engine.errors import AgentError, ErrorCode, Failed, LcpError, refused_by_system
from lcp_engine.feature import is_shipped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree


def print_json(value: Printable) -> None:
    """Print the value of `--json`: indented on a terminal, else on one line."""
    print_out(json_block(value) if sys.stdout.isatty() else json_line(value), is_exact=True)


def print_json_line(value: Printable) -> None:
    """Print one object on a line and flush it."""
    print_out(json_line(value), is_exact=True)
    sys.stdout.flush()


def print_out(text: str, *, is_exact: bool = False) -> None:
    """Print on stdout. On a terminal sentences are broken between words, unless every character counts."""
    shown = text if is_exact else fitted(text, sys.stdout)
    sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")


def make_console(stream: TextIO) -> Console:
    """A console that prints text as it is: no markup, no emoji names, no highlighting."""
    from rich.console import Console, ConsoleDimensions

    console = Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if console.is_dumb_terminal:  # rich takes it for one of 80 columns
        console.size = ConsoleDimensions(terminal_width(stream), console.height)
    return console


def print_fitted(console: Console, text: str | Text) -> None:
    """Print lines with styles on stdout. On a terminal each is broken between words; the rest is further in."""
    from rich.text import Text

    from lcp_engine.cli.tables import wrap_words

    width = terminal_width(sys.stdout)
    for line in (Text(text) if isinstance(text, str) else text).split("\n", allow_blank=True):
        if not sys.stdout.isatty() or line.cell_len <= width:
            console.print(line)
            continue
        at = 0
        for row in wrap_words(line.plain, width, hang_of(line.plain, width)):
            said = row.lstrip(" ") if at else row
            start = line.plain.index(said, at)
            at = start + len(said)
            console.print(Text(row[: len(row) - len(said)]).append_text(line[start:at]))


def coloured(word: str) -> Text:
    """A state or status in its colour."""
    from rich.text import Text

    from lcp_engine.cli.tables import colour_of

    return Text(word, style=colour_of(word) or "")


def print_tree(tree: Tree) -> None:
    """Print a tree: as wide as the terminal, uncut without one."""
    console = make_console(sys.stdout)
    if not sys.stdout.isatty():
        console.width = 1000
    with console.capture() as captured:
        console.print(tree, soft_wrap=False)
    print_out("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), is_exact=True)


def until(at: str | None) -> str:
    """The time left until `at` on a terminal, else the local time."""
    if at is None or not sys.stdout.isatty():
        return local_time(at)
    from lcp_engine.core.summaries import duration

    seconds = seconds_until(at, datetime.now(UTC))
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def seconds_until(at: str, now: datetime) -> float:
    """Seconds from `now` to an ISO 8601 time; negative if it has passed."""
    return (datetime.fromisoformat(at) - now).total_seconds()


def when(at: str | None) -> str:
    """The age of `at` on a terminal, else the local time."""
    if at is None or not sys.stdout.isatty():
        return local_time(at)
    from lcp_engine.core.summaries import age

    return age(at, datetime.now(UTC))


def local_time(at: str | None) -> str:
    """An ISO 8601 time as a person reads it: in the timezone of this machine, to the second."""
    return "-" if at is None else f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M:%S}"


def wait_line(waits_for: Mapping[str, JsonValue]) -> str:
    """Reason and end of the wait of a mission's question; only the hour if that is today."""
    from lcp_engine.core.reasons import told_wait

    until = datetime.fromisoformat(str(waits_for["until"])).astimezone()
    is_today = until.date() == datetime.now(UTC).astimezone().date()
    day = "" if is_today else f"{until:%Y-%m-%d} "
    return f"{told_wait(waits_for)} until {day}{until:%H:%M:%S}"


@dataclass(frozen=True)
class Fact:
    """One duty, in a sentence and as JSON; `is_well` if its last try succeeded and found no faults."""

    duty: str
    text: str
    is_well: bool
    json: JsonValue


def explain(error: BaseException, *, as_json: bool) -> int:
    """Print on stderr what ended the command; returns the exit code."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        print_err("interrupted")
        return Exit.INTERRUPTED
    if isinstance(error, LcpError):
        return fail(error.failed, as_json=as_json)
    if isinstance(error, click.ClickException):
        return _refuse_usage(error, as_json=as_json)
    if isinstance(error, OSError):
        return fail(refused_by_system(error), as_json=as_json)
    if isinstance(error, ModuleNotFoundError) and is_shipped(error.name or ""):
        message = f"a feature that this needs is not installed: {error.name} is missing"
        return fail(Failed(ErrorCode.NOT_INSTALLED, message), as_json=as_json)
    return fail(_defect(error), as_json=as_json)


def fail(failed: Failed, *, as_json: bool) -> int:
    """Print `failed` as a line or as JSON; returns the exit code."""
    if as_json:
        print_err(json_line({"error": agent_error(failed).as_json()}), is_exact=True)
    else:
        print_err(sentence(failed.message))
    return failed.meaning.exit_code


def agent_error(failed: Failed) -> AgentError:
    """`failed` with new ids and the current time."""
    from datetime import UTC, datetime
    from uuid import uuid4

    return AgentError.of(
        failed,
        error_id=f"err-{uuid4()}",
        request_id=f"req-{uuid4()}",
        timestamp=datetime.now(UTC).isoformat(timespec="microseconds"),
    )


def drop_unwritten_output() -> None:
    """Discard buffered output that cannot be written, so that the interpreter does not complain at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_err(line: str, *, is_exact: bool = False) -> None:
    """Like `print_out`, on stderr; a closed stderr is ignored."""
    try:
        sys.stderr.write(f"{line if is_exact else fitted(line, sys.stderr)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _refuse_usage(error: click.ClickException, *, as_json: bool) -> int:
    message = error.format_message().rstrip(".")
    if not message[:2].isupper():  # a placeholder such as TEXT keeps its case
        message = message[:1].lower() + message[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        message = f"{context.command_path}: {message} (see `{context.command_path} --help`)"
    fail(Failed(ErrorCode.INVALID_ARGUMENT, message), as_json=as_json)
    return error.exit_code


def _defect(error: BaseException) -> Failed:
    """An unexpected exception, with the path of its stored traceback."""
    fact = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    kept = _keep_traceback(error)
    where = f"; the traceback is in {kept}" if kept else ""
    message = f"internal error of lcp: {fact}{where}"
    return Failed(ErrorCode.WORKER_FAILED, message, advice="Report it with the traceback.")


def _keep_traceback(error: BaseException) -> Path | None:
    from platformdirs import user_state_path

    from lcp_engine.sandbox.system.own_places import APP, make_private

    path = user_state_path(APP) / "last-defect.txt"
    try:
        make_private(path.parent)
        path.touch(mode=0o600)
        path.chmod(0o600)  # one of an older version
        path.write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        return None
    return path


def guarded(about: str, examine: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings of `examine`; an error is a failure of what it is about."""
    try:
        yield from examine()
    except LcpError as error:
        yield broken(about, error.failed)
    except OSError as refused:
        yield broken(about, refused_by_system(refused))
