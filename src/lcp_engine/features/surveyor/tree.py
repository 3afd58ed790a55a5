"""A listing as a tree: files, sizes, directories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from pydantic import JsonValue

from lcp_engine.features.surveyor.languages import Language, Sort, language_of
from lcp_engine.planners.base import is_secret

# Excluded from the listing: directories of tools and of installed packages. Plain names only, because a walk can skip a
# directory by its name without reading it. Copies of other people's code and build output are listed and counted.
EXCLUDED = (
    ".git", ".hg", ".svn", "node_modules", "bower_components", "jspm_packages", ".venv", "venv", "virtualenv",
    "__pycache__", ".tox", ".nox", ".eggs", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache",
    ".hypothesis", ".cache", ".next", ".nuxt", ".svelte-kit", ".turbo", ".parcel-cache", ".gradle", ".terraform",
    ".dart_tool", ".stack-work", "dist-newstyle", ".bundle", ".idea", ".vs", "DerivedData",
)  # fmt: skip

# Names that policy does not deny, and that are better not read either.
_SUGGESTS_SECRET = re.compile(
    r"(?:.*/)?(?:secrets?/.*"
    r"|[^/]*(?:credential|secret|password|passwd)s?(?:\.(?:json|ya?ml|toml|ini|txt|cfg|conf|xml|properties))?)"
)
_TEST_PLACE = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?|e2e|testsuite|testdir|fixtures)/", re.IGNORECASE)
# Directories that hold nothing but tests and their data; `spec` may be a specification.
_WHOLLY_TESTS = re.compile(r"(?:^|/)(?:tests?|__tests__|testsuite|testdir)/")
_TEST_NAME = re.compile(
    r"test_.+\.py|.+_test\.(?:go|exs|py|rb|cc|cpp|dart|[jt]sx?|erl)|.+\.(?:test|spec|cy|e2e)\.\w+|.+_spec\.(?:rb|lua)"
    r"|.+Tests?\.(?:java|kt|cs|scala|swift|php|groovy)|conftest\.py|tests\.(?:py|rs)"
)
_GENERATED = re.compile(
    r".+\.min\.(?:js|css|mjs)|.+\.(?:js|css)\.map|.+_pb2(?:_grpc)?\.pyi?|.+\.pb\.(?:go|cc|h)|.+\.g\.(?:dart|cs)"
    r"|.+\.generated\.\w+|.+[._-]generated\.\w+|.+\.designer\.cs|zz_generated.*|.+_string\.go|.+\.bundle\.js"
)
_ASIDE = re.compile(
    r"(?:^|(?<=/))(?:(?P<others>third[_-]?party|3rdparty|external|extern|_?vendor(?:ed|s)?|site-packages|dist-packages"
    r"|\.venv[^/]*)|(?P<output>dist|build|target|out|coverage|htmlcov|_build))/"
)
_BUNDLED = re.compile(r"deps/[^/]+/(?:licen[cs]e|copying|copyright)[^/]*", re.IGNORECASE)
# A directory is build output only beside a manifest whose tools write there.
_WRITERS: Mapping[str, tuple[str, ...]] = {
    "dist": ("package.json", "pyproject.toml", "setup.py", "setup.cfg"),
    "build": ("setup.py", "build.gradle", "build.gradle.kts", "pubspec.yaml"),
    "target": ("Cargo.toml", "pom.xml", "build.sbt"),
    "out": ("package.json",),
    "coverage": ("package.json",),
    "htmlcov": ("pyproject.toml", "setup.py", "setup.cfg"),
    "_build": ("mix.exs", "dune-project"),
}
# Directories beside the product: what is in them is not needed to run it. The second ones only at the top.
_BESIDE = frozenset(
    {
        "doc", "docs", "documentation", "website", "site", "www", "example", "examples", "demo", "demos", "sample",
        "samples", "test", "tests", "__tests__", "testsuite", "testdir", "spec", "specs", "e2e", "fixtures", "testdata",
        "bench", "benches", "benchmark", "benchmarks", "fuzz", "fuzzing", "script", "scripts", "tools",
    }
)  # fmt: skip
_BESIDE_AT_TOP = frozenset(
    {"support", "tool", "util", "utils", "contrib", "ci", "hack", "template", "templates", "packaging"}
)


class File(NamedTuple):
    """One listed file; `size` is 0 if the listing has no sizes."""

    path: str
    size: int
    name: str
    language: Language

    @classmethod
    def of(cls, path: str, size: int = 0) -> File:
        return cls(path, size, path[path.rfind("/") + 1 :], language_of(path))

    @property
    def parts(self) -> list[str]:
        return self.path.split("/")

    @property
    def is_at_top(self) -> bool:
        return "/" not in self.path

    @property
    def is_code(self) -> bool:
        return self.language.sort is Sort.CODE

    @property
    def is_secret(self) -> bool:
        """True if the name is one that secrets have; such a file is never read."""
        folded = self.path.casefold()
        return is_secret(folded) or (not self.is_code and _SUGGESTS_SECRET.fullmatch(folded) is not None)

    @property
    def is_readable(self) -> bool:
        """True if a job may name it: control characters would make the reply invalid (R3)."""
        return (
            self.path.isprintable() and "\\" not in self.path and not self.is_secret and len(self.path) < 1000
        )

    @property
    def is_test(self) -> bool:
        """True if it belongs to tests: code by its place or name, data only in a directory of tests."""
        if not self.is_code:
            return bool(_WHOLLY_TESTS.search(self.path))
        return self.lies_in_tests or bool(_TEST_NAME.fullmatch(self.name))

    @property
    def lies_in_tests(self) -> bool:
        return bool(_TEST_PLACE.search(self.path))

    @property
    def is_generated(self) -> bool:
        return bool(_GENERATED.fullmatch(self.name))

    @property
    def is_beside(self) -> bool:
        """True if it lies in a directory for documentation, tests, examples, benchmarks, tools, or a hidden one."""
        *places, _ = self.path.lower().split("/")
        return bool(places) and (
            places[0] in _BESIDE_AT_TOP or any(p in _BESIDE or p.startswith(".") for p in places)
        )


@dataclass(frozen=True)
class Tree:
    """Every file that was listed, in the order of the listing; `total` counts those that a cap left out too."""

    files: tuple[File, ...]
    total: int
    sized: bool
    skipped: tuple[str, ...] = ()

    @property
    def truncated(self) -> bool:
        return self.total > len(self.files)

    @cached_property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @cached_property
    def aside(self) -> Mapping[str, tuple[File, ...]]:
        """The files of directories that hold other people's code or build output, by directory."""
        names = {file.path for file in self.files}
        bundles = any(_BUNDLED.fullmatch(file.path) for file in self.files if file.path.startswith("deps/"))
        found: dict[str, list[File]] = {}
        for file in self.files:
            if (
                directory := "deps/"
                if bundles and file.path.startswith("deps/")
                else _aside(file.path, names)
            ):
                found.setdefault(directory, []).append(file)
        return {directory: tuple(files) for directory, files in found.items()}

    @cached_property
    def own(self) -> tuple[File, ...]:
        """The files that are not set aside; all files if there are no others."""
        others = {file.path for files in self.aside.values() for file in files}
        return tuple(file for file in self.files if file.path not in others) or self.files

    @cached_property
    def code(self) -> tuple[File, ...]:
        return tuple(file for file in self.own if file.is_code)

    @cached_property
    def by_path(self) -> Mapping[str, File]:
        return {file.path: file for file in self.files}


def read_listing(result: Mapping[str, JsonValue], without: Iterable[str]) -> Tree:
    """The tree of a `list_files_result`, without the paths that the survey writes itself."""
    listed = result.get("files")
    names = tuple(str(path) for path in listed) if isinstance(listed, list) else ()
    stated = result.get("sizes")
    sizes = tuple(n if isinstance(n, int) else 0 for n in stated) if isinstance(stated, list) else ()
    total = result.get("total")
    omitted = max(0, total - len(names)) if isinstance(total, int) else int(result.get("truncated") is True)
    skipped = result.get("skipped")
    unlisted = tuple(str(path) for path in skipped) if isinstance(skipped, list) else ()
    return _tree(names, sizes, omitted, unlisted, frozenset(without))


# Each turn of a mission gets the same listing; to classify 50,000 files takes a second.
@lru_cache(maxsize=1)
def _tree(
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    omitted: int,
    unlisted: tuple[str, ...],
    left_out: frozenset[str],
) -> Tree:
    sized = len(sizes) == len(names)
    pairs = zip(names, sizes if sized else [0] * len(names), strict=True)
    files = _with_headers(File.of(path, size) for path, size in pairs if path not in left_out)
    return Tree(files, len(files) + omitted, sized, unlisted)


def _aside(path: str, names: set[str]) -> str:
    """The outermost directory of `path` that is set aside; empty for none."""
    for found in _ASIDE.finditer(path):
        directory, start = path[: found.end()], path[: found.end()].rstrip("/").rpartition("/")[0]
        beside = f"{start}/" if start else ""
        if found["others"] or any(f"{beside}{name}" in names for name in _WRITERS[found["output"]]):
            return directory
    return ""


def _with_headers(files: Iterable[File]) -> tuple[File, ...]:
    """`.h` is what most sources of its directory are, C or C++, else those of the nearest directory above it."""
    listed = tuple(files)
    cpp = language_of("x.cc")
    if not any(file.language is cpp for file in listed):
        return listed
    votes: Counter[str] = Counter()
    for file in listed:
        if vote := {"C": -1, cpp.name: 1}.get("" if file.name.endswith(".h") else file.language.name):
            directory = file.path
            while directory:
                directory = directory.rpartition("/")[0]
                votes[directory] += vote
    return tuple(
        file._replace(language=cpp) if file.name.endswith(".h") and _vote(file.path, votes) > 0 else file
        for file in listed
    )


def _vote(path: str, votes: Counter[str]) -> int:
    directory = path
    while directory:
        directory = directory.rpartition("/")[0]
        if votes[directory]:
            return votes[directory]
    return 0


def group(files: Iterable[File], depth: int = 0) -> dict[str, list[File]]:
    """Files by the component of their path at `depth`; those directly there under an empty name."""
    found: dict[str, list[File]] = {}
    for file in files:
        parts = file.path.split("/", depth + 1)
        name = parts[depth] if len(parts) > depth + 1 else ""
        found.setdefault(name, []).append(file)
    return found
