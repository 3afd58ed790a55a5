"""The planner without a model: it describes a project in SURVEY.md."""

from __future__ import annotations

from lcp_engine.planners.surveyor.planner import Surveyor

__all__ = ["Surveyor"]
