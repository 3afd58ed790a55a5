"""Run a suite of missions with several planners, and show and compare what came of it (`lcp eval`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fnmatch import filter as filter_names
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Count, Invocation, LcpGroup, pass_invocation
from lcp_engine.cli.commands.completion import planner_names
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_json_line, print_out
from lcp_engine.cli.tables import (
    Column,
    Table,
    fact_column,
    name_column,
    number_column,
    print_table,
    text_column,
)
from lcp_engine.core.limits.money import told_amount
from lcp_engine.core.summaries import duration, nearest
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine.features.evaluation.comparison import FigureDifference
    from lcp_engine.features.evaluation.evaluation import FinishedTrial
    from lcp_engine.features.evaluation.scores import Score
    from lcp_engine.features.evaluation.summary import PlannerSummary, Share

_MOST_NAMED = 6


@click.group("eval", cls=LcpGroup)
def eval_command() -> None:
    """Measure planners: run missions whose results are known, and count what is right."""


@eval_command.command(
    "run",
    examples=(
        "lcp eval run evals/small.yaml --to first",
        "lcp eval run evals/small.yaml --planner local --repeat 3 --parallel 2",
    ),
)
@click.argument("suite", type=click.Path(path_type=Path), metavar="SUITE")
@click.option("--to", "place", type=click.Path(path_type=Path), metavar="DIR",
              help="Where its database and the copies of its roots are.  [default: SUITE.eval, here]")  # fmt: skip
@click.option("--planner", "planners", multiple=True, metavar="NAME", shell_complete=planner_names,
              help="Only this planner of the suite, or another one by its type; may be repeated.")  # fmt: skip
@click.option("--mission", "missions", multiple=True, metavar="NAME",
              help="Only this mission, or those that a shell pattern matches; may be repeated.")  # fmt: skip
@click.option("--repeat", type=Count(1, 100), metavar="N", help="Run each mission N times with each planner.")
@click.option(
    "--parallel", type=Count(1, 64), metavar="N", default=1, show_default=True, help="Missions at a time."
)
@pass_invocation
def run_command(
    invocation: Invocation,
    *,
    suite: Path,
    place: Path | None,
    planners: Sequence[str],
    missions: Sequence[str],
    repeat: int | None,
    parallel: int,
) -> int:
    """Run each mission of SUITE with each planner, in a copy of its root, and print what is right.

    The same command continues an evaluation that was interrupted or killed. The exit code is 0 whatever the results;
    `--json` prints the figures.
    """
    from lcp_engine.cli.console.signals import catching_interrupts
    from lcp_engine.features.evaluation.evaluation import Evaluation

    _refuse_database(invocation)
    evaluation = Evaluation.begin(
        suite, place or Path(f"{suite.stem}.eval"), planners=planners, repeat=repeat
    )
    invocation.db = evaluation.url
    chosen = _matching(missions, [mission.name for mission in evaluation.suite.missions])
    count = len(evaluation.trials())

    def tell(finished: FinishedTrial) -> None:
        if invocation.json:
            print_json_line(finished.score.json)
        elif not invocation.quiet:
            print_err(f"{finished.trial.number}/{count} {_line(finished)}")

    with invocation.engine() as engine, catching_interrupts():
        try:
            evaluation.run(
                engine, parallel=parallel, missions=chosen, options=_options(invocation), tell=tell
            )
        except KeyboardInterrupt:
            print_err("interrupted; nothing is lost, and the same command continues")
            return Exit.INTERRUPTED
        scores = evaluation.scores(engine)
    if invocation.json:
        return Exit.DONE
    _print(scores)
    if not invocation.quiet:
        print_err(f"`lcp eval show {evaluation.place}` shows each mission")
    return Exit.DONE


def _refuse_database(invocation: Invocation) -> None:
    if invocation.db is not None:
        raise click.UsageError("--db: an evaluation has a database of its own, in the directory of --to")


def _matching(patterns: Sequence[str], known: Sequence[str]) -> set[str]:
    """The missions that one of the patterns matches; all without a pattern."""
    for pattern in patterns:
        if not filter_names(known, pattern):
            message = f"--mission {pattern!r} matches no mission of the suite; {nearest(pattern, known)}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return {name for pattern in patterns or ("*",) for name in filter_names(known, pattern)}


def _options(invocation: Invocation) -> list[str]:
    """The global options that name kinds, for the processes that execute their jobs."""
    files = [part for file in invocation.workers for part in ("--workers", str(Path(file).absolute()))]
    own = [
        part for file in invocation.planner_files for part in ("--planner-file", str(Path(file).absolute()))
    ]
    return files + own + [part for stated in invocation.programs for part in ("--exec", stated)]


def _line(finished: FinishedTrial) -> str:
    score, record = finished.score, finished.score.record
    cpu = "" if record.cpu_seconds is None else f", {duration(record.cpu_seconds)} of CPU"
    trouble = "" if finished.trouble is None else f": {finished.trouble}"
    turns = f"{record.turns} turn{'s' * (record.turns != 1)}"
    return f"{record.mission} ({record.planner}): {score.cause or 'right'}, {turns}{cpu}{trouble}"


@eval_command.command("show", examples=("lcp eval show first", "lcp eval show first --json"))
@click.argument("place", type=click.Path(path_type=Path), metavar="DIR")
@pass_invocation
def show_command(invocation: Invocation, *, place: Path) -> int:
    """Show the evaluation in DIR: a table of its planners, and one of its missions."""
    scores = _scores(invocation, place)
    if invocation.json:
        from lcp_engine.features.evaluation.summary import summarize_scores

        summaries = [summary.json for summary in summarize_scores(scores)]
        print_json({"planners": [*summaries], "trials": [score.json for score in scores]})
        return Exit.DONE
    _print(scores)
    print_out("")
    _print_missions(scores)
    return Exit.DONE


@eval_command.command("compare", examples=("lcp eval compare first second",))
@click.argument("old", type=click.Path(path_type=Path), metavar="OLD")
@click.argument("new", type=click.Path(path_type=Path), metavar="NEW")
@pass_invocation
def compare_command(invocation: Invocation, *, old: Path, new: Path) -> int:
    """Compare two evaluations mission by mission: what is better or worse in NEW, and how likely by chance."""
    from lcp_engine.features.evaluation.comparison import compare_scores

    differences = compare_scores(_scores(invocation, old), _scores(invocation, new))
    if invocation.json:
        print_json([difference.json for difference in differences])
        return Exit.DONE
    if not any(difference.old is not None for difference in differences):
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"{str(old)!r} and {str(new)!r} have no mission with one planner in common",
        )
    table = Table([
        name_column("figure"), number_column("old"), number_column("new"), number_column("better"),
        number_column("worse"), fact_column("by chance"),
    ])  # fmt: skip
    for one in differences:
        if one.old is not None and one.new is not None:
            cells = (_told(one.figure, one.old), _told(one.figure, one.new))
            table.add(_title(one.figure), *cells, str(len(one.better)), str(len(one.worse)), _odds(one))
    print_table(table, sys.stdout)
    for line in _named(differences[0]):
        print_out(line)
    return Exit.DONE


def _scores(invocation: Invocation, place: Path) -> Sequence[Score]:
    """Scores of the trials of the evaluation in a directory, whose database the invocation then uses."""
    from lcp_engine.features.evaluation.evaluation import Evaluation

    evaluation = Evaluation.open(place)
    invocation.db = evaluation.url
    with invocation.engine() as engine:
        return evaluation.scores(engine)


def _print(scores: Sequence[Score]) -> None:
    """Print what is right of each planner, why the rest is not, and what a trial takes."""
    from lcp_engine.features.evaluation.summary import summarize_scores

    if not scores:
        print_err("No mission has been run yet.")
        return
    summaries = summarize_scores(scores)
    _print_filled(
        [name_column("planner"), number_column("trials"), number_column("completed", spare=0),
         fact_column("right (95%)"), *map(number_column, ("facts", "files", "kinds", "checks"))],
        [[one.planner, str(len(one.scores)), *_counts(one)] for one in summaries],
    )  # fmt: skip
    for one in summaries:
        if one.causes:
            said = ", ".join(f"{count} {cause}" for cause, count in one.causes.items())
            print_out(f"not right with {one.planner}: {said}")
    print_out("")
    names = ("turns", "corr.", "over context", "tokens in", "out", "time", "CPU", "cost")
    _print_filled(
        [name_column("planner"), *map(number_column, names)],
        [[one.planner, *_means(one)] for one in summaries],
    )


def _print_filled(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table without the columns in which nothing was asked or measured."""
    filled = [at for at in range(len(columns)) if any(row[at] != "-" for row in rows)]
    table = Table([columns[at] for at in filled])
    for row in rows:
        table.add(*(row[at] for at in filled))
    print_table(table, sys.stdout)


def _share(share: Share) -> str:
    low, high = share.interval
    return f"{share.count / share.of:.0%} ({low * 100:.0f}-{high * 100:.0f})" if share.of else "-"


def _count(share: Share) -> str:
    return f"{share.count}/{share.of}" if share.of else "-"


def _counts(summary: PlannerSummary) -> Iterator[str]:
    yield _count(summary.completed)
    yield _share(summary.right)
    yield from map(_count, (summary.facts, summary.files, summary.kinds, summary.checks))


def _means(summary: PlannerSummary) -> Iterator[str]:
    from lcp_engine.features.evaluation.summary import FIGURES

    means = {name: summary.mean(figure) for name, figure in FIGURES.items()}
    for name in ("turns", "corrections"):
        yield _told(name, means[name], summary.currency)
    yield _count(summary.over_context)
    for name in ("input_tokens", "output_tokens", "seconds", "cpu_seconds", "cost"):
        yield _told(name, means[name], summary.currency)


def _print_missions(scores: Sequence[Score]) -> None:
    table = Table([
        name_column("mission"), fact_column("planner"), number_column("right"), number_column("facts"),
        number_column("files"), text_column("not right"),
    ])  # fmt: skip

    def tried(score: Score) -> tuple[str, str]:
        return score.record.mission, score.record.planner

    for (mission, planner), group in groupby(sorted(scores, key=tried), key=tried):
        runs = list(group)
        causes = sorted({score.cause for score in runs if score.cause is not None})
        facts = f"{sum(one.facts for one in runs)}/{sum(one.facts_asked for one in runs)}"
        files = f"{sum(one.files for one in runs)}/{sum(one.files_named for one in runs)}"
        right = f"{sum(one.is_right for one in runs)}/{len(runs)}"
        table.add(mission, planner, right, facts, files, ", ".join(causes))
    print_table(table, sys.stdout)


_TITLES = {
    "facts": "facts right", "files": "named files read", "kinds": "kinds used", "checks": "checks passed",
    "over_context": "prompts over the context", "input_tokens": "tokens of prompts",
    "output_tokens": "tokens of replies", "seconds": "time", "cpu_seconds": "CPU",
}  # fmt: skip
_SHARES = ("right", "completed", "facts", "files", "kinds", "checks")


def _title(figure: str) -> str:
    return _TITLES.get(figure, figure)


def _told(figure: str, value: float | None, currency: str | None = None) -> str:
    """A figure for people."""
    if value is None:
        return "-"
    if figure in _SHARES:
        return f"{value:.0%}"
    match figure:
        case "seconds" | "cpu_seconds":
            return duration(value)
        case "cost":
            return told_amount(f"{value:.9f}", currency or "").rstrip()
        case "input_tokens" | "output_tokens":
            return f"{value:,.0f}"
        case _:
            return f"{value:,.1f}"


def _odds(difference: FigureDifference) -> str:
    if not difference.better and not difference.worse:
        return "-"
    return "< 0.1%" if difference.odds < 0.001 else f"{difference.odds:.1%}"


def _named(right: FigureDifference) -> Iterator[str]:
    """The missions that are right now and were not, and the other way round."""
    for word, missions in (("right now", right.better), ("no longer right", right.worse)):
        if missions:
            more = len(missions) - _MOST_NAMED
            rest = f" and {more} more" if more > 0 else ""
            yield f"{word}: {', '.join(missions[:_MOST_NAMED])}{rest}"
