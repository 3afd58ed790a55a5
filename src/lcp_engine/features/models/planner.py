"""Answer questions with a language model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.core.summaries import nearest
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.models.endpoints.chat import Ask, Completion, Message, ModelFacts, ModelSettings
from lcp_engine.features.models.endpoints.complete import Answering, beginning
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Again, Trouble
from lcp_engine.features.models.endpoints.http import SHARE
from lcp_engine.features.models.endpoints.token_count import METERS, Meter, Tokenizer
from lcp_engine.planners.base import (
    AskedToWait,
    CompletionRecord,
    Fault,
    PlannerError,
    PromptRecord,
    Question,
    Reply,
)
from lcp_engine.planners.environment import Drafts

CONTEXT_TOKENS = 8192
MOST_TOKENS = 4096
SHORTER = 3
AGAIN = 0.7
"""The least temperature of a question that is asked again."""
TEMPLATE = 24
"""Tokens that the template of a chat may put around two messages."""
LISTING_SECONDS = 15.0


@dataclass(frozen=True)
class Wording:
    """A question as a model gets it: messages, the schema of the reply, and what the messages leave out."""

    messages: Sequence[Message]
    schema: Mapping[str, JsonValue]
    record: PromptRecord = field(default_factory=PromptRecord)
    is_guided: bool = False
    """Whether it is so short that it is the same again if an answer led to nothing."""


Word: TypeAlias = Callable[[Question, int, int, Callable[[str], int]], Wording]
"""Words a question in at most so many tokens, as counted, for a model with so many tokens of context."""
DRAFT_SECONDS, MOST_SHOWN = 0.5, 2000
"""What a model has written is shown anew after so many seconds, and the last so many characters of it."""
ROUNDS = 4
"""How often a prompt is written at most until it fits as the server counts it."""
ROOMY = 0.85
"""A prompt that leaves something out is written again if it has less than this part of its budget."""


class RequestSlots:
    """Number of requests that may be under way at each endpoint; usable from any thread."""

    def __init__(self) -> None:
        self._slots: dict[str, threading.BoundedSemaphore] = {}
        self._lock = threading.Lock()

    def at(self, endpoint: str, concurrency: int) -> threading.BoundedSemaphore:
        """The slots of an endpoint; the first caller decides how many there are."""
        with self._lock:
            return self._slots.setdefault(endpoint, threading.BoundedSemaphore(concurrency))


SLOTS = RequestSlots()
"""The slots that all planners of this process share."""


@dataclass(frozen=True)
class ModelPlanner:
    """A planner that asks the model of `settings`; `word` writes a question in at most so many tokens, as counted."""

    answering: Answering
    settings: ModelSettings
    word: Word
    tokenizer: Tokenizer | None = None
    slots: RequestSlots = SLOTS
    drafts: Drafts | None = None
    _facts: list[ModelFacts] = field(default_factory=list, repr=False)

    def answer(self, question: Question, /) -> Reply:
        """The model's reply, unread. Raises `PLANNER_FAILED`, or `PLANNER_REFUSED` if asking again would not help."""
        left = question.seconds_left
        seconds = self.settings.total_seconds if left is None else min(self.settings.total_seconds, left)
        deadline = Deadline.after(seconds, self.answering.times.clock())
        with self._slot(seconds), self._listening(question) as hear:
            facts = self.known_facts(deadline)
            outcome, wording = self.complete(question, facts, deadline, hear)
        most = self.settings.max_answer_bytes // SHARE
        if isinstance(outcome, Completion) and len(outcome.text.encode("utf-8", "replace")) > most:
            outcome = _too_long(self.settings.endpoint, outcome, most)
        outcome = replace(outcome, completions=[self._shown(made) for made in outcome.completions])
        if isinstance(outcome, Trouble):
            raise self._error(outcome, self._explain(outcome, facts, deadline))
        return Reply(
            # Servers without keys get words such as "lm-studio", which may also be part of a reply.
            text=self.settings.scrub(outcome.text, shortest=10),
            prompt=shown(wording.messages),
            input_tokens=outcome.input_tokens,
            output_tokens=outcome.output_tokens,
            record=wording.record,
            completions=outcome.completions,
        )

    def complete(
        self,
        question: Question,
        facts: ModelFacts,
        deadline: Deadline,
        hear: Callable[[str], object] = str,
    ) -> tuple[Completion | Trouble, Wording]:
        """A completion and its prompt, which is shortened if it does not fit into the model's context."""
        context = self.settings.context_tokens or facts.context_tokens or CONTEXT_TOKENS
        room = self.settings.max_tokens or min(MOST_TOKENS, context // 4)
        budget = max(context - room, context // 4)
        probe = self.answering.probe(self.settings.endpoint, facts.name)
        shorter = 0
        made: list[CompletionRecord] = []
        while True:
            wording = self.fitting(question, budget, context, facts.name, deadline)
            wording = replace(wording, record=replace(wording.record, context_tokens=context))
            ask = Ask(
                wording.messages, wording.schema, probe, room, deadline, self.settings.temperature, hear=hear
            )
            if question.attempt > 1 or (wording.is_guided and (question.correction or question.notices)):
                ask = self._otherwise(ask, question)
            outcome = self.answering.complete(ask, context_tokens=context)
            made += outcome.completions
            if isinstance(outcome, Completion) or not outcome.is_about_context or shorter == SHORTER:
                return replace(outcome, completions=made), wording
            shorter += 1
            budget = budget * 2 // 3

    def _otherwise(self, ask: Ask, question: Question) -> Ask:
        """The request after one that led to nothing: at temperature 0 the answer would be the same again."""
        seed = (self.settings.seed or 0) + question.number + question.attempt
        return replace(ask, temperature=max(self.settings.temperature or 0.0, AGAIN), seed=seed)

    def fitting(
        self, question: Question, budget: int, context: int, model: str, deadline: Deadline
    ) -> Wording:
        """The question in at most `budget` tokens, as the server counts them if it does.

        It is counted as a whole: the tokens to a byte of that count decide how much is written next.
        """
        meter = METERS.of(self.settings.endpoint, model)
        wording = self.word(question, budget, context, Meter(meter.ratio).count)
        fitting: Wording | None = None
        for _ in range(ROUNDS):
            tokens = self._tokens(wording, model, meter, deadline)
            if tokens is None:
                break
            wording = replace(wording, record=replace(wording.record, tokens=tokens))
            scale = meter.ratio
            meter.measure(wording.messages, tokens)
            if tokens <= budget:
                fitting = wording
            is_roomy = bool(wording.record.left_out) and tokens < budget * ROOMY and scale != meter.ratio
            if fitting is not None and not (is_roomy and tokens <= budget):
                break
            wording = self.word(question, budget, context, Meter(meter.ratio).count)
        return fitting or wording

    def _tokens(self, wording: Wording, model: str, meter: Meter, deadline: Deadline) -> int | None:
        """The tokens of a prompt by the server's count; None if it does not count."""
        if self.tokenizer is None:
            return None
        tokens = self.tokenizer.count(wording.messages, model, meter, deadline)
        return None if tokens is None else tokens + TEMPLATE

    def known_facts(self, deadline: Deadline) -> ModelFacts:
        """The model's name and context; the server is asked once if the settings leave them open."""
        name, context = self.settings.model, self.settings.context_tokens
        if name and context:
            return ModelFacts(name, context)
        if not self._facts:
            found = self.models(deadline)
            if name and isinstance(found, Trouble):
                # Not every server lists its models, and a busy one may do so later.
                return ModelFacts(name)
            self._facts.append(self._chosen(found))
        return self._facts[0]

    def _chosen(self, found: Sequence[ModelFacts] | Trouble) -> ModelFacts:
        """The model that the settings name, or else the only one that the server lists."""
        if isinstance(found, Trouble):
            raise self._error(found, found.message)
        if name := self.settings.model:
            return next((model for model in found if model.name == name), ModelFacts(name))
        if len(found) != 1:
            names = ", ".join(model.name for model in found[:20]) or "none"
            said = f"planner.model: the name of a model is expected; {self.settings.endpoint} has {names}"
            raise LcpError(ErrorCode.INVALID_MISSION, self.settings.scrub(said))
        return found[0]

    def models(self, deadline: Deadline) -> Sequence[ModelFacts] | Trouble:
        """The models that the server lists; their names are stored and shown, and hold no key."""
        listed = Deadline.after(LISTING_SECONDS, self.answering.times.clock())
        found = self.answering.models(min(deadline, listed, key=lambda either: either.at))
        if isinstance(found, Trouble):
            return found
        return [replace(model, name=self.settings.scrub(model.name, shortest=10)) for model in found]

    def _error(self, trouble: Trouble, message: str) -> PlannerError:
        if trouble.again is Again.WAIT:
            return AskedToWait(
                self.settings.scrub(message),
                seconds=trouble.retry_after,
                details={"status": trouble.status},
                input_tokens=trouble.input_tokens,
                output_tokens=trouble.output_tokens,
                # The event of the wait says what a refusal said, which cost nothing.
                completions=[made for made in trouble.completions if made.input_tokens or made.output_tokens],
            )
        code = ErrorCode.PLANNER_REFUSED if trouble.is_refusal else ErrorCode.PLANNER_FAILED
        return PlannerError(
            code,
            self.settings.scrub(message),
            {"status": trouble.status},
            input_tokens=trouble.input_tokens,
            output_tokens=trouble.output_tokens,
            completions=trouble.completions,
            advice=GENERAL,
        )

    def _shown(self, made: CompletionRecord) -> CompletionRecord:
        """A completion as it is stored, without the key."""
        said, text = self.settings.scrub(made.said), self.settings.scrub(made.text, shortest=10)
        return replace(made, said=said, text=text)

    def _explain(self, trouble: Trouble, facts: ModelFacts, deadline: Deadline) -> str:
        if not trouble.is_about_model:
            return trouble.message
        found = self.models(deadline)
        if isinstance(found, Trouble) or facts.name in (names := [model.name for model in found]):
            return trouble.message
        return f"{trouble.message}; model {facts.name!r}: {nearest(facts.name, names)}"

    @contextmanager
    def _listening(self, question: Question) -> Iterator[Callable[[str], object]]:
        """Takes the words of the model as they arrive, and shows their end until there is an answer."""
        drafts, clock, place = self.drafts, self.answering.times.clock, (question.mission_id, question.number)
        if drafts is None:
            yield str
            return
        tail, due, is_over = "", clock() + DRAFT_SECONDS, False
        # A key of which only a part has arrived is no key yet.
        withheld = len(self.settings.key.get_secret_value()) if self.settings.key else 0

        def hear(said: str) -> None:
            nonlocal tail, due
            tail = (tail + said)[-2 * MOST_SHOWN :] if said else ""
            if not is_over and said and clock() >= due:
                due = clock() + DRAFT_SECONDS
                shown = self.settings.scrub(tail, shortest=10)
                drafts.keep(*place, shown[: len(shown) - withheld][-MOST_SHOWN:])

        try:
            yield hear
        finally:
            is_over = True
            drafts.drop(*place)

    @contextmanager
    def _slot(self, seconds: float) -> Iterator[None]:
        """One of the endpoint's slots for requests, if one becomes free within `seconds`."""
        slots = self.slots.at(self.settings.endpoint, self.settings.concurrency)
        if not slots.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            fact = f"none of {self.settings.concurrency} slots for requests became free"
            message = f"{self.settings.endpoint}: {fact} within {round(seconds, 1):g} s"
            advice = "Raise planner.concurrency or planner.total_seconds, or run fewer missions at once."
            raise LcpError(ErrorCode.PLANNER_FAILED, message, advice=advice)
        try:
            yield
        finally:
            slots.release()


def _too_long(endpoint: str, completion: Completion, most: int) -> Trouble:
    fact = f"it has more than {most:,} bytes (a quarter of planner.max_answer_bytes)"
    *before, last = completion.completions
    return Trouble(
        f"{endpoint}: a reply that can be read is expected, {fact}",
        input_tokens=completion.input_tokens or 0,
        output_tokens=completion.output_tokens or 0,
        completions=[
            *before,
            replace(last, fault=Fault.TOO_LONG, said=fact, text=beginning(completion.text)),
        ],
    )


def shown(messages: Sequence[Message]) -> str:
    """The messages as they are stored."""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)
