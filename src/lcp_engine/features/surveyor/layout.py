"""Summarise a tree by directories: how much each holds, and which packages lie in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lcp_engine.features.surveyor.builds.manifest import Manifest
from lcp_engine.features.surveyor.languages import Sort
from lcp_engine.features.surveyor.tree import File, Tree, group

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
    package: str


def lay_out(tree: Tree, manifests: Sequence[Manifest]) -> list[Row]:
    """Directories at the top, the largest first, and what is inside those that hold most of the code."""
    named = {m.path.rpartition("/")[0]: m for m in reversed(manifests) if m.name}
    rows = list(_rows(tree.own, "", 0, sum(file.size for file in tree.code) or tree.size, named))
    if len(tree.own) < len(tree.files):
        others = [file for files in tree.aside.values() for file in files]
        rows.append(Row("… set aside", 0, len(others), sum(file.size for file in others), "", ""))
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
        yield _place(path, depth, inside, _package(path, named))
        held = sum(file.size for file in inside if file.is_code)
        if depth < 2 and held >= 0.4 * code and len(group(inside, path.count("/"))) > 1:
            yield from _rows(inside, path, depth + 1, code, named)
    if rest := [file for _, inside in ordered[most:] for file in inside]:
        yield _place(f"… {len(ordered) - most:,} more", depth, rest, "")
    if loose and not depth:
        yield _place("", depth, loose, "")


def _through(files: Sequence[File], path: str) -> str:
    """The innermost directory that still holds all of `files`, as a path through those that hold nothing else."""
    while True:
        groups = group(files, path.count("/"))
        if len(groups) != 1 or "" in groups:
            return path
        path = f"{path}{next(iter(groups))}/"


def _place(path: str, depth: int, files: Sequence[File], package: str) -> Row:
    mostly = _mostly(files) if path else ""
    return Row(path, depth, len(files), sum(file.size for file in files), mostly, package)


def _mostly(files: Sequence[File]) -> str:
    """The language most of `files` are in: by bytes of code, else by number."""
    code: Counter[str] = Counter()
    for file in files:
        if file.is_code:
            code[file.language.name] += file.size + 1
    others = Counter(file.language.name for file in files if file.language.sort is not Sort.OTHER)
    counted = code or others
    return min(counted, key=lambda name: (-counted[name], name)) if counted else ""


def _package(path: str, named: Mapping[str, Manifest]) -> str:
    manifest = named.get(path.rstrip("/"))
    return f"{manifest.name} ({manifest.ecosystem})" if manifest else ""
