"""Explain decisions, and show and remove rules (`lcp policy explain`, `rules`, `remove`)."""

from __future__ import annotations

import sys

import click
from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from lcp_engine.cli.base import Invocation, LcpGroup, pass_invocation
from lcp_engine.cli.commands.completion import job_ids, mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import make_console, print_err, print_fitted, print_json, print_out
from lcp_engine.core.safe_text import one_line

_STYLES = {"auto": "green", "hold": "yellow", "deny": "red"}


@click.group("policy", cls=LcpGroup)
def policy_command() -> None:
    """Explain the rules that decide which jobs run, wait for a person, or are denied; take added ones back."""


@policy_command.command("explain", examples=("lcp policy explain 12",))
@click.argument("job", type=int, shell_complete=job_ids, metavar="J")
@pass_invocation
def explain_command(invocation: Invocation, job: int) -> int:
    """Show every rule that is checked for job J, in order, and the one that decides.

    The rules are today's: the mission's, and the policy in your configuration file. Whatever else can hold or reject a
    job (the permission level of its kind, the planner, limits) is listed as a gate; the strictest gate decides.
    """
    with invocation.engine() as engine:
        explained = engine.explain_policy(job)
    if invocation.json:
        print_json(explained)
    else:
        _print(make_console(sys.stdout), explained)
    return Exit.DONE


@policy_command.command("rules", examples=("lcp policy rules 3",))
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@pass_invocation
def rules_command(invocation: Invocation, mission: int) -> int:
    """List the rules of mission M in the order in which they are checked, with those that people added."""
    with invocation.engine() as engine:
        rules = engine.rules(mission)
    if invocation.json:
        print_json([rule.as_json() for rule in rules])
        return Exit.DONE
    for number, rule in enumerate(rules, 1):
        print_out(f"{number}  {rule.do:<4}  {one_line(str(rule))}")
    if not rules and not invocation.quiet:
        print_err(f"mission {mission} has no rules of its own")
    return Exit.DONE


@policy_command.command("remove", examples=("lcp policy remove 3 1",))
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.argument("number", type=int, metavar="N")
@pass_invocation
def remove_command(invocation: Invocation, mission: int, number: int) -> int:
    """Take rule N of mission M out, one that says auto: such jobs wait for a person again.

    Jobs that were requested before keep their state. A rule in your configuration file stays there.
    """
    with invocation.engine() as engine:
        rule = engine.remove_rule(mission, number)
    if invocation.json:
        print_json(rule.as_json())
    else:
        print_out(f"mission {mission}: rule {number} ({one_line(str(rule))}) is removed")
    return Exit.DONE


def _print(console: Console, explained: dict[str, JsonValue]) -> None:
    title = Text(
        f"job {explained['job_id']} {one_line(str(explained['kind']))} is {explained['state']}", style="bold"
    )
    if explained["reason"]:
        title.append(f"  {one_line(str(explained['reason']))}", style="not bold")
    print_fitted(console, title)
    for path in _objects(explained["paths"]):
        shown = one_line(str(path["path"])) or "(no path)"
        print_fitted(console, _line(f"{shown}", path["verdict"]))
        for rule in _objects(path["rules"]):
            print_fitted(console, _rule(rule))
    print_fitted(console, "gates")
    for gate in _objects(explained["gates"]):
        line = _line(f"  {gate['gate']}", gate["verdict"])
        print_fitted(console, line.append(f"  {one_line(str(gate['reason']))}"))
    print_fitted(
        console, _line("verdict", explained["verdict"]).append(f"  {one_line(str(explained['because']))}")
    )


def _line(label: str, verdict: JsonValue) -> Text:
    text = Text(f"{label}: ")
    return text.append(str(verdict), style=_STYLES.get(str(verdict), ""))


def _rule(rule: dict[str, JsonValue]) -> Text:
    how = "kind does not match"
    if rule["matches_kind"]:
        how = "matches" if rule["matches_path"] else "path does not match"
    if rule["decided"]:
        how = "decides"
    mark = "→" if rule["decided"] else " "
    text = Text(f"  {mark} {rule['origin']:<15}  ", style="bold" if rule["decided"] else "")
    return text.append(f"{one_line(str(rule['rule']))}: {how}")


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
