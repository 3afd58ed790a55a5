"""Recognise from the files of a project what runs its tests. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Read: TypeAlias = Callable[[str], str]
"""The beginning of a file by its path in the root; empty if it cannot be read."""


@dataclass(frozen=True)
class Suite:
    """The command that runs the tests of a project, with variables that it needs where there is no network."""

    command: str
    environment: str = ""


def recognised_suite(names: Collection[str], read: Read) -> Suite | None:
    """The command for the tests of a project with these paths, of which directories end in "/"; None if none is known.

    Of several the first counts: a language before the build tools that are used with any of them.
    """
    known = set(names)
    return next((found for one in _KNOWN if (found := one(known, read)) is not None), None)


def paths_to_look_at(names: Sequence[str]) -> list[str]:
    """The directories, among the names at the top of a root, whose names tell something, too."""
    return [name for name in names if name in _LOOKED_INTO]


_LOOKED_INTO = {
    "tests/",
    "test/",
    "t/",
    "spec/",
    ".venv/",
    "venv/",
    ".venv/bin/",
    "venv/bin/",
    "vendor/",
    "vendor/bin/",
}
_Found: TypeAlias = Suite | None


def _rust(names: set[str], read: Read) -> _Found:
    if "Cargo.toml" not in names:
        return None
    of_all = " --workspace" if re.search(r"^\[workspace", read("Cargo.toml"), re.MULTILINE) else ""
    return Suite(f"cargo test{of_all}", "CARGO_NET_OFFLINE=true")


def _go(names: set[str], _: Read) -> _Found:
    return Suite("go test ./...", "GOPROXY=off") if "go.mod" in names else None


_NO_TESTS = "no test specified"  # what `npm init` writes
_NODE = (
    ("pnpm-lock.yaml", "pnpm"),
    ("pnpm-workspace.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
)


def _node(names: set[str], read: Read) -> _Found:
    if "package.json" not in names:
        return Suite("deno test") if names & {"deno.json", "deno.jsonc"} else None
    try:
        stated = json.loads(read("package.json"))
    except ValueError:
        return None
    scripts = stated.get("scripts") if isinstance(stated, dict) else None
    test = scripts.get("test") if isinstance(scripts, dict) else None
    manager = next((name for lock, name in _NODE if lock in names), "npm")
    if isinstance(test, str) and _NO_TESTS not in test:
        return Suite(f"{manager} run test" if manager == "bun" else f"{manager} test")
    if isinstance(stated, dict) and stated.get("workspaces") and manager == "npm":
        return Suite("npm test --workspaces --if-present")
    return Suite("pnpm -r test") if "pnpm-workspace.yaml" in names else None


_PYTHON = {"pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "conftest.py", "manage.py"}
_TEST_FILE = re.compile(r"(?:tests?/)?(?:test_\w+|\w+_test|tests)\.py")
_OF_PYTEST = re.compile(r"\bpytest\b")


def _python(names: set[str], read: Read) -> _Found:
    tests = sorted(name for name in names if _TEST_FILE.fullmatch(name))
    if not tests and not names & _PYTHON:
        return None
    place = next((f"{name}/bin/" for name in (".venv", "venv") if f"{name}/bin/" in names), "")
    python = next(
        (f"{place}{name}" for name in ("python3", "python") if place and f"{place}{name}" in names), "python3"
    )
    if "manage.py" in names and "django" in read("manage.py"):
        return Suite(f"{python} manage.py test")
    told = [name for name in (*sorted(_PYTHON), "tests/conftest.py", "requirements-dev.txt") if name in names]
    texts = [read(name) for name in tests[:20]]
    is_pytest = (
        bool(names & {"conftest.py", "tests/conftest.py", "pytest.ini", f"{place}pytest"} - {"pytest"})
        or any(_OF_PYTEST.search(read(name)) for name in told)
        or any(_OF_PYTEST.search(text) or re.search(r"^def test", text, re.MULTILINE) for text in texts)
    )
    if not is_pytest:
        return Suite(f"{python} -m unittest") if any("unittest" in text for text in texts) else None
    return Suite(
        f"{place}pytest" if f"{place}pytest" in names else f"{python} -m pytest" if place else "pytest"
    )


def _jvm(names: set[str], _: Read) -> _Found:
    if "pom.xml" in names:
        return Suite(f"{'./mvnw' if 'mvnw' in names else 'mvn'} -o -B test")
    if names & {"build.gradle", "build.gradle.kts"}:
        return Suite(f"{'./gradlew' if 'gradlew' in names else 'gradle'} --offline test")
    return None


_TARGETS = re.compile(r"^(?:[^\s:=#][^:=\n]*[ \t])?(test|check)(?:[ \t][^:=\n]*)?:(?!=)", re.MULTILINE)


def _make(names: set[str], read: Read) -> _Found:
    file = next((name for name in ("GNUmakefile", "makefile", "Makefile") if name in names), None)
    targets = set(_TARGETS.findall(read(file))) if file else set[str]()
    return next((Suite(f"make {name}") for name in ("test", "check") if name in targets), None)


def _cmake(names: set[str], read: Read) -> _Found:
    if "CMakeLists.txt" not in names:
        return Suite("meson test -C build") if "meson.build" in names else None
    if not re.search(
        r"\b(?:enable_testing|add_test|include\s*\(\s*CTest)\b", read("CMakeLists.txt"), re.IGNORECASE
    ):
        return None
    # It configures, builds and tests in one command, as there is no shell.
    generator = "--build-generator 'Unix Makefiles'"
    return Suite(f"ctest --build-and-test . build {generator} --test-command ctest --output-on-failure")


def _others(names: set[str], _: Read) -> _Found:
    for files, command in _BY_FILE:
        if names & files:
            return Suite(command)
    if any(name.startswith("t/") and name.endswith(".t") for name in names):
        return Suite("prove -lr t")
    if "spec/" in names and names & {"Gemfile", ".rspec", "spec/spec_helper.rb"}:
        return Suite("bundle exec rspec" if "Gemfile" in names else "rspec")
    return (
        Suite("dotnet test --no-restore")
        if any(name.endswith((".sln", ".csproj")) for name in names)
        else None
    )


_BY_FILE: Sequence[tuple[set[str], str]] = (
    ({"vendor/bin/phpunit"}, "vendor/bin/phpunit"),
    ({"phpunit.xml", "phpunit.xml.dist"}, "phpunit"),
    ({"mix.exs"}, "mix test"),
    ({"Package.swift"}, "swift test"),
    ({"build.zig"}, "zig build test"),
    ({"pubspec.yaml"}, "dart test"),
    ({"stack.yaml"}, "stack test"),
    ({"cabal.project"}, "cabal test"),
    ({"Rakefile"}, "rake test"),
)
_KNOWN: Sequence[Callable[[set[str], Read], _Found]] = (
    _rust,
    _go,
    _node,
    _python,
    _jvm,
    _cmake,
    _make,
    _others,
)
