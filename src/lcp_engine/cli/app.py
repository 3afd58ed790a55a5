"""Define the command group `lcp`, whose commands are loaded when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import LcpCommand, LcpGroup, global_options, refuse_name
from lcp_engine.feature import Feature, added, installed, load

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Module and help of each command that is no feature's: `lcp --help` loads none of the modules.
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run missions": {
        "run": ("run", "Launch a mission and work on it until it ends or waits for a person."),
        "launch": ("run", "Queue a mission without running it."),
        "work": ("run", "Start a runner, which executes the jobs of all missions."),
    },
    "Inspect": {
        "missions": ("missions", "List missions, newest first."),
        "show": ("missions", "Show a mission with its turns and jobs."),
        "watch": ("missions", "Follow events until the mission ends or waits."),
        "report": ("missions", "Report what a mission did, wrote and left open."),
        "changes": ("changes", "List the file changes of a mission."),
        "jobs": ("jobs", "List jobs."),
        "job": ("jobs", "Show a job with its attempts and events."),
        "held": ("jobs", "List the jobs that wait for a person."),
        "diff": ("changes", "Show what a held job would change, or what was changed."),
        "runners": ("runners", "List the runners, and roots that do not answer them."),
        "serve": ("serve", "Serve a web page to inspect missions and decide on held jobs."),
    },
    "Decide": {
        "approve": ("decide", "Let held jobs run."),
        "reject": ("decide", "Reject held jobs; the planner reads the reason."),
        "answer": ("decide", "Answer a mission's question."),
        "undo": ("changes", "Undo the file changes of a mission or a job."),
        "say": ("decide", "Send a mission's planner a message."),
        "cancel": ("decide", "Stop a mission."),
        "resume": ("decide", "Continue a mission that has ended."),
        "retry": ("decide", "Queue a failed, skipped or cancelled job again."),
    },
    "Run again": {},
    "Without a mission": {
        "db": ("db", "Check, back up, prune and measure the database."),
        "doctor": ("doctor", "Check the installation, a root and a planner's endpoint."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}


def all_commands(features: Feature | None = None) -> dict[str, dict[str, tuple[str, str]]]:
    """Return place and help of each command by its section: those of features come after those of all.

    Without those of other packages: to find them takes longer than help may take.
    """
    found = {
        section: {
            name: (f"lcp_engine.cli.commands.{module}:{name}_command", text)
            for name, (module, text) in stated.items()
        }
        for section, stated in SECTIONS.items()
    }
    for name, (section, place, text) in (features or added()).commands.items():
        if " " not in name:
            found.setdefault(section, {})[name] = (place, text)
    return {section: commands for section, commands in found.items() if commands}


class _Lazy(LcpGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in all_commands().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COURTESIES:
            return _COURTESIES[cmd_name]
        for features in (added, installed):
            for commands in all_commands(features()).values():
                if cmd_name in commands:
                    return load(commands[cmd_name][0], click.Command)
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands from the table alone, else the global options."""
        from click.shell_completion import CompletionItem

        known = (one for commands in all_commands().values() for one in commands.items())
        commands = [
            CompletionItem(name, help=text) for name, (_, text) in known if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, from the table alone."""
        for section, commands in all_commands().items():
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
        from lcp_engine.cli.console.output import drop_unwritten_output

        drop_unwritten_output()
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the top of the process: users must not see a traceback
        from lcp_engine.cli.console.output import drop_unwritten_output, explain

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
