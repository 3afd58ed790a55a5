"""Measure confined file jobs against plain ones: open, read, list. Prints a table; ratios of one run count."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lcp_engine.patterns import compile_patterns
from lcp_engine.policy import Policy
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.walk import list_files
from lcp_engine.workers import read_file
from lcp_engine.workers.base import Caps, Context

SIMPLE = ["**/*.py", "*.md", "!**/node_modules/**"]
GENERAL = ["src/**/m*_?.py", "[a-z]*/*/*.md", "**/pkg?/**/*.py", "!**/node_mod*/**", "!build/*/out"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tree", type=Path, help="list this directory instead of a generated one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tree = arguments.tree or generate(Path(directory) / "tree")
        small = Path(directory) / "small"
        print(f"{'what':34}{'ours':>12}{'plain':>12}{'ratio':>8}{'wanted':>8}")
        compare_opening(small, arguments.rounds)
        compare_listing(tree, arguments.rounds)


def generate(tree: Path) -> Path:
    """100,000 files, 60,000 of them under node_modules."""
    for number in range(1000):
        place = tree / "src" / f"pkg{number % 10}" / f"d{number}"
        place.mkdir(parents=True)
        for file in range(40):
            (place / f"m{number}_{file}{('.py', '.md', '.txt', '.json')[file % 4]}").touch()
    for number in range(1500):
        place = tree / "node_modules" / f"lib{number % 100}" / f"d{number}"
        place.mkdir(parents=True)
        for file in range(40):
            (place / f"i{file}{('.js', '.py', '.md', '.ts')[file % 4]}").touch()
    return tree


def compare_opening(place: Path, rounds: int) -> None:
    names = [f"a/b/c/d{number % 50}/f{number}.py" for number in range(2000)]
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x = 1  # a line\n" * 300)
    full = [str(place / name) for name in names]
    unit = 1e6 / len(names)
    with Root(place) as root:
        context = Context(root, (), Policy().for_kind("read_file", has_effects=False, writes=False), Caps())
        params = [read_file.ReadFileParams(rel_path=name) for name in names]

        def confined() -> None:
            for name in names:
                opened = root.open_file(name)
                os.read(opened.descriptor, opened.size + 1)
                os.close(opened.descriptor)

        def worker() -> None:
            for param in params:
                read_file.execute(param, context)

        show(
            "open, fstat, read, close (us)",
            *race(confined, lambda: read_by_descriptor(full), rounds),
            unit,
            1.2,
        )
        show("read_file worker (us)", *race(worker, lambda: read_by_open(full), rounds), unit, 3.0)


def read_by_descriptor(paths: list[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, os.fstat(descriptor).st_size + 1)
        os.close(descriptor)


def read_by_open(paths: list[str]) -> None:
    for path in paths:
        with open(path, "rb") as file:  # noqa: PTH123 - the plain way is what is measured
            file.read()


def compare_listing(tree: Path, rounds: int) -> None:
    rg = shutil.which("rg")
    if rg is None:
        sys.exit("rg is not installed: nothing to compare list_files with")
    with Root(tree) as root:
        for label, patterns, wanted in (
            ("list: suffixes, directories (ms)", SIMPLE, 1.0),
            ("list: any pattern (ms)", GENERAL, 2.0),
            ("list: everything (ms)", [], 2.0),
        ):
            command = [rg, "--files", "-j1", "--hidden", "--no-ignore"]
            command += [part for pattern in patterns for part in ("-g", pattern)]
            compiled = compile_patterns(patterns)
            ours, theirs = set(list_files(root, "", compiled, limit=10**6).files), set(run(command, tree))
            if ours != theirs:
                print(f"{label}: {len(ours)} files, rg {len(theirs)}; {sorted(ours ^ theirs)[:5]}")
            show(
                label,
                *race(
                    partial(list_files, root, "", compiled, limit=100_000),
                    partial(run, command, tree),
                    rounds,
                ),
                1e3,
                wanted,
            )


def run(command: list[str], tree: Path) -> list[str]:
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.splitlines()


def race(ours: Callable[[], object], plain: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Medians in seconds; the two take turns, so that both meet the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for measured, action in zip(times, (ours, plain), strict=True):
            start = time.perf_counter()
            action()
            measured.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def show(label: str, ours: float, plain: float, unit: float, wanted: float) -> None:
    print(f"{label:34}{ours * unit:12.1f}{plain * unit:12.1f}{ours / plain:8.2f}{wanted:8.1f}")


if __name__ == "__main__":
    main()
