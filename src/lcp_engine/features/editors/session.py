"""Show a mission to an editor as it happens, and ask the person there about its held jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from acp import RequestError
from acp.helpers import (
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    PermissionOption,
    PlanEntry,
    ToolCallUpdate,
)
from pydantic import ValidationError

from lcp_engine import ErrorCode, Job, LcpError, Mission, Rule, State
from lcp_engine.api.bulk import last_decision, missing_approvals
from lcp_engine.api.inbox import question_in
from lcp_engine.cli.commands.missions import unfulfilled_lines
from lcp_engine.core.inbox import Act, Awaits
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.kinds import TURN
from lcp_engine.core.safe_text import one_line, sentence
from lcp_engine.core.summaries import as_question
from lcp_engine.features.editors.shown import (
    ANSWER,
    call_id,
    content_of_diffs,
    content_of_end,
    content_of_review,
    entries_of,
    form_of,
    kind_of,
    paths_of,
    places_of_diffs,
    raw_input_of,
    status_of,
    title_of,
)
from lcp_engine.features.rules.calls import rules_for_job
from lcp_engine.inbox import HeldJob, Review
from lcp_engine.kinds import ExecutedBy

if TYPE_CHECKING:
    from acp.interfaces import Client

    from lcp_engine import Engine

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "cancelled"]
MOST_EVENTS = 500
"""Events that are shown between two looks at the mission."""
MOST_ASKED = 8
"""Requests about held jobs at a time."""
PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.05, 1.0
"""Between two looks; the longest while nothing happens."""
ALLOW, REJECT, REJECT_WITH_WORDS, ALWAYS = "allow", "reject", "words", "always-"
NO_REASON = "a person said no"
_REASON = ElicitationSchema.model_validate(
    {"properties": {ANSWER: {"type": "string", "title": "Reason"}}, "required": [ANSWER]}
)
_LIMITS: dict[str, StopReason] = {"limit:max_turns": "max_turn_requests", "limit:max_tokens": "max_tokens"}


@dataclass(frozen=True)
class News:
    """News of a mission since the last look."""

    mission: Mission
    events: Sequence[JsonObject]
    jobs: Sequence[Job]
    """Those that the events are about, as they are now."""
    held: Sequence[HeldJob]
    plan: Sequence[PlanEntry]

    @property
    def has_ended(self) -> bool:
        """True if the mission has, and what was queued by then has run."""
        counts = self.mission.jobs
        return self.mission.status.has_ended and not (counts.get("queued") or counts.get("running"))


@dataclass(frozen=True)
class Question:
    """A question of a mission, or of its planner, that a message showed."""

    job_id: int
    shown: str | None
    """Its fingerprint; None if it asks for the planner's reply."""
    form: ElicitationSchema | None
    """None for one that takes words alone."""
    fields: Sequence[str] = ()
    """Ids of the fields that it states."""

    def _form_in(self, words: str) -> dict[str, JsonValue] | None:
        """Values that words enter in the form, a field on each line after its id; None if they are no such lines."""
        lines = [line.partition(":") for line in words.splitlines() if line.strip()]
        entered: dict[str, JsonValue] = {name.strip(): value.strip() for name, _, value in lines}
        return entered if self.fields and {*entered} <= {*self.fields} else None

    def answer(self, engine: Engine, entered: Mapping[str, JsonValue] | str) -> None:
        """Answer it with words, or with what was entered. Raises like `Engine.answer`."""
        if isinstance(entered, str):
            entered = self._form_in(entered) or {ANSWER: entered}
        if self.fields and {*entered} <= {*self.fields}:
            engine.answer(self.job_id, form=entered, shown=self.shown)
        else:
            engine.answer(self.job_id, str(entered.get(ANSWER) or ""), shown=self.shown)


@dataclass
class Session:
    """A conversation about missions over one directory; what is said is about the newest of them."""

    id: str
    root: Path
    engine: Engine
    client: Client
    runners: Executor
    threads: int
    takes_forms: bool = False
    """Whether the editor asks with forms."""
    mission_id: int | None = None
    is_cancelled: bool = False
    rejecting: int | None = None
    """The job that the next message rejects."""
    asking: Question | None = None
    """The question that the next message answers, as it was shown."""
    following: asyncio.Task[StopReason] | None = None
    notice: str = ""
    """Said once, with the first message."""
    _seen: int = 0
    _states: dict[int, State] = field(default_factory=dict)
    _plan: Sequence[PlanEntry] = ()
    _asked: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _deciding: set[int] = field(default_factory=set)
    _left: set[int] = field(default_factory=set)
    """Held jobs that are not asked about again before the next message."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    # -- Follow a mission

    def begin(self, mission_id: int) -> None:
        """Talk about another mission from now on."""
        if mission_id != self.mission_id:
            self.rejecting = self.asking = None
        self.mission_id, self._seen, self._plan = mission_id, 0, ()
        self._states.clear()

    async def follow(self) -> StopReason:
        """Execute the mission, show it and ask about it, until it ends or waits for another message."""
        assert self.mission_id is not None
        self._left.clear()
        runner = running = None
        if self.threads:
            runner = self.engine.runner(threads=self.threads, mission_id=self.mission_id)
            running = asyncio.get_running_loop().run_in_executor(self.runners, runner.run)
            running.add_done_callback(lambda _: self._news.set())
        elif not await asyncio.to_thread(self.engine.runners):
            await self.think("No runner works on this: start one with `lcp work`.")
        pause = PAUSE_SECONDS
        try:
            while True:
                self._news.clear()
                if self.is_cancelled:
                    return await self._cancel()
                news = await asyncio.to_thread(self._look)
                await self._show(news)
                await self._ask(news)
                is_left = not self._asked and self._left.issuperset(held.id for held in news.held)
                if is_left and not news.events:
                    if news.has_ended:
                        return await self._tell_end(news.mission)
                    if news.mission.status == "waiting" and news.held:  # else it was decided meanwhile
                        return await self._tell_wait(news.held)
                if running is not None and running.done():
                    running.result()
                pause = PAUSE_SECONDS if news.events else min(2 * pause, MOST_PAUSE_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), pause)
        finally:
            self.withdraw([*self._asked])
            if runner is not None:
                runner.stop()

    def cancel(self) -> None:
        """Cancel the mission that is followed."""
        self.is_cancelled = True
        self._news.set()

    async def _cancel(self) -> StopReason:
        assert self.mission_id is not None
        with suppress(LcpError):  # it has ended meanwhile
            await asyncio.to_thread(self.engine.cancel, self.mission_id)
        return "cancelled"

    async def replay(self, missions: Sequence[Mission], *, silently: bool = False) -> None:
        """Show what these missions did, the oldest first, or take it for shown."""
        for mission in missions:
            self.begin(mission.id)
            if not silently:
                await self.show(update_user_message_text(mission.goal))
            while (news := await asyncio.to_thread(self._look)).events:
                if silently:
                    self._note(news)
                else:
                    await self._show(news)
            if silently:
                continue
            if mission.status.has_ended:
                await self._tell_end(news.mission)
            else:
                await self.say(f"Mission {mission.id} is {news.mission.status}: `/continue` goes on with it.")

    def _look(self) -> News:
        assert self.mission_id is not None
        mission = self.engine.mission(self.mission_id)
        events = self.engine.events(mission.id, after_seq=self._seen, limit=MOST_EVENTS)
        ids = dict.fromkeys(id_ for event in events if isinstance(id_ := event["job_id"], int))
        jobs = [self.engine.job(id_) for id_ in ids]
        held = (
            self.engine.jobs(mission_id=mission.id, states=[State.HELD]) if mission.jobs.get("held") else []
        )
        plan = entries_of(self.engine.plan_graphs(mission.id)) if ids else self._plan
        return News(mission, events, jobs, self.engine.inbox.of([job.json for job in held]), plan)

    def _note(self, news: News) -> None:
        self._seen = max([self._seen, *(int(str(event["seq"])) for event in news.events)])
        self._states |= {job.id: job.state for job in news.jobs}
        self._plan = news.plan

    async def _show(self, news: News) -> None:
        for job in news.jobs:
            if self._states.get(job.id) != job.state:
                await (self._show_turn(job) if job.kind == TURN else self._show_job(job, news.mission.root))
        if news.plan != self._plan:
            await self.show(update_plan(news.plan))
        self._note(news)

    async def _show_turn(self, job: Job) -> None:
        if job.state is State.FAILED and job.error is not None:
            await self.think(sentence(str(job.error.get("user_message", ""))))
        said = (job.result or {}).get("commentary")
        if job.state is State.SUCCEEDED and said:
            await self.think(str(said))

    async def _show_job(self, job: Job, root: str | None) -> None:
        worker = self.engine.workers.get(job.kind)
        if worker is not None and worker.executed_by is ExecutedBy.PERSON:
            return
        if job.id not in self._states:
            about = await asyncio.to_thread(self.engine.subject, job)
            await self.show(
                start_tool_call(
                    call_id(job.id), title_of(job, about), kind=kind_of(worker),
                    status="pending", locations=paths_of(worker, job, root), raw_input=raw_input_of(job),
                )
            )  # fmt: skip
        content, places = None, None
        if status_of(job.state) in ("completed", "failed"):
            diffs = await asyncio.to_thread(self.engine.diff, job.id) if job.state is State.SUCCEEDED else []
            content = content_of_diffs(diffs, root) or content_of_end(job, worker)
            places = places_of_diffs(diffs, root) or None
        elif job.id not in self._states and job.state in (State.HELD, State.BLOCKED, State.QUEUED):
            return
        status = status_of(job.state)
        await self.show(update_tool_call(call_id(job.id), status=status, content=content, locations=places))

    async def _tell_end(self, mission: Mission) -> StopReason:
        said = [mission.summary or "", str(mission.error.get("user_message") or "")]
        said += await asyncio.to_thread(unfulfilled_lines, self.engine, mission)
        if not any(said):
            said.append(f"Mission {mission.id} has ended: {mission.outcome}.")
        await self.say("\n\n".join(filter(None, said)))
        return _LIMITS.get(mission.outcome or "", "end_turn")

    async def _tell_wait(self, held: Sequence[HeldJob]) -> StopReason:
        for one in held:
            if one.awaits.is_words and self.rejecting is None:  # else the next message is the reason
                self.asking, words = await asyncio.to_thread(self._question, one.id)
                await self.say(words)
                return "end_turn"
        if self.rejecting is None:
            jobs = ", ".join(str(one.id) for one in held)
            await self.say(f"Waiting for a decision about job {jobs}. `/continue` asks again.")
        return "end_turn"

    def _question(self, job_id: int) -> tuple[Question, str]:
        review = self.engine.inbox.review(job_id)
        if review.question is not None:
            words = f"You are the planner. Your next message is the reply to:\n\n{review.question['prompt']}"
            return Question(job_id, None, None), words
        asked, words = question_in(review.job.params), as_question(review.job.params)
        if asked.fields and not self.takes_forms:
            words += "\n\nAnswer with a line for each field: its name, a colon, and the value."
        return Question(job_id, asked.shown, form_of(asked), [one.id for one in asked.fields]), words

    # -- Ask about held jobs

    async def _ask(self, news: News) -> None:
        held = {one.id: one for one in news.held}
        elsewhere = [id_ for id_ in self._asked if id_ not in held and id_ not in self._deciding]
        self.withdraw(elsewhere)
        for id_ in elsewhere:
            by = (await asyncio.to_thread(last_decision, self.engine, id_)).get("by")
            await self.say(f"Job {id_} was decided elsewhere{f' by {one_line(str(by))}' if by else ''}.")
        done = {id_: task for id_, task in self._asked.items() if task.done()}
        for id_, task in done.items():
            del self._asked[id_]
            self._deciding.discard(id_)
            task.result()
        for one in news.held:
            if one.id in done:
                self._news.set()  # these news may be older than the decision
            elif one.awaits.is_words and not (self.takes_forms and one.awaits is Awaits.ANSWER):
                self._left.add(one.id)
            elif not (one.id in self._left or one.id in self._asked or len(self._asked) >= MOST_ASKED):
                root = news.mission.root
                ask = self._fill_in(one.id) if one.awaits.is_words else self._decide(one.id, root)
                self._asked[one.id] = task = asyncio.create_task(ask)
                task.add_done_callback(lambda _: self._news.set())

    def withdraw(self, ids: Sequence[int]) -> None:
        """Take back the requests about these jobs."""
        for id_ in ids:
            self._asked.pop(id_).cancel()

    async def _decide(self, job_id: int, root: str | None) -> None:
        """Ask until the job is decided as it is, or left."""
        while True:
            review = await asyncio.to_thread(self.engine.inbox.review, job_id)
            if review.job.state is not State.HELD:
                return
            rules = await asyncio.to_thread(self._rules, review)
            chosen = await self._choice(review, rules, root)
            if chosen is None:
                self._left.add(job_id)
                return
            self._deciding.add(job_id)
            try:
                if chosen == REJECT_WITH_WORDS and self.takes_forms:
                    self._deciding.discard(job_id)
                    entered = await self._entered(f"Why is job {job_id} rejected?", _REASON)
                    if entered is None or not str(entered.get(ANSWER) or "").strip():
                        self._left.add(job_id)
                        return
                    self._deciding.add(job_id)
                    await asyncio.to_thread(self.engine.reject, job_id, str(entered[ANSWER]))
                    return
                await asyncio.to_thread(self._carry_out, review, rules, chosen)
            except LcpError as refused:
                await self.say(sentence(str(refused)))
                if refused.code is ErrorCode.CONFLICT:
                    self._deciding.discard(job_id)
                    continue
                self._left.add(job_id)
                return
            await self._tell_decision(job_id, chosen)
            return

    async def _fill_in(self, job_id: int) -> None:
        """Ask with a form until the question is answered, or left to the next message."""
        question, words = await asyncio.to_thread(self._question, job_id)
        while question.form is not None:
            entered = await self._entered(words, question.form)
            if entered is None:
                self._left.add(job_id)
                return
            self._deciding.add(job_id)
            try:
                await asyncio.to_thread(question.answer, self.engine, entered)
            except LcpError as refused:
                await self.say(sentence(str(refused)))
                self._deciding.discard(job_id)
                if refused.code is ErrorCode.INVALID_ARGUMENT:
                    continue
            return

    async def _entered(self, words: str, form: ElicitationSchema) -> dict[str, JsonValue] | None:
        """The values that the person entered; None if there are none."""
        mode = ElicitationFormSessionMode(session_id=self.id, requested_schema=form)
        try:
            answer = await self.client.create_elicitation(message=words, mode=mode)
        except (ConnectionError, RequestError, ValidationError):
            return None
        return answer.content if isinstance(answer, AcceptElicitationResponse) else None

    async def _choice(self, review: Review, rules: Sequence[Rule], root: str | None) -> str | None:
        """The option that the person chose; None if they chose none."""
        job, worker = review.job, self.engine.workers.get(review.job.kind)
        content, is_whole = await asyncio.to_thread(content_of_review, review, root)
        diffs = [] if review.look is None else review.look.diffs
        options = _options(review, rules if is_whole else (), can_allow=is_whole)
        call = ToolCallUpdate(
            tool_call_id=call_id(job.id), title=title_of(job, review.held.about), status="pending",
            kind="edit" if diffs and worker is None else kind_of(worker), content=content,
            locations=places_of_diffs(diffs, root), raw_input=raw_input_of(job),
        )  # fmt: skip
        try:
            answer = await self.client.request_permission(session_id=self.id, tool_call=call, options=options)
        except ConnectionError:
            return None
        except (RequestError, ValidationError) as refused:
            await self.say(f"The editor did not ask about job {job.id}: {sentence(str(refused))}")
            return None
        outcome = answer.outcome
        chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else None
        return chosen if chosen in {option.option_id for option in options} else None

    def _rules(self, review: Review) -> Sequence[Rule]:
        """The rules that would let such jobs run, if one person may add them."""
        has_rule = Act.RULE in review.held.acts and review.approvals is None
        return rules_for_job(self.engine.instance, review.job) if has_rule else ()

    def _carry_out(self, review: Review, rules: Sequence[Rule], chosen: str) -> None:
        job_id, sight = review.job.id, None if review.look is None else review.look.sight
        if chosen == REJECT_WITH_WORDS:
            self.rejecting = job_id
            self._left.add(job_id)
        elif chosen == REJECT:
            self.engine.reject(job_id, NO_REASON)
        elif chosen == ALLOW:
            self.engine.approve(job_id, shown=sight)
        else:
            self.engine.approve_always(job_id, rules[int(chosen.removeprefix(ALWAYS))], shown=sight)

    async def _tell_decision(self, job_id: int, chosen: str) -> None:
        if chosen == REJECT_WITH_WORDS:
            await self.say(f"Why is job {job_id} rejected? Your next message tells the planner.")
        elif chosen != REJECT:
            waiting, awaited = await asyncio.to_thread(missing_approvals, self.engine, [job_id])
            if waiting:
                self._left.add(job_id)
                await self.say(f"Job {job_id} is approved; it waits for {awaited}.")

    # -- Send

    async def say(self, words: str) -> None:
        """Show words of the engine or of the planner."""
        await self.show(update_agent_message_text(f"{words}\n"))

    async def think(self, words: str) -> None:
        """Show what is on the way to an answer."""
        await self.show(update_agent_thought_text(f"{words}\n"))

    async def show(self, update: object) -> None:
        """Send an update of the conversation."""
        await self.client.session_update(session_id=self.id, update=update)  # type: ignore[arg-type]  # one of a union


def _options(review: Review, rules: Sequence[Rule], *, can_allow: bool) -> list[PermissionOption]:
    """The decisions that a held job admits; the protocol has no words in an answer, so that they come after it."""
    acts = review.held.acts
    options = list[PermissionOption]()
    if Act.APPROVE in acts and can_allow:
        options.append(PermissionOption(option_id=ALLOW, name="Allow once", kind="allow_once"))
        options += [
            PermissionOption(
                option_id=f"{ALWAYS}{place}", name=f"Always allow {one_line(str(rule))}", kind="allow_always"
            )
            for place, rule in enumerate(rules)
        ]
    if Act.REJECT in acts:
        options.append(PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"))
        words = "Reject, and say why in the next message"
        options.append(PermissionOption(option_id=REJECT_WITH_WORDS, name=words, kind="reject_once"))
    return options
