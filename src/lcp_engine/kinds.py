"""Kinds of jobs: further parts of workers, of programs, and of what both are given."""

from __future__ import annotations

from lcp_engine.core.kinds import KindRole
from lcp_engine.sandbox.paths import Names, Place
from lcp_engine.sandbox.root import Opened, Root
from lcp_engine.store.db.transaction import Connection, Cursor
from lcp_engine.workers.base import (
    Applied,
    EarlierJob,
    ExecutedBy,
    Execution,
    FileEffect,
    Permission,
    ProcessNeeds,
    Stored,
)
from lcp_engine.workers.registry import find_workers

__all__ = [
    "Applied",
    "Connection",
    "Cursor",
    "EarlierJob",
    "ExecutedBy",
    "Execution",
    "FileEffect",
    "KindRole",
    "Names",
    "Opened",
    "Permission",
    "Place",
    "ProcessNeeds",
    "Root",
    "Stored",
    "find_workers",
]
