"""`lcp approve --all`: show in full what it approves, and leave out what cannot be shown (R25)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from lcp_engine.cli.commands.changes import show_job
from lcp_engine.cli.console.output import make_console, print_err
from lcp_engine.cli.console.terminal import page
from lcp_engine.cli.job_tables import held_table, overview
from lcp_engine.cli.tables import print_table
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.inbox import Look

if TYPE_CHECKING:
    from rich.console import Console

    from lcp_engine import Job
    from lcp_engine.api.engine import Engine
    from lcp_engine.api.inbox import HeldJob

MANY = 20
"""Above so many jobs an overview comes first."""


@dataclass(frozen=True)
class Candidate:
    """A held job that is no question, and what it would change now."""

    job: Job
    held: HeldJob
    look: Look

    @property
    def about(self) -> str:
        return self.held.about

    @property
    def why_left_out(self) -> Failed | None:
        """Reason why it cannot be approved together with others; None if it can."""
        if self.look.is_whole:
            return None
        statement = f"job {self.job.id} ({self.job.kind} {self.about}) is left out: {self.look.caveat}"
        advice = f"look at it with `lcp diff {self.job.id}`, then `lcp approve {self.job.id}`"
        return Failed(ErrorCode.NOT_SHOWN, f"{statement}; {advice}")


def find_candidates(engine: Engine, mission: int | None) -> list[Candidate]:
    """The held jobs that await no words, of one mission if given."""
    jobs = engine.jobs(mission_id=mission, states=["held"])
    held = engine.inbox.of([job.json for job in jobs])
    found = [(job, one) for job, one in zip(jobs, held, strict=True) if not one.awaits.is_words]
    looks = engine.look_over([job.json for job, _ in found])
    return [Candidate(job, one, looks[job.id]) for job, one in found]


def show_candidates(engine: Engine, candidates: Sequence[Candidate]) -> None:
    """List the jobs, then show what each would change, in a pager if that is longer than the terminal."""
    list_held(engine, [each.job for each in candidates])
    shown = [each for each in candidates if each.why_left_out is None]
    if sys.stdout.isatty() and sys.stdin.isatty():
        page(lambda console: _show_each(console, shown))
    else:
        _show_each(make_console(sys.stderr), shown)


def list_held(engine: Engine, jobs: Sequence[Job]) -> None:
    """List on stderr what `--all` is about to decide."""
    if len(jobs) > MANY:
        print_table(overview([job.json for job in jobs]), sys.stderr)
        print_err("")
    one = len({job.mission_id for job in jobs}) == 1
    table = held_table([job.json for job in jobs], {}, of_one_mission=one, about=engine.subjects())
    print_table(table, sys.stderr)


def _show_each(console: Console, candidates: Sequence[Candidate]) -> None:
    for each in candidates:
        console.print(Text(f"\njob {each.job.id}: {one_line(each.job.kind)} {each.about}", style="bold"))
        if each.look.caveat:
            console.print(f"  {each.look.caveat}; these are its params:")
        show_job(console, each.job, each.look.diff)
