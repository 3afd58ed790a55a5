"""Read what agents print: their calls of tools, their last words, what they cost, and how they have ended. Pure.

Success is what the last event of a stream says. An exit code proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from lcp_engine.core.json_values import object_in
from lcp_engine.core.safe_text import one_line

MOST_CALLS = 500
"""Calls that are kept of a turn, the first ones."""
MOST_INPUT = 2000
"""Characters of a call's input that are kept."""
MOST_TEXT = 64 * 1024
"""Characters of the last words."""


@dataclass
class Stream:
    """Summary of what an agent has said until now."""

    text: str = ""
    """Its last words."""
    session: str = ""
    is_done: bool = False
    """True if the last event says that it has done its work."""
    failure: str = ""
    """Reason why it has failed, as it says itself."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """In US dollars, as it counts itself."""
    calls: list[dict[str, JsonValue]] = field(default_factory=list)
    """Its calls of tools: `id`, `tool`, `input`, and `ok` once they have ended. They were seen, and asked nobody."""
    more_calls: int = 0

    def say(self, text: str) -> None:
        if text.strip():
            self.text = text.strip()[-MOST_TEXT:]

    def fail(self, why: JsonValue) -> None:
        self.is_done = False
        self.failure = one_line(_words(why))[:1000] or "it says no reason"

    def finish(self) -> None:
        self.is_done, self.failure = True, ""

    def count(self, read: JsonValue, written: JsonValue, *, adds: bool = True) -> None:
        """Add tokens, or replace them by the sum that it states."""
        before = (self.input_tokens or 0, self.output_tokens or 0) if adds else (0, 0)
        if isinstance(read, int):
            self.input_tokens = before[0] + read
        if isinstance(written, int):
            self.output_tokens = before[1] + written

    def call(self, name: JsonValue, tool: JsonValue, given: JsonValue, *, ok: bool | None = None) -> None:
        """Note a call, or its end."""
        key = str(name)
        known = next((one for one in reversed(self.calls) if one["id"] == key and "ok" not in one), None)
        if known is not None:
            known.update({} if ok is None else {"ok": ok})
        elif len(self.calls) >= MOST_CALLS:
            self.more_calls += 1
        else:
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            self.calls.append({"id": key, "tool": str(tool), "input": text[:MOST_INPUT]})
            self.calls[-1].update({} if ok is None else {"ok": ok})


Read = Callable[[Stream, Mapping[str, JsonValue]], None]


def read_line(stream: Stream, form: str, line: str) -> None:
    """Read a line of a stream in one of `FORMS`; a line that is not of this form is left out."""
    if form == "text":
        stream.say(f"{stream.text}\n{line}")
        stream.finish()
        return
    try:
        event: JsonValue = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(event, dict):
        FORMS[form](stream, event)


def _codex(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    item = object_in(event.get("item"))
    match event.get("type"), item.get("type"):
        case "thread.started", _:
            stream.session = str(event.get("thread_id") or "")
        case "turn.completed", _:
            usage = object_in(event.get("usage"))
            stream.count(usage.get("input_tokens"), usage.get("output_tokens"))
            stream.finish()
        case (("turn.failed" | "error"), _):
            stream.fail(event.get("error") or event.get("message"))
        case "item.completed", "agent_message":
            stream.say(str(item.get("text") or ""))
        case "item.completed", ("reasoning" | "error" | "todo_list"):
            pass
        case ("item.started" | "item.completed") as at, str(kind):
            status = item.get("status")
            ok = None if at == "item.started" else status in {"completed", None}
            given = item.get("command") or item.get("changes") or item.get("query") or item.get("arguments")
            stream.call(item.get("id"), kind, given, ok=ok)
        case _:
            pass


def _claude(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    """Claude Code's and Qwen Code's."""
    match event.get("type"):
        case "system":
            stream.session = str(event.get("session_id") or stream.session)
        case "assistant":
            for part in _parts(event):
                if part.get("type") == "text":
                    stream.say(str(part.get("text") or ""))
                elif part.get("type") == "tool_use":
                    stream.call(part.get("id"), part.get("name"), part.get("input"))
        case "user":
            for part in _parts(event):
                if part.get("type") == "tool_result":
                    stream.call(part.get("tool_use_id"), "", "", ok=part.get("is_error") is not True)
        case "result":
            _end_claude(stream, event)
        case _:
            pass


def _end_claude(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    usage = object_in(event.get("usage"))
    read = [usage.get(name) for name in _READ]
    stream.count(sum(one for one in read if isinstance(one, int)), usage.get("output_tokens"), adds=False)
    cost = event.get("total_cost_usd")
    stream.cost = float(cost) if isinstance(cost, int | float) else None
    said = str(event.get("result") or "")
    # Qwen Code calls it a success that its model was not reached.
    is_done = event.get("subtype") == "success" and not said.startswith("[API Error")
    if is_done and event.get("is_error") is not True:
        stream.say(said)
        stream.finish()
    else:
        stream.fail(event.get("result") or event.get("error") or event.get("subtype"))


_READ = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _parts(event: Mapping[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    content = object_in(event.get("message")).get("content")
    yield from map(object_in, content if isinstance(content, list) else [])


def _gemini(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    match event.get("type"):
        case "init":
            stream.session = str(event.get("session_id") or "")
        case "message" if event.get("role") == "assistant":
            before = stream.text if event.get("delta") is True and not stream.is_done else ""
            stream.text = f"{before}{event.get('content') or ''}"[-MOST_TEXT:]
        case "tool_use":
            stream.text = ""  # the words after the last call are the last words
            stream.call(event.get("tool_id"), event.get("tool_name"), event.get("parameters"))
        case "tool_result":
            stream.call(event.get("tool_id"), "", "", ok=event.get("status") == "success")
        case "error" if event.get("severity") == "error":
            stream.fail(event.get("message"))
        case "result":
            stats = object_in(event.get("stats"))
            stream.count(stats.get("input_tokens"), stats.get("output_tokens"), adds=False)
            if event.get("status") == "success":
                stream.finish()
            else:
                stream.fail(event.get("error") or event.get("status"))
        case _:
            pass


def _opencode(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    part = object_in(event.get("part"))
    stream.session = str(event.get("sessionID") or stream.session)
    match event.get("type"):
        case "text":
            stream.say(str(part.get("text") or ""))
        case "tool_use":
            state = object_in(part.get("state"))
            ok = {"completed": True, "error": False}.get(str(state.get("status")))
            stream.call(part.get("callID"), part.get("tool"), state.get("input"), ok=ok)
        case "step_finish":
            tokens = object_in(part.get("tokens"))
            stream.count(tokens.get("input"), tokens.get("output"))
            cost = part.get("cost")
            if isinstance(cost, int | float):
                stream.cost = (stream.cost or 0.0) + cost
            if part.get("reason") == "stop":
                stream.finish()
            else:
                stream.is_done = False
        case "error":
            stream.fail(event.get("error"))
        case _:
            pass


def _pi(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    message = object_in(event.get("message"))
    match event.get("type"):
        case "session":
            stream.session = str(event.get("id") or "")
        case "message_end" if message.get("role") == "assistant":
            usage = object_in(message.get("usage"))
            stream.count(usage.get("input"), usage.get("output"))
            parts = [one for one in _parts(event) if one.get("type") == "text"]
            stream.say("\n".join(str(one.get("text") or "") for one in parts))
            if message.get("stopReason") in {"error", "aborted"}:
                stream.fail(message.get("errorMessage") or message.get("stopReason"))
            else:
                stream.is_done = message.get("stopReason") == "stop"
                stream.failure = ""
        case "tool_execution_start":
            stream.call(event.get("toolCallId"), event.get("toolName"), event.get("args"))
        case "tool_execution_end":
            stream.call(event.get("toolCallId"), "", "", ok=event.get("isError") is not True)
        case _:
            pass


def _mini(stream: Stream, event: Mapping[str, JsonValue]) -> None:
    """The trajectory of mini-swe-agent, which is one object."""
    info = object_in(event.get("info"))
    statistics = object_in(info.get("model_stats"))
    cost = statistics.get("instance_cost")
    stream.cost = float(cost) if isinstance(cost, int | float) else None
    if info.get("exit_status") == "Submitted":
        stream.say(str(info.get("submission") or "submitted"))
        stream.finish()
    else:
        stream.fail(info.get("exit_status"))


FORMS: Mapping[str, Read] = {
    "codex": _codex, "claude": _claude, "gemini": _gemini, "opencode": _opencode, "pi": _pi, "mini": _mini,
}  # fmt: skip
"""Forms of streams whose lines are objects; `text` is the one of plain text."""


def _words(value: JsonValue) -> str:
    """The message in an error, however deep it is."""
    if isinstance(value, dict):
        for key in ("message", "data", "error", "name", "type"):
            if value.get(key):
                return _words(value[key])
        return json.dumps(value)
    return "" if value is None else str(value)
