"""A listing as a tree: files, sizes, directories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pydantic import JsonValue

from lcp_engine.planners.surveyor.languages import Language, Sort, language_of

# Excluded from the listing: directories of tools and of other people's code. Plain names only, because a walk can skip
# a directory by its name without reading it.
EXCLUDED = (
    ".git", "node_modules", "vendor", ".venv", "venv", "dist", "build", "target", "out", "__pycache__", "coverage",
    ".hg", ".svn", "bower_components", "jspm_packages", "Pods", "virtualenv", ".tox", ".nox", ".eggs",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache", ".hypothesis", ".cache", ".next", ".nuxt",
    ".svelte-kit", ".turbo", ".parcel-cache", ".gradle", ".terraform", ".dart_tool", ".stack-work", "dist-newstyle",
    "_build", ".bundle", "htmlcov", ".idea", ".vs", "DerivedData",
)  # fmt: skip

_SECRET = re.compile(
    r"(?:.*/)?(?:\.ssh|\.aws|\.gnupg|secrets?)/.*"
    r"|(?:.*/)?(?:\.env(?!\.(?:example|sample|template|dist)$)(?:\.[^/]*)?|id_[^/.]*|[._]netrc|\.npmrc|\.pypirc"
    r"|\.git-credentials|\.htpasswd|[^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg)"
    r"|[^/]*(?:credential|secret|password|passwd)s?(?:\.(?:json|ya?ml|toml|ini|txt|cfg|conf|xml|properties))?)"
)
# A cheap test before the expression: 100,000 names are judged in every turn.
_MAYBE_SECRET = re.compile(
    r"\.(?:ssh|aws|gnupg|env|npmrc|pypirc|git-cred|htpass|netrc|pem|key|p12|pfx|jks|kdbx|ppk|asc|gpg)"
    r"|netrc|id_|secret|credential|passw"
)
_TEST_PLACE = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?|testing|e2e|testsuite|fixtures)/", re.IGNORECASE)
_TEST_NAME = re.compile(
    r"test_.+|.+_test\.\w+|.+\.(?:test|spec|cy|e2e)\.\w+|.+_spec\.\w+|.+Tests?\.(?:java|kt|cs|scala|swift|php|groovy)"
    r"|conftest\.py|tests?\.(?:py|js|ts|rs|c|cpp)"
)
_GENERATED = re.compile(
    r".+\.min\.(?:js|css|mjs)|.+\.(?:js|css)\.map|.+_pb2(?:_grpc)?\.pyi?|.+\.pb\.(?:go|cc|h)|.+\.g\.(?:dart|cs)"
    r"|.+\.generated\.\w+|.+[._-]generated\.\w+|.+\.designer\.cs|zz_generated.*|.+_string\.go|.+\.bundle\.js"
)
_VENDORED = re.compile(
    r"(?:^|/)(?:third_?party|3rdparty|external|_vendor|vendored|extern|site-packages|dist-packages|\.venv[^/]*)/",
    re.IGNORECASE,
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
        """Whether the name is one that secrets have; such a file is never read."""
        folded = self.path.lower()
        return bool(_MAYBE_SECRET.search(folded) and _SECRET.fullmatch(folded)) and not self._is_source

    @property
    def _is_source(self) -> bool:
        """A module about secrets contains none: its suffix is that of code."""
        return self.is_code and not self.name.startswith((".", "id_"))

    @property
    def is_readable(self) -> bool:
        """Whether a job may name it: control characters would make the reply invalid (R3)."""
        return (
            self.path.isprintable() and "\\" not in self.path and not self.is_secret and len(self.path) < 1000
        )

    @property
    def is_test(self) -> bool:
        return self.is_code and (self.lies_in_tests or bool(_TEST_NAME.fullmatch(self.name)))

    @property
    def lies_in_tests(self) -> bool:
        return bool(_TEST_PLACE.search(self.path))

    @property
    def is_generated(self) -> bool:
        return bool(_GENERATED.fullmatch(self.name))

    @property
    def is_vendored(self) -> bool:
        return bool(_VENDORED.search(self.path))


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
    def own(self) -> tuple[File, ...]:
        """The files outside of other people's directories; all files if there are no others."""
        return tuple(file for file in self.files if not file.is_vendored) or self.files

    @cached_property
    def code(self) -> tuple[File, ...]:
        return tuple(file for file in self.own if file.is_code)

    @cached_property
    def by_path(self) -> Mapping[str, File]:
        return {file.path: file for file in self.files}


def read_listing(result: Mapping[str, JsonValue], without: Iterable[str]) -> Tree:
    """The tree of a `list_files_result`, without the paths that the survey writes itself."""
    listed = result.get("files")
    names = [str(path) for path in listed] if isinstance(listed, list) else []
    stated = result.get("sizes")
    sizes = [n if isinstance(n, int) else 0 for n in stated] if isinstance(stated, list) else []
    sized = len(sizes) == len(names)
    left_out = frozenset(without)
    pairs = zip(names, sizes if sized else [0] * len(names), strict=True)
    files = tuple(File.of(path, size) for path, size in pairs if path not in left_out)
    total = result.get("total")
    omitted = max(0, total - len(names)) if isinstance(total, int) else int(result.get("truncated") is True)
    skipped = result.get("skipped")
    unlisted = tuple(str(path) for path in skipped) if isinstance(skipped, list) else ()
    return Tree(files, len(files) + omitted, sized, unlisted)


def group(files: Iterable[File], depth: int = 0) -> dict[str, list[File]]:
    """Files by the component of their path at `depth`; those directly there under an empty name."""
    found: dict[str, list[File]] = {}
    for file in files:
        parts = file.path.split("/", depth + 1)
        name = parts[depth] if len(parts) > depth + 1 else ""
        found.setdefault(name, []).append(file)
    return found
