"""Touch files here, or have it done elsewhere: the same steps under the same lock (R20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lcp_engine.errors import LcpError
from lcp_engine.sandbox.atomic_write import Glance, Target, locked, look_at
from lcp_engine.sandbox.lock_batch import Batch, locked_batch
from lcp_engine.sandbox.lock_many import Found, Place, locked_together
from lcp_engine.sandbox.remove_empty import remove_empty
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.try_lock import locked_if_free


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


@dataclass(frozen=True)
class BareHands:
    """How an undo, a rescue and a look touch files, one at a time; functions like those that are the defaults."""

    locked: Callable[[Root, str], AbstractContextManager[Target]] = locked
    look_at: Callable[[Root, str, int | None], Glance | None] = look_at
    locked_if_free: Callable[[Root, str], AbstractContextManager[Target | None]] = locked_if_free
    locked_together: Callable[[Sequence[Place]], AbstractContextManager[list[Found]]] = locked_together
    remove_empty: Callable[[Root, Iterable[str]], None] = remove_empty


BARE = BareHands()
"""In this thread."""
