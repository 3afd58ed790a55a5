"""Say what stands out in a project: what is missing, large, generated, or odd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lcp_engine.planners.surveyor.findings import Tests, find_ci, licence_files
from lcp_engine.planners.surveyor.languages import Sort
from lcp_engine.planners.surveyor.manifests.model import Manifest
from lcp_engine.planners.surveyor.markdown import code, listing, number, plain, share, size
from lcp_engine.planners.surveyor.selection import is_readme
from lcp_engine.planners.surveyor.tree import File, Tree

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


def headline(sentence: str) -> str:
    """The words of a sentence without Markdown's emphasis, for a summary."""
    return sentence.replace("**", "") if "**" in sentence else plain(sentence)
