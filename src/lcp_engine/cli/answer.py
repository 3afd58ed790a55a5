"""Answer what a mission asks a person, and speak to its planner (`lcp answer`, `lcp say`)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lcp_engine.api.records import Job
from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.error_output import fail, tell
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import print_json, print_out
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.engine.reports.markdown import TURN_KIND
from lcp_engine.errors import ErrorCode, LcpError

MOST_BYTES = 16 * 1024 * 1024


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
