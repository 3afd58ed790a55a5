"""Ask a person at the terminal about one held job."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from lcp_engine.api import Engine
from lcp_engine.api.records import Job
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.cli.base import read_object
from lcp_engine.cli.diff import show_diffs, show_excerpt
from lcp_engine.cli.editor import edit_text, params_text
from lcp_engine.cli.human_planner import PlannerSeat
from lcp_engine.cli.output import make_console, seconds_until
from lcp_engine.cli.prompt_io import Choice, Closed, choose, page, read_line, say, say_legend
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import block, json_block, one_line, shortened
from lcp_engine.core.summaries import as_question, duration, subject
from lcp_engine.engine.question import RELAYED
from lcp_engine.engine.reports.markdown import explain_reason
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers.ask_user import KIND as ASK_USER

MOST_LINES = 20
"""Lines of a diff, or of params, that are shown before the question."""
NO_REASON = "a person said no"


class Answer(Enum):
    """What came of a question."""

    DECIDED = auto()
    ALL = auto()
    SAID = auto()
    LATER = auto()


class Questioner:
    """Puts the questions of one round. `expiries` are times by job id, `kinds` those of all jobs of the round."""

    def __init__(self, engine: Engine, expiries: Mapping[int, str], kinds: Iterable[str]) -> None:
        self._engine = engine
        self._expiries = expiries
        self._counts = Counter(kinds)
        self._has_legend = False
        self._drafts: dict[int, str] = {}

    def ask(self, job: Job, place: str) -> Answer:
        """Ask about a job until it is decided, or put off. Raises `Closed` where the person leaves."""
        job = self._engine.job(job.id)
        if job.state != State.HELD:
            say(f"job {job.id} was decided meanwhile: it is {job.state}")
            return Answer.DECIDED
        if job.reason == RELAYED:
            is_brought = PlannerSeat(self._engine, job).take(place)
            return Answer.DECIDED if is_brought else Answer.LATER
        if job.kind == ASK_USER:
            return self._ask_for_words(job, place)
        self._introduce(job, place)
        return self._ask_for_yes(job)

    def _ask_for_words(self, job: Job, place: str) -> Answer:
        """Put the planner's question; an empty line puts it off."""
        options = job.params.get("options")
        count = len(options) if isinstance(options, list) else 0
        say(block(f"\njob {job.id}{place}: {as_question(job.params)}"))
        self._say_expiry(job)
        how = f"1 to {count}, or your own words" if count else "your answer"
        while True:
            words = read_line(f"{how} (empty: later): ")
            if not words:
                return Answer.LATER
            if count and words.isascii() and words.isdigit() and not 1 <= int(words[:9]) <= count:
                say(f"  there are the options 1 to {count}")
                continue
            decided = self._answer(job, words)
            if decided is not None:
                return decided

    def _answer(self, job: Job, words: str) -> Answer | None:
        return self._try(job, lambda: self._engine.answer(job.id, words))

    def _introduce(self, job: Job, place: str) -> None:
        """What it is, why it is held, and the beginning of what it would change."""
        diffs = self._engine.diff(job.id)
        title = Text(f"\njob {job.id}{place}: {one_line(job.kind)} {subject(job.json)}", style="bold")
        say(title.append(_counted(diffs), style="not bold"))
        if job.name and job.name != subject(job.json):
            say(f"  {one_line(shortened(job.name, 200))}")
        say(f"  held: {one_line(explain_reason(job.reason or 'a person has to decide'))}")
        self._say_expiry(job)
        self._show(job, diffs)

    def _say_expiry(self, job: Job) -> None:
        expires_at = self._expiries.get(job.id)
        if expires_at is not None:
            seconds = seconds_until(expires_at, datetime.now(UTC))
            say(f"  rejected by itself {'in ' + duration(seconds) if seconds > 0 else 'now'}")

    def _show(self, job: Job, diffs: Sequence[Diff]) -> None:
        """The first lines; the diff is what a yes then binds to."""
        console = make_console(sys.stderr)
        left = show_excerpt(console, diffs, MOST_LINES) if diffs else _show_params(console, job, MOST_LINES)
        if left:
            say(f"  … {left:,} more lines; d shows all of them")

    def _ask_for_yes(self, job: Job) -> Answer:
        choices = self._choices(job)
        if not self._has_legend:
            say_legend(choices)
            self._has_legend = True
        while True:
            answered = self._act(job, choose("run it?", choices))
            if answered is not None:
                return answered

    def _choices(self, job: Job) -> Sequence[Choice]:
        count = self._counts[job.kind]
        every = f" {count:,}" if count > 1 else ""
        return (
            Choice("yes"),
            Choice("no"),
            Choice("edit"),
            Choice("diff"),
            Choice("say", " something"),
            Choice("later"),
            Choice("all", f"{every} of {one_line(job.kind)}"),
            Choice("quit"),
        )

    def _act(self, job: Job, word: str) -> Answer | None:
        """What one answer comes to; None asks again."""
        match word:
            case "yes":
                return self._approve(job)
            case "no":
                return self._reject(job)
            case "edit":
                return self._edit(job)
            case "diff":
                self._page(job)
                return None
            case "say":
                return self._say(job)
            case "all":
                return None if self._approve(job) is None else Answer.ALL
            case "quit":
                raise Closed
            case _:
                return Answer.LATER

    def _approve(self, job: Job, params: dict[str, JsonValue] | None = None) -> Answer | None:
        return self._try(job, lambda: self._engine.approve(job.id, params=params))

    def _reject(self, job: Job) -> Answer | None:
        reason = _words("  why? the planner reads it (empty: no reason): ")
        if reason is None:
            return None
        return self._try(job, lambda: self._engine.reject(job.id, reason or NO_REASON))

    def _edit(self, job: Job) -> Answer | None:
        """Run the job with other params; what was typed is kept until they fit."""
        stated = params_text(job.params)
        draft = self._drafts.get(job.id, stated)
        try:
            text = edit_text(draft, "params.json")
            if text == stated:
                say("  the params are as they were")
                return None
            self._drafts[job.id] = text
            revised = read_object(text, "the edited file")
        except LcpError as refused:
            say(f"  {one_line(str(refused))}")
            return None
        return self._approve(job, revised)

    def _page(self, job: Job) -> None:
        diffs = self._engine.diff(job.id)
        page(lambda console: show_diffs(console, diffs) if diffs else _show_all(console, job))

    def _say(self, job: Job) -> Answer | None:
        words = _words("  what should the planner know? the job stays held: ")
        if not words:
            return None
        answer = self._try(job, lambda: self._engine.say(job.mission_id, words, job_id=job.id))
        return None if answer is None else Answer.SAID

    def _try(self, job: Job, act: Callable[[], object]) -> Answer | None:
        """Do it. Where it is refused, that is said, and asked again unless somebody else decided."""
        try:
            act()
        except LcpError as refused:
            say(f"  {one_line(str(refused))}")
            if self._engine.job(job.id).state != State.HELD:
                return Answer.DECIDED
            if refused.code is ErrorCode.CONFLICT:
                self._show(job, self._engine.diff(job.id))
            return None
        return Answer.DECIDED


def _counted(diffs: Sequence[Diff]) -> str:
    added, removed = (
        sum(counts) for counts in ([diff.added for diff in diffs], [diff.removed for diff in diffs])
    )
    return f"  +{added:,} -{removed:,}" if added or removed else ""


def _words(question: str) -> str | None:
    """A line; None where Ctrl-D takes the step back."""
    try:
        return read_line(question)
    except Closed:
        return None


def _show_params(console: Console, job: Job, most: int) -> int:
    """The first lines of the params; how many are left out."""
    lines = _param_lines(job)
    for line in lines[:most]:
        console.print(shortened(line, 3 * console.width))
    return max(0, len(lines) - most)


def _show_all(console: Console, job: Job) -> None:
    console.print("\n".join(_param_lines(job)))


def _param_lines(job: Job) -> list[str]:
    """Params as JSON, and long texts in them as text."""
    texts = {key: value for key, value in job.params.items() if isinstance(value, str) and "\n" in value}
    lines = json_block({key: value for key, value in job.params.items() if key not in texts}).splitlines()
    for key, text in texts.items():
        lines += [f"  {one_line(key)}:", *(f"  │ {line}" for line in block(text).splitlines())]
    return lines
