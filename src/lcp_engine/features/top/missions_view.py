"""The view of all missions, and of one mission's turns and jobs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from lcp_engine import Mission
from lcp_engine.cli.console.output import coloured, wait_line
from lcp_engine.cli.job_tables import summarize
from lcp_engine.cli.tables import (
    Table,
    end_of,
    fact_column,
    id_column,
    mark_of,
    number_column,
    text_column,
)
from lcp_engine.core.json_values import JsonObject, int_in, object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.safe_text import one_line, sentence, shortened
from lcp_engine.core.summaries import age, status_of, subject
from lcp_engine.features.reports.reports import error_lines
from lcp_engine.features.top.lines import Content, Lines, Row, text_of
from lcp_engine.features.top.watch import MOST_MISSIONS, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable


class MissionsView(Vertical):
    """Missions above, the selected one's turns and jobs below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open"),
        Binding("d", "diff", "diff"),
        Binding("c", "cancel", "cancel"),
        Binding("tab", "app.focus_next", "jobs"),
    ]

    class Chosen(Message):
        """The cursor is on another mission."""

        def __init__(self, mission_id: int) -> None:
            super().__init__()
            self.mission_id = mission_id

    class Opened(Message):
        """The person wants to see a job."""

        def __init__(self, job_id: int) -> None:
            super().__init__()
            self.job_id = job_id

    class DiffWanted(Message):
        """The person wants to see what a job, or else the mission, would change or has changed."""

        def __init__(self, mission_id: int, job_id: int | None) -> None:
            super().__init__()
            self.mission_id = mission_id
            self.job_id = job_id

    class CancelWanted(Message):
        """The person wants to cancel a mission."""

        def __init__(self, mission_id: int) -> None:
            super().__init__()
            self.mission_id = mission_id

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self.missions = Lines(id="missions")
        self.job_tree = Lines(id="tree")

    def compose(self) -> ComposeResult:
        yield self.missions
        yield self.job_tree

    def show(self, snapshot: Snapshot) -> None:
        self.missions.show(missions_of(snapshot))
        chosen = self.missions.selected
        if snapshot.mission is None or snapshot.mission.id == chosen:
            self.job_tree.show(tree_of(snapshot))

    @on(Lines.Selected, "#missions")
    def choose(self, event: Lines.Selected) -> None:
        event.stop()
        self.job_tree.show(lambda width: Content(()), is_new=True)
        self.post_message(self.Chosen(event.key))

    @on(Lines.Selected, "#tree")
    def ignore(self, event: Lines.Selected) -> None:
        event.stop()

    def action_open(self) -> None:
        """Go from the mission to its jobs, and from a job to what it does."""
        if not self.job_tree.has_focus:
            self.job_tree.focus()
        elif self.job_tree.selected is not None:
            self.post_message(self.Opened(self.job_tree.selected))

    def action_diff(self) -> None:
        mission_id = self.missions.selected
        if mission_id is not None:
            job_id = self.job_tree.selected if self.job_tree.has_focus else None
            self.post_message(self.DiffWanted(mission_id, job_id))

    def action_cancel(self) -> None:
        if self.missions.selected is not None:
            self.post_message(self.CancelWanted(self.missions.selected))


def missions_of(snapshot: Snapshot) -> Callable[[int], Content]:
    """The table of missions."""

    def make(width: int) -> Content:
        now = datetime.now(UTC)
        table = Table([
            id_column("id"),
            text_column("name"),
            fact_column("status"),
            text_column("outcome", least=8, spare=0),
            number_column("turns", spare=1),
            number_column("jobs"),
            number_column("held"),
            fact_column("created", spare=2),
            text_column("goal", least=20),
        ])  # fmt: skip
        for mission in snapshot.missions:
            jobs = {state: int_in(count) for state, count in object_in(mission["jobs"]).items()}
            table.add(
                str(mission["id"]),
                str(mission["name"]),
                status_of(mission),
                str(mission["outcome"] or "-"),
                str(mission["turns"]),
                f"{sum(jobs.values()):,}",
                f"{jobs.get('held', 0):,}",
                age(str(mission["created_at"]), now),
                str(mission["goal"]),
            )
        content = table_content(table, width, [int_in(mission["id"]) for mission in snapshot.missions])
        if not snapshot.missions:
            return Content(
                [Row(Text("No missions. `lcp run survey --root .` runs a first one.", style="dim"))]
            )
        if len(snapshot.missions) < MOST_MISSIONS:
            return content
        more = Row(Text(f"the newest {MOST_MISSIONS}; `lcp missions` lists all", style="dim"))
        return Content([*content.rows, more], content.heading)

    return make


def table_content(table: Table, width: int, keys: Sequence[int]) -> Content:
    """A table whose rows have these keys; of a row of several lines the first has it."""
    heading, rows = table.blocks(width)
    lines = [
        Row(text_of(line), None if number else key)
        for row, key in zip(rows, keys, strict=False)
        for number, line in enumerate(row)
    ]
    return Content(lines, None if heading is None else text_of(heading))


def tree_of(snapshot: Snapshot) -> Callable[[int], Content]:
    """The turns and jobs of the selected mission."""

    def make(width: int) -> Content:
        mission = snapshot.mission
        if mission is None:
            return Content(())
        rows = [*_head(mission)]
        rows += [Row(Text(end_of(words, width), style="cyan")) for words in snapshot.drafts.values()]
        if snapshot.has_older_jobs:
            rows.append(
                Row(
                    Text(
                        f"  older jobs are left out; `lcp jobs --mission {mission.id}` lists all", style="dim"
                    )
                )
            )
        return Content([*rows, *_tree(snapshot.jobs)], _title(mission))

    return make


def _title(mission: Mission) -> Text:
    title = Text.assemble(
        f"mission {mission.id} {one_line(mission.name)}  ", coloured(status_of(mission.json))
    )
    return title.append(f" {one_line(mission.outcome or '')}")


def _head(mission: Mission) -> Iterator[Row]:
    """Goal and outcome of a mission."""
    mark = mark_of(sys.__stderr__)
    yield Row(Text(f"{mark}{sentence(mission.goal)}", style="italic"))
    if mission.root:
        yield Row(Text(one_line(mission.root), style="dim"))
    if mission.waits_for:
        yield Row(Text(wait_line(mission.waits_for), style="yellow"))
    for line in error_lines(mission.error):
        yield Row(Text(f"{mark}{sentence(line)}", style="red"))
    if mission.summary:
        yield Row(Text(f"{mark}{sentence(mission.summary)}", style="green"))


def _tree(jobs: Sequence[JsonObject]) -> Iterator[Row]:
    """Each job below the one that requested it, in the order of their ids."""
    known = {job["id"] for job in jobs}
    children: Mapping[object, list[JsonObject]] = defaultdict(list)
    for job in jobs:
        parent = job["parent_id"]
        children[parent if parent in known else None].append(job)
    pending = [(job, "", "") for job in reversed(children[None])]
    while pending:
        job, before, below = pending.pop()
        line = Text.assemble((before, "dim"), _job_line(job), no_wrap=True)
        yield Row(line, int_in(job["id"]))
        inner = children.get(job["id"], [])
        last = len(inner) - 1
        nested = [
            (one, f"{below}{'└─ ' if at == last else '├─ '}", f"{below}{'   ' if at == last else '│  '}")
            for at, one in enumerate(inner)
        ]
        pending.extend(reversed(nested))


def _job_line(job: JsonObject) -> Text:
    """A job with its state before what may be long."""
    why = sentence(shortened(summarize(job), 200))
    if job["kind"] == TURN:
        name = f"turn {job['turn']}" if job["turn"] else "next turn"
    else:
        name = f"{one_line(str(job['kind']))} {subject(job)}"
    return Text.assemble((f"{job['id']} ", "dim"), coloured(str(job["state"])), f"  {name}  ", (why, "dim"))
