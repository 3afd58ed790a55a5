"""Untrusted workers: one with a path bug, others that hang, die or take all memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from lcp_engine.workers.base import Context, Outcome, Worker


class Params(BaseModel):
    """A path; with `text` it is written, else read."""

    path: str = ""
    text: str | None = None


class Found(BaseModel):
    """What was there."""

    ok: Literal[True] = True
    text: str


def trust(params: Params, context: Context) -> Found:
    """Opens whatever the name leads to, once it begins as it should."""
    path = os.path.join(context.root.path, params.path)  # noqa: PTH118 -- as people write it
    if not path.startswith(context.root.path):
        raise PermissionError(path)
    if params.text is not None:
        Path(path).write_text(params.text, encoding="utf-8")
    return Found(text=Path(path).read_text(encoding="utf-8"))


def eat(params: Params, context: Context) -> Found:
    """Takes far more memory than it is given."""
    eaten = [bytearray(64 * 1024 * 1024) for _ in range(1024)]
    raise AssertionError(len(eaten))


def hang(params: Params, context: Context) -> Found:
    """Comes back long after its time."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        os.sched_yield()
    os._exit(8)


def die(params: Params, context: Context) -> Found:
    """Ends the process it is in."""
    os._exit(7)


def give_up(params: Params, context: Context) -> Outcome:
    """Raises what nobody expects."""
    raise SystemExit(3)


def obey(params: Params, context: Context) -> Outcome:
    """Hangs or dies where its path says so."""
    match params.path:
        case "hang":
            return hang(params, context)
        case "die":
            return die(params, context)
    return trust(params, context)


OBEYS = Worker(kind="obeys", params=Params, result=Found, execute=obey, timeout=3)
TRUSTS = Worker(kind="trusts", params=Params, result=Found, execute=trust, timeout=20)
EATS = Worker(kind="eats", params=Params, result=Found, execute=eat, timeout=20)
HANGS = Worker(kind="hangs", params=Params, result=Found, execute=hang, timeout=0.2)
DIES = Worker(kind="dies", params=Params, result=Found, execute=die, timeout=20)
GIVES_UP = Worker(kind="gives_up", params=Params, result=Found, execute=give_up, timeout=20)
