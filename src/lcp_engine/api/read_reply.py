"""Read a reply outside any mission (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.protocol.read_reply import reader_of
from lcp_engine.workers.registry import BUILT_IN


def read_reply(
    text: str, dialect: str = "lcp", kinds: Mapping[str, type[BaseModel]] | None = None
) -> Action | Malformed:
    """The action that a reply states, or every reason why it is not valid (R1 to R3). Pure; no text raises.

    `dialect` is `lcp` or `universal`, which is translated. `kinds` maps kinds of jobs to the models of their params; by
    default the built-in ones. Raises `INVALID_ARGUMENT` for an unknown dialect.
    """
    known = {kind: worker.params for kind, worker in BUILT_IN.items()} if kinds is None else kinds
    return reader_of(dialect)(text, known)
