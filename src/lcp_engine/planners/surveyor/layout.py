"""Summarise a tree by directories: how much each holds, and what it seems to be for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lcp_engine.planners.surveyor.languages import Sort
from lcp_engine.planners.surveyor.manifests import Manifest, is_manifest
from lcp_engine.planners.surveyor.tree import File, Tree, group

_MOST_DIRECTORIES = 24
_MOST_INNER = 12


@dataclass(frozen=True)
class Row:
    """A directory (`path` ends in `/`; empty for the files at the top), or the rest (`path` begins with `…`)."""

    path: str
    depth: int
    files: int
    size: int
    mostly: str
    purpose: str


def lay_out(tree: Tree, manifests: Sequence[Manifest]) -> list[Row]:
    """Directories at the top, the largest first, and what is inside those that hold most of the code."""
    named = {m.path.rpartition("/")[0]: m for m in reversed(manifests) if m.name}
    rows = list(_rows(tree.own, "", 0, sum(file.size for file in tree.code) or tree.size, named))
    if len(tree.own) < len(tree.files):
        others = [file for file in tree.files if file.is_vendored]
        rows.append(_place("… other people's directories", 0, others, "see what stands out"))
    return rows


def _rows(
    files: Sequence[File], prefix: str, depth: int, code: int, named: Mapping[str, Manifest]
) -> Iterator[Row]:
    start = prefix.count("/")
    groups = group(files, start)
    loose = groups.pop("", [])
    ordered = sorted(groups.items(), key=lambda item: (-sum(f.size for f in item[1]), -len(item[1]), item[0]))
    most = _MOST_INNER if depth else _MOST_DIRECTORIES
    for name, inside in ordered[:most]:
        path = _through(inside, f"{prefix}{name}/")
        yield _place(path, depth, inside, _purpose(path, path[len(prefix) :], inside, named))
        held = sum(file.size for file in inside if file.is_code)
        if depth < 2 and held >= 0.4 * code and len(group(inside, path.count("/"))) > 1:
            yield from _rows(inside, path, depth + 1, code, named)
    if rest := [file for _, inside in ordered[most:] for file in inside]:
        yield _place(f"… {len(ordered) - most:,} more", depth, rest, "")
    if loose and not depth:
        yield _place("", depth, loose, "files at the top")


def _through(files: Sequence[File], path: str) -> str:
    """The innermost directory that still holds all of `files`, as a path through those that hold nothing else."""
    while True:
        groups = group(files, path.count("/"))
        if len(groups) != 1 or "" in groups:
            return path
        path = f"{path}{next(iter(groups))}/"


def _place(path: str, depth: int, files: Sequence[File], purpose: str) -> Row:
    mostly = _mostly(files) if path else ""
    return Row(path, depth, len(files), sum(file.size for file in files), mostly, purpose)


def _mostly(files: Sequence[File]) -> str:
    """The language most of `files` are in: by bytes of code, else by number."""
    code: Counter[str] = Counter()
    for file in files:
        if file.is_code:
            code[file.language.name] += file.size + 1
    others = Counter(file.language.name for file in files if file.language.sort is not Sort.OTHER)
    counted = code or others
    return min(counted, key=lambda name: (-counted[name], name)) if counted else ""


_PURPOSES = {
    "sources": "src lib source sources pkg internal app core",
    "tests": "test tests __tests__ spec specs testing e2e testsuite integration-tests",
    "documentation": "doc docs documentation man manual website site book wiki",
    "examples": "example examples demo demos sample samples tutorials quickstart",
    "scripts and tools": "script scripts tools tool bin hack devtools util utils contrib",
    "continuous integration": ".github .gitlab .circleci .ci ci .buildkite .woodpecker .forgejo",
    "benchmarks": "bench benches benchmark benchmarks perf",
    "packages of a workspace": "packages crates apps modules workspaces plugins extensions components services",
    "commands": "cmd cmds commands cli",
    "static files": "static assets public resources res media images img icons fonts styles",
    "templates": "templates template views layouts partials",
    "database migrations": "migrations migration alembic migrate schema",
    "test data": "fixtures testdata test-data cassettes snapshots",
    "configuration": "config configs conf settings .config etc",
    "deployment": "deploy deployment k8s kubernetes helm charts terraform ansible docker infra packaging",
    "translations": "locale locales i18n l10n translations lang po",
    "data": "data datasets dataset",
    "headers": "include includes inc headers",
    "other people's code": "third_party thirdparty 3rdparty external extern _vendor vendored",
    "interface definitions": "proto protos api apis openapi graphql schemas",
    "editor settings": ".vscode .zed .devcontainer",
    "pages": "pages routes",
    "type declarations": "types typings stubs",
    "missions": "missions",
}
_BY_NAME = {name: purpose for purpose, names in _PURPOSES.items() for name in names.split()}


def _purpose(path: str, own: str, files: Sequence[File], named: Mapping[str, Manifest]) -> str:
    """From a manifest in it, its `own` name, or its content."""
    manifest = named.get(path.rstrip("/"))
    if manifest:
        return f"{manifest.ecosystem} package {manifest.name}"
    for part in reversed(own.lower().rstrip("/").split("/")):
        if part in _BY_NAME:
            return _BY_NAME[part]
    return _from_content(path, files)


def _from_content(path: str, files: Sequence[File]) -> str:
    here = {file.name for file in files if file.path == path + file.name}
    if any(is_manifest(path + name) for name in here if not name.endswith(".txt")):
        return "a package of its own"
    if "__init__.py" in here:
        return "Python package"
    code = [file for file in files if file.is_code]
    if code and sum(file.is_test for file in code) > len(code) / 2:
        return "tests"
    sorts = Counter(file.language.sort for file in files)
    sort, count = max(sorts.items(), key=lambda item: (item[1], item[0]))
    if sort is Sort.OTHER or count < 0.6 * len(files):
        return ""
    return {Sort.CODE: "sources", Sort.BINARY: "binary files"}.get(sort, sort.value)
