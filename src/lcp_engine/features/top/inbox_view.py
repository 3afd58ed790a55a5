"""The view of held jobs: what each would change, and the decisions of a person on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar, Protocol

from pydantic import JsonValue
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from lcp_engine import Job
from lcp_engine.api.bulk import decide_each, missing_approvals
from lcp_engine.api.engine import Engine
from lcp_engine.api.inbox import HeldJob, Review, ViewedFiles, mark_of, question_in
from lcp_engine.api.user import user_name
from lcp_engine.cli.commands.approve_all import Candidate, find_candidates
from lcp_engine.cli.commands.decide import revised_params
from lcp_engine.cli.console.editor import Draft, params_text
from lcp_engine.cli.console.prompts import (
    FIELD_WAYS,
    NO_REASON,
    SUBMIT_INVALID,
    entered_in,
    field_words,
    invalid_lines,
    usual_of,
)
from lcp_engine.cli.tables import Table, fact_column, id_column, text_column, wrap_words
from lcp_engine.core.inbox import Act, Awaits, why_not
from lcp_engine.core.job_states import State
from lcp_engine.core.policy import Rule
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.question_form import Filled, FormField, Unfilled, fill_in
from lcp_engine.core.reasons import FILE_CHANGED, explain_reason
from lcp_engine.core.safe_text import one_line, sentence
from lcp_engine.core.summaries import age, as_question, duration
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.rules.always_command import rule_line, rule_of, rule_question
from lcp_engine.features.rules.calls import add_rule_with_approval
from lcp_engine.features.top.dialogs import Ask, Confirm, Scope, Take, Whole, Write
from lcp_engine.features.top.lines import Content, Lines, MakeContent, Row
from lcp_engine.features.top.missions_view import table_content
from lcp_engine.features.top.shown_job import content_of, content_of_all, content_of_diff, title_of
from lcp_engine.features.top.watch import Snapshot
from lcp_engine.inbox import Diff, Look, Sight
from lcp_engine.stages import params_taking

SETTLING_SECONDS = 0.3
"""A job was on the screen for so long before a key approves it: a key that is held down approves only one."""
READING_SECONDS = 0.5
"""Interval at which the view says that a job is still being read."""
_GONE = "decided in the meantime"


class Desk(Protocol):
    """Services of the program for its views."""

    @property
    def engine(self) -> Engine: ...

    key_came_at: float
    """When the key arrived that is being handled."""

    def note(self, text: str, *, is_problem: bool = False) -> None:
        """Show a line until the next one."""

    def begin(self, deed: Coroutine[object, object, None]) -> None:
        """Do something that takes a while or asks the person, unless something else is being done."""

    async def guard(self, deed: Awaitable[None]) -> None:
        """Wait for `deed`; a refusal is said, and anything unexpected ends the program."""

    def look(self) -> None:
        """Read the database now."""

    async def ask(self, dialog: Ask) -> str | None:
        """Text that the person types; None if nothing is."""

    async def confirm(self, dialog: Confirm) -> bool:
        """True if the person says yes."""

    async def write(self, dialog: Write) -> bool:
        """True if the person sends the text, which is in the dialog's draft."""

    async def take(self, dialog: Take) -> Sequence[int]:
        """Which of the names the person takes, by their places."""

    async def scope(self, dialog: Scope) -> str | None:
        """Where a rule holds; None if nowhere."""

    def edit(self, draft: Draft) -> str:
        """Give the terminal to the person's editor; what did not work, if anything."""

    async def show_whole(self, dialog: Whole) -> bool:
        """True if the person approves."""


class InboxView(Vertical):
    """Held jobs above, below what the selected one would change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "approve", "yes"),
        Binding("n", "reject", "no"),
        Binding("e", "edit", "edit"),
        Binding("a", "approve_all", "all"),
        Binding("r", "add_rule", "rule"),
        Binding("d", "whole", "diff"),
        Binding("enter", "answer", "open"),
        Binding("s", "say", "say"),
        Binding("v", "view", "viewed", show=False),
        Binding("right_square_bracket", "file(1)", "next file", show=False),
        Binding("left_square_bracket", "file(-1)", "previous file", show=False),
        Binding("tab", "app.focus_next", "scroll"),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._desk = desk
        self.jobs = Lines(id="held")
        self.detail = Lines(id="detail")
        self._snapshot = Snapshot()
        self._held: Sequence[HeldJob] = ()
        self._shown: Review | None = None
        self._folded = frozenset[str]()
        """Marks of the files of the shown job that this person has viewed in full."""
        self._gone: int | None = None
        self._drafts: dict[int, Draft] = {}

    def compose(self) -> ComposeResult:
        yield self.jobs
        yield self.detail

    def show(self, snapshot: Snapshot) -> None:
        """Show the inbox as it is now. The job under the cursor stays there, also when it was decided elsewhere."""
        self._snapshot = snapshot
        held = [*snapshot.held]
        current = self._current()
        ids = [one.id for one in held]
        self._gone = None if current is None or current.id in ids else current.id
        if current is not None and self._gone is not None:
            held.insert(min([one.id for one in self._held].index(current.id), len(held)), current)
        self._held = held
        self.jobs.show(self._table())
        if not held:
            self._clear()

    def redraw(self) -> None:
        """Show the ages as they are now."""
        self.show(self._snapshot)

    def open(self, job_id: int) -> bool:
        """Select a job; False if it is not in the inbox."""
        if all(one.id != job_id for one in self._held):
            return False
        self.jobs.select(job_id)
        return True

    @on(Lines.Selected, "#held")
    def choose(self, event: Lines.Selected) -> None:
        event.stop()
        self._clear()
        if self._gone is not None and self._gone != event.key:
            self.show(self._snapshot)

        async def look() -> None:
            await self._desk.guard(self._load(event.key))

        # Not a coroutine: one that is superseded before it begins would never be awaited.
        work: Callable[[], object] = look
        self.run_worker(work, exclusive=True, group="look")

    async def _load(self, job_id: int) -> None:
        held = self._current()
        if held is None or held.id != job_id:
            return
        reading = asyncio.ensure_future(asyncio.to_thread(self._read, job_id))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be superseded
        began = time.monotonic()
        while not (await asyncio.wait([reading], timeout=READING_SECONDS))[0]:
            self._say_that_it_reads(held, time.monotonic() - began)
        shown, folded = await reading
        if self.jobs.selected == job_id:
            self._shown, self._folded = shown, folded
            self.detail.show(content_of(shown, folded), is_new=True)

    def _read(self, job_id: int) -> tuple[Review, frozenset[str]]:
        shown = self._desk.engine.inbox.review(job_id)
        if shown.look is None or not shown.look.files:
            return shown, frozenset()
        marks = self._viewed(shown).marks()
        return shown, frozenset(mark for mark, was_seen in marks.items() if was_seen)

    def _viewed(self, shown: Review) -> ViewedFiles:
        return ViewedFiles(self._desk.engine.instance, shown.job.mission_id, user_name())

    def _say_that_it_reads(self, held: HeldJob, seconds: float) -> None:
        """Say what is awaited, and for how long: a large file takes its time."""
        if self.jobs.selected == held.id:
            line = f"reading what job {held.id} would change: {duration(seconds)}"
            self.detail.show(
                lambda width: Content([Row(Text(part, style="dim")) for part in wrap_words(line, width)]),
                is_new=True,
            )

    @property
    def _shown_at(self) -> float:
        """When the selected job appeared on the terminal."""
        return self.detail.frame.at

    def _clear(self) -> None:
        self._shown = None
        self.detail.show(lambda width: Content(()), is_new=True)

    def _current(self) -> HeldJob | None:
        return next((one for one in self._held if one.id == self.jobs.selected), None)

    def _table(self) -> MakeContent:
        held, gone, left = self._held, self._gone, self._snapshot.held_count - len(self._snapshot.held)

        def make(width: int) -> Content:
            if not held:
                return Content([Row(Text("No job waits for you.", style="dim"))])
            content = table_content(_table_of(held, gone), width, [one.id for one in held])
            more = [Row(Text(f"{left:,} more wait behind these", style="dim"))] if left > 0 else []
            return Content([*content.rows, *more], content.heading)

        return make

    # -- What the keys do

    def action_approve(self) -> None:
        self._with_shown(partial(self._approve, self._desk.key_came_at), Act.APPROVE)

    def action_reject(self) -> None:
        self._with_shown(self._reject, Act.REJECT)

    def action_edit(self) -> None:
        """Edit the params of a job, take some files of a merge, write the reply of a planner."""
        self._with_shown(self._edit, Act.EDIT, Act.TAKE, Act.REPLY)

    def action_add_rule(self) -> None:
        self._with_shown(partial(self._add_rule, self._desk.key_came_at), Act.RULE)

    def action_approve_all(self) -> None:
        self._with_shown(self._approve_all, Act.APPROVE)

    def action_whole(self) -> None:
        self._with_shown(self._show_whole)

    def action_answer(self) -> None:
        """Answer a question, or show any other job in full."""
        self._with_shown(self._answer)

    def action_say(self) -> None:
        self._with_shown(self._say, Act.SAY)

    def action_view(self) -> None:
        """Mark the topmost file as viewed, which folds it, or take the mark back."""
        self._with_shown(partial(self._view, self._desk.key_came_at))

    def action_file(self, by: int) -> None:
        """Go to the next file, or back to the one before."""
        self.detail.go_to_part(by)

    async def _view(self, came_at: float, shown: Review) -> None:
        part = self.detail.part_at_top(came_at)
        if part is None or shown.look is None:
            self._desk.note("only a job that changes several files is viewed file by file")
            return
        number, unseen = part
        diff = shown.look.files[number - 1]
        mark, viewed = mark_of(diff), self._viewed(shown)
        if mark in self._folded:
            await asyncio.to_thread(viewed.remove, mark)
            self._folded -= {mark}
        elif unseen:
            self._desk.note(f"{unseen:,} rows of {one_line(diff.path)} were not on the screen yet")
            return
        else:
            await asyncio.to_thread(partial(viewed.add, mark, was_seen=True))
            self._folded |= {mark}
        if self._shown is shown:
            self.detail.refold(content_of(shown, self._folded))

    def _with_shown(self, deed: Callable[[Review], Coroutine[object, object, None]], *acts: Act) -> None:
        """Do something with the job that is shown, if it admits one of these acts."""
        shown = self._shown
        if shown is None or shown.job.id != self.jobs.selected:
            if self._held:
                self._desk.note("what the job would change is not shown yet")
        elif acts and shown.held.acts.isdisjoint(acts):
            self._desk.note(_why_not(shown.held, acts[0]))
        else:
            self._desk.begin(deed(shown))

    async def _approve(self, came_at: float, shown: Review) -> None:
        look = shown.look
        if await self._agrees_to(shown, came_at) and look is not None:
            await self._decide(
                shown, lambda: self._desk.engine.approve(shown.job.id, shown=look.sight), "approved"
            )

    async def _agrees_to(self, shown: Review, came_at: float) -> bool:
        """True if a key that came then approves the job: all of it was on the screen, for long enough."""
        look = shown.look
        if look is None:
            return False
        if not look.is_whole:
            self._desk.note(
                f"{look.caveat}: `lcp job {shown.job.id} --json` has the params, "
                f"`lcp approve {shown.job.id}` approves it"
            )
        elif came_at - self._shown_at < SETTLING_SECONDS:
            self._desk.note(f"job {shown.job.id} has only just appeared: look at it, then press y")
        elif self.detail.was_seen(came_at):
            return True
        else:
            content = content_of(shown, self._folded)
            return await self._desk.show_whole(Whole(title_of(shown), content, may_approve=True))
        return False

    async def _add_rule(self, came_at: float, shown: Review) -> None:
        """Approve the job with a rule that lets such jobs run from now on, which is shown before it counts."""
        engine, job, look = self._desk.engine, shown.job, shown.look
        rules = await asyncio.to_thread(engine.rules_for, job.id)
        if not await self._agrees_to(shown, came_at) or look is None:
            return
        said = await self._desk.ask(Ask(rule_question(rules)))
        rule = rule_of(rules, said) if said else None
        if rule is None:
            return
        question = f"{rule_line(rule)}, from now on.\nm: in this mission.  u: in all that you launch, too."
        scope = await self._desk.scope(Scope(question))
        if scope is not None:
            await self._approve_always(shown, rule, scope, look.sight)

    async def _approve_always(self, shown: Review, rule: Rule, scope: str, sight: Sight) -> None:
        released: list[int] = []

        def approve() -> bool:
            released.extend(add_rule_with_approval(self._desk.engine, shown.job.id, rule, scope, shown=sight))
            return True

        await self._decide(shown, approve, "approved, with the rule")
        if released:
            self._desk.note(f"job {shown.job.id} approved, and {len(released):,} more by the rule")
            self._leave(released)

    async def _edit(self, shown: Review) -> None:
        if Act.REPLY in shown.held.acts:
            await self._write_reply(shown)
        elif Act.TAKE in shown.held.acts:
            await self._take_files(shown, () if shown.look is None else shown.look.files)
        else:
            await self._edit_params(shown)

    async def _edit_params(self, shown: Review) -> None:
        """Let the person edit the params, then show what the job would change with them."""
        job, problem = shown.job, ""
        draft = self._drafts.setdefault(job.id, Draft(params_text(job.params), "params.json"))
        question = f"The params of {title_of(shown)}, as JSON. Nothing runs before you have seen what it would change."
        while await self._desk.write(Write(question, draft, self._desk.edit, problem)):
            try:
                params = revised_params(draft.text, job)
                look = await asyncio.to_thread(self._desk.engine.look, job.id, params=params)
            except LcpError as refused:
                problem = sentence(str(refused))
                continue
            if await self._approve_with(shown, params, look):
                _ = self._drafts.pop(job.id, None)
                return
            problem = ""

    async def _take_files(self, shown: Review, files: Sequence[Diff]) -> None:
        """Let the person choose files and hunks of a merge, then show what it would change with those."""
        parts = [part for diff in files for part in _parts_of(diff)]
        names, notes = [part.name for part in parts], [part.note for part in parts]
        contents = [content_of_diff(part.diff) for part in parts]
        chosen = await self._desk.take(Take(title_of(shown), names, notes, contents))
        if not chosen:
            return
        hunks: dict[str, list[str]] = {}
        for part in (parts[at] for at in chosen):
            hunks.setdefault(part.path, []).append(part.hunk)
        taken = {diff.path: diff.taking(hunks[diff.path]) for diff in files if diff.path in hunks}
        params = params_taking([diff.path for diff in files], taken)
        look = await asyncio.to_thread(self._desk.engine.look, shown.job.id, params=params)
        await self._approve_with(shown, params, look)

    async def _approve_with(self, shown: Review, params: dict[str, JsonValue], look: Look) -> bool:
        """Show what the job would do with other params; whether the person approved that."""
        job = replace(shown.job, params=params)
        revised = replace(shown, job=job, look=look)
        dialog = Whole(f"{title_of(revised)}  (edited)", content_of(revised), may_approve=look.is_whole)
        if not await self._desk.show_whole(dialog):
            return False
        approve = partial(self._desk.engine.approve, job.id, params=params, shown=look.sight)
        await self._decide(shown, approve, "approved as edited")
        return True

    async def _write_reply(self, shown: Review) -> None:
        """Take the reply of a planner that is a person; one that is not valid is sent only if that is meant."""
        job, problem = shown.job, ""
        draft = self._drafts.setdefault(job.id, Draft("", "reply.json"))
        question = f"Your reply to turn {shown.job.id}, as its planner: one JSON object"
        while await self._desk.write(Write(question, draft, self._desk.edit, problem)):
            problem = await asyncio.to_thread(self._problem_of_reply, job, draft.text)
            if problem and (not draft.text.strip() or not await self._means(problem)):
                continue
            await self._decide(shown, lambda: self._desk.engine.answer(job.id, draft.text), "answered")
            _ = self._drafts.pop(job.id, None)
            return

    def _problem_of_reply(self, job: Job, reply: str) -> str:
        if not reply.strip():
            return "the reply is empty; nothing was submitted"
        read = self._desk.engine.read_reply(job.mission_id, reply)
        return "\n".join(invalid_lines(read)) if isinstance(read, Malformed) else ""

    async def _means(self, problem: str) -> bool:
        return await self._desk.confirm(Confirm(f"{problem}\n\n{SUBMIT_INVALID}"))

    async def _show_whole(self, shown: Review) -> None:
        look = shown.look
        may_approve = Act.APPROVE in shown.held.acts and look is not None and look.is_whole
        dialog = Whole(title_of(shown), content_of(shown), may_approve=may_approve)
        if await self._desk.show_whole(dialog) and look is not None:
            await self._decide(
                shown, lambda: self._desk.engine.approve(shown.job.id, shown=look.sight), "approved"
            )

    async def _reject(self, shown: Review) -> None:
        question = f"Reject {title_of(shown)}\nWhy? The planner reads it (empty: no reason)."
        reason = await self._desk.ask(Ask(question))
        if reason is not None:
            await self._decide(
                shown, lambda: self._desk.engine.reject(shown.job.id, reason or NO_REASON), "rejected"
            )

    async def _say(self, shown: Review) -> None:
        job = shown.job
        words = await self._desk.ask(Ask("Message to the planner (the job stays held)"))
        if words:
            await asyncio.to_thread(self._desk.engine.say, job.mission_id, words, job_id=job.id)
            self._desk.note(f"the planner of mission {job.mission_id} reads the message in its next turn")

    async def _answer(self, shown: Review) -> None:
        if Act.REPLY in shown.held.acts:
            await self._write_reply(shown)
            return
        if Act.ANSWER not in shown.held.acts:
            await self._show_whole(shown)
            return
        params = shown.job.params
        question = question_in(params)
        if question.fields:
            form = await self._fill_in(question.fields)
            words = None if form is None else await self._desk.ask(
                Ask("Anything else, in your own words (empty: nothing)")
            )  # fmt: skip
        else:
            count = len(question.options)
            how = f"1 to {count}, or your own words" if count else "Your answer"
            form, words = None, await self._desk.ask(Ask(how, words=as_question(params)))
        if words or (form is not None and words is not None):
            await self._decide(
                shown,
                lambda: self._desk.engine.answer(
                    shown.job.id, words or "", words=form is not None, form=form, shown=question.shown
                ),
                "answered",
            )

    async def _fill_in(self, fields: Sequence[FormField]) -> Mapping[str, JsonValue] | None:
        """Ask for each field; what does not fit is asked again. None if the person leaves."""
        entered: dict[str, JsonValue] = {}
        for place, asked in enumerate(fields, 1):
            problem, typed = "", ""
            while True:
                answer = await self._ask_for(asked, f"{place} of {len(fields)}", problem, typed)
                if answer is None:
                    return None
                match fill_in([asked], {asked.id: entered_in(asked, answer)}):
                    case Filled(values):
                        entered[asked.id] = values.get(asked.id)
                        break
                    case Unfilled(problems):
                        problem, typed = one_line(problems[0].message), answer
        return entered

    async def _ask_for(self, asked: FormField, place: str, problem: str, typed: str) -> str | None:
        """Ask for the value of a field; None if the person leaves."""
        title, words = f"{place}{'' if asked.required else ' (optional)'}: ", "\n".join(field_words(asked))
        if asked.type != "textarea":
            how = f"{FIELD_WAYS.get(asked.type, asked.expectation)}{usual_of(asked)}"
            return await self._desk.ask(Ask(title + how, problem, typed, words=words))
        draft = Draft(typed or str(asked.default or ""), f"{asked.id}.txt")
        is_sent = await self._desk.write(
            Write(f"{title}{asked.expectation}", draft, self._desk.edit, problem, words=words)
        )
        return draft.text if is_sent else None

    async def _approve_all(self, shown: Review) -> None:
        """Show what every held job of this kind and mission would change, and approve exactly that."""
        engine, job = self._desk.engine, shown.job
        found = [
            each
            for each in await asyncio.to_thread(find_candidates, engine, job.mission_id)
            if each.job.kind == job.kind and Act.APPROVE in each.held.acts
        ]
        ready = [each for each in found if each.look.is_whole and each.job.reason not in FILE_CHANGED]
        if not ready:
            self._desk.note(f"no {one_line(job.kind)} of mission {job.mission_id} can be approved together")
            return
        left = len(found) - len(ready)
        title = f"approve {len(ready):,} held {one_line(job.kind)} of mission {job.mission_id}?"
        title += f"  ({left:,} left out; look at them one by one)" if left else ""
        if await self._desk.show_whole(Whole(title, content_of_all(ready), may_approve=True)):
            await self._approve_each(ready)

    async def _approve_each(self, ready: Sequence[Candidate]) -> None:
        engine, sights = self._desk.engine, {each.job.id: each.look.sight for each in ready}

        def approve(job_id: int) -> bool:
            return engine.approve(job_id, shown=sights[job_id])

        decided = await asyncio.to_thread(decide_each, engine, [*sights], approve, "approved", by=user_name())
        refused = f"; {len(decided.refused):,} not: {decided.refused[0]}" if decided.refused else ""
        self._desk.note(f"{decided}{refused}", is_problem=bool(refused))
        self._leave(sights)

    async def _decide(self, shown: Review, act: Callable[[], bool], word: str) -> None:
        """Call `act`; a refusal is said, and a job that is still held is shown as it is now."""
        job_id = shown.job.id
        try:
            is_new = await asyncio.to_thread(act)
        except LcpError as refused:
            self._desk.note(str(refused), is_problem=True)
            await self._show_again(job_id, refused)
            return
        said = f"job {job_id} {word if is_new else f'was already {word}'}"
        waiting, awaited = await asyncio.to_thread(missing_approvals, self._desk.engine, [job_id])
        if waiting:
            self._desk.note(f"{said}; it waits for {awaited}")
            self.jobs.action_move(1)
            self._desk.look()
        else:
            self._desk.note(said)
            self._leave([job_id])

    async def _show_again(self, job_id: int, refused: LcpError) -> None:
        job = await asyncio.to_thread(self._desk.engine.job, job_id)
        if job.state != State.HELD:
            self._leave([job_id])
        elif refused.code is ErrorCode.CONFLICT:
            await self._load(job_id)

    def _leave(self, decided: Sequence[int] | Mapping[int, object]) -> None:
        """Go on at the job that follows those that were decided."""
        held = [one for one in self._snapshot.held if one.id not in decided]
        count = self._snapshot.held_count - (len(self._snapshot.held) - len(held))
        self._held = [one for one in self._held if one.id not in decided]
        self.show(replace(self._snapshot, held=held, held_count=count))
        self._desk.look()


def _why_not(held: HeldJob, act: Act) -> str:
    reason = why_not(act, held.awaits, held.id, held.mission_id, has_ended=held.has_ended)
    if held.awaits is Awaits.REPLY:
        return f"{reason}: Enter writes it"
    is_answered = held.awaits is Awaits.ANSWER and act not in (Act.SAY, Act.RULE)
    return f"{reason}: Enter answers it" if is_answered else reason


@dataclass(frozen=True)
class _Part:
    """A file of a merge, or a hunk of one, and what is said beside it."""

    name: str
    path: str
    hunk: str
    note: str
    diff: Diff
    """All that it changes."""


def _parts_of(diff: Diff) -> Iterator[_Part]:
    """Parts that can be taken of a file: each hunk, or the file as a whole."""
    if not diff.parts:
        yield _Part(diff.path, diff.path, "", f"+{diff.added:,} -{diff.removed:,}", diff)
    for number, hunk in enumerate(diff.parts, 1):
        alone = replace(diff, lines=(*diff.lines[:2], *hunk.lines))
        yield _Part(f"{diff.path}#{number}", diff.path, hunk.name, one_line(hunk.lines[0]), alone)


def _table_of(held: Sequence[HeldJob], gone: int | None) -> Table:
    now = datetime.now(UTC)
    table = Table([
        id_column("id"),
        id_column("mission"),
        text_column("kind"),
        text_column("about", least=20),
        fact_column("held since", spare=0),
        text_column("why", least=16),
    ])  # fmt: skip
    for one in held:
        table.add(
            str(one.id),
            str(one.mission_id),
            one.kind,
            one.about,
            age(str(one.job["created_at"]), now),
            _GONE if one.id == gone else explain_reason(str(one.job["reason"] or "")),
        )
    return table
