"""Drain jobs of one kind with one runner; print the microseconds of each, with the start of what executes them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import benchmarks.kinds  # noqa: F401 -- registers the kinds in Python
from lcp_engine import Engine
from lcp_engine.features.programs.servers.load_files import load_workers

EXTERNAL = f"""#!{sys.executable}
import json, sys
for line in sys.stdin:
    job = json.loads(line)
    print(json.dumps({{"id": job["id"], "result": {{"number": job["params"]["number"] + 1}}}}), flush=True)
"""


def main(url: str, kind: str, backlog: int) -> None:
    with TemporaryDirectory() as directory:
        _describe(Path(directory))
        with Engine(url) as engine:
            ids = [engine.enqueue(kind, {"number": number}) for number in range(backlog)]
            began = time.perf_counter()
            engine.work(until_idle=True)
            seconds = time.perf_counter() - began
            for number, job in enumerate(ids):
                if engine.job(job).result != {"number": number + 1}:
                    raise SystemExit(f"job {job} has no result")
    print(json.dumps(1e6 * seconds / backlog))


def _describe(directory: Path) -> None:
    program = directory / "external"
    program.write_text(EXTERNAL)
    program.chmod(0o755)
    stated = {"bench.external": {"command": "./external", "long_lived": True, "has_effects": False}}
    (directory / "kinds.yaml").write_text(json.dumps(stated))
    load_workers(directory / "kinds.yaml")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
