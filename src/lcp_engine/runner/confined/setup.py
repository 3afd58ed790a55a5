"""State for a confined process what a mission's jobs may touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, TypeAdapter

from lcp_engine.core.policy import Policy, Rule
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps, Context, Worker


@dataclass(frozen=True)
class Setup:
    """Aliases, rules, the engine's files in the root and caps: all that makes a `Context` besides the root."""

    caps: Caps
    aliases: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    user_rules: tuple[Rule, ...] = ()
    engine_paths: tuple[str, ...] = ()

    def context_maker(self, root: Root, worker: Worker[BaseModel]) -> Callable[[bool], Context]:
        """What makes the context of a job of that kind: told whether a person let it run."""
        policy = Policy(self.rules, self.user_rules, engine_paths=self.engine_paths)
        judge = policy.for_kind(worker.kind, has_effects=worker.has_effects, writes=worker.writes)
        return lambda approved: Context(root, self.aliases, judge, self.caps, approved=approved)


SETUPS: TypeAdapter[Setup] = TypeAdapter(Setup)
"""How a setup is told."""
