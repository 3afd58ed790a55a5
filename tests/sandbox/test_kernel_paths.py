"""Two dots and links lead where the kernel says: the cases of Go's os.Root and of libpathrs, transcribed, in every way.

The kernel itself is the oracle: openat2 with RESOLVE_BENEATH. A way without it may refuse what passes a link; nothing
is ever written through one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.ways import OPENAT2, WAYS, Way

from lcp_engine.sandbox.system.syscalls import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, has_openat2, opener

pytestmark = pytest.mark.skipif(not has_openat2(), reason="openat2 is the oracle")


class Case(NamedTuple):
    """Directories end in "/", links are "name > target"; each file holds its own path."""

    tree: tuple[str, ...]
    path: str
    leads_to: str | None = None


GO = (
    Case(("target",), "target", "target"),
    Case(("a/b/c/target",), "a/b/c/target", "a/b/c/target"),
    Case(("link > target", "target"), "link", "target"),
    Case(("link > ../",), "link"),
    Case(("dir/target", "link > dir/"), "link/target", "dir/target"),
    Case(("link > ../ROOT/target", "target"), "link/"),
    Case(("dir/link > ../../",), "dir/link"),
    Case(
        ("link > a/b/c/target", "a/b > e", "a/e > ../f", "f > g/h/i", "g/h/i > ..", "g/c/target"),
        "link",
        "g/c/target",
    ),
    Case(("a/b/target",), "./a/./b/./target", "a/b/target"),
    Case(("a/b/target",), "a/../a/b/../../a/b/../b/target", "a/b/target"),
    Case((), "../"),
    Case(("a/",), "a/../../"),
    Case(("a/", "target"), "a/../target", "target"),
    Case(("a > b/c", "b/c/", "b/target", "target"), "a/../target", "b/target"),
    Case(("a > b/c", "b/c/target"), "b/../a/target", "b/c/target"),
    Case(("a > b/.", "b/target"), "a/target", "b/target"),
    Case((), "a/file"),
    Case(("a > a",), "a"),
    Case(("target",), "../ROOT/target"),
    Case(("a/", "target"), "a/../../ROOT/target"),
    Case(("link > $ROOT/target", "target"), "link"),
    Case(("link > ../ROOT/target", "target"), "link"),
    Case(("link > a/b/c/target", "a/b > e", "a/e > ../../ROOT", "c/target"), "link"),
)
LIBPATHRS_TREE = (
    *("a/", "b/c/d/e/f/", "b/c/file", "e > /b/c/d/e", "b-file > b/c/file", "root-link1 > /", "root-link2 > /.."),
    *("root-link3 > /../../../../..", "a-fake1 > a/fake", "a-fake2 > a/fake/foo/bar/..", "a-fake3 > a/fake/../../b"),
    *("c/a-fake1 > /a/fake", "c/a-fake2 > /a/fake/foo/bar/..", "c/a-fake3 > /a/fake/../../b", "target/"),
    *("link1/target_abs > /target", "link1/target_rel > ../target", "link2/link1_abs > /link1"),
    *("link2/link1_rel > ../link1", "link3/target_abs > /link2/link1_rel/target_rel"),
    "link3/target_rel > ../link2/link1_rel/target_rel",
    "link3/deep_dangling1 > ../link2/link1_rel/target_rel/nonexist",
    *("dangling/a > b/c", "dangling/b/c > ../c", "dangling/c > d/e", "dangling/d/e > ../e", "dangling/e > f/../g"),
    *("dangling/f/", "dangling/g > h/i/j/nonexistent", "dangling/h/i/j/", "dangling-file/a > b/c"),
    *("dangling-file/b/c > ../c", "dangling-file/c > d/e", "dangling-file/d/e > ../e", "dangling-file/e > f/../g"),
    *("dangling-file/f/", "dangling-file/g > h/i/j/file/foo", "dangling-file/h/i/j/file"),
    *("loop/basic-loop1 > basic-loop1", "loop/basic-loop3 > ../loop/basic-loop3", "loop/a/link > ../b/link"),
    *("loop/b/link > /loop/c/link", "loop/c/link > /loop/d/link", "loop/d > e", "loop/e/link > ../a/link"),
    *("loop/link > a/link", "target/found", "link1/found", "found"),
)  # fmt: skip
LIBPATHRS = tuple(
    Case(LIBPATHRS_TREE, path)
    for path in (
        *("b/c/file", "b-file", "e/f", "root-link1/found", "root-link2/found", "root-link3/found", "a/b/c/d/e/f/g/h"),
        *("a/foo/../bar/baz", "b///././c////.//d/./././///e////.//./../../file", "target/found", "target//found"),
        *("target/../target/found", "target/../target/foo/bar/../baz", "link1/target_abs/found"),
        *("link1/target_rel/found", "link1/target_rel/../found", "link1/target_rel/../target/found"),
        *("link1/target_rel/../link1/found", "link2/link1_rel/found", "link2/link1_rel/../found"),
        *("link2/link1_rel/target_rel/found", "link2/link1_rel/target_rel/../found"),
        "link2/link1_abs/target_rel/found",
        *("link3/target_rel/found", "link3/target_rel/../found", "link3/target_rel/../link1/found"),
        "link3/target_abs/found",
        *("link3/deep_dangling1", "a-fake1", "a-fake2", "a-fake3", "c/a-fake1", "c/a-fake2", "c/a-fake3"),
        *("dangling/a", "dangling/b/c", "dangling/c", "dangling/e", "dangling/g", "dangling-file/a", "dangling-file/g"),
        *("loop/basic-loop1", "loop/basic-loop3", "loop/a/link", "loop/link", "loop/link/..", "loop/a/link/../found"),
        *("b/c/d/../../../found", "a/../b/c/file", "gone/../found", "b/c/file/../file", "link1/gone/../found"),
    )
)  # fmt: skip
CASES = (*GO, *LIBPATHRS)
LOOSE = {"walk"}
"""Ways that follow no link."""


def build(place: Path, tree: tuple[str, ...]) -> Path:
    root = place / "ROOT"
    root.mkdir()
    for entry in tree:
        name, _, target = entry.partition(" > ")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target.replace("$ROOT", str(root)))
        elif name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.write_text(name)
    return root


def by_the_kernel(root: Path, path: str) -> str | None:
    """The content of the file that the kernel opens; None if it opens no regular file."""
    directory = os.open(root, os.O_RDONLY)
    try:
        descriptor = opener(directory, os.O_RDONLY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)(path)
    except OSError:
        return None
    finally:
        os.close(directory)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return None if (root / path).is_dir() else file.read()


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("case", GO, ids=map(str, range(len(GO))))
def test_the_oracle_agrees_with_go(tmp_path: Path, case: Case) -> None:
    assert by_the_kernel(build(tmp_path, case.tree), case.path) == case.leads_to


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_file_is_read_where_the_kernel_finds_it(tmp_path: Path, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    wrong, found = [], 0
    for number, case in enumerate(CASES):
        (tmp_path / str(number)).mkdir()
        root = build(tmp_path / str(number), case.tree)
        done = way.answer(root, (), "read_file", {"rel_path": case.path})
        content = None if done.result is None else done.result["content"]
        wanted = by_the_kernel(root, case.path)
        found += content is not None
        if content != wanted and not (way.name in LOOSE and content is None):
            wrong.append(f"{case.path}: {content!r}, the kernel: {wanted!r} ({done.code})")
        if done.result is not None and content != by_the_kernel(root, str(done.result["path"])):
            wrong.append(f"{case.path}: the result names {done.result['path']!r}")
    assert wrong == []
    assert found > (8 if way.name in LOOSE else 25)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_file_is_written_where_the_kernel_finds_it_or_not_at_all(tmp_path: Path, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    wrong, written = [], 0
    for number, case in enumerate(CASES):
        (tmp_path / str(number)).mkdir()
        root = build(tmp_path / str(number), case.tree)
        leads_to, before = by_the_kernel(root, case.path), files(root)
        way.answer(root, (), "write_file", {"rel_path": case.path, "content": "new"})
        changed = [path for path, content in files(root).items() if before.get(path) != content]
        written += bool(changed)
        if [path for path in changed if path in before] not in ([], [leads_to]):
            wrong.append(f"{case.path}: {changed} changed, the kernel: {leads_to!r}")
    assert wrong == []
    assert written > 5


def test_a_directory_is_listed_where_the_kernel_finds_it_or_not_at_all(tmp_path: Path) -> None:
    root = build(tmp_path, ("a > b/c", "b/c/", "b/d/inner", "d/other"))
    done = OPENAT2.answer(root, (), "list_files", {"root": "a/../d"})
    assert done.result is None
    assert done.code == "PATH_DENIED"
    assert OPENAT2.answer(root, (), "list_files", {"root": "b/c/../d"}).result is not None


def test_policy_is_asked_about_the_file_behind_the_link(tmp_path: Path) -> None:
    root = build(tmp_path, ("a > b/c", "b/c/", "b/.env", ".env.example", "b/.env.example"))
    assert OPENAT2.answer(root, (), "read_file", {"rel_path": "a/../.env"}).code == "PATH_DENIED"
    done = OPENAT2.answer(root, (), "read_file", {"rel_path": "a/../.env.example"})
    assert done.result is not None
    assert done.result["content"] == "b/.env.example"
