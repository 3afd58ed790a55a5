"""Jobs that wait for a person: what each would change, what was shown of it, and what may be decided."""

from __future__ import annotations

from lcp_engine.api.inbox import HeldJob, Inbox, Review
from lcp_engine.changes.show import FileNow, Forecast, Look
from lcp_engine.changes.unified_diff import Contents, Diff, Gap, Hunk
from lcp_engine.core.inbox import Act, Awaits
from lcp_engine.core.job_states import Need
from lcp_engine.core.paths.change_history import DiskState
from lcp_engine.core.reasons import Reason, ReasonCode
from lcp_engine.features.decisions.calls import Decision, Decisions
from lcp_engine.runner.undo import Undo
from lcp_engine.store.people import Sight, Unseen

__all__ = [
    "Act",
    "Awaits",
    "Contents",
    "Decision",
    "Decisions",
    "Diff",
    "DiskState",
    "FileNow",
    "Forecast",
    "Gap",
    "HeldJob",
    "Hunk",
    "Inbox",
    "Look",
    "Need",
    "Reason",
    "ReasonCode",
    "Review",
    "Sight",
    "Undo",
    "Unseen",
]
