"""Turn whatever a worker returns or raises into a value that can be stored (R15, R19)."""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel

from lcp_engine.core.reasons import Reason
from lcp_engine.errors import GENERAL, Code, ErrorCode, Failed, LcpError
from lcp_engine.feature import find_code
from lcp_engine.store.db.json_text import JsonObject, storable, to_json
from lcp_engine.store.people import Sight
from lcp_engine.workers.base import Answered, Applied, FileEffect, Hold, Kept, Outcome, Stored, Worker

MAX_RESULT = 256 * 1024 * 1024
"""Characters; a database field holds about 10^9 bytes."""
MAX_MESSAGE = 2000
MAX_DEPTH = 100
"""Nesting of error details: they are copied recursively when an error is shown."""
MAX_DIGITS = 4300
"""Of an integer; Python parses no longer ones."""
_TOO_MUCH = 10**MAX_DIGITS


@dataclass(frozen=True)
class HeldRequest:
    """A job that a job which succeeds leaves for a person to approve; `key` of its result names that, if there is one.

    `sight` is what it would change, as it was when it was requested.
    """

    kind: str
    name: str
    params: JsonObject
    max_attempts: int
    reason: Reason
    sight: Sight
    key: str | None = None


@dataclass(frozen=True)
class KeptForPerson(Kept):
    """The result of a program whose changes wait for a person."""

    request: HeldRequest | None = None


@dataclass(frozen=True)
class Succeeded:
    """A result in JSON; `written_bytes` is set if the job changed a file, `stderr` if its program wrote there."""

    result: str
    written_bytes: int | None = None
    stderr: str | None = None
    stored: Stored | None = None
    """An outcome of which more is stored than the result."""
    request: HeldRequest | None = None
    """Stored in the transaction that settles the job."""


def outcome_of(
    worker: Worker[BaseModel], who: str, call: Callable[[], Outcome | Kept | Answered]
) -> Succeeded | FileEffect | Hold | Failed:
    """The outcome of a call of `worker`, whatever it returns or raises; `who` names the job in messages."""
    try:
        return _checked(worker, who, call())
    except LcpError as error:
        return storable_failure(who, error.failed)
    except (
        BaseException
    ) as error:  # a plug-in may raise anything, SystemExit too, and must not end the runner
        # In the main thread it is Ctrl-C.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return failure_from_exception(who, error)


_WRONG_RESULT = "Correct the worker: what it returns has to be its result model."


def storable_failure(who: str, failed: Failed, otherwise: ErrorCode = ErrorCode.WORKER_FAILED) -> Failed:
    """`failed` in a form that can be stored: a message of one line, and `otherwise` if its code is not stated."""
    code: object = failed.code  # a plug-in is not type-checked
    if not isinstance(code, Code) or find_code(code) is None:
        said = f"it failed with code {code!r}, which is not an ErrorCode: {failed.message}"
        advice = "Correct the plug-in: the code of a Failed has to be an ErrorCode, or a feature's."
        return Failed(otherwise, one_line(f"{who}: {said}"), advice=advice)
    message = one_line(str(failed.message))
    try:
        _check_details(failed.details)
    except (TypeError, ValueError, RecursionError) as error:
        said = f"{message} (its details cannot be stored: {error})"
        return Failed(failed.code, one_line(said), advice=failed.advice)
    if message == failed.message:
        return failed
    return Failed(failed.code, message, {"message": str(failed.message), **failed.details}, failed.advice)


def failure_from_exception(
    who: str, error: BaseException, *, by: str = "its worker", code: ErrorCode = ErrorCode.WORKER_FAILED
) -> Failed:
    """An unexpected exception as a value."""
    trace = traceback.format_exception(error)[-20:]
    # Not str(error): that may raise, too.
    said = "".join(traceback.format_exception_only(error))
    return Failed(code, one_line(f"{who}: {by} raised {said}"), {"traceback": "".join(trace)}, advice=GENERAL)


def one_line(text: str) -> str:
    """`text` as an error message: lines joined, characters that no database stores escaped."""
    line = storable(" ".join(part.strip() for part in text.splitlines() if part.strip()))
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…"


def _checked(worker: Worker[BaseModel], who: str, outcome: object) -> Succeeded | FileEffect | Hold | Failed:
    match outcome:
        case Failed():
            return storable_failure(who, outcome)
        case Hold():
            return Hold(one_line(str(outcome.reason)))
        case FileEffect():

            def result(applied: Applied) -> BaseModel:
                made: object = outcome.result(applied)
                _stored(worker, who, made)
                assert isinstance(made, BaseModel)
                return made

            return replace(outcome, result=result)
        case Answered(answer, stderr):
            checked = _checked(worker, who, answer)
            return replace(checked, stderr=stderr or None) if isinstance(checked, Succeeded) else checked
        case Stored():
            return Succeeded(_stored(worker, who, outcome.result), stored=outcome)
        case Kept(made, _, written_bytes):
            request = outcome.request if isinstance(outcome, KeptForPerson) else None
            return Succeeded(_stored(worker, who, made), written_bytes, request=request)
        case _:
            return Succeeded(_stored(worker, who, outcome))


def _stored(worker: Worker[BaseModel], who: str, result: object) -> str:
    """A result in JSON. Raises `WORKER_FAILED`, `TOO_LARGE`."""
    if not isinstance(result, worker.result):
        message = (
            f"its worker returned {type(result).__name__}, a model of {worker.result.__name__} is expected"
        )
        raise LcpError(ErrorCode.WORKER_FAILED, f"{who}: {message}", advice=_WRONG_RESULT)
    try:
        text = _in_json(result)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{who}: the result of its worker is not a JSON object of the model {worker.result.__name__}: {error}"
        raise LcpError(ErrorCode.WORKER_FAILED, message, advice=_WRONG_RESULT) from error
    if len(text) > MAX_RESULT:
        message = f"{who}: its result has {len(text)} characters, at most {MAX_RESULT} are stored"
        raise LcpError(ErrorCode.TOO_LARGE, message, advice="Return less, or write it to a file.")
    return text


def _in_json(result: BaseModel) -> str:
    dumped: object = result.model_dump(mode="json", warnings="error")
    if not isinstance(dumped, dict):
        raise TypeError(f"it is a {type(dumped).__name__}")
    text = to_json(dumped)
    # Pydantic turns some NaN into null. Few results contain these words, so few are checked value by value.
    if "null" in text or "NaN" in text or "Infinity" in text or _has_long_digits(text):
        _check_numbers(result.model_dump())
    return text


def _has_long_digits(text: str) -> bool:
    """True if it may contain a number that is too long: that would fill one of these parts."""
    part = MAX_DIGITS // 2
    return any(text[at : at + part].isdigit() for at in range(0, len(text), part))


def _check_numbers(value: object, depth: int | None = None) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if isinstance(value, int) and not -_TOO_MUCH < value < _TOO_MUCH:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    if depth == 0:
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
    below = None if depth is None else depth - 1
    if isinstance(value, Mapping):
        for part in value.values():
            _check_numbers(part, below)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _check_numbers(part, below)


def _check_details(details: object) -> None:
    if not isinstance(details, Mapping):
        raise TypeError(f"a mapping is expected, not {type(details).__name__}")
    if details:
        _check_numbers(details, MAX_DEPTH)
        to_json(details)
