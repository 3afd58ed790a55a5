"""The paths that the names in params stand for, before anything is opened (R22)."""

from __future__ import annotations

import pytest

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.paths import Names, Place

WINDOWS = "C:\\Sheratan\\2_sheratan_core"
PLAIN = Names(("/srv/root", "/real/root"))
SEED = Names(("/srv/root",), (WINDOWS, "/workspace", "project"))


@pytest.mark.parametrize(
    ("names", "params", "path", "shown"),
    [
        (PLAIN, {"rel_path": "a.txt"}, "a.txt", "a.txt"),
        (PLAIN, {"rel_path": "./src//main.py"}, "src/main.py", "src/main.py"),
        (PLAIN, {"rel_path": "src/../a.txt"}, "a.txt", "a.txt"),
        (PLAIN, {"rel_path": "..foo"}, "..foo", "..foo"),
        (PLAIN, {"rel_path": "foo../bar"}, "foo../bar", "foo../bar"),
        (PLAIN, {"rel_path": "[...nextauth].ts"}, "[...nextauth].ts", "[...nextauth].ts"),
        (PLAIN, {"rel_path": "a\\b.txt"}, "a\\b.txt", "a\\b.txt"),
        (PLAIN, {"rel_path": "C:foo"}, "C:foo", "C:foo"),
        (PLAIN, {"root": "/srv/root", "rel_path": "a"}, "a", "a"),
        (PLAIN, {"root": "/real/root/", "rel_path": "a"}, "a", "a"),
        (PLAIN, {"root": ".", "rel_path": "a"}, "a", "a"),
        (PLAIN, {"root": "src", "rel_path": "main.py"}, "src/main.py", "main.py"),
        (PLAIN, {"root": "/srv/root/src", "rel_path": "main.py"}, "src/main.py", "main.py"),
        (PLAIN, {"path": "/srv/root/./src//main.py"}, "src/main.py", "src/main.py"),
        (PLAIN, {"path": "/srv/root/src/main.py", "root": "src"}, "src/main.py", "main.py"),
        (PLAIN, {"path": "src/main.py"}, "src/main.py", "src/main.py"),
        (SEED, {"root": WINDOWS, "rel_path": "config.json"}, "config.json", "config.json"),
        (SEED, {"root": WINDOWS, "rel_path": "core\\main.py"}, "core/main.py", "core/main.py"),
        (SEED, {"rel_path": "core\\main.py"}, "core/main.py", "core/main.py"),
        (SEED, {"path": f"{WINDOWS}\\core\\main.py"}, "core/main.py", "core/main.py"),
        (SEED, {"path": "c:/sheratan/2_SHERATAN_core/Core/Main.py"}, "Core/Main.py", "Core/Main.py"),
        (SEED, {"root": f"{WINDOWS}\\core\\", "rel_path": "main.py"}, "core/main.py", "main.py"),
        (SEED, {"path": "/workspace/core/main.py"}, "core/main.py", "core/main.py"),
        (SEED, {"root": "project", "rel_path": "a"}, "a", "a"),
    ],
)
def test_a_name_beneath_the_root(names: Names, params: dict[str, str], path: str, shown: str) -> None:
    assert names.place(**params) == Place(path, shown)


@pytest.mark.parametrize(
    ("names", "params"),
    [
        (PLAIN, {"rel_path": "/etc/passwd"}),
        (PLAIN, {"rel_path": "/srv/root/a.txt"}),
        (PLAIN, {"rel_path": "../x"}),
        (PLAIN, {"rel_path": "a/../../x"}),
        (PLAIN, {"rel_path": "..\\x"}),
        (PLAIN, {"rel_path": "C:\\x"}),
        (PLAIN, {"rel_path": "\\\\server\\share"}),
        (PLAIN, {"root": "/", "rel_path": "etc/passwd"}),
        (PLAIN, {"root": "/work", "rel_path": "root/a"}),
        (PLAIN, {"root": "/srv/root/../x", "rel_path": "a"}),
        (PLAIN, {"root": "/srv/root-evil", "rel_path": "a"}),
        (PLAIN, {"root": "..", "rel_path": "root/a"}),
        (PLAIN, {"root": "src", "rel_path": "../a"}),
        (PLAIN, {"root": WINDOWS, "rel_path": "a"}),
        (PLAIN, {"path": "/srv/root/../root/a.txt"}),
        (PLAIN, {"path": "/proc/self/root/srv/root/a"}),
        (PLAIN, {"path": "/srv/root/a", "root": "src"}),
        (PLAIN, {"path": "/srv/root/srcx", "root": "src"}),
        (SEED, {"path": f"{WINDOWS}_evil\\a"}),
        (SEED, {"path": f"{WINDOWS}\\..\\a"}),
        (SEED, {"path": "D:\\Sheratan\\2_sheratan_core\\a"}),
        (SEED, {"path": "/Workspace/a"}),
    ],
)
def test_a_name_outside_the_root_is_refused(names: Names, params: dict[str, str]) -> None:
    with pytest.raises(LcpError) as refused:
        names.place(**params)
    assert refused.value.code is ErrorCode.PATH_OUTSIDE_ROOT


@pytest.mark.parametrize("name", ["a" * 256, "ä" * 128, "d/" * 2100 + "f", "a\0b", "a\ud800"])
def test_a_name_that_no_file_can_have_is_invalid(name: str) -> None:
    with pytest.raises(LcpError) as refused:
        PLAIN.place(rel_path=name)
    assert refused.value.code is ErrorCode.INVALID_PARAMS


@pytest.mark.parametrize("name", [".", "src/", "src/.", "src/..", "./"])
def test_a_name_that_ends_like_a_directory_names_one(name: str) -> None:
    assert PLAIN.place(rel_path=name).is_directory


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("docs/a.md", "docs/a.md"),
        ("./docs//a.md", "docs/a.md"),
        (f"{WINDOWS}/docs\\a.md", "docs/a.md"),
        (f"{WINDOWS}\\docs\\a.md", "docs/a.md"),
        ("/srv/root/docs/a.md", "docs/a.md"),
        ("/elsewhere/.env", "elsewhere/.env"),
        ("../x", "../x"),
    ],
)
def test_rules_see_any_spelling_relative_to_the_root(path: str, relative: str) -> None:
    assert SEED.relative(path) == relative
