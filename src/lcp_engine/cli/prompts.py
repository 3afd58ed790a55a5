"""Ask the person at the terminal about held jobs and turns while a mission runs."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from lcp_engine.api import Engine
from lcp_engine.changes.recovery import CONFLICT
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.cli.base import read_object
from lcp_engine.cli.changes import show_diffs, show_excerpt
from lcp_engine.cli.decide import read_words
from lcp_engine.cli.jobs import MANY, overview
from lcp_engine.cli.output import make_console, seconds_until
from lcp_engine.cli.terminal import (
    Choice,
    Closed,
    choose,
    edit_text,
    page,
    params_text,
    read_line,
    read_paste,
    say,
    say_legend,
)
from lcp_engine.core.job_states import State
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.safe_text import block, json_block, one_line, shortened
from lcp_engine.core.summaries import as_question, duration, subject
from lcp_engine.engine.admission import NO_WORKER
from lcp_engine.engine.people.approval_binding import DRIFT
from lcp_engine.engine.reports.markdown import explain_reason
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.ask_user import KIND as ASK_USER

MOST_LINES = 20
"""Lines of a diff, or of params, that are shown before the question."""
NO_REASON = "a person said no"
_CHOICES = (
    Choice("paste", " the reply"),
    Choice("edit", " it"),
    Choice("file", " that holds it"),
    Choice("view", " the question"),
    Choice("later"),
    Choice("quit"),
)


@dataclass
class Decider:
    """Decides the held jobs of one mission. `kinds` are approved without a question; `all` means every kind."""

    engine: Engine
    mission_id: int
    kinds: Collection[str] = ()
    asks: bool = False
    _later: set[int] = field(default_factory=set)
    _all: set[str] = field(default_factory=set)
    _doubtful: set[int] = field(default_factory=set)
    _awaited: frozenset[int] = frozenset()

    def approve_named(self, tell: Callable[[str], None]) -> bool:
        """Approve what is held and of the named kinds; whether anything was. What was in the way is told."""
        named = {*self.kinds, *self._all}
        if not named:
            return False
        held = self._open(() if "all" in named else sorted(named))
        approved = [self._approve(job, tell) for job in held if self._is_named(job)]
        return any(approved)

    def ask(self) -> bool:
        """Ask about every other held job that was not put off; whether the mission can go on."""
        if not self.asks:
            return False
        waiting = self._open()
        if len(waiting) >= MANY:
            say(f"{len(waiting):,} jobs of mission {self.mission_id} wait for you")
            make_console(sys.stderr).print(overview(waiting), soft_wrap=False)
        try:
            return self._ask_each(waiting)
        except Closed:
            self.asks = False
            return True  # what was decided before goes on

    def _ask_each(self, waiting: list[Job]) -> bool:
        questioner = Questioner(self.engine, self.engine.expiries(), [job.kind for job in waiting])
        decided, silent = False, 0
        for place, job in enumerate(waiting, 1):
            if self._is_named(job) and self._approve(job, say):
                silent += 1
                continue
            match questioner.ask(job, f" ({place:,} of {len(waiting):,})" if len(waiting) > 1 else ""):
                case Answer.DECIDED:
                    decided = True
                case Answer.ALL:
                    self._all.add(job.kind)
                    decided = True
                case Answer.SAID:  # the planner reads it first; then this job is asked about again
                    return True
                case Answer.LATER:
                    self._later.add(job.id)
        if silent:
            say(f"{silent:,} more approved: {', '.join(map(one_line, sorted(self._all)))}")
        return decided or silent > 0

    def _open(self, kinds: Collection[str] = ()) -> list[Job]:
        """The held jobs that were not put off."""
        self._awaited = self.engine.awaited_replies()
        held = self.engine.jobs(mission_id=self.mission_id, states=[State.HELD], kinds=[*kinds])
        return [job for job in held if job.id not in self._later]

    def _is_named(self, job: Job) -> bool:
        """A file that is another now is something new to decide; questions and kinds without a worker take no yes."""
        if job.kind == ASK_USER or job.id in self._awaited or job.id in self._doubtful:
            return False
        named = job.kind in self.kinds or "all" in self.kinds or job.kind in self._all
        return named and job.reason not in (CONFLICT, DRIFT, NO_WORKER)

    def _approve(self, job: Job, tell: Callable[[str], None]) -> bool:
        """What cannot be approved unseen is left to be asked about, or to wait."""
        try:
            return self.engine.approve(job.id)
        except LcpError as refused:
            self._doubtful.add(job.id)
            tell(one_line(str(refused)))
            return False


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
        if job.id in self._engine.awaited_replies():
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


class PlannerSeat:
    """One turn of a mission whose planner is a person."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._draft = ""

    def take(self, place: str) -> bool:
        """Ask for the reply until it is there; False puts it off. Raises `Closed` where the person leaves."""
        job = self._job
        turns = self._engine.turns(job.mission_id, job_id=job.id)
        prompt = str(turns[-1]["prompt"] or "") if turns else ""
        with tempfile.TemporaryDirectory(prefix="lcp-") as directory:  # private to its user
            question = Path(directory) / f"turn-{job.id}.md"
            question.write_text(prompt, encoding="utf-8", errors="replace")
            say(f"\njob {job.id}{place}: you are the planner; the question has {len(prompt):,} characters")
            say(f"  {question}")
            say_legend(_CHOICES)
            while True:
                word = choose("your reply?", _CHOICES)
                if word == "later":
                    return False
                if word == "quit":
                    raise Closed
                if word == "view":
                    page(lambda console: console.print(block(prompt)))
                elif self._bring(word):
                    return True

    def _bring(self, way: str) -> bool:
        """Take the reply on one of the ways, and bring it; False asks again."""
        try:
            reply = self._read(way)
            if not reply.strip():
                say("  the reply is empty; nothing was brought")
                return False
            if not self._is_meant(reply):
                return False
            self._engine.answer(self._job.id, reply)
        except LcpError as refused:
            say(f"  {one_line(str(refused))}")
            return self._engine.job(self._job.id).state != State.HELD
        return True

    def _read(self, way: str) -> str:
        if way == "paste":
            return read_paste("  paste the reply; an empty line after it, or Ctrl-D, ends it")
        if way == "edit":
            self._draft = edit_text(self._draft, "reply.json")
            return self._draft
        try:
            name = read_line("  file: ")
        except Closed:
            return ""
        return read_words(None, str(Path(name).expanduser())) if name not in ("", "-") else ""

    def _is_meant(self, reply: str) -> bool:
        """A reply that is no action is a slip of the hand more often than what the planner has to hear about."""
        read = self._engine.read_reply(self._job.mission_id, reply)
        if not isinstance(read, Malformed):
            return True
        for problem in read.errors[:10]:
            say(f"  {one_line(problem.path or 'reply')}: {one_line(problem.message)}")
        choices = (Choice("no"), Choice("yes"))
        return choose("that is no valid reply. Bring it, to be asked for a correction?", choices) == "yes"
