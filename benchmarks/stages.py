"""Compare the copy that a stage is with `cp -r`, and a merge with the same writes one after the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.features.stages.private_copy import copy_privately
from lcp_engine.runner.runner import Runner
from lcp_engine.sandbox.root import Root

FILES = 10_000
BYTES = 100 * 1024
WRITES = 100
CONTENT = "x" * 4096
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


def run(setting: Setting) -> list[Figure]:
    with TemporaryDirectory(dir=setting.place) as directory:
        place = Path(directory)
        return [compare_copying(setting, place / "copied"), compare_merging(setting, place / "merged")]


def compare_copying(setting: Setting, place: Path) -> Figure:
    """A root of 10,000 files, 1 GB; what is written is on the disk before the next one begins.

    Where the file system clones files (`--directory` on Btrfs or XFS), so does `cp`, and the goal is a time.
    """
    source, target = place / "source", place / "target"
    content = os.urandom(BYTES)
    for number in range(FILES):
        file = source / f"d{number % 100}" / f"f{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def ours() -> None:
        target.mkdir()
        with Root(source) as root:
            copy_privately(root, target)

    def theirs() -> None:
        subprocess.run(["cp", "-r", source, target], check=True)

    contenders = {"engine": _copying(ours, target), "plain": _copying(theirs, target)}
    measured = race(contenders, setting.rounds)
    what = f"copy a root of {FILES:,} files, 1 GB, for a stage"
    if _clones(place):
        seconds = median(measured["engine"])
        note = f"cp -r: {median(measured['plain']):.2f}"
        return Figure(
            f"{what}, cloned", "s", seconds, value=seconds, goal=Goal(1, at_least=False, unit="s"), note=note
        )
    return ratio(
        what, "s", measured["engine"], measured["plain"], peer="cp -r", goal=Goal(1.2, at_least=False)
    )


def _clones(place: Path) -> bool:
    """Whether the file system gives a file the content of another without copying it."""
    (place / "one").write_bytes(b"1")
    command = ["cp", "--reflink=always", str(place / "one"), str(place / "another")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _copying(copy: Callable[[], None], target: Path) -> Contender:
    def timed() -> float:
        shutil.rmtree(target, ignore_errors=True)
        os.sync()
        began = time.perf_counter()
        copy()
        return time.perf_counter() - began

    return timed


def compare_merging(setting: Setting, place: Path) -> Figure:
    """Carry out an approved merge of new files, and approved jobs that write such files, one after the other."""
    unit = 1e6 / WRITES
    numbers = count()
    with setting.sqlite() as url, Engine(url) as engine:

        def mission(*, stage: bool) -> int:
            root = place / f"{next(numbers)}"
            root.mkdir(parents=True)
            jobs: list[JsonValue] = [
                {"kind": "write_file", "params": {"rel_path": f"f{number}", "content": CONTENT}}
                for number in range(WRITES)
            ]
            asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
            spec: dict[str, JsonValue] = {
                "goal": "Be measured.",
                "planner": {"type": "script", "replies": [asked, DONE]},
                "limits": {"max_followups": WRITES, "max_jobs": 2 * WRITES},
                "stage": stage,
            }
            launched = engine.launch(spec, root=root).id
            engine.work(until_idle=True, mission_id=launched)
            return launched

        def merged() -> float:
            launched = mission(stage=True)
            (merge,) = engine.jobs(mission_id=launched, kinds=["merge"])
            engine.diff(merge.id)
            engine.approve(merge.id)
            began = time.perf_counter()
            Runner(engine.instance, mission_id=launched, until_idle=True).run()
            took = time.perf_counter() - began
            assert engine.job(merge.id).state == "succeeded"
            return took * unit

        def written() -> float:
            launched = mission(stage=False)
            held = engine.jobs(mission_id=launched, kinds=["write_file"])
            for job in held:
                engine.approve(job.id)
            began = time.perf_counter()
            Runner(engine.instance, mission_id=launched, until_idle=True, max_claim=1).run()
            took = time.perf_counter() - began
            assert engine.job(held[-1].id).state == "succeeded"
            return took * unit

        measured = race({"engine": merged, "plain": written}, setting.rounds)
    return ratio(
        f"a merge of {WRITES} new files of 4 KiB, for each", "µs", measured["engine"], measured["plain"],
        peer="write_file jobs, one after the other", goal=Goal(1.2, at_least=False),
    )  # fmt: skip
