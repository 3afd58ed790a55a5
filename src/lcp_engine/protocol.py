"""Actions of the protocol, and what is wrong with a reply."""

from __future__ import annotations

from lcp_engine.core.protocol.actions import (
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    MissionComplete,
    Problem,
    WriteFile,
)

__all__ = [
    "AnalysisResult",
    "CreateFollowupJobs",
    "ErrorAction",
    "JobSpec",
    "MissionComplete",
    "Problem",
    "WriteFile",
]
