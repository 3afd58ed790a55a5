"""Decide which files git ignores: of the patterns that match, the last one of the innermost file decides. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from lcp_engine.core.paths.gitignore import NeverMatches, translate_exactly, without_blanks
from lcp_engine.core.paths.patterns import Matcher, automaton_of

MOST_LINES = 10_000
"""Lines of one file that count."""
_AT_ONCE = 200
"""Patterns of one automaton."""


@dataclass(frozen=True)
class Rules:
    """The rules of one file, which are about what is beneath `prefix`: "", or "src/"."""

    prefix: str
    lines: tuple[str, ...]

    def says(self, path: str) -> bool | None:
        """True or False as the last pattern that matches the path says; None if none does."""
        inner = path.removeprefix(_bytewise(self.prefix))
        return next((found for part in _parts(self.lines) if (found := part.says(inner)) is not None), None)


@dataclass(frozen=True)
class Scope:
    """A directory, and the rules about what is in it, those of the innermost file first.

    `always` are names of directories that are ignored whatever the rules say. A path ends in "/" for a directory.
    """

    prefix: str = ""
    rules: tuple[Rules, ...] = ()
    is_ignored: bool = False
    always: frozenset[str] = frozenset()

    def ignores(self, name: str, *, is_directory: bool) -> bool:
        """True if git ignores this entry of the directory. Nothing in an ignored directory is exempt."""
        if self.is_ignored or (is_directory and name in self.always):
            return True
        path = f"{self.prefix}{name}/" if is_directory else f"{self.prefix}{name}"
        path = _bytewise(path)
        return bool(next((said for one in self.rules if (said := one.says(path)) is not None), False))

    def enter(self, name: str) -> Scope:
        """The scope of a directory in this one, without rules of its own."""
        return replace(self, prefix=f"{self.prefix}{name}/", is_ignored=self.ignores(name, is_directory=True))

    def with_rules(self, lines: Sequence[str]) -> Scope:
        """This scope with the rules of a file in the directory."""
        return (
            replace(self, rules=(Rules(self.prefix, tuple(lines[:MOST_LINES])), *self.rules))
            if lines
            else self
        )


@dataclass(frozen=True)
class _Part:
    """Some lines of a file, with the sign of each."""

    find: Matcher
    signs: tuple[bool, ...]

    def says(self, path: str) -> bool | None:
        found = self.find(path)
        return self.signs[max(found)] if found else None


@lru_cache(maxsize=4096)
def _parts(lines: tuple[str, ...]) -> tuple[_Part, ...]:
    """The lines, the last ones first."""
    patterns = [*_patterns(lines)]
    starts = range(0, len(patterns), _AT_ONCE)
    return tuple(part for start in reversed(starts) for part in _compiled(patterns[start : start + _AT_ONCE]))


def _patterns(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """An expression for each line that is a pattern, and False for those that begin with "!"."""
    for line in lines:
        text = without_blanks(line)
        if not text or text.startswith("#"):
            continue
        includes = not text.startswith("!")
        try:
            yield translate_exactly(_bytewise(text if includes else text[1:])), includes
        except (NeverMatches, ValueError):
            continue


def _bytewise(text: str) -> str:
    """A character for each byte, which is what git takes for a character."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode("latin-1")


def _compiled(patterns: Sequence[tuple[str, bool]]) -> tuple[_Part, ...]:
    """One automaton, or several if they need more room; a pattern that cannot be compiled matches nothing."""
    find = automaton_of([expression for expression, _ in patterns])
    if find is not None:
        return (_Part(find, tuple(sign for _, sign in patterns)),)
    if len(patterns) == 1:
        return ()
    half = len(patterns) // 2
    return (*_compiled(patterns[half:]), *_compiled(patterns[:half]))
