"""Evaluations: missions whose results are known, and what planners made of them."""

from __future__ import annotations

from lcp_engine.features.evaluation.comparison import FigureDifference, compare_scores
from lcp_engine.features.evaluation.evaluation import Evaluation, FinishedTrial, Trial
from lcp_engine.features.evaluation.scores import CheckResult, Score, TrialRecord
from lcp_engine.features.evaluation.suite import Expectation, Suite, SuiteMission
from lcp_engine.features.evaluation.summary import PlannerSummary, Share, summarize_scores

__all__ = [
    "CheckResult",
    "Evaluation",
    "Expectation",
    "FigureDifference",
    "FinishedTrial",
    "PlannerSummary",
    "Score",
    "Share",
    "Suite",
    "SuiteMission",
    "Trial",
    "TrialRecord",
    "compare_scores",
    "summarize_scores",
]
