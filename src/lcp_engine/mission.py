"""Parts of a mission's specification."""

from __future__ import annotations

from lcp_engine.core.limits.permits import RateLimit
from lcp_engine.core.mission.accept import AcceptCheck, FileMatch, FileQuotes
from lcp_engine.core.mission.spec import (
    Background,
    Commands,
    KindSettings,
    ResultSpec,
    Retry,
)
from lcp_engine.core.programs.network import NetworkUse
from lcp_engine.features.memory.mission_keys import MemoryUse

__all__ = [
    "AcceptCheck",
    "Background",
    "Commands",
    "FileMatch",
    "FileQuotes",
    "KindSettings",
    "MemoryUse",
    "NetworkUse",
    "RateLimit",
    "ResultSpec",
    "Retry",
]
