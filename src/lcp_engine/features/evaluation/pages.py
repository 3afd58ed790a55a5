"""The evaluations of a directory: how much of each planner is right, as a chart and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.evaluation.evaluation import SUMMARY
from lcp_engine.web.context import context_of

MOST_EVALUATIONS = 50
_MOST_BYTES = 1024 * 1024
_MOST_ENTRIES = 1000


class ShareShown(BaseModel):
    """So many of so many, with the interval of the true share."""

    count: int = Field(ge=0)
    of: int = Field(ge=0)
    low: float = Field(ge=0, le=1)
    high: float = Field(ge=0, le=1)

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else 0.0


class PlannerShown(BaseModel):
    """What a stored summary says of a planner."""

    planner: str
    trials: int
    completed: ShareShown
    right: ShareShown
    facts: ShareShown
    files: ShareShown
    kinds: ShareShown
    checks: ShareShown
    over_context: ShareShown
    causes: dict[str, int]
    cost: str | None
    currency: str | None
    mean: dict[str, float | None]
    missions: dict[str, tuple[int, int]] = Field(default={}, max_length=2000)
    """How many trials of each mission are right, of how many; empty in summaries of earlier versions."""


class _Stored(BaseModel):
    planners: tuple[PlannerShown, ...] = Field(max_length=20)


@dataclass(frozen=True)
class EvaluationShown:
    """An evaluation by the name of its directory; without planners if its summary cannot be read."""

    name: str
    planners: Sequence[PlannerShown]

    @property
    def missions(self) -> list[str]:
        """The missions in the order of the suite."""
        return [*dict.fromkeys(name for one in self.planners for name in one.missions)]

    @property
    def columns(self) -> list[tuple[str, list[str]]]:
        """The columns of the table, a cell for each planner; without those in which nothing was asked or measured."""
        columns = [(label, [cell(one) for one in self.planners]) for label, cell in _COLUMNS.items()]
        return [(label, cells) for label, cells in columns if any(cells)]


def _count(share: ShareShown) -> str:
    return f"{share.count} of {share.of}" if share.of else ""


def _mean(one: PlannerShown, name: str, digits: int = 1) -> str:
    value = one.mean.get(name)
    return "" if value is None else f"{value:,.{digits}f}"


def _tokens(one: PlannerShown) -> str:
    counts = [_mean(one, name, 0) for name in ("input_tokens", "output_tokens")]
    return ", ".join(count or "?" for count in counts) if any(counts) else ""


def _seconds(one: PlannerShown) -> str:
    seconds = _mean(one, "cpu_seconds")
    return f"{seconds} s" if seconds else ""


def _cost(one: PlannerShown) -> str:
    return f"{one.cost[:30]} {(one.currency or '')[:3]}" if one.cost else ""


_COLUMNS: Mapping[str, Callable[[PlannerShown], str]] = {
    "Right": lambda one: _count(one.right),
    "Completed": lambda one: _count(one.completed),
    "Facts": lambda one: _count(one.facts),
    "Files": lambda one: _count(one.files),
    "Kinds": lambda one: _count(one.kinds),
    "Checks": lambda one: _count(one.checks),
    "Over context": lambda one: _count(one.over_context),
    "Turns": lambda one: _mean(one, "turns"),
    "Tokens in, out": _tokens,
    "CPU": _seconds,
    "Cost": _cost,
}


def evals(request: Request) -> Response:
    """The newest evaluations. Raises `NOT_FOUND` if the server was given none."""
    context = context_of(request)
    if context.evals is None:
        raise LcpError(
            ErrorCode.NOT_FOUND,
            "this page was given no evaluations; a directory is expected",
            advice="Start it with `lcp serve --evals DIR`, the directory that `lcp eval run` writes to, or one above.",
        )
    return context.render(
        "evals.html", evaluations=list(found_evaluations(context.evals)), place=str(context.evals)
    )


def found_evaluations(place: Path) -> Iterator[EvaluationShown]:
    """The evaluation in a directory, and those right beneath it, the newest first."""
    files = [place / SUMMARY]
    for count, entry in enumerate(place.iterdir() if place.is_dir() else ()):
        if count == _MOST_ENTRIES:
            break
        files.append(entry / SUMMARY)
    there = sorted((file for file in files if file.is_file()), key=lambda file: -file.stat().st_mtime)
    for file in there[:MOST_EVALUATIONS]:
        yield EvaluationShown(file.parent.name, _planners(file))


def _planners(file: Path) -> Sequence[PlannerShown]:
    try:
        with file.open("rb") as stream:
            return _Stored.model_validate_json(stream.read(_MOST_BYTES)).planners
    except (OSError, ValidationError):
        return ()
