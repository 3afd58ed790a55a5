"""Decide on held jobs and steer missions (`lcp approve`, `reject`, `answer`, `say`, `cancel`, `resume`, `retry`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lcp_engine.cli.base import (
    Exit,
    Invocation,
    LcpCommand,
    exit_of_error,
    pairs,
    pass_invocation,
    read_object,
)
from lcp_engine.cli.output import fail, make_console, print_json, print_out, tell
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.engine.reports.markdown import TURN_KIND
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.base import ExecutedBy

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine.api import Engine


MOST_LISTED = 20
F = TypeVar("F", bound=Callable[..., int])

MOST_BYTES = 16 * 1024 * 1024


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
        awaited = engine.awaited_replies()
        held = [job for job in held if not _takes_an_answer(engine, job, awaited)]
    if not held or invocation.json:
        return [job.id for job in held]
    _list(held)
    if sys.stdin.isatty() and sys.stderr.isatty():
        these = "this job" if len(held) == 1 else f"these {len(held)} jobs"
        if not click.confirm(f"{word} {these}?", err=True):
            tell("nothing was decided")
            context.exit(Exit.FAILED)
    return [job.id for job in held]


def _takes_an_answer(engine: Engine, job: Job, awaited: Collection[int]) -> bool:
    from lcp_engine.cli.jobs import is_question

    worker = engine.workers.get(job.kind)
    return is_question(job, awaited) or (worker is not None and worker.executed_by is ExecutedBy.PERSON)


def _list(jobs: Sequence[Job]) -> None:
    """Held jobs as a table on stderr: what all means is seen before it is done."""
    from lcp_engine.cli.jobs import held_table, overview

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
    from lcp_engine.cli.terminal import edit_params

    job = engine.job(job_id)
    if job.state != "held":
        message = f"job {job_id} has to be held to be edited; it is {job.state}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    return edit_params(job.params)


def _show_again(engine: Engine, job_id: int) -> None:
    """What a job that stays held would change now: the next approval is for that."""
    from lcp_engine.cli.changes import show_diffs

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


@click.command(
    "answer",
    cls=LcpCommand,
    examples=(
        'lcp answer 12 "the second paragraph"',
        "lcp answer 12 2                         the second option",
        "lcp answer 12 --file answer.txt",
        "lcp answer 12 - < answer.txt",
        "lcp answer 14 --file reply.json         the reply of a planner that is a person",
    ),
)
@click.argument("job", type=int, metavar="J")
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--file", metavar="FILE", help="Read the answer from FILE; - is stdin.")
@pass_invocation
def answer_command(invocation: Invocation, job: int, text: str | None, file: str | None) -> int:
    """Answer question J, or bring the reply to turn J where a person is the planner.

    With options, the number of one or the beginning of exactly one stands for it; words of your own always do. The same
    answer twice is harmless. Exit code 5: somebody decided otherwise before.
    """
    said = read_words(text, file)
    with invocation.engine() as engine:
        is_new = engine.answer(job, said)
        answered = engine.job(job)
    if invocation.json:
        print_json(answered.json)
        return Exit.DONE
    shown = "" if answered.kind == TURN_KIND else f": {_shown(answered)}"
    print_out(f"job {job} {'answered' if is_new else 'was answered before'}{shown}")
    if is_new and not invocation.quiet:
        tell("`lcp work --until-idle` goes on with the mission")
    return Exit.DONE


@click.command(
    "say",
    cls=LcpCommand,
    examples=(
        'lcp say 3 "leave the licence alone"',
        'lcp say 3 --job 12 "not in docs/, please"',
    ),
)
@click.argument("mission", type=int, metavar="M")
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--job", type=int, metavar="J", help="What is said is about this job.")
@click.option("--file", metavar="FILE", help="Read the text from FILE; - is stdin.")
@pass_invocation
def say_command(
    invocation: Invocation, mission: int, text: str | None, job: int | None, file: str | None
) -> int:
    """Tell the planner of mission M something: it is asked again, with these words.

    Nothing is approved or rejected by it, what is held stays held.
    """
    said = read_words(text, file)
    with invocation.engine() as engine:
        try:
            engine.say(mission, said, job_id=job)
        except LcpError as refused:
            code = fail(refused.failed, as_json=invocation.json)
            # No conflict: nobody has decided otherwise.
            return Exit.FAILED if refused.code is ErrorCode.WRONG_STATE else code
        found = engine.mission(mission)
    if invocation.json:
        print_json(found.json)
        return Exit.DONE
    print_out(f"mission {mission}: the planner reads it in its next turn")
    if found.jobs.get("running", 0) == 0 and not invocation.quiet:
        tell("`lcp work --until-idle` asks the planner")
    return Exit.DONE


def read_words(text: str | None, file: str | None) -> str:
    """What a person says: an argument, a file, or stdin. Raises a usage error unless it is exactly one of them."""
    if (text is None) == (file is None):
        said = (
            "TEXT or --file FILE is needed"
            if text is None
            else "TEXT and --file are both given, one is needed"
        )
        raise click.UsageError(said, click.get_current_context())
    if text is not None and text != "-":
        return text
    return _read(file or "-")


def _read(file: str) -> str:
    source = "stdin" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
    except OSError as refused:
        code = ErrorCode.PATH_NOT_FOUND if isinstance(refused, FileNotFoundError) else ErrorCode.NOT_A_FILE
        raise LcpError(code, f"{source!r} has to be a readable file: {refused.strerror}") from refused
    if len(data) > MOST_BYTES:
        raise LcpError(ErrorCode.TOO_LARGE, f"{source}: at most {MOST_BYTES} bytes are read; this has more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        message = f"{source}: UTF-8 is expected; byte {refused.start} is not"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused


def _shown(job: Job) -> str:
    """The answer as it was taken: with options, which of them it is."""
    result = job.result or {}
    answer = one_line(shortened(str(result.get("answer")), 100))
    if result.get("option") is not None:
        return f"{answer} (option {result['option']})"
    return f"{answer} (in your own words)" if job.params.get("options") else answer
