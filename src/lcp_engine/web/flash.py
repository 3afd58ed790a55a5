"""Name what a page says after a change: the address carries the name, never the words."""

from __future__ import annotations

from collections.abc import Mapping

NOTES: Mapping[str, str] = {
    "approved": "Approved; a runner executes it.",
    "approved_before": "It was approved before; nothing changed.",
    "rejected": "Rejected; the planner reads the reason.",
    "rejected_before": "It was rejected before; nothing changed.",
    "answered": "Answered; a runner goes on with the mission.",
    "answered_before": "It was answered so before; nothing changed.",
    "said": "Said; the planner reads it in its next turn.",
    "undone": "Undone. This job did it, and can be undone itself.",
    "cancelled": "Cancelled. What is written stays written.",
    "cancelled_before": "It was cancelled before; nothing changed.",
    "resumed": "Resumed; the planner gets another turn.",
    "retried": "Queued again.",
    "retried_held": "Held again: nobody had approved it.",
    "launched": "Launched.",
}
