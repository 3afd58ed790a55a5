"""Find facts in what was listed and read: purpose, licence, tests, entry points, commands, TODOs, oddities."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lcp_engine.features.surveyor.builds import makefile
from lcp_engine.features.surveyor.builds.manifest import Manifest
from lcp_engine.features.surveyor.languages import Sort
from lcp_engine.features.surveyor.markdown import code, listing, number, share, size
from lcp_engine.features.surveyor.selection import is_ci, is_entry, is_licence, is_readme, is_version
from lcp_engine.features.surveyor.tree import File, Tree

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
    """Files of tests, with data in directories of tests; `code` of them are source code, of `size` bytes."""

    files: int
    code: int
    size: int
    places: tuple[tuple[str, int], ...]
    frameworks: tuple[str, ...]


_WORD = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b(?:\([^()]{0,40}\))?(:)?")
_RIGHT_AFTER_SIGN = re.compile(r"(?:(?:#|//|/\*|--|;|%|<!--)[\s#/*!;%-]*|^\s*\*+\s*)$")
_CLOSERS = re.compile(r"\s*(?:\*/|-->|-\}|#\})?\s*\\?\s*$")
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
            return _CLOSERS.sub("", after).strip()
    return ""


_PHRASES: Sequence[tuple[str, str]] = (
    ("GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL-3.0"),
    ("GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"),
    ("GNU GENERAL PUBLIC LICENSE Version 3", "GPL-3.0"),
    ("GNU GENERAL PUBLIC LICENSE Version 2", "GPL-2.0"),
    ("Apache License Version 2.0", "Apache-2.0"),
    ("Apache License, Version 2.0", "Apache-2.0"),
    ("Mozilla Public License Version 2.0", "MPL-2.0"),
    ("Mozilla Public License, version 2.0", "MPL-2.0"),
    ("Eclipse Public License - v 2.0", "EPL-2.0"),
    ("European Union Public Licence", "EUPL"),
    ("Boost Software License", "BSL-1.0"),
    ("This is free and unencumbered software", "Unlicense"),
    ("CC0 1.0 Universal", "CC0-1.0"),
    ("provided 'as-is', without any express or implied warranty. In no event", "Zlib"),
    ("PYTHON SOFTWARE FOUNDATION LICENSE", "PSF-2.0"),
    ("Permission to use, copy, modify, and/or distribute", "ISC or 0BSD"),
    ("Permission to use, copy, modify, and distribute this software for any purpose", "ISC"),
    ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
    ("Permission is hereby granted, free of charge", "MIT"),
)


_FAMILIES = (
    "apache license", "vim license", "creative commons", "redistribution and use in source and binary forms",
    "permission to use, copy, modify, and", "permission is hereby granted, free of", "gnu general public license",
)  # fmt: skip


def licence_of(text: str) -> str:
    """The licence that `text` begins with, by a phrase of it; empty for one that is not known, and for several."""
    whole = " ".join(text[:200_000].split()).casefold()
    places = [(whole[:2500].find(phrase.casefold()), name) for phrase, name in _PHRASES]
    name = min((place for place in places if place[0] >= 0), default=(0, ""), key=lambda place: place[0])[1]
    if name == "BSD-2-Clause" and re.search(r"neither the names?|may not be used to endorse", whole):
        name = "BSD-3-Clause"
    # The texts of these name the GPL themselves.
    most = 1 + name.startswith(("MPL", "EPL", "EUPL"))
    return name if sum(family in whole for family in _FAMILIES) <= most else ""


def licence_files(tree: Tree) -> list[File]:
    return [file for file in tree.files if file.is_at_top and is_licence(file)]


_VERSION = r"[vV]?(\d+(?:\.\d+)+[\w.+-]*)"


def version_of(texts: Texts, tree: Tree, names: Iterable[str]) -> tuple[str, str]:
    """(version, file) of a file called VERSION, or of a constant for it; of other headers only that of the project."""
    folded = {re.sub(r"\W", "", name).casefold() for name in names}
    for path, text in texts.items():
        file = tree.by_path.get(path)
        if file is None or file.is_beside or file.is_test:
            continue
        if is_version(file) and (found := re.match(rf"\s*{_VERSION}\s*$", text)):
            return found[1], path
        if is_version(file) and (
            found := re.search(rf"(?m)^\s*(?:__version__|version|VERSION)\s*=\s*[\"']{_VERSION}[\"']", text)
        ):
            return found[1], path
        for found in re.finditer(
            rf"(?m)^\s*#\s*define\s+(?:(\w+)_)?VERSION(?:_STR(?:ING)?)?\s+\"{_VERSION}\"", text
        ):
            if is_version(file) or (found[1] or "").casefold() in folded:
                return found[2], path
        for found in re.finditer(r"(?m)^\s*#\s*define\s+((\w+)_VERSION\s+\d{3,7})\b", text):
            if found[2].casefold() in folded:
                return " ".join(found[1].split()), path
    return "", ""


_FRAMEWORKS = """
    pytest hypothesis nose nose2 behave robotframework unittest2 jest vitest mocha jasmine ava tap cypress
    @playwright/test karma qunit junit junit-jupiter testng mockito-core spock-core kotest
    rspec minitest cucumber phpunit/phpunit pestphp/pest xunit nunit mstest.testframework proptest quickcheck
    insta github.com/stretchr/testify github.com/onsi/ginkgo hspec tasty gtest catch2 ex_unit stream_data
    flutter_test googletest bats
"""


def find_tests(tree: Tree, manifests: Iterable[Manifest]) -> Tests:
    """Which files are tests, where most of them lie, and which frameworks the manifests name."""
    files = [file for file in tree.own if file.is_test]
    code_files = [file for file in files if file.is_code]
    places = Counter(_place(file) for file in files)
    named = {name for manifest in manifests for name in manifest.dependency_names}
    found = {name.rpartition(":")[2] for name in named} & {*_FRAMEWORKS.split()}
    if any(file.name == "conftest.py" for file in files):
        found.add("pytest")
    if any(file.name.endswith("_test.go") for file in files):
        found.add("go test")
    ordered = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    size = sum(file.size for file in code_files)
    return Tests(len(files), len(code_files), size, tuple(ordered), tuple(sorted(found)))


def _place(file: File) -> str:
    """The directory that gathers tests around `file`, else its own."""
    for depth, part in enumerate(file.parts[:-1]):
        if part.lower() in ("test", "tests", "__tests__", "spec", "specs", "e2e", "testsuite", "testdir"):
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
    """(command, what it runs, file): targets of make and just at the top, scripts of manifests."""
    found: list[tuple[str, str, str]] = []
    for path, text in texts.items():
        name = path.lower()
        if name in ("makefile", "gnumakefile", "justfile"):
            tool = "just" if name == "justfile" else "make"
            found += [(f"{tool} {target}", help_, path) for target, help_ in makefile.targets(text)]
    locks = {"pnpm-lock.yaml": "pnpm run", "yarn.lock": "yarn", "bun.lock": "bun run", "bun.lockb": "bun run"}
    node = next((runner for name, runner in locks.items() if name in tree.by_path), "npm run")
    for manifest in manifests:
        runner = {"JavaScript": node, "PHP": "composer", "Python": "pipenv run"}.get(manifest.ecosystem, "")
        found += [(f"{runner} {name}", target, manifest.path) for name, target in manifest.commands]
    return found


_RUNS_AS_SCRIPT = re.compile(r"^if __name__ == [\"']__main__[\"']:", re.MULTILINE)
_IMAGE = re.compile(r"^(?:ENTRYPOINT|CMD)[ \t]+((?:.*\\\n)*.+)", re.MULTILINE | re.IGNORECASE)
_FROM = re.compile(r"^FROM\b", re.MULTILINE | re.IGNORECASE)
# Programs that a build states, and that are not installed.
_IS_TRIAL = re.compile(r"test|bench|example|fuzz|demo", re.IGNORECASE)
_GO_MAIN = re.compile(r"^package main\b[^\0]*^func main\(\)", re.MULTILINE)


def entry_points(texts: Texts, manifests: Iterable[Manifest], tree: Tree) -> list[str]:
    """Where programs start, in Markdown: as manifests and makefiles state it, and as sources that were read show it."""
    found: list[str] = []
    for manifest in manifests:
        stated = list(manifest.entries)
        if manifest.ecosystem == "Rust" and manifest.name:
            stated += _rust_programs(manifest, tree)
        if manifest.ecosystem == "JavaScript" and manifest.directory:
            stated = [pair for pair in stated if pair[0] not in ("main", "module")]
        absent = _absent_modules(manifest, tree)
        found += [
            f"{_entry(name, target, manifest.path)}{', which is not in the tree' * (target in absent)}"
            for name, target in stated
            if not _IS_TRIAL.search(name)
        ]
    for path, text in texts.items():
        file = tree.by_path.get(path)
        if file is not None and not file.is_beside:
            found += _starts(file, text)
    unread = [
        f.path
        for f in tree.own
        if f.path not in texts and is_entry(f) and (f.name == "main.go" or not f.is_code)
    ]
    packages = [f for f in tree.own if f.name == "__main__.py" and not f.is_beside and not f.is_at_top]
    found += [f"{code(file.path)}, what `python -m` runs" for file in packages]
    targets = {target.removeprefix("./") for manifest in manifests for _, target in manifest.entries}
    twice = {f"{code(target)}, a script" for target in targets}
    lines = [line for line in dict.fromkeys(found) if line.partition(":")[0] not in twice]
    some = listing([code(path) for path in unread], 3)
    maybe = f"not read: {number(len(unread), 'further file')} that may start a program, {some}"
    return [*lines, maybe] if unread else lines


def _starts(file: File, text: str) -> list[str]:
    """Programs that start in a source, makefile or Dockerfile, as its text shows it."""
    shown = code(file.path)
    if makefile_of_top(file.path):
        programs = (name for name in makefile.programs(text) if not _IS_TRIAL.search(name))
        return [f"{code(name)}, linked by {shown}" for name in programs]
    if file.name in ("Dockerfile", "Containerfile"):
        return [f"{code(command, 80)}, what the image of {shown} runs" for command in _started(text)]
    if file.language.name == "Go" and not file.is_test and _GO_MAIN.search(text):
        return [f"{shown}, a Go main package"]
    if text.startswith("#!") and file.parts[0] in ("bin", "sbin", "exe", "libexec"):
        return [f"{shown}, a script: {code(text.splitlines()[0], 60)}"]
    is_script = file.language.name == "Python" and _RUNS_AS_SCRIPT.search(text) is not None
    if is_script and not file.is_test and file.name != "__main__.py":
        return [f"{shown}, when it is run as a script"]
    return []


def _started(text: str) -> list[str]:
    """Commands that the last stage of a Dockerfile starts: its last ENTRYPOINT or CMD."""
    stages = list(_FROM.finditer(text))
    found = _IMAGE.findall(text, stages[-1].start() if stages else 0)
    return [" ".join(found[-1].replace("\\\n", " ").split())] if found else []


def _absent_modules(manifest: Manifest, tree: Tree) -> set[str]:
    """The targets of a Python manifest whose module is not a file of the tree."""
    if manifest.ecosystem != "Python" or tree.truncated or tree.skipped:
        return set()
    targets = {target for _, target in manifest.entries if re.fullmatch(r"[\w.]+(?::[\w.]+)?", target)}
    names = {target: target.partition(":")[0].replace(".", "/") for target in targets}
    there = {f"/{path.partition('.')[0]}".removesuffix("/__init__") for path in tree.by_path}
    return {
        target for target, name in names.items() if not any(place.endswith(f"/{name}") for place in there)
    }


def makefile_of_top(path: str) -> bool:
    """True if it is the makefile of the tree, or of its sources."""
    return path.lower().removeprefix("src/") in ("makefile", "gnumakefile")


def _entry(name: str, target: str, path: str) -> str:
    return f"{code(name)} → {code(target)} ({code(path)})" if target else f"{code(name)} ({code(path)})"


def _rust_programs(manifest: Manifest, tree: Tree) -> Iterator[tuple[str, str]]:
    """Those that Cargo finds by itself: `src/main.rs`, and files of `src/bin`."""
    stated = {target for _, target in manifest.entries} | {name for name, _ in manifest.entries}
    start = f"{manifest.directory}src/"
    if f"{start}main.rs" in tree.by_path and not {"src/main.rs", manifest.name} & stated:
        yield manifest.name, "src/main.rs"
    for path in tree.by_path:
        found = re.fullmatch(rf"{re.escape(start)}bin/([^/]+)(?:\.rs|/main\.rs)", path)
        if found and found[1] not in stated:
            yield found[1], path.removeprefix(manifest.directory)


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


def stand_outs(
    tree: Tree,
    manifests: Sequence[Manifest],
    licence: str,
    tests: Tests,
    broken: Sequence[str],
    *,
    versions: Sequence[tuple[str, str]],
) -> list[str]:
    """Sentences in Markdown, the gravest first; `broken` are manifests that cannot be parsed.

    `versions` are those that the project states, each with its file.
    """
    return [
        *_sensitive(tree),
        *(f"**{code(path)} cannot be parsed**: nothing below comes from it." for path in broken),
        *_disagreeing(versions),
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


def _disagreeing(versions: Sequence[tuple[str, str]]) -> Iterator[str]:
    if len({version.lstrip("vV") for version, _ in versions}) > 1:
        stated = " and ".join(f"{code(version, 40)} in {code(path)}" for version, path in versions)
        yield f"**Versions disagree**: {stated}."


def _missing(tree: Tree, manifests: Sequence[Manifest], licence: str, tests: Tests) -> Iterator[str]:
    if not tree.files:
        return
    if not any(file.is_at_top and is_readme(file) for file in tree.files):
        yield "**No readme** among the files at the top."
    if not licence and not licence_files(tree):
        yield "**No licence** in a file at the top or in a manifest that was read."
    if tree.code and not tests.files:
        yield f"**No tests** by their names or places, beside {number(len(tree.code), 'source file')}."
    if len(tree.code) > 20 and not find_ci(tree):
        yield "**No continuous integration** is configured in a known place."
    names = {part for file in tree.files for part in file.parts[-2:]}
    for ecosystem in sorted({m.ecosystem for m in manifests if m.dependencies.keys() & {"", "default"}}):
        locks = _LOCKS.get(ecosystem)
        if locks and not any(name.startswith(locks) for name in names):
            yield f"**No lock file** for {ecosystem}."


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
    if tree.aside and len(tree.own) < len(tree.files):
        named = [
            f"{code(name)} ({number(len(files), 'file')}, {size(sum(file.size for file in files))})"
            for name, files in sorted(tree.aside.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        yield (
            "**Set aside** because of names that other people's code and build output have: "
            f"{listing(named, 8)}. What follows is about the rest."
        )


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
