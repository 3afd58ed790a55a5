"""Define the command group `lcp`, whose commands are loaded when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import LcpCommand, LcpGroup, global_options, refuse_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Module and help of each command: `lcp --help` loads none of the modules.
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run missions": {
        "init": ("init", "Write a mission file by asking."),
        "run": ("run", "Launch a mission and work on it until it ends or waits for a person."),
        "do": ("do", "Launch a mission without a file: its goal is on the command line."),
        "launch": ("run", "Queue a mission without running it."),
        "schedule": ("schedule", "Launch a mission regularly: add, list, remove, run-now."),
        "work": ("run", "Start a runner, which executes the jobs of all missions."),
    },
    "Inspect": {
        "missions": ("missions", "List missions, newest first."),
        "show": ("missions", "Show a mission with its turns and jobs."),
        "watch": ("missions", "Follow events until the mission ends or waits."),
        "plan": ("plan", "Check the plan of a file, show that of a mission as a graph."),
        "report": ("missions", "Report what a mission did, wrote and left open."),
        "changes": ("changes", "List the file changes of a mission."),
        "jobs": ("jobs", "List jobs."),
        "job": ("jobs", "Show a job with its attempts and events."),
        "held": ("jobs", "List the jobs that wait for a person."),
        "diff": ("changes", "Show what a held job would change, or what was changed."),
        "shell": ("shell", "Open a shell in what a command of a mission sees."),
        "runners": ("runners", "List the runners, and roots that do not answer them."),
        "deliveries": ("deliveries", "List the notices for the webhook, and what became of them."),
        "memory": ("memory", "See, correct and forget what is remembered of roots."),
        "top": ("top.command", "Watch missions and decide on held jobs, full screen."),
        "serve": ("serve", "Serve a web page to inspect missions and decide on held jobs."),
    },
    "Decide": {
        "approve": ("decide", "Let held jobs run."),
        "reject": ("decide", "Reject held jobs; the planner reads the reason."),
        "link": ("links", "Print a signed link that decides one held job."),
        "approvers": ("approvers", "Name the people who decide from afar: add, list, remove."),
        "answer": ("decide", "Answer a mission's question."),
        "undo": ("changes", "Undo the file changes of a mission or a job."),
        "say": ("decide", "Send a mission's planner a message."),
        "policy": ("policy", "Explain which rule decides about a job."),
        "cancel": ("decide", "Stop a mission."),
        "resume": ("decide", "Continue a mission that has ended."),
        "retry": ("decide", "Queue a failed, skipped or cancelled job again."),
    },
    "Run again": {
        "replay": ("replay", "Run a finished mission again from its history, without a model."),
        "fork": ("replay", "Start a new mission from a turn of another one."),
    },
    "Without a mission": {
        "validate": ("validate", "Check a mission and print what it would do; launch nothing."),
        "check": ("check", "Check whether replies are valid; execute nothing."),
        "try": ("check", "Run one job now, outside any mission."),
        "kinds": ("kinds", "List the kinds of jobs, describe one, or run their examples."),
        "eval": ("eval", "Measure planners on missions whose results are known."),
        "schema": ("schema", "Print a published JSON Schema."),
        "db": ("db", "Check, back up, prune and measure the database."),
        "doctor": ("doctor", "Check the installation, a root and a planner's endpoint."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
_COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class _Lazy(LcpGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COURTESIES:
            return _COURTESIES[cmd_name]
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"lcp_engine.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands from the table alone, else the global options."""
        from click.shell_completion import CompletionItem

        known = {name: text for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)}
        commands = [CompletionItem(name, help=text) for name, text in known.items()]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, from the table alone."""
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()], col_max=12)


def _print_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(_version())
        context.exit()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"lcp-engine {version('lcp-engine')}"
    except PackageNotFoundError:
        return "lcp-engine from a source tree"


@click.command("version", cls=LcpCommand)
def version_command() -> None:
    """Print the version."""
    click.echo(_version())


@click.command("help", cls=LcpCommand)
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_command(context: click.Context, names: Sequence[str]) -> None:
    """Print the help of a command, such as `lcp help db check`; without a name that of lcp."""
    command: click.Command = lcp
    within = _context(lcp, "lcp", None)
    for name in names:
        inner = command.get_command(within, name) if isinstance(command, click.Group) else None
        if inner is None:
            known = command.list_commands(within) if isinstance(command, click.Group) else []
            refuse_name(within, name, known)
        command, within = inner, _context(inner, name, within)
    click.echo(command.get_help(within))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """The context in which `command --help` prints."""
    return command.make_context(name, ["--help"], parent, resilient_parsing=True)


_COURTESIES = {"help": help_command, "version": version_command}
"""Commands that people try, for the options `--help` and `--version`; no help lists them."""


@click.group(
    "lcp",
    cls=_Lazy,
    examples=(
        "lcp run survey --root .                 describe a project, without a model",
        "lcp run mission.yaml --root DIR         run a mission of your own",
        "lcp approve 12; lcp work --until-idle   let a held job run, and continue",
    ),
)
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Print the version.")  # fmt: skip
def lcp() -> None:
    """Run missions over a directory: a planner replies with LCP actions, and the engine executes them as jobs.

    Exit codes: 0 done, 1 failed, 2 usage, 3 waits for a person, 4 ended on a limit, without progress or with an effect
    unfulfilled, 5 conflict, 130 interrupted.
    """


# Only the top group shows the global options, which every command takes.
_shown = global_options(hidden=False)
lcp.params[-len(_shown) :] = _shown


def start(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Any error is printed as one line, never as a traceback."""
    _reopen_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # File names may hold any bytes: what the stream cannot encode is escaped.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream where it is not replaced
    try:
        code = lcp.main(list(arguments), prog_name="lcp", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        from lcp_engine.cli.output import drop_unwritten_output

        drop_unwritten_output()
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the top of the process: users must not see a traceback
        from lcp_engine.cli.output import drop_unwritten_output, explain

        code = explain(error, as_json=_wants_json(arguments))
        drop_unwritten_output()
        return code
    return code if isinstance(code, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    """True if `--json` is given, even if the arguments could not be parsed."""
    read = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in read


def _reopen_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
