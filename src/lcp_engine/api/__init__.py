"""The engine for programs."""

from __future__ import annotations

from lcp_engine.api.engine import Engine
from lcp_engine.api.read_reply import read_reply

__all__ = ["Engine", "read_reply"]
