"""The features, each in a folder: deleting that removes it."""

from __future__ import annotations

KEYS = {
    "approvers": "approvers",
    "backup": "upkeep",
    "check": "upkeep",
    "links": "approvers",
    "on_wait": "notices",
    "retention": "upkeep",
    "webhook": "notices",
}
"""Feature of each key of a file that one of this package adds, to be named where it is not there."""
