"""Approve a held job with a rule that lets such jobs run from now on (`lcp approve --always`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.idle import advise
from lcp_engine.cli.console.output import print_err, print_json, print_out
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.rules.calls import add_rule_with_approval

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.core.policy import Rule

SCOPES = {"mission": "in this mission", "user": "in this mission, and in all that you launch from now on"}


def approve_always(
    invocation: Invocation, engine: Engine, job_id: int, scope: str, paths: Sequence[str],
    *, mark: str | None, by: str | None,
) -> int:  # fmt: skip
    """Show the rule, ask the terminal, approve the job and add the rule."""
    from lcp_engine.cli.commands.changes import seen_with

    rule = chosen_rule(engine, job_id, paths)
    if not invocation.json:
        print_err(f"{rule_line(rule)}: {SCOPES[scope]}")
    if not invocation.json and sys.stdin.isatty() and sys.stderr.isatty():
        from lcp_engine.cli.console.keyboard import Closed
        from lcp_engine.cli.console.terminal import confirm

        try:
            is_meant = confirm("add this rule, and approve the job?")
        except Closed:
            is_meant = False
        if not is_meant:
            raise click.Abort
    shown = engine.last_seen(job_id) if mark is None else seen_with(engine, job_id, mark)
    released = add_rule_with_approval(engine, job_id, rule, scope, shown=shown, by=by)
    if invocation.json:
        print_json([engine.job(one).json for one in (job_id, *released)])
        return Exit.DONE
    print_out(f"job {job_id} approved")
    for one in released:
        print_out(f"job {one} approved by the rule")
    advise(invocation, engine, "`lcp work --until-idle` executes approved jobs")
    return Exit.DONE


def chosen_rule(engine: Engine, job_id: int, paths: Sequence[str]) -> Rule:
    """The narrowest rule for the job, or one about these paths. Raises `NOT_ALLOWED` if there is none."""
    rules = engine.rules_for(job_id)
    if not rules:
        message = f"no rule can let jobs like job {job_id} run: a person decides each of them"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=f"Approve it alone: `lcp approve {job_id}`.")
    return _about(rules[0], paths) if paths else rules[0]


def _about(rule: Rule, paths: Sequence[str]) -> Rule:
    """The rule for these paths instead of its own."""
    return rule.model_copy(update={"paths": tuple(paths)})


def ask_for_rule(engine: Engine, job_id: int) -> tuple[Rule, str] | None:
    """Ask at the terminal for a rule and where it holds; None if the person wants none."""
    from lcp_engine.cli.console.keyboard import Closed
    from lcp_engine.cli.console.terminal import Choice, choose, print_line, read_line

    rules = engine.rules_for(job_id)
    if not rules:
        print_line("  no rule can let such jobs run: a person decides each of them")
        return None
    *listed, asked = rule_question(rules).split("\n")
    for line in listed:
        print_line(f"  {line}")
    try:
        said = read_line(f"  {asked} (empty: none): ")
        if not said:
            return None
        rule = rule_of(rules, said)
        print_line(f"  {rule_line(rule)}")
        scope = choose(
            "  where?", (Choice("mission", ": this one"), Choice("user", ": all of yours"), Choice("none"))
        )
    except Closed:
        return None
    return None if scope == "none" else (rule, scope)


def rule_question(rules: Sequence[Rule]) -> str:
    """The rules that would let a job run, a line each, then what a person types to choose one."""
    own = "" if rules[0].paths is None else ", or a pattern of paths"
    listed = [f"{number}) {rule_line(rule)}" for number, rule in enumerate(rules, 1)]
    return "\n".join([*listed, f"which rule? 1{f' to {len(rules)}' if len(rules) > 1 else ''}{own}"])


def rule_of(rules: Sequence[Rule], said: str) -> Rule:
    """The rule of that number, or the first one about the pattern that was typed instead."""
    if said.isdecimal() and 1 <= int(said) <= len(rules):
        return rules[int(said) - 1]
    return rules[0] if rules[0].paths is None else _about(rules[0], [said])


def rule_line(rule: Rule) -> str:
    """A rule in words, on one line."""
    kinds = ", ".join(rule.kinds)
    about = "" if rule.paths is None else f" of {', '.join(rule.paths)}"
    return one_line(f"{kinds}{about} runs without asking")
