"""Match gitignore-style pattern lists. Pure.

A path is selected when any positive pattern matches it and no negative one (`!`) does; the order never matters. Without
a positive pattern everything is. A pattern that matches a directory matches all that lies beneath it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from lcp_engine.errors import ErrorCode, LcpError

MAX_PATTERNS = 256
MAX_LENGTH = 1024
MAX_TOTAL = 16 * 1024
"""Characters of a whole list."""
MAX_WILD = 1024
"""Wildcards of a whole list: each may cost a step with every character of a path."""

Matcher: TypeAlias = Callable[[str], object]


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
    cover: Matcher | None = None

    def has_file(self, name: str, path: str) -> bool:
        """Whether a pattern matches the file `path`, whose last part is `name`, leaving names of parents aside."""
        return (
            name in self.names
            or name.endswith(self.suffixes)
            or (self.match is not None and bool(self.match(path)))
        )

    def names_directory(self, name: str) -> bool:
        """Whether the name of a directory alone puts everything beneath it on this side."""
        return name in self.directories or name in self.names or name.endswith(self.suffixes)

    def has_directory(self, name: str, path: str) -> bool:
        """Whether everything beneath the directory `path` is on this side, as far as one pattern tells."""
        return (
            self.everything
            or self.names_directory(name)
            or (self.cover is not None and bool(self.cover(f"{path}/")))
        )

    def matches(self, path: str) -> bool:
        """Whether a pattern matches the file `path`."""
        *parents, name = path.split("/")
        return self.everything or self.has_file(name, path) or any(map(self.names_directory, parents))


@dataclass(frozen=True)
class Patterns:
    """A compiled list: what it includes, what it excludes, each with or without regard to case."""

    include: Side
    exclude: Side
    fold_include: bool = False
    fold_exclude: bool = False

    def matches(self, path: str) -> bool:
        """Whether the list selects the file `path` (relative, with "/")."""
        return self.include.matches(_folded(path, self.fold_include)) and not self.exclude.matches(
            _folded(path, self.fold_exclude)
        )


def compile_patterns(
    patterns: Sequence[str], *, fold_include: bool = False, fold_exclude: bool = False
) -> Patterns:
    """The list as something that matches; a folded sign disregards case. Raises `LcpError` INVALID_PATTERN."""
    if fold_include or fold_exclude:
        return _compile_rule(tuple(patterns), fold_include, fold_exclude)
    return _compile_plain(tuple(patterns))


@lru_cache(maxsize=256)
def _compile_rule(patterns: tuple[str, ...], fold_include: bool, fold_exclude: bool) -> Patterns:
    return _compile(patterns, fold_include, fold_exclude)


# These come from planners: each may be made to take all the memory it is given, so few are kept.
@lru_cache(maxsize=16)
def _compile_plain(patterns: tuple[str, ...]) -> Patterns:
    return _compile(patterns, False, False)


def _compile(patterns: tuple[str, ...], fold_include: bool, fold_exclude: bool) -> Patterns:
    _check_size(patterns)
    cleaned = [_clean(pattern) for pattern in patterns]
    positive = [_folded(pattern, fold_include) for pattern in cleaned if not pattern.startswith("!")]
    negative = [_folded(pattern[1:], fold_exclude) for pattern in cleaned if pattern.startswith("!")]
    return Patterns(_side(positive or ["**"]), _side(negative), fold_include, fold_exclude)


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


def _folded(text: str, fold: bool) -> str:
    return text.casefold() if fold else text


_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def _clean(pattern: str) -> str:
    """`pattern` without a leading "./", refused where it is empty, too long or names what lies outside."""
    shown = pattern if len(pattern) <= 60 else f"{pattern[:60]}…"
    sign, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    if len(pattern) > MAX_LENGTH:
        raise _invalid(shown, f"has {len(pattern)} characters, at most {MAX_LENGTH} may be")
    while body.startswith("./"):
        body = body[2:]
    if not body.endswith("\\ "):
        body = body.rstrip()
    if not body or (not sign and body.startswith("#")):
        raise _invalid(shown, "matches nothing: it is blank or a comment")
    if ".." in re.split(r"[/\\]", body) or _WINDOWS.match(body):
        raise _invalid(shown, "leaves the root: patterns are relative to it, with '/' and without '..'")
    if any("\ud800" <= c <= "\udfff" or c < " " for c in body):
        raise _invalid(shown, "holds a control character or half a surrogate pair")
    return sign + body


def _side(patterns: Iterable[str]) -> Side:
    suffixes: dict[str, None] = {}
    names, directories = set(), set()
    general = []
    for pattern in dict.fromkeys(patterns):
        match _by_name(pattern):
            case "suffix", text:
                suffixes[text] = None
            case "name", text:
                names.add(text)
            case "directory", text:
                directories.add(text)
            case _:
                general.append((pattern, _translate(pattern)))
    if any(regex == _EVERYTHING for _, regex in general):
        return Side(everything=True)
    covering = [(pattern, regex) for pattern, regex in general if not regex.endswith(_NOT_BENEATH)]
    match = _matcher(general)
    return Side(
        suffixes=tuple(suffixes),
        names=frozenset(names),
        directories=frozenset(directories),
        match=match,
        size=sum(len(pattern) for pattern, _ in general),
        tails=tuple({_tail(pattern) for pattern, regex in general if not regex.endswith("/")}),
        cover=match if covering == general else _matcher(covering),
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


def _tail(pattern: str) -> str:
    """What the last part of a path that the pattern matches ends with."""
    return _SPECIAL.split(pattern)[-1]


_EVERYTHING = "."
_NOT_BENEATH = "/?$"
"""How the regular expression of "a/*" ends, which matches what is in a, and not what is in a directory in a."""


def _translate(pattern: str) -> str:
    from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern  # slow to import, often not needed

    # A sign or "#" at the start has had its meaning already.
    text = f"\\{pattern}" if pattern[0] in "!#" else pattern
    try:
        regex: str | None = GitIgnoreBasicPattern.pattern_to_regex(text)[0]
    except ValueError as error:
        raise _invalid(pattern, "is not a gitignore-style pattern") from error
    if regex is None:
        raise _invalid(pattern, "matches nothing")
    return regex


def _matcher(patterns: Sequence[tuple[str, str]]) -> Matcher | None:
    """One automaton for all; its time is linear in the length of a path, whatever the patterns (no backtracking)."""
    if not patterns:
        return None
    match = _automaton("|".join(f"(?:{regex})" for _, regex in patterns))
    if match is None:
        for pattern, regex in patterns:
            if _automaton(regex) is None:
                raise _invalid(pattern, "is not a usable pattern: a range is reversed, or it is too large")
        raise _invalid(patterns[0][0], "and the patterns beside it are too large together")
    return match


# No path holds a NUL: an automaton that does not accept it had no room for its states, and would accept nothing.
_PROBE = "\0"


_MEMORY = 8 << 20


def _automaton(regex: str) -> Matcher | None:
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    options = re2.Options()
    options.never_capture = True
    options.dot_nl = True
    options.log_errors = False
    options.max_mem = _MEMORY
    automaton = re2.Set.SearchSet(options)
    try:
        automaton.Add(f"{regex}|\\x00")
        automaton.Compile()
    except re2.error:
        return None
    match: Matcher = automaton.Match
    return match if match(_PROBE) else None


def _invalid(pattern: str, fact: str) -> LcpError:
    return LcpError(ErrorCode.INVALID_PATTERN, f"pattern {pattern!r} {fact}")
