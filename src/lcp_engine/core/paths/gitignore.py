"""Translate a gitignore pattern to RE2, as git reads it. Pure.

pathspec translates the segments of a pattern; this module reads what pathspec reads otherwise than git does: bracket
expressions, escapes, runs of stars, and spaces at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


class NeverMatches(ValueError):
    """Git accepts the pattern, and it matches nothing. The message says why."""


EVERYTHING = "."
"""The expression of a pattern that matches every path."""


def without_blanks(pattern: str) -> str:
    """`pattern` without the spaces at its end, except one that a backslash escapes."""
    kept = pattern.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return f"{kept} " if backslashes % 2 and kept != pattern else kept


def translate(pattern: str, *, fold: bool = False) -> str:
    """An expression found in every path that `pattern` (without its sign "!") matches, and in all beneath it.

    A directory's path ends in "/". With `fold` paths must be casefolded. Raises `NeverMatches`.
    """
    found = [_GROUP.sub("(?:", _expression(one, fold=fold)) for one in _readings(pattern)]
    return found[0] if len(found) == 1 else "|".join(f"(?:{one})" for one in found)


def translate_exactly(pattern: str) -> str:
    """Like `translate`, but the expression is not found in what lies beneath a directory that the pattern matches."""
    return "|".join(f"(?:{_exact(_expression(one, fold=False))})" for one in _readings(pattern))


def _exact(expression: str) -> str:
    if expression.endswith(_OR_BENEATH):
        return f"{expression.removesuffix(_OR_BENEATH)}/?$"
    if expression.endswith(_BENEATH):
        return f"{expression.removesuffix(_BENEATH)}/$"
    return (
        f"{expression}." if expression.endswith("/") else expression
    )  # "a/**" is about all in it, not itself


_BENEATH = "(?P<ps_d>/)"
_OR_BENEATH = f"(?:{_BENEATH}|$)"


# Git compares the text before the first special character by itself. What follows is then the start of a pattern, where
# "**/" crosses directories: "foo**/bar" matches "foobar", "foo/bar" and "foox/y/bar".
_STARS_AFTER_TEXT = re.compile(r"(?P<text>[^*?\[\\]*[^*?\[\\/])\*{2,}(?:/\*{2,})*/(?P<rest>.*)", re.DOTALL)


def _readings(pattern: str) -> Iterator[str]:
    inner = pattern.removesuffix("/")
    end = pattern[len(inner) :]
    if (found := _STARS_AFTER_TEXT.fullmatch(inner)) is None:
        yield pattern
        return
    text, rest = found["text"], found["rest"]
    yield f"{text}*/**/{rest}{end}"
    yield f"/{text.removeprefix('/')}{rest}{end}"


def _expression(pattern: str, *, fold: bool) -> str:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # slow to import, often not needed

    plain, replaced = _plain(pattern, fold=fold)
    if "/" in pattern[:-1] and "/" not in plain[:-1]:
        plain = f"/{plain}"  # it was in a bracket expression: the pattern is anchored nevertheless
    if plain.endswith("/**/"):
        plain += "*/"  # only directories beneath match, and pathspec would match files, too
    found = GitIgnoreSpecPattern.pattern_to_regex(plain)[0]
    if found is None:
        raise NeverMatches("it matches nothing")
    return "".join(replaced[ord(c) - _FIRST] if c >= _STAND_IN else c for c in found)


_GROUP = re.compile(r"\(\?P<\w+>")
_FIRST = 0xE000
_STAND_IN = chr(_FIRST)
"""Private characters stand for what pathspec must not read: each is one character of a path."""
_SIMPLE = re.compile(r"[A-Za-z0-9._-]\Z")


def _plain(pattern: str, *, fold: bool) -> tuple[str, list[str]]:
    """The pattern with a private character for each bracket expression and unusual character, and their expressions."""
    out: list[str] = []
    replaced: list[str] = []

    def stand_in(expression: str) -> None:
        out.append(chr(_FIRST + len(replaced)))
        replaced.append(expression)

    at = 0
    while at < len(pattern):
        match pattern[at]:
            case "*":
                end = _end_of_stars(pattern, at)
                out.append(_stars(pattern, at, end))
                at = end
                continue
            case "[":
                expression, at = _bracket(pattern, at + 1, fold=fold)
                stand_in(expression)
                continue
            case "\\":
                at += 1
                _check_escape(pattern, at)
            case "?":
                out.append("?")
                at += 1
                continue
        char = pattern[at].casefold() if fold else pattern[at]
        if char == "/" or _SIMPLE.match(char):
            out.append(char)
        else:
            stand_in(_literal(char))
        at += 1
    return "".join(out), replaced


def _check_escape(pattern: str, at: int) -> None:
    """Raises `NeverMatches` for a backslash before `at` that escapes nothing, or the slash at the start."""
    if pattern[at:] in ("", "/"):
        raise NeverMatches("its last character is a backslash")
    if at == 1 and pattern[at] == "/":
        raise NeverMatches("it begins with an escaped slash")


def _end_of_stars(pattern: str, at: int) -> int:
    while at < len(pattern) and pattern[at] == "*":
        at += 1
    return at


def _stars(pattern: str, at: int, end: int) -> str:
    """Meaning of the stars from `at` to `end`: only as a whole segment they cross directories."""
    if end - at == 1 or (at > 0 and pattern[at - 1] != "/"):
        return "*"
    if pattern.startswith("\\/", end):
        return "*/**"  # with its slash escaped, git has it match one directory at least
    return "**" if end == len(pattern) or pattern[end] == "/" else "*"


def _literal(text: str) -> str:
    return "".join(rf"\x{{{ord(c):x}}}" for c in text)


_CLASSES: dict[str, tuple[tuple[int, int], ...]] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": ((0x30, 0x39),),
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
"""Git's classes, which are those of ASCII."""
_CLASS = re.compile(r"\[:(?P<name>[^\]]*):\]", re.DOTALL)
_SLASH = ord("/")


def _bracket(pattern: str, at: int, *, fold: bool) -> tuple[str, int]:
    """The expression of the bracket expression whose content begins at `at`, and where it ends."""
    negated = pattern.startswith(("!", "^"), at)
    at += negated
    ranges: list[tuple[int, int]] = []
    last: int | None = None
    is_first = True
    while is_first or not pattern.startswith("]", at):
        is_first = False
        if (named := _CLASS.match(pattern, at)) is not None:
            if named["name"] not in _CLASSES:
                raise NeverMatches(f"[:{named['name']}:] is not a class of characters")
            ranges += _CLASSES[named["name"]]
            last, at = None, named.end()
        elif last is not None and pattern.startswith("-", at) and not pattern.startswith("]", at + 1):
            end, at = _member(pattern, at + 1)
            ranges.append((last, end))
            last = None
        else:
            last, at = _member(pattern, at)
            ranges.append((last, last))
    return _class(ranges, negated=negated, fold=fold), at + 1


def _member(pattern: str, at: int) -> tuple[int, int]:
    """The character of a bracket expression at `at`, and where the next one is."""
    at += pattern.startswith("\\", at)
    if at >= len(pattern):
        raise NeverMatches(r"it has a [ without its ]; \[ is the character")
    return ord(pattern[at]), at + 1


def _class(ranges: list[tuple[int, int]], *, negated: bool, fold: bool) -> str:
    """A class of characters, of which "/" is none."""
    if negated:
        ranges = [*ranges, (_SLASH, _SLASH)]
    else:
        ranges = [part for first, last in ranges for part in _around_slash(first, last)]
    members = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges if first <= last)
    if not members:
        raise NeverMatches("no character is in its [ ]")
    return f"(?{'i' if fold else ''}:[{'^' if negated else ''}{members}])"


def _around_slash(first: int, last: int) -> list[tuple[int, int]]:
    if first <= _SLASH <= last:
        return [(first, _SLASH - 1), (_SLASH + 1, last)]
    return [(first, last)]
