"""Execute jobs of every mission (`lcp work`)."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import click

from lcp_engine.cli.command import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exits import Exit
from lcp_engine.cli.following import Follower
from lcp_engine.cli.progress import showing
from lcp_engine.cli.stopping import catching_interrupts, work
from lcp_engine.settings import shown_url


@click.command(
    "work",
    cls=LcpCommand,
    examples=(
        "lcp work --threads 8",
        "lcp work --until-idle",
    ),
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    metavar="N",
    default=4,
    show_default=True,
    help="Jobs at a time.",
)
@click.option("--until-idle", is_flag=True, help="End when nothing is queued, delayed or running anywhere.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Only jobs of this kind; may be repeated."
)
@pass_invocation
def work_command(invocation: Invocation, threads: int, until_idle: bool, kinds: Sequence[str]) -> int:
    """Execute the jobs of every mission, until it is stopped.

    SIGTERM and the first Ctrl-C finish the jobs under way and give the others back; a second Ctrl-C leaves at once.
    Any number of these may work on one database.
    """
    with invocation.engine() as engine, catching_interrupts() as interrupts:
        runner = engine.runner(until_idle=until_idle, threads=threads, kinds=kinds or None)
        follower = Follower(engine, past=False)
        with showing(invocation, engine, all_missions=True) as progress:
            progress.say(f"works on {shown_url(invocation.database_url)} with {threads} threads")
            work(runner, interrupts, lambda: progress.show(follower.news()), progress.say)
    return Exit.INTERRUPTED if interrupts.received is signal.SIGINT else Exit.DONE
