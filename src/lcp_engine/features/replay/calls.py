"""Run finished missions again, and begin new ones in the middle of them. What does that is slow to load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.api.arguments import fork_point
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.user import user_name
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.store.queries.history import known_id

if TYPE_CHECKING:
    from lcp_engine.features.replay.fork import Forked
    from lcp_engine.features.replay.replay import Replayed


class ReplayCalls(KernelEngine):
    """Calls about missions that were."""

    def replay(self, mission_id: int, *, keep: Path | None = None) -> Replayed:
        """Run a finished mission again from its history, without its planner, and compare the results.

        The mission's root is not touched. With `keep` the scratch database and root are left in that directory. Raises
        `NOT_FOUND`, `WRONG_STATE` for a mission that has not ended or whose history is incomplete, `INVALID_ARGUMENT`.
        """
        from lcp_engine.features.replay.replay import replay

        return replay(self.instance, known_id("mission", mission_id), keep=keep)

    def fork(
        self,
        mission_id: int,
        *,
        turn: int | None = None,
        step: str | None = None,
        reply: str | None = None,
        planner: PlannerSpec | None = None,
        by: str | None = None,
    ) -> Forked:
        """Queue a new mission in the state that this one had when it asked question `turn`, over the root as it is now.

        Or in the state that it had when it began a `step` of its plan, named by its id or its job. The question is
        answered by `reply` if given, else by `planner`, else by the mission's own planner. Raises `INVALID_ARGUMENT`
        unless one of both is given, `NOT_FOUND`, `WRONG_STATE` for a mission without turns and a step that has not
        begun, `NO_PLANNER`, `PATH_NOT_FOUND` for a missing root.
        """
        from lcp_engine.features.replay.fork import fork

        known = known_id("mission", mission_id)
        return fork(
            self.instance, known, fork_point(turn, step, reply), reply=reply, planner=planner,
            by=by or user_name(),
        )  # fmt: skip
