"""Read the comment that a source begins with: what its authors say that it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from lcp_engine.features.surveyor.readme import sentences, whole_sentences

_MOST_SCANNED = 8000
_LONGEST = 240
_PREAMBLE = re.compile(
    r"""\s*$|\#!|\#.*coding[:=]|<\?php|//go:build|//[ ]?\+build|package[ ]|['"]use[ ]|\#pragma[ ]once|\#\s*vim:
    |\{-\#""",
    re.VERBOSE,
)
_BLOCKS = (r"[rR]?(\"\"\"|''')(.*?)\1", r"(/)\*+!?(.*?)\*/", r"(<)!--(.*?)-->", r"(\{)-(?!#)\s*\|?(.*?)-\}")
_LINE = re.compile(r"\s*(?:#+(?=\s|$)|//[/!]?|--+(?!\[)|;+|%+|\"(?= ))\s?[|^]?(.*)")
# A comment about who may use the file, or made by a program, says nothing of what it is for.
_DIRECTIVE = re.compile(r"#\s*(?:define|undef|include|if|ifn?def|el|endif|error|line|pragma)\b")
# What may follow on a comment that is about the whole file.
_AFTER_COMMENT = re.compile(rf"(?x:{_PREAMBLE.pattern})|{_DIRECTIVE.pattern}|[rR]?[\"']{{3}}|/\*|<!--|\{{-")
_NOTICE = re.compile(
    r"copyright|\(c\)\s*\d|©|spdx|licen[cs]e|warrant|redistribut|permission (?:is|to use)|all rights|public domain"
    r"|applicable law|may obtain"
    r"|this file is part|free software|provided [\"'`]*as.is|non-commercial|generated (?:by|auto|from)"
    r"|(?:auto|automatically )generated|do not (?:edit|modify)|\$id|written by|\bauthors?\b|maintainer"
    r"|contributed (?:by|to)|\S@\S"
    r"|conditions of distribution|software is (?:being )?provided|\bas[- ]is\b|in no event|under the terms"
    r"|distributed under|\b(?:eslint|jshint|vim:|noqa|pylint|pyright|flake8|mypy:|isort:|clang-format|@ts-|jscs:"
    r"|istanbul|rubocop|prettier|c8 ignore|autodoc|shellcheck)|<reference",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"\s*[\\@]?(?:module|package|file|filename|name|copyright|licen[cs]e|maintainer|stability|portability|authors?|version"
    r"|date|created|modified|last (?:change|updated|modified)|revision|url|see|since|language|project)\s*:.*",
    re.IGNORECASE,
)


def first_words(text: str) -> str:
    """The first whole sentence of the comment that a source begins with, after notices; empty without a plain one."""
    for comment in _comments(text[:_MOST_SCANNED]):
        if (said := _sentence(comment)) is not None:
            return said
    return ""


def _comments(text: str) -> Iterator[str]:
    """The comments before the first line of code, without their signs; none of lines that belongs to that code."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if _PREAMBLE.match(lines[at]):
            at += 1
            continue
        rest = "\n".join(lines[at:])
        if found := next(filter(None, (re.match(pattern, rest, re.DOTALL) for pattern in _BLOCKS)), None):
            yield re.sub(r"(?m)^[ \t]*\*+[ \t]?", "", found[2])
            at += found[0].count("\n") + 1
            continue
        start = at
        while at < len(lines) and not _DIRECTIVE.match(lines[at]) and _LINE.match(lines[at]):
            at += 1
        on_code = at < len(lines) and not _AFTER_COMMENT.match(lines[at])
        if at == start or (on_code and not lines[start].lstrip().startswith("//!")):
            return
        yield "\n".join(line[1] for one in lines[start:at] if (line := _LINE.match(one)))


def _sentence(comment: str) -> str | None:
    """Sentence of the first paragraph that does not begin with a notice about rights or tools; None if all do."""
    for block in re.split(r"\n[\s*#/;-]*\n", comment.strip("\n")):
        lines = [line.strip() for line in block.splitlines() if not _is_field(line)]
        # The heading of a module's own name, as in `requests.api`.
        if len(lines) == 1 and re.fullmatch(r"`*\w+(?:[./]\w+)+`*", lines[0]):
            continue
        until = next((at for at, line in enumerate(lines) if _NOTICE.search(line)), len(lines))
        if until:
            follows_on = until < len(lines) and lines[until][:1].islower()
            return "" if follows_on else _plain([line for line in lines[:until] if line])
    return None


def _is_field(line: str) -> bool:
    return bool(_FIELD.match(line)) or "$Id" in line or not line.strip("*#/;-=~ \t")


def _plain(lines: list[str]) -> str:
    """The first sentence, or a phrase that is alone on its line; nothing if it is not plain prose."""
    if any(len(one) < 45 and then[:1].isupper() and not one.endswith(".") for one, then in pairwise(lines)):
        return ""
    words = " ".join(re.sub(r"-\*-.*?-\*-|[=*#~_-]{3,}", " ", " ".join(lines)).split())
    # "zlib.c -- compress data": the name of the file itself.
    words = re.sub(r"^[@\\]?(?:file\s+)?[\w./-]+\.\w{1,4}\s*(?:-+|:)\s+", "", words)
    first = sentences(words)[0]
    said = first if whole_sentences(first) or len(lines) == 1 else ""
    letters = sum(char.isalpha() or char == " " for char in said)
    is_prose = len(said.split()) > 1 and letters >= 0.8 * len(said) and said[0].isalnum()
    is_whole = not re.search(r"[:,(-]$|\.\.\.$|\w\.[a-z]{1,4}$", said)
    return said if is_prose and is_whole and len(said) <= _LONGEST else ""
