"""State how jobs of the engine's own kinds, which a person approves, are shown and carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from pydantic import JsonValue

from lcp_engine.changes.set_view import SetView
from lcp_engine.changes.unified_diff import Contents
from lcp_engine.core.policy import Policy
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import Failed
from lcp_engine.feature import installed, load
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.sandbox.root import Root
from lcp_engine.store.db.database import Database
from lcp_engine.store.row_types import ChangeRow, JobRow
from lcp_engine.workers.base import Hold

Params: TypeAlias = Mapping[str, JsonValue]


@dataclass(frozen=True)
class LeasedJob:
    """A job for a runner to carry out, with what it needs: the root and the policy are those of its mission."""

    row: JobRow
    instance: Instance
    threads: ConfinedThreads
    open_root: Callable[[], Root]
    policy: Callable[[], Policy]


@dataclass(frozen=True, kw_only=True)
class OwnKind:
    """A kind of jobs of the engine. What `view` and `text` raise of `LcpError` is shown to the person.

    `view` shows what a job of a mission with these params would do now; `path` is what an approval names as its file.
    `compared` finds both contents that the diff of one of these files compares, None for any other file.
    `text` is for kinds of which a person takes parts: the text that a file would get, to be edited.
    `content` finds the content that a change of this mode leads to, None if it removes the file; without it, it is
    what the database or the change itself keeps.
    """

    execute: Callable[[LeasedJob], Succeeded | Failed | Hold]
    view: Callable[[Instance, int, Params], SetView]
    path: str
    compared: Callable[[Instance, int, str, Params], Contents | None]
    text: Callable[[Instance, int, str, Params], str] | None = None
    content: Callable[[Database, ChangeRow], bytes | None] | None = None


@cache
def own_kind(kind: str) -> OwnKind | None:
    """None for kinds that a worker executes."""
    kinds = installed().engine_kinds
    return load(kinds[kind][1], OwnKind) if kind in kinds else None
