"""Take one turn of an agent: start it in the stage, ask it, keep what it changed, reply with its last message."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from lcp_engine.core.safe_text import shortened
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.acp_planner.calls import Calls
from lcp_engine.features.acp_planner.client import Conversation, Said, Terms
from lcp_engine.features.acp_planner.prompt import prompt_of
from lcp_engine.features.agents.process import AgentPlace, AgentProcess, Launch, agent_place
from lcp_engine.features.agents.program import WorkedResult
from lcp_engine.features.programs.stage_work import StageWork
from lcp_engine.planners.base import CompletionRecord, Question, Reply

if TYPE_CHECKING:
    from lcp_engine.features.acp_planner.planner import AcpPlanner

_MOST_SUMMARY = 10_000
_MARGIN = 0.05
"""Part of its time that is left to keep what an agent has done."""
_MOST_SHOWN, _DRAFT_SECONDS = 2000, 0.5
_END_SECONDS = 5.0
"""Seconds that an agent may take to end once its stdin is closed."""
_MOST_LOOKED_AT = 20_000


def take_turn(options: AcpPlanner, question: Question, work: StageWork) -> Reply:
    """Have the agent answer a question by working in the stage."""
    with agent_place(work, question.number, options.name) as place:
        done = place.done
        if done is None:
            done = _asked(options, question, work, place)
            place.note(done)
        kept = place.keep(WorkedResult()).result
    left_out = kept.left_out if isinstance(kept, WorkedResult) else []
    return _reply(options, done, left_out)


def _asked(
    options: AcpPlanner, question: Question, work: StageWork, place: AgentPlace
) -> dict[str, JsonValue]:
    """The end of the agent's turn, to be noted."""
    launch, adapter = options.launch(), options.adapter
    look = partial(_stamps, Path(place.stage.made.up))
    calls = Calls(work, question, look, launch.scrubbed, options.name)
    calls.recover()
    prompt = prompt_of(question, is_new=not place.session)
    root = work.around.root
    with _drafts(question, work, launch) as hear, place.started(launch) as process:
        terms = Terms(
            options.name, root.copy_of or root.path, place.session or None, adapter.auth, adapter.mode,
            work.seconds * (1 - _MARGIN),
            options.silence, options.decision_seconds,
            lambda opened: place.note(session=opened),
        )  # fmt: skip
        try:
            said = _conversation(terms, calls, hear, prompt, process)
        except LcpError as error:  # its words may have keys in them
            message = str(launch.scrubbed(error.failed.message))
            raise LcpError.of(replace(error.failed, message=message)) from None
        finally:
            with suppress(LcpError):  # the turn was taken away
                calls.close()
    return {
        "stop_reason": said.stop_reason,
        "message": launch.scrubbed(said.message),
        "input_tokens": said.input_tokens,
        "output_tokens": said.output_tokens,
        "prompt": prompt,
    }


def _conversation(
    terms: Terms, calls: Calls, hear: Callable[[str], object], prompt: str, process: AgentProcess
) -> Said:
    source, sink = (
        os.fdopen(os.dup(process.stdout), "rb"),
        os.fdopen(os.dup(process.stdin), "wb", buffering=0),
    )
    try:
        return Conversation(terms, calls, hear).converse(prompt, source, sink)
    except LcpError as error:
        said = shortened(process.stderr().strip()[-500:], 500)
        if error.code is ErrorCode.PLANNER_FAILED and said:
            message = f"{error.failed.message}; it wrote to stderr: {said}"
            raise LcpError(error.code, message, error.failed.details, error.failed.advice) from error
        raise
    finally:
        source.close()
        sink.close()
        process.end_input()
        with suppress(LcpError):
            process.wait(_END_SECONDS)


def _reply(options: AcpPlanner, done: Mapping[str, JsonValue], left_out: list[str]) -> Reply:
    stop, message = str(done["stop_reason"]), str(done["message"])
    if stop not in {"end_turn", "refusal"}:
        fact = {
            "max_tokens": "it reached its limit of tokens",
            "max_turn_requests": "it reached its limit of requests",
        }
        raise LcpError(
            ErrorCode.PLANNER_FAILED,
            f"{options.name} did not finish: {fact.get(stop, f'it was {stop}')}",
            advice=GENERAL,
        )
    action: dict[str, JsonValue] = {"ok": True, "action": "mission_complete"}
    if stop == "refusal":
        action = {"ok": False, "action": "error", "error": shortened(message or "it refuses", _MOST_SUMMARY)}
    else:
        action["summary"] = (
            shortened(message, _MOST_SUMMARY) or f"{options.name} ended its turn without a word."
        )
    if left_out:
        action["commentary"] = f"Not kept of what it changed: {'; '.join(left_out)}"
    counted = [done.get(name) for name in ("input_tokens", "output_tokens")]
    tokens = [one if isinstance(one, int) else None for one in counted]
    record = CompletionRecord(
        model=options.model or options.name, mode="acp", input_tokens=tokens[0], output_tokens=tokens[1]
    )
    return Reply(
        json.dumps(action, ensure_ascii=False),
        str(done["prompt"]),
        tokens[0],
        tokens[1],
        completions=(record,),
    )


def _stamps(up: Path) -> dict[str, object]:
    """Files that differ in the stage, by path, each with what changes if it is written again."""
    found: dict[str, object] = {}
    for base, _, names in os.walk(up):
        for name in names:
            path = Path(base, name)
            with suppress(OSError):
                status = path.lstat()
                found[str(path.relative_to(up))] = (status.st_mtime_ns, status.st_size, status.st_ino)
        if len(found) > _MOST_LOOKED_AT:
            break
    found.pop(".git", None)
    return found


@contextmanager
def _drafts(question: Question, work: StageWork, launch: Launch) -> Iterator[Callable[[str], None]]:
    """Takes what the agent says as it arrives, and shows its end while the turn lasts."""
    drafts, key = work.instance.planner_environment.drafts, (question.mission_id, question.number)
    tail, due = "", time.monotonic() + _DRAFT_SECONDS
    withheld = max((len(one) for one in launch.keys.values()), default=0)

    def hear(said: str) -> None:
        nonlocal tail, due
        tail = (tail + said)[-2 * _MOST_SHOWN :]
        if drafts is not None and time.monotonic() >= due:
            due = time.monotonic() + _DRAFT_SECONDS
            shown = str(launch.scrubbed(tail))
            drafts.keep(*key, shown[: len(shown) - withheld][-_MOST_SHOWN:])

    try:
        yield hear
    finally:
        if drafts is not None:
            drafts.drop(*key)
