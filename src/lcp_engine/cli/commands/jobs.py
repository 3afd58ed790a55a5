"""List and show jobs (`lcp jobs`, `lcp job`, `lcp held`)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from lcp_engine import Job
from lcp_engine.api.history import History
from lcp_engine.api.user import user_name
from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import job_ids, kinds_option, mission_ids
from lcp_engine.cli.commands.events import warning_lines
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import (
    coloured,
    local_time,
    make_console,
    print_err,
    print_fitted,
    print_json,
    print_out,
)
from lcp_engine.cli.job_tables import held_table, jobs_table, overview
from lcp_engine.cli.tables import Table, print_table, quoted_for
from lcp_engine.core.inbox import awaited_by
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject, JsonValue, list_in, object_in
from lcp_engine.core.kinds import QUESTION, TURN, kind_named
from lcp_engine.core.limits.money import told_cost
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.safe_text import Shown, block, json_line, one_line, sentence, shortened
from lcp_engine.core.summaries import OF_ENDED, as_question, left_out_line, nearest
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine.core.policy import Approvals

MOST_LISTED = 100
MOST_LINES = 20
MOST_HELD = 50

MANY = 10
"""From this many held jobs on, an overview comes first."""


@click.command(
    "jobs",
    cls=LcpCommand,
    examples=(
        "lcp jobs --state failed",
        "lcp jobs --mission 3 --kind read_file --json",
    ),
)
@click.option(
    "--mission", type=int, shell_complete=mission_ids, metavar="M", help="Only jobs of this mission."
)
@click.option("--state", "states", multiple=True, type=click.Choice([str(state) for state in State]), metavar="STATE",
              help=f"Only jobs in this state ({', '.join(State)}); may be repeated.")  # fmt: skip
@kinds_option
@click.option("--limit", type=Count(1), metavar="N",
              help=f"Only the newest N.  [default: {MOST_LISTED}, or all with --mission]")  # fmt: skip
@pass_invocation
def jobs_command(
    invocation: Invocation,
    mission: int | None,
    states: Sequence[str],
    kinds: Sequence[str],
    limit: int | None,
) -> int:
    """List jobs in the order of their ids."""
    most = limit if limit or mission is not None else MOST_LISTED
    if any(kind.startswith("tool-") for kind in kinds):
        known = invocation.known_workers()
        kinds = [kind_named(kind, known) for kind in kinds]
    with invocation.history() as history:
        if mission is not None:
            history.mission(mission)
        found = history.jobs(mission_id=mission, states=states, kinds=kinds, limit=most, newest_first=True)
        if unseen := set(kinds) - {job.kind for job in found}:
            _check_kinds(history, unseen, [*invocation.known_workers()])
    found.reverse()
    _print_jobs(found, as_json=invocation.json)
    if not (found or invocation.json or invocation.quiet):
        print_err("No jobs.")
    if limit is None and len(found) == most and not invocation.quiet:
        print_err(f"these are the newest {most}; use --limit for more")
    return Exit.DONE


def _check_kinds(history: History, kinds: Collection[str], known: Sequence[str]) -> None:
    """Raise `INVALID_ARGUMENT` for a kind that no job has and no worker executes: it was meant otherwise."""
    for kind in sorted(kinds):
        if kind not in known and not history.jobs(kinds=[kind], limit=1):
            fact = f"no job has the kind {kind!r}, and no worker executes it; {nearest(kind, known)}"
            advice = "Name a kind that has a worker or a job."
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"--kind: {fact}", advice=advice)


@click.command("held", cls=LcpCommand)
@click.option(
    "--mission", type=int, shell_complete=mission_ids, metavar="M", help="Only jobs of this mission."
)
@click.option("--limit", type=Count(1), metavar="N",
              help=f"Only the first N.  [default: {MOST_HELD} in a table, all in JSON]")  # fmt: skip
@pass_invocation
def held_command(invocation: Invocation, mission: int | None, limit: int | None) -> int:
    """List what waits for a person: held jobs to approve or reject, and questions to answer.

    A long list begins with an overview by kind and directory. `lcp diff J` shows what a job would change, `lcp job J`
    its params; `lcp approve J`, `lcp reject J` and `lcp answer J` decide.
    """
    with invocation.history() as history:
        if mission is not None:
            history.mission(mission)
        found = history.jobs(mission_id=mission, states=[State.HELD])
        listed = found[: limit or (len(found) if invocation.json else MOST_HELD)]
        unseen = history.unseen(listed, user_name())
        expiries, awaited = history.expiries(), history.awaited_replies()
        approvals: Mapping[int, Approvals] = {}
        several = _may_need_several(invocation, history, listed)
        if unseen or several:  # seldom: what a job would change is recorded when it is held
            with invocation.engine() as engine:
                engine.saw(unseen)
                approvals = engine.approvals(listed) if several else {}
        if invocation.json:
            print_json([_held_json(job, expiries, approvals) for job in listed])
            return Exit.DONE
        table = held_table(
            [job.json for job in listed],
            expiries,
            of_one_mission=mission is not None,
            about=history.subjects(),
            ended=history.have_ended({job.mission_id for job in listed}),
        )
    _print_held(found, listed, table, awaited, approvals)
    if not (listed or invocation.quiet):
        print_err("No jobs wait for a person.")
    return Exit.DONE


def _may_need_several(invocation: Invocation, history: History, jobs: Sequence[Job]) -> bool:
    """True if a rule about these jobs' missions may ask for more than one person's yes; told without the engine."""
    return history.ask_several({job.mission_id for job in jobs}, invocation.settings.policy)


def _held_json(
    job: Job, expiries: Mapping[int, str], approvals: Mapping[int, Approvals]
) -> dict[str, JsonValue]:
    several = approvals.get(job.id)
    return {
        **job.json,
        "expires_at": expiries.get(job.id),
        "approvals": None if several is None else several.as_json(),
    }


def _print_held(
    found: Sequence[Job], listed: Sequence[Job], table: Table, awaited: Collection[int],
    approvals: Mapping[int, Approvals],
) -> None:  # fmt: skip
    if len(found) > len(listed):
        print_table(overview([job.json for job in found]), sys.stdout)
        print_out("")
    if listed and print_table(table, sys.stdout):
        print_err("… `lcp job J` shows all")
    if len(found) > len(listed):
        print_out(f"and {len(found) - len(listed):,} more; `--limit {len(found)}` lists them all")
    for job in listed:
        if is_question(job, awaited):
            print_out(f"\n{question_text(job)}")
    for job_id, of_job in approvals.items():
        print_out(f"job {job_id}: {of_job}")


@click.command("job", cls=LcpCommand)
@click.argument("job", type=int, shell_complete=job_ids, metavar="J")
@click.option("--prompt", "only_prompt", is_flag=True, help="Print only the prompt of a turn.")
@pass_invocation
def job_command(invocation: Invocation, job: int, only_prompt: bool) -> int:
    """Show job J with its params, result, attempts and events; of a held turn also the prompt."""
    with invocation.history() as history:
        found = history.job(job)
        events = history.events(found.mission_id, job_id=job)
        turns = history.turns(found.mission_id, job_id=job) if found.kind == TURN else []
        has_ended = bool(found.state == State.HELD and history.have_ended([found.mission_id]))
    prompt, warnings = (turns[0]["prompt"], turns[0]["warnings"]) if turns else (None, None)
    left_out = left_out_lines(turns[0]["left_out"]) if turns else []
    completions = list_in(turns[0]["completions"]) if turns else []
    if only_prompt and not isinstance(prompt, str):
        message = f"job {job} has no stored prompt; only turns do"
        raise LcpError(
            ErrorCode.NOT_FOUND, message, advice="Name a turn: a job of kind agent_plan that was asked."
        )
    if invocation.json:
        print_json({**found.json, "events": [*events], **(_told(turns[0]) if turns else {})})
    elif only_prompt:
        print_out(block(str(prompt)), is_exact=True)
        for part in left_out:  # not part of the prompt, which may be piped elsewhere
            print_err(part)
    else:
        console = make_console(sys.stdout)
        _print_job(console, found, events, completions, note=OF_ENDED if has_ended else "")
        for line in warning_lines(warnings):
            print_fitted(console, line)
        for part in left_out:
            print_fitted(console, part)
        if found.state == State.HELD and isinstance(prompt, str):
            # Elsewhere it is for another program, such as a chat model.
            print_out(f"prompt\n{quoted_for(prompt, sys.stdout) if sys.stdout.isatty() else block(prompt)}")
    return Exit.DONE


def _told(turn: JsonObject) -> JsonObject:
    keys = ("prompt", "warnings", "context_tokens", "left_out", "completions")
    return {key: turn[key] for key in keys}


def left_out_lines(left_out: JsonValue) -> list[str]:
    """Parts that a prompt left out of the results of jobs, a line each."""
    parts = [part for part in left_out if isinstance(part, dict)] if isinstance(left_out, list) else []
    return (
        ["left out of the prompt:", *(f"  {one_line(left_out_line(part))}" for part in parts)]
        if parts
        else []
    )


def _print_jobs(jobs: Sequence[Job], *, as_json: bool) -> None:
    if as_json:
        print_json([job.json for job in jobs])
        return
    print_table(jobs_table([job.json for job in jobs]), sys.stdout)


def _print_job(
    console: Console,
    job: Job,
    events: Sequence[JsonObject],
    completions: Sequence[JsonValue],
    *,
    note: str,
) -> None:
    title = Text.assemble((f"job {job.id} {one_line(job.kind)}", "bold"), "  ", coloured(job.state))
    print_fitted(console, title.append(f"  {one_line(explain_reason(job.reason or ''))}"))
    stated = job.json
    print_fitted(
        console,
        f"  mission {job.mission_id}, turn {stated['turn'] or '-'}, attempt {job.attempt} of {stated['max_attempts']}",
    )
    if note:
        print_fitted(console, Text(f"  {note}", style="yellow"))
    if job.name:
        print_fitted(console, quoted_for(one_line(job.name), sys.stdout, "  "))
    _print_object(console, "params", job.params)
    if job.result is not None:
        _print_object(console, "result", job.result)
    if job.error is not None:
        _print_object(console, "error", job.error)
    _print_attempts(console, job)
    _print_completions(console, completions)
    print_fitted(console, Text("events", style="bold"))
    for event in events:
        data = "" if event["data"] is None else shortened(json_line(event["data"]), 120)
        print_fitted(
            console, f"  {event['seq']:>4}  {local_time(str(event['at']))}  {event['event']}  {data}".rstrip()
        )


def _print_object(console: Console, title: str, value: Mapping[str, JsonValue]) -> None:
    """Print keys and values; long texts are cut."""
    print_fitted(console, Text(title, style="bold"))
    for key, item in value.items():
        if isinstance(item, str) and "\n" in item:
            print_fitted(console, f"  {one_line(key)}:")
            _print_lines(console, item)
        else:
            shown = one_line(item) if isinstance(item, str) else json_line(item)
            print_fitted(console, f"  {one_line(key)}: {shortened(shown, 300)}")


def _print_lines(console: Console, text: str) -> None:
    lines = block(text).splitlines()
    for line in lines[:MOST_LINES]:
        print_fitted(console, f"    │ {shortened(Shown(line), 160)}")
    if len(lines) > MOST_LINES:
        print_fitted(console, f"    │ … {len(lines) - MOST_LINES} more lines; --json shows them all")


def _print_attempts(console: Console, job: Job) -> None:
    if not job.attempts:
        return
    print_fitted(console, Text("attempts", style="bold"))
    for attempt in job.attempts:
        if isinstance(attempt, dict):
            error = attempt.get("error")
            message = error.get("user_message") if isinstance(error, dict) else None
            paid = attempt.get("input_tokens"), attempt.get("output_tokens")
            cost = "" if paid == (None, None) else f"{paid[0]} + {paid[1]} tokens  "
            print_fitted(
                console,
                f"  {attempt['attempt']}  {attempt['outcome']}  runner {attempt['runner_id']}  "
                f"{local_time(str(attempt['started_at']))}  {cost}{sentence(str(message or ''))}".rstrip(),
            )
            if isinstance(stderr := attempt.get("stderr"), str):
                print_fitted(console, "    stderr:")
                _print_lines(console, stderr)


def _print_completions(console: Console, completions: Sequence[JsonValue]) -> None:
    """Print the requests to a model, and why each was not enough."""
    if completions:
        print_fitted(console, Text("completions", style="bold"))
    for number, made in enumerate(map(object_in, completions), 1):
        print_fitted(console, f"  {number}  {completion_line(made)}")
        if made.get("said"):
            print_fitted(console, f"     {sentence(str(made['said']))}")


def completion_line(made: JsonObject) -> str:
    """One completion: what came of it, its tokens, its time, and how it was asked."""
    paid = made.get("input_tokens"), made.get("output_tokens")
    temperature, most = made.get("temperature"), made.get("max_tokens")
    parts = [
        str(made.get("fault") or "the reply"),
        "tokens not counted" if paid == (None, None) else f"{paid[0] or 0:,} + {paid[1] or 0:,} tokens",
        told_cost(made.get("cost")) or "",
        f"{made.get('seconds')} s",
        one_line(str(made.get("model"))),
        str(made.get("mode")),
        "" if temperature is None else f"temperature {temperature}",
        "" if most is None else f"at most {most} tokens",
        f"attempt {made.get('attempt')}",
    ]
    return ", ".join(part for part in parts if part)


def is_question(job: Job, awaited: Collection[int]) -> bool:
    """True if a held job needs an answer and no approval; `awaited` are the turns whose reply a person brings."""
    return awaited_by(job.kind, is_relayed=job.id in awaited, has_worker=True).is_words


def answer_with(job: Job) -> str:
    """The command that answers a question."""
    way = "TEXT" if job.kind == QUESTION else "--file REPLY"
    return f"`lcp answer {job.id} {'--form KEY=VALUE … [TEXT]' if job.params.get('fields') else way}`"


def question_text(job: Job) -> str:
    """The question with its options and the command that answers it."""
    if job.kind != QUESTION:
        shows = f"`lcp job {job.id} --prompt` shows the prompt"
        return f"job {job.id}: {shows}, {answer_with(job)} submits the planner's reply"
    if not sys.stdout.isatty():  # scripts read it
        return block(f"job {job.id}: {as_question(job.params)}\n  {answer_with(job)}")
    words = quoted_for(as_question(job.params), sys.stdout)
    return f"job {job.id}: the planner asks\n{words}\n  {answer_with(job)}"
