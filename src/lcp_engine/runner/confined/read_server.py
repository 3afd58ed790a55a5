"""Serve a runner in a confined process: execute workers, which read and return what they would write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from lcp_engine.engine.outcome import Succeeded, outcome_of
from lcp_engine.errors import Failed, LcpError
from lcp_engine.runner.confined.channel import Head, Line, number_of, told
from lcp_engine.runner.confined.setup import SETUPS
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Applied, Context, FileEffect, Hold, Outcome, Worker

_MAX_SETUPS = 256


class Reader:
    """Executes the jobs of one root. Every line has a thread of its own; all share what they were told once."""

    def __init__(self, root: Root, workers: Mapping[str, Worker[BaseModel]]) -> None:
        self._root = root
        self._workers = workers
        self._makers: dict[tuple[str, str], Callable[[bool], Context]] = {}

    def serve(self, line: Line) -> None:
        """Answer until the other side hangs up, with `Broken`."""
        effect: FileEffect | None = None
        while True:
            head, body = line.receive()
            if head["do"] == "result" and effect is not None:
                head, body = self._result(effect, head)
                line.send(head, body)
                continue
            effect = None
            kind = str(head["kind"])
            if "setup" in head:
                if len(self._makers) >= _MAX_SETUPS:
                    self._makers.clear()
                setup = SETUPS.validate_python(head["setup"])
                self._makers[str(head["key"]), kind] = setup.context_maker(self._root, self._workers[kind])
            make = self._makers.get((str(head["key"]), kind))
            if make is None:
                line.send({"is": "asks"})
                continue
            work = _Work(self._workers[kind], str(head["who"]), make(bool(head["approved"])), line)
            outcome, params = work.do(bytes(body))
            if isinstance(outcome, FileEffect):
                effect = outcome
                line.send(*_wish(effect, params))
            else:
                line.send(*_answer(outcome))

    def _result(self, effect: FileEffect, head: Head) -> tuple[Head, bytes]:
        before = head.get("before")
        applied = Applied(
            None if before is None else str(before), str(head["after"]), number_of(head, "size")
        )
        return {"is": "done"}, effect.result(applied).model_dump_json().encode()


@dataclass(frozen=True)
class _Work:
    worker: Worker[BaseModel]
    who: str
    context: Context
    line: Line

    def do(self, text: bytes) -> tuple[Succeeded | FileEffect | Hold | Failed, BaseModel | None]:
        try:
            params = self.worker.read(json.loads(text), self.who)
        except LcpError as error:
            return error.failed, None
        return outcome_of(self.worker, self.who, lambda: self._execute(params)), params

    def _execute(self, params: BaseModel) -> Outcome:
        try:
            return self.worker.execute(params, self.context)
        except MemoryError:
            # Whatever else is under way here may miss memory now; who asked for it starts anew elsewhere.
            self.line.send({"is": "memory"})
            os._exit(1)


def _answer(outcome: Succeeded | Hold | Failed) -> tuple[Head, bytes]:
    match outcome:
        case Succeeded(result):
            return {"is": "done"}, result.encode()
        case Hold(reason):
            return {"is": "hold", "reason": reason}, b""
        case Failed():
            return told(outcome), b""


def _wish(effect: FileEffect, params: BaseModel | None) -> tuple[Head, bytes]:
    """An effect; where its content is a param, the other side has it already."""
    head: Head = {"is": "effect", "path": effect.path, "mode": effect.mode}
    for name in type(params).model_fields if params is not None else ():
        if getattr(params, name) is effect.content:
            return {**head, "param": name}, b""
    return head, effect.content.encode()
