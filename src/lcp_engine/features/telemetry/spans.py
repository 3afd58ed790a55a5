"""Tell OpenTelemetry of missions as traces: what a runner has settled is read again, and each part of it gets its span.

A mission is one trace, whichever processes and machines work on it: all ids follow from the mission's uid, and from job
and attempt, so that nothing is stored. Spans are made by the runner that executed the attempt, after the commit that
settled it, in a thread of its own: nothing waits for an exporter. OpenTelemetry is used if the process has loaded and
set it up; otherwise nothing of it is imported.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import BACK_OFF, FAIL
from lcp_engine.core.json_values import JsonValue, list_in, object_in
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore
from lcp_engine.errors import LcpError
from lcp_engine.features.models.endpoints.scrub import without_secrets
from lcp_engine.features.telemetry import names
from lcp_engine.features.telemetry.store import (
    SettledAttempt,
    TracedMission,
    read_missions,
    read_settled,
)
from lcp_engine.sandbox.file_access import Shortage, start_thread

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

EVERY_SECONDS = 1.0
LAG: Micros = 3 * SECOND
"""What ended later is told in the next round: the transaction of an earlier one may still be open."""
MOST_SPANS, SPANS_A_SECOND = 200, 50
"""Spans of a burst, and of each second in the long run: beside many short jobs, the rest is left out."""
MOST_MISSIONS = 1000
"""Missions whose spans are open at a time."""
END_SECONDS = 5.0
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Variable that lets prompts, replies, params and results be told."""
LONGEST = 16_384
"""Characters of one of them that are told."""


def traces(instance: Instance, runner_id: int) -> Iterator[Chore]:
    """Tell what a runner settles, if the process has set OpenTelemetry up, and not only loaded it."""
    if (tracer := _tracer()) is not None:
        with_content = os.environ.get(CONTENT, "").lower() == "true"
        teller = Teller(instance, runner_id, tracer, with_content=with_content)
        yield Chore(name="traces", do=teller.start, seconds=EVERY_SECONDS, finish=teller.finish)


def trace_id(uid: str) -> int:
    """The id of a mission's trace."""
    return _id(16, uid)


def span_id(uid: str, job_id: int = 0, attempt: int = 0) -> int:
    """The id of the span of an attempt; without one, that of the mission's span."""
    return _id(8, uid, job_id, attempt)


def _id(size: int, *of: str | int) -> int:
    digest = hashlib.sha256("\0".join(map(str, ("lcp-engine", *of))).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1


def _tracer() -> Tracer | None:
    """A tracer, if the process has set OpenTelemetry up."""
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    return (
        None
        if isinstance(provider, ProxyTracerProvider)
        else provider.get_tracer(names.SCOPE, version("lcp-engine"))
    )


class Ids:
    """The ids of the next span, in place of random ones (an `IdGenerator` of OpenTelemetry's SDK)."""

    trace = span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        return False


@runtime_checkable
class _TakesIds(Protocol):
    id_generator: Ids


class Teller:
    """Tells what one runner has settled, in a thread of its own."""

    def __init__(self, instance: Instance, runner_id: int, tracer: Tracer, *, with_content: bool) -> None:
        from opentelemetry.metrics import get_meter

        self._instance = instance
        self._runner_id = runner_id
        self._tracer = tracer
        self._with_content = with_content
        self._ids = Ids()
        if isinstance(tracer, _TakesIds):
            tracer.id_generator = self._ids
        self._histograms = _Histograms(get_meter(names.SCOPE, version("lcp-engine")))
        self._since = instance.database.now()
        self._room = MOST_SPANS
        self._missions: dict[int, tuple[str, Span]] = {}
        """Uid and open span of the missions of which something was told."""
        self._ended: dict[int, Micros] = {}
        """Ends of missions that were told: a job that goes on after the end of its mission does not end it again."""
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lcp-traces", daemon=True)
        self._has_failed = False

    def start(self) -> None:
        """Start the thread unless it is started; one that the system refuses is to be started later."""
        if self._thread.ident is None:
            with suppress(Shortage):
                start_thread(self._thread)

    def finish(self) -> None:
        """Tell the rest, but do not wait for long."""
        self._is_ending.set()
        self.start()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_ending.wait(EVERY_SECONDS)
            try:
                self._tell(self._instance.database.now() + (1 if is_last else -LAG))
            except LcpError:
                pass  # of the database: the runner meets and reports it
            except Exception as error:  # noqa: BLE001 -- exporters are code of others; whatever they raise ends nothing
                if not self._has_failed:
                    self._has_failed = True
                    logging.getLogger("lcp_engine").warning("traces: %s: %s", type(error).__name__, error)

    def _tell(self, until: Micros) -> None:
        """Tell what ended before `until`: again, if it could not be read, but not what an exporter raises for."""
        if until <= self._since:
            return
        self._room = min(MOST_SPANS, self._room + SPANS_A_SECOND)
        attempts = self._instance.read(
            read_settled,
            self._runner_id,
            self._since,
            until,
            most=self._room,
            with_content=self._with_content,
        )
        ids = {one.mission_id for one in attempts} | self._missions.keys()
        missions = {one.id: one for one in self._instance.read(read_missions, ids)} if ids else {}
        self._since = until
        self._histograms.note_round(is_cut=len(attempts) == self._room)
        self._room -= len(attempts)
        for attempt in attempts:
            if (mission := missions.get(attempt.mission_id)) is not None:
                self._tell_attempt(mission, attempt)
        for mission in missions.values():
            if mission.ended_at is not None and mission.ended_at < until:
                self._tell_end(mission)
        for known in (self._missions, self._ended):
            while len(known) > MOST_MISSIONS:
                del known[next(iter(known))]

    def _root(self, mission: TracedMission) -> Span:
        """The open span of a mission: the same one in every process, and ended in one of them."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        if mission.id not in self._missions:
            self._ids.trace, self._ids.span = trace_id(mission.uid), span_id(mission.uid)
            attributes = {
                names.OPERATION: names.INVOKE_AGENT,
                names.AGENT: mission.name,
                **_planner_of(mission),
                **_mission_of(mission),
            }
            span = self._tracer.start_span(
                f"{names.INVOKE_AGENT} {mission.name}", Context(), SpanKind.INTERNAL, attributes,
                start_time=mission.created_at * 1000,
            )  # fmt: skip
            self._missions[mission.id] = mission.uid, span
        return self._missions[mission.id][1]

    def _tell_attempt(self, mission: TracedMission, attempt: SettledAttempt) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        is_turn = attempt.role != "work"
        model = _model_of(attempt)
        operation = names.CHAT if is_turn else names.EXECUTE_TOOL
        attributes = {
            names.OPERATION: operation,
            **_mission_of(mission),
            names.JOB: attempt.job_id,
            names.ATTEMPT: attempt.attempt,
            names.RUNNER: self._runner_id,
            names.OUTCOME: attempt.outcome,
            **(_of_turn(mission, attempt, model) if is_turn else _of_job(attempt)),
        }
        parent = set_span_in_context(self._root(mission))
        self._ids.span = span_id(mission.uid, attempt.job_id, attempt.attempt)
        named = (model or mission.planner) if is_turn else attempt.kind
        span = self._tracer.start_span(
            f"{operation} {named}", parent, SpanKind.CLIENT if is_turn else SpanKind.INTERNAL, attributes,
            start_time=attempt.started_at * 1000,
        )  # fmt: skip
        error = _error_of(attempt)
        if error is not None:
            _fail(span, error)
        span.end(attempt.ended_at * 1000)
        self._histograms.note(mission, attempt, model, error)

    def _tell_end(self, mission: TracedMission) -> None:
        """End the span of a mission, if its last attempt before the end was this runner's."""
        root = self._root(mission)
        del self._missions[mission.id]
        is_told = self._ended.get(mission.id) == mission.ended_at
        if is_told or mission.last_runner != self._runner_id or mission.ended_at is None:
            return
        self._ended[mission.id] = mission.ended_at
        root.set_attributes({
            names.OUTCOME: mission.outcome or mission.status,
            names.INPUT_TOKENS: mission.input_tokens,
            names.OUTPUT_TOKENS: mission.output_tokens,
            **_cost_of(mission),
        })  # fmt: skip
        error = None if mission.status == "completed" else mission.outcome or mission.status
        if error is not None:
            _fail(root, error)
        root.end(mission.ended_at * 1000)
        self._histograms.note_end(mission, error)


class _Histograms:
    """Durations of what has spans."""

    def __init__(self, meter: Meter) -> None:
        made = (names.CHAT_TIME, names.TOOL_TIME, names.AGENT_TIME, names.CLAIM_LATENCY)
        self._histograms = {name: meter.create_histogram(name, unit="s") for name in made}
        self._cut = meter.create_counter(names.CUT, unit="{round}")

    def note_round(self, *, is_cut: bool) -> None:
        self._cut.add(is_cut)

    def note(
        self, mission: TracedMission, attempt: SettledAttempt, model: str | None, error: str | None
    ) -> None:
        failed = {} if error is None else {names.ERROR: error}
        if attempt.role != "work":
            if attempt.latency is not None:
                of_model = {} if model is None else {names.MODEL: model}
                about = {names.OPERATION: names.CHAT, **_planner_of(mission), **of_model, **failed}
                self._histograms[names.CHAT_TIME].record(attempt.latency, about)
        else:
            seconds = (attempt.ended_at - attempt.started_at) / SECOND
            self._histograms[names.TOOL_TIME].record(seconds, {names.TOOL: attempt.kind, **failed})
        if attempt.attempt == 1 and not attempt.approved and attempt.waits_for is None:
            waited = (attempt.started_at - attempt.created_at) / SECOND
            self._histograms[names.CLAIM_LATENCY].record(max(0.0, waited), {"kind": attempt.kind})

    def note_end(self, mission: TracedMission, error: str | None) -> None:
        seconds = ((mission.ended_at or 0) - mission.created_at) / SECOND
        failed = {} if error is None else {names.ERROR: error}
        self._histograms[names.AGENT_TIME].record(seconds, {names.AGENT: mission.name, **failed})


def _fail(span: Span, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute(names.ERROR, error)


def _mission_of(mission: TracedMission) -> Mapping[str, AttributeValue]:
    return {names.MISSION: mission.id, names.CONVERSATION: mission.session_id or mission.uid}


def _planner_of(mission: TracedMission) -> Mapping[str, AttributeValue]:
    return {} if mission.planner is None else {names.PROVIDER: mission.planner}


def _of_turn(
    mission: TracedMission, attempt: SettledAttempt, model: str | None
) -> Mapping[str, AttributeValue]:
    found = {
        names.MODEL: model,
        names.TURN: attempt.number,
        names.INPUT_TOKENS: attempt.input_tokens,
        names.OUTPUT_TOKENS: attempt.output_tokens,
        names.INPUT_MESSAGES: _message("user", attempt.asked),
        names.OUTPUT_MESSAGES: _message("assistant", attempt.said),
    }
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, **_planner_of(mission), **_cost_of(attempt)}


def _of_job(attempt: SettledAttempt) -> Mapping[str, AttributeValue]:
    found = {names.TOOL: attempt.kind, names.TOOL_TYPE: "function", names.TOOL_CALL: str(attempt.job_id)}
    for name, text in ((names.ARGUMENTS, attempt.asked), (names.RESULT, attempt.said)):
        if text is not None:
            found[name] = _content(text)
    return found


def _cost_of(spent: TracedMission | SettledAttempt) -> Mapping[str, AttributeValue]:
    known = spent.cost is not None and spent.currency is not None
    return {names.COST: f"{spent.cost} {spent.currency}"} if known else {}


def _message(role: str, text: str | None) -> str | None:
    if text is None:
        return None
    message = {"role": role, "parts": [{"type": "text", "content": _content(text)}]}
    return json.dumps([message if role == "user" else {**message, "finish_reason": "stop"}])


def _content(text: str) -> str:
    """A text without secrets, and not longer than an exporter takes."""
    told = without_secrets(text, os.environ)
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}… ({len(told) - LONGEST} characters more)"


def _model_of(attempt: SettledAttempt) -> str | None:
    """The model that was asked last."""
    completions: JsonValue = json.loads(attempt.completions or "[]")
    found = [object_in(one).get("model") for one in list_in(completions)]
    return str(found[-1]) if found else None


def _error_of(attempt: SettledAttempt) -> str | None:
    if attempt.outcome not in (FAIL.event, BACK_OFF.event):
        return None
    return str(object_in(json.loads(attempt.error or "{}")).get("error_code") or attempt.outcome)
