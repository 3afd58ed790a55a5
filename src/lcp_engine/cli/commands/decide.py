"""Decide on held jobs and steer missions (`lcp approve`, `reject`, `answer`, `say`, `cancel`, `resume`, `retry`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lcp_engine.cli.base import (
    Invocation,
    LcpCommand,
    pairs,
    pass_invocation,
    read_object,
)
from lcp_engine.cli.commands.changes import seen_with
from lcp_engine.cli.commands.completion import held_ids, job_ids, mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.idle import advise
from lcp_engine.cli.console.output import fail, make_console, print_err, print_json, print_out
from lcp_engine.core.inbox import Act
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import TURN
from lcp_engine.core.safe_text import one_line, sentence, shortened
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.approvers.commands import approver
from lcp_engine.features.rules.always_command import approve_always

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine import Job
    from lcp_engine.api.engine import Engine
    from lcp_engine.cli.commands.approve_all import Candidate
    from lcp_engine.cli.console.editor import Draft


F = TypeVar("F", bound=Callable[..., int])

MOST_BYTES = 16 * 1024 * 1024

_EDIT_AGAIN = "Edit it again, or decide on the job as it is."


def _jobs_options(command: F) -> F:
    command = click.argument("jobs", type=int, nargs=-1, shell_complete=held_ids, metavar="J…")(command)
    command = click.option(
        "--mission",
        type=int,
        shell_complete=mission_ids,
        metavar="M",
        help="With --all: only jobs of this mission.",
    )(command)
    command = click.option(
        "--as",
        "person",
        metavar="NAME",
        help="Decide as this approver, whose token is in LCP_APPROVER_TOKEN, or is asked for.",
    )(command)
    return click.option("--all", "all_held", is_flag=True, help="All held jobs, or those of --mission.")(
        command
    )


@click.command(
    "approve",
    cls=LcpCommand,
    examples=(
        "lcp approve 12 14",
        "lcp approve --all --mission 3",
        "lcp approve 12 --always mission --paths docs/",
        'lcp approve 12 --params \'{"rel_path": "docs/x.md", "content": "…"}\'',
        "lcp approve 42 --only a.md --only 'b.md#1,3' --edit-file a.md",
    ),
)
@_jobs_options
@click.option("--params", metavar="JSON", help="Run the job with these params instead.")
@click.option("--edit", is_flag=True, help="First edit the job's params in $VISUAL or $EDITOR.")
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="PATH[#N,…]",
    help="For a merge: take only this file, or only these of its hunks, as `lcp diff J` numbers them; may be repeated.",
)
@click.option(
    "--edit-file",
    "edited",
    multiple=True,
    metavar="PATH",
    help="For a merge: first edit this file in $VISUAL or $EDITOR; may be repeated.",
)
@click.option("--shown", "mark", metavar="MARK", help="Approve only what `lcp diff J` showed with this mark.")
@click.option(
    "--always",
    "scope",
    type=click.Choice(["mission", "user"]),
    help="Also add a rule that lets such jobs run: in this mission, or in this and all that you launch from now on.",
)
@click.option(
    "--paths",
    "paths",
    multiple=True,
    metavar="PATTERN",
    help="With --always: the paths of the rule, instead of the job's own; may be repeated.",
)
@pass_invocation
def approve_command(
    invocation: Invocation,
    *,
    jobs: Sequence[int],
    all_held: bool,
    mission: int | None,
    params: str | None,
    edit: bool,
    only: Sequence[str],
    edited: Sequence[str],
    mark: str | None,
    scope: str | None,
    paths: Sequence[str],
    person: str | None,
) -> int:
    """Let held jobs run; a runner (`lcp work`) executes them.

    An approval is bound to what you were shown last (`lcp diff J`), else to the file as it was when the job was held.
    `--all` shows in full what each job would change, and leaves out what cannot be shown (exit code 3).
    Approving twice is harmless. Exit code 5: the file has changed since, and the new diff is shown; or the job was
    rejected before. With --always the rule is printed first, and a terminal is asked to confirm; `lcp policy remove`
    takes it back. With --json the approved jobs are printed, and on stderr one error a line for each other job; if
    none was approved, one error for all.
    """
    revised = None if params is None else read_object(params, "--params")
    is_one = len(jobs) == 1 and not all_held
    choosing = "--only" if only else "--edit-file" if edited else None
    _check_usage(
        is_one=is_one, is_revised=revised is not None, edit=edit, choosing=choosing, has_mark=mark is not None
    )
    has_other_params = revised is not None or edit or choosing is not None
    if (scope or paths) and (not is_one or has_other_params or scope is None):
        raise click.UsageError(
            "--always needs exactly one job and no other params, --paths needs --always",
            click.get_current_context(),
        )
    by = None if person is None else approver(invocation, person)
    with invocation.engine() as engine:
        if scope is not None:
            return approve_always(invocation, engine, jobs[0], scope, paths, mark=mark, by=by)
        ids = _named(jobs, mission, all_held=all_held)
        candidates = _show_all(invocation, engine, mission) if all_held else {}

        def decide(job: int) -> bool:
            if job in candidates:
                return _approve_shown(engine, candidates[job], by, is_shown=not invocation.json)
            if edit:
                return _approve_edited(engine, job, by)
            # What this terminal was shown is noted for its user.
            shown = engine.last_seen(job) if mark is None else seen_with(engine, job, mark)
            if choosing is not None:
                from lcp_engine.features.stages.merge_choice import approve_part

                return approve_part(engine, job, only, edited, shown=shown, by=by)
            return engine.approve(job, params=revised, shown=shown, by=by)

        ids = ids or [*candidates]
        if not ids:
            return _print_none(invocation, mission)
        code = _decide_each(invocation, engine, ids, "approved", decide, show_conflict=_show_again)
        if code == Exit.DONE and any(engine.job(job_id).state != State.HELD for job_id in ids):
            advise(invocation, engine, "`lcp work --until-idle` executes approved jobs")
    return code


def _check_usage(*, is_one: bool, is_revised: bool, edit: bool, choosing: str | None, has_mark: bool) -> None:
    """Raise a usage error for options of `lcp approve` that contradict each other; `choosing` is one for merges."""
    context = click.get_current_context()
    if choosing is not None and (is_revised or edit or not is_one):
        raise click.UsageError(f"{choosing} needs exactly one job and no other params", context)
    if (is_revised or edit) and not is_one:
        raise click.UsageError("--params and --edit need exactly one job", context)
    if is_revised and edit:
        raise click.UsageError("--params and --edit cannot be combined", context)
    if has_mark and (is_revised or edit or not is_one):
        raise click.UsageError("--shown needs exactly one job and no other params", context)


@click.command(
    "reject",
    cls=LcpCommand,
    examples=('lcp reject 12 --reason "the licence must not change"',),
)
@_jobs_options
@click.option("--reason", required=True, metavar="TEXT", help="The reason; the planner reads it.")
@pass_invocation
def reject_command(
    invocation: Invocation,
    *,
    jobs: Sequence[int],
    all_held: bool,
    mission: int | None,
    reason: str,
    person: str | None,
) -> int:
    """Reject held jobs; the planner reads the reason in its next turn.

    `--all` leaves out turns that await a reply of yours: to reject one ends its mission.
    """
    if not reason.strip():
        raise click.UsageError("--reason is blank; a reason is needed", click.get_current_context())
    by = None if person is None else approver(invocation, person)
    with invocation.engine() as engine:
        ids = _named(jobs, mission, all_held=all_held)
        if all_held:
            ids = _list_all(invocation, engine, mission)
        if not ids:
            return _print_none(invocation, mission)
        return _decide_each(
            invocation, engine, ids, "rejected", lambda job: engine.reject(job, reason, by=by)
        )


@click.command("cancel", cls=LcpCommand)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@pass_invocation
def cancel_command(invocation: Invocation, mission: int) -> int:
    """Stop mission M; its file changes stay."""
    with invocation.engine() as engine:
        engine.cancel(mission)
        _print_mission(invocation, engine, mission)
    return Exit.DONE


@click.command(
    "resume",
    cls=LcpCommand,
    examples=("lcp resume 3 --set limits.max_turns=50", "lcp resume 3 --root ~/project"),
)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a limit, e.g. limits.max_jobs=200."
)
@click.option(
    "--root",
    metavar="DIR",
    help="Accept DIR as the mission's root, after the root was moved, restored or replaced.",
)
@pass_invocation
def resume_command(invocation: Invocation, mission: int, settings: Sequence[str], root: str | None) -> int:
    """Continue mission M, which has ended: its planner gets another turn.

    With --root only a mission that failed continues; any other one just has that root from now on.
    """
    limits = {_limit(key): _scalar(text) for key, text in pairs(settings, "--set").items()}
    _check_limits(limits)
    with invocation.engine() as engine:
        resumed = engine.resume(mission, limits=limits, root=root)
        _print_mission(invocation, engine, mission)
        if resumed.status == "running":
            advise(invocation, engine, "`lcp work --until-idle` continues the mission")
    return Exit.DONE


@click.command("retry", cls=LcpCommand)
@click.argument("job", type=int, shell_complete=job_ids, metavar="J")
@pass_invocation
def retry_command(invocation: Invocation, job: int) -> int:
    """Queue job J again; it must have failed, or have been skipped or cancelled.

    A job that a person rejected is held again, to be approved after all.
    """
    with invocation.engine() as engine:
        queued = engine.retry(job)
        if invocation.json:
            print_json(queued.json)
        else:
            print_out(f"job {job} {queued.state}")
        if queued.state == "queued":
            advise(invocation, engine, "`lcp work --until-idle` executes it")
        elif queued.state == "held" and not invocation.quiet:
            print_err(f"`lcp approve {job}` lets it run")
    return Exit.DONE


def _named(jobs: Sequence[int], mission: int | None, *, all_held: bool) -> Sequence[int]:
    """The jobs that are named, none with `--all`. Raises a usage error for options that contradict each other."""
    context = click.get_current_context()
    if all_held and jobs:
        raise click.UsageError("--all cannot be combined with job numbers", context)
    if not all_held and mission is not None:
        raise click.UsageError("--mission needs --all", context)
    if not all_held and not jobs:
        raise click.UsageError("no job is given; name one or more, or --all", context)
    return jobs


def _show_all(invocation: Invocation, engine: Engine, mission: int | None) -> dict[int, Candidate]:
    """Jobs that `approve --all` decides on, by job id, shown in full; a terminal is asked to confirm."""
    from lcp_engine.cli.commands.approve_all import find_candidates, show_candidates

    if mission is not None:
        engine.mission(mission)
    candidates = find_candidates(engine, mission)
    if candidates and not invocation.json:
        show_candidates(engine, candidates)
        _confirm("approve", sum(each.why_left_out is None for each in candidates))
    return {each.job.id: each for each in candidates}


def _approve_shown(engine: Engine, candidate: Candidate, by: str | None, *, is_shown: bool) -> bool:
    """Approve a job as it was shown. Raises `NOT_SHOWN` for one that cannot be shown in full."""
    left_out = candidate.why_left_out
    if left_out is not None:
        raise LcpError.of(left_out)
    return engine.approve(candidate.job.id, shown=candidate.look.sight if is_shown else None, by=by)


def _list_all(invocation: Invocation, engine: Engine, mission: int | None) -> list[int]:
    """Jobs that `reject --all` decides on; a terminal is asked to confirm."""
    from lcp_engine.cli.commands.approve_all import list_held

    if mission is not None:
        engine.mission(mission)
    held = engine.jobs(mission_id=mission, states=["held"])
    admitted = {one.id for one in engine.inbox.of([job.json for job in held]) if Act.REJECT in one.acts}
    held = [job for job in held if job.id in admitted]
    if held and not invocation.json:
        list_held(engine, held)
        _confirm("reject", len(held))
    return [job.id for job in held]


def _confirm(word: str, count: int) -> None:
    """Ask the person at the terminal, if there is one."""
    if not (count and sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from lcp_engine.cli.console.keyboard import Closed
    from lcp_engine.cli.console.terminal import confirm

    try:
        is_meant = confirm(f"{word} {'this job' if count == 1 else f'these {count} jobs'}?")
    except Closed:
        raise click.Abort from None
    if not is_meant:
        print_err("nothing was decided")
        click.get_current_context().exit(Exit.FAILED)


def _approve_edited(engine: Engine, job_id: int, by: str | None) -> bool:
    """Approve a job with params that the person edits, again until they can be used or the person leaves."""
    from lcp_engine.cli.console.editor import Draft, params_text

    job = engine.job(job_id)
    if job.state != "held":
        message = f"job {job_id} is {job.state}; only held jobs can be edited"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    draft = Draft(params_text(job.params), "params.json")
    try:
        draft.edit()
        while True:
            try:
                done = engine.approve(job_id, params=revised_params(draft.text, job), by=by)
            except LcpError as refused:
                if refused.code in (ErrorCode.CONFLICT, ErrorCode.WRONG_STATE) or not _edits_again(
                    draft, refused
                ):
                    raise
                draft.edit()
            else:
                draft.discard()
                return done
    except LcpError as refused:
        draft.leave()
        raise draft.kept_after(refused) from None


def revised_params(text: str, job: Job) -> dict[str, JsonValue]:
    """The edited params. Raises `INVALID_ARGUMENT` for what is not a JSON object, `INVALID_PARAMS` for no change."""
    if not text.strip():
        raise LcpError(
            ErrorCode.INVALID_PARAMS, "the edited text is empty; nothing was changed", advice=_EDIT_AGAIN
        )
    revised = read_object(text, "the edited text")
    if revised == job.params:
        raise LcpError(
            ErrorCode.INVALID_PARAMS, "the params are unchanged; nothing was done", advice=_EDIT_AGAIN
        )
    return revised


def _edits_again(draft: Draft, refused: LcpError) -> bool:
    """True if the person at the terminal, if there is one, mends the edit."""
    from lcp_engine.cli.console.keyboard import Closed
    from lcp_engine.cli.console.terminal import print_line, read_line

    if draft.kept is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print_line(sentence(str(refused)))
    try:
        read_line(f"Enter edits {draft.kept} again, Ctrl-D leaves it there: ")
    except Closed:
        return False
    return True


def _show_again(engine: Engine, job_id: int) -> None:
    """Show what a job would change now; the next approval is bound to that."""
    from lcp_engine.cli.commands.changes import show_diffs

    if engine.job(job_id).state == "held":
        show_diffs(make_console(sys.stderr), engine.diff(job_id))


def _print_none(invocation: Invocation, mission: int | None) -> int:
    """Print that `--all` found no job."""
    if invocation.json:
        print_json([])
    else:
        print_out("No held jobs." if mission is None else f"No held jobs in mission {mission}.")
    return Exit.DONE


def _decide_each(
    invocation: Invocation,
    engine: Engine,
    ids: Sequence[int],
    word: str,
    decide: Callable[[int], bool],
    *,
    show_conflict: Callable[[Engine, int], None] = lambda engine, job: None,
) -> int:
    """Decide on each job, also after one was refused; returns the gravest exit code."""
    from lcp_engine.api.bulk import each_outcome, missing_approvals

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
            waiting, awaited = missing_approvals(engine, [job_id])
            more = f"; it waits for {awaited}" if waiting else ""
            print_out(f"job {job_id} {word if outcome else f'was already {word}'}{more}")
    if not invocation.json:
        return max((fail(failed, as_json=False) for failed in refused), default=Exit.DONE)
    if refused and not decided:
        return fail(_combine(refused), as_json=True)
    print_json([engine.job(job_id).json for job_id in decided])
    return max((fail(failed, as_json=True) for failed in refused), default=Exit.DONE)


def _combine(refused: Sequence[Failed]) -> Failed:
    """One error for all jobs: the gravest code and every message."""
    gravest = max(refused, key=lambda failed: failed.meaning.exit_code)
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
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"--set expects limits.NAME=VALUE here, not {key!r}; {hint}"
        )
    return name


def _check_limits(limits: Mapping[str, JsonValue]) -> None:
    from lcp_engine.core.mission.parse import with_limits
    from lcp_engine.core.mission.spec import Limits

    try:
        with_limits(Limits(), limits)
    except LcpError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, str(refused), refused.failed.details) from refused


def _scalar(text: str) -> JsonValue:
    from lcp_engine.core.mission.yaml import read_scalar

    return read_scalar(text.strip())


@click.command(
    "answer",
    cls=LcpCommand,
    examples=(
        'lcp answer 12 "the second paragraph"',
        "lcp answer 12 2                         the second option",
        "lcp answer 12 --words 7                 your own words, not the seventh option",
        "lcp answer 12 --file answer.txt",
        "lcp answer 12 - < answer.txt",
        "lcp answer 12 --form version=2.0 --form day=2026-01-31      fill in the question's form",
        "lcp answer 14 --file reply.json         submit the reply of a human planner",
    ),
)
@click.argument("job", type=int, shell_complete=held_ids, metavar="J")
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--file", metavar="FILE", help="Read the answer from FILE; - is stdin.")
@click.option("--words", is_flag=True, help="Your own words, even if they look like the choice of an option.")
@click.option(
    "--form",
    "entered",
    multiple=True,
    metavar="KEY=VALUE",
    help="Fill in a field of the question's form; several times for several fields, or several values of one.",
)
@pass_invocation
def answer_command(
    invocation: Invocation,
    *,
    job: int,
    text: str | None,
    file: str | None,
    words: bool,
    entered: Sequence[str],
) -> int:
    """Answer question J, or submit the reply to turn J of a human planner.

    If the question has options, give the number or the unique beginning of one, or an answer of your own. A number of
    no option, and a beginning of several, is refused unless --words says that it is meant. If it has a form, --form
    fills in its fields; what is left out has its default. TEXT alone, your own words, answers it as well, and beside
    --form it is added. The same answer twice is harmless. Exit code 5: the question was answered differently before.
    """
    form = _entered(entered)
    said = "" if form and text is None and file is None else read_words(text, file)
    with invocation.engine() as engine:
        is_new = engine.answer(job, said, words=words, form=form or None)
        answered = engine.job(job)
        if invocation.json:
            print_json(answered.json)
        else:
            shown = "" if answered.kind == TURN else f": {_shown(answered)}"
            print_out(f"job {job} {'answered' if is_new else 'was already answered'}{shown}")
        if is_new:
            advise(invocation, engine, "`lcp work --until-idle` continues the mission")
    return Exit.DONE


@click.command(
    "say",
    cls=LcpCommand,
    examples=(
        'lcp say 3 "leave the licence alone"',
        'lcp say 3 --job 12 "not in docs/, please"',
    ),
)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--job", type=int, shell_complete=held_ids, metavar="J", help="The message is about this job.")
@click.option("--file", metavar="FILE", help="Read the text from FILE; - is stdin.")
@pass_invocation
def say_command(
    invocation: Invocation, mission: int, text: str | None, job: int | None, file: str | None
) -> int:
    """Send the planner of mission M a message, which it reads in a new turn.

    This approves and rejects nothing: held jobs stay held.
    """
    said = read_words(text, file)
    with invocation.engine() as engine:
        engine.say(mission, said, job_id=job)
        found = engine.mission(mission)
        if invocation.json:
            print_json(found.json)
        else:
            print_out(f"mission {mission}: the planner reads the message in its next turn")
        advise(invocation, engine, "`lcp work --until-idle` runs the planner's next turn")
    return Exit.DONE


def _entered(stated: Sequence[str]) -> dict[str, JsonValue]:
    """Values that --form fills in: a text for each key, or a list for one that is stated several times."""
    found: dict[str, list[JsonValue]] = {}
    for one in stated:
        for key, value in pairs([one], "--form").items():
            found.setdefault(key, []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def read_words(text: str | None, file: str | None) -> str:
    """The text of an argument, a file or stdin. Raises a usage error unless exactly one of them is given."""
    if (text is None) == (file is None):
        said = "TEXT or --file FILE is needed" if text is None else "TEXT and --file cannot be combined"
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
        raise LcpError(code, f"{source!r} cannot be read: {refused.strerror}", advice=GENERAL) from refused
    if len(data) > MOST_BYTES:
        raise LcpError(
            ErrorCode.TOO_LARGE,
            f"{source} is larger than {MOST_BYTES:,} bytes",
            advice="Name a file with one reply.",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        message = f"{source}: byte {refused.start} is not UTF-8"
        raise LcpError(ErrorCode.BINARY, message) from refused


def _shown(job: Job) -> str:
    """The stored answer, with the option that it selected."""
    result = job.result or {}
    if result.get("values") is not None:
        return one_line(shortened(str(result["answer"]).replace("\n", "; "), 300))
    answer = sentence(shortened(str(result.get("answer")), 100))
    if result.get("option") is not None:
        return f"{answer} (option {result['option']})"
    return f"{answer} (in your own words)" if job.params.get("options") else answer
