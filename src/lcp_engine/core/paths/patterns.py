"""Match gitignore-style pattern lists. Pure.

A path is selected when any positive pattern matches it and no negative one (`!`) does; the order never matters. Without
a positive pattern everything is. A pattern that matches a directory matches all that lies beneath it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias, assert_never
from unicodedata import normalize

from lcp_engine.core.paths.gitignore import EVERYTHING, NeverMatches, translate, without_blanks
from lcp_engine.errors import ErrorCode, LcpError

MAX_PATTERNS = 256
MAX_LENGTH = 1024
MAX_TOTAL = 16 * 1024
"""Characters of a whole list."""
MAX_WILD = 1024
"""Wildcards of a whole list: each may cost a step with every character of a path."""

Matcher: TypeAlias = Callable[[str], Sequence[int]]
"""The numbers of the expressions that match a path; empty if none does."""


@dataclass(frozen=True)
class Side:
    """All patterns of one sign. Those that a name alone decides are separate: they need no regular expression.

    `match` stands for patterns of `size` characters. It matches only files whose names end as one of `tails`, but for
    what lies beneath a directory on this side.
    """

    everything: bool = False
    suffixes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()
    match: Matcher | None = None
    size: int = 0
    tails: tuple[str, ...] = ()

    def has_file(self, name: str, path: str) -> bool:
        """True if a pattern matches the file `path`, whose last part is `name`, leaving names of parents aside."""
        return (
            name in self.names
            or name.endswith(self.suffixes)
            or (self.match is not None and bool(self.match(path)))
        )

    def names_directory(self, name: str) -> bool:
        """True if the name of a directory alone puts everything beneath it on this side."""
        return name in self.directories or name in self.names or name.endswith(self.suffixes)

    def has_directory(self, name: str, path: str) -> bool:
        """True if everything beneath the directory `path` is on this side, as far as one pattern tells."""
        return (
            self.everything
            or self.names_directory(name)
            or (self.match is not None and bool(self.match(f"{path}/")))
        )

    def matches(self, path: str) -> bool:
        """True if a pattern matches the file `path`."""
        *parents, name = path.split("/")
        return self.everything or self.has_file(name, path) or any(map(self.names_directory, parents))


@dataclass(frozen=True)
class Patterns:
    """A compiled list: what it includes and what it excludes."""

    include: Side
    exclude: Side

    def matches(self, path: str) -> bool:
        """True if the list selects the file `path` (relative, with "/"), or the directory, with "/" at its end."""
        return self.include.matches(path) and not self.exclude.matches(path)


@dataclass(frozen=True)
class RulePatterns:
    """The compiled list of a rule; what is in doubt (case, characters of several bytes) is decided for safety."""

    include: tuple[_Reading, ...]
    exclude: tuple[_Reading, ...]

    def matches(self, path: str) -> bool:
        """Like `Patterns.matches`."""
        return any(one.matches(path) for one in self.include) and not any(
            one.matches(path) for one in self.exclude
        )


# These come from planners: each may be made to take all the memory it is given, so few are kept.
@lru_cache(maxsize=16)
def _compile(patterns: tuple[str, ...]) -> Patterns:
    positive, negative = _signed(patterns)
    return Patterns(_side(positive), _side(negative))


def compile_patterns(patterns: Sequence[str]) -> Patterns:
    """The list as something that matches. Raises `LcpError` INVALID_PATTERN."""
    return _compile(tuple(patterns))


def in_one_form(text: str) -> str:
    """The text in Unicode's form NFC: a letter with its accent may be one character, or two that look the same."""
    return text if text.isascii() else normalize("NFC", text)


def folded(path: str) -> str:
    """The path as file systems take it that disregard case and Unicode forms."""
    return path.casefold() if path.isascii() else normalize("NFC", normalize("NFD", path).casefold())


def literal(path: str) -> str:
    """The pattern that names exactly this path, relative to the root (and what is beneath it, if it is a directory)."""
    escaped = _TO_ESCAPE.sub(r"\\\g<0>", path.strip("/"))
    return f"/{escaped[:-1]}\\ " if escaped.endswith(" ") else f"/{escaped}"


_TO_ESCAPE = re.compile(r"[\\*?\[]")


@lru_cache(maxsize=256)
def compile_rule(patterns: tuple[str, ...], *, grants: bool) -> RulePatterns:
    """The list of a rule that grants or refuses. Raises `LcpError` INVALID_PATTERN.

    A file system may disregard case and Unicode forms, and git takes each byte for a character: a rule grants nothing,
    and refuses everything, that one of these readings refuses.
    """
    positive, negative = _signed(patterns)
    return RulePatterns(_readings(positive, wide=not grants), _readings(negative, wide=grants))


class _View(StrEnum):
    """Ways to read a path and a pattern."""

    EXACT = "exact"
    FOLDED = "folded"
    ONE_FORM = "one form"
    BYTES = "bytes"

    def of(self, text: str) -> str:
        match self:
            case _View.EXACT:
                return text
            case _View.FOLDED:
                return text.casefold()
            case _View.ONE_FORM:
                return folded(text)
            case _View.BYTES:
                return text.encode(errors="surrogatepass").decode("latin-1")
            case _:
                assert_never(self)


@dataclass(frozen=True)
class _Reading:
    view: _View
    side: Side

    def matches(self, path: str) -> bool:
        if self.view is _View.ONE_FORM and path.isascii():
            return False  # it reads as folded
        return self.side.matches(self.view.of(path))


def _readings(patterns: Sequence[str], *, wide: bool) -> tuple[_Reading, ...]:
    if not wide:
        return (_Reading(_View.EXACT, _side(patterns)),)
    readings = (
        _Reading(_View.FOLDED, _side(patterns, fold=True)),
        _Reading(_View.ONE_FORM, _side(map(in_one_form, patterns), fold=True)),
    )
    if not any("?" in pattern or "[" in pattern for pattern in patterns):
        return readings
    # "[^a]" matches less in a folded path, and "?" and "[^a]" one byte of several.
    as_bytes = [_View.BYTES.of(pattern) for pattern in patterns]
    return *readings, _Reading(_View.EXACT, _side(patterns)), _Reading(_View.BYTES, _side(as_bytes))


def _signed(patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The positive and the negative patterns, without their sign."""
    _check_size(patterns)
    cleaned = [_clean(pattern) for pattern in patterns]
    positive = [pattern for pattern in cleaned if not pattern.startswith("!")]
    return positive or ["**"], [pattern[1:] for pattern in cleaned if pattern.startswith("!")]


def _check_size(patterns: Sequence[str]) -> None:
    sizes = (
        (len(patterns), MAX_PATTERNS, "patterns"),
        (sum(map(len, patterns)), MAX_TOTAL, "characters in all patterns together"),
        (sum(map(_wild, patterns)), MAX_WILD, "wildcards in all patterns together"),
    )
    for found, most, what in sizes:
        if found > most:
            raise LcpError(ErrorCode.INVALID_PATTERN, f"{found:,} {what} are given, at most {most:,} may be")


def _wild(pattern: str) -> int:
    return sum(map(pattern.count, ("*", "?", "["))) - pattern.count("**")


_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\[\w.$-]+\\[\w.$-]")


def _clean(pattern: str) -> str:
    """`pattern` without a leading "./", refused where it is empty, too long or names what lies outside."""
    shown = pattern if len(pattern) <= 60 else f"{pattern[:60]}…"
    sign, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    if len(pattern) > MAX_LENGTH:
        raise _invalid(shown, f"has {len(pattern)} characters, at most {MAX_LENGTH} may be")
    while body.startswith("./"):
        body = body[2:]
    body = without_blanks(body)
    if not body or (not sign and body.startswith("#")):
        raise _invalid(shown, "matches nothing: it is blank or a comment")
    if ".." in re.split(r"[/\\]", body) or _WINDOWS.match(body):
        raise _invalid(shown, "leaves the root: patterns are relative to it, with '/' and without '..'")
    if any("\ud800" <= c <= "\udfff" or c < " " for c in body):
        raise _invalid(shown, "holds a control character or half a surrogate pair")
    return sign + body


def _side(patterns: Iterable[str], *, fold: bool = False) -> Side:
    suffixes: dict[str, None] = {}
    names, directories = set(), set()
    general = []
    for pattern in dict.fromkeys(patterns):
        match _by_name(pattern.casefold() if fold else pattern):
            case "suffix", text:
                suffixes[text] = None
            case "name", text:
                names.add(text)
            case "directory", text:
                directories.add(text)
            case _:
                general.append((pattern, _translate(pattern, fold=fold)))
    if any(regex == EVERYTHING for _, regex in general):
        return Side(everything=True)
    match = _matcher(general)
    return Side(
        suffixes=tuple(suffixes),
        names=frozenset(names),
        directories=frozenset(directories),
        match=match,
        size=sum(len(pattern) for pattern, _ in general),
        tails=tuple(
            {_tail(pattern, fold=fold) for pattern, _ in general if not pattern.endswith(("/", "/**"))}
        ),
    )


def _by_name(pattern: str) -> tuple[str, str] | None:
    """The pattern as a rule about one name at any depth, if it is one: suffix, name, or name of a directory."""
    rest = pattern
    while rest.startswith("**/"):
        rest = rest[3:]
    kind = "name"
    if rest.endswith("/**") and rest != pattern:
        kind, rest = "directory", rest[:-3]
    elif rest.endswith("/"):
        kind, rest = "directory", rest[:-1]
    elif rest.startswith("*"):
        kind, rest = "suffix", rest[1:]
    return (kind, rest) if rest and not _SPECIAL.search(rest) else None


_SPECIAL = re.compile(r"[*?\[\]\\/]")


def _tail(pattern: str, *, fold: bool) -> str:
    """End of the last part of each path that the pattern matches."""
    tail = _SPECIAL.split(pattern)[-1]
    return tail.casefold() if fold else tail


def _translate(pattern: str, *, fold: bool) -> str:
    try:
        return translate(pattern, fold=fold)
    except NeverMatches as reason:
        raise _invalid(pattern, f"never matches, neither here nor in git: {reason}") from reason


def _matcher(patterns: Sequence[tuple[str, str]]) -> Matcher | None:
    """One automaton for all; its time is linear in the length of a path, whatever the patterns (no backtracking)."""
    if not patterns:
        return None
    match = automaton_of(["|".join(f"(?:{regex})" for _, regex in patterns)])
    if match is None:
        for pattern, regex in patterns:
            if automaton_of([regex]) is None:
                raise _invalid(pattern, "is not a usable pattern: a range is reversed, or it is too large")
        raise _invalid(patterns[0][0], "and the patterns beside it are too large together")
    return match


_MEMORY = 8 << 20
"""Bytes of the states of an automaton."""


def automaton_of(expressions: Sequence[str]) -> Matcher | None:
    """One automaton for several regular expressions; None if one is not valid, or all are too large together."""
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    options = re2.Options()
    options.never_capture = True
    options.dot_nl = True
    options.log_errors = False
    options.max_mem = _MEMORY
    automaton = re2.Set.SearchSet(options)
    try:
        for expression in expressions:
            # No path has a NUL: an automaton that does not find it has no room for its states, and would find nothing.
            automaton.Add(f"{expression}|\\x00")
        automaton.Compile()
    except re2.error:
        return None
    find: Matcher = automaton.Match
    return find if len(find("\0")) == len(expressions) else None


def _invalid(pattern: str, fact: str) -> LcpError:
    return LcpError(ErrorCode.INVALID_PATTERN, f"pattern {pattern!r} {fact}")
