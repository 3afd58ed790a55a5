"""Parts of a policy, and what it says about a job."""

from __future__ import annotations

from lcp_engine.core.policy import (
    Approvals,
    Consent,
    Explained,
    KindNames,
    Looked,
    PathPolicy,
    Ruling,
    Verdict,
)

__all__ = [
    "Approvals",
    "Consent",
    "Explained",
    "KindNames",
    "Looked",
    "PathPolicy",
    "Ruling",
    "Verdict",
]
