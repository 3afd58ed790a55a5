"""A drawing of a plan: a column for each wave, a box for each step, lines to the steps that follow it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lcp_engine.core.job_states import SETTLED
from lcp_engine.features.plans.graph import GraphStep, PlanGraph, in_waves

BOX_HEIGHT = 52
_WIDEST, _NARROWEST, _GAP, _ROW, _MARGIN = 230, 120, 36, 64, 8
_WINDOW = 1080
"""The width of a page: columns are as narrow as that all fit into it, but not narrower than can be read."""
MOST_DRAWN = 200
LEAST_FOLDED = 6
"""So many steps of one kind and state, with the same steps before and after them, are drawn as one box."""


@dataclass(frozen=True)
class Box:
    """Steps at their place, one or many that are equal; `waits` are the steps that they still wait for."""

    steps: Sequence[GraphStep]
    x: int
    y: int
    is_critical: bool
    waits: Sequence[str]

    @property
    def step(self) -> GraphStep:
        return self.steps[0]


@dataclass(frozen=True)
class Line:
    """From the right of one box to the left of another; `needs` is what the second one needs of the first."""

    x1: int
    y1: int
    x2: int
    y2: int
    needs: str
    is_critical: bool


@dataclass(frozen=True)
class Drawing:
    """A plan as boxes and lines; `left_out` steps are not drawn. The lines of a box are found by its first job."""

    graph: PlanGraph
    width: int
    height: int
    box_width: int
    boxes: Sequence[Box]
    lines: Sequence[Line]
    lines_of: dict[int, list[Line]]
    left_out: int


def draw_plan(graph: PlanGraph) -> Drawing:
    """The drawing of a plan, of at most `MOST_DRAWN` boxes."""
    folded = _folded(graph)
    drawn = folded[:MOST_DRAWN]
    path = [step.job for step in graph.critical_path]
    on_path = {*pairwise(path)}
    waves = max((graph.waves[steps[0].job] for steps in drawn), default=1)
    column = max(_NARROWEST, min(_WIDEST, (_WINDOW - _MARGIN) // waves))
    rows: Counter[int] = Counter()
    boxes, of_job = list[Box](), dict[int, Box]()
    for steps in drawn:
        wave, jobs = graph.waves[steps[0].job], {step.job for step in steps}
        x, y = _MARGIN + (wave - 1) * column, _MARGIN + rows[wave] * _ROW
        rows[wave] += 1
        waits = [] if steps[0].state in SETTLED else graph.awaited(steps[0])
        boxes.append(Box(steps, x, y, len(path) > 1 and not jobs.isdisjoint(path), waits))
        of_job |= dict.fromkeys(jobs, boxes[-1])
    lines = dict[tuple[int, int, str], Line]()
    lines_of: dict[int, list[Line]] = defaultdict(list)
    middle, width = BOX_HEIGHT // 2, column - _GAP
    for step, link in [(one, link) for box in boxes for one in box.steps for link in one.after]:
        if (first := of_job.get(link.job)) is None:
            continue
        second, is_critical = of_job[step.job], (link.job, step.job) in on_path
        key = (first.step.job, second.step.job, link.needs.value)
        if key not in lines or (is_critical and not lines[key].is_critical):
            ends = (first.x + width, first.y + middle, second.x, second.y + middle)
            lines[key] = Line(*ends, link.needs.value, is_critical)
    for (before, after, _), line in lines.items():
        lines_of[before].append(line)
        lines_of[after].append(line)
    right = max((box.x for box in boxes), default=0) + width + _MARGIN
    height = max((box.y for box in boxes), default=0) + BOX_HEIGHT + _MARGIN
    left_out = sum(map(len, folded[MOST_DRAWN:]))
    return Drawing(graph, right, height, width, boxes, [*lines.values()], lines_of, left_out)


def _folded(graph: PlanGraph) -> list[Sequence[GraphStep]]:
    """The steps by wave, those that are equal together if they are many."""
    followers: dict[int, list[int]] = defaultdict(list)
    for step in graph.steps:
        for link in step.after:
            followers[link.job].append(step.job)
    alike: dict[object, list[GraphStep]] = defaultdict(list)
    for step in in_waves(graph):
        alike[graph.waves[step.job], step.kind, step.state, step.after, tuple(followers[step.job])].append(
            step
        )
    return [
        part
        for steps in alike.values()
        for part in ([steps] if len(steps) >= LEAST_FOLDED else [[step] for step in steps])
    ]
