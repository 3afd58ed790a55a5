"""Measure confined file jobs against plain ones: open, read, list."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting
from lcp_engine.patterns import compile_patterns
from lcp_engine.policy import Policy
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.walk import list_files
from lcp_engine.workers import read_file
from lcp_engine.workers.base import Caps, Context

RG = "rg --files -j1"
SIMPLE = ["**/*.py", "*.md", "!**/node_modules/**"]
GENERAL = ["src/**/m*_?.py", "[a-z]*/*/*.md", "**/pkg?/**/*.py", "!**/node_mod*/**", "!build/*/out"]
LISTS: tuple[tuple[str, list[str], float], ...] = (
    ("suffixes and directories", SIMPLE, 1.0),
    ("any pattern", GENERAL, 2.0),
    ("everything", [], 2.0),
)


def run(setting: Setting) -> list[Figure]:
    """Three times the rounds: each takes some milliseconds only."""
    rounds = 3 * setting.rounds
    with TemporaryDirectory(dir=setting.place) as directory:
        place = Path(directory)
        return compare_opening(place / "small", rounds) + compare_listing(generate(place / "tree"), rounds)


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


def compare_opening(place: Path, rounds: int) -> list[Figure]:
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

        plain = timed(lambda: read_by_descriptor(full), unit)
        opening = race({"engine": timed(confined, unit), "plain": plain}, rounds)
        reading = race(
            {"engine": timed(worker, unit), "plain": timed(lambda: read_by_open(full), unit)}, rounds
        )
    return [
        against("open, fstat, read, close confined", "µs", opening, plain="os.open", wanted=1.2),
        against("read_file", "µs", reading, plain="open", wanted=3.0),
    ]


def read_by_descriptor(paths: list[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, os.fstat(descriptor).st_size + 1)
        os.close(descriptor)


def read_by_open(paths: list[str]) -> None:
    for path in paths:
        with open(path, "rb") as file:  # noqa: PTH123 - the plain way is what is measured
            file.read()


def compare_listing(tree: Path, rounds: int) -> list[Figure]:
    rg = shutil.which("rg")
    if rg is None:
        return [Figure("list_files", "ms", note="rg is not installed")]
    figures = []
    with Root(tree) as root:
        for label, patterns, wanted in LISTS:
            command = [rg, "--files", "-j1", "--hidden", "--no-ignore"]
            command += [part for pattern in patterns for part in ("-g", pattern)]
            compiled = compile_patterns(patterns)
            ours, theirs = set(list_files(root, "", compiled, limit=10**6).files), set(list_by(command, tree))
            if ours != theirs:
                raise SystemExit(f"{label}: {len(ours)} files, rg {len(theirs)}; {sorted(ours ^ theirs)[:5]}")
            engine = timed(partial(list_files, root, "", compiled, limit=100_000), 1e3)
            measured = race({"engine": engine, "plain": timed(partial(list_by, command, tree), 1e3)}, rounds)
            figures.append(against(f"list_files, {label}", "ms", measured, plain=RG, wanted=wanted))
    return figures


def list_by(command: list[str], tree: Path) -> list[str]:
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.splitlines()


def timed(action: Callable[[], object], unit: float) -> Contender:
    """How long the action takes, in units of which a second has `unit`."""

    def measure() -> float:
        began = time.perf_counter()
        action()
        return (time.perf_counter() - began) * unit

    return measure


def against(what: str, unit: str, measured: dict[str, list[float]], *, plain: str, wanted: float) -> Figure:
    goal = Goal(wanted, at_least=False)
    return ratio(what, unit, measured["engine"], measured["plain"], peer=plain, goal=goal)
