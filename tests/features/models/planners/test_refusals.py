"""What servers refuse of a request is given up, one thing after another; an unknown model ends the question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine import Engine
from lcp_engine.core.health import Finding, Grade
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.errors import LcpError
from lcp_engine.features.models.endpoints.complete import Times
from lcp_engine.features.models.endpoints.errors import Trouble, trouble_of, trouble_within
from lcp_engine.features.models.endpoints.probe import examine
from lcp_engine.features.models.factories import anthropic_planner, openai_planner
from lcp_engine.features.models.options import OpenAIOptions, RemoteOptions
from lcp_engine.features.models.planner import ModelPlanner
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step, ask_for_less
from lcp_engine.planners.base import Question
from lcp_engine.planners.environment import MemoryProbeCache

Body: TypeAlias = "dict[str, JsonValue]"

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

ACTION = '{"ok": true, "action": "mission_complete", "summary": "It was dug on a Tuesday."}'
QUESTION = Question(1, 1, 1, "goal", "/", "goal")
LADDER = (Step(Rung.JSON_SCHEMA), Step(Rung.JSON_OBJECT), Step(Rung.PROMPT))
SENT = frozenset({"stream", "stream_options", "max_tokens", "temperature", "seed"})


def openai(
    message: str, param: str | None = None, code: str | int | None = None, kind: str = "invalid_request_error"
) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def claude(message: str, kind: str = "invalid_request_error") -> str:
    error = {"type": kind, "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"})


MAX_TOKENS = openai(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)
TEMPERATURE = openai(
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)
STRUCTURED = (
    "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model. Learn more about "
    "supported models at the Structured Outputs guide: https://platform.openai.com/docs/guides/structured-outputs"
)
REFUSALS: list[Body] = [
    json.loads(line) for line in Path(__file__).with_name("refusals.jsonl").read_text().splitlines()
]
"""Bodies as servers send them, with what a request with `SENT` gives up (null: the format), or `no_model`."""


def refusal(row: Body) -> Trouble:
    body, status = row["body"], row["status"]
    assert isinstance(status, int)
    text = body if isinstance(body, str) else json.dumps(body)
    return replace(trouble_of("here", status, {}, text, str), optional=SENT)


@table("row", [row for row in REFUSALS if "no_model" not in row], ids=lambda row: str(row["of"]))
def test_a_refusal_is_about_the_request_and_gives_up_what_it_names(row: Body) -> None:
    trouble, name = refusal(row), row["gives_up"]
    assert not trouble.is_about_model
    for probe in (Probe("http://here", "m"), Probe("http://here", "seed-m")):
        less = (
            replace(probe, step=LADDER[1]) if name is None else replace(probe, without=frozenset({str(name)}))
        )
        assert ask_for_less(probe, trouble, LADDER) == less


@table("row", [row for row in REFUSALS if "no_model" in row], ids=lambda row: str(row["of"]))
def test_no_such_model_is_said_by_a_code_or_by_the_message_alone(row: Body) -> None:
    trouble = refusal(row)
    assert trouble.is_about_model
    assert trouble.is_refusal
    assert ask_for_less(Probe("http://here", "m"), trouble, LADDER) is None


Refuse: TypeAlias = "Callable[[Body], tuple[int, str] | None]"
"""The refusal of a request with this body; None if it is answered."""


def refuses(faults: FaultServer, *rules: Refuse, answer: bytes | None = None) -> None:
    """Let the server refuse by the first of `rules` that does, and else answer with `answer`."""

    def play(to: BaseHTTPRequestHandler) -> None:
        body = faults.requests[-1].body
        refused = next((refusal for rule in rules if (refusal := rule(body))), None)
        if refused is not None:
            status, said = refused
            faults.sends(said.encode(), status=status, content_type="application/json")(to)
        elif answer is not None:
            faults.sends(answer)(to)
        elif body.get("stream"):
            faults.says(ACTION)(to)
        else:
            whole = {"choices": [{"message": {"content": ACTION}, "finish_reason": "stop"}]}
            faults.sends(json.dumps(whole).encode(), content_type="application/json")(to)

    faults.play(play)


def without(name: str, said: str, status: int = 400) -> Refuse:
    return lambda body: (status, said) if name in body else None


def asks(faults: FaultServer, **options: float) -> ModelPlanner:
    stated = OpenAIOptions(base_url=faults.url, model="m", context_tokens=4096, **options)  # type: ignore[arg-type]
    return fresh(openai_planner(stated, {}))


def fresh(planner: ModelPlanner) -> ModelPlanner:
    """The planner in a process that knows nothing yet."""
    times = Times(sleep=lambda seconds: None)
    return replace(planner, answering=replace(planner.answering, memory=MemoryProbeCache(), times=times))


SEED = openai(
    "Unsupported parameter: 'seed' is not supported with this model.", "seed", "unsupported_parameter"
)


def test_several_refusals_cost_one_parameter_each_and_are_remembered(faults: FaultServer) -> None:
    refuses(
        faults, without("max_tokens", MAX_TOKENS), without("temperature", TEMPERATURE), without("seed", SEED)
    )
    planner = asks(faults, temperature=0, seed=7, max_tokens=500)
    assert planner.answer(QUESTION).text == ACTION
    assert len(faults.requests) == 4
    body = faults.requests[-1].body
    assert body["max_completion_tokens"] == 500
    assert not body.keys() & {"max_tokens", "temperature", "seed"}
    assert faults.rungs() == ["json_schema"] * 4, "the schema was never refused"
    fresh(planner).answer(QUESTION)
    assert len(faults.requests) == 5, "what was found out is stored"


def test_a_refusal_after_an_answer_is_remembered_at_once(faults: FaultServer) -> None:
    refuses(faults, without("temperature", TEMPERATURE))
    planner = asks(faults)
    planner.answer(QUESTION)
    for _ in range(3):
        planner.answer(replace(QUESTION, attempt=2))  # asked with more chance
    assert ["temperature" in request.body for request in faults.requests] == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_parameters_that_nobody_set_are_not_sent(faults: FaultServer) -> None:
    refuses(faults)
    asks(faults).answer(QUESTION)
    (request,) = faults.requests
    assert request.body.keys() == {
        "model", "messages", "stream", "stream_options", "max_tokens", "response_format"
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["stream_options", "max_tokens", "temperature", "seed", "repeat_penalty", "stream"]
)
def test_a_parameter_that_is_refused_without_its_name_is_found(name: str, faults: FaultServer) -> None:
    refuses(faults, without(name, '{"detail": "Bad Request"}', 422))
    planner = asks(faults, temperature=0, seed=7, repeat_penalty=1.1)
    assert planner.answer(QUESTION).text == ACTION
    assert name not in faults.requests[-1].body
    assert len(faults.requests) < 13


TOO_LARGE = "max_tokens is too large: 4000. This model supports at most 1000 completion tokens."
NO_ROOM = (
    "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens "
    "and your request has 900 input tokens (4000 > 4096 - 900)."
)
LIMITS: list[tuple[str, int]] = [
    (openai(TOO_LARGE, "max_tokens", "invalid_value"), 1000),
    (openai(NO_ROOM, None, 400, "BadRequestError"), 1000),
    (openai("Invalid max_tokens value, the valid range of max_tokens is [1, 1000]"), 500),
    (claude("max_tokens: 4000 > 1000, which is the maximum allowed number of output tokens for m"), 1000),
]


@pytest.mark.parametrize(("said", "room"), LIMITS)
def test_a_reply_gets_half_the_room_until_the_server_has_it(
    said: str, room: int, faults: FaultServer
) -> None:
    def rule(body: Body) -> tuple[int, str] | None:
        most = body["max_tokens"]
        return (400, said) if isinstance(most, int) and most > room else None

    refuses(faults, rule)
    asks(faults, max_tokens=4000).answer(QUESTION)
    assert faults.requests[-1].body["max_tokens"] == room
    assert "response_format" in faults.requests[-1].body


ENDLESS = [
    MAX_TOKENS,
    TEMPERATURE,
    openai("Unsupported parameter: 'top_p'", "top_p", "unsupported_parameter"),
    openai("max_tokens is too large: 1", "max_tokens"),
    openai("temperature, seed, max_tokens, stream_options and response_format are refused"),
    "no",
]


@pytest.mark.parametrize("said", ENDLESS)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_server_that_refuses_everything_is_not_asked_for_ever(
    said: str, is_known: bool, faults: FaultServer
) -> None:
    planner = asks(faults, temperature=0, seed=1)
    if is_known:
        refuses(faults)
        planner.answer(QUESTION)
    refuses(faults, lambda body: (400, said))
    with pytest.raises(LcpError, match="the server answered 400"):
        planner.answer(QUESTION)
    assert len(faults.requests) < 30


BROKEN_OFF: list[JsonValue] = [
    json.loads(TEMPERATURE)["error"],
    {"message": "temperature is not supported", "code": 400},
    {"message": "temperature is not supported", "type": "None", "param": "None", "code": "400"},
    {"message": "not supported", "param": "temperature"},
]


@pytest.mark.parametrize("error", BROKEN_OFF)
def test_a_refusal_in_the_middle_of_a_stream_is_one(error: JsonValue, faults: FaultServer) -> None:
    begun = faults.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    broken_off = faults.sends(begun + faults.event({"error": error}))
    faults.play(broken_off, faults.says(ACTION))
    assert asks(faults, temperature=0).answer(QUESTION).text == ACTION
    assert ["temperature" in request.body for request in faults.requests] == [True, False]
    assert trouble_within("here", error, str).status == 400


def test_an_unknown_model_in_a_stream_is_not_asked_again(faults: FaultServer) -> None:
    error: Body = {"message": "The model `m` does not exist", "code": "model_not_found"}
    faults.play(faults.sends(faults.event({"error": error})))
    faults.models = ("mm",)
    with pytest.raises(LcpError, match="model 'm': did you mean 'mm'"):
        asks(faults).answer(QUESTION)
    assert len(faults.requests) == 1


CLAUDE = b"".join(
    b"data: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": ACTION}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )
)


def test_anthropic_refuses_temperature_and_format(faults: FaultServer) -> None:
    refuses(
        faults,
        without("temperature", claude("`temperature` is deprecated for this model.")),
        without("output_config", claude("'claude-x' does not support output format.")),
        answer=CLAUDE,
    )
    options = RemoteOptions(
        base_url=faults.url.removesuffix("/v1"), model="claude-x", temperature=0.5, context_tokens=9000
    )
    planner = fresh(anthropic_planner(options, {}))
    assert planner.answer(QUESTION).text == ACTION
    assert [request.path for request in faults.requests] == ["/v1/messages"] * 3
    probe = planner.answering.probe(faults.url.removesuffix("/v1"), "claude-x")
    assert (probe.step.rung, probe.without) == (Rung.JSON_OBJECT_WITH_SCHEMA, frozenset({"temperature"}))
    planner.answer(QUESTION)
    assert len(faults.requests) == 4


def test_an_examination_says_what_a_model_refuses(faults: FaultServer) -> None:
    refuses(faults, without("max_tokens", MAX_TOKENS), without("temperature", TEMPERATURE))
    found = list(examine(asks(faults, temperature=0), [QUESTION] * 2, lambda text: True, seconds=20.0))
    (rung,) = [finding for finding in found if finding.about == "rung"]
    assert rung == Finding(
        "rung",
        Grade.OK,
        "json_schema, without temperature, with max_completion_tokens instead of max_tokens",
    )


@pytest.fixture
def engine(emptied_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Engine(emptied_database_url) as opened:
        yield opened


def test_a_mission_of_today_gets_its_replies(engine: Engine, faults: FaultServer, tmp_path: Path) -> None:
    refuses(
        faults,
        without("max_tokens", MAX_TOKENS),
        without("temperature", TEMPERATURE),
        without("response_format", openai(STRUCTURED)),
    )
    planner: Body = {"type": "openai", "base_url": faults.url, "model": "m"}
    mission = engine.launch({"goal": "x", "planner": {**planner, "temperature": 0}}, root=tmp_path)
    engine.work(until_idle=True)
    assert engine.mission(mission.id).status == "completed"
    (turn,) = engine.turns(mission.id)
    temperatures = [object_in(made)["temperature"] for made in list_in(turn["completions"])]
    assert (temperatures[0], temperatures[-1]) == (0, None)
    asked = len(faults.requests)
    engine.launch({"goal": "x", "planner": planner}, root=tmp_path)
    engine.work(until_idle=True)
    assert len(faults.requests) == asked + 1
