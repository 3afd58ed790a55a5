"""Launch missions and execute jobs (`lcp run`, `lcp launch`, `lcp work`)."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from lcp_engine import Job, Mission
from lcp_engine.api.engine import Engine
from lcp_engine.cli.base import Count, Invocation, LcpCommand, keep, pairs, pass_invocation
from lcp_engine.cli.commands.completion import kind_names, kinds_option, mission_ids
from lcp_engine.cli.commands.events import Follower
from lcp_engine.cli.commands.jobs import answer_with, is_question
from lcp_engine.cli.commands.load_mission import Loaded, MissionOptions, load, mission_options
from lcp_engine.cli.commands.missions import note_unfulfilled, print_report, unfulfilled_lines
from lcp_engine.cli.console.exits import Exit, exit_of_mission
from lcp_engine.cli.console.idle import note_idle
from lcp_engine.cli.console.output import print_err, print_json, print_json_line, print_out
from lcp_engine.cli.console.progress import Progress, showing
from lcp_engine.cli.console.prompts import Decider
from lcp_engine.cli.console.signals import Interrupts, catching_interrupts, work
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import APPLY, MERGE, kind_named
from lcp_engine.core.mission.spec import NO_PLANNER, MissionSpec, WorstCase, expected_result
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.core.safe_text import sentence
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.authoring.dry_run import idle_rules_of, worst_case
from lcp_engine.planners.environment import PlannerEnvironment
from lcp_engine.planners.registry import make_planner
from lcp_engine.planners.simple import check_script
from lcp_engine.sandbox.root import unfit_root
from lcp_engine.settings import shown_url

MOST_NAMED = 10
OPEN_STATES = [State.QUEUED, State.RUNNING]


def work_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of commands that launch a mission and work on it."""
    threads = click.option(
        "--threads",
        type=Count(1, 256),
        metavar="N",
        default=4,
        show_default=True,
        help="Jobs to run at a time.",
    )
    approve = click.option(
        "--approve", "kinds", multiple=True, shell_complete=kind_names, metavar="KINDS",
        help="Approve held jobs of these kinds (a,b,…) without asking; all: every kind.",
    )  # fmt: skip
    return threads(approve(command))


_log_option = click.option(
    "--log", type=click.Choice(["text", "json"]), expose_value=False, callback=keep,
    help="The form of progress on stderr; json: a line for each event, with ids of traces.  [default: text]",
)  # fmt: skip
_health_option = click.option(
    "--health", type=Count(0, 65535), metavar="PORT",
    help="Answer /healthz, /readyz and /metrics to programs of this machine; 0: any free port.",
)  # fmt: skip


@contextmanager
def _answering_health(engine: Engine, port: int | None) -> Iterator[str | None]:
    """Answer programs that watch this process, if there is a port for them; a note with the address."""
    if port is None:
        yield None
        return
    from lcp_engine.features.telemetry.health import serving_health

    with serving_health(engine.instance, port) as address:
        yield f"health and figures are on {address}"


@click.command(
    "run",
    cls=LcpCommand,
    examples=(
        "lcp run survey --root .",
        "lcp run mission.yaml --root DIR --approve write_file",
        "lcp run mission.yaml --set limits.max_turns=5 --var language=en",
    ),
)
@mission_options
@work_options
@_health_option
@_log_option
@click.option(
    "--dry-run", is_flag=True, help="Launch nothing; print what the mission would do, like `lcp validate`."
)
@pass_invocation
def run_command(
    invocation: Invocation,
    *,
    options: MissionOptions,
    threads: int,
    kinds: Sequence[str],
    health: int | None,
    dry_run: bool,
) -> int:
    """Launch MISSION and work on it until it ends or waits for a person; then print its report.

    MISSION is a file (YAML or JSON), - for stdin, or the name of a shipped mission; a file may also be an
    ExecutionPlan, or a request (AgentRequest), which is launched once. On a terminal you are asked about
    held jobs; without one they stay held, and the exit code is 3.
    """
    if dry_run:
        from lcp_engine.features.authoring.validate import print_dry_run

        return print_dry_run(invocation, options, approved_kinds(invocation, kinds))
    return run_mission(invocation, options, load, threads, kinds, health=health)


def run_mission(
    invocation: Invocation,
    options: MissionOptions,
    load: Callable[[MissionOptions, PlannerEnvironment], Loaded],
    threads: int,
    kinds: Sequence[str],
    *,
    health: int | None = None,
) -> int:
    """Launch the mission that `load` reads from the options, and work on it until it ends or waits for a person."""
    named = approved_kinds(invocation, kinds)
    spec, directory, request = load(options, invocation.planner_environment)
    asks = options.mission != "-" and not invocation.json and sys.stdin.isatty() and sys.stderr.isatty()
    # The port is bound first: one that is taken launches nothing.
    with (
        invocation.engine() as engine, catching_interrupts() as interrupts,
        _answering_health(engine, health) as told,
    ):  # fmt: skip
        launched = engine.launch(spec, root=directory, allow_admin=options.allow_admin, request=request)
        worst = print_outlook(invocation, engine, spec, directory)
        decider = Decider(engine, launched.id, named, asks)
        with showing(invocation, engine) as progress:
            if told is not None:
                progress.note(told)
            _work_until_done(engine, decider, progress, interrupts, threads)
        return _report_end(invocation, engine, launched.id, interrupts, worst)


@click.command(
    "launch",
    cls=LcpCommand,
    examples=(
        "lcp launch survey --root .",
        "lcp launch nightly.yaml --key nightly-2025-06-01",
    ),
)
@mission_options
@click.option("--key", help="Launch only once for this key; later calls print the same id.")
@pass_invocation
def launch_command(
    invocation: Invocation,
    *,
    options: MissionOptions,
    key: str | None,
) -> int:
    """Queue MISSION without running it, and print its id; a runner (`lcp work`) executes it."""
    invocation.load_workers()
    spec, directory, request = load(options, invocation.planner_environment)
    with invocation.engine() as engine:
        launched = engine.launch(
            spec, root=directory, key=key, allow_admin=options.allow_admin, request=request
        )
        worst = print_outlook(invocation, engine, spec, directory)
        if invocation.json:
            print_json({"id": launched.id, "worst_case": worst.json, "runners": len(engine.runners())})
        else:
            print_out(str(launched.id))
            note_idle(invocation, engine, [launched])
    return Exit.DONE


def print_outlook(invocation: Invocation, engine: Engine, spec: MissionSpec, root: Path) -> WorstCase:
    """Print on stderr which rules do nothing, what a script lacks and, with `-v`, the cost at worst."""
    instance = engine.instance
    worst = worst_case(spec, instance.planner_environment)
    if invocation.json or invocation.quiet:
        return worst
    lines = idle_rules_of(spec, root, instance.admission)
    if spec.planner.type != NO_PLANNER:  # what it costs are its steps
        planner = make_planner(spec.planner, instance.planner_environment)
        lines += [worst.line] if invocation.verbose else []
        params = {kind: worker.params for kind, worker in engine.workers.items()}
        lines += check_script(planner, spec.planner, params, expected_result(spec))
    for line in lines:
        print_err(sentence(line))
    return worst


def approved_kinds(invocation: Invocation, stated: Sequence[str]) -> set[str]:
    """The kinds of `--approve`, under their own names.

    Raises `INVALID_ARGUMENT` for an unknown one, which would approve nothing.
    """
    workers = invocation.known_workers()
    known = [*workers, MERGE, APPLY, "all"]
    parts = [kind.strip() for value in stated for kind in value.split(",")]
    named = {kind_named(kind, workers) for kind in parts if kind}
    for kind in sorted(named.difference(known)):
        message = f"--approve expects kinds of jobs or all, not {kind!r}; {nearest(kind, known)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Name a kind that has a worker, or all.")
    return named


def _work_until_done(
    engine: Engine, decider: Decider, progress: Progress, interrupts: Interrupts, threads: int
) -> None:
    """Work until no job is left to run, also after the person's decisions."""
    follower = Follower(engine, decider.mission_id)

    def poll() -> bool:
        has_news = _show_news(follower, progress)
        return decider.approve_named(progress.note) or has_news

    while True:
        runner = engine.runner(until_idle=True, threads=threads, mission_id=decider.mission_id)
        runner.tell = progress.note
        work(runner, interrupts, poll, progress.note)
        if interrupts:
            return
        try:
            with progress.paused():
                decided = decider.ask()
        except KeyboardInterrupt:
            interrupts.received = signal.SIGINT
            return
        if not (decider.approve_named(progress.note) or decided or _has_ready(engine, decider.mission_id)):
            _show_news(follower, progress)
            return


def _show_news(follower: Follower, progress: Progress) -> bool:
    """Show the events since the last call; whether there were any."""
    news = follower.new_events()
    progress.show(news)
    return bool(news)


def _show_news_of_all(engine: Engine, follower: Follower, progress: Progress) -> bool:
    """Show the events since the last call, and what missions that have completed left unfulfilled."""
    news = follower.new_events()
    progress.show(news)
    for event in news:
        if event["event"] == "mission_completed" and isinstance(mission := event["mission_id"], int):
            for line in unfulfilled_lines(engine, engine.mission(mission)):
                progress.note(f"[{mission}] {line}")
    return bool(news)


def _has_ready(engine: Engine, mission_id: int) -> bool:
    """True if jobs are ready: decided elsewhere, or released by another runner."""
    left = engine.jobs(
        mission_id=mission_id, states=OPEN_STATES, kinds=[*engine.workers, MERGE, APPLY], limit=1
    )
    return bool(left)


def _report_end(
    invocation: Invocation, engine: Engine, mission_id: int, interrupts: Interrupts, worst: WorstCase
) -> int:
    mission = engine.mission(mission_id)
    if invocation.json:
        print_json_line({**mission.json, "worst_case": worst.json})
    else:
        if sys.stdout.isatty() and not invocation.quiet:
            print_out("")
        print_report(engine, mission_id)
    sys.stdout.flush()
    if interrupts and mission.status == "running":
        print_err(f"interrupted; nothing is lost: `lcp work --until-idle` continues mission {mission.id}")
    elif mission.status == "waiting" and not (invocation.json or invocation.quiet):
        print_err(_how_to_decide(engine, mission))
    elif mission.jobs.get("held") and not (mission.unfulfilled or invocation.json or invocation.quiet):
        print_err(f"some jobs are still held: `lcp held --mission {mission.id}` lists them")
    if mission.status.has_ended and not invocation.json:
        note_unfulfilled(engine, mission)
    return Exit.INTERRUPTED if interrupts else exit_of_mission(engine, mission)


def _is_shown(engine: Engine, job: Job) -> bool:
    worker = engine.workers.get(job.kind)
    return worker is not None and worker.preview is not None


def _how_to_decide(engine: Engine, mission: Mission) -> str:
    """The commands to decide on the held jobs."""
    found = engine.jobs(mission_id=mission.id, states=[State.HELD])
    awaited = engine.awaited_replies()
    asked = [answer_with(job) for job in found if is_question(job, awaited)]
    held = [job for job in found if not is_question(job, awaited)]
    ways = (
        " or ".join([*_ways_to_decide(engine, mission, held), *asked[:1]])
        if held
        else " and ".join(asked[:3])
    )
    return f"mission {mission.id} waits for a person: {ways}, then `lcp work --until-idle`"


def _ways_to_decide(engine: Engine, mission: Mission, held: Sequence[Job]) -> list[str]:
    """The commands for jobs that need an approval."""
    named = " ".join(str(job.id) for job in held)
    these = named if len(held) <= MOST_NAMED else f"--all --mission {mission.id}"
    ways = [f"`lcp approve {these}`"] if any(job.reason != ReasonCode.NO_WORKER for job in held) else []
    ways.append(f"`lcp reject {these} --reason TEXT`")
    shown = next((job.id for job in held if _is_shown(engine, job)), None)
    if shown is not None:
        ways[0] = f"`lcp diff {shown}` to inspect, then {ways[0]}"
    return ways


@click.command(
    "work",
    cls=LcpCommand,
    examples=(
        "lcp work --threads 8",
        "lcp work --until-idle",
        "lcp work --root site=/srv/site    only missions whose root is named site, in that directory",
    ),
)
@click.option(
    "--threads",
    type=Count(1, 256),
    metavar="N",
    default=4,
    show_default=True,
    help="Jobs to run at a time.",
)
@click.option("--until-idle", is_flag=True, help="Exit when no job is queued, delayed or running anywhere.")
@click.option("--give-up-after", type=click.FloatRange(min=0), metavar="SECONDS",
              help="Exit when the database is away for so long.  [default: wait as long as it takes]")  # fmt: skip
@_health_option
@_log_option
@kinds_option
@click.option(
    "--mission", type=int, metavar="M", shell_complete=mission_ids, help="Only the jobs of mission M."
)
@click.option("--root", "named", multiple=True, metavar="NAME=DIR",
              help="Only missions whose root is named NAME (its path, an alias, or the last part of its path), which "
              "is DIR here; may be repeated.  [default: every root on this machine]")  # fmt: skip
@pass_invocation
def work_command(
    invocation: Invocation,
    *,
    threads: int,
    until_idle: bool,
    give_up_after: float | None,
    health: int | None,
    kinds: Sequence[str],
    mission: int | None,
    named: Sequence[str],
) -> int:
    """Execute the jobs of all missions until it is stopped.

    SIGTERM and the first Ctrl-C finish the running jobs and release the others; a second Ctrl-C exits at once. Any
    number of runners may work on one database. While the database is away (its server restarts, its disk is full) it
    waits and says so.
    """
    roots = {name: _directory(name, text) for name, text in pairs(named, "--root").items()}
    away_seconds = math.inf if give_up_after is None else give_up_after
    with invocation.engine(away_seconds=away_seconds) as engine, catching_interrupts() as interrupts:
        try:
            runner = engine.runner(
                until_idle=until_idle, threads=threads, mission_id=mission, kinds=kinds or None, roots=roots
            )
        except LcpError as refused:
            if refused.code is not ErrorCode.NO_WORKER:
                raise
            message = f"--kind: {refused}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=refused.failed.advice) from refused
        follower = Follower(engine, past=False)
        with showing(invocation, engine, all_missions=True) as progress:
            outage = engine.instance.database.outage
            outage.tell = print_err if invocation.json or invocation.quiet else progress.note
            runner.tell = outage.tell
            progress.note(f"working on {shown_url(invocation.database_url)} with {threads} threads")
            with _answering_health(engine, health) as told:
                if told is not None:
                    progress.note(told)
                work(runner, interrupts, lambda: _show_news_of_all(engine, follower, progress), progress.note)
            silent = runner.silent_roots
            for root, count in runner.left_to_others().items():
                left = f"{count} queued job{'s' * (count != 1)} under {root}"
                why = "does not answer" if root in silent else "this runner does not serve"
                progress.note(f"left to other runners: {left}, a root that {why}")
    return Exit.INTERRUPTED if interrupts.received is signal.SIGINT else Exit.DONE


def _directory(name: str, text: str) -> Path:
    path = Path(text).expanduser()
    try:
        if (unfit := unfit_root(text, str(path.resolve()))) is not None:
            raise LcpError.of(unfit)
        if path.is_dir():
            return path.resolve()
        fact = "is not a directory"
    except OSError as refused:
        fact = f"cannot be read: {refused.strerror}"
    raise LcpError(ErrorCode.PATH_NOT_FOUND, f"--root {name}: {text!r} {fact}")
