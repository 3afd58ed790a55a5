"""Compare two contents of a file as a unified diff, and take some of its hunks, with bounded effort. Pure."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt

from pydantic import JsonValue

from lcp_engine.core.safe_text import one_line
from lcp_engine.sandbox.reading.encoding import BAD_BYTE, UTF_8, Encoding, encoding_of

CONTEXT = 3
MAX_BYTES = 16 * 1024 * 1024
"""Above this size of either side, the diff is one sentence."""
MAX_LINES = 200_000
"""Lines of a diff; its note counts those that are left out."""
MAX_EDITS = 400
"""The most insertions and deletions searched for between two anchors; beyond them, that part is replaced whole."""
EFFORT = 4_000_000
"""Steps of that search for a whole file; then the rest is replaced whole, so that the time is bounded for any input."""
_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_END = "\\ No newline at end of file"


@dataclass(frozen=True)
class Hunk:
    """A part of a change that can be taken without the others, as the diff prints it; the `number`-th of its file."""

    number: int
    lines: tuple[str, ...]

    @cached_property
    def name(self) -> str:
        """Its number with a mark of its lines, so that no other change has a hunk of that name."""
        return f"{self.number}-{hashlib.sha256(chr(10).join(self.lines).encode()).hexdigest()[:8]}"

    @property
    def header(self) -> str:
        """The ranges of lines that it is about."""
        return self.lines[0]


@dataclass(frozen=True)
class Gap:
    """Unchanged lines that a diff leaves out: the number of the first one on both sides, and how many there are.

    Nothing in a diff says how many are behind its last hunk (None).
    """

    old: int
    new: int
    count: int | None


@dataclass(frozen=True)
class Diff:
    """A change of one file. `lines` are those of a unified diff; `note` states what they cannot show."""

    path: str
    lines: tuple[str, ...] = ()
    note: str | None = None
    added: int = 0
    removed: int = 0
    is_whole: bool = True
    """Whether `lines` and `note` say everything that changes."""
    hunks: tuple[Hunk, ...] = ()
    """What `take_hunks` can take of it; none of a file that appears or is removed, or is not text in one encoding."""

    @property
    def parts(self) -> tuple[Hunk, ...]:
        """The hunks between which there is a choice: none if the file is taken or left as a whole."""
        return self.hunks if len(self.hunks) > 1 else ()

    @property
    def gaps(self) -> list[Gap]:
        """The gap above each hunk, and the one behind the last, which is empty where the file certainly ends."""
        found: list[Gap] = []
        old = new = 1
        for header in filter(None, (_HEADER.match(line) for line in self.lines[2:] if line.startswith("@@"))):
            # An empty range names the line before it.
            starts = [int(header[at]) + (header[at + 1] == "0") for at in (1, 3)]
            found.append(Gap(old, new, starts[1] - new))
            old, new = (start + int(header[at] or 1) for start, at in zip(starts, (2, 4), strict=True))
        has_more = all(line.startswith(" ") for line in self.lines[-CONTEXT:])
        return [*found, Gap(old, new, None if has_more else 0)] if found else []

    def taking(self, names: Sequence[str]) -> list[str] | None:
        """The hunks of these names, for `params_taking`; None, the whole file, if they are all or it has no parts."""
        return None if {hunk.name for hunk in self.parts} <= {*names} else [*names]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def json(self) -> dict[str, JsonValue]:
        return {
            "path": self.path, "added": self.added, "removed": self.removed, "note": self.note, "diff": self.text,
            "hunks": [hunk.name for hunk in self.hunks],
        }  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """Both contents that the diff of a file compares; None where there is no file."""

    before: bytes | None
    after: bytes | None

    def lines(self, diff: Diff) -> list[str] | None:
        """The lines of the new one, as they were compared; None if the diff is of other ones."""
        sides = self.before or b"", self.after or b""
        encodings = zip(sides, _encodings(*sides), strict=True)
        raw = [(encoding or UTF_8).decode(side) for side, encoding in encodings]
        old, new = ([line.removesuffix("\n") for line in _lines(text)] for text in _comparable(raw))
        for gap in diff.gaps:
            end = None if gap.count is None else gap.old - 1 + gap.count
            found = old[gap.old - 1 : end]
            if found != new[gap.new - 1 : gap.new - 1 + len(found)]:
                return None
        places = [0, 0]
        gaps = iter(diff.gaps)
        for line in diff.lines[2:]:
            if line.startswith("@@"):
                gap = next(gaps)
                places = [start - 1 + (gap.count or 0) for start in (gap.old, gap.new)]
            for at, (side, signs) in enumerate(((old, "- "), (new, "+ "))):
                if line[0] in signs:
                    if side[places[at] : places[at] + 1] != [line[1:]]:
                        return None
                    places[at] += 1
        return new


def diff_bytes(path: str, before: bytes | None, after: bytes | None) -> Diff:
    """The change of the file at `path`; None means no file.

    Very large files and binary content get one sentence; text that replaces binary content is shown.
    """
    if path.endswith("/"):
        return Diff(path, note=_of_directory(before, after))
    if before == after:
        return Diff(
            path, note="nothing changes" if before is not None else "there is no file, before and after"
        )
    sizes = f"{_size(before)} become {_size(after)}" if before is not None and after is not None else ""
    sizes = sizes or (
        f"a new file of {_size(after)}" if before is None else f"removed, it had {_size(before)}"
    )
    if max(len(before or b""), len(after or b"")) > MAX_BYTES:
        return Diff(path, note=f"too large to be shown: {sizes}{_hash(after)}", is_whole=False)
    old, new = _encodings(before or b"", after or b"")
    if new is None:
        return Diff(path, note=f"binary: {sizes}{_hash(after)}", is_whole=False)
    if old is None:
        shown = _diff_texts(path, b"", after or b"", (UTF_8, new))
        note = f"replaces binary content: {sizes}"
        return replace(shown, note="; ".join(filter(None, [note, shown.note])), hunks=())
    return _diff_texts(path, before, after, (old, new))


def _encodings(before: bytes, after: bytes) -> tuple[Encoding | None, Encoding | None]:
    """The encodings of both sides: what could be the one that the other side looks like is not guessed anew."""
    old, new = encoding_of(before), encoding_of(after)
    if old == new or old is None or new is None:
        return old, new
    if old.is_guess and old.reads(after) and (new.is_guess or after.isascii()):
        return old, old
    return old, new


def take_hunks(before: bytes, after: bytes, names: Collection[str]) -> bytes:
    """`before` with the hunks of these names, which are among those of `diff_bytes`."""
    encoding = _encodings(before, after)[0] or UTF_8
    raw = [encoding.decode(side) for side in (before, after)]
    old, new = (_lines(text) for text in raw)
    shown_old, shown_new = (_lines(text) for text in _comparable(raw))
    made: list[str] = []
    at = 0
    for number, hunk in enumerate(_hunks(_edits(shown_old, shown_new)), 1):
        if Hunk(number, tuple(_written(hunk, shown_old, shown_new))).name not in names:
            continue
        for tag, old_from, old_to, new_from, new_to in hunk:
            made += old[at:old_from]
            made += old[old_from:old_to] if tag == "=" else new[new_from:new_to]
            at = old_to
    return encoding.encode("".join([*made, *old[at:]]))


def _of_directory(before: bytes | None, after: bytes | None) -> str:
    if (before is None) == (after is None):
        return (
            "the directory is there already; nothing changes"
            if after is not None
            else "there is no directory"
        )
    return "a new directory" if before is None else "the directory is removed"


def replacing(path: str, size: int, after: bytes | None) -> Diff:
    """The change, or the deletion, of a file that has too many bytes, `size`, to be compared."""
    if after is None:
        return Diff(path, note=f"deletes a file of {size:,} bytes, which is too large to be shown")
    shown = diff_bytes(path, b"", after)
    note = f"replaces a file of {size:,} bytes, which is too large to be compared"
    note = "; ".join(filter(None, [note, shown.note if shown.lines else None]))
    return replace(shown, note=note, hunks=())


def _hash(content: bytes | None) -> str:
    """Hash that tells apart contents that are not shown."""
    return "" if content is None else f", SHA-256 {hashlib.sha256(content).hexdigest()}"


def _size(content: bytes | None) -> str:
    return f"{len(content or b''):,} bytes"


def _diff_texts(
    path: str, before: bytes | None, after: bytes | None, encodings: tuple[Encoding, Encoding]
) -> Diff:
    raw = [encoding.decode(side or b"") for side, encoding in zip((before, after), encodings, strict=True)]
    texts = _comparable(raw)
    notes = _notes(raw, encodings, has_both=bool(before and after), has_after=bool(after))
    old, new = (_lines(text) for text in texts)
    head = [f"--- {_name('a', path, before)}", f"+++ {_name('b', path, after)}"]
    body: list[str] = []
    hunks: list[Hunk] = []
    added = removed = 0
    for number, hunk in enumerate(_hunks(_edits(old, new)), 1):
        added += sum(new_to - new_from for tag, _, _, new_from, new_to in hunk if tag != "=")
        removed += sum(old_to - old_from for tag, old_from, old_to, _, _ in hunk if tag != "=")
        if len(body) <= MAX_LINES:
            hunks.append(Hunk(number, tuple(_written(hunk, old, new))))
            body += hunks[-1].lines
    is_whole = len(body) <= MAX_LINES
    if not is_whole:
        notes.append(
            f"the first {MAX_LINES:,} lines are shown; {added:,} lines are added, {removed:,} removed"
        )
        del body[MAX_LINES:]
    if not body and not notes:
        notes.append("only the file's being there changes" if before is None or after is None else
                     "only bytes that are not shown change")  # fmt: skip
    lines = (*head, *body) if body else ()
    can_choose = is_whole and encodings[0] == encodings[1] and _is_kept((before, after), raw, encodings[0])
    chosen = tuple(hunks) if can_choose else ()
    return Diff(path, lines, "; ".join(notes) or None, added, removed, is_whole, chosen)


def _notes(
    raw: Sequence[str], encodings: tuple[Encoding, Encoding], *, has_both: bool, has_after: bool
) -> list[str]:
    """Facts about the texts that the lines do not show."""
    old, new = encodings
    notes = []
    guessed = ", which is a guess" if new.is_guess else ""
    if has_both and old.name != new.name:
        notes.append(
            f"encoded as {old.name}{', a guess' if old.is_guess else ''}, will be {new.name}{guessed}"
        )
    elif has_after and (new.name != "utf-8" or new.errors != "strict"):
        notes.append(f"encoded as {new.name}{guessed}")
    if any(map(BAD_BYTE.search, raw)):
        notes.append("bytes that are not of it are shown as <0xFF>")
    if _all_end_in_crlf(raw):
        notes.append("all lines end in CRLF")
    return notes


def _is_kept(sides: Sequence[bytes | None], texts: Sequence[str], encoding: Encoding) -> bool:
    """True if there is a file on both sides, whose bytes are what its text is encoded as."""
    return all(
        side is not None and (encoding == UTF_8 or encoding.encode(text) == side)
        for side, text in zip(sides, texts, strict=True)
    )


def _comparable(texts: list[str]) -> list[str]:
    """The texts as they are compared: if all lines of both end in CRLF, showing that on each would hide the changes."""
    shown = [BAD_BYTE.sub(_bad_byte, text) for text in texts] if any(map(BAD_BYTE.search, texts)) else texts
    return [text.replace("\r\n", "\n") for text in shown] if _all_end_in_crlf(texts) else shown


def _bad_byte(found: re.Match[str]) -> str:
    return f"<0x{ord(found[0]) - 0xDC00:02X}>"


def _all_end_in_crlf(texts: Sequence[str]) -> bool:
    return any("\r\n" in text for text in texts) and not any(map(_has_bare_line_feed, texts))


def _has_bare_line_feed(text: str) -> bool:
    return text.count("\n") != text.count("\r\n")


def _lines(text: str) -> list[str]:
    """The lines with their ends: a last line with a line feed differs from the same line without."""
    parts = text.split("\n")
    last = parts.pop()
    lines = [f"{part}\n" for part in parts]
    return [*lines, last] if last else lines


def _name(side: str, path: str, content: bytes | None) -> str:
    return "/dev/null" if content is None else one_line(f"{side}/{path}")


def _written(hunk: Sequence[_Edit], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """A hunk as it is printed."""
    _, old_from, _, new_from, _ = hunk[0]
    _, _, old_to, _, new_to = hunk[-1]
    yield f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@"
    for tag, old_from, old_to, new_from, new_to in hunk:
        if tag == "=":
            yield from _marked(" ", old[old_from:old_to])
        else:
            yield from _marked("-", old[old_from:old_to])
            yield from _marked("+", new[new_from:new_to])


def _marked(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{sign}{line.removesuffix(chr(10))}"
        if not line.endswith("\n"):
            yield _NO_END


def _range(start: int, end: int) -> str:
    """A range of lines as `diff -u` writes it: an empty one names the line before it."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


# -- comparing

_Edit = tuple[str, int, int, int, int]
"""`=` or `!`, and what it spans in the old and in the new lines."""


def _hunks(edits: Sequence[_Edit]) -> Iterator[list[_Edit]]:
    """Edits with the lines around them; those near each other share a hunk."""
    hunk: list[_Edit] = []
    for index, (tag, old_from, old_to, new_from, new_to) in enumerate(edits):
        length = old_to - old_from
        if tag == "!":
            hunk.append((tag, old_from, old_to, new_from, new_to))
        elif index == 0:
            skip = max(0, length - CONTEXT)
            hunk.append((tag, old_from + skip, old_to, new_from + skip, new_to))
        elif index == len(edits) - 1 or length > 2 * CONTEXT:
            keep = min(length, CONTEXT)
            yield [*hunk, (tag, old_from, old_from + keep, new_from, new_from + keep)]
            hunk = [(tag, old_to - keep, old_to, new_to - keep, new_to)]
        else:
            hunk.append((tag, old_from, old_to, new_from, new_to))
    if any(edit[0] == "!" for edit in hunk):
        yield hunk


def _edits(old: Sequence[str], new: Sequence[str]) -> list[_Edit]:
    """Edits, of lines that stay and lines that are replaced, in order, each as long as possible."""
    edits: list[_Edit] = []
    old_at = new_at = 0
    for old_from, new_from, length in [*_equal(old, new), (len(old), len(new), 0)]:
        if old_at < old_from or new_at < new_from:
            edits.append(("!", old_at, old_from, new_at, new_from))
        elif edits and length:
            _, first_old, _, first_new, _ = edits.pop()
            edits.append(("=", first_old, old_from + length, first_new, new_from + length))
            old_at, new_at = old_from + length, new_from + length
            continue
        if length:
            edits.append(("=", old_from, old_from + length, new_from, new_from + length))
        old_at, new_at = old_from + length, new_from + length
    return edits


def _equal(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal lines: where they begin on both sides, and their length."""
    pending = [(0, len(old), 0, len(new))]
    effort = EFFORT
    while pending:
        old_from, old_to, new_from, new_to = pending.pop()
        head = _common(old, new, old_from, new_from, min(old_to - old_from, new_to - new_from))
        if head:
            yield old_from, new_from, head
        old_from, new_from = old_from + head, new_from + head
        tail = _common_end(old, new, old_to, new_to, min(old_to - old_from, new_to - new_from))
        if tail:
            pending.append((old_to - tail, old_to, new_to - tail, new_to))
        old_to, new_to = old_to - tail, new_to - tail
        if old_from == old_to or new_from == new_to:
            continue
        if tail:
            pending.append((old_from, old_to, new_from, new_to))
            continue
        most = min(MAX_EDITS, isqrt(effort))
        # A line that the other side does not have is in no script's way, and costs as much as all before it.
        both = {*old[old_from:old_to]} & {*new[new_from:new_to]}
        olds = [at for at in range(old_from, old_to) if old[at] in both]
        news = [at for at in range(new_from, new_to) if new[at] in both]
        matches = _shortest([old[at] for at in olds], [new[at] for at in news], most)
        edits = most if matches is None else len(olds) + len(news) - 2 * len(matches)
        effort -= edits * edits
        if matches is not None:
            yield from ((olds[a], news[b], 1) for a, b in matches)
            continue
        anchors = _anchors(old, new, (old_from, old_to, new_from, new_to))
        pending += reversed(_between(anchors, (old_from, old_to, new_from, new_to)))


def _common(old: Sequence[str], new: Sequence[str], old_at: int, new_at: int, most: int) -> int:
    length = 0
    while length < most and old[old_at + length] == new[new_at + length]:
        length += 1
    return length


def _common_end(old: Sequence[str], new: Sequence[str], old_to: int, new_to: int, most: int) -> int:
    length = 0
    while length < most and old[old_to - length - 1] == new[new_to - length - 1]:
        length += 1
    return length


def _shortest(old: Sequence[str], new: Sequence[str], most: int) -> list[tuple[int, int]] | None:
    """The pairs of equal lines of a shortest edit script (Myers 1986); None where it has more than `most` edits."""
    if abs(len(old) - len(new)) > most:
        return None
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), most) + 1):
        trail.append(reach.copy())
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while x < len(old) and x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            reach[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return _walk_back(trail, len(old), len(new))
    return None


def _walk_back(trail: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[edits], x - y
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        old_x = reach[before] if edits else 0
        old_y = old_x - before if edits else 0
        while x > old_x and y > old_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = old_x, old_y
    pairs.reverse()
    return pairs


_Span = tuple[int, int, int, int]


def _anchors(old: Sequence[str], new: Sequence[str], span: _Span) -> list[tuple[int, int]]:
    """The longest sequence of lines that are unique on both sides and in the same order (patience diff)."""
    old_from, old_to, new_from, new_to = span
    old_counts, new_counts = Counter(old[old_from:old_to]), Counter(new[new_from:new_to])
    place = {new[at]: at for at in range(new_from, new_to) if new_counts[new[at]] == 1}
    pairs = [
        (at, place[old[at]])
        for at in range(old_from, old_to)
        if old_counts[old[at]] == 1 and old[at] in place
    ]
    lasts: list[int] = []
    chosen: list[int] = []
    previous: list[int] = []
    for index, (_, new_at) in enumerate(pairs):
        pile = bisect_left(lasts, new_at)
        previous.append(chosen[pile - 1] if pile else -1)
        lasts[pile : pile + 1] = [new_at]
        chosen[pile : pile + 1] = [index]
    kept: list[tuple[int, int]] = []
    index = chosen[-1] if chosen else -1
    while index >= 0:
        kept.append(pairs[index])
        index = previous[index]
    return kept[::-1]


def _between(anchors: Sequence[tuple[int, int]], span: _Span) -> list[_Span]:
    """The parts that the anchors divide `span` into, each beginning with its anchor; none without an anchor."""
    old_from, old_to, new_from, new_to = span
    if not anchors:
        return []
    starts = [(old_from, new_from), *anchors]
    ends = [*anchors, (old_to, new_to)]
    return [(a, c, b, d) for (a, b), (c, d) in zip(starts, ends, strict=True) if a < c and b < d]
