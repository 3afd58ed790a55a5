"""Draw a diff as HTML: numbers of lines, words that differ, both versions in one column or side by side."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from hashlib import sha256
from itertools import groupby, islice, pairwise
from threading import Lock

from markupsafe import Markup, escape

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import Shown, exact, json_block
from lcp_engine.inbox import Diff, Gap, Look
from lcp_engine.web.syntax import Tint, tints_of

LINES_IN_LIST = 120
"""Lines of a diff on a page with other content; the whole is on a page of its own."""
CHARACTERS_IN_LIST = 20_000
"""Characters of those lines."""
LINES_IN_PART = 1_000
"""Lines of diffs that a page of one job has at first, and that each request for more of a file adds."""
CHARACTERS_IN_PART = 100_000
"""Characters of those lines; a longer line is a part of its own."""
LINES_KEPT = 50_000
"""Lines of all diffs that are kept as they are drawn, of those with no more characters than in a list."""
FOLDED_ABOVE = 30
LONGEST_FOUND = 200
"""Characters that are shown of a line with a text that was searched for."""
LONGEST_COMPARED = 500
"""Characters of a line in which single words are looked for."""
PAIRS_COMPARED = 200
"""Pairs of lines of one diff that are compared word by word; of later ones all between the equal ends is marked."""
WORDS_COMPARED = 2_500
"""The product of the numbers of words of two lines up to which they are compared word by word."""
LINES_COMPARED = 40_000
"""The product of the numbers of lines that a block removes and adds up to which they are compared one by one, but for
those at its ends."""
LEAST_ALIKE = 0.3
"""The share of equal text in the longer of two lines from which on it is told what of them differs."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SIGNS = {" ", "-", "+"}
_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)
_Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ExcerptLine:
    """A line of a diff, sign first; its numbers in the old and new file, and the parts of its text that differ."""

    text: str
    css_class: str
    old: int | None = None
    new: int | None = None
    marked: _Spans = ()
    tints: tuple[Tint, ...] = ()
    """Its parts that have a colour of the syntax."""
    left_out: int = 0
    """How many lines it stands for, none of which is seen with it."""

    def html(self, around: tuple[str, str] = ("", ""), *, is_twin: bool = False, of_file: str = "") -> str:
        """The line as an element; the twin of an unchanged one is for the right side and has its new number alone.

        With the anchor `of_file` it has an address, to which its numbers lead.
        """
        old = "" if self.old is None or is_twin else f' data-old="{self.old}"'
        new = "" if self.new is None else f' data-new="{self.new}"'
        about, link = f"{old}{new}", ""
        if of_file and self.place:
            link = f'<a href="#{of_file}-{self.place}"{about} tabindex="-1" aria-hidden="true"></a>'
            about = "" if is_twin else f' id="{of_file}-{self.place}"'
        twin = ' aria-hidden="true"' if is_twin else ""
        css_class = f"{self.css_class} twin" if is_twin else self.css_class
        if self.left_out:
            about = f' data-lines="{self.left_out}"'
        return f'<span class="{css_class}"{about}{twin}>{link}{around[0]}{self.body}{around[1]}</span>\n'

    @property
    def place(self) -> str:
        """Its address in its file: `L` with its number, or `B` with that before if it is removed; empty without one."""
        if self.new is not None:
            return f"L{self.new}"
        return "" if self.old is None else f"B{self.old}"

    @cached_property
    def body(self) -> Markup:
        """Its text, with what differs and what has a colour as elements."""
        parts, at = [], 0
        for start, end in self.marked:
            parts += [self._tinted(at, start), "<mark>", self._tinted(start, end), "</mark>"]
            at = end
        return Markup("".join([*parts, self._tinted(at, len(self.text))]))  # noqa: S704  # each part is escaped

    def _tinted(self, at: int, end: int) -> str:
        """A part of the text; what has a colour is an element."""
        parts = []
        for start, stop, css_class in self.tints:
            if max(start, at) < min(stop, end):
                tinted = escape(self.text[max(start, at) : min(stop, end)])
                parts += [escape(self.text[at : max(start, at)]), f'<i class="{css_class}">{tinted}</i>']
                at = min(stop, end)
        return "".join([*parts, escape(self.text[at:end])])


@dataclass(frozen=True)
class Excerpt:
    """The part of a diff that a page shows; `omitted` lines are left out, and `cut` characters of the last one."""

    path: str
    note: str | None
    added: int
    removed: int
    lines: Sequence[ExcerptLine]
    omitted: int = 0
    cut: int = 0
    is_split: bool = field(default=False, kw_only=True)
    """Whether the two versions are side by side."""
    first: int = field(default=0, kw_only=True)
    """How many lines of the diff are before these."""
    last_number: int = field(default=0, kw_only=True)
    """A number of a line, for the width of all; what the lines have themselves needs none."""
    has_places: bool = field(default=False, kw_only=True)
    """Whether each line has an address on the page."""
    behind: int = field(default=0, kw_only=True)
    """Where the next part of the diff begins."""

    @property
    def is_long(self) -> bool:
        return len(self.lines) > FOLDED_ABOVE

    @property
    def is_whole(self) -> bool:
        return not (self.omitted or self.cut)

    @property
    def css_class(self) -> str:
        """For the whole text: its columns, and how many digits its numbers have."""
        tinted = " tinted" if any(line.tints for line in self.lines) else ""
        highest = max([self.last_number, *(max(line.old or 0, line.new or 0) for line in self.lines)])
        return f"code digits-{len(str(highest))}{' split' if self.is_split else ''}{tinted}"

    @property
    def starts(self) -> list[int]:
        """Numbers of the first lines of its hunks in the new file, or else in the old one."""
        found = (_HUNK.match(line.text) for line in self.lines if line.css_class == "hunk")
        return [int(head[3]) or int(head[1]) for head in found if head is not None]

    @property
    def anchor(self) -> str:
        return anchor_of(self.path)

    @property
    def html(self) -> Markup:
        return self.drawn()

    def drawn(self, around: Sequence[tuple[Markup, Markup]] = (), gaps: Sequence[Markup] = ()) -> Markup:
        """The lines; those that were replaced are together with what replaced them, to be placed side by side.

        `around` is what stands before and behind the head of each hunk, such as its box; `gaps` is what stands above
        each hunk, and behind the last.
        """
        drawn: list[str] = []
        left, above, of_file = iter(around), iter(gaps), self.anchor if self.has_places else ""
        for is_block, lines in groupby(self.lines, _is_changed):
            if is_block:
                drawn += ['<span class="block">', *(line.html(of_file=of_file) for line in lines), "</span>"]
                continue
            for line in lines:
                boxes = ("", "")
                if line.css_class == "hunk":
                    boxes = next(left, boxes)
                    drawn.append(next(above, ""))
                drawn.append(line.html(boxes, of_file=of_file))
                if self.is_split and line.css_class == "same":
                    drawn.append(line.html(is_twin=True, of_file=of_file))
        return Markup("".join([*drawn, *above]))  # noqa: S704  # each part of a text is escaped above


def anchor_of(path: str) -> str:
    """The name of a file's place on a page: plain whatever the path is, and the same whatever else is there."""
    return f"file-{sha256(path.encode(errors='surrogatepass')).hexdigest()[:12]}"


def whole(diff: Diff, *, is_split: bool = False) -> Excerpt:
    """All lines of a diff without its two header lines."""
    lines = _marked([*_numbered(diff.lines[2:])])
    return Excerpt(diff.path, diff.note, diff.added, diff.removed, lines, is_split=is_split)


def lines_with(diff: Diff, text: str, most: int) -> list[tuple[int, ExcerptLine]]:
    """The first lines of a diff with a text, in letters of any case, each with the number of lines before it.

    The text is marked; of a long line, only what is around it is there.
    """
    body, sought = diff.lines[2:], text.casefold()
    has = (at for at, line in enumerate(body) if line[:1] in _SIGNS and sought in line[1:].casefold())
    places = dict.fromkeys(islice(has, most))
    found, exactly = _numbered(body, places), re.compile(re.escape(text), re.IGNORECASE)
    return [(at, _around(line, exactly)) for at, line in zip(places, found, strict=True)]


def _around(line: ExcerptLine, sought: re.Pattern[str]) -> ExcerptLine:
    first = sought.search(line.text, 1)
    start = max(1, first.start() - LONGEST_FOUND // 2) if first else 1
    cut = line.text[start : start + LONGEST_FOUND]
    text = f"{line.text[0]}{'…' if start > 1 else ''}{cut}{'…' if start + len(cut) < len(line.text) else ''}"
    return replace(line, text=text, marked=tuple(one.span() for one in sought.finditer(text, 1)))


def part(
    diff: Diff, first: int = 0, *, lines: int = LINES_IN_PART, characters: int = CHARACTERS_IN_PART,
    least: int = 1, is_split: bool = False, hides_space: bool = False,
) -> Excerpt:  # fmt: skip
    """The lines of a diff behind the `first` ones, whole lines, as many as there is room for.

    If it `hides_space`, lines that differ in white space alone are left out, with a line that says how many.
    """
    body = diff.lines[2:]
    behind = first
    for line in body[first : first + lines]:
        characters -= len(line)
        if characters < 0 and behind - first >= least:
            break
        behind += 1
    heads = [found for line in body if line.startswith("@@") and (found := _HUNK.match(line))]
    last = max((int(heads[-1][at]) + int(heads[-1][at + 1] or 1) for at in (1, 3)), default=0) if heads else 0
    drawn = [*_numbered(body, range(first, behind))]
    drawn = _marked(_without_space(drawn, body[first:behind]) if hides_space else drawn)
    drawn = [
        replace(line, tints=tints) if tints else line
        for line, tints in zip(drawn, tints_of(diff.path, drawn), strict=True)
    ]
    left = len(body) - behind
    note = None if first else diff.note
    return Excerpt(
        diff.path,
        note,
        diff.added,
        diff.removed,
        drawn,
        left,
        is_split=is_split,
        first=first,
        behind=behind,
        last_number=last,
        # Of several files in one diff, numbers would be those of several lines.
        has_places=body[:1] == () or body[0].startswith("@@"),
    )


def unchanged(diff: Diff, gap: Gap, lines: Sequence[str], *, is_split: bool) -> Excerpt:
    """Lines of a gap of a diff, of which `gap` has the numbers."""
    drawn = [
        ExcerptLine(shown_line(f" {line}"), "same", gap.old + at, gap.new + at)
        for at, line in enumerate(lines)
    ]
    tinted = [
        replace(line, tints=tints) for line, tints in zip(drawn, tints_of(diff.path, drawn), strict=True)
    ]
    return Excerpt(diff.path, None, 0, 0, tinted, is_split=is_split, has_places=True)


def heads_in(diff: Diff, lines: int | None = None) -> int:
    """The number of hunks that begin in the first `lines` of a diff."""
    return sum(line.startswith("@@") for line in diff.lines[2 : None if lines is None else 2 + lines])


def excerpt(
    diff: Diff, lines: int = LINES_IN_LIST, characters: int = CHARACTERS_IN_LIST, *, is_split: bool = False
) -> Excerpt:
    """Like `whole`, but at most so many lines and characters."""
    body = diff.lines[2:]
    shown: list[str] = []
    cut = 0
    for line in body[:lines]:
        if characters <= 0:
            break
        cut = max(0, len(line) - characters)
        shown.append(line[:characters])
        characters -= len(line)
    # Lists are made anew with all news, of the same diffs.
    is_short = sum(map(len, shown)) <= CHARACTERS_IN_LIST
    drawn = _marked_before(tuple(shown)) if is_short else _marked([*_numbered(shown)])
    omitted = len(body) - len(shown)
    return Excerpt(diff.path, diff.note, diff.added, diff.removed, drawn, omitted, cut, is_split=is_split)


_kept: dict[tuple[str, ...], Sequence[ExcerptLine]] = {}
_keeping = Lock()


def _marked_before(lines: tuple[str, ...]) -> Sequence[ExcerptLine]:
    """The lines as they were drawn before; what was used least of late makes room."""
    with _keeping:
        found = _kept.pop(lines, None)
    drawn = _marked([*_numbered(lines)]) if found is None else found
    with _keeping:
        _kept[lines] = drawn
        while sum(map(len, _kept)) > LINES_KEPT:
            del _kept[next(iter(_kept))]
    return drawn


def shown_line(line: str) -> Shown:
    """A line as it is shown: its sign, and its text to the last character."""
    return Shown(line[:1] + exact(line[1:]))


def _numbered(lines: Sequence[str], wanted: Collection[int] | None = None) -> Iterator[ExcerptLine]:
    """The lines, or those at the `wanted` places alone, with their numbers.

    Each hunk says how many lines it has: what is beyond is the head of a file.
    """
    places = range(len(lines)) if wanted is None else wanted
    old = new = old_left = new_left = 0
    side = "both"
    for at, line in enumerate(lines[: max(places, default=-1) + 1]):
        sign = line[:1]
        numbers: tuple[int | None, int | None] = (None, None)
        if found := _HUNK.match(line) if old_left <= 0 and new_left <= 0 else None:
            old, old_left, new, new_left = (int(1 if part is None else part) for part in found.groups())
            css_class = "hunk"
        elif sign == "\\":
            css_class = f"end {side}"
        elif sign == "-" and old_left:
            css_class, side, numbers = "del", "left", (old, None)
            old, old_left = old + 1, old_left - 1
        elif sign == "+" and new_left:
            css_class, side, numbers = "add", "right", (None, new)
            new, new_left = new + 1, new_left - 1
        elif old_left and new_left:
            css_class, side, numbers = "same", "both", (old, new)
            old, old_left, new, new_left = old + 1, old_left - 1, new + 1, new_left - 1
        else:
            css_class = "file-head"
        if at in places:
            yield ExcerptLine(shown_line(line), css_class, *numbers)


def _without_space(lines: Sequence[ExcerptLine], raw: Sequence[str]) -> list[ExcerptLine]:
    """The lines, which are `raw` as they are compared, without changes of white space alone.

    A line that replaces one is unchanged; a hunk of which nothing else is left has its head alone.
    """
    kept = list[ExcerptLine]()
    starts = [at for at, line in enumerate(lines) if at == 0 or line.css_class in ("hunk", "file-head")]
    for start, end in pairwise([*starts, len(lines)]):
        kept += _hunk_without_space(lines[start:end], raw[start:end])
    return kept


def _hunk_without_space(lines: Sequence[ExcerptLine], raw: Sequence[str]) -> list[ExcerptLine]:
    kept = list[ExcerptLine]()
    texts = iter(raw)
    for is_changed, block in groupby(lines, _is_changed):
        pairs = [(line, next(texts)) for line in block]
        kept += _block_without_space(pairs) if is_changed else [line for line, _ in pairs]
    if len(kept) == len(lines):
        return kept
    if not any(map(_is_changed, kept)):
        kept = [line for line in kept if line.css_class == "hunk"]
    left_out = len(lines) - len(kept)
    are = "1 line is" if left_out == 1 else f"{left_out:,} lines are"
    words = f"{are} left out: only white space differs"
    return [*kept, ExcerptLine(words, "space", left_out=left_out)]


def _block_without_space(block: Sequence[tuple[ExcerptLine, str]]) -> list[ExcerptLine]:
    """Lines that were removed and added, in place of those of them that differ in white space alone the new ones."""
    sides = [[one for one in block if one[0].css_class == css_class] for css_class in ("del", "add")]
    olds, news = [["".join(raw[1:].split()) for _, raw in side] for side in sides]
    if len(olds) + len(news) < len(block):
        return [line for line, _ in block]
    removed, added = [[line for line, _ in side] for side in sides]
    kept = list[ExcerptLine]()
    for is_equal, old, old_end, new, new_end in _runs(olds, news):
        if not is_equal:
            kept += [*removed[old:old_end], *added[new:new_end]]
            continue
        for before, after in zip(removed[old:old_end], added[new:new_end], strict=True):
            kept.append(replace(after, text=Shown(f" {after.text[1:]}"), css_class="same", old=before.old))
    return kept


def _runs(olds: Sequence[str], news: Sequence[str]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Runs of texts that are equal and of others, in order, each with its range on both sides."""
    head = _common(olds, news)
    tail = _common(olds[head:][::-1], news[head:][::-1])
    old, new = olds[head : len(olds) - tail], news[head : len(news) - tail]
    yield True, 0, head, 0, head
    if len(old) * len(new) > LINES_COMPARED:
        yield False, head, head + len(old), head, head + len(new)
    else:
        for tag, first, end, new_first, new_end in SequenceMatcher(
            None, old, new, autojunk=False
        ).get_opcodes():
            yield tag == "equal", head + first, head + end, head + new_first, head + new_end
    yield True, head + len(old), len(olds), head + len(new), len(news)


def _is_changed(line: ExcerptLine) -> bool:
    """True if the line was removed or added, or says something of such a line."""
    return line.css_class in ("del", "add", "end left", "end right")


def _marked(lines: Sequence[ExcerptLine]) -> list[ExcerptLine]:
    """The lines with what differs between those that were replaced and those that replaced them, in their order."""
    marked: list[ExcerptLine] = []
    left = PAIRS_COMPARED
    for is_block, block in groupby(lines, _is_changed):
        part = [*block]
        if is_block:
            pairs = [
                [at for at, line in enumerate(part) if line.css_class == css_class]
                for css_class in ("del", "add")
            ]
            for old, new in zip(*pairs, strict=False):
                spans = differing(part[old].text, part[new].text, by_word=left > 0)
                part[old], part[new] = (
                    replace(part[old], marked=spans[0]),
                    replace(part[new], marked=spans[1]),
                )
                left -= 1
        marked += part
    return marked


def differing(old: str, new: str, *, by_word: bool = True) -> tuple[_Spans, _Spans]:
    """Find what differs between two lines with signs; nothing if they are too long or too different to be told."""
    longest = max(len(old), len(new))
    if longest > LONGEST_COMPARED:
        return (), ()
    olds, news = _WORDS.findall(old[1:]), _WORDS.findall(new[1:])
    head = _common(olds, news)
    tail = _common(olds[head:][::-1], news[head:][::-1])
    middles = olds[head : len(olds) - tail], news[head : len(news) - tail]
    starts = 1 + sum(map(len, olds[:head]))
    edits = [(0, len(middles[0]), 0, len(middles[1]))]
    if by_word and len(middles[0]) * len(middles[1]) <= WORDS_COMPARED:
        matcher = SequenceMatcher(None, *middles, autojunk=False)
        edits = [edit[1:] for edit in matcher.get_opcodes() if edit[0] != "equal"]
    spans = (
        _spans(middles[0], [edit[:2] for edit in edits], starts),
        _spans(middles[1], [edit[2:] for edit in edits], starts),
    )
    differs = max(sum(end - start for start, end in side) for side in spans)
    return spans if longest - 1 - differs >= LEAST_ALIKE * (longest - 1) else ((), ())


def _common(some: Sequence[str], others: Sequence[str]) -> int:
    """The number of words that both begin with."""
    unequal = (at for at, (one, other) in enumerate(zip(some, others, strict=False)) if one != other)
    return next(unequal, min(len(some), len(others)))


def _spans(words: Sequence[str], edits: Sequence[tuple[int, int]], start: int) -> _Spans:
    """Ranges of words as ranges of characters."""
    places = [start]
    for word in words:
        places.append(places[-1] + len(word))
    return tuple((places[begin], places[end]) for begin, end in edits if begin < end)


def is_shown(look: Look, parts: Sequence[Excerpt], params: Mapping[str, JsonValue], *, longest: int) -> bool:
    """True if a page shows all that would run: the whole diff or, where there is none, params up to `longest`."""
    if look.diff is not None:
        return look.is_whole and all(part.is_whole for part in parts)
    return all(
        len(value if isinstance(value, str) else json_block(value)) <= longest for value in params.values()
    )
