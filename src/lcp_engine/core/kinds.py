"""The kinds of jobs that the engine itself gives a meaning."""

from __future__ import annotations

TURN = "agent_plan"
"""A question to the planner."""
QUESTION = "ask_user"
"""A question to a person (R13)."""
