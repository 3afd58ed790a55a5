"""Log in JSON, a line for each event and message, with the ids of the trace and span that tell of the same."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from lcp_engine.api.engine import Engine
from lcp_engine.clock import iso, system_clock
from lcp_engine.core.json_values import JsonObject, JsonValue, object_in
from lcp_engine.features.models.endpoints.scrub import without_secrets
from lcp_engine.features.telemetry.spans import span_id, trace_id
from lcp_engine.features.telemetry.store import read_attempts, read_uids

TOLD = ("code", "outcome", "by", "limit", "question", "action", "turn")
"""What of an event's data is told: codes and numbers, no words of planners and people."""
MOST_UIDS = 10_000
MOST_OF_TRACEBACK = 16_384
"""Characters of a traceback that are told, up to its end."""


@contextmanager
def logging_json(engine: Engine) -> Iterator[JsonLog]:
    """Log events and messages, and what the engine logs by itself, on stderr while it is open."""
    logger, handler = logging.getLogger(), _Handler()
    logger.addHandler(handler)
    try:
        yield JsonLog(engine)
    finally:
        logger.removeHandler(handler)


class JsonLog:
    """Shows events as they happen, a line of JSON each (a `Progress` of the command line)."""

    def __init__(self, engine: Engine) -> None:
        self._instance = engine.instance
        self._uids: dict[int, str] = {}

    def show(self, events: Sequence[JsonObject]) -> None:
        missions = {one["mission_id"] for one in events if isinstance(one["mission_id"], int)}
        jobs = {one["job_id"] for one in events if isinstance(one["job_id"], int)}
        if len(self._uids) > MOST_UIDS:
            self._uids.clear()
        if unknown := missions - self._uids.keys():
            self._uids.update(self._instance.read(read_uids, unknown))
        attempts = self._instance.read(read_attempts, jobs) if jobs else {}
        for event in events:
            _write(self._line(event, attempts))

    def note(self, text: str) -> None:
        _write({"time": iso(system_clock()), "level": "info", "message": text})

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def _line(self, event: JsonObject, attempts: Mapping[int, tuple[str, int]]) -> dict[str, JsonValue]:
        mission, job = event["mission_id"], event["job_id"]
        line: dict[str, JsonValue] = {
            "time": event["at"], "level": "info", "message": event["event"], "mission": mission,
        }  # fmt: skip
        about: tuple[int, int] | tuple[()] = ()
        if isinstance(job, int) and job in attempts:
            kind, attempt = attempts[job]
            line |= {"job": job, "kind": kind, "attempt": attempt}
            about = (job, attempt) if attempt else ()
        data = object_in(event["data"])
        line |= {name: data[name] for name in TOLD if isinstance(data.get(name), str | int)}
        if isinstance(mission, int) and (uid := self._uids.get(mission)) is not None:
            line |= {"trace_id": f"{trace_id(uid):032x}", "span_id": f"{span_id(uid, *about):016x}"}
        return line


class _Handler(logging.Handler):
    """Writes what is logged by others."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 -- args are of any code; a bad line must not end what logs it
            message = str(record.msg)
        line: dict[str, JsonValue] = {
            "time": iso(int(record.created * 1e6)), "level": record.levelname.lower(), "logger": record.name,
            "message": message,
        }  # fmt: skip
        if record.exc_info and record.exc_info[0] is not None:
            told = "".join(traceback.format_exception(*record.exc_info))
            line["exception"] = without_secrets(told, os.environ)[-MOST_OF_TRACEBACK:]
        _write(line)


def _write(line: Mapping[str, JsonValue]) -> None:
    with suppress(OSError, ValueError):  # a closed stderr ends no work
        sys.stderr.write(f"{json.dumps(line)}\n")
        sys.stderr.flush()
