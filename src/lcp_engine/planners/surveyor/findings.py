"""Find in what was listed and read: licence, tests, entry points, commands, open ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lcp_engine.planners.surveyor.manifests.model import Manifest
from lcp_engine.planners.surveyor.selection import is_ci, is_licence
from lcp_engine.planners.surveyor.tree import File, Tree

Texts = Mapping[str, str]


@dataclass(frozen=True)
class OpenEnd:
    """A TODO or its like in what was read: where it stands first, and how often in that file."""

    path: str
    line: int
    text: str
    times: int = 1


@dataclass(frozen=True)
class Tests:
    files: int
    size: int
    places: tuple[tuple[str, int], ...]
    frameworks: tuple[str, ...]


_WORD = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b(?:\([^()]{0,40}\))?(:)?")
_RIGHT_AFTER_SIGN = re.compile(r"(?:(?:#|//|/\*|--|;|%|<!--)[\s#/*!;%-]*|^\s*\*+\s*)$")
_SIGN = re.compile(r"#|//|/\*|^\s*\*|--|;|%|<!--")


def open_ends(texts: Texts, tree: Tree) -> list[OpenEnd]:
    """Marks in comments of the sources that were read, in their order."""
    found: dict[tuple[str, str], OpenEnd] = {}
    for path, text in texts.items():
        file = tree.by_path.get(path)
        if not (file and file.is_code):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if said := _marked(line[:500]):
                known = found.get((path, said)) or OpenEnd(path, number, said, 0)
                found[path, said] = replace(known, times=known.times + 1)
    return list(found.values())


def _marked(line: str) -> str:
    """The words of a mark: right after the sign of a comment, or with a colon anywhere in one."""
    for mark in _WORD.finditer(line):
        before, after = line[: mark.start()], line[mark.start() :]
        if _RIGHT_AFTER_SIGN.search(before[-20:]) or (mark[1] and _SIGN.search(before[-80:])):
            return after.strip().removesuffix("*/").removesuffix("-->").strip()
    return ""


_PHRASES: Sequence[tuple[str, str]] = (
    ("GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL-3.0"),
    ("GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"),
    ("GNU GENERAL PUBLIC LICENSE Version 3", "GPL-3.0"),
    ("GNU GENERAL PUBLIC LICENSE Version 2", "GPL-2.0"),
    ("Apache License", "Apache-2.0"),
    ("Mozilla Public License Version 2.0", "MPL-2.0"),
    ("Mozilla Public License, version 2.0", "MPL-2.0"),
    ("Eclipse Public License - v 2.0", "EPL-2.0"),
    ("European Union Public Licence", "EUPL"),
    ("Boost Software License", "BSL-1.0"),
    ("This is free and unencumbered software", "Unlicense"),
    ("CC0 1.0 Universal", "CC0-1.0"),
    ("PYTHON SOFTWARE FOUNDATION LICENSE", "PSF-2.0"),
    ("Permission to use, copy, modify, and/or distribute", "ISC or 0BSD"),
    ("Permission to use, copy, modify, and distribute this software for any purpose", "ISC"),
    ("Neither the name", "BSD-3-Clause"),
    ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
    ("Permission is hereby granted, free of charge", "MIT"),
)


def licence_of(text: str) -> str:
    """The licence that `text` is, by a phrase of it; empty for one that is not known."""
    start = " ".join(text[:20_000].split()).casefold()
    return next((name for phrase, name in _PHRASES if phrase.casefold() in start), "")


def licence_files(tree: Tree) -> list[File]:
    return [file for file in tree.files if file.is_at_top and is_licence(file)]


_FRAMEWORKS = """
    pytest hypothesis nose nose2 tox nox behave robotframework unittest2 jest vitest mocha jasmine ava tap cypress
    playwright @playwright/test puppeteer karma qunit junit junit-jupiter testng mockito-core spock-core kotest
    rspec minitest cucumber phpunit/phpunit pestphp/pest xunit nunit mstest.testframework proptest quickcheck
    criterion insta github.com/stretchr/testify github.com/onsi/ginkgo hspec tasty gtest catch2 ex_unit stream_data
    flutter_test googletest bats
"""


def find_tests(tree: Tree, manifests: Iterable[Manifest]) -> Tests:
    """What of the sources are tests, where most of them lie, and with what they are written."""
    files = [file for file in tree.code if file.is_test]
    places = Counter(_place(file) for file in files)
    named = {name for manifest in manifests for name in manifest.dependency_names}
    found = {name.rpartition(":")[2] for name in named} & {*_FRAMEWORKS.split()}
    if any(file.name == "conftest.py" for file in files):
        found.add("pytest")
    if any(file.name.endswith("_test.go") for file in files):
        found.add("go test")
    ordered = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    return Tests(len(files), sum(file.size for file in files), tuple(ordered), tuple(sorted(found)))


def _place(file: File) -> str:
    """The directory that gathers tests around `file`, else its own."""
    for depth, part in enumerate(file.parts[:-1]):
        if part.lower() in ("test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "testsuite"):
            return "/".join(file.parts[: depth + 1])
    return "/".join(file.parts[:-1]) or "."


_CI_SYSTEMS: Sequence[tuple[str, str]] = (
    (".github/", "GitHub Actions"), (".gitlab-ci", "GitLab CI"), (".circleci/", "CircleCI"),
    ("azure-pipelines", "Azure Pipelines"), ("Jenkinsfile", "Jenkins"), (".travis", "Travis CI"),
    (".woodpecker", "Woodpecker"), (".drone", "Drone"), ("bitbucket-", "Bitbucket Pipelines"), (".cirrus", "Cirrus CI"),
    (".builds/", "builds.sr.ht"), (".buildkite/", "Buildkite"), ("appveyor", "AppVeyor"),
    (".forgejo/", "Forgejo Actions"), (".ci/", "scripts in .ci"),
)  # fmt: skip


def find_ci(tree: Tree) -> dict[str, list[File]]:
    """The files of each CI system that the tree has."""
    found: dict[str, list[File]] = {}
    for file in tree.files:
        if is_ci(file):
            name = next(name for start, name in _CI_SYSTEMS if file.path.startswith(start))
            found.setdefault(name, []).append(file)
    order = [name for _, name in _CI_SYSTEMS]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def commands(texts: Texts, manifests: Iterable[Manifest], tree: Tree) -> list[tuple[str, str, str]]:
    """(command, what it runs, where it stands): targets of make and just, scripts of manifests."""
    found: list[tuple[str, str, str]] = []
    for path, text in texts.items():
        name = path.rpartition("/")[2].lower()
        if name in ("makefile", "gnumakefile", "justfile") and "/" not in path:
            tool = "just" if name == "justfile" else "make"
            found += [(f"{tool} {target}", help_, path) for target, help_ in _targets(text)]
    locks = {"pnpm-lock.yaml": "pnpm run", "yarn.lock": "yarn", "bun.lock": "bun run", "bun.lockb": "bun run"}
    node = next((runner for name, runner in locks.items() if name in tree.by_path), "npm run")
    for manifest in manifests:
        runner = {"JavaScript": node, "PHP": "composer", "Python": "pipenv run"}.get(manifest.ecosystem, "")
        found += [(f"{runner} {name}", target, manifest.path) for name, target in manifest.commands]
    return found


def _targets(text: str) -> list[tuple[str, str]]:
    """Targets with the comment beside them, else their first line; those of patterns and files are left out."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines()[:2000]:
        if match := re.match(
            r"([a-zA-Z][\w-]*)(?: [\w\"'=*+ -]*)?:(?!=)[^#=]{0,200}(?:##?\s*(.*))?$", line[:400]
        ):
            last = match[1]
            found.setdefault(last, (match[2] or "").strip())
        elif line.strip() and not line[0].isspace():
            last = ""
        elif last and not found[last]:
            found[last] = line.strip().lstrip("@-+")
    return list(found.items())


_PREAMBLE = re.compile(r"""\s*$|#!|#.*coding[:=]|<\?php|//go:build|// ?\+build|package |['"]use """)
_BLOCKS = (r"[rR]?(\"\"\"|''')(.*?)\1", r"(/)\*+!?(.*?)\*/", r"(<)!--(.*?)-->", r"(\{)-\|?(.*?)-\}")
_NO_CONTENT = re.compile(
    r"copyright|\(c\)|©|spdx|licen[cs]ed|this file is part|all rights|authors?:|this source code is licen"
    r"|permission is hereby|eslint|vim:|noqa|pylint|flake8|type:|mypy:|isort:|fmt:",
    re.IGNORECASE,
)


def first_words(text: str) -> str:
    """The first sentence of the comment that a source begins with; empty without one."""
    lines = text[:8000].splitlines()
    start = next((number for number, line in enumerate(lines) if not _PREAMBLE.match(line)), len(lines))
    lines = lines[start:]
    for pattern in _BLOCKS:
        if found := re.match(pattern, "\n".join(lines), re.DOTALL):
            return _sentence(found[2])
    comment = []
    for line in lines:
        found = re.match(r"\s*(?:#+(?=\s|$)|//[/!]?|--+|;+|%+|\"(?= ))\s?(.*)", line)
        if not found:
            break
        comment.append(found[1])
    return _sentence("\n".join(comment))


def _sentence(comment: str) -> str:
    """The first paragraph that is no licence and no editor setting, to its first full stop."""
    for block in re.split(r"\n\s*\n", re.sub(r"(?m)^[ \t]*\*[ \t]?", "", comment)):
        words = " ".join(re.sub(r"[=*#~_-]{4,}|-\*-.*?-\*-|@\w+", " ", block).split())
        if len(words) > 8 and not _NO_CONTENT.match(words):
            return re.split(r"(?<=[.!?]) (?=[A-Z])", words, maxsplit=1)[0]
    return ""


def scripts_with_main(texts: Texts) -> list[str]:
    """The files among those read that start something when they are run."""
    guard = re.compile(
        r"^if __name__ == [\"']__main__[\"']:|^func main\(\)|^(?:pub )?fn main\(", re.MULTILINE
    )
    return [path for path, text in texts.items() if text.startswith("#!") or guard.search(text)]
