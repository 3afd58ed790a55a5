"""Touch files here, or have it done elsewhere: the same steps under the same lock (R20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lcp_engine.errors import LcpError
from lcp_engine.sandbox.batch import Batch, locked_batch
from lcp_engine.sandbox.replace import Glance, Target, locked, look_at
from lcp_engine.sandbox.root import Root


class Interrupted(LcpError):
    """It is not known what became of a step: whoever takes the lock next finds out, as after a crash."""


@dataclass(frozen=True)
class Hands:
    """How files are locked and looked at; functions like `locked`, `locked_batch` and `look_at`."""

    locked: Callable[[Root, str], AbstractContextManager[Target]] = locked
    locked_batch: Callable[[Root, Sequence[str]], AbstractContextManager[Batch]] = locked_batch
    look_at: Callable[[Root, str, int | None], Glance | None] = look_at


HERE = Hands()
"""In this process."""
