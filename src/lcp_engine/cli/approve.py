"""Decide and steer (`lcp approve`, `reject`, `cancel`, `resume`, `retry`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pairs, pass_invocation, read_object
from lcp_engine.cli.error_output import fail, tell
from lcp_engine.cli.exit_codes import Exit, exit_of_error
from lcp_engine.cli.output import make_console, print_json, print_out
from lcp_engine.errors import ErrorCode, Failed, LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine.api import Engine
    from lcp_engine.api.records import Job

MOST_LISTED = 20
F = TypeVar("F", bound=Callable[..., int])


def _jobs_options(command: F) -> F:
    command = click.argument("jobs", type=int, nargs=-1, metavar="J…")(command)
    command = click.option("--mission", type=int, metavar="M", help="Only jobs of this mission, with --all.")(
        command
    )
    return click.option("--all", "all_held", is_flag=True, help="Every held job, or those of --mission.")(
        command
    )


@click.command(
    "approve",
    cls=LcpCommand,
    examples=(
        "lcp approve 12 14",
        "lcp approve --all --mission 3",
        'lcp approve 12 --params \'{"rel_path": "docs/x.md", "content": "…"}\'',
    ),
)
@_jobs_options
@click.option("--params", metavar="JSON", help="Run the job with these params instead.")
@click.option("--edit", is_flag=True, help="Edit the job's params in $VISUAL or $EDITOR first.")
@pass_invocation
def approve_command(
    invocation: Invocation,
    *,
    jobs: Sequence[int],
    all_held: bool,
    mission: int | None,
    params: str | None,
    edit: bool,
) -> int:
    """Let held jobs run; a runner (`lcp work`) executes them.

    An approval is for what you were shown last (`lcp diff J`), else for what was there when the job was held.
    Approving twice is harmless. Exit code 5: the file is another by now, and its diff is shown; or somebody decided
    otherwise. With --json the jobs that were approved are printed, and on stderr an error a line for each other one;
    where none was, only one error.
    """
    revised = None if params is None else read_object(params, "--params")
    if (revised is not None or edit) and (all_held or len(jobs) != 1):
        raise click.UsageError("--params and --edit belong to exactly one job", click.get_current_context())
    if revised is not None and edit:
        raise click.UsageError("--params or --edit is given, not both", click.get_current_context())
    with invocation.engine() as engine:
        ids = _chosen(invocation, engine, jobs, mission, word="approve" if all_held else None)
        if not ids:
            return _say_none(invocation, mission)
        if edit:
            revised = _edited(engine, ids[0])

        code = _each(
            invocation,
            engine,
            ids,
            "approved",
            lambda job: engine.approve(job, params=revised),
            show_conflict=_show_again,
        )
    if code == Exit.DONE and not (invocation.json or invocation.quiet):
        tell("`lcp work --until-idle` executes what is approved")
    return code


@click.command(
    "reject",
    cls=LcpCommand,
    examples=('lcp reject 12 --reason "the licence must not change"',),
)
@_jobs_options
@click.option("--reason", required=True, metavar="TEXT", help="Why; the planner reads it.")
@pass_invocation
def reject_command(
    invocation: Invocation, jobs: Sequence[int], all_held: bool, mission: int | None, reason: str
) -> int:
    """Refuse held jobs; the planner reads the reason in its next turn."""
    if not reason.strip():
        raise click.UsageError("--reason has to say something; it is blank", click.get_current_context())
    with invocation.engine() as engine:
        ids = _chosen(invocation, engine, jobs, mission, word="reject" if all_held else None)
        if not ids:
            return _say_none(invocation, mission)
        return _each(invocation, engine, ids, "rejected", lambda job: engine.reject(job, reason))


@click.command("cancel", cls=LcpCommand)
@click.argument("mission", type=int, metavar="M")
@pass_invocation
def cancel_command(invocation: Invocation, mission: int) -> int:
    """Stop mission M; what is written stays written."""
    with invocation.engine() as engine:
        engine.cancel(mission)
        _print_mission(invocation, engine, mission)
    return Exit.DONE


@click.command(
    "resume",
    cls=LcpCommand,
    examples=("lcp resume 3 --set limits.max_turns=50",),
)
@click.argument("mission", type=int, metavar="M")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Another limit, e.g. limits.max_jobs=200."
)
@pass_invocation
def resume_command(invocation: Invocation, mission: int, settings: Sequence[str]) -> int:
    """Go on with mission M, which has ended: the planner gets another turn from the next runner."""
    limits = {_limit(key): _scalar(text) for key, text in pairs(settings, "--set").items()}
    with invocation.engine() as engine:
        engine.resume(mission, limits=limits)
        _print_mission(invocation, engine, mission)
    if not (invocation.json or invocation.quiet):
        tell("`lcp work --until-idle` goes on with the mission")
    return Exit.DONE


@click.command("retry", cls=LcpCommand)
@click.argument("job", type=int, metavar="J")
@pass_invocation
def retry_command(invocation: Invocation, job: int) -> int:
    """Queue job J again, which failed, was skipped or was cancelled."""
    with invocation.engine() as engine:
        queued = engine.retry(job)
    if invocation.json:
        print_json(queued.json)
    else:
        print_out(f"job {job} {queued.state}")
        if queued.state == "queued" and not invocation.quiet:
            tell("`lcp work --until-idle` executes it")
    return Exit.DONE


def _chosen(
    invocation: Invocation, engine: Engine, jobs: Sequence[int], mission: int | None, *, word: str | None
) -> Sequence[int]:
    """The jobs to decide; with a `word`, that is done to all that are held: they are listed, a terminal is asked."""
    context = click.get_current_context()
    if word is None:
        if mission is not None:
            raise click.UsageError("--mission belongs to --all", context)
        if not jobs:
            raise click.UsageError("one or more jobs are needed, or --all", context)
        return jobs
    if jobs:
        raise click.UsageError("--all takes no jobs", context)
    if mission is not None:
        engine.mission(mission)
    held = engine.jobs(mission_id=mission, states=["held"])
    if word == "approve":
        held = [job for job in held if not _takes_an_answer(engine, job)]
    if not held or invocation.json:
        return [job.id for job in held]
    _list(held)
    if sys.stdin.isatty() and sys.stderr.isatty():
        these = "this job" if len(held) == 1 else f"these {len(held)} jobs"
        if not click.confirm(f"{word} {these}?", err=True):
            tell("nothing was decided")
            context.exit(Exit.FAILED)
    return [job.id for job in held]


def _takes_an_answer(engine: Engine, job: Job) -> bool:
    from lcp_engine.cli.question_text import is_question

    worker = engine.workers.get(job.kind)
    return is_question(job) or (worker is not None and worker.asks_person)


def _list(jobs: Sequence[Job]) -> None:
    """Held jobs as a table on stderr: what all means is seen before it is done."""
    from lcp_engine.cli.held_table import held_table, overview

    console = make_console(sys.stderr)
    if not sys.stderr.isatty():
        console.width = 1000
    if len(jobs) > MOST_LISTED:
        console.print(overview(jobs), soft_wrap=False)
        console.print()
    one = len({job.mission_id for job in jobs}) == 1
    console.print(held_table(jobs[:MOST_LISTED], {}, of_one_mission=one), soft_wrap=False)
    if len(jobs) > MOST_LISTED:
        console.print(f"and {len(jobs) - MOST_LISTED:,} more")


def _edited(engine: Engine, job_id: int) -> dict[str, JsonValue]:
    from lcp_engine.cli.editor import edit_params

    job = engine.job(job_id)
    if job.state != "held":
        message = f"job {job_id} has to be held to be edited; it is {job.state}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    return edit_params(job.params)


def _show_again(engine: Engine, job_id: int) -> None:
    """What a job that stays held would change now: the next approval is for that."""
    from lcp_engine.cli.diff import show_diffs

    if engine.job(job_id).state == "held":
        show_diffs(make_console(sys.stderr), engine.diff(job_id))


def _say_none(invocation: Invocation, mission: int | None) -> int:
    """What `--all` came to where nothing is held."""
    if invocation.json:
        print_json([])
    else:
        print_out("no job is held" if mission is None else f"no job of mission {mission} is held")
    return Exit.DONE


def _each(
    invocation: Invocation,
    engine: Engine,
    ids: Sequence[int],
    word: str,
    decide: Callable[[int], bool],
    *,
    show_conflict: Callable[[Engine, int], None] = lambda engine, job: None,
) -> int:
    """Decide on every job; one that cannot be decided does not keep the others from it."""
    from lcp_engine.api.bulk import each_outcome

    decided: list[int] = []
    refused: list[Failed] = []
    for job_id, outcome in each_outcome(ids, decide):
        if isinstance(outcome, LcpError):
            refused.append(outcome.failed)
            if outcome.code is ErrorCode.CONFLICT and not invocation.json:
                show_conflict(engine, job_id)
            continue
        decided.append(job_id)
        if not invocation.json:
            print_out(f"job {job_id} {word if outcome else f'was {word} before'}")
    if not invocation.json:
        return max((fail(failed, as_json=False) for failed in refused), default=Exit.DONE)
    if refused and not decided:
        return fail(_together(refused), as_json=True)
    print_json([engine.job(job_id).json for job_id in decided])
    return max((fail(failed, as_json=True) for failed in refused), default=Exit.DONE)


def _together(refused: Sequence[Failed]) -> Failed:
    """One error for all: the gravest code, every message."""
    gravest = max(refused, key=lambda failed: exit_of_error(failed.code))
    return replace(gravest, message="; ".join(failed.message for failed in refused))


def _print_mission(invocation: Invocation, engine: Engine, mission_id: int) -> None:
    mission = engine.mission(mission_id)
    if invocation.json:
        print_json(mission.json)
    else:
        print_out(f"mission {mission.id} {mission.status}")


def _limit(key: str) -> str:
    from lcp_engine.core.mission.spec import Limits
    from lcp_engine.core.summaries import nearest

    group, _, name = key.partition(".")
    if group != "limits" or name not in Limits.model_fields:
        hint = nearest(name or group, list(Limits.model_fields))
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"--set takes limits.NAME=VALUE here, not {key!r}; {hint}")
    return name


def _scalar(text: str) -> JsonValue:
    from lcp_engine.core.mission.yaml import read_scalar

    return read_scalar(text.strip())
