"""Offer the engine to programs (CONTRACT.md, Python)."""

from __future__ import annotations

from lcp_engine.api.engine import Engine
from lcp_engine.api.read_reply import read_reply

__all__ = ["Engine", "read_reply"]
