"""Find facts in what was listed and read: purpose, licence, tests, entry points, commands, TODOs, oddities."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lcp_engine.planners.surveyor.languages import Sort
from lcp_engine.planners.surveyor.manifests import Manifest
from lcp_engine.planners.surveyor.markdown import code, listing, number, share, size
from lcp_engine.planners.surveyor.selection import is_ci, is_licence, is_readme
from lcp_engine.planners.surveyor.tree import File, Tree

Texts = Mapping[str, str]


@dataclass(frozen=True)
class OpenEnd:
    """A TODO or the like in a file that was read: where it is first, and how often it occurs there."""

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
        for at, line in enumerate(text.splitlines(), start=1):
            if said := _marked(line[:500]):
                known = found.get((path, said)) or OpenEnd(path, at, said, 0)
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
    """(command, what it runs, file): targets of make and just, scripts of manifests."""
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


_MOST_README = 32 * 1024


@dataclass(frozen=True)
class About:
    title: str = ""
    paragraph: str = ""


def read_readme(text: str) -> About:
    """The first heading, and the paragraph that says what it is, else the first that is prose; empty without."""
    blocks = [block.strip("\n") for block in re.split(r"\n[ \t]*\n", _without_markup(text[:_MOST_README]))]
    title, under = "", ""
    found: list[tuple[int, str]] = []
    for block in blocks:
        heading, rest = _heading(block)
        title, under = title or heading, heading or under
        prose = _prose(rest)
        if len(prose) > 12 and " " in prose and prose != title:
            found.append((_rank(prose, title, under), prose))
    return About(title, min(found, key=lambda item: item[0])[1] if found else "")


_SAYS_WHAT = re.compile(r"(?i)(?:what (?:it is|is\b.*)|about|overview|introduction|description|summary)\W*")


def _rank(prose: str, title: str, under: str) -> int:
    """How likely `prose` says what the project is, the likeliest first."""
    if title and prose.casefold().startswith((f"{title.casefold()} ", f"the {title.casefold()} ")):
        return 0
    return 1 if _SAYS_WHAT.fullmatch(under) else 2


def _without_markup(text: str) -> str:
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    text = re.sub(r"\A---\n[^\0]{0,4000}?\n---\n", "", text)
    text = re.sub(r"<!--[^>]{0,2000}-->", "", text)
    text = re.sub(r"(?m)^(```|~~~)[^\0]{0,4000}?^\1[^\n]*$", "", text)
    text = re.sub(r"<h1[^>\n]*>([^<\n]+)</h1>", r"\n# \1\n\n", text)
    text = re.sub(r"</?[a-zA-Z][^>\n]{0,500}>", " ", text)
    text = re.sub(r"\[?!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)(?:\]\([^)\n]{0,500}\))?", "", text)
    text = re.sub(r"\[?!\[[^\]\n]{0,200}\]\[[^\]\n]{0,200}\](?:\]\[[^\]\n]{0,200}\])?", "", text)
    return re.sub(r"(?m)^\.\. [^\n]*(?:\n[ \t]+[^\n]*)*", "", text)


def _heading(block: str) -> tuple[str, str]:
    """The heading that `block` begins with, and the rest: `#` of Markdown, `=` of AsciiDoc, underlines."""
    first, _, rest = block.partition("\n")
    if found := re.match(r"(?:#{1,6}|={1,5})\s+(\S.*)", first):
        return _prose(found[1].rstrip("# ")), rest
    second, _, after = rest.partition("\n")
    if first.strip() and re.fullmatch(r"([=\-~^*+#])\1{2,}\s*", second):
        return _prose(first), after
    if re.fullmatch(r"([=\-~^*+#])\1{2,}\s*", first) and rest:
        return _prose(second if not second.strip() else rest.partition("\n")[0]), after.partition("\n")[2]
    return "", block


def _prose(block: str) -> str:
    """The words of a paragraph; nothing for a list, a table or a block of code."""
    no_words = re.compile(r"\s*(?:\[[^\]\n]*\]:|[=\-*_~]{3,}\s*$)")
    lines = [line.strip() for line in block.splitlines() if not no_words.match(line)]
    if not lines or re.match(r"[-+|]|\*(?!\*)|\d+[.)]|\$|>?\s*\[!", lines[0]):
        return ""
    if block.startswith(("    ", "\t")):
        return ""
    text = " ".join(line.lstrip("> ") for line in lines)
    text = re.sub(r"\[([^\]\n]{1,300})\](?:\([^)\n]{0,500}\)|\[[^\]\n]{0,200}\])", r"\1", text)
    text = re.sub(r"`([^`\n]{1,200})`_", r"\1", text)
    text = re.sub(r"(\*\*|__|\*|`+)(?=\S)([^*`\n]{1,300}?)(?<=\S)\1", r"\2", text)
    return " ".join(text.split())


_LARGE_FILE = 1_000_000
_LARGE_SOURCE = 60_000

_LOCKS = {
    "Python": ("poetry.lock", "uv.lock", "Pipfile.lock", "pdm.lock", "pylock.toml", "requirements"),
    "JavaScript": (
        "package-lock.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
        "npm-shrinkwrap.json",
    ),
    "Rust": ("Cargo.lock",),
    "Go": ("go.sum",),
    "PHP": ("composer.lock",),
    "Ruby": ("Gemfile.lock",),
    "Elixir": ("mix.lock",),
    "Dart": ("pubspec.lock",),
    "Swift": ("Package.resolved",),
}


def stand_outs(tree: Tree, manifests: Sequence[Manifest], licence: str, tests: Tests) -> list[str]:
    """Sentences in Markdown, the gravest first."""
    return [
        *_sensitive(tree),
        *_missing(tree, manifests, licence, tests),
        *_large(tree),
        *_not_written_here(tree),
        *_odd_names(tree),
    ]


def _paths(files: Iterable[File], most: int = 3) -> str:
    return listing([code(file.path) for file in files], most)


def _sensitive(tree: Tree) -> Iterator[str]:
    secrets = [file for file in tree.own if file.is_secret]
    if secrets:
        yield (
            f"**Names that secrets have**: {_paths(secrets, 5)}. They were not read; "
            "make sure that they are meant to be here."
        )


def _missing(tree: Tree, manifests: Sequence[Manifest], licence: str, tests: Tests) -> Iterator[str]:
    if not tree.files:
        return
    if not any(file.is_at_top and is_readme(file) for file in tree.files):
        yield "**No readme** at the top: a newcomer has nowhere to start."
    if not licence and not licence_files(tree):
        yield "**No licence**: nobody but the authors may use or change it."
    if tree.code and not tests.files:
        yield f"**No tests** were found beside {number(len(tree.code), 'source file')}."
    if len(tree.code) > 20 and not find_ci(tree):
        yield "**No continuous integration** is configured in a known place."
    names = {part for file in tree.files for part in file.parts[-2:]}
    for ecosystem in sorted({m.ecosystem for m in manifests if m.dependencies}):
        locks = _LOCKS.get(ecosystem)
        if locks and not any(name.startswith(locks) for name in names):
            yield f"**No lock file** for {ecosystem}: two installations may get different versions."


def _large(tree: Tree) -> Iterator[str]:
    large = sorted((f for f in tree.own if f.size >= _LARGE_FILE), key=_largest_first)
    if large:
        part = sum(file.size for file in large)
        named = listing([f"{code(file.path)} ({size(file.size)})" for file in large], 3)
        yield f"**{number(len(large), 'file')} above 1 MB**, {share(part, tree.size)} of all bytes: {named}."
    binary = [file for file in tree.own if file.language.sort is Sort.BINARY]
    part = sum(file.size for file in binary)
    if part > tree.size / 4 and len(tree.files) > 1:
        yield f"**Binary files** are {share(part, tree.size)} of all bytes ({number(len(binary), 'file')})."
    sources = [f for f in tree.code if f.size >= _LARGE_SOURCE and not (f.is_generated or f.is_test)]
    if sources:
        named = listing([f"{code(f.path)} ({size(f.size)})" for f in sorted(sources, key=_largest_first)], 3)
        yield f"**{number(len(sources), 'source file')} above 60 kB**: {named}."


def _not_written_here(tree: Tree) -> Iterator[str]:
    generated = [file for file in tree.own if file.is_generated]
    if generated:
        yield f"**Generated files** by their names: {number(len(generated), 'file')}, such as {_paths(generated)}."
    vendored = [file for file in tree.files if file.is_vendored]
    if 0 < len(vendored) < len(tree.files):
        part = share(sum(file.size for file in vendored), tree.size)
        yield f"**Other people's code** by its directory: {number(len(vendored), 'file')}, {part} of all bytes."


def _odd_names(tree: Tree) -> Iterator[str]:
    odd = [file for file in tree.files if not file.path.isprintable() or "\\" in file.path]
    if odd:
        yield f"**Names that tools stumble over** (control characters, backslashes): {_paths(odd)}."
    folded: dict[str, list[File]] = {}
    for file in tree.files:
        folded.setdefault(file.path.casefold(), []).append(file)
    twins = [file for files in folded.values() if len(files) > 1 for file in files]
    if twins:
        yield f"**Names that differ in case only**, which macOS and Windows cannot hold: {_paths(twins, 4)}."
    empty = [file for file in tree.code if tree.sized and not file.size and file.name not in _OFTEN_EMPTY]
    if empty:
        yield f"**Empty source files**: {number(len(empty), 'file')}, such as {_paths(empty)}."


_OFTEN_EMPTY = frozenset({"__init__.py", "__init__.pyi", "py.typed"})


def _largest_first(file: File) -> tuple[int, str]:
    return -file.size, file.path
