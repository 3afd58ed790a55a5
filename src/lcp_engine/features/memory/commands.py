"""See, correct and forget what is remembered of roots (`lcp memory`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

import click

from lcp_engine.cli.base import Count, Invocation, LcpGroup, length_of, pass_invocation, read_object
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import local_time, print_err, print_json, print_json_line, print_out, when
from lcp_engine.cli.tables import Table, fact_column, id_column, number_column, print_table, text_column
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.safe_text import block, one_line
from lcp_engine.errors import ErrorCode, LcpError, system_advice
from lcp_engine.features.memory.calls import MemoryEdit, Remembered
from lcp_engine.features.memory.entries import (
    LEAST_IMPORTANCE,
    MOST_CONTENT,
    MOST_IMPORTANCE,
    USUAL_IMPORTANCE,
)

F = TypeVar("F", bound=Callable[..., object])
MOST_LISTED = 100
MOST_LINE = 1024 * 1024
"""Bytes of a line of an import: the longest entry has a tenth of that."""
_TEXT_ON_STDIN = "-"
_IMPORTANCE = click.IntRange(LEAST_IMPORTANCE, MOST_IMPORTANCE)


@click.group("memory", cls=LcpGroup)
def memory_command() -> None:
    """See, correct and forget what is remembered of roots beyond single missions.

    Each turn of a mission is shown some of it: what concerns its files, tags and words, and what matters most.
    """


def _about(command: F) -> F:
    """The options that say what an entry is about."""
    for option in reversed(
        [
            click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; may be repeated."),
            click.option(
                "--file", "files", multiple=True, metavar="PATH",
                help="A file that it is about, relative to the root; may be repeated.",
            ),
            click.option(
                "--expires", metavar="LENGTH", help="Forget it after 12h, 30d or 8w; `never` keeps it."
            ),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@memory_command.command(
    "add",
    examples=(
        'lcp memory add "Tests need a database" "Start it with make db, then make test." --tag tests',
        'lcp memory add "Release steps" - --root ~/src/site < steps.txt',
    ),
)
@click.argument("title", metavar="TITLE")
@click.argument("content", metavar="CONTENT")
@click.option(
    "--root", metavar="DIR", default=".", help="The directory that it is about.  [default: this one]"
)
@_about
@click.option("--importance", type=_IMPORTANCE, default=USUAL_IMPORTANCE, show_default=True, metavar="N",
              help="From 1, low, to 10, high.")  # fmt: skip
@pass_invocation
def add_command(
    invocation: Invocation, *, title: str, content: str, root: str, tags: Sequence[str], files: Sequence[str],
    expires: str | None, importance: int,
) -> int:  # fmt: skip
    """Remember CONTENT about a directory, and print its number. CONTENT `-` is read from stdin."""
    text = _from_stdin() if content == _TEXT_ON_STDIN else content
    with invocation.engine() as engine:
        added = engine.memory.add(
            title, text, root=root, tags=tags, files=files, importance=importance, expires_at=_expiry(expires)
        )
    print_json(added.json) if invocation.json else print_out(str(added.number))
    return Exit.DONE


@memory_command.command(
    "list", examples=("lcp memory list --root .", 'lcp memory list --text "release notes" --tag docs')
)
@click.option("--root", metavar="DIR", help="Only of this directory, or of a root that has this name.")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("--file", metavar="PATH", help="Only about this file, relative to the root.")
@click.option("--text", metavar="WORDS", help="Only with all of these words.")
@click.option(
    "--limit", type=Count(1), metavar="N", default=MOST_LISTED, show_default=True, help="Only the newest N."
)
@pass_invocation
def list_command(
    invocation: Invocation,
    *,
    root: str | None,
    tag: str | None,
    file: str | None,
    text: str | None,
    limit: int,
) -> int:
    """List what is remembered, newest first."""
    with invocation.engine() as engine:
        found = [*engine.memory.entries(root=root, tag=tag, file=file, text=text, limit=limit + 1)]
    shown = found[:limit]
    if invocation.json:
        print_json([one.json for one in shown])
        return Exit.DONE
    print_table(_table(shown, with_root=root is None), sys.stdout)
    if not invocation.quiet:
        if not found:
            print_err(
                "Nothing is remembered."
                if not (root or tag or file or text)
                else "Nothing that is remembered fits."
            )
        if len(found) > limit:
            print_err(f"only the newest {limit:,} are listed; --limit lists more")
    return Exit.DONE


@memory_command.command("show", examples=("lcp memory show 12",))
@click.argument("key", metavar="N")
@pass_invocation
def show_command(invocation: Invocation, key: str) -> int:
    """Show entry N, a number or an id, with where it is from."""
    with invocation.engine() as engine:
        found = engine.memory.find(key)
    print_json(found.json) if invocation.json else print_out("\n".join(_lines(found)))
    return Exit.DONE


@memory_command.command("edit", examples=("lcp memory edit 12 --importance 9 --expires never",))
@click.argument("key", metavar="N")
@click.option("--title", metavar="TEXT", help="Another title.")
@click.option("--content", metavar="TEXT", help="Another content; `-` reads it from stdin.")
@_about
@click.option("--importance", type=_IMPORTANCE, metavar="N", help="From 1, low, to 10, high.")
@pass_invocation
def edit_command(
    invocation: Invocation, *, key: str, title: str | None, content: str | None, tags: Sequence[str],
    files: Sequence[str], expires: str | None, importance: int | None,
) -> int:  # fmt: skip
    """Change entry N. Tags and files that are given take the place of all that it has; an empty one removes them."""
    stated = (title, content, tags or None, files or None, expires, importance)
    if all(one is None for one in stated):
        context = click.get_current_context()
        raise click.UsageError(
            "one of --title, --content, --tag, --file, --importance and --expires is expected", context
        )
    change = MemoryEdit(
        title=title,
        content=_from_stdin() if content == _TEXT_ON_STDIN else content,
        tags=[tag for tag in tags if tag] if tags else None,
        files=[file for file in files if file] if files else None,
        importance=importance,
        expires_at=_expiry(expires),
        never_expires=expires == "never",
    )
    with invocation.engine() as engine:
        changed = engine.memory.edit(key, change)
    print_json(changed.json) if invocation.json else print_out(f"memory {changed.number} changed")
    return Exit.DONE


@memory_command.command(
    "forget",
    examples=("lcp memory forget 12 13", "lcp memory forget --all --root .", "lcp memory forget --expired"),
)
@click.argument("keys", nargs=-1, metavar="[N]...")
@click.option("--all", "everything", is_flag=True, help="Everything about the directory --root.")
@click.option("--root", metavar="DIR", help="The directory, or another name of the root, of --all.")
@click.option("--expired", is_flag=True, help="Everything that has expired.")
@pass_invocation
def forget_command(
    invocation: Invocation, keys: Sequence[str], *, everything: bool, root: str | None, expired: bool
) -> int:
    """Remove entries for good. What turns were shown stays in their history until that is pruned."""
    if [bool(keys), everything, expired].count(True) != 1 or (root is not None) != everything:
        context = click.get_current_context()
        raise click.UsageError("numbers of entries, --all with --root DIR, or --expired is expected", context)
    with invocation.engine() as engine:
        if root is not None:
            count = engine.memory.forget_root(root)
        else:
            count = engine.memory.forget_expired() if expired else engine.memory.forget(*keys)
    if invocation.json:
        print_json({"forgotten": count})
    else:
        print_out(f"{count:,} {'entry' if count == 1 else 'entries'} forgotten")
    return Exit.DONE


@memory_command.command("export", examples=("lcp memory export --root . > memory.jsonl",))
@click.option("--root", metavar="DIR", help="Only of this directory, or of a root that has this name.")
@pass_invocation
def export_command(invocation: Invocation, root: str | None) -> int:
    """Print everything that is remembered, a MemoryEntry a line, newest first."""
    with invocation.engine() as engine:
        for one in engine.memory.entries(root=root):
            print_json_line(one.json)
    return Exit.DONE


@memory_command.command("import", examples=("lcp memory import memory.jsonl --root ~/src/site",))
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE")
@click.option(
    "--root", metavar="DIR", default=".", help="The directory that they are about.  [default: this one]"
)
@pass_invocation
def import_command(invocation: Invocation, file: Path, root: str) -> int:
    """Remember the entries of FILE (`-`: stdin), a MemoryEntry a line: all of them, or none if one is not valid.

    An entry whose id is known takes the place of that one.
    """
    with invocation.engine() as engine:
        taken = engine.memory.take_in(_entries(file), root=root)
    if invocation.json:
        print_json({"added": taken.added, "replaced": taken.replaced, "unchanged": taken.unchanged})
    else:
        print_out(f"{taken.added:,} added, {taken.replaced:,} replaced, {taken.unchanged:,} unchanged")
    return Exit.DONE


def _table(found: Sequence[Remembered], *, with_root: bool) -> Table:
    columns = [
        id_column("id"),
        text_column("title", least=24),
        number_column("importance", spare=1),
        text_column("tags", spare=2),
        text_column("files", spare=0),
        fact_column("changed", spare=3),
    ]
    table = Table([*columns, *([text_column("root")] if with_root else [])])
    for one in found:
        cells = (
            str(one.number),
            one.title,
            str(one.importance),
            ", ".join(one.tags),
            ", ".join(one.files) or "-",
            when(one.updated_at.isoformat()),
        )
        table.add(*cells, *([one.root] if with_root else []))
    return table


def _lines(one: Remembered) -> Iterator[str]:
    yield f"memory {one.number} ({one.id}): {one_line(one.title)}"
    facts = {
        "root": one.root,
        "tags": ", ".join(one.tags),
        "files": ", ".join(one.files),
        "importance": str(one.importance),
        "from": _origin(one),
        "made": local_time(one.created_at.isoformat()),
        "changed": local_time(one.updated_at.isoformat()) if one.updated_at != one.created_at else "",
        "expires": "" if one.expires_at is None else local_time(one.expires_at.isoformat()),
    }
    for name, value in facts.items():
        if value:
            yield f"  {name:<10}  {one_line(value)}"
    yield ""
    yield block(one.content)


def _origin(one: Remembered) -> str:
    """Where an entry is from: a person, or the job that found it out."""
    if one.mission_id is None:
        return f"{one.author} ({one.source})" if one.author else one.source
    job = "" if one.job_id is None else f"job {one.job_id} of "
    return f"{job}mission {one.mission_id} ({one.source})"


def _expiry(length: str | None) -> datetime | None:
    if length is None or length == "never":
        return None
    return datetime.now(UTC) + length_of("--expires", length, "12h, 30d or 8w, or `never`")


def _from_stdin() -> str:
    data = sys.stdin.buffer.read(4 * MOST_CONTENT + 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as refused:
        message = f"stdin: byte {refused.start} is not UTF-8"
        if len(data) > 4 * MOST_CONTENT:
            message = f"stdin has more than {MOST_CONTENT:,} characters, the most that is kept"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Give a text in UTF-8.") from refused


def _entries(file: Path) -> Iterator[JsonObject]:
    """The objects of a file of lines. Raises `INVALID_ARGUMENT` that names the line."""
    if str(file) == _TEXT_ON_STDIN:
        yield from _objects(sys.stdin.buffer, "stdin")
        return
    try:
        stream = file.open("rb")
    except FileNotFoundError as refused:
        raise LcpError(ErrorCode.NOT_FOUND, f"file {str(file)!r} does not exist") from refused
    except OSError as refused:
        message = f"file {str(file)!r} cannot be read: {refused.strerror}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=system_advice(refused)) from refused
    with stream:
        yield from _objects(stream, str(file))


def _objects(stream: BinaryIO, name: str) -> Iterator[JsonObject]:
    number = 0
    while line := stream.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            message = f"{name}: line {number} has more than {MOST_LINE:,} bytes; an entry has fewer"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Write an entry on each line.")
        if line.strip():
            entry = read_object(line, f"{name}: line {number}")
            if "memories" in entry and "id" not in entry:
                fact = f"{name}: line {number} is a mapping with the key 'memories'"
                message = f"{fact}; a MemoryEntry is expected, one a line"
                raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Write an entry on each line.")
            yield entry
