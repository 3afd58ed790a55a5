"""Execute jobs of every mission (`lcp work`)."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pairs, pass_invocation
from lcp_engine.cli.event_stream import Follower
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.progress import showing
from lcp_engine.cli.signals import catching_interrupts, work
from lcp_engine.settings import shown_url


@click.command(
    "work",
    cls=LcpCommand,
    examples=(
        "lcp work --threads 8",
        "lcp work --until-idle",
        "lcp work --root site=/srv/site    missions whose root is called site, in that directory",
    ),
)
@click.option(
    "--threads",
    type=Count(1, 256),
    metavar="N",
    default=4,
    show_default=True,
    help="Jobs at a time.",
)
@click.option("--until-idle", is_flag=True, help="End when nothing is queued, delayed or running anywhere.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Only jobs of this kind; may be repeated."
)
@click.option("--root", "named", multiple=True, metavar="NAME=DIR",
              help="Only missions whose root is called NAME (its path, an alias, the last part of its path), which "
              "is DIR here. May be repeated.  [default: every root that is on this machine]")  # fmt: skip
@pass_invocation
def work_command(
    invocation: Invocation, threads: int, until_idle: bool, kinds: Sequence[str], named: Sequence[str]
) -> int:
    """Execute the jobs of every mission, until it is stopped.

    SIGTERM and the first Ctrl-C finish the jobs under way and give the others back; a second Ctrl-C leaves at once.
    Any number of these may work on one database.
    """
    roots = {name: _directory(name, text) for name, text in pairs(named, "--root").items()}
    with invocation.engine() as engine, catching_interrupts() as interrupts:
        runner = engine.runner(until_idle=until_idle, threads=threads, kinds=kinds or None, roots=roots)
        follower = Follower(engine, past=False)
        with showing(invocation, engine, all_missions=True) as progress:
            progress.say(f"works on {shown_url(invocation.database_url)} with {threads} threads")
            work(runner, interrupts, lambda: follower.show(progress), progress.say)
            for root, count in runner.left_to_others().items():
                left = f"{count} queued job{'s' * (count != 1)}"
                progress.say(f"left to other runners: {left} over {root}, which is not served here")
    return Exit.INTERRUPTED if interrupts.received is signal.SIGINT else Exit.DONE


def _directory(name: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise click.UsageError(f"--root {name}: a directory is expected, {text!r} is none")
    return path.resolve()
