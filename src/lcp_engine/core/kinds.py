"""The kinds of jobs that the engine itself gives a meaning, and what a kind can be for."""

from __future__ import annotations

from enum import StrEnum

TURN = "agent_plan"
"""A question to the planner."""
QUESTION = "ask_user"
"""A question to a person (R13)."""
WRITE = "write_file"
"""What the action of the same name has done."""


class KindRole(StrEnum):
    """What a kind is for, as a planner sees it."""

    LISTS = "lists"
    """It lists files: the list `files` of its result has paths relative to the directory `root` of its params."""
    READS = "reads"
    """It reads the file that its params name, from line `offset` on; `total` of its result counts all lines."""
    WRITES = "writes"
    """It writes the file that its params name."""
    EDITS = "edits"
    """It changes the file that its params name, which has to be there."""
    DELETES = "deletes"
    """It deletes the file that its params name."""
    FINDS = "finds"
    """It finds lines in the files of the root."""
    SEARCHES = "searches"
    RUNS = "runs"
    ASKS = "asks"
    """It asks a person."""
    PLANS = "plans"
    """It asks a planner."""
    OTHER = "other"


CHANGES = frozenset({KindRole.WRITES, KindRole.EDITS, KindRole.DELETES})
ON_FILES = frozenset({KindRole.LISTS, KindRole.READS, *CHANGES})
"""What a planner learns from these, it learns about files of the root."""
