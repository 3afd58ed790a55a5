"""Check the installation, a root and a planner (`lcp doctor`)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pairs, pass_invocation
from lcp_engine.cli.commands.completion import mission_files, planner_names
from lcp_engine.cli.commands.load_mission import MissionOptions, load, load_spec
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import guarded, print_json, print_out
from lcp_engine.core.health import Finding, broken, doubtful, is_sound, well
from lcp_engine.core.mission.spec import PlannerSpec, expected_result
from lcp_engine.core.safe_text import sentence
from lcp_engine.errors import LcpError
from lcp_engine.feature import installed, is_shipped, leave_out, load_all
from lcp_engine.settings import resolve_root

if TYPE_CHECKING:
    from lcp_engine.settings import Settings


BUSY_SECONDS = 3.0
"""How long the checks wait for a locked database."""


@click.command(
    "doctor",
    cls=LcpCommand,
    examples=(
        "lcp doctor",
        "lcp doctor --planner local",
        "lcp doctor --mission mission.yaml --root DIR",
        "lcp doctor --commands mission.yaml",
    ),
)
@click.option(
    "--planner",
    shell_complete=planner_names,
    metavar="NAME",
    help="Check this planner with the settings of your configuration.",
)
@click.option(
    "--mission",
    shell_complete=mission_files,
    metavar="MISSION",
    help="Check the planner and the root of this mission.",
)
@click.option(
    "--commands",
    shell_complete=mission_files,
    metavar="MISSION",
    help="Try the programs that this mission may run.",
)
@click.option("--root", type=click.Path(path_type=Path), metavar="DIR", help="Check this root.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="With --mission or --commands: override a key of the file.")  # fmt: skip
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE",
              help="With --mission or --commands: set the variable ${NAME} of the file.")  # fmt: skip
@pass_invocation
def doctor_command(
    invocation: Invocation,
    *,
    planner: str | None,
    mission: str | None,
    commands: str | None,
    root: Path | None,
    settings: Sequence[str],
    variables: Sequence[str],
) -> int:
    """Check the installation, and with --planner or --mission also the planner.

    Each line is ok, warn or fail, with advice. A model is asked ten short questions, which cost tokens. With
    --commands, each program says its version, confined as in a mission. Exit code 1: something does not work.
    """
    pairs(settings, "--set")
    values = pairs(variables, "--var")
    if (settings or values) and mission is None and commands is None:
        raise click.UsageError("--set and --var need --mission or --commands", click.get_current_context())
    options = None if mission is None else MissionOptions(mission, root, planner, settings, values)
    tried = None if commands is None else MissionOptions(commands, root, None, settings, values)
    found: list[Finding] = []
    for finding in _examine(invocation, planner, options, root, tried):
        found.append(finding)
        if not invocation.json:
            _print(finding)
    if invocation.json:
        print_json({"ok": is_sound(found), "checks": [finding.json for finding in found]})
    return Exit.DONE if is_sound(found) else Exit.FAILED


def _print(finding: Finding) -> None:
    print_out(f"{finding.grade.value:<4}  {finding.about:<17}  {sentence(finding.fact)}")
    if finding.advice:
        print_out(f"{'':<25}→ {finding.advice}")
    sys.stdout.flush()


def _examine(
    invocation: Invocation,
    planner: str | None,
    options: MissionOptions | None,
    root: Path | None,
    tried: MissionOptions | None,
) -> Iterator[Finding]:
    from lcp_engine.sandbox.system.landlock import examine_isolation
    from lcp_engine.settings import config_path, make_room

    yield well("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        settings, url = invocation.settings, invocation.database_url
        make_room(url)
        invocation.load_workers()
    except LcpError as error:
        yield broken("settings", error.failed)
        return
    yield well(
        "settings", f"{config_path()}{'' if config_path().exists() else ' (does not exist; defaults apply)'}"
    )
    yield examine_isolation(settings.isolation)
    yield from _features(url, settings)
    if tried is not None:
        yield from guarded("commands", lambda: _commands(tried, url, settings))
    spec, result = None if planner is None else PlannerSpec(type=planner), None
    if options is not None:
        try:
            loaded, root, _ = load(options, invocation.planner_environment)
        except LcpError as error:
            yield broken("mission", error.failed)
            return
        yield well("mission", f"{options.mission} can be launched")
        spec, result = loaded.planner, expected_result(loaded)
    yield from examine_root(root or Path.cwd())
    if spec is not None:
        from lcp_engine.features.models.examination import examine_planner

        yield from examine_planner(spec, invocation.planner_environment, result)


def examine_root(path: Path) -> Iterator[Finding]:
    """Check a mission's root and how jobs are confined to it."""
    yield from guarded("root", lambda: _root(path))


def _features(url: str, settings: Settings) -> Iterator[Finding]:
    from lcp_engine.api.history import is_current

    try:
        is_there = is_current(url, BUSY_SECONDS)
    except LcpError:
        is_there = False  # the line about the database says why
    settings = replace(settings, busy_seconds=BUSY_SECONDS)
    for place, examine in load_all(installed().findings, FunctionType):
        name = place.partition(":")[0].removeprefix("lcp_engine.features.").split(".")[0]
        try:
            yield from guarded(name, partial(examine, url, settings, is_there))
        except Exception as raised:
            if is_shipped(place):
                raise
            leave_out(place, raised)


def _commands(options: MissionOptions, url: str, settings: Settings) -> Iterator[Finding]:
    """Programs that a mission may run."""
    from lcp_engine.features.programs.command_trials import try_commands_at

    spec = load_spec(options)
    if not spec.commands.allow:
        yield doubtful(
            "commands", f"{options.mission} allows none", "docs/commands.md shows how to allow some."
        )
    root = resolve_root(spec.root, Path(options.mission).parent, options.root)
    yield from try_commands_at(root, spec, url, settings)


def _root(path: Path) -> Iterator[Finding]:
    from lcp_engine.sandbox.root import Root, unfit_root
    from lcp_engine.sandbox.system.file_systems import shared_file_system

    if (unfit := unfit_root(str(path), str(path.resolve()))) is not None:
        yield broken("root", unfit)
        return
    shared = shared_file_system(path)
    if shared is not None:
        fact = (
            f"{path} is on {shared}, where the locks of runners on other machines may not exclude each other"
        )
        yield doubtful("root", fact, "Let the runners of one machine alone write to it.")
    with Root(path) as root:
        yield (
            well("root", root.path)
            if os.access(root.path, os.W_OK)
            else doubtful(
                "root",
                f"{root.path} can be read but not written",
                "Missions that write files need write permission.",
            )
        )
        if root.kernel:
            yield well("confinement", "the kernel resolves every path under the root (openat2)")
        else:
            fact = "paths are resolved step by step without following links: this kernel has no openat2"
            yield doubtful(
                "confinement", fact, "This is as safe but slower; links within the root are refused."
            )
