"""Compare the engine with its peers in one run, and write the figures to benchmarks/results.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.machine import describe, fsync
from benchmarks.setting import PROJECT, Setting
from benchmarks.table import as_page, as_text

CASES = (
    "enqueue", "crowd", "drain", "latency", "decisions", "history", "pruning", "files", "overhead", "cost", "rescue",
    "startup", "programs", "commands", "memory", "limits", "plans", "stages", "pages", "telemetry",
)  # fmt: skip
PEERS = PROJECT / ".venv-bench" / "bin" / "python"


def main() -> None:
    options = _options()
    with TemporaryDirectory(dir=options.directory) as directory:
        setting = Setting(options.rounds, options.seconds, Path(directory), options.postgres, options.peers)
        machine = describe(setting)
        figures: list[Figure] = []
        for case in options.cases or CASES:
            print(f"{case} …", file=sys.stderr, flush=True)
            figures += _case(case)(setting)
        machine["fdatasync afterwards"] = fsync(setting.place)
    print(as_text(figures))
    options.output.write_text(as_page(figures, machine, options.rounds, options.seconds), encoding="utf-8")


class Options(argparse.Namespace):
    """The command line."""

    cases: list[str]
    rounds: int
    seconds: float
    directory: Path | None
    postgres: str | None
    peers: Path | None
    output: Path


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[[], *CASES], help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long each works in a round (1)")
    parser.add_argument("--directory", type=Path, help="where scratch files are created: the disk to measure")
    parser.add_argument(
        "--postgres", default=os.environ.get("LCP_TEST_POSTGRES_URL"), help="the URL of a server"
    )
    parser.add_argument("--peers", type=Path, default=PEERS if PEERS.exists() else None, help="their Python")
    parser.add_argument("--output", type=Path, default=PROJECT / "benchmarks" / "results.md")
    return parser.parse_args(namespace=Options())


def _case(name: str) -> Callable[[Setting], list[Figure]]:
    run: Callable[[Setting], list[Figure]] = import_module(f"benchmarks.{name}").run
    return run


if __name__ == "__main__":
    main()
