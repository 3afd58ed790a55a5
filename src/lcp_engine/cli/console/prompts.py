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
from typing import assert_never

from pydantic import JsonValue
from rich.text import Text

from lcp_engine import Job
from lcp_engine.api.bulk import missing_approvals
from lcp_engine.api.engine import Engine
from lcp_engine.api.inbox import HeldJob, ViewedFiles, mark_of, question_in
from lcp_engine.api.user import user_name
from lcp_engine.cli.base import read_object
from lcp_engine.cli.commands.changes import file_line, show_excerpt, show_job, show_params
from lcp_engine.cli.commands.decide import read_words
from lcp_engine.cli.commands.jobs import MANY
from lcp_engine.cli.console.editor import Draft, params_text
from lcp_engine.cli.console.keyboard import Closed, echo
from lcp_engine.cli.console.output import make_console, seconds_until
from lcp_engine.cli.console.terminal import (
    Choice,
    choose,
    page,
    print_legend,
    print_line,
    print_words,
    read_line,
    read_paste,
)
from lcp_engine.cli.job_tables import overview
from lcp_engine.cli.tables import print_table
from lcp_engine.core.inbox import Act, Awaits
from lcp_engine.core.job_states import State
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.question_form import FieldOption, Filled, FormField, Unfilled, fill_in, pick
from lcp_engine.core.reasons import FILE_CHANGED, ReasonCode, explain_reason
from lcp_engine.core.safe_text import block, one_line, sentence, shortened
from lcp_engine.core.summaries import OF_ENDED, as_question, duration
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.rules.always_command import ask_for_rule
from lcp_engine.features.rules.calls import add_rule_with_approval
from lcp_engine.features.stages.merge_choice import MergeChoice
from lcp_engine.inbox import Diff, Look

_WAYS = (Choice("fill", " in the form"), Choice("words", " of your own"), Choice("later"), Choice("quit"))
MOST_LINES = 20
"""Lines of a diff, or of params, that are shown before the question."""
NO_REASON = "a person said no"
FIELD_WAYS = {
    "select": "number or value", "radio": "number or value",
    "multi_select": "numbers or values, with commas between", "textarea": "text; an empty line ends it",
}  # fmt: skip
"""What is typed at a field, by its type."""
LONGEST_DEFAULT = 30
"""Characters of a default that stand beside the question; a longer one is shown with the planner's words."""
SUBMIT_INVALID = "This reply is not valid. Submit it anyway, so that the planner is asked to correct it?"
_CHOICES = (
    Choice("paste", " the reply"),
    Choice("edit", " it"),
    Choice("file", " with it"),
    Choice("view", " the question"),
    Choice("later"),
    Choice("quit"),
)


@dataclass
class Decider:
    """Decides held jobs of one mission. Jobs of `kinds` are approved without asking; `all` means every kind."""

    engine: Engine
    mission_id: int
    kinds: Collection[str] = ()
    asks: bool = False
    _postponed: set[int] = field(default_factory=set)
    _approved: dict[int, str | None] = field(default_factory=dict)
    _approved_kinds: set[str] = field(default_factory=set)
    _refused: set[int] = field(default_factory=set)
    _awaited: Mapping[int, Awaits] = field(default_factory=dict)

    def approve_named(self, note: Callable[[str], None]) -> bool:
        """Approve held jobs of the named kinds; whether any was. Refusals are printed with `note`."""
        named = {*self.kinds, *self._approved_kinds}
        if not named:
            return False
        held = self._held_jobs(() if "all" in named else sorted(named))
        approved = [self._approve(job, note) for job in held if self._is_named(job)]
        return any(approved)

    def ask(self) -> bool:
        """Ask about every other held job that was not postponed; whether the mission can continue."""
        if not self.asks:
            return False
        waiting = self._held_jobs()
        if len(waiting) >= MANY:
            print_line(f"{len(waiting):,} jobs of mission {self.mission_id} wait for you")
            print_table(overview([job.json for job in waiting]), sys.stderr)
        try:
            return self._ask_each(waiting)
        except Closed:
            self.asks = False
            return True  # what was decided before Ctrl-D can run

    def _ask_each(self, waiting: list[Job]) -> bool:
        prompt = JobPrompt(self.engine, [job.kind for job in waiting])
        decided, silent = False, 0
        for place, job in enumerate(waiting, 1):
            if self._is_named(job) and self._approve(job, print_line):
                silent += 1
                continue
            result = prompt.ask(job, f" ({place:,} of {len(waiting):,})" if len(waiting) > 1 else "")
            match result:
                case PromptResult.DECIDED:
                    decided = True
                case PromptResult.ALL:
                    self._approved_kinds.add(job.kind)
                    decided = True
                case PromptResult.SAID:  # the planner reads it before this job is asked about again
                    return True
                case PromptResult.LATER:
                    self._postponed.add(job.id)
                case _:
                    assert_never(result)
        if silent:
            print_line(f"{silent:,} more approved: {', '.join(map(one_line, sorted(self._approved_kinds)))}")
        return decided or silent > 0

    def _held_jobs(self, kinds: Collection[str] = ()) -> list[Job]:
        """The held jobs that were not postponed."""
        held = self.engine.jobs(mission_id=self.mission_id, states=[State.HELD], kinds=[*kinds])
        self._awaited = self.engine.inbox.awaited((job.id, job.kind) for job in held)
        return [job for job in held if job.id not in self._postponed]

    def _is_named(self, job: Job) -> bool:
        """True if the job is approved without asking; never a question, a job without a worker, or a changed file."""
        if self._awaited[job.id] is not Awaits.APPROVAL or job.id in self._refused:
            return False
        if self._approved.get(job.id) == job.reason:  # it was held again for what an approval does not change
            return False
        named = job.kind in self.kinds or "all" in self.kinds or job.kind in self._approved_kinds
        return named and job.reason not in {*FILE_CHANGED, ReasonCode.NO_WORKER}

    def _approve(self, job: Job, note: Callable[[str], None]) -> bool:
        """Approve; a job that cannot be approved unseen is left to be asked about."""
        self._approved[job.id] = job.reason
        try:
            approved = self.engine.approve(job.id)
            waiting, awaited = missing_approvals(self.engine, [job.id])
            if not waiting:
                return approved
            note(f"job {job.id} is approved; it waits for {awaited}")
        except LcpError as refused:
            note(sentence(str(refused)))
        self._refused.add(job.id)
        return False


class PromptResult(Enum):
    """The result of asking about one job."""

    DECIDED = auto()
    ALL = auto()
    SAID = auto()
    LATER = auto()


class JobPrompt:
    """Asks about the jobs of one round; `kinds` are the kinds of all of them."""

    def __init__(self, engine: Engine, kinds: Iterable[str]) -> None:
        self._engine = engine
        self._counts = Counter(kinds)
        self._has_legend = False
        self._drafts: dict[int, Draft] = {}
        self._look: Look | None = None
        self._is_whole = False
        self._choice: MergeChoice | None = None

    def ask(self, job: Job, place: str) -> PromptResult:
        """Ask about a job until it is decided or postponed. Raises `Closed` if the person quits."""
        job = self._engine.job(job.id)
        if job.state != State.HELD:
            print_line(f"job {job.id} was decided in the meantime: it is {job.state}")
            return PromptResult.DECIDED
        (held,) = self._engine.inbox.of([job.json])
        if Act.REPLY in held.acts:
            submitted = HumanTurn(self._engine, job).ask(place)
            return PromptResult.DECIDED if submitted else PromptResult.LATER
        if Act.ANSWER in held.acts:
            return self._ask_for_words(job, held, place)
        self._choice = MergeChoice(self._engine, job.id) if Act.TAKE in held.acts else None
        self._introduce(job, held, place)
        return self._ask_for_yes(job, held.acts)

    def _ask_for_words(self, job: Job, held: HeldJob, place: str) -> PromptResult:
        """Ask the planner's question; an empty line postpones it."""
        question = question_in(job.params)
        count = len(question.options)
        print_line(f"\njob {job.id}{place}: the planner asks")
        print_words(as_question(job.params))
        _say_expiry(held)
        if question.fields:
            return self._ask_for_form(job, question.fields)
        how = f"1 to {count}, or your own words" if count else "your answer"
        while True:
            words = read_line(f"{how} (empty: later): ")
            if not words:
                return PromptResult.LATER
            decided = self._answer(job, words)
            if decided is not None:
                return decided

    def _ask_for_form(self, job: Job, fields: Sequence[FormField]) -> PromptResult:
        """Ask how the person wants to answer a question with a form, until it is answered or postponed."""
        print_legend(_WAYS)
        while True:
            match choose("your answer?", _WAYS):
                case "fill":
                    decided = self._fill_in(job, fields)
                case "words":
                    words = _read_optional("  in your own words: ")
                    decided = self._answer(job, words, words=True) if words else None
                case "quit":
                    raise Closed
                case _:
                    return PromptResult.LATER
            if decided is not None:
                return decided

    def _fill_in(self, job: Job, fields: Sequence[FormField]) -> PromptResult | None:
        """Ask for each field, then for words; Ctrl-D returns to the question before."""
        entered: dict[str, JsonValue] = {}
        for place, asked in enumerate(fields, 1):
            value = _read_field(asked, f"{place} of {len(fields)}")
            if isinstance(value, _Left):
                return None
            entered[asked.id] = value
        words = _read_optional("  anything else, in your own words (empty: nothing): ")
        return None if words is None else self._answer(job, words, words=True, form=entered)

    def _answer(
        self, job: Job, text: str, *, words: bool = False, form: Mapping[str, JsonValue] | None = None
    ) -> PromptResult | None:
        shown = question_in(job.params).shown
        return self._try(job, lambda: self._engine.answer(job.id, text, words=words, form=form, shown=shown))

    def _introduce(self, job: Job, held: HeldJob, place: str) -> None:
        """Show the job, why it is held, and the beginning of what it would change."""
        look = self._look_at(job)
        diffs = [look.diff] if look.diff is not None else []
        title = Text(f"\njob {job.id}{place}: {one_line(job.kind)} {held.about}", style="bold")
        print_line(title.append(_counted(diffs), style="not bold"))
        if job.name and job.name != held.about:
            print_words(one_line(shortened(job.name, 200)))
        print_line(f"  held: {one_line(explain_reason(job.reason or 'waits for a decision'))}")
        if held.has_ended:
            print_line(f"  {OF_ENDED}")
        for approvals in self._engine.approvals([job]).values():
            print_line(f"  {approvals}")
        _say_expiry(held)
        self._show(job, look)

    def _look_at(self, job: Job) -> Look:
        """Look at what the job would change now, as the person has chosen it; an approval is bound to that."""
        params = None if self._look is None or self._choice is None else self._choice.params(self._look.files)
        self._look, self._is_whole = self._engine.look(job.id, params=params), False
        return self._look

    def _show(self, job: Job, look: Look) -> None:
        """Show the first lines of the diff, or of the params."""
        console = make_console(sys.stderr)
        if look.caveat:
            print_line(f"  {look.caveat}")
        if len(look.files) > 1:
            marks = ViewedFiles(self._engine.instance, job.mission_id, user_name()).marks()
            for number, diff in enumerate(look.files[:MOST_LINES], 1):
                is_viewed = mark_of(diff) in marks
                print_line(f"  {file_line(diff, number, console.width - 2, is_viewed=is_viewed)}")
            if len(look.files) > MOST_LINES:
                print_line(f"  <{len(look.files) - MOST_LINES:,} more files>")
        if look.diff is not None:
            self._is_whole = show_excerpt(console, [look.diff], MOST_LINES) and look.is_whole
        else:
            self._is_whole = show_params(console, job, MOST_LINES)
        if not self._is_whole:
            print_line("  d shows it in full")

    def _ask_for_yes(self, job: Job, acts: Collection[Act]) -> PromptResult:
        choices = self._choices(job, acts)
        if not self._has_legend:
            print_legend(choices)
            self._has_legend = True
        while True:
            answered = self._act(job, choose("run it?" if Act.APPROVE in acts else "reject it?", choices))
            if answered is not None:
                return answered

    def _choices(self, job: Job, acts: Collection[Act]) -> Sequence[Choice]:
        count = self._counts[job.kind]
        every = f" {count:,}" if count > 1 else ""
        offered = (
            (Act.APPROVE, Choice("yes")),
            (Act.REJECT, Choice("no")),
            (Act.EDIT, Choice("edit")),
            (Act.TAKE, Choice("edit", " a file")),
            (Act.TAKE, Choice("part", " of it")),
            (None, Choice("diff")),
            (Act.SAY, Choice("say", " something")),
            (None, Choice("later")),
            (Act.APPROVE, Choice("all", f"{every} of {one_line(job.kind)}, unseen")),
            (Act.RULE, Choice("rule", " to run such jobs")),
            (None, Choice("quit")),
        )
        return [choice for act, choice in offered if act is None or act in acts]

    def _act(self, job: Job, word: str) -> PromptResult | None:
        """Act on an answer; None asks again."""
        match word:
            case "yes":
                if self._is_whole:
                    return self._approve(job)
                self._show_whole(job)
                return None
            case "no":
                return self._reject(job)
            case "edit" | "part":
                return self._edit(job) if self._choice is None else self._choose(job, self._choice, word)
            case "diff":
                self._page(job, self._look_at(job))
                return None
            case "say":
                return self._say(job)
            case "all":
                return None if self._approve(job) is None else PromptResult.ALL
            case "rule":
                return self._add_rule(job)
            case "quit":
                raise Closed
            case _:
                return PromptResult.LATER

    def _choose(self, job: Job, choice: MergeChoice, word: str) -> PromptResult | None:
        """Edit a file of a merge, or choose parts of it, and show that; the next yes takes it."""
        files = () if self._look is None else self._look.files
        try:
            is_chosen = choice.edit(files) if word == "edit" else choice.walk(files)
            if is_chosen:
                self._show(job, self._look_at(job))
        except Closed:
            print_line("  nothing was chosen")
        except LcpError as refused:
            print_line(f"  {sentence(str(refused))}")
        return None

    def _approve(self, job: Job, params: dict[str, JsonValue] | None = None) -> PromptResult | None:
        shown = None if self._look is None else self._look.sight
        if self._choice is not None and self._look is not None:
            params = self._choice.params(self._look.files)
        decided = self._try(job, lambda: self._engine.approve(job.id, params=params, shown=shown))
        waiting, awaited = missing_approvals(
            self._engine, [job.id] if decided is PromptResult.DECIDED else []
        )
        if waiting:
            print_line(f"  approved; it waits for {awaited}")
            return PromptResult.LATER
        return decided

    def _add_rule(self, job: Job) -> PromptResult | None:
        """Approve the job with a rule that lets such jobs run; None asks again."""
        if not self._is_whole:
            self._show_whole(job)
            return None
        asked = ask_for_rule(self._engine, job.id)
        if asked is None:
            return None
        rule, scope = asked
        shown = None if self._look is None else self._look.sight
        released: list[int] = []
        decided = self._try(
            job,
            lambda: released.extend(add_rule_with_approval(self._engine, job.id, rule, scope, shown=shown)),
        )
        if released:
            print_line(f"  approved by the rule: {', '.join(f'job {one}' for one in released)}")
        return decided

    def _reject(self, job: Job) -> PromptResult | None:
        reason = _read_optional("  why? the planner reads it (empty: no reason): ")
        if reason is None:
            return None
        return self._try(job, lambda: self._engine.reject(job.id, reason or NO_REASON))

    def _edit(self, job: Job) -> PromptResult | None:
        """Run the job with edited params; an invalid edit is kept, and the next one continues with it."""
        draft = self._drafts.setdefault(job.id, Draft(params_text(job.params), "params.json"))
        result = None
        try:
            text = draft.edit()
            if draft.is_changed:
                result = self._approve(job, read_object(text, "the edited file"))
            else:
                print_line(f"  the {'params are unchanged' if text.strip() else 'edited file is empty'}")
        except LcpError as refused:
            print_line(f"  {sentence(str(refused))}")
        _leave(draft, is_used=result is PromptResult.DECIDED)
        return result

    def _show_whole(self, job: Job) -> None:
        """Show all of what a yes would approve; only the next yes counts."""
        look = self._look_at(job)
        if look.is_whole:
            print_line("  not all of it was shown; this is the whole, and you are asked again")
            self._page(job, look)
        else:
            print_line(
                f"  {look.caveat}: `lcp job {job.id} --json` has the params, `lcp approve {job.id}` approves it"
            )

    def _page(self, job: Job, look: Look) -> None:
        diff = look.diff
        page(lambda console: show_job(console, job, diff))
        self._is_whole = look.is_whole

    def _say(self, job: Job) -> PromptResult | None:
        words = _read_optional("  message to the planner (the job stays held): ")
        if not words:
            return None
        answer = self._try(job, lambda: self._engine.say(job.mission_id, words, job_id=job.id))
        return None if answer is None else PromptResult.SAID

    def _try(self, job: Job, act: Callable[[], object]) -> PromptResult | None:
        """Call `act`; a refusal is printed, and None asks again unless the job was decided elsewhere."""
        try:
            act()
        except LcpError as refused:
            print_line(f"  {sentence(str(refused))}")
            if self._engine.job(job.id).state != State.HELD:
                return PromptResult.DECIDED
            if refused.code is ErrorCode.CONFLICT:
                self._show(job, self._look_at(job))
            return None
        return PromptResult.DECIDED


def _leave(draft: Draft, *, is_used: bool) -> None:
    """Discard an edit that was used; say where any other is."""
    if is_used:
        draft.discard()
    else:
        draft.leave()
    if draft.kept is not None:
        echo(
            f"  your edit is kept in {draft.kept}; e continues with it\n"
        )  # unbroken, so that it can be copied


def _say_expiry(held: HeldJob) -> None:
    if held.expires_at is not None:
        seconds = seconds_until(held.expires_at, datetime.now(UTC))
        print_line(f"  rejected automatically {'in ' + duration(seconds) if seconds > 0 else 'now'}")


def _counted(diffs: Sequence[Diff]) -> str:
    added, removed = (
        sum(counts) for counts in ([diff.added for diff in diffs], [diff.removed for diff in diffs])
    )
    return f"  +{added:,} -{removed:,}" if added or removed else ""


class _Left(Enum):
    """The person pressed Ctrl-D at a field."""

    LEFT = auto()


def _read_field(asked: FormField, place: str) -> JsonValue | _Left:
    """Read the value of one field; nothing typed takes its default, and what does not fit is asked again."""
    print_line(f"  {place}{'' if asked.required else ' (optional)'}:")
    print_words("\n".join(field_words(asked)))
    usual = usual_of(asked)
    while True:
        typed = _read_optional(f"    {FIELD_WAYS.get(asked.type, asked.expectation)}{usual}: ")
        if typed is None:
            return _Left.LEFT
        while asked.type == "textarea" and typed and (line := _read_optional("    … ")):
            typed += f"\n{line}"
        match fill_in([asked], {asked.id: entered_in(asked, typed)}):
            case Filled(values):
                return values.get(asked.id)
            case Unfilled(problems):
                print_line(f"    {one_line(problems[0].message)}")


def field_words(asked: FormField) -> list[str]:
    """The planner's words about a field: label, help, placeholder, options, and a default that is long."""
    lines = [asked.label, *([f"  {asked.help}"] if asked.help else [])]
    lines += [f"  such as: {asked.placeholder}"] if asked.placeholder else []
    lines += [f"  {number}) {option.shown}" for number, option in enumerate(asked.options or (), 1)]
    usual = "" if asked.default is None else asked.shown(asked.default)
    return [*lines, f"  default: {usual}"] if len(usual) > LONGEST_DEFAULT else lines


def usual_of(asked: FormField) -> str:
    """The default of a field, behind what is typed at it."""
    if asked.default is None:
        return ""
    usual = asked.shown(asked.default)
    return " [the default]" if len(usual) > LONGEST_DEFAULT else f" [{one_line(usual)}]"


def entered_in(asked: FormField, typed: str) -> JsonValue:
    """Value that was typed at a field; its options may be named by number."""
    if not asked.options:
        return typed
    words = [word.strip() for word in typed.split(",")] if asked.type == "multi_select" else [typed]
    chosen: list[JsonValue] = [_chosen(asked.options, word) for word in words if word]
    return chosen if asked.type == "multi_select" else "".join(map(str, chosen))


def _chosen(options: Sequence[FieldOption], word: str) -> str:
    """The value of the option that a word names: by its number, its value, its label, or the beginning of one."""
    for names in ([one.value for one in options], [one.shown for one in options]):
        if (number := pick(names, word)) is not None:
            return options[number - 1].value
    return word


def _read_optional(question: str) -> str | None:
    """Read a line; None after Ctrl-D, which returns to the question before."""
    try:
        return read_line(question)
    except Closed:
        return None


class HumanTurn:
    """Asks the person at the terminal for the reply to one turn."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._draft = Draft("", "reply.json")

    def ask(self, place: str) -> bool:
        """Ask until a reply is submitted; False postpones it. Raises `Closed` if the person quits."""
        job = self._job
        turns = self._engine.turns(job.mission_id, job_id=job.id)
        prompt = str(turns[-1]["prompt"] or "") if turns else ""
        with tempfile.TemporaryDirectory(prefix="lcp-") as directory:  # readable by this user alone
            question = Path(directory) / f"turn-{job.id}.md"
            question.write_text(prompt, encoding="utf-8", errors="replace")
            print_line(
                f"\njob {job.id}{place}: you are the planner; the prompt has {len(prompt):,} characters"
            )
            make_console(sys.stderr).print(f"  {question}")  # whole, to be copied
            print_legend(_CHOICES)
            while True:
                word = choose("your reply?", _CHOICES)
                if word == "later":
                    return False
                if word == "quit":
                    raise Closed
                if word == "view":
                    page(lambda console: console.print(block(prompt)))
                elif self._submit(word):
                    return True

    def _submit(self, way: str) -> bool:
        """Read the reply in the chosen way and submit it; False asks again."""
        is_done = False
        try:
            reply = self._read(way)
            if not reply.strip():
                print_line("  the reply is empty; nothing was submitted")
            elif self._is_intended(reply):
                self._engine.answer(self._job.id, reply)
                is_done = True
        except LcpError as refused:
            print_line(f"  {sentence(str(refused))}")
            is_done = self._engine.job(self._job.id).state != State.HELD
        finally:  # also when the person leaves at the question whether the reply is meant
            _leave(self._draft, is_used=is_done)
        return is_done

    def _read(self, way: str) -> str:
        if way == "paste":
            self._draft.take(read_paste("  paste the reply; an empty line after it or Ctrl-D ends it"))
            return self._draft.text
        if way == "edit":
            return self._draft.edit()
        try:
            name = read_line("  file: ")
        except Closed:
            return ""
        return read_words(None, str(Path(name).expanduser())) if name not in ("", "-") else ""

    def _is_intended(self, reply: str) -> bool:
        """True if the reply is submitted. The person confirms an invalid one, which is more often a slip than meant."""
        read = self._engine.read_reply(self._job.mission_id, reply)
        if not isinstance(read, Malformed):
            return True
        for line in invalid_lines(read):
            print_line(f"  {line}")
        return choose(SUBMIT_INVALID, (Choice("no"), Choice("yes"))) == "yes"


def invalid_lines(read: Malformed) -> list[str]:
    """Faults of a reply, a line each."""
    return [
        f"{one_line(problem.path or 'reply')}: {one_line(problem.message)}" for problem in read.errors[:10]
    ]
