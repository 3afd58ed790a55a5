"""No prompt overruns the context, whether the server counts tokens, does not, or counts them wrongly."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from lcp_engine import Engine
from lcp_engine.features.models.endpoints.chat import Message
from lcp_engine.features.models.endpoints.token_count import Meter, bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from pydantic import JsonValue
    from tests.features.models.planners.conftest import FaultServer, Play

CONTEXT, ROOM, TEMPLATE = 4096, 1024, 12
DENSE = 0.47
"""Tokens to a byte, as the smallest models have them in lists of files: a third is usual."""


def tokens_of(text: str) -> int:
    return math.ceil(len(text.encode()) * DENSE)


def prompt_of(body: JsonValue) -> str:
    assert isinstance(body, dict)
    messages = body["messages"]
    assert isinstance(messages, list)
    return "\n".join(str(message["content"]) for message in messages if isinstance(message, dict))


def act(kind: str, *params: dict[str, JsonValue]) -> str:
    jobs: JsonValue = [{"kind": kind, "params": {"root": ".", **each}} for each in params]
    return json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": jobs})


REPLIES = (
    act("list_files", {}),
    act("read_file", {"rel_path": "a.log"}, {"rel_path": "pkg7/mod7.py"}),
    act("list_files", {"patterns": ["pkg7/**"]}),
    act("read_file", {"rel_path": "b.log"}),
    act("read_file", {"rel_path": "a.log", "offset": 60, "limit": 900}),
    json.dumps({"ok": True, "action": "mission_complete", "summary": "done"}),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of 1,004 files, which the missions only read."""
    place = tmp_path_factory.mktemp("large")
    for part in range(10):
        (place / f"pkg{part}").mkdir(parents=True)
        for number in range(100):
            (place / f"pkg{part}" / f"mod{number}.py").write_text("def f(): pass\n")
    for name in ("a.log", "b.log", "README.md", "main.py"):
        (place / name).write_text("".join(f"{name} {line} x=1; y={{2}}\n" for line in range(1500)))
    return place


def run(faults: FaultServer, tmp_path: Path, root: Path, **options: JsonValue) -> list[int]:
    """A mission; the tokens of its prompts by the model's own count, which are its usage."""
    replies, true = iter(REPLIES), list[int]()

    def answer(to: BaseHTTPRequestHandler) -> None:
        true.append(tokens_of(prompt_of(faults.requests[-1].body)) + TEMPLATE)
        said: JsonValue = {"role": "assistant", "content": next(replies)}
        usage: JsonValue = {"prompt_tokens": true[-1], "completion_tokens": 50}
        whole: JsonValue = {"choices": [{"message": said, "finish_reason": "stop"}], "usage": usage}
        faults.sends(json.dumps(whole).encode(), content_type="application/json")(to)

    faults.play(answer)
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": CONTEXT, "max_tokens": ROOM,
        **options,
    }  # fmt: skip
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        mission = engine.launch({"goal": "Find out.", "planner": planner}, root=root)
        engine.work(until_idle=True)
        assert engine.mission(mission.id).outcome == "mission_complete"
    return true


def counting(faults: FaultServer, shape: Callable[[int], JsonValue]) -> Play:
    """A server that answers with `shape` of how many tokens there are."""

    def play(to: BaseHTTPRequestHandler) -> None:
        tokens = tokens_of(str(faults.tokenized[-1].body["content"]))
        faults.sends(json.dumps(shape(tokens)).encode(), content_type="application/json")(to)

    return play


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda tokens: {"tokens": [*range(tokens)]}, id="llama.cpp"),
        pytest.param(lambda tokens: {"count": tokens, "max_model_len": 9, "tokens": []}, id="vLLM"),
    ],
)
def test_prompts_are_counted_by_the_server_and_fill_the_context(
    shape: Callable[[int], JsonValue], faults: FaultServer, tmp_path: Path, root: Path
) -> None:
    faults.tokenize = counting(faults, shape)
    true = run(faults, tmp_path, root)
    assert max(true) <= CONTEXT - ROOM
    assert all(tokens >= 0.8 * (CONTEXT - ROOM) for tokens in true[2:]), "there was more to show"
    assert len(faults.tokenized) <= 1 + 2 * len(true), (
        "a prompt is counted as a whole, and once more if need be"
    )


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("none", 1),
        ("500", 1),
        ("no count", 1),
        ("absurd", 1),
        ("negative", 1),
        ("always three", 1),
        ("63 MB", 1),
        ("slow", 1),
        ("a quarter", 2),
    ],
)
def test_a_server_that_does_not_count_or_counts_wrongly_costs_no_prompt_its_room(
    name: str, asked: int, faults: FaultServer, tmp_path: Path, root: Path
) -> None:
    huge = b'{"tokens": [' + b"1," * (63 * 2**19) + b"1]}"
    plays: dict[str, Play | None] = {
        "none": None,
        "500": faults.refuses(500),
        "no count": counting(faults, lambda tokens: {"error": "Unexpected endpoint"}),
        "absurd": counting(faults, lambda tokens: {"count": 10**9}),
        "negative": counting(faults, lambda tokens: {"count": -1, "tokens": "many"}),
        "always three": counting(faults, lambda tokens: {"tokens": [1, 2, 3]}),
        "63 MB": faults.sends(huge, content_type="application/json"),
        "slow": faults.hangs,
        "a quarter": counting(faults, lambda tokens: {"count": tokens // 4}),
    }
    faults.tokenize = plays[name]
    options: dict[str, JsonValue] = {"first_byte_seconds": 0.2} if name == "slow" else {}
    true = run(faults, tmp_path, root, **options)
    assert max(true) <= CONTEXT - ROOM
    assert all(tokens >= 0.7 * (CONTEXT - ROOM) for tokens in true[2:]), "usage corrects what bytes say"
    assert len(faults.tokenized) == asked
    probe = str(faults.tokenized[0].body["content"])
    assert len(probe) < 60, "no prompt is sent to a server that may not count"


def test_a_usage_that_cannot_be_is_no_measure() -> None:
    prompt = (Message("user", "a word " * 400),)
    meter = Meter()
    for tokens in (0, 11, 10**7):
        meter.charge(prompt, tokens)
    assert (meter.ratio, meter.count("12345678")) == (None, 4)
    meter.charge(prompt, bytes_of(prompt) // 4)
    assert meter.count("12345678" * 100) == 208
