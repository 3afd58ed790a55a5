"""Show progress while a mission runs: a live line on terminals, plain lines elsewhere, events for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, Self

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from lcp_engine.api.engine import Engine
from lcp_engine.cli.base import Invocation
from lcp_engine.cli.commands.events import EventFormatter, hung, waits_for_in
from lcp_engine.cli.console.output import make_console, print_json_line, wait_line
from lcp_engine.cli.tables import cut, end_of, mark_of
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.kinds import TURN
from lcp_engine.core.limits.money import told_cost
from lcp_engine.core.safe_text import one_line, sentence
from lcp_engine.core.summaries import subject
from lcp_engine.features.reports.progress import Measure

_SPINNER_WIDTH = 2
"""Terminal cells of the spinner and the blank behind it."""


class Progress(Protocol):
    """Shows events as they happen."""

    def show(self, events: Sequence[JsonObject]) -> None:
        """Show new events; also called when there are none."""

    def note(self, text: str) -> None:
        """Print a message that is not an event."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question."""


@contextmanager
def showing(invocation: Invocation, engine: Engine, *, all_missions: bool = False) -> Iterator[Progress]:
    """The form of progress that suits the options and the terminal."""
    if invocation.log == "json":
        from lcp_engine.features.telemetry.log import logging_json

        with logging_json(engine) as log:
            yield Events() if invocation.json else log
    elif invocation.json:
        yield Events()
    elif invocation.quiet:
        yield Silence()
    else:
        measure = None if all_missions else Measure()
        formatter = EventFormatter(
            engine, verbose=invocation.verbose, names_mission=all_missions, measure=measure
        )
        if sys.stderr.isatty():
            with LiveLine(engine, formatter) as live:
                yield live
        else:
            yield Lines(formatter)


class Silence:
    """No progress."""

    def show(self, events: Sequence[JsonObject]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield


class Events(Silence):
    """Prints each event as a JSON object on a line of stdout."""

    def show(self, events: Sequence[JsonObject]) -> None:
        for event in events:
            print_json_line(event)


class Lines(Silence):
    """Prints lines on stderr, for log files."""

    def __init__(self, formatter: EventFormatter) -> None:
        self._formatter = formatter
        self._console = make_console(sys.stderr)

    def show(self, events: Sequence[JsonObject]) -> None:
        for event in events:
            line = self._formatter.line(event)
            if line is not None:
                self._print(line, mark_of(sys.stderr))

    def note(self, text: str) -> None:
        self._print(Text(sentence(text)))

    def _print(self, text: Text, mark: str = "  ") -> None:
        """Print a text; a terminal gets it broken between words."""
        for line in text.split("\n"):
            for part in hung(line, self._console, mark) if self._console.is_terminal else [line]:
                self._console.print(part)


class LiveLine(Lines):
    """Prints lines on stderr, and below them a live line with the percentage and the running jobs."""

    def __init__(self, engine: Engine, formatter: EventFormatter) -> None:
        super().__init__(formatter)
        self._engine = engine
        self._running: dict[int, str] = {}
        self._settled = 0
        self._cost = ""
        self._waits: JsonObject | None = None
        self._mission_id: int | None = None
        self._draft, self._looked = "", 0.0
        self._began = time.monotonic()
        self._spinner = Spinner("dots", self._status())
        self._live = Live(self._spinner, console=self._console, transient=True, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def show(self, events: Sequence[JsonObject]) -> None:
        for event in events:
            self._track(event)
        super().show(events)
        self._look()
        self._spinner.update(text=self._status())

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _track(self, event: JsonObject) -> None:
        if event["event"] == "replied" and self._formatter.measure is not None:
            mission_id, self._draft = event["mission_id"], ""
            assert isinstance(mission_id, int)
            spent = told_cost(self._engine.mission(mission_id).cost)
            self._cost = "" if spent is None else f"  {spent}"
        job_id = event["job_id"]
        if not isinstance(job_id, int):
            return
        self._waits = waits_for_in(event)
        if self._waits is not None:
            self._running.pop(job_id, None)
        elif event["event"] == "started":
            job = self._engine.job(job_id)
            if job.kind == TURN and self._formatter.measure is not None:
                self._mission_id = job.mission_id
            self._running[job_id] = f"{one_line(job.kind)} {subject(job.json)}".strip()
        elif event["event"] not in ("asked", "replied") and self._running.pop(job_id, None) is not None:
            self._settled += 1

    def _look(self) -> None:
        """Read what the planner of the only mission is writing, once a second."""
        if self._mission_id is not None and time.monotonic() - self._looked >= 1:
            self._looked = time.monotonic()
            self._draft = next(iter(self._engine.drafts(self._mission_id).values()), "")

    def _status(self) -> Text:
        seconds = int(time.monotonic() - self._began)
        idle = "waiting for work" if self._waits is None else wait_line(self._waits)
        now = ", ".join(self._running.values()) or idle
        measure = self._formatter.measure
        share = "" if measure is None else f"{measure.percentage}%  "
        done = f"{seconds // 60}:{seconds % 60:02}  {share}{self._settled} done{self._cost}"
        room = self._console.width - len(done) - _SPINNER_WIDTH - 2
        shown = end_of(self._draft, max(0, room)) if self._draft and self._running else cut(now, max(0, room))
        return Text.assemble((done, "dim"), "  ", shown)
