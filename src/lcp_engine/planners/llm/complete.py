"""Ask a model until a whole completion is there: down the ladder, with more room, within the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lcp_engine.planners.environment import MemoryProbeCache, ProbeCache
from lcp_engine.planners.llm.chat import Ask, Chat, ModelFacts, without_envelope
from lcp_engine.planners.llm.errors import Again, Trouble
from lcp_engine.planners.llm.output_modes import Probe, ask_for_less, is_about_asking, probe_text, read_probe
from lcp_engine.planners.llm.retrying import Pace, Times, insist
from lcp_engine.planners.llm.tokens import is_going_round, most_tokens, most_tokens_of
from lcp_engine.planners.llm.types import Completion

MORE_ROOM = 2
LIVELY = 0.8
MOST_DOUBTS = 2
PROCESS_PROBES = MemoryProbeCache()
"""What all planners of this process have found out about endpoints."""


@dataclass(frozen=True)
class Answering:
    """How one server is asked; `stored` is the cache that outlives the process."""

    chat: Chat
    memory: ProbeCache = PROCESS_PROBES
    stored: ProbeCache = field(default_factory=MemoryProbeCache)
    pace: Pace = field(default_factory=Pace)
    times: Times = field(default_factory=Times)

    def complete(self, ask: Ask, *, context_tokens: int | None = None) -> Completion | Trouble:
        """A completion that the model ended itself, with the tokens of all requests that it took.

        One that ran out of room is never read: the model is asked again with twice as much, or with more chance in it
        where it went round in circles.
        """
        read = written = 0
        for _ in range(MORE_ROOM + 1):
            outcome = self._climb_down(ask)
            if isinstance(outcome, Trouble):
                return replace(outcome, input_tokens=read, output_tokens=written)
            counted = _counted(ask, outcome)
            read += counted.input_tokens or 0
            written += counted.output_tokens or 0
            if counted.finish_reason != "length":
                return replace(counted, input_tokens=read, output_tokens=written)
            again = _with_more(ask, counted, context_tokens)
            if again is None:
                break
            ask = replace(again, probe=self.probe(ask.probe.endpoint, ask.probe.model))
        return replace(_cut_short(ask, written), input_tokens=read, output_tokens=written)

    def probe(self, endpoint: str, model: str) -> Probe:
        """What is known about the model there; at first, that it is asked on the highest rung."""
        text = self.memory.find(endpoint, model)
        if text is None and (text := self.stored.find(endpoint, model)) is not None:
            self.memory.store(endpoint, model, text)
        found = None if text is None else read_probe(endpoint, model, text, self.chat.ladder)
        return Probe(endpoint, model, self.chat.ladder[0]) if found is None else found

    def models(self, deadline: float) -> Sequence[ModelFacts] | Trouble:
        """The models that the server names."""
        return self.chat.models(deadline)

    def _climb_down(self, ask: Ask) -> Completion | Trouble:
        """A completion from the highest rung that the server takes; that one is remembered."""
        probe = ask.probe
        while True:
            outcome = self._insist(replace(ask, probe=probe))
            if isinstance(outcome, Completion):
                self._note(ask.probe, probe)
                text = without_envelope(outcome.text) if probe.step.in_envelope else outcome.text
                return replace(outcome, text=text)
            lower = ask_for_less(probe, outcome, self.chat.ladder)
            if lower is not None:
                probe = lower
            elif ask.probe.is_found and is_about_asking(outcome):
                # Nothing below what was known holds any more: perhaps something above it does.
                self._forget(ask.probe)
                ask = replace(ask, probe=Probe(probe.endpoint, probe.model, self.chat.ladder[0]))
                probe = ask.probe
            else:
                return outcome

    def _note(self, asked: Probe, answered: Probe) -> None:
        """Store what works, and forget what no longer does."""
        if not asked.is_found:
            self._store(answered.found())
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

    def _insist(self, ask: Ask) -> Completion | Trouble:
        def send() -> Completion | Trouble:
            outcome = self.chat.complete(ask)
            if isinstance(outcome, Completion) or outcome.again is not Again.BACK_OFF:
                return outcome
            if ask_for_less(ask.probe, outcome, self.chat.ladder) is None:
                return outcome
            # A 500 may be the server's answer to a schema: the rung below is tried soon.
            return replace(outcome, again=Again.ONCE)

        return insist(send, pace=self.pace, times=self.times, deadline=ask.deadline)


def _with_more(ask: Ask, cut_short: Completion, context_tokens: int | None) -> Ask | None:
    """What to ask after a completion without an end; None where there is no more room."""
    if is_going_round(cut_short.text):
        return replace(ask, temperature=LIVELY)
    room = ask.max_tokens * 2
    if context_tokens is not None:
        room = min(room, context_tokens - (cut_short.input_tokens or 0))
    return replace(ask, max_tokens=room) if room > ask.max_tokens else None


def _cut_short(ask: Ask, written: int) -> Trouble:
    expectation = f"a reply that ends within {ask.max_tokens} tokens is expected"
    fact = f"the model wrote on (finish_reason length, {written} tokens in all); planner.max_tokens gives it more"
    return Trouble(f"{ask.probe.endpoint}: {expectation}, {fact}")


def _counted(ask: Ask, completion: Completion) -> Completion:
    """The completion with the server's usage, or else with our own count, which is never too low (R6)."""
    read, written = completion.input_tokens, completion.output_tokens
    thought = "" if completion.reasoning == completion.text else completion.reasoning
    return replace(
        completion,
        input_tokens=most_tokens_of(ask.messages) if read is None else read,
        output_tokens=most_tokens(completion.text + thought) if written is None else written,
    )
