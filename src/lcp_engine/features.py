"""List what the shipped features add to the kernel, as `module:attribute`, and load it when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

STEPS = "lcp_engine.engine.plan_course:STEPS"
"""The type of plans whose steps are stated."""
STATED_PLAN = "lcp_engine.core.mission.plan:StatedPlan"
"""The form in which a mission states its plan."""
ORDER_READER = "lcp_engine.core.protocol.answered_plan:READER"
"""Reader of replies whose jobs wait for each other."""
ASKERS: Mapping[str, str] = {"merge": "lcp_engine.engine.merges:ASKER"}
"""What a person's decision on jobs of a kind does to the end of the mission."""
END_GATES = ("lcp_engine.engine.merges:GATE",)
"""What a mission waits for before it ends, in this order."""
ENGINE_KINDS: Mapping[str, tuple[str, str]] = {
    "merge": ("lcp_engine.workers.merge:MERGE", "lcp_engine.changes.merge:CARRIED_OUT"),
    "apply": ("lcp_engine.workers.apply:APPLY", "lcp_engine.changes.held_changes:CARRIED_OUT"),
}
"""The kinds of jobs that the engine makes and a person approves: their workers, and how they are shown and done."""

COMMANDS = "lcp_engine.runner.commands:EXECUTION"
"""How jobs and acceptance checks are executed that are commands or external programs."""
OBSERVERS = ("lcp_engine.engine.lessons:OBSERVER",)
"""What takes note of what happens in missions, in this order."""
DECISION_GATE = "lcp_engine.engine.consents:GATE"
"""Who may approve jobs, and how many people have to."""
CLAIM_GATE = "lcp_engine.store.permits:GATE"
"""Which jobs that are due may start."""
ROOT_PROVIDER = "lcp_engine.changes.stages:ROOT_PROVIDER"
"""Other places for the files of missions than their roots."""
NOTE_WAITS = "lcp_engine.store.deliveries:note_waits"
"""Called before a transaction is committed that lets missions wait for a person, if there is a webhook."""
READERS: Mapping[str, str] = {"universal": "lcp_engine.core.protocol.universal:read_universal"}
"""Readers of replies in other dialects than LCP."""
REFUSE_ECHO = "lcp_engine.planners.llm.instructions:refuse_echo"
"""What refuses the words of a model that end a plan and are no answer."""
PROBES = "lcp_engine.store.endpoint_probes:StoredProbeCache"
"""Cache of what planners find out about endpoints."""
SECTION = "lcp_engine.engine.memory:SECTION"
"""What questions are asked with besides the findings of their plan."""
CHORES = (
    "lcp_engine.runner.on_wait_hook:chores",
    "lcp_engine.engine.schedules:chores",
    "lcp_engine.runner.upkeep:chores",
    "lcp_engine.changes.stages:chores",
    "lcp_engine.changes.held_changes:chores",
)
"""What runners do besides their jobs, in the order in which they begin; they end in the opposite one."""

FOREIGN_PROGRAMS = "lcp_engine.runner.confined.programs:FOREIGN_PROGRAMS"
"""How a confined process runs a foreign program."""

FILE_OF_KINDS = "lcp_engine.workers.load_files:load_workers"
KIND_OF_PROGRAM = "lcp_engine.workers.load_files:register_program"
"""What the command line loads kinds with, from a file or for a program."""
KINDS = ("lcp_engine.workers.run_command:WORKER", "lcp_engine.workers.remember:WORKER")
"""Further kinds that are built in."""


def load(place: str, kind: type[T]) -> T:
    """The value at a place. Raises TypeError if it is of another type."""
    module, _, name = place.partition(":")
    value: object = getattr(import_module(module), name)
    if not isinstance(value, kind):
        raise TypeError(f"{place} is no {kind.__name__}")
    return value
