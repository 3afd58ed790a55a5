"""The rules of several files say of each path what git says."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from tests.tables import table

from lcp_engine.features.programs.wall.layers.ignore_rules import Scope

NAMES = ["a", "b", "ab", "a.o", "ä", "a b"]
PARTS = [*NAMES, "*", "**", "?", "*.o", "[ab]", "a*"]
Rules = Mapping[str, tuple[str, ...]]


def is_ignored(rules: Rules, path: str) -> bool:
    scope = Scope().with_rules(rules.get("", ()))
    *above, name = path.removesuffix("/").split("/")
    for one in above:
        scope = scope.enter(one)
        if not scope.is_ignored:
            scope = scope.with_rules(rules.get(scope.prefix, ()))
    return scope.ignores(name, is_directory=path.endswith("/"))


def pattern(random: Random) -> str:
    body = "/".join(random.choices(PARTS, k=random.randint(1, 3)))
    sign = random.choice(["", "", "!"])
    return f"{sign}{random.choice(['', '', '/'])}{body}{random.choice(['', '', '/', '/**'])}"


def case(random: Random) -> tuple[Rules, list[str]]:
    """Rules, and paths of files and directories ("a/") that can be there together."""
    rules = {
        prefix: tuple(pattern(random) for _ in range(random.randint(1, 4))) for prefix in ("", "a/", "a/b/")
    }
    files = {"/".join(random.choices(NAMES, k=random.randint(1, 3))) for _ in range(12)}
    directories = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)} | {
        "a",
        "a/b",
    }
    return rules, [*sorted(f"{one}/" for one in directories), *sorted(files - directories)]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_rules_of_several_files_say_what_git_says(tmp_path: Path) -> None:
    random = Random(7)
    cases = [case(random) for _ in range(200)]
    asked, ours = [], []
    for number, (rules, paths) in enumerate(cases):
        top = tmp_path / str(number)
        for path in paths:
            (top / path).mkdir(parents=True, exist_ok=True) if path.endswith("/") else (top / path).touch()
        for prefix, lines in rules.items():
            (top / prefix / ".gitignore").write_text("\n".join(lines))
        asked += [f"{number}/{path.rstrip('/')}" for path in paths]
        ours += [is_ignored(rules, path) for path in paths]
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    subprocess.run(["git", "init", "-q", tmp_path], check=True, env=environment)
    command = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
    found = subprocess.run(
        command,
        cwd=tmp_path,
        input="\0".join(asked).encode(),
        stdout=subprocess.PIPE,
        check=False,
        env=environment,
    )
    ignored = {*found.stdout.decode().split("\0")}
    wrong = [
        (path, cases[int(path.split("/")[0])][0], our)
        for path, our in zip(asked, ours, strict=True)
        if (path in ignored) is not our
    ]
    assert wrong[:5] == []
    assert any(ours)
    assert not all(ours)


@table(
    ("lines", "path", "expected"),
    [
        (["*", "!*/", "!*.txt"], "a/b.txt", False),
        (["*", "!*/", "!*.txt"], "a/b.c", True),
        (["a/", "!a/b"], "a/b", True),
        (["a/*", "!a/b"], "a/b", False),
        (["a/**", "!a/b"], "a/b", False),
        (["[", "a"], "a", True),
        (["# a", "", "\\#b"], "#b", True),
        (["a "], "a", True),
    ],
)
def test_the_last_pattern_decides_unless_a_directory_above_is_ignored(
    lines: list[str], path: str, *, expected: bool
) -> None:
    assert is_ignored({"": tuple(lines)}, path) is expected


def test_many_lines_are_read_in_order() -> None:
    lines = tuple(f"f{number}" for number in range(1000))
    assert is_ignored({"": (*lines, "!f3")}, "f4")
    assert not is_ignored({"": (*lines, "!f3")}, "f3")
    assert is_ignored({"": ("!f3", *lines)}, "f3")
