"""Choose which files to read: first those that identify a project, then the largest sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pydantic import JsonValue

from lcp_engine.features.surveyor.builds.manifests import is_manifest
from lcp_engine.features.surveyor.languages import Sort
from lcp_engine.features.surveyor.tree import File, Tree

_LARGEST_WHOLE = 512 * 1024
_LARGEST_SOURCE = 4 * 1024 * 1024
_LINES_OF_SOURCE = 1500
_LINES_OF_PROSE = 300
_FROM_ONE_PLACE = 3


@dataclass(frozen=True)
class Choice:
    """One file to read and the most lines to read of it (None: all)."""

    path: str
    lines: int | None

    @property
    def params(self) -> dict[str, JsonValue]:
        return {"rel_path": self.path} | ({} if self.lines is None else {"limit": self.lines})


# Asked in each turn of a mission.
@lru_cache(maxsize=1)
def choose(tree: Tree, most: int) -> tuple[Choice, ...]:
    """At most `most` files, the most telling first; a function of the listing alone."""
    files = sorted((file for file in tree.own if file.is_readable), key=_shallow_first)
    chosen: dict[str, Choice] = {}
    for file, lines in _by_purpose(files):
        if len(chosen) >= most:
            break
        chosen.setdefault(file.path, Choice(file.path, lines))
    return tuple(chosen.values())


def is_readme(file: File) -> bool:
    """True if it is the readme of its directory, and not one about a part or in another language."""
    return bool(_README.fullmatch(file.name.lower()))


def is_licence(file: File) -> bool:
    name = re.fullmatch(r"(?:un)?licen[cs]e(?:[._-].*)?|copying(?:[._-].*)?|copyright", file.name.lower())
    return bool(name) and not file.is_code


def is_main_manifest(file: File) -> bool:
    """True if it is a manifest of the product, and not of its documentation, tests or tools."""
    return is_manifest(file.path) and not file.is_beside


def is_ci(file: File) -> bool:
    return bool(_CI.fullmatch(file.path))


def is_build(file: File) -> bool:
    return bool(_BUILD.fullmatch(file.path))


def is_entry(file: File) -> bool:
    """True if a program may start in it, by its name; only its content tells."""
    return bool(_ENTRY.fullmatch(file.path)) and not file.is_test and not file.is_beside


def is_version(file: File) -> bool:
    return bool(_VERSION.fullmatch(file.path)) and not file.is_test and not file.is_beside


_README = re.compile(r"readme(?:\.(?:md|markdown|mdown|mkd|rst|rest|adoc|asciidoc|txt|text|org))?")
_CI = re.compile(
    r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.ya?ml|\.circleci/config\.yml|azure-pipelines[^/]*\.yml|Jenkinsfile"
    r"|\.travis\.yml|\.woodpecker\.ya?ml|\.woodpecker/[^/]+\.ya?ml|\.drone\.yml|bitbucket-pipelines\.yml|\.cirrus\.yml"
    r"|\.builds/[^/]+\.yml|\.buildkite/[^/]+\.ya?ml|appveyor\.yml|\.forgejo/workflows/[^/]+\.ya?ml|\.ci/[^/]+"
)
_BUILD = re.compile(
    r"(?:src/)?(?:GNU)?[Mm]akefile|[Jj]ustfile|Taskfile\.ya?ml|tox\.ini|noxfile\.py|Dockerfile|Containerfile|docker-compose\.ya?ml"
    r"|compose\.ya?ml|Procfile"
)
_ENTRY = re.compile(r"main\.go|(?:.*/)?cmd/[^/]+/(?:main|[^/]+)\.go|(?:s?bin|exe|libexec)/[^/.]+")
_VERSION = re.compile(
    r"(?:[^/]+/)?VERSION(?:\.txt)?|(?:[^/]+/){0,2}version\.h|(?:src/)?[^/]+/(?:__about__|_?version|__version__)\.py"
    r"|lib/[^/]+/version\.rb"
)


def _shallow_first(file: File) -> tuple[int, str]:
    return file.path.count("/"), file.path


def _by_purpose(files: list[File]) -> Iterator[tuple[File, int | None]]:
    """Purposes in order, each with the most files it may take."""
    small = [file for file in files if file.size <= _LARGEST_WHOLE]
    top = [file for file in small if file.is_at_top]
    readmes = sorted(
        (f for f in top if is_readme(f)), key=lambda file: (file.language.name != "Markdown", file.path)
    )
    yield from ((file, _LINES_OF_PROSE) for file in readmes[:1])
    yield from ((file, None) for file in _varied([f for f in small if is_main_manifest(f)], 8))
    yield from ((file, _LINES_OF_PROSE) for file in [f for f in top if is_licence(f)][:2])
    yield from ((file, None) for file in [f for f in small if is_ci(f)][:2])
    yield from ((file, None) for file in [f for f in small if is_build(f)][:3])
    yield from ((file, _LINES_OF_PROSE) for file in [f for f in small if is_version(f)][:2])
    entries = [f for f in small if is_entry(f) and f.size and f.language.sort in (Sort.CODE, Sort.OTHER)]
    yield from ((file, _LINES_OF_SOURCE) for file in _one_each(entries)[:6])
    yield from ((file, _LINES_OF_SOURCE) for file in _largest(files))


def _one_each(entries: list[File]) -> list[File]:
    """In turns from each directory, those called `main` first: the files of a program lie together."""
    ordered = sorted(entries, key=lambda file: (not file.name.startswith("main."), *_shallow_first(file)))
    seen: Counter[str] = Counter()
    turns: dict[str, int] = {}
    for file in ordered:
        place = file.path.rpartition("/")[0]
        turns[file.path] = seen[place] if file.is_code else 0
        seen[place] += 1
    return sorted(ordered, key=lambda file: turns[file.path])


def _varied(manifests: list[File], most: int) -> list[File]:
    """The shallowest of each name first, then further ones: a tree of thirty packages needs few of them."""
    first = {file.name: file for file in reversed(manifests)}
    return sorted(manifests, key=lambda file: (first[file.name] is not file, *_shallow_first(file)))[:most]


def _largest(files: list[File]) -> list[File]:
    """Sources that people wrote, the largest first, in turns from each directory; tests and the like last."""
    written = [
        file for file in files if file.is_code and 0 < file.size <= _LARGEST_SOURCE and not file.is_generated
    ]
    ordered = sorted(written, key=lambda file: (_is_aside(file), -file.size, file.path))
    neighbours: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    for file in ordered:
        place = file.path.rpartition("/")[0]
        ranks[file.path] = neighbours[place] // _FROM_ONE_PLACE
        neighbours[place] += 1
    return sorted(ordered, key=lambda file: (_is_aside(file), ranks[file.path]))


def _is_aside(file: File) -> bool:
    return file.is_test or file.is_beside
