"""Decide held jobs while a mission runs: what `--approve` says, what a person at the terminal answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from lcp_engine.api import Engine
from lcp_engine.api.records import Job
from lcp_engine.changes.recovery import CONFLICT
from lcp_engine.cli.approval_prompt import Answer, Questioner
from lcp_engine.cli.held_table import MANY, overview
from lcp_engine.cli.output import make_console
from lcp_engine.cli.prompt_io import Closed, say
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import one_line
from lcp_engine.engine.admission import NO_WORKER
from lcp_engine.engine.people.approval_binding import DRIFT
from lcp_engine.engine.question import RELAYED
from lcp_engine.errors import LcpError
from lcp_engine.workers.ask_user import KIND as ASK_USER


@dataclass
class Decider:
    """Decides the held jobs of one mission. `kinds` are approved without a question; `all` means every kind."""

    engine: Engine
    mission_id: int
    kinds: Collection[str] = ()
    asks: bool = False
    _later: set[int] = field(default_factory=set)
    _all: set[str] = field(default_factory=set)
    _doubtful: set[int] = field(default_factory=set)

    def approve_named(self, tell: Callable[[str], None]) -> bool:
        """Approve what is held and of the named kinds; whether anything was. What was in the way is told."""
        named = {*self.kinds, *self._all}
        if not named:
            return False
        held = self._open(() if "all" in named else sorted(named))
        approved = [self._approve(job, tell) for job in held if self._is_named(job)]
        return any(approved)

    def ask(self) -> bool:
        """Ask about every other held job that was not put off; whether the mission can go on."""
        if not self.asks:
            return False
        waiting = self._open()
        if len(waiting) >= MANY:
            say(f"{len(waiting):,} jobs of mission {self.mission_id} wait for you")
            make_console(sys.stderr).print(overview(waiting), soft_wrap=False)
        try:
            return self._ask_each(waiting)
        except Closed:
            self.asks = False
            return True  # what was decided before goes on

    def _ask_each(self, waiting: list[Job]) -> bool:
        questioner = Questioner(self.engine, self.engine.expiries(), [job.kind for job in waiting])
        decided, silent = False, 0
        for place, job in enumerate(waiting, 1):
            if self._is_named(job) and self._approve(job, say):
                silent += 1
                continue
            match questioner.ask(job, f" ({place:,} of {len(waiting):,})" if len(waiting) > 1 else ""):
                case Answer.DECIDED:
                    decided = True
                case Answer.ALL:
                    self._all.add(job.kind)
                    decided = True
                case Answer.SAID:  # the planner reads it first; then this job is asked about again
                    return True
                case Answer.LATER:
                    self._later.add(job.id)
        if silent:
            say(f"{silent:,} more approved: {', '.join(map(one_line, sorted(self._all)))}")
        return decided or silent > 0

    def _open(self, kinds: Collection[str] = ()) -> list[Job]:
        """The held jobs that were not put off."""
        held = self.engine.jobs(mission_id=self.mission_id, states=[State.HELD], kinds=[*kinds])
        return [job for job in held if job.id not in self._later]

    def _is_named(self, job: Job) -> bool:
        """A file that is another now is something new to decide; questions and kinds without a worker take no yes."""
        if job.kind == ASK_USER or job.reason == RELAYED or job.id in self._doubtful:
            return False
        named = job.kind in self.kinds or "all" in self.kinds or job.kind in self._all
        return named and job.reason not in (CONFLICT, DRIFT, NO_WORKER)

    def _approve(self, job: Job, tell: Callable[[str], None]) -> bool:
        """What cannot be approved unseen is left to be asked about, or to wait."""
        try:
            return self.engine.approve(job.id)
        except LcpError as refused:
            self._doubtful.add(job.id)
            tell(one_line(str(refused)))
            return False
