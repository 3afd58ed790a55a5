"""Start the command line: one group, whose commands load when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from lcp_engine.cli.base import LcpGroup, global_options

# Module and help of each command: `lcp --help` loads none of them.
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run missions": {
        "run": ("run", "Launch a mission and work until it ends or waits for a person."),
        "launch": ("run", "Launch a mission; somebody else works."),
        "schedule": ("schedule", "Launch a mission again and again: add, list, remove, run-now."),
        "work": ("work", "Execute jobs of every mission: a runner process."),
    },
    "Look": {
        "missions": ("missions", "List missions, the newest first."),
        "show": ("missions", "Show a mission with its turns and jobs."),
        "watch": ("watch", "Follow what happens, until the mission ends or waits."),
        "report": ("missions", "Report on a mission: what was done, written, refused."),
        "changes": ("undo", "List what a mission did to files."),
        "jobs": ("jobs", "List jobs."),
        "job": ("jobs", "Show a job with its attempts and history."),
        "held": ("jobs", "List the jobs that wait for a person."),
        "diff": ("diff", "Show what a held job would change, or what was changed."),
        "serve": ("serve", "Serve a web page to look and decide."),
    },
    "Decide": {
        "approve": ("approve", "Let held jobs run."),
        "reject": ("approve", "Refuse held jobs; the planner reads the reason."),
        "answer": ("answer", "Answer a question that a mission waits with."),
        "undo": ("undo", "Take back what a mission or a job did to files."),
        "say": ("answer", "Tell a mission's planner something; it is asked again."),
        "policy": ("policy", "Explain which rule decides about a job."),
        "cancel": ("approve", "Stop a mission."),
        "resume": ("approve", "Go on with a mission that has ended."),
        "retry": ("approve", "Queue a failed, skipped or cancelled job again."),
    },
    "Run again": {
        "replay": ("replay", "Run a finished mission again from its history, without a model."),
        "fork": ("fork", "Start a new mission from a turn of another one."),
    },
    "Without a mission": {
        "check": ("check", "Read replies as the engine would; execute nothing."),
        "try": ("try_job", "Run one job now, outside any mission."),
        "schema": ("schema", "Print a published JSON Schema."),
        "db": ("db", "Look after the database."),
        "doctor": ("doctor", "Examine the installation, a root and a planner's endpoint."),
    },
}
_COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class _Lazy(LcpGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"lcp_engine.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in their sections, from the table alone."""
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()], col_max=12)


def _print_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("lcp-engine")
        except PackageNotFoundError:
            number = "from a source tree"
        click.echo(f"lcp-engine {number}")
        context.exit()


@click.group(
    "lcp",
    cls=_Lazy,
    examples=(
        "lcp run survey --root .                 describe a project, without a model",
        "lcp run mission.yaml --root DIR         run a mission of yours",
        "lcp approve 12; lcp work --until-idle   decide what waited, and go on",
    ),
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Print the version.")  # fmt: skip
def lcp() -> None:
    """Run missions over a directory: a planner answers with LCP actions, the engine does the work.

    Exit codes: 0 done, 1 failed, 2 usage, 3 waits for a person, 4 ended on a limit or without progress, 5 conflict,
    130 interrupted.
    """


# The first group explains the global options that every command takes.
lcp.params[-4:] = global_options(hidden=False)


def start(arguments: Sequence[str]) -> int:
    """Run a command; its exit code. Whatever happens, people get one line and never a traceback."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show is escaped: file names may be anything.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream where it is not replaced
    try:
        code = lcp.main(list(arguments), prog_name="lcp", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_what_is_refused()
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # a person must not read a traceback
        from lcp_engine.cli.error_output import explain

        code = explain(error, as_json=_wants_json(arguments))
        _forget_what_is_refused()
        return code
    return code if isinstance(code, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` is given, also where the arguments could not be read."""
    read = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in read


def _open_what_is_closed() -> None:
    """A command that is started with closed streams reads and writes nothing, as with /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _forget_what_is_refused() -> None:
    """Nobody takes what is printed: the interpreter must not complain about it at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
