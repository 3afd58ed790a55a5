"""Kill runners at random instants while they drain a queue and carry out missions.

Usage: python -m tests.crash.kills [--kills N] [--runners N] [--every SECONDS] [--helpers] [--seed N]
    DATABASE_URL DIRECTORY

Without `--every` kills come as fast as runners start. With `--helpers` file kinds run in confined processes, and it is
mostly one of these, or the process that starts them, that is killed, ended or frozen. Prints one JSON object: what was
done, and what was found wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import BaseModel
from tests.crash.processes import ask, begin, do, end_of, has_ended, import_all
from tests.crash.stories import STORIES, Object
from tests.crash.tally import Tally
from tests.processes import family

from lcp_engine import Engine
from lcp_engine.engine import settle
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.queries.records import MissionStatus
from lcp_engine.workers.base import Context, FileEffect, Outcome, Worker

THREADS = 2
BATCH = 150
LINES = 15
FEEDERS = 16
SOON = 0.2
FROZEN_SECONDS = 11.0
"""Longer than a lease."""
RUNNERS_SHARE = 0.2
"""With `--helpers`, this share of the kills hits a runner."""
(CHANGE,) = (story for story in STORIES if story.name == "undo")


class Mark(BaseModel):
    """`n` identifies the job; `runs` is the file that records each execution."""

    n: int
    runs: str


class Line(BaseModel):
    """A line to append to a file."""

    text: str


def _mark(params: Mark, context: Context) -> Outcome:
    file = os.open(params.runs, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{params.n}\n".encode())
    os.close(file)
    time.sleep(params.n % 5 / 1000)
    return params


def _line(params: Line, context: Context) -> Outcome:
    return FileEffect("log.txt", f"{params.text}\n", "append", lambda applied: params)


WORKERS = [
    Worker(kind="mark", params=Mark, result=Mark, execute=_mark, has_effects=False).for_any_params(),
    Worker(kind="line", params=Line, result=Line, execute=_line).for_any_params(),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--runners", type=int, default=3)
    parser.add_argument("--every", type=float)
    parser.add_argument("--helpers", action="store_true")
    parser.add_argument("--seed", type=int, default=20)
    given = parser.parse_args()
    import_all(given.url)
    # A job during which five runners died fails (R17); here they are killed at random.
    settle.MAX_DEATHS = sys.maxsize
    chance = random.Random(given.seed)
    said = Slaughter(
        given.url, given.directory, given.runners, given.every, chance, helpers=given.helpers
    ).carry_out(given.kills)
    print(json.dumps(said))
    sys.exit(bool(said["problems"]))


class Slaughter:
    """Runners that are killed one after the other and replaced."""

    def __init__(
        self,
        url: str,
        directory: Path,
        runners: int,
        every: float | None,
        chance: random.Random,
        *,
        helpers: bool = False,
    ) -> None:
        self._url = url
        self._directory = directory
        self._runners = runners
        self._every = every
        self._chance = chance
        self._isolation = Isolation.AUTO if helpers else Isolation.OFF
        self._frozen: list[tuple[float, int]] = []
        self._struck: Counter[str] = Counter()
        self._errors = directory / "errors"
        self._batches = 0
        self._tally = Tally()
        self._begun = 0
        self._alive: list[int] = []
        self._problems: list[str] = []

    def carry_out(self, kills: int) -> Object:
        """Kill as many as wanted, let the others finish, and count."""
        began = time.monotonic()
        self._must(partial(_open, self._url))
        for _ in range(kills):
            self._replace()
            time.sleep(self._every or self._chance.random() * SOON)
            victim = self._chance.choice(self._alive)
            if self._isolation is Isolation.OFF or self._chance.random() < RUNNERS_SHARE:
                os.kill(victim, signal.SIGKILL)
            else:
                self._strike(victim)
            self._thaw(time.monotonic())
        self._thaw(math.inf)
        for child in self._alive:
            self._bury(child)
        self._must(self._work())
        seconds = time.monotonic() - began
        told = ask(partial(_look, self._url, self._directory, self._batches), self._directory / "answer.json")
        errors = self._errors.read_text() if self._errors.exists() else ""
        if errors:
            self._problems.append(f"somebody read on stderr: {errors[-2000:]}")
        found = told.pop("problems")
        assert isinstance(found, list)
        return {
            "seconds": round(seconds), "kills": kills, **self._struck, **told,
            "commits acknowledged": self._tally.commits,
            "ms the longest wait for one": round(1000 * self._tally.longest_wait),
            "problems": [*self._problems, *found],
        }  # fmt: skip

    def _strike(self, runner: int) -> None:
        """Kill, end or freeze one of a runner's helpers, if it has any by now."""
        helpers = family(runner)[1:]
        if not helpers:
            return
        helper = self._chance.choice(helpers)
        number = self._chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        with suppress(ProcessLookupError):
            os.kill(helper, number)
            self._struck[number.name] += 1
            if number is signal.SIGSTOP:
                frozen = self._chance.choice([SOON, FROZEN_SECONDS])
                self._frozen.append((time.monotonic() + frozen, helper))

    def _thaw(self, now: float) -> None:
        """Let helpers go on that have been frozen for long enough."""
        for until, helper in [frozen for frozen in self._frozen if frozen[0] <= now]:
            self._frozen.remove((until, helper))
            with suppress(ProcessLookupError):
                os.kill(helper, signal.SIGCONT)

    def _replace(self) -> None:
        """Start runners up to the wanted number; add jobs if one of them ran out of work."""
        ended = [child for child in self._alive if has_ended(child)]
        self._alive = [child for child in self._alive if child not in ended]
        if 0 in [self._bury(child) for child in ended] or self._batches == 0:
            self._feed()
        while len(self._alive) < self._runners:
            self._alive.append(begin(self._work(), self._errors))

    def _bury(self, child: int) -> int:
        ended = end_of(child)
        if ended not in (0, -signal.SIGKILL):
            self._problems.append(f"a runner ended with {ended}")
        return ended

    def _feed(self) -> None:
        self._batches += 1
        confined = self._isolation is not Isolation.OFF
        self._must(partial(_feed, self._url, self._directory, self._batches, confined))

    def _must(self, work: partial[None]) -> None:
        ended = do(work, self._errors)
        if ended:
            self._problems.append(f"{work} ended with {ended}")

    def _work(self) -> partial[None]:
        self._begun += 1
        return partial(_work, self._url, self._tally, self._begun, self._isolation)


def _open(url: str) -> None:
    Engine(url).close()


def _work(url: str, tally: Tally, number: int, isolation: Isolation) -> None:
    with Engine(url, workers=WORKERS, isolation=isolation) as engine:
        tally.watch(engine.instance.database, number)
        engine.work(until_idle=True, threads=THREADS)


def _feed(url: str, directory: Path, batch: int, confined: bool) -> None:
    root = directory / f"root-{batch}"
    root.mkdir()
    for path, text in CHANGE.before.items():
        (root / path).write_text(text)
    with Engine(url, workers=WORKERS, isolation="off") as engine:
        mission = engine.launch(CHANGE.spec, root=root)
        lines = engine.launch({**CHANGE.spec, "name": "lines"}, root=_made(directory / f"lines-{batch}"))
        runs = str(directory / "runs")
        marks = [
            partial(engine.enqueue, "mark", {"n": batch * BATCH + n, "runs": runs}) for n in range(BATCH)
        ]
        texts = [_params(f"{batch}-{n}", confined) for n in range(LINES)]
        kind = "write_file" if confined else "line"
        with ThreadPoolExecutor(FEEDERS) as threads:  # which share commits
            queued = [threads.submit(mark) for mark in marks]
            queued += [threads.submit(engine.enqueue, kind, text, mission_id=lines.id) for text in texts]
        assert all(job.result() for job in queued)
        assert mission.id


def _params(text: str, confined: bool) -> Object:
    """Only file kinds run in confined processes."""
    return {"rel_path": "log.txt", "content": f"{text}\n", "mode": "append"} if confined else {"text": text}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _look(url: str, directory: Path, batches: int) -> Object:
    """Which jobs were lost and which were done twice."""
    problems = [*check_database(url)]
    with Engine(url, workers=WORKERS, isolation="off") as engine:
        jobs = engine.jobs()
        succeeded = _count(
            engine, "SELECT job_id, count(*) FROM events WHERE event = 'succeeded' GROUP BY job_id"
        )
        in_flight = _count(
            engine, "SELECT job_id, count(*) FROM events WHERE event = 'rescued' GROUP BY job_id"
        )
        applied = _count(  # a move changes two
            engine,
            "SELECT job_id, max(times) FROM (SELECT job_id, count(*) AS times FROM changes WHERE state = 'applied' "
            "GROUP BY job_id, path) AS files GROUP BY job_id",
        )
        missions = Counter(mission.status for mission in engine.missions())
    lost = [job.id for job in jobs if job.state != "succeeded"]
    twice = [job for job, count in succeeded.items() if count > 1]
    runs = Counter(int(line) for line in (directory / "runs").read_text().split())
    number = {job.id: int(str(job.params["n"])) for job in jobs if job.kind == "mark"}
    again = sum(runs.values()) - len(runs)
    problems += [f"job {job} was lost" for job in lost]
    problems += [f"job {job} was completed twice" for job in twice]
    problems += [f"job {job} changed a file {count} times" for job, count in applied.items() if count > 1]
    problems += [
        f"job {job} ran {runs[n]} times and was in flight at {in_flight[job]} deaths"
        for job, n in number.items()
        if not 1 <= runs[n] <= 1 + in_flight[job]
    ]
    for batch in range(1, batches + 1):
        files = {
            str(path.relative_to(directory / f"root-{batch}")): path.read_text()
            for path in (directory / f"root-{batch}").rglob("*")
            if path.is_file()
        }
        if files != CHANGE.wanted:
            problems.append(f"batch {batch}: the files are {files}")
        lines = (directory / f"lines-{batch}" / "log.txt").read_text().split()
        problems += [
            f"batch {batch}: line {n} stands {lines.count(f'{batch}-{n}')} times in the log"
            for n in range(LINES)
            if lines.count(f"{batch}-{n}") != 1
        ]
    if (
        set(missions) != {"completed", "running"} or missions[MissionStatus.RUNNING] != 1
    ):  # the queue itself never ends
        problems.append(f"the missions are {dict(missions)}")
    return {
        "jobs done": len(jobs) - len(lost), "lost": len(lost), "twice": len(twice), "ran again": again,
        "in flight": sum(in_flight.values()), "problems": list(problems),
    }  # fmt: skip


def _count(engine: Engine, query: str) -> Counter[int]:
    return Counter(
        dict(engine.instance.database.read(lambda tx: [(row[0], row[1]) for row in tx.query_plain(query)]))
    )


if __name__ == "__main__":
    main()
