"""Whatever a model's server does, there is a reply or one sentence that says what was expected and what came."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.chat import Message
from lcp_engine.features.models.endpoints.complete import Times
from lcp_engine.features.models.factories import openai_planner
from lcp_engine.features.models.options import OpenAIOptions
from lcp_engine.features.models.planner import ModelPlanner, RequestSlots, Wording
from lcp_engine.features.models.prompts.output_modes import Rung
from lcp_engine.planners.base import AskedToWait, PlannerError, Question
from lcp_engine.planners.environment import MemoryProbeCache

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer, Play

CANARY = "sk-canary-0123456789abcdef"
ACTION = '{"ok": true, "action": "mission_complete", "summary": "é done"}'
QUESTION = Question(1, 1, 1, "goal", "/", "goal")


@pytest.fixture
def naps() -> list[float]:
    """How long the planner would have slept."""
    return []


@pytest.fixture
def planner(faults: FaultServer, naps: list[float]) -> ModelPlanner:
    return make(faults, naps)


def make(faults: FaultServer, naps: list[float], **options: float) -> ModelPlanner:
    stated = {"first_byte_seconds": 0.2, "total_seconds": 20.0, "context_tokens": 4096, **options}
    settled = OpenAIOptions(base_url=faults.url, model="tiny", **stated)  # type: ignore[arg-type]  # a test's words
    made = openai_planner(settled, {"LCP_PLANNER_KEY": CANARY, "LCP_PLANNER_ENDPOINT": faults.url})
    answering = replace(made.answering, memory=MemoryProbeCache(), times=Times(sleep=naps.append))
    return replace(
        made, answering=answering, word=lambda question, budget, context, count: wording("x" * budget)
    )


def wording(said: str) -> Wording:
    return Wording(
        [Message("system", "Answer in JSON."), Message("user", said)], {"anyOf": [{"type": "object"}]}
    )


def test_a_healthy_server_is_asked_once_and_counts_itself(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(ACTION))
    reply = planner.answer(QUESTION)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == (ACTION, 11, 7)
    assert reply.prompt is not None
    assert reply.prompt.startswith("[system]\nAnswer in JSON.\n\n[user]\nxxx")
    assert faults.rungs() == ["json_schema"]
    assert faults.requests[0].headers["authorization"] == f"Bearer {CANARY}"


def test_the_middle_of_the_stream_may_come_in_any_pieces(faults: FaultServer, planner: ModelPlanner) -> None:
    whole = json.dumps({"choices": [{"message": {"content": ACTION}, "finish_reason": "stop"}]}).encode()
    faults.play(faults.sends(whole, content_type="text/plain"))
    assert planner.answer(QUESTION).text == ACTION


TROUBLES: list[tuple[str, Callable[[FaultServer], list[Play]], str]] = [
    ("500", lambda f: [f.refuses(500, "out of memory")], "the server answered 500: out of memory"),
    ("429", lambda f: [f.refuses(429, "slow down")], "the server answered 429: slow down"),
    ("long 429", lambda f: [f.refuses(429, "later", Retry_After="3600")], "the server answered 429: later"),
    ("no credit", lambda f: [f.refuses(429, "insufficient_quota")], "an account with credit is expected"),
    ("401", lambda f: [f.refuses(401, f"wrong key {CANARY}")], "a key that the server accepts is expected"),
    ("404", lambda f: [f.refuses(404, "no such path")], "a model and a path that the server knows are expected"),
    ("302", lambda f: [f.sends(b"", status=302, Location="/login")], "an endpoint that answers itself is expected"),
    ("reset", lambda f: [f.resets], "a whole answer is expected, the connection broke"),
    ("hang", lambda f: [f.hangs], "an answer within 0.2 s is expected, nothing came (after 2 tries)"),
    ("stall", lambda f: [f.hangs_after(b'data: {"choices": []}\n\n')], "an answer within 0.2 s is expected"),
    ("cut stream", lambda f: [f.cuts(b'data: {"choices": []}\n\n')], "the connection broke"),
    ("quiet cut", lambda f: [f.sends(f.event({"choices": [{"delta": {"content": "{"}}]}))], "the answer was cut off"),
    ("cut JSON", lambda f: [f.sends(b'{"choices": [')], "the answer was cut off"),
    ("empty", lambda f: [f.sends(b"")], "events or a JSON object are expected, this came: nothing"),
    ("no choices", lambda f: [f.sends(b'{"choices": []}')], "a completion with a choice is expected"),
    ("no choice at all", lambda f: [f.sends(b"data: [DONE]\n\n")], "a completion with a choice is expected"),
    ("HTML", lambda f: [f.sends(b"<!doctype html><title>Sign in</title>")], "this came: a web page, 'Sign in'"),
    ("HTML error", lambda f: [f.sends(b"<html><body>Oops", status=502)], "the server answered 502: a web page"),
    ("text", lambda f: [f.sends(b"hello there")], "events or a JSON object are expected, this came: hello there"),
    ("list", lambda f: [f.sends(b"[1, 2]")], "events or a JSON object are expected, this came: [1, 2]"),
    ("wrong event", lambda f: [f.sends(b"data: hello\n\n")], "this came: an event that is not a JSON object: hello"),
    ("deep", lambda f: [f.sends(b'{"a": ' + b"[" * 100_000)], "the answer was cut off"),
    ("broken off", lambda f: [f.sends(f.event({"error": {"message": "out of slots", "code": 500}}))], "out of slots"),
    ("choice", lambda f: [f.ends({"finish_reason": "error", "error": {"message": "gone", "code": 502}})], "gone"),
    ("refused choice", lambda f: [f.ends({"error": {"message": "bad", "code": 400}})], "the server broke off: bad"),
    ("error", lambda f: [f.says(ACTION, finish="error")], "the server broke off: finish_reason error"),
    ("MiniMax", lambda f: [f.sends(b'{"choices": null, "base_resp": {"status_code": 1008, "status_msg": "no money"}}')],
     "the server broke off: no money (1008)"),
    ("refusal", lambda f: [f.says("I will not", key="refusal")], "an action is expected, the model refused"),
    ("filter", lambda f: [f.says(ACTION, finish="content_filter")], "content filter stopped the model"),
    ("length", lambda f: [f.says(ACTION, finish="length")], "the reply did not end within 4085 tokens"),
    ("context", lambda f: [f.refuses(400, "exceeds the available context size")], "exceeds the available context"),
]  # fmt: skip
REFUSALS = {"no credit", "401", "404", "302", "context", "refused choice", "MiniMax"}
"""What would be the same the next time."""


@pytest.mark.parametrize("trouble", TROUBLES, ids=[row[0] for row in TROUBLES])
def test_trouble_is_one_sentence_without_the_key(
    faults: FaultServer, planner: ModelPlanner, caplog: pytest.LogCaptureFixture,
    trouble: tuple[str, Callable[[FaultServer], list[Play]], str],
) -> None:  # fmt: skip
    name, plays, said = trouble
    caplog.set_level(logging.DEBUG)
    faults.play(*plays(faults))
    with pytest.raises(LcpError) as failed:
        planner.answer(QUESTION)
    assert failed.value.code is (ErrorCode.PLANNER_REFUSED if name in REFUSALS else ErrorCode.PLANNER_FAILED)
    message = str(failed.value)
    assert message.startswith(f"{faults.url}: ")
    assert said in message
    assert message.isprintable()
    assert len(faults.requests) < 20
    shown = [message, repr(failed.value.failed), repr(planner), caplog.text]
    assert not [text for text in shown if CANARY in text]


def test_nobody_listens(naps: list[float]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        made = openai_planner(
            OpenAIOptions(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", model="m"), {}
        )
        answering = replace(made.answering, times=Times(sleep=naps.append))
        planner = replace(
            made, answering=answering, word=lambda question, budget, context, count: wording("x")
        )
        with pytest.raises(
            LcpError, match="a model's server is expected to listen there, no connection was made"
        ):
            planner.answer(QUESTION)
    assert len(naps) == 3


RECOVERIES: list[tuple[str, Callable[[FaultServer], list[Play]], int]] = [
    ("503", lambda f: [f.refuses(503, "busy")], 1),
    ("resets", lambda f: [f.resets, f.resets], 2),
    ("hang", lambda f: [f.hangs], 1),
    ("choice", lambda f: [f.ends({"finish_reason": "error", "error": {"message": "x", "code": 502}})] * 2, 2),
    ("no resources", lambda f: [f.says("{", finish="insufficient_system_resource")], 1),
    ("cut stream", lambda f: [f.cuts(b"data: {")], 1),
    ("loading for long", lambda f: [f.refuses(503, "Loading model")] * 20, 20),
    ("loading says LM Studio", lambda f: [f.refuses(400, "Model is loading, try later")] * 6, 6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plays", "pauses"), [row[1:] for row in RECOVERIES], ids=[row[0] for row in RECOVERIES]
)
def test_what_passes_is_waited_for(
    faults: FaultServer, planner: ModelPlanner, naps: list[float],
    plays: Callable[[FaultServer], list[Play]], pauses: int,
) -> None:  # fmt: skip
    faults.play(*plays(faults), faults.says(ACTION))
    assert planner.answer(QUESTION).text == ACTION
    assert len(naps) == pauses
    assert faults.rungs() == ["json_schema"] * (pauses + 1), (
        "trouble that passes is not a reason to ask for less"
    )


WAITS: list[tuple[str, Callable[[FaultServer], Play], float | None]] = [
    ("429", lambda f: f.refuses(429, "slow"), None),
    ("seconds", lambda f: f.refuses(429, "slow", Retry_After="90"), 90.0),
    ("529", lambda f: f.refuses(529, "Overloaded"), None),
    ("503", lambda f: f.refuses(503, "Loading model", Retry_After="7"), 7.0),
    ("many tokens", lambda f: f.refuses(429, "Too many tokens, please wait", Retry_After="7"), 7.0),
    ("rate in a stream", lambda f: f.sends(f.event({"error": {"message": "x", "code": "rate_limit_exceeded"}})), None),
    ("status in a stream", lambda f: f.sends(f.event({"error": {"message": "slow down", "code": 429}})), None),
    ("load in JSON", lambda f: f.sends(b'{"error": {"message": "x", "type": "overloaded_error"}}'), None),
]  # fmt: skip


@pytest.mark.parametrize(("play", "seconds"), [row[1:] for row in WAITS], ids=[row[0] for row in WAITS])
def test_no_thread_waits_for_a_server_that_asks_to_wait(
    faults: FaultServer, planner: ModelPlanner, naps: list[float],
    play: Callable[[FaultServer], Play], seconds: float | None,
) -> None:  # fmt: skip
    faults.play(play(faults), faults.says(ACTION))
    with pytest.raises(AskedToWait) as waits:
        planner.answer(QUESTION)
    assert (waits.value.seconds, naps, len(faults.requests)) == (seconds, [], 1)
    assert planner.answer(QUESTION).text == ACTION


def test_a_reply_that_ran_out_of_room_is_not_read_but_asked_for_again(
    faults: FaultServer, planner: ModelPlanner
) -> None:
    faults.play(faults.says('{"ok": true, "action"', finish="length"), faults.says(ACTION))
    reply = planner.answer(QUESTION)
    assert reply.text == ACTION
    assert [request.body["max_tokens"] for request in faults.requests] == [1024, 2048]
    assert (reply.input_tokens, reply.output_tokens) == (22, 14), "both were paid for"


def test_what_a_question_without_a_reply_cost_is_told(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(ACTION, finish="length"))
    with pytest.raises(PlannerError) as failed:
        planner.answer(QUESTION)
    assert (failed.value.input_tokens, failed.value.output_tokens) == (33, 21)
    assert failed.value.failed.details == {"status": None, "input_tokens": 33, "output_tokens": 21}


def test_a_model_that_goes_round_in_circles_is_asked_with_more_chance_and_not_with_more_room(
    faults: FaultServer, planner: ModelPlanner
) -> None:
    circles = '{"ok": true, "summary": "' + "and so on, " * 200
    faults.play(faults.says(circles, finish="length"), faults.says(ACTION))
    assert planner.answer(QUESTION).text == ACTION
    asked = [(request.body["max_tokens"], request.body.get("temperature")) for request in faults.requests]
    assert asked == [(1024, None), (1024, 0.8)]


def test_the_reasoning_is_the_reply_only_where_there_is_no_other(
    faults: FaultServer, planner: ModelPlanner
) -> None:
    thought = faults.event({"choices": [{"delta": {"reasoning_content": "Hm. {}"}}]})
    said = faults.event({"choices": [{"delta": {"content": ACTION}, "finish_reason": "stop"}]})
    faults.play(faults.sends(thought + said), faults.says(ACTION, key="reasoning_content"))
    assert planner.answer(QUESTION).text == ACTION
    assert planner.answer(QUESTION).text == ACTION


def test_two_megabytes_of_text_are_a_reply_like_any_other(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says("word " * 400_000))
    assert len(planner.answer(QUESTION).text) == 2_000_000


def test_a_drip_that_never_falls_silent_ends_with_the_total(faults: FaultServer, naps: list[float]) -> None:
    ticks: Iterator[float] = iter(range(100_000))
    planner = make(faults, naps, total_seconds=100.0)
    exchange = planner.answering.chat.exchange  # type: ignore[attr-defined]  # the transport's own
    exchange._clock = lambda: float(next(ticks) * 10)
    faults.play(faults.sends(b": still here\n\n" * 1_000_000))
    planner = replace(
        planner, answering=replace(planner.answering, times=Times(clock=lambda: 0.0, sleep=naps.append))
    )
    with pytest.raises(LcpError, match=r"a whole answer within 100 s is expected, it took longer"):
        planner.answer(QUESTION)


def test_the_limit_is_said_as_it_was_given_not_as_what_was_left_of_it(
    faults: FaultServer, naps: list[float]
) -> None:
    """A busy machine took 99.9 of 100 s before the request was sent."""
    planner = make(faults, naps, total_seconds=100.0)
    planner.answering.chat.exchange._clock = lambda: 99.9  # type: ignore[attr-defined]  # the transport's own
    faults.play(faults.hangs)
    planner = replace(
        planner, answering=replace(planner.answering, times=Times(clock=lambda: 0.0, sleep=naps.append))
    )
    with pytest.raises(LcpError, match=r"a whole answer within 100 s is expected, it took longer"):
        planner.answer(QUESTION)


def test_a_server_that_does_not_count_is_counted_for(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(ACTION, usage=False))
    reply = planner.answer(QUESTION)
    assert reply.output_tokens == len(ACTION.encode()) // 2 + len(ACTION.encode()) % 2
    assert reply.input_tokens is not None
    assert reply.prompt is not None
    assert reply.input_tokens > len(reply.prompt) // 3


LADDER: list[tuple[str, Callable[[FaultServer], list[Play]], Rung, list[str]]] = [
    (
        "root union",
        lambda f: [f.refuses(400, "root must be an object")],
        Rung.JSON_SCHEMA,
        ["json_schema"] * 2,
    ),
    (
        "500 on schemas",
        lambda f: [f.refuses(500)] * 4,
        Rung.JSON_OBJECT_WITH_SCHEMA,
        ["json_schema"] * 4 + ["json_object"],
    ),
    (
        "no schemas at all",
        lambda f: [f.refuses(400)] * 3,
        Rung.JSON_OBJECT,
        ["json_schema"] * 2 + ["json_object"] * 2,
    ),
    (
        "nothing but text",
        lambda f: [f.refuses(400)] * 4,
        Rung.PROMPT,
        ["json_schema"] * 2 + ["json_object"] * 2 + ["None"],
    ),
]


@pytest.mark.parametrize(
    ("plays", "rung", "asked"), [row[1:] for row in LADDER], ids=[row[0] for row in LADDER]
)
def test_a_refused_rung_means_the_next_one_which_is_remembered(
    faults: FaultServer, planner: ModelPlanner,
    plays: Callable[[FaultServer], list[Play]], rung: Rung, asked: list[str],
) -> None:  # fmt: skip
    faults.play(*plays(faults), faults.says(ACTION))
    assert planner.answer(QUESTION).text == ACTION
    assert faults.rungs() == asked
    probe = planner.answering.probe(faults.url, "tiny")
    assert (probe.step.rung, probe.model, probe.is_found) == (rung, "tiny", True)
    planner.answer(QUESTION)
    assert faults.rungs() == [*asked, asked[-1]]


def test_a_rung_that_was_found_is_not_lost_by_one_refusal(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(ACTION), *[faults.refuses(400)] * 2, faults.says(ACTION))
    for _ in range(3):
        planner.answer(QUESTION)
    assert faults.rungs() == ["json_schema"] * 3 + ["json_object", "json_schema"]


def test_a_parameter_that_a_server_names_is_left_out(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(
        faults.refuses(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."),
        faults.refuses(400, "temperature does not support 0"),
        faults.says(ACTION),
    )
    planner.answer(QUESTION)
    assert faults.rungs() == ["json_schema"] * 3
    body = faults.requests[-1].body
    assert "temperature" not in body
    assert "max_tokens" not in body
    assert body["max_completion_tokens"] == 1024


def test_the_envelope_is_taken_off_character_by_character(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.refuses(400, "no union at the root"), faults.says(f' {{ "action" : {ACTION} }}\n'))
    assert planner.answer(QUESTION).text == ACTION


def test_less_is_said_where_the_prompt_does_not_fit(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.refuses(400, "This model's maximum context length is 2048"), faults.says(ACTION))
    planner.answer(QUESTION)
    said = [str(request.body["messages"]) for request in faults.requests]
    assert len(said[1]) < len(said[0])


def test_an_unknown_model_is_named_with_the_nearest(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.models = ("tinny", "other")
    faults.play(faults.refuses(404, "model 'tiny' not found"))
    with pytest.raises(LcpError, match="model 'tiny': did you mean 'tinny'"):
        planner.answer(QUESTION)


def test_the_only_model_of_a_server_needs_no_name(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(ACTION))
    nameless = replace(planner, settings=replace(planner.settings, model=""))
    nameless.answer(QUESTION)
    assert faults.requests[0].body["model"] == "tiny"
    faults.models = ("one", "two")
    several = replace(planner, settings=replace(planner.settings, model=""), _facts=[])
    with pytest.raises(LcpError, match=r"the name of a model is expected; .* has one, two"):
        several.answer(QUESTION)


def test_no_more_requests_are_under_way_than_there_are_slots(faults: FaultServer, naps: list[float]) -> None:
    made = make(faults, naps, concurrency=2, first_byte_seconds=20.0)
    planner = replace(made, slots=RequestSlots())
    pair, counting, under_way, most = threading.Barrier(2, timeout=20), threading.Lock(), 0, 0

    def play(to: BaseHTTPRequestHandler) -> None:
        nonlocal under_way, most
        with counting:
            under_way += 1
            most = max(most, under_way)
        pair.wait()  # fewer than two at once would wait for ever
        with counting:
            under_way -= 1
        faults.says(ACTION)(to)

    faults.play(play)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(planner.answer, [QUESTION] * 4))
    assert [reply.text for reply in replies] == [ACTION] * 4
    assert most == 2


def test_a_key_that_a_server_echoes_is_not_stored(faults: FaultServer, planner: ModelPlanner) -> None:
    faults.play(faults.says(f'{{"your key": "{CANARY}"}}'))
    assert CANARY not in planner.answer(QUESTION).text
