"""Run one job at once, outside any mission."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never
from uuid import uuid4

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import kind_named
from lcp_engine.core.policy import Policy
from lcp_engine.engine.outcome import Succeeded, outcome_of
from lcp_engine.errors import AgentError, ErrorCode, Failed, LcpError, system_advice
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.file_access import HERE, FileAccess
from lcp_engine.sandbox.locks import each
from lcp_engine.sandbox.root import Root, unfit_root
from lcp_engine.sandbox.system.own_places import beneath, own_places
from lcp_engine.store.db.json_text import from_json
from lcp_engine.workers.base import (
    Caps,
    Context,
    FileEffect,
    Hold,
    Kept,
    Outcome,
    Worker,
    Workers,
    applied_of,
)
from lcp_engine.workers.read_file import WORKER as READ_FILE


@dataclass(frozen=True)
class JobResult:
    """The outcome of one job: a result, or an error."""

    ok: bool
    result: dict[str, JsonValue] | None = None
    error: AgentError | None = None


def run_job(
    kind: str,
    params: Mapping[str, JsonValue],
    root: str | os.PathLike[str] | Root,
    *,
    workers: Workers | None = None,
    policy: Policy | None = None,
    aliases: tuple[str, ...] = (),
    caps: Caps | None = None,
) -> JobResult:
    """Executes one job of `kind` in `root` now. What policy would hold runs, what it denies is denied.

    Never raises for what a job may meet: every trouble is the result's `error`.
    """
    try:
        worker = _worker(kind, workers)
        with _opened(root) as opened:
            judge = policy or Policy(engine_paths=beneath(own_places(), opened.path))
            rules = judge.for_kind(worker.named, has_effects=worker.has_effects, writes=worker.writes)
            context = Context(opened, aliases, rules, caps or Caps(), approved=True)
            outcome = outcome_of(worker, kind, lambda: _execute(worker, params, context, judge))
            if isinstance(outcome, FileEffect):
                effect = outcome
                outcome = outcome_of(worker, kind, lambda: _apply(effect, opened, context.caps))
    except LcpError as error:
        outcome = error.failed
    return _answer(kind, outcome)


def _execute(worker: Worker[BaseModel], params: object, context: Context, policy: Policy) -> Outcome | Kept:
    read = _read_params(worker, params)
    if worker.execution is None:
        return worker.execute(read, context)
    from lcp_engine.runner.execution import execution_at  # slow to load

    execution = execution_at(worker.execution.place)
    return execution.execute_once(worker, read, context, READ_FILE.allowed_paths(policy))


def _opened(root: object) -> AbstractContextManager[Root]:
    if isinstance(root, Root):
        return nullcontext(root)
    if isinstance(root, str | os.PathLike) and "\0" not in os.fsdecode(root):
        if (unfit := unfit_root(os.fsdecode(root), os.path.realpath(os.fsdecode(root)))) is not None:
            raise LcpError.of(unfit)
        return Root(root)
    raise LcpError(ErrorCode.INVALID_ARGUMENT, f"root is {root!r}; the path of a directory is expected")


def _answer(kind: str, outcome: Succeeded | FileEffect | Hold | Failed) -> JobResult:
    match outcome:
        case Succeeded(result):
            return JobResult(True, result=from_json(result))
        case Failed() as failed:
            return _failed(failed)
        case Hold(reason):
            message = f"{kind} is held for a person: {reason}"
            advice = "Request it in a mission: there a person can approve it."
            return _failed(Failed(ErrorCode.NOT_ALLOWED, message, advice=advice))
        case FileEffect(path):
            return _failed(
                Failed(
                    ErrorCode.WORKER_FAILED,
                    f"{kind}: the effect on {path!r} returned another effect",
                    advice="Correct the worker: what its effect returns has to be its result model.",
                )
            )
        case _:
            assert_never(outcome)


def _worker(kind: str, workers: Workers | None) -> Worker[BaseModel]:
    # The models of all kinds take a moment to build.
    from lcp_engine.workers.registry import BUILT_IN, find_workers

    if workers is None:
        # Looking at what is installed is slow, and no plug-in replaces a built-in kind.
        workers = BUILT_IN if kind in BUILT_IN else find_workers()
    kind = kind_named(kind, workers)
    if kind not in workers:
        raise LcpError(
            ErrorCode.NO_WORKER,
            f"no worker executes kind {kind!r}, there is {', '.join(sorted(workers))}",
            advice="Use one of these kinds, or install a worker for it.",
        )
    return workers[kind]


def _read_params(worker: Worker[BaseModel], params: object) -> BaseModel:
    if not isinstance(params, Mapping):
        message = f"params of {worker.kind} are a {type(params).__name__}; a mapping is expected"
        raise LcpError(ErrorCode.INVALID_PARAMS, message)
    return worker.read(params)


def _apply(effect: FileEffect, root: Root, caps: Caps) -> BaseModel | Failed:
    try:
        return apply_effect(effect, root, caps)
    except LcpError as error:
        return error.failed
    except OSError as error:
        return Failed(
            ErrorCode.FILE_SYSTEM,
            f"{effect.path!r}: {error.strerror or error}",
            {"errno": error.errno},
            system_advice(error),
        )


def apply_effect(effect: FileEffect, root: Root, caps: Caps, files: FileAccess = HERE) -> BaseModel:
    """Apply an effect at once, without a journal; the result of its job. Raises `LcpError` and OSError."""
    effect.check_names(root)
    with files.lock([(root, path) for path in effect.paths], together=len(effect.paths)) as locked:
        file, *new = each(locked)
        before = file.read(caps.write_bytes)
        content = None if before is None else before.data
        data = effect.compose(content, caps.write_bytes, is_there=before is not None)
        result = effect.result(applied_of(before, data, effect.encodings(content, data)))
        if effect.is_done(is_there=before is not None):
            return result
        for moved in new:
            effect.check_free(is_there=moved.read_within(0) is not None)
            file.check_removable()
            moved.replace(data, temporary_name(), None if before is None else before.mode)
        file.replace(None if new else data, temporary_name())
        return result


def _failed(failed: Failed) -> JobResult:
    error = AgentError.of(
        failed,
        error_id=f"err-{uuid4()}",
        request_id=f"req-{uuid4()}",
        timestamp=datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    return JobResult(False, error=error)
