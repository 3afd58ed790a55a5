"""Choose which files to read: first those that identify a project, then the largest sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.planners.surveyor.languages import Sort
from lcp_engine.planners.surveyor.manifests import is_manifest
from lcp_engine.planners.surveyor.tree import File, Tree

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


def choose(tree: Tree, most: int) -> list[Choice]:
    """At most `most` files, the most telling first; a function of the listing alone."""
    files = sorted((file for file in tree.own if file.is_readable), key=_shallow_first)
    chosen: dict[str, Choice] = {}
    for file, lines in _by_purpose(files):
        if len(chosen) >= most:
            break
        chosen.setdefault(file.path, Choice(file.path, lines))
    return list(chosen.values())


def is_readme(file: File) -> bool:
    name = file.name.lower()
    return (
        name.startswith("readme")
        and file.language.sort in _SORTS_OF_TEXT
        and name[6:7] in ("", ".", "_", "-")
    )


def is_licence(file: File) -> bool:
    name = re.fullmatch(r"(?:un)?licen[cs]e(?:[._-].*)?|copying(?:[._-].*)?|copyright", file.name.lower())
    return bool(name) and not file.is_code


def is_ci(file: File) -> bool:
    return bool(_CI.fullmatch(file.path))


def is_build(file: File) -> bool:
    return bool(_BUILD.fullmatch(file.name))


def is_entry(file: File) -> bool:
    return bool(_ENTRY.fullmatch(file.path)) and not file.is_test


_SORTS_OF_TEXT = frozenset({Sort.PROSE, Sort.OTHER})
_CI = re.compile(
    r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.ya?ml|\.circleci/config\.yml|azure-pipelines[^/]*\.yml|Jenkinsfile"
    r"|\.travis\.yml|\.woodpecker\.ya?ml|\.woodpecker/[^/]+\.ya?ml|\.drone\.yml|bitbucket-pipelines\.yml|\.cirrus\.yml"
    r"|\.builds/[^/]+\.yml|\.buildkite/[^/]+\.ya?ml|appveyor\.yml|\.forgejo/workflows/[^/]+\.ya?ml|\.ci/[^/]+"
)
_BUILD = re.compile(
    r"(?:GNU)?[Mm]akefile|[Jj]ustfile|Taskfile\.ya?ml|tox\.ini|noxfile\.py|Dockerfile|Containerfile|docker-compose\.ya?ml"
    r"|compose\.ya?ml|Procfile"
)
_ENTRY = re.compile(
    r"(?:.*/)?(?:__main__|main|cli|app|manage|server|wsgi|asgi)\.(?:py|js|ts|mjs|go|rs|rb|php|java|kt|swift|c|cc|cpp|dart|lua"
    r"|jl|ex|exs|hs|zig|nim|cs)|(?:.*/)?(?:Main\.(?:java|hs)|Program\.cs|App\.(?:tsx|jsx|vue|svelte)|lib\.rs)"
    r"|(?:.*/)?src/bin/[^/]+\.rs|(?:.*/)?cmd/[^/]+/[^/]+\.go|(?:src/)?index\.(?:js|ts|tsx|jsx|php|html)|(?:s?bin|exe)/[^/]+"
)


def _shallow_first(file: File) -> tuple[int, str]:
    return file.path.count("/"), file.path


def _by_purpose(files: list[File]) -> Iterator[tuple[File, int | None]]:
    """Purposes in order, each with the most files it may take."""
    small = [file for file in files if file.size <= _LARGEST_WHOLE]
    yield from ((file, _LINES_OF_PROSE) for file in [f for f in small if is_readme(f)][:1])
    manifests = [f for f in small if is_manifest(f.path) and not f.lies_in_tests]
    yield from ((file, None) for file in _varied(manifests, 8))
    yield from ((file, _LINES_OF_PROSE) for file in [f for f in small if is_licence(f)][:2] if file.is_at_top)
    yield from ((file, None) for file in [f for f in small if is_ci(f)][:2])
    yield from ((file, None) for file in [f for f in small if is_build(f)][:3])
    entries = [f for f in small if is_entry(f) and f.size and f.language.sort in (Sort.CODE, Sort.OTHER)]
    yield from ((file, _LINES_OF_SOURCE) for file in entries[:4])
    yield from ((file, _LINES_OF_SOURCE) for file in _largest(files))


def _varied(manifests: list[File], most: int) -> list[File]:
    """The shallowest of each name first, then further ones: a tree of thirty packages needs few of them."""
    first = {file.name: file for file in reversed(manifests)}
    return sorted(manifests, key=lambda file: (first[file.name] is not file, *_shallow_first(file)))[:most]


def _largest(files: list[File]) -> list[File]:
    """Sources that people wrote, the largest first, in turns from each directory; tests last."""
    written = [
        file for file in files if file.is_code and 0 < file.size <= _LARGEST_SOURCE and not file.is_generated
    ]
    ordered = sorted(written, key=lambda file: (file.is_test, -file.size, file.path))
    neighbours: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    for file in ordered:
        place = file.path.rpartition("/")[0]
        ranks[file.path] = neighbours[place] // _FROM_ONE_PLACE
        neighbours[place] += 1
    return sorted(ordered, key=lambda file: (file.is_test, ranks[file.path]))
