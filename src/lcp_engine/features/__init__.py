"""The features, each in a folder: deleting that removes it."""

from __future__ import annotations

KEYS = {
    "approvers": "approvers",
    "backup": "upkeep",
    "check": "upkeep",
    "commands_network": "programs",
    "commands_read": "programs",
    "commands_wall": "programs",
    "fallback_plans": "plans",
    "git": "git",
    "instructions": "instructions",
    "links": "approvers",
    "mcp": "mcp_server",
    "memory": "memory",
    "on_wait": "notices",
    "plan": "plans",
    "retention": "upkeep",
    "serve": "http_api",
    "stage": "stages",
    "webhook": "notices",
}
"""Feature of each key of a file that one of this package adds, to be named where it is not there."""

DECISIVE = ("plan", "stage")
"""Those of them without whose feature a stored mission that states one is not carried out at all."""
