"""The engine for programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.api.read_reply import read_reply

__all__ = ["Engine", "read_reply"]

_MODULES = {"Engine": "engine", "read_reply": "read_reply"}


def __getattr__(name: str) -> object:
    """Import a name when it is first used: reading history needs neither."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
