"""Define the global options and the base classes of all commands."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import Parameter

from lcp_engine.cli.console.exits import Exit

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine import Workers
    from lcp_engine.api.engine import Engine
    from lcp_engine.api.history import History
    from lcp_engine.planners.base import Planner
    from lcp_engine.planners.environment import Factory, PlannerEnvironment
    from lcp_engine.settings import Settings


SETTINGS: Mapping[str, Sequence[str] | int] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}


@dataclass
class Invocation:
    """The global options of one call of `lcp`."""

    db: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    log: str = "text"
    workers: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    planner_files: tuple[str, ...] = ()

    def load_workers(self) -> None:
        """Load the kinds that `--workers`, `--exec`, the environment and the configuration name.

        Raises `INVALID_ARGUMENT`.
        """
        files = self.worker_files
        if files or self.programs:
            from lcp_engine.feature import added, load

            for file in files:
                load(added().file_of_kinds, FunctionType)(file)
            for stated in self.programs:
                kind, sign, command = stated.partition("=")
                if not sign or not command.strip():
                    raise click.UsageError(
                        f"--exec {stated!r}: KIND=PROGRAM is expected, such as look_up=./look_up.sh"
                    )
                load(added().kind_of_program, FunctionType)(kind, command)

    def known_workers(self) -> Workers:
        """The workers of the kinds that are known here. Raises like `load_workers`."""
        from lcp_engine.kinds import find_workers

        self.load_workers()
        return find_workers()

    @property
    def worker_files(self) -> tuple[Path, ...]:
        """The files with kinds that `--workers`, the environment and the configuration name."""
        return (*map(Path, self.workers), *self.settings.workers)

    @cached_property
    def settings(self) -> Settings:
        from lcp_engine.settings import read_settings

        return read_settings()

    @property
    def database_url(self) -> str:
        """`--db`, else the URL of the settings. Raises `INVALID_ARGUMENT` unless it is an SQLite or PostgreSQL URL."""
        from lcp_engine.settings import read_url

        return self.settings.url if self.db is None else read_url(self.db)

    @contextmanager
    def engine(self, *, away_seconds: float | None = None) -> Iterator[Engine]:
        """Open the engine; the default database is created if it does not exist.

        It waits `away_seconds` for a database that is away, if given, and not as long as the settings say.
        """
        from lcp_engine.api.engine import Engine

        self.load_workers()
        url, settings = self._existing_url(), self.settings
        with naming(url):
            engine = Engine(
                url,
                user_rules=settings.policy,
                caps=settings.caps,
                busy_seconds=settings.busy_seconds,
                away_seconds=settings.away_seconds if away_seconds is None else away_seconds,
                planners={**settings.planners, **self.own_planners},
                prices=settings.prices,
                isolation=settings.isolation,
                settings=settings.of_features(),
            )
        with engine:
            yield engine

    @cached_property
    def own_planners(self) -> Mapping[str, Planner | Factory]:
        """The planners of the files that `--planner-file` names, by name. Raises `INVALID_ARGUMENT`."""
        if not self.planner_files:
            return {}
        from lcp_engine.planners.registry import load_planner, own_planners

        loaded = [load_planner(Path(file)) for file in self.planner_files]
        return own_planners({name: planner for one in loaded for name, planner in one.items()})

    @property
    def planner_environment(self) -> PlannerEnvironment:
        """Surroundings of planners before a database is open."""
        from lcp_engine.planners.environment import PlannerEnvironment

        return PlannerEnvironment(self.settings.planners, prices=self.settings.prices, own=self.own_planners)

    @contextmanager
    def history(self) -> Iterator[History]:
        """Open the database to read it: quick, as nothing that executes or decides is loaded."""
        from lcp_engine.api.history import open_history

        url, settings = self._existing_url(), self.settings
        with naming(url):
            history = open_history(
                url,
                busy_seconds=settings.busy_seconds,
                away_seconds=settings.away_seconds,
                isolation=settings.isolation,
            )
        with history:
            yield history

    def _existing_url(self) -> str:
        """The database's URL; the directory of the default one is created."""
        from lcp_engine.settings import make_room

        url = self.database_url
        make_room(url)
        return url


@contextmanager
def naming(url: str) -> Iterator[None]:
    """Add the database's URL to errors about its version."""
    from lcp_engine.errors import ErrorCode, LcpError
    from lcp_engine.settings import shown_url

    try:
        yield
    except LcpError as error:
        if error.code is not ErrorCode.DATABASE_VERSION:
            raise
        raise LcpError(
            error.code, f"{shown_url(url)}: {error}", error.failed.details, error.failed.advice
        ) from error


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def keep(context: click.Context, option: Parameter, value: str | bool | None) -> None:
    """Store a global option, given before or after the command's name; the last one wins."""
    if value and option.name is not None:
        setattr(context.ensure_object(Invocation), option.name, value)


def _keep_all(context: click.Context, option: Parameter, values: tuple[str, ...]) -> None:
    """Add the values of a global option, given before or after the command's name."""
    if values and option.name is not None:
        invocation = context.ensure_object(Invocation)
        setattr(invocation, option.name, (*getattr(invocation, option.name), *values))


def global_options(*, hidden: bool) -> list[Parameter]:
    """The options that every command takes; only `lcp --help` lists them."""
    texts = {
        ("--json",): "Print JSON: one value; run, work and watch print one object a line.",
        ("-q", "--quiet"): "Print only data and errors.",
        ("-v", "--verbose"): "Print more progress.",
    }
    url = click.Option(
        ["--db"],
        metavar="URL",
        expose_value=False,
        callback=keep,
        hidden=hidden,
        help="The database: sqlite:///PATH or postgresql://HOST/NAME  [env: LCP_DATABASE_URL; default: a file in "
        "your data directory, see `lcp db path`]",
    )
    workers = click.Option(
        ["--workers"],
        metavar="FILE",
        multiple=True,
        expose_value=False,
        callback=_keep_all,
        hidden=hidden,
        help="A file with kinds of jobs, Python, YAML or JSON, see docs/kinds.md; repeatable  [env: LCP_WORKERS]",
    )
    programs = click.Option(
        ["--exec", "programs"],
        metavar="KIND=PROGRAM",
        multiple=True,
        expose_value=False,
        callback=_keep_all,
        hidden=hidden,
        help="A kind of job that a program executes, a line of JSON in and out, see docs/kinds.md; repeatable",
    )
    planners = click.Option(
        ["--planner-file", "planner_files"],
        metavar="FILE",
        multiple=True,
        expose_value=False,
        callback=_keep_all,
        hidden=hidden,
        help="A Python file with a planner of your own, which answers unless --planner names another; see "
        "docs/python.md; repeatable",
    )
    flags = [
        click.Option(list(names), is_flag=True, expose_value=False, callback=keep, hidden=hidden, help=text)
        for names, text in texts.items()
    ]
    return [url, workers, programs, planners, *flags]


class _WithExamples(click.Command):
    """A command that also takes the global options, and whose help ends with `examples`."""

    def __init__(self, *args: object, examples: Sequence[str] = (), **kwargs: object) -> None:
        kwargs.setdefault("context_settings", dict(SETTINGS))
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own signature, passed through
        self.examples = examples
        self.params.extend(global_options(hidden=True))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, but every usage error knows its command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as refused:
            refused.ctx = refused.ctx or ctx
            raise

    def get_help(self, ctx: click.Context) -> str:
        """The help, as wide as the terminal. The examples are its end."""
        from lcp_engine.cli.console.help import HelpFormatter

        formatter = HelpFormatter(ctx.terminal_width, ctx.max_content_width)
        self.format_help(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write_example(example)
        return formatter.getvalue().rstrip("\n")


def length_of(option: str, text: str, examples: str) -> timedelta:
    """The length of time that an option states. Raises `INVALID_ARGUMENT` with examples for anything else."""
    from lcp_engine.core.times.recurrence import read_every
    from lcp_engine.errors import ErrorCode, LcpError

    try:
        return timedelta(microseconds=read_every(text).length)
    except LcpError as refused:
        message = f"{option} {text!r}: a duration is expected, such as {examples}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused


class Count(click.IntRange):
    """Like click.IntRange, but messages call it an integer and not an "integer range"."""

    name = "integer"


class LcpCommand(_WithExamples):
    """A command of `lcp`."""


_WHOLE = 10_000
"""Characters of a sentence: more than any has."""


class LcpGroup(_WithExamples, click.Group):
    """A group of commands; for an unknown command it suggests the nearest name."""

    command_class = LcpCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Own commands, and those of features for this group."""
        from lcp_engine.feature import added

        names = (name.partition(" ")[::2] for name in added().commands)
        return sorted([*self.commands, *(name for group, name in names if name and group == self.name)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Like click's, also for commands of features, which are loaded now."""
        from lcp_engine.feature import added, installed, load

        own, stated = self.commands.get(cmd_name), f"{self.name} {cmd_name}"
        found = (features().commands.get(stated) for features in (added, installed) if own is None)
        return next((load(one[1], click.Command) for one in found if one is not None), own)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Like click's, but the first sentence of each command is whole."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, but without arguments the help goes to stderr and the call is a usage error."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but for an unknown name the nearest one is suggested."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            refuse_name(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def refuse_name(context: click.Context, name: str, known: Sequence[str]) -> NoReturn:
    """Raise the usage error for an unknown command."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"the commands are {', '.join(known)}"
    raise click.UsageError(f"unknown command {name!r}; {hint}", context)


def read_object(text: str | bytes, name: str) -> dict[str, JsonValue]:
    """Parse a JSON object; errors call it `name`. Raises `INVALID_ARGUMENT` for anything else, also for NaN."""
    import json

    from lcp_engine.core.protocol.strict_json import json_fault, place
    from lcp_engine.core.safe_text import shortened
    from lcp_engine.errors import ErrorCode, LcpError

    def refusal(why: str) -> LcpError:
        return LcpError(ErrorCode.INVALID_ARGUMENT, f"{name} is not a JSON object: {why}")

    try:
        value: JsonValue = json.loads(text)
    except json.JSONDecodeError as refused:
        raise refusal(f"invalid from {place(refused.doc, json_fault(refused).index)}") from refused
    except RecursionError as refused:
        raise refusal("it is nested too deeply") from refused
    except ValueError as refused:  # not UTF-8, or an integer of too many digits
        raise refusal(str(refused)) from refused
    try:
        json.dumps(value, allow_nan=False)
    except RecursionError as refused:
        raise refusal("it is nested too deeply") from refused
    except ValueError as refused:
        raise refusal("it has NaN or a number outside the range of floats") from refused
    if not isinstance(value, dict):
        raise refusal(f"it is {shortened(json.dumps(value), 60)}")
    return value


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Parse `name=value` options. Raises a usage error for a value without a name or `=`."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} expects name=value, not {value!r}")
        found[name.strip()] = text
    return found
