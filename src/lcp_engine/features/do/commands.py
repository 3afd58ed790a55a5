"""Launch a mission without a file (`lcp do`)."""

from __future__ import annotations

from collections.abc import Sequence

import click
from pydantic import JsonValue

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.load_mission import MissionOptions, goal_options, load_goal
from lcp_engine.cli.commands.run import approved_kinds, run_mission, work_options
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_json, print_out
from lcp_engine.core.mission.parse import GRANTED, without_variables
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.engine.points import root_provider
from lcp_engine.features.authoring.init import goal_lines, yaml_value

_FIRST = ("name", "goal", "root", "planner")


@click.command(
    "do",
    cls=LcpCommand,
    examples=(
        'lcp do "Write NOTES.md: what each file here is for." --planner human',
        'lcp do "Translate ${file} into German." --var file=README.md --stage',
        "lcp do - --root ~/src/shop --approve write_file < goal.txt",
        'lcp do "Write NOTES.md." --print > notes.yaml    then: lcp run notes.yaml',
    ),
)
@goal_options
@work_options
@click.option("--print", "prints", is_flag=True, help="Launch nothing; print it as a mission file.")
@pass_invocation
def do_command(
    invocation: Invocation,
    *,
    options: MissionOptions,
    threads: int,
    kinds: Sequence[str],
    prints: bool,
) -> int:
    """Launch a mission with GOAL, in quotes or - for stdin, and work on it like `lcp run`.

    It is confined to the current directory unless --root names another one. Jobs that change files are held for you
    as in any mission.
    """
    if not prints:
        return run_mission(invocation, options, load_goal, threads, kinds)
    approved_kinds(invocation, kinds)
    stated = mission_file(load_goal(options, invocation.planner_environment).spec)
    if invocation.json:
        print_json(stated)
    else:
        print_out("\n".join(_lines(stated)))
    return Exit.DONE


def mission_file(spec: MissionSpec) -> dict[str, JsonValue]:
    """The mission file that states a mission, whose texts have their variables filled in (pure)."""
    stated: dict[str, JsonValue] = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude={*GRANTED, *(() if root_provider().is_private(spec) else ("stage",))},
    )
    keys = sorted(stated, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    return {key: without_variables(stated[key]) for key in keys}


def _lines(stated: dict[str, JsonValue]) -> list[str]:
    """The file in YAML."""
    lines: list[str] = []
    for key, value in stated.items():
        lines += goal_lines(str(value)) if key == "goal" else [f"{key}: {yaml_value(value)}"]
    return lines
