"""Streams of agents are read to their last event, and nothing that is said before it or beside it counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcp_engine.features.agents.streams import FORMS, MOST_CALLS, Stream, read_line

CALL = [{"id": "c1", "tool": "write", "input": '{"path": "a"}', "ok": True}]
RUNS: dict[str, tuple[object, ...]] = {
    "claude": (
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "assistant", "message": {"content": [
            {"type": "text", "text": "I begin."},
            {"type": "tool_use", "id": "c1", "name": "write", "input": {"path": "a"}}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]}},
        {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "total_cost_usd": 0.5,
         "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3}},
    ),
    "gemini": (
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "message", "role": "user", "content": "Go."},
        {"type": "message", "role": "assistant", "content": "I begin.", "delta": True},
        {"type": "tool_use", "tool_id": "c1", "tool_name": "write", "parameters": {"path": "a"}},
        {"type": "tool_result", "tool_id": "c1", "status": "success"},
        {"type": "message", "role": "assistant", "content": "Do", "delta": True},
        {"type": "message", "role": "assistant", "content": "ne.", "delta": True},
        {"type": "result", "status": "success", "stats": {"input_tokens": 7, "output_tokens": 3}},
    ),
    "opencode": (
        {"type": "step_start", "sessionID": "s", "part": {}},
        {"type": "tool_use", "sessionID": "s", "part": {"callID": "c1", "tool": "write", "state": {
            "status": "completed", "input": {"path": "a"}}}},
        {"type": "step_finish", "sessionID": "s", "part": {
            "reason": "tool-calls", "cost": 0.25, "tokens": {"input": 4, "output": 2}}},
        {"type": "text", "sessionID": "s", "part": {"text": "Done."}},
        {"type": "step_finish", "sessionID": "s", "part": {
            "reason": "stop", "cost": 0.25, "tokens": {"input": 3, "output": 1}}},
    ),
    "pi": (
        {"type": "session", "id": "s"},
        {"type": "tool_execution_start", "toolCallId": "c1", "toolName": "write", "args": {"path": "a"}},
        {"type": "tool_execution_end", "toolCallId": "c1", "isError": False},
        {"type": "message_end", "message": {"role": "assistant", "stopReason": "stop",
         "content": [{"type": "text", "text": "Done."}], "usage": {"input": 7, "output": 3}}},
    ),
}  # fmt: skip
"""The events of a run with one call, in each form."""


def read(form: str, *events: object) -> Stream:
    stream = Stream()
    for event in events:
        read_line(stream, form, event if isinstance(event, str) else json.dumps(event))
    return stream


@pytest.mark.parametrize("form", RUNS)
def test_a_run_is_read_with_its_call_its_words_and_its_cost(form: str) -> None:
    found = read(form, *RUNS[form])
    assert (found.is_done, found.failure, found.text, found.session) == (True, "", "Done.", "s")
    assert (found.input_tokens, found.output_tokens, found.calls) == (7, 3, CALL)
    assert found.cost == (0.5 if form in {"claude", "opencode"} else None)


@pytest.mark.parametrize("form", RUNS)
def test_a_run_that_breaks_off_is_not_done(form: str) -> None:
    assert not read(form, *RUNS[form][:-1]).is_done


FAILURES: dict[str, tuple[object, str]] = {
    "codex": ({"type": "turn.failed", "error": {"message": "no room"}}, "no room"),
    "claude": ({"type": "result", "subtype": "error_max_turns", "is_error": True}, "error_max_turns"),
    "gemini": ({"type": "result", "status": "error", "error": {"type": "x", "message": "no room"}}, "no room"),
    "opencode": ({"type": "error", "error": {"name": "APIError", "data": {"message": "no room"}}}, "no room"),
    "pi": ({"type": "message_end", "message": {"role": "assistant", "stopReason": "error", "errorMessage": "no room"}},
           "no room"),
    "mini": ({"info": {"exit_status": "RepeatedFormatError"}}, "RepeatedFormatError"),
}  # fmt: skip


def test_a_success_of_qwen_code_that_is_none_is_a_failure() -> None:
    found = read(
        "claude", {"type": "result", "subtype": "success", "result": "[API Error: 401 Unauthorized]"}
    )
    assert (found.is_done, found.failure) == (False, "[API Error: 401 Unauthorized]")


@pytest.mark.parametrize("form", FAILURES)
def test_a_failure_is_what_the_last_event_says(form: str) -> None:
    event, why = FAILURES[form]
    found = read(form, *RUNS.get(form, ()), event)
    assert (found.is_done, found.failure) == (False, why)


def test_calls_without_end_are_counted() -> None:
    events = [
        {
            "type": "item.completed",
            "item": {"id": str(nth), "type": "command_execution", "command": "x" * 9999},
        }
        for nth in range(MOST_CALLS + 5)
    ]
    found = read("codex", *events)
    assert (len(found.calls), found.more_calls, len(str(found.calls[0]["input"]))) == (MOST_CALLS, 5, 2000)


KEYS = st.sampled_from(["type", "item", "message", "part", "content", "usage", "error", "state", "id"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)
TYPES = st.sampled_from(
    [
        "result",
        "assistant",
        "user",
        "item.completed",
        "error",
        "step_finish",
        "message_end",
        "tool_use",
        "turn.completed",
    ]
)


@given(
    form=st.sampled_from(sorted(FORMS)), kind=TYPES, event=st.dictionaries(st.text(max_size=5), JSON) | JSON
)
def test_no_event_of_another_shape_raises(form: str, kind: str, event: object) -> None:
    found = Stream()
    read_line(found, form, json.dumps({**event, "type": kind} if isinstance(event, dict) else event))
    assert len(found.failure) <= 1000
