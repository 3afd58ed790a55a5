"""Merges of what a mission did in its stage."""

from __future__ import annotations

from lcp_engine.features.stages.merge_worker import MergeParams, params_taking

__all__ = [
    "MergeParams",
    "params_taking",
]
