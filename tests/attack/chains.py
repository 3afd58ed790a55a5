"""Start chains of processes, each of which starts the next one and exits, wherever a mission runs a program.

`python -m tests.attack.chains DIRECTORY MARKER WAY…` is the runner that executes them; it has to live on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pydantic import JsonValue
from tests.features.programs.runner.plain_server import plain_tools, write_plain_server
from tests.pids_limit import Limit, pids_limit, wait_until
from tests.walls import missing

from lcp_engine import Engine
from lcp_engine.core.programs.walls import WALLS, Step
from lcp_engine.features.programs.servers.external_worker import kinds_in
from lcp_engine.features.programs.servers.mcp import servers_in, tool_kinds

CHAINS: Mapping[str, str] = {
    "forks": "if os.fork() == 0: chain()",
    "forks twice": "if os.fork() == 0:\n    if os.fork(): os._exit(0)\n    chain()",
    "threads": "for _ in range(4): threading.Thread(target=link).start()",
    "many": "for _ in range(60):\n    if os.fork() == 0: chain()",
    "vfork": "os.posix_spawn(sys.executable, [sys.executable, '-S', '-c', SPAWNS, MARKER], os.environ)",
    "leaves its first process": "threading.Thread(target=link).start()\nLIBC.syscall(EXIT, 0)",
}
"""By what starts them: all of them ignore signals, and leave their session in each generation.

Should nothing else end them, they end by themselves after five minutes.
"""
_CHAIN = """
import ctypes, os, platform, signal, sys, threading, time
ENDS = float(os.environ.setdefault("CHAIN_ENDS", str(time.monotonic() + 300)))
MARKER = "{marker}"
LIBC, EXIT = ctypes.CDLL(None), 60 if platform.machine() == "x86_64" else 93
SPAWNS = '''import os, sys, time
if time.monotonic() < float(os.environ["CHAIN_ENDS"]):
    os.posix_spawn(sys.executable, sys.orig_argv, os.environ, setsid=True)'''
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)

def chain():
    while time.monotonic() < ENDS:
        try:
            if os.fork():
                os._exit(0)
            os.setsid()
        except OSError:
            pass

def link():
    if os.fork() == 0:
        chain_of_threads()
    time.sleep(300)

def chain_of_threads():
    while time.monotonic() < ENDS and os.fork() == 0:
        following = threading.Thread(target=chain_of_threads)
        following.start()
        following.join()
    os._exit(0)
"""
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
SECONDS = 1
PROJECT = Path(__file__).resolve().parent.parent.parent


def source_of(how: str, marker: str, then: str = "time.sleep(600)") -> str:
    """A program in Python that starts a chain; `then` it hangs, or something else."""
    return f"{_CHAIN.replace('{marker}', marker)}\n{CHAINS[how]}\n{then}\n"


def attack(seconds: float, number: int) -> bool:
    """Prints what was counted; whether each chain was ended, and its runner lived on."""
    ways = [*WAYS, *(way for wall in WALLS if missing(wall) is None for way in WAYS_BEHIND[wall])]
    found = started(ways)
    if found is None:
        print("chains: left out, this machine allows no limit of their own to so many processes")
        return True
    outcomes, left, was_reached = found
    faults = [f"{way}: {outcomes.get(way)}" for way in (*ways, "good") if not is_ended(way, outcomes)]
    faults += [f"{left} processes are left"] * bool(left) + [
        "the limit of processes was reached"
    ] * was_reached
    survived = _survives_a_signal_to_its_group()
    print(
        f"chains: {len(ways)} of processes that start the next one and exit, {len(faults)} got away; "
        f"{survived} of 1 survived a signal to its process group"
    )
    for fault in faults:
        print(f"  <- {fault}")
    return not faults and survived == 1


def started(ways: Sequence[str]) -> tuple[Mapping[str, str], int, bool] | None:
    """How each chain ended in one runner, how many processes are left after it, and whether a full machine was near.

    None where no such limit is possible.
    """
    marker = f"lcp-chain-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory() as directory, pids_limit(marker) as limit:
        if limit is None:
            return None
        place = Path(directory).resolve() / marker
        place.mkdir()
        with runner_of(ways, place, marker, limit) as runner:
            said, _ = runner.communicate(timeout=600)
        outcomes: Mapping[str, str] = json.loads(said) if runner.returncode == 0 else {}
        return outcomes, limit.left(), limit.was_reached()


@contextmanager
def runner_of(
    ways: Sequence[str], place: Path, marker: str, limit: Limit
) -> Iterator[subprocess.Popen[bytes]]:
    """A runner that executes the ways below the limit, and prints how each ended. It is killed in the end."""
    with _below(limit, "-m", "tests.attack.chains", str(place), marker, *ways) as runner:
        try:
            yield runner
        finally:
            runner.kill()


def _below(limit: Limit, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        preexec_fn=limit.enter,  # noqa: PLW1509 -- a process of one thread
        start_new_session=True,
    )


def is_ended(way: str, outcomes: Mapping[str, str]) -> bool:
    """Whether it ended at its limit and for no other reason, or did what it was asked for."""
    return ENDS[way.partition(":")[0].partition(" behind ")[0]] in outcomes.get(way, "")


def _survives_a_signal_to_its_group() -> int:
    """The control: a supervisor that signals the process group of a chain, which is still there afterwards."""
    marker = f"lcp-chain-{os.getpid()}-{time.monotonic_ns()}"
    with pids_limit(marker) as limit:
        assert limit is not None
        chain = _below(limit, "-c", source_of("forks", marker))
        wait_until(lambda: len(limit.chained()) > 1)
        os.killpg(chain.pid, signal.SIGKILL)
        chain.wait()
        return int(limit.left() > 0)


# -- the runner that executes them


def main(place: Path, marker: str, ways: Sequence[str]) -> None:
    (place / "root").mkdir()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    outcomes: dict[str, str] = {}
    (good,) = kinds_in({"good": {"command": ["echo", '{"result": {}}'], "has_effects": False}}, place)
    with Engine(f"sqlite:///{place}/lcp.db", workers=[good]) as engine:
        for way in ways:
            where, _, how = way.partition(": ")
            outcomes[way] = PLACES[where](place, source_of(how, marker))
        job = engine.enqueue("good", {})
        engine.work(until_idle=True)
        outcomes["good"] = str(engine.job(job).error)
    print(json.dumps(outcomes))


def _in_a_command(place: Path, source: str, wall: Step | None = None) -> str:
    ask: JsonValue = {"kind": "run_command", "params": {"command": [Path(sys.executable).name, "-c", source]}}
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [ask]}
    with _mission(place, [reply, DONE], wall) as engine:
        return str([job.result for job in engine.jobs() if job.kind == "run_command"])


def _in_a_check(place: Path, source: str, wall: Step | None = None) -> str:
    check: JsonValue = {"command": [Path(sys.executable).name, "-c", source]}
    with _mission(place, [DONE] * 4, wall, accept=[check]) as engine:
        return str([(job.params, job.result) for job in engine.jobs()])


@contextmanager
def _mission(
    place: Path, replies: list[JsonValue], wall: Step | None, **stated: JsonValue
) -> Iterator[Engine]:
    spec: dict[str, JsonValue] = {
        "goal": "Chain.",
        "planner": {"type": "script", "replies": replies},
        "commands": {"allow": [[Path(sys.executable).name, "-c", "*"]], "seconds": SECONDS},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
        **stated,
    }
    url = f"sqlite:///{place}/{time.monotonic_ns()}.db"
    with Engine(url, commands_wall=None if wall is None else [wall]) as engine:
        engine.launch(spec, root=place / "root")
        engine.work(until_idle=True)
        yield engine


def _in_a_kind(place: Path, source: str, count: int = 2, **stated: JsonValue) -> str:
    program = place / "program"
    program.write_text(f"#!{sys.executable}\n{source}")
    program.chmod(0o755)
    described: dict[str, JsonValue] = {
        "command": ["./program", place.name],
        "has_effects": False,
        "timeout": SECONDS,
        "max_attempts": 1,
        **stated,
    }
    (worker,) = kinds_in({"chain": described}, place)
    with Engine(f"sqlite:///{place}/{time.monotonic_ns()}.db", workers=[worker]) as engine:
        jobs = [engine.enqueue("chain", {}) for _ in range(count)]
        engine.work(until_idle=True)
        return str([engine.job(one).error or engine.job(one).result for one in jobs])


def _in_a_kind_that_stays(place: Path, source: str) -> str:
    """Its chain goes on between its jobs, and ends with it."""
    answers = 'for line in sys.stdin: print(\'{"id": %d, "result": {"is": "well"}}\' % ID(line), flush=True)'
    ends = source.replace(
        "time.sleep(600)", f"import json\nID = lambda line: json.loads(line)['id']\n{answers}"
    )
    return _in_a_kind(place, ends, long_lived=True, timeout=60)


def _in_a_server(place: Path, source: str) -> str:
    """Its chain goes on between the calls of its tools, and ends with it."""
    tool = f"@tool\ndef chain():\n    subprocess.Popen([sys.executable, '-c', {source!r}])\n    return 'is well'\n"
    write_plain_server(place / "server.py", tool)
    server = servers_in({"words": {"command": [sys.executable, "./server.py"], "without_effects": ["chain"]}})
    workers = list(tool_kinds("words", server["words"], {"words": plain_tools(tool)}, place))
    with Engine(f"sqlite:///{place}/{time.monotonic_ns()}.db", workers=workers) as engine:
        jobs = [engine.enqueue("words.chain", {}) for _ in range(2)]
        engine.work(until_idle=True)
        return str([(engine.job(one).result or {}).get("text") for one in jobs])


PLACES: Mapping[str, Callable[[Path, str], str]] = {
    "command": _in_a_command,
    "check": _in_a_check,
    **{f"command behind {wall}": partial(_in_a_command, wall=wall) for wall in WALLS},
    **{f"check behind {wall}": partial(_in_a_check, wall=wall) for wall in WALLS},
    "kind": _in_a_kind,
    "kind that stays": _in_a_kind_that_stays,
    "server": _in_a_server,
    "kind without limits": partial(_in_a_kind, count=1, timeout=600),
}
ENDS = {
    "command": "'it ran for more than 1 s, and was stopped'",
    "check": "it ran for more than 1 s",
    "kind": " within 1 s",
    "kind that stays": "[{'is': 'well'}, {'is': 'well'}]",
    "server": "['is well', 'is well']",
    "kind without limits": "died",
    "good": "None",
}
# A kind that stays answers from its first process.
_LEFT_OUT = ("kind without limits", "kind that stays: leaves its first process")
_ALL = [f"{where}: {how}" for where in PLACES for how in CHAINS]
WAYS = [way for way in _ALL if not way.startswith(_LEFT_OUT) and " behind " not in way]
WAYS_BEHIND = {wall: [way for way in _ALL if f" behind {wall}:" in way] for wall in WALLS}
"""The ways that start in a command of a mission, behind each wall."""

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
