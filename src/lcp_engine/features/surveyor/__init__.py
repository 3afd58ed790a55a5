"""Describe a project, without a model."""

from __future__ import annotations

from lcp_engine.feature import Feature

FEATURE = Feature("surveyor", planners={"surveyor": "lcp_engine.features.surveyor.planner:Surveyor"})
