"""Facts about a mission that its report states."""

from __future__ import annotations

from lcp_engine.features.reports.facts import (
    Course,
    Excerpt,
    Facts,
    FileFact,
    JobFact,
    TurnFact,
    UndoneFact,
)

__all__ = [
    "Course",
    "Excerpt",
    "Facts",
    "FileFact",
    "JobFact",
    "TurnFact",
    "UndoneFact",
]
