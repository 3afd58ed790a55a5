"""A drawing of a plan: a column for each wave, a box for each step, lines to the steps that follow it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lcp_engine.core.job_states import SETTLED
from lcp_engine.core.plan_graph import GraphStep, PlanGraph, in_waves

BOX_WIDTH, BOX_HEIGHT = 150, 36
_COLUMN, _ROW, _MARGIN = 200, 52, 8
MOST_DRAWN = 200


@dataclass(frozen=True)
class Box:
    """A step at its place; `waits` are the steps that it still waits for."""

    step: GraphStep
    x: int
    y: int
    is_critical: bool
    waits: Sequence[str]


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
    """A plan as boxes and lines; `left_out` steps are not drawn."""

    graph: PlanGraph
    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[Line]
    left_out: int


def draw_plan(graph: PlanGraph) -> Drawing:
    """The drawing of a plan, of at most `MOST_DRAWN` steps."""
    drawn = in_waves(graph)[:MOST_DRAWN]
    path = [step.job for step in graph.critical_path]
    on_path = {*pairwise(path)}
    rows: Counter[int] = Counter()
    boxes: dict[int, Box] = {}
    for step in drawn:
        wave = graph.waves[step.job]
        x, y = _MARGIN + (wave - 1) * _COLUMN, _MARGIN + rows[wave] * _ROW
        rows[wave] += 1
        waits = [] if step.state in SETTLED else graph.awaited(step)
        boxes[step.job] = Box(step, x, y, len(path) > 1 and step.job in path, waits)
    lines = [
        _line(boxes[link.job], box, link.needs.value, is_critical=(link.job, box.step.job) in on_path)
        for box in boxes.values()
        for link in box.step.after
        if link.job in boxes
    ]
    width = max((box.x for box in boxes.values()), default=0) + BOX_WIDTH + _MARGIN
    height = max((box.y for box in boxes.values()), default=0) + BOX_HEIGHT + _MARGIN
    return Drawing(graph, width, height, [*boxes.values()], lines, len(graph.steps) - len(drawn))


def _line(first: Box, second: Box, needs: str, *, is_critical: bool) -> Line:
    middle = BOX_HEIGHT // 2
    return Line(first.x + BOX_WIDTH, first.y + middle, second.x, second.y + middle, needs, is_critical)
