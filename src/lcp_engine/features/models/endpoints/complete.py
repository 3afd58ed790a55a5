"""Request completions until one is whole: with retries, simpler output modes and more room, within a deadline."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lcp_engine.features.models.endpoints.chat import (
    Ask,
    Chat,
    Completion,
    ModelFacts,
    is_repetitive,
    most_tokens,
    most_tokens_of,
    without_envelope,
)
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Again, Trouble
from lcp_engine.features.models.prompts.output_modes import (
    Probe,
    ask_for_less,
    is_about_asking,
    probe_text,
    read_probe,
)
from lcp_engine.planners.base import CompletionRecord, Fault
from lcp_engine.planners.environment import MemoryProbeCache, ProbeCache

MORE_ROOM = 2
LEAST_ROOM = 256
"""Tokens of a reply: a server that refuses more of them is asked for half, and so on down to this."""
LIVELY = 0.8
MOST_DOUBTS = 2
MOST_KEPT = 2000
"""Characters of a completion that was not enough."""
PROCESS_PROBES = MemoryProbeCache()
"""What all planners of this process have found out about endpoints."""


@dataclass(frozen=True)
class Pace:
    """Number of times that a request is tried, and the pauses between tries in seconds.

    Pauses double from `first` to `longest` and are shortened at random, so that many callers do not retry at once.
    """

    tries: int = 4
    first: float = 0.5
    longest: float = 20.0
    longest_asked: float = 60.0
    """The longest `Retry-After` that is waited for."""
    loading: float = 3.0
    """The pause while the server loads the model."""
    loading_total: float = 240.0


@dataclass(frozen=True)
class Times:
    """The sources of time and randomness."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True)
class Answering:
    """Way to ask one server; `stored` is the cache that outlives the process."""

    chat: Chat
    memory: ProbeCache = PROCESS_PROBES
    stored: ProbeCache = field(default_factory=MemoryProbeCache)
    pace: Pace = field(default_factory=Pace)
    times: Times = field(default_factory=Times)

    def complete(self, ask: Ask, *, context_tokens: int | None = None) -> Completion | Trouble:
        """A completion that the model ended itself, with the tokens of all requests that it took.

        One that ran out of room is never read: the model is asked again with twice the room, or with a higher
        temperature if it repeated itself.
        """
        made: list[CompletionRecord] = []
        outcome = self._with_room(ask, context_tokens, made)
        return replace(
            outcome,
            input_tokens=sum(one.input_tokens or 0 for one in made),
            output_tokens=sum(one.output_tokens or 0 for one in made),
            completions=tuple(made),
        )

    def probe(self, endpoint: str, model: str) -> Probe:
        """Probe of the model; at first, the highest mode of the ladder."""
        text = self.memory.find(endpoint, model)
        if text is None and (text := self.stored.find(endpoint, model)) is not None:
            self.memory.store(endpoint, model, text)
        found = None if text is None else read_probe(endpoint, model, text, self.chat.ladder)
        return Probe(endpoint, model, self.chat.ladder[0]) if found is None else found

    def models(self, deadline: Deadline) -> Sequence[ModelFacts] | Trouble:
        """The models that the server lists."""
        return self.chat.models(deadline)

    def _with_room(
        self, ask: Ask, context_tokens: int | None, made: list[CompletionRecord]
    ) -> Completion | Trouble:
        for _ in range(MORE_ROOM + 1):
            outcome = self._climb_down(ask, made)
            if isinstance(outcome, Trouble) or outcome.finish_reason != "length":
                return outcome
            again = _with_more(ask, outcome, context_tokens)
            if again is None:
                break
            ask = replace(again, probe=self.probe(ask.probe.endpoint, ask.probe.model))
        return _cut_short(ask, sum(one.output_tokens or 0 for one in made))

    def _climb_down(self, ask: Ask, made: list[CompletionRecord]) -> Completion | Trouble:
        """A completion in the highest mode that the server accepts; that mode is stored."""
        probe = ask.probe
        while True:
            outcome = self._insist(replace(ask, probe=probe), made)
            if isinstance(outcome, Completion):
                self._note(ask.probe, probe)
                text = without_envelope(outcome.text) if probe.step.in_envelope else outcome.text
                return replace(outcome, text=text)
            lower = ask_for_less(probe, outcome, self.chat.ladder)
            if outcome.is_about_room and ask.max_tokens > LEAST_ROOM:
                ask = replace(ask, max_tokens=max(ask.max_tokens // 2, LEAST_ROOM))
            elif lower is not None:
                probe = lower
            elif ask.probe.is_found and is_about_asking(outcome):
                # Nothing below the known mode works any more: perhaps a higher one does.
                self._forget(ask.probe)
                ask = replace(ask, probe=Probe(probe.endpoint, probe.model, self.chat.ladder[0]))
                probe = ask.probe
            else:
                return outcome

    def _note(self, asked: Probe, answered: Probe) -> None:
        """Store what works, and forget what no longer does."""
        if not asked.is_found or (answered.step == asked.step and answered.without > asked.without):
            self._store(replace(answered.found(), doubts=0))
        elif answered is asked:
            if asked.doubts:
                self._store(replace(asked, doubts=0))
        elif asked.doubts + 1 < MOST_DOUBTS:
            self._store(replace(asked, doubts=asked.doubts + 1))
        else:
            self._forget(asked)

    def _store(self, probe: Probe) -> None:
        text = probe_text(probe)
        self.memory.store(probe.endpoint, probe.model, text)
        if not probe.doubts:
            self.stored.store(probe.endpoint, probe.model, text)

    def _forget(self, probe: Probe) -> None:
        self.memory.forget(probe.endpoint, probe.model)
        self.stored.forget(probe.endpoint, probe.model)

    def _insist(self, ask: Ask, made: list[CompletionRecord]) -> Completion | Trouble:
        def send() -> Completion | Trouble:
            began = self.times.clock()
            ask.hear("")
            outcome = self.chat.complete(ask)
            if isinstance(outcome, Completion):
                outcome = _counted(ask, outcome)
            made.append(_record(ask, outcome, self.times.clock() - began))
            if isinstance(outcome, Completion) or outcome.again is not Again.BACK_OFF:
                return outcome
            if ask_for_less(ask.probe, outcome, self.chat.ladder) is None:
                return outcome
            # A 500 may be the server's answer to a schema: the next mode is tried soon.
            return replace(outcome, again=Again.ONCE)

        return insist(send, pace=self.pace, times=self.times, deadline=ask.deadline)


def insist(
    send: Callable[[], Completion | Trouble], *, pace: Pace, times: Times, deadline: Deadline
) -> Completion | Trouble:
    """The first completion, or the trouble of the last try."""
    began = times.clock()
    tries = 0
    while True:
        outcome = send()
        if isinstance(outcome, Completion):
            return outcome
        tries += outcome.again is not Again.LOADING
        pause = _pause(outcome, tries, times.clock() - began, pace, times.random)
        if pause is None or times.clock() + pause >= deadline.at:
            return _after(outcome, tries)
        times.sleep(pause)


def _with_more(ask: Ask, cut_short: Completion, context_tokens: int | None) -> Ask | None:
    """The request after a completion without an end; None if there is no more room."""
    if is_repetitive(cut_short.written):
        # The same seed would repeat itself in the same way.
        return replace(ask, temperature=LIVELY, seed=(ask.seed or 0) + 1)
    room = ask.max_tokens * 2
    if context_tokens is not None:
        room = min(room, context_tokens - (cut_short.input_tokens or 0))
    return replace(ask, max_tokens=room) if room > ask.max_tokens else None


def _record(ask: Ask, outcome: Completion | Trouble, seconds: float) -> CompletionRecord:
    made = CompletionRecord(
        model=ask.probe.model,
        mode=ask.probe.step.rung.value,
        temperature=None if "temperature" in ask.probe.without else ask.temperature,
        max_tokens=None if {"max_tokens", "max_completion_tokens"} <= ask.probe.without else ask.max_tokens,
        seconds=round(seconds, 3),
    )
    if isinstance(outcome, Trouble):
        fault = Fault.CONTEXT if outcome.is_about_context else Fault.FAILED
        paid = (outcome.input_tokens, outcome.output_tokens)
        made = replace(made, input_tokens=paid[0] or None, output_tokens=paid[1] or None)
        return replace(made, fault=fault, said=outcome.message)
    made = replace(made, input_tokens=outcome.input_tokens, output_tokens=outcome.output_tokens)
    made = replace(made, cached_tokens=outcome.cached_tokens)
    if outcome.finish_reason != "length":
        if outcome.written == outcome.text:
            return made
        said = "it wrote only thoughts, which are a reply only if they are one object and nothing else"
        return replace(made, said=said, text=beginning(outcome.written))
    repeats = is_repetitive(outcome.written)
    said = "it repeated itself" if repeats else f"it did not end within {ask.max_tokens} tokens"
    fault = Fault.REPEATS if repeats else Fault.LENGTH
    return replace(made, fault=fault, said=said, text=beginning(outcome.written))


def beginning(text: str) -> str:
    """The part of a text that was not enough which is stored."""
    return text if len(text) <= MOST_KEPT else f"{text[:MOST_KEPT]}<{len(text) - MOST_KEPT:,} more>"


def _cut_short(ask: Ask, written: int) -> Trouble:
    fact = f"the reply did not end within {ask.max_tokens} tokens"
    more = f"finish_reason length, {written} tokens in all; planner.max_tokens raises the limit"
    return Trouble(f"{ask.probe.endpoint}: {fact} ({more})")


def _counted(ask: Ask, completion: Completion) -> Completion:
    """The completion with the server's usage, or else with our own count, which is an upper bound (R6)."""
    read, written = completion.input_tokens, completion.output_tokens
    thought = "" if completion.reasoning == completion.text else completion.reasoning
    return replace(
        completion,
        input_tokens=most_tokens_of(ask.messages) if read is None else read,
        output_tokens=most_tokens(completion.text + thought) if written is None else written,
    )


def _pause(trouble: Trouble, tries: int, waited: float, pace: Pace, chance: random.Random) -> float | None:
    """Seconds to wait before the next try; None if there is none."""
    match trouble.again:
        case Again.NEVER | Again.WAIT:
            return None
        case Again.LOADING:
            return pace.loading if waited < pace.loading_total else None
        case Again.ONCE if tries > 1:
            return None
        case Again.ONCE | Again.BACK_OFF:
            if tries >= pace.tries:
                return None
    if trouble.retry_after is not None:
        return trouble.retry_after if trouble.retry_after <= pace.longest_asked else None
    return min(pace.first * 2.0 ** (tries - 1), pace.longest) * chance.uniform(0.5, 1)


def _after(trouble: Trouble, tries: int) -> Trouble:
    """The trouble, with the number of tries in its message."""
    return trouble if tries < 2 else replace(trouble, message=f"{trouble.message} (after {tries} tries)")
