"""Execute the jobs of one kind in Python in a process of its own, as a program (`external.py`)."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine.core.policy import Policy
from lcp_engine.engine.outcome import Succeeded, outcome_of
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.features.programs.servers.external_worker import program_of
from lcp_engine.features.programs.servers.load_files import load_workers
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps, Context, FileEffect, Hold, Worker
from lcp_engine.workers.registry import find_registered


def main(origin: str, kind: str) -> None:
    """Answer each line of stdin. `origin` is the file (`file:PATH`) or the module (`module:NAME`) of the kind."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the kind prints is for people
    how, _, place = origin.partition(":")
    if how == "file":
        load_workers(Path(place))
    else:
        import_module(place)
    worker = find_registered(kind)
    program = program_of(worker)
    root = Root(str(Path.cwd())) if program is not None and program.needs.root else None
    judge = Policy().for_kind(worker.named, has_effects=worker.has_effects, writes=False)
    context = Context(root, (), judge, Caps(), approved=True)
    for line in sys.stdin:
        answers.write(f"{_answer(worker, context, line)}\n")
        answers.flush()


def _answer(worker: Worker[BaseModel], context: Context, line: str) -> str:
    job = json.loads(line)
    of_job = replace(context, job_id=job["id"] or None, attempt=job["attempt"])
    outcome = outcome_of(worker, worker.kind, lambda: worker.execute(worker.read(job["params"]), of_job))
    if isinstance(outcome, Succeeded):
        return f'{{"id":{job["id"]},"result":{outcome.result}}}'
    return json.dumps({"id": job["id"], "error": _error(outcome)})


def _error(outcome: FileEffect | Hold | Failed) -> dict[str, JsonValue]:
    match outcome:
        case Failed():
            details: JsonValue = json.loads(json.dumps(outcome.details, default=str))
            more = details if isinstance(details, dict) else {}
            return {**more, "message": outcome.message, "code": str(outcome.code)}
        case Hold(reason):
            return {"message": f"it is held: {reason}", "code": str(ErrorCode.NOT_ALLOWED)}
        case FileEffect(path):
            fact = f"it returned an effect on {path!r}: only kinds without `needs` can change the root"
            return {"message": fact, "code": str(ErrorCode.WORKER_FAILED)}
