"""Show what a change set would do now: a diff for each file, and what an approval of it is bound to (R25)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lcp_engine.changes.unified_diff import Diff, diff_bytes, replacing
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import Failed
from lcp_engine.sandbox.atomic_write import Snapshot


@dataclass(frozen=True)
class SetView:
    """View of what a change set would do now: a diff for each file, and what an approval of it is bound to.

    The diffs show all files with all hunks, and say what is left out; `refused` is why it cannot be done. An approval
    names `path` as its file; `head` are the two lines that all of it begins with, `nothing` is said without a diff.
    """

    diffs: tuple[Diff, ...]
    digest: str
    refused: Failed | None
    path: str
    head: tuple[str, str]
    nothing: str

    @cached_property
    def joined(self) -> Diff:
        """All of it as one diff; each file begins with a line of its own, which no line of a file begins like."""
        lines = [*self.head]
        for number, diff in enumerate(self.diffs, 1):
            said = f": {one_line(diff.note)}" if diff.note else ""
            lines += [f"# {number}/{len(self.diffs)} {one_line(diff.path)}{said}", *diff.lines]
        return Diff(
            self.path,
            tuple(lines) if self.diffs else (),
            None if self.diffs else self.nothing,
            sum(diff.added for diff in self.diffs),
            sum(diff.removed for diff in self.diffs),
            all(diff.is_whole for diff in self.diffs),
        )


def difference(
    path: str, before: Snapshot | None, after: Snapshot | None
) -> tuple[Diff, bytes | None, bytes | None]:
    """The change of a file, with the contents that were compared; a path that ends in `/` is a directory's."""
    contents = data_of(before), data_of(after)
    if path.endswith("/"):
        sides = None if before is None else b"", None if after is None else b""
        return diff_bytes(path, *sides), *sides
    if before is not None and before.data is None:
        return replacing(path, before.size, contents[1]), *contents
    if after is not None and after.data is None:
        note = f"too large to be shown: {after.size:,} bytes, SHA-256 {after.sha256}"
        return Diff(path, note=note, is_whole=False), *contents
    return diff_bytes(path, *contents), *contents


def data_of(found: Snapshot | None) -> bytes | None:
    """The content of a file as it was read, None if there is none, or more than was to be read."""
    return None if found is None else found.data


def new_mode_in_words(mode: int | None) -> str | None:
    """The mode bits of a new file, if it can be executed, or be written by any user."""
    return f"its mode is {mode:04o}" if mode is not None and mode & 0o113 else None
