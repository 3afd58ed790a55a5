"""Say what a mission would do, without launching it (`lcp validate`, `lcp run --dry-run`)."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, naming, pass_invocation
from lcp_engine.cli.commands.load_mission import MissionOptions, load, mission_options
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_json, print_out
from lcp_engine.core.mission.spec import NO_PLANNER
from lcp_engine.core.safe_text import Shown, one_line, sentence, shortened
from lcp_engine.features.plans.stated_plan import PlanKeys

if TYPE_CHECKING:
    from lcp_engine.features.authoring.dry_run import DryRun, RootOutlook

WIDTH = 80
_LABEL = 10
_MOST_SCRIPTED = 20


@click.command(
    "validate",
    cls=LcpCommand,
    examples=(
        "lcp validate mission.yaml",
        "lcp validate mission.yaml --root DIR --var language=en --json",
    ),
)
@mission_options
@pass_invocation
def validate_command(invocation: Invocation, *, options: MissionOptions) -> int:
    """Check MISSION and print what it would do: root, planner, which kinds run or wait; with -v the worst case.

    Nothing is launched and nothing is written. A model's server is not asked; `lcp doctor --mission` does that. Exit
    code 0: valid, even with warnings.
    """
    return print_dry_run(invocation, options, ())


def print_dry_run(invocation: Invocation, options: MissionOptions, approved: Collection[str]) -> int:
    """Print what is known of the mission; jobs of the kinds `approved` are approved without asking."""
    from lcp_engine.engine.instance import admission_for
    from lcp_engine.features.authoring.dry_run import dry_run
    from lcp_engine.settings import has_room

    invocation.load_workers()
    settings, url = invocation.settings, invocation.database_url
    environment = invocation.planner_environment
    spec, root, _ = load(options, environment)
    place = url if has_room(url) else None
    with naming(url):
        found = dry_run(spec, root, place, admission_for(place, settings.policy), environment)
    if invocation.json:
        print_json({**found.json, "approved": sorted(approved)})
    else:
        for label, text in _lines(found, approved, verbose=invocation.verbose):
            _print(label, text)
    return Exit.DONE


def _lines(found: DryRun, approved: Collection[str], *, verbose: bool) -> Iterator[tuple[str, str]]:
    spec, planner = found.spec, found.spec.planner
    yield "mission", Shown(f"{one_line(spec.name)}: {shortened(spec.goal.strip().splitlines()[0], 200)}")
    yield "root", _root(found.root)
    yield (
        "planner",
        f"{planner.type}, {'a model, which is not asked now' if found.asks_model else 'which uses no model'}",
    )
    yield from _kinds(found, approved)
    yield from _script(found)
    for check in spec.accept:
        yield "accept", check.description
    if spec.endings:
        yield "endings", f"completed by {' or '.join(spec.endings)} alone"
    if (plan := PlanKeys.of(spec).plan) is not None:
        yield "plan", f"{len(plan.steps):,} steps; `lcp plan check` shows them"
    if verbose and planner.type != NO_PLANNER:
        yield "worst case", found.worst_case.line.removeprefix("worst case: ")
    for warning in found.warnings:
        yield "warning", warning
    count = len(found.warnings)
    warnings = f"; {count} warning{'s' * (count > 1)}" if count else ""
    yield "valid", f"nothing was launched{warnings}"


def _kinds(found: DryRun, approved: Collection[str]) -> Iterator[tuple[str, str]]:
    from lcp_engine.core.policy import Verdict

    for verdict, label in ((Verdict.AUTO, "runs"), (Verdict.HOLD, "held"), (Verdict.DENY, "denied")):
        kinds = [one.kind for one in found.kinds if one.verdict is verdict]
        if kinds:
            yield label, ", ".join(kinds)
    taken = [
        one.kind
        for one in found.kinds
        if one.verdict is Verdict.HOLD and ("all" in approved or one.kind in approved)
    ]
    if taken:
        yield "approved", f"{', '.join(taken)}, without asking"
    rules: dict[str, list[str]] = {}
    for one in found.kinds:
        for rule in one.by_path:
            rules.setdefault(rule, []).append(one.kind)
    for rule, kinds in sorted(rules.items()):
        yield "by path", f"{rule}, for {', '.join(kinds)}"


def _script(found: DryRun) -> Iterator[tuple[str, str]]:
    """Requests of a script's replies that policy does not simply run."""
    words = {"hold": "is held", "deny": "is denied"}
    for job in found.script[:_MOST_SCRIPTED]:
        verdict = words[job.verdict]
        yield "script", f"reply {job.reply}: {job.kind} {job.about} {verdict}: {job.reason}"
    if len(found.script) > _MOST_SCRIPTED:
        yield "script", f"and {len(found.script) - _MOST_SCRIPTED} more; --json lists all"


def _root(root: RootOutlook) -> str:
    facts = [root.path, "writable" if root.is_writable else "not writable"]
    if root.branch is not None:
        changed = "clean" if not root.changed else f"{root.changed} uncommitted"
        facts.append(f"git {root.branch}, {changed}")
    return ", ".join(facts)


def _print(label: str, text: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    indent = f"{'':<{_LABEL}}  "
    shown: Sequence[str] = textwrap.wrap(
        sentence(text), max(width, 40), initial_indent=f"{label:<{_LABEL}}  ", subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    print_out("\n".join(shown))
