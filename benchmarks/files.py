"""Compare confined file jobs with plain file operations: open, read, list, search."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting
from lcp_engine import Engine, run_job
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.core.policy import Policy
from lcp_engine.engine import missions
from lcp_engine.sandbox.reading.list_tree import list_files
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.workers import read_file
from lcp_engine.workers.base import Caps, Context
from lcp_engine.workers.write_file import WRITE_FILE

WRITES = 100
READS = 1000
CONTENT = "x" * 4096
NEVER_ASKED: dict[str, JsonValue] = {
    "goal": "Be measured.",
    "planner": {"type": "script", "replies": []},
    "policy": [{"kinds": ["write_file"], "do": "auto"}],
}
RG = "rg --files -j1"
SIMPLE = ["**/*.py", "*.md", "!**/node_modules/**"]
GENERAL = ["src/**/m*_?.py", "[a-z]*/*/*.md", "**/pkg?/**/*.py", "!**/node_mod*/**", "!build/*/out"]
LISTS: tuple[tuple[str, list[str], float], ...] = (
    ("suffixes and directories", SIMPLE, 1.0),
    ("any pattern", GENERAL, 2.0),
    ("everything", [], 2.0),
)


SEARCHES: tuple[tuple[str, dict[str, JsonValue], list[str]], ...] = (
    ("a text", {"text": "needle"}, ["-F", "needle"]),
    ("a pattern", {"text": "n[e]+dle", "is_pattern": True}, ["n[e]+dle"]),
    ("a text in any case", {"text": "NeedLe", "ignore_case": True}, ["-Fi", "NeedLe"]),
)


def run(setting: Setting) -> list[Figure]:
    """Three times as many rounds: each takes only some milliseconds."""
    rounds = 3 * setting.rounds
    with TemporaryDirectory(dir=setting.place) as directory:
        place = Path(directory)
        return [
            *compare_opening(place / "small", rounds),
            compare_writing(setting, place / "written", Isolation.OFF),
            compare_writing(setting, place / "confined", Isolation.AUTO),
            compare_isolation(setting, place / "read"),
            weigh_reading(setting, place),
            *compare_listing(generate(place / "tree"), rounds),
            *compare_searching(write_texts(place / "texts"), rounds),
        ]


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
        against("open, fstat, read, close confined", "µs", opening, plain="os.open", wanted=1.15),
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


def compare_writing(setting: Setting, place: Path, isolation: Isolation) -> Figure:
    """One job for each file: claim it, record the intent, replace the file, close the intent, settle the job.

    The first jobs, which start the confined process, are left out.
    """
    (place / "ours").mkdir(parents=True)
    (place / "plain").mkdir()
    with setting.sqlite() as url, Engine(url, isolation=isolation) as engine:
        unit = 1e6 / WRITES
        mission = engine.launch(NEVER_ASKED, root=place / "ours").id

        def journaled() -> float:
            engine.instance.database.write(lambda tx: _fill(ledger_of(tx), mission))
            began = time.perf_counter()
            engine.work(until_idle=True, mission_id=mission, kinds=[WRITE_FILE.kind])
            return (time.perf_counter() - began) * unit

        def plain() -> None:
            for number in range(WRITES):
                write_durably(place / "plain", f"f{number}", CONTENT.encode())

        journaled()
        measured = race({"engine": journaled, "plain": timed(plain, unit)}, setting.rounds)
        assert all(
            job.state == "succeeded" for job in engine.jobs(mission_id=mission, kinds=[WRITE_FILE.kind])
        )
    plainly = "temporary file, fsync, rename, fsync of the directory"
    how = "journaled" if isolation is Isolation.OFF else "journaled, in a confined process"
    return against(f"write_file of 4 KiB, {how}", "µs", measured, plain=plainly, wanted=4.0)


def compare_isolation(setting: Setting, place: Path) -> Figure:
    """What a confined process adds to the cost of a job; the first jobs, which start it, are left out."""
    place.mkdir()
    (place / "a.txt").write_text("x = 1  # a line\n" * 20)
    unit = 1e6 / READS
    with ExitStack() as stack:

        def reading(isolation: Isolation) -> Contender:
            engine = stack.enter_context(Engine(stack.enter_context(setting.sqlite()), isolation=isolation))
            mission = engine.launch(NEVER_ASKED, root=place).id

            def read() -> float:
                engine.instance.database.write(lambda tx: _fill_reads(ledger_of(tx), mission))
                began = time.perf_counter()
                engine.work(until_idle=True, mission_id=mission, kinds=[read_file.WORKER.kind])
                return (time.perf_counter() - began) * unit

            return read

        contenders = {one.value: reading(one) for one in (Isolation.AUTO, Isolation.OFF)}
        measured = race(contenders, 3 * setting.rounds)
    more = [mine - other for mine, other in zip(measured["auto"], measured["off"], strict=True)]
    return Figure(
        "read_file of a small file, job by job, in a confined process: more than in the runner", "µs",
        statistics.median(measured["auto"]), peer="in the runner", theirs=statistics.median(measured["off"]),
        value=statistics.median(more), goal=Goal(60, at_least=False, unit="µs"),
    )  # fmt: skip


def weigh_reading(setting: Setting, place: Path) -> Figure:
    """Read a file of 1 GB as a whole, which exceeds the cap, and then its last line."""
    with (place / "large.txt").open("w") as file:
        for _ in range(1000):
            file.write("0123456789 a line\n" * 55_556)
    with setting.sqlite() as url:
        with Engine(url) as engine:
            mission = engine.launch(NEVER_ASKED, root=place).id
            for more in ({}, {"offset": 55_556_000 - 1}):
                engine.enqueue(read_file.WORKER.kind, {"rel_path": "large.txt", **more}, mission_id=mission)
        memory = setting.run_engine("engine_growth", url)
        with Engine(url) as engine:
            states = [job.state for job in engine.jobs(mission_id=mission, kinds=[read_file.WORKER.kind])]
    assert states == ["failed", "succeeded"]
    (place / "large.txt").unlink()
    return Figure(
        "memory of a runner that reads the last line of 1 GB", "MiB", memory, value=memory,
        goal=Goal(80, at_least=False, unit="MiB"),
    )  # fmt: skip


def _fill_reads(ledger: Ledger, mission: int) -> None:
    for _ in range(READS):
        missions.enqueue(
            ledger, read_file.WORKER.for_any_params(), mission, {"rel_path": "a.txt"},
            name=None, priority=0, run_after=None,
        )  # fmt: skip


def _fill(ledger: Ledger, mission: int) -> None:
    for number in range(WRITES):
        params: dict[str, JsonValue] = {"rel_path": f"f{number}", "content": CONTENT}
        missions.enqueue(
            ledger, WRITE_FILE.for_any_params(), mission, params, name=None, priority=0, run_after=None
        )


def write_durably(directory: Path, name: str, content: bytes) -> None:
    temporary = f"{directory}/.{name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, f"{directory}/{name}")  # noqa: PTH104 - the plain way is what is measured
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(place)
    os.close(place)


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


def write_texts(tree: Path) -> Path:
    """20,000 files of some hundred bytes to 3 KB, of which every 500th contains the text that is searched."""
    chance = random.Random(1)
    words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5000)]
    for number in range(20_000):
        file = tree / f"pkg{number % 20}" / f"mod{number % 200}" / f"file{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            " ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(chance.randint(5, 60))
        ]
        if number % 500 == 0:
            lines.append("a needle")
        file.write_text("\n".join(lines))
    return tree


def compare_searching(tree: Path, rounds: int) -> list[Figure]:
    """Jobs of the kind search_files, judged and confined path by path like any other."""
    rg = shutil.which("rg")
    if rg is None:
        return [Figure("search_files", "ms", note="rg is not installed")]
    figures = []
    with Root(tree) as root:
        for label, params, options in SEARCHES:
            command = [rg, "-j1", "--hidden", "--no-ignore", "-n", "--no-heading", *options, "."]
            ours = run_job("search_files", params, root).result
            theirs = {line.removeprefix("./") for line in list_by(command, tree)}
            assert isinstance(ours, dict)
            assert isinstance(ours["lines"], list)
            if set(ours["lines"]) != theirs:
                raise SystemExit(f"search_files, {label}: other lines than rg's")
            engine = timed(partial(run_job, "search_files", params, root), 1e3)
            measured = race({"engine": engine, "plain": timed(partial(list_by, command, tree), 1e3)}, rounds)
            figures.append(against(f"search_files, {label}", "ms", measured, plain="rg -j1", wanted=2.0))
    return figures


def list_by(command: list[str], tree: Path) -> list[str]:
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.splitlines()


def timed(action: Callable[[], object], unit: float) -> Contender:
    """Time the action, in units of 1/`unit` seconds."""

    def measure() -> float:
        began = time.perf_counter()
        action()
        return (time.perf_counter() - began) * unit

    return measure


def against(what: str, unit: str, measured: dict[str, list[float]], *, plain: str, wanted: float) -> Figure:
    goal = Goal(wanted, at_least=False)
    return ratio(what, unit, measured["engine"], measured["plain"], peer=plain, goal=goal)
