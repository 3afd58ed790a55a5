"""Memory: what is remembered of roots beyond one mission."""

from __future__ import annotations

from lcp_engine.features.memory.calls import Memory, MemoryEdit, Remembered
from lcp_engine.features.memory.entries import Entry
from lcp_engine.features.memory.remember import Imported
from lcp_engine.features.memory.worker import MemoryEffect

__all__ = [
    "Entry",
    "Imported",
    "Memory",
    "MemoryEdit",
    "MemoryEffect",
    "Remembered",
]
