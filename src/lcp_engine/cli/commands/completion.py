"""Complete arguments in the shell (`lcp completion`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from lcp_engine.cli.base import Invocation, LcpCommand
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_out

if TYPE_CHECKING:
    from lcp_engine.api.history import History

SHELLS = ("bash", "zsh", "fish")
MOST = 200
"""Missions or jobs that are offered, the newest."""
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_Source: TypeAlias = Callable[[click.Context], list[tuple[str, str]]]


@click.command(
    "completion",
    cls=LcpCommand,
    examples=(
        'eval "$(lcp completion bash)"                                in ~/.bashrc',
        'eval "$(lcp completion zsh)"                                 in ~/.zshrc, after compinit',
        "lcp completion fish > ~/.config/fish/completions/lcp.fish    once",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> int:
    """Print the script that lets SHELL complete commands, options, missions, planners and ids."""
    completion = get_completion_class(shell)
    assert completion is not None, shell
    print_out(completion(click.Command("lcp"), {}, "lcp", "_LCP_COMPLETE").source(), is_exact=True)
    return Exit.DONE


def _completer(source: _Source) -> Completer:
    """Offer the values and help texts of `source` that begin with what was typed."""

    @wraps(source)
    def complete(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        try:
            offered = source(context)
        except Exception:  # noqa: BLE001  # a message would be printed into the line that is being typed
            return []
        return [CompletionItem(value, help=text) for value, text in offered if value.startswith(typed)]

    return complete


@_completer
def mission_ids(context: click.Context) -> list[tuple[str, str]]:
    """Missions by number, the newest first."""
    with _history(context) as histories:
        return [
            (str(one.id), f"{one.status} {one.name}")
            for history in histories
            for one in history.missions(limit=MOST)
        ]


@_completer
def job_ids(context: click.Context) -> list[tuple[str, str]]:
    """Jobs by number, the newest first."""
    return _jobs(context, ())


@_completer
def held_ids(context: click.Context) -> list[tuple[str, str]]:
    """Held jobs by number."""
    return _jobs(context, ("held",))


@_completer
def schedule_names(context: click.Context) -> list[tuple[str, str]]:
    """Schedules by name."""
    invocation = context.find_object(Invocation) or Invocation()
    if not _exists(invocation.database_url):
        return []
    with invocation.engine() as engine:
        return [(one.name, one.rule) for one in engine.schedules()]


@_completer
def planner_names(_: click.Context) -> list[tuple[str, str]]:
    """Planners by name, with those of plug-ins."""
    from lcp_engine.planners import registry

    return [(name, "") for name in registry.planner_names()]


@_completer
def kind_names(_: click.Context) -> list[tuple[str, str]]:
    """Kinds of jobs, with those of plug-ins."""
    from lcp_engine.kinds import find_workers

    return [(kind, worker.description) for kind, worker in find_workers().items()]


kinds_option = click.option(
    "--kind",
    "kinds",
    multiple=True,
    shell_complete=kind_names,
    metavar="KIND",
    help="Only jobs of this kind; may be repeated.",
)
"""The option of commands that list or run jobs."""


@_completer
def _shipped(_: click.Context) -> list[tuple[str, str]]:
    from lcp_engine.shipped_missions import shipped_missions

    return [(name, "shipped mission") for name in shipped_missions()]


def mission_files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Shipped missions and the mission files of this directory; any other file by its path."""
    here = [path.name for suffix in ("yaml", "yml", "json") for path in sorted(Path().glob(f"*.{suffix}"))]
    offered = [CompletionItem(name) for name in here if name.startswith(typed)]
    return [*_shipped(context, parameter, typed), *offered] or [CompletionItem(typed, type="file")]


@contextmanager
def _history(context: click.Context) -> Iterator[Sequence[History]]:
    """The history in the database that is selected; none if there is no database, which must not be created here."""
    invocation = context.find_object(Invocation) or Invocation()
    if not _exists(invocation.database_url):
        yield []
        return
    with invocation.history() as history:
        yield [history]


def _exists(url: str) -> bool:
    return not url.startswith("sqlite:") or Path(url.removeprefix("sqlite:///")).exists()


def _jobs(context: click.Context, states: Sequence[str]) -> list[tuple[str, str]]:
    from lcp_engine.core.safe_text import shortened
    from lcp_engine.core.summaries import subject

    with _history(context) as histories:
        return [
            (str(job.id), shortened(f"{job.kind} {subject(job.json)}", 60))
            for history in histories
            for job in history.jobs(states=states, limit=MOST, newest_first=True)
        ]
