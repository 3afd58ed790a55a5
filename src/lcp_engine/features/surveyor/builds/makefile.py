"""Read a makefile or justfile: the targets that people call, and the programs that it links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_MOST_LINES = 2000
_MOST_EXPANDED = 2000
_LINKS = re.compile(
    r"(?:\$[({]\w*(?:CC|CXX|LD|LINK)[)}]|\b(?:cc|gcc|g\+\+|clang|clang\+\+|c\+\+|go build|rustc|ghc)\b)"
    r"[^\n]*\s-o\s*(\S+)"
)
# A line of shell that does not say by itself what the target does.
_CONTROL = re.compile(
    r"[@+\-\s]*(?:\$\(\w+\)\s*)?(?:(?:if|for|while|case|set|cd|echo|printf|test)\b|\$[<^?]|\$\((?:info|warning|error|eval|call)\b|\[|:|#).*|.*\\$"
)
_NO_PROGRAM = re.compile(r"\s-c\s|-shared|-dynamiclib|\s-E\s|\s-S\s")


def targets(text: str) -> list[tuple[str, str]]:
    """Targets with the comment beside them, else their first line; those of patterns and files are left out."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines()[:_MOST_LINES]:
        if match := re.match(
            r"([a-zA-Z][\w-]*)(?: [\w\"'=*+ -]*)?:(?!=)[^#=]{0,200}(?:##?\s*(.*))?$", line[:400]
        ):
            last = match[1]
            found.setdefault(last, (match[2] or "").strip())
        elif line.strip() and not line[0].isspace():
            last = ""
        elif last and not found[last]:
            found[last] = " " if _CONTROL.match(line) else line.strip().lstrip("@-+").strip()
    return [(name, runs.strip()) for name, runs in found.items()]


def programs(text: str) -> list[str]:
    """The names of the targets whose recipe links a program of that name."""
    lines = text.replace("\\\n", " ").splitlines()[:_MOST_LINES]
    values: dict[str, str] = {}
    for line in lines:
        if found := re.match(r"\s*(?:export\s+)?(\w+)\s*[:?]?=\s*([^#]*)", line):
            values.setdefault(found[1], found[2].strip())
    linked = (
        _expand(target, values)
        for target, recipe in _rules(lines)
        if (found := _LINKS.search(recipe))
        and found[1] in ("$@", target)
        and not _NO_PROGRAM.search(f" {recipe} ")
    )
    return [name for name in dict.fromkeys(linked) if re.fullmatch(r"[a-zA-Z][\w+-]*", name)]


def _rules(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Each target with the first line of its recipe that names `-o`."""
    target = ""
    for line in lines:
        if line.startswith("\t"):
            if target and " -o" in line:
                yield target, line
                target = ""
        elif found := re.match(r"([^\s:#=%]+)\s*:(?!=)", line):
            target = found[1]
        elif line.strip() and not line.startswith(("#", "ifdef", "ifeq", "ifn", "else", "endif")):
            target = ""


def _expand(text: str, values: Mapping[str, str]) -> str:
    """With the values of variables for their names, and nothing for unknown ones; a few levels deep."""
    for _ in range(5):
        text = re.sub(r"\$[({](\w+)[)}]", lambda found: values.get(found[1], ""), text)[:_MOST_EXPANDED]
    return text.strip()
