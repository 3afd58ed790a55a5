"""The needs of every page: the engine, the templates, the token of the forms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, reduce
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from lcp_engine import Mission
from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import PageQueries
from lcp_engine.core import summaries
from lcp_engine.core.job_states import SETTLED, State
from lcp_engine.core.limits.money import told_cost
from lcp_engine.core.reasons import explain_reason, told_wait
from lcp_engine.core.safe_text import block, exact, json_block, json_line, one_line, shortened
from lcp_engine.features.reports.progress import COUNTED, Measure
from lcp_engine.inbox import Diff
from lcp_engine.operation import ActiveRunner
from lcp_engine.web.forms import FLASH_MESSAGES

PACKAGE = Path(__file__).parent
LONGEST = 64 * 1024
"""Characters of a text that a page shows; the job's JSON contains the whole."""

MOST_MEASURES = 1000
MOST_COMPARED = 4
"""Jobs whose diffs are kept; those of others are compared again."""

STATES = [
    *(state.value for state in State if state in SETTLED),
    *(state.value for state in reversed(State) if state not in SETTLED),
]
"""The states of jobs in the order of pages: what came to its end, what goes on, what waits for a person."""


_T = TypeVar("_T")


@dataclass(frozen=True)
class PageContext:
    """One per application; `closing` is set when the server shuts down."""

    engine: Engine
    templates: Environment
    csrf: str = field(repr=False)
    closing: threading.Event = field(default_factory=threading.Event)
    evals: Path | None = None
    """A directory with evaluations; None if there is none to show."""
    shown_runners: set[tuple[int, ...]] = field(default_factory=set, repr=False)
    """Ids of runners as pages showed them, each list until `Watch` has compared it."""
    compared: dict[int, tuple[Sequence[Diff], bool]] = field(default_factory=dict, repr=False)
    """Diffs of the jobs that pages showed in part, for the other parts, and whether there is a choice between them."""
    _singles: dict[type, object] = field(default_factory=dict, repr=False)
    _measures: dict[str, tuple[int, Measure]] = field(default_factory=dict, repr=False)
    """By the uid of a mission, the last event that was counted and the measure with it."""

    @property
    def queries(self) -> PageQueries:
        return PageQueries(self.engine.instance)

    def single(self, kind: type[_T], make: Callable[[], _T]) -> _T:
        """The one value of a type that the application has, made when it is first wanted."""
        found = self._singles.get(kind)
        if not isinstance(found, kind):
            found = self._singles[kind] = make()
        return found

    def runners(self) -> list[ActiveRunner]:
        """The runners for a page, which is told once others are there."""
        found = self.queries.runners()
        self.shown_runners.add(tuple(runner.id for runner in found))
        return found

    def keep_compared(self, job_id: int, diffs: Sequence[Diff], *, has_choice: bool) -> None:
        """Keep what a job changes for requests of its parts; what was kept first makes room."""
        while len(self.compared) >= MOST_COMPARED:
            self.compared.pop(next(iter(self.compared)), None)
        self.compared[job_id] = (diffs, has_choice)

    def measure(self, mission: Mission) -> Measure:
        """Measure how far the mission has come. Events are counted once, so that a long mission's page stays quick."""
        if mission.status == "completed":  # it never falls
            known = sum(mission.jobs.values())
            return Measure(100 * (known - mission.open) // known if mission.open else 100)
        seq, measure = self._measures.get(mission.uid, (0, Measure()))
        counted = self.queries.named_events(mission.id, COUNTED, after_seq=seq)
        seq = counted[-1][0] if counted else seq
        measure = reduce(Measure.after, (event for _, event in counted), measure)
        if len(self._measures) >= MOST_MEASURES:
            self._measures.clear()
        self._measures[mission.uid] = (seq, measure)
        return measure

    def render(self, template: str | Template, *, status: int = 200, **values: object) -> HTMLResponse:
        """A template as a response. Every page shows the number of held jobs."""
        text = self.templates.get_template(template).render(
            csrf=self.csrf,
            held_count=self.queries.held_count(),
            has_evals=self.evals is not None,
            subject=self.engine.subjects(),
            **values,
        )
        return HTMLResponse(text, status)


def context_of(request: Request) -> PageContext:
    """The context of the application that received the request."""
    context: PageContext = request.app.state.context
    return context


@cache
def make_templates() -> Environment:
    """The templates with their filters, compiled once a process. Values are escaped, an undefined name is an error."""
    templates = Environment(
        loader=FileSystemLoader(PACKAGE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(
        line=one_line, flat=_flat, short=shortened, json=json_block, gist=summaries.gist,
        size=summaries.size, duration=summaries.duration, reason=explain_reason, age=_age, clock=_clock, part=_part,
        seconds=_seconds_between, exact=exact, left_out=summaries.left_out_line, json_line=json_line, ticked=_ticked,
        sentence=_sentence, cost=told_cost, question=summaries.question_in, wait=told_wait,
        unseen_lines=_unseen_lines, status=summaries.status_of,
    )  # fmt: skip
    templates.globals.update(
        query=_query,
        flash_messages=FLASH_MESSAGES,
        of_ended=summaries.OF_ENDED,
        states=STATES,
        longest=LONGEST,
    )
    return templates


def _visible(value: object) -> object:
    """The text of a value with invisible characters made visible; `autoescape` runs after this."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) or not isinstance(value, str) else block(value)


def _query(**values: object) -> str:
    """The values that are not empty, as the query of a link."""
    given = {name: value for name, value in values.items() if value not in (None, "", [], ())}
    return f"?{urlencode(given, doseq=True, errors='backslashreplace')}" if given else ""


def _ticked(text: str) -> Markup:
    """A sentence with what is between backticks as code."""
    parts = block(text).split("`")
    if len(parts) % 2 == 0:
        return escape(block(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def _flat(text: str) -> str:
    """Words of several lines, on one line."""
    return one_line(" ".join(filter(None, (line.strip(" \t\r") for line in text.split("\n")))))


def _age(at: str) -> str:
    return summaries.age(at, datetime.now(UTC))


def _clock(at: str) -> str:
    """A time to the second, in UTC: the server does not know the browser's time zone."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _part(text: str) -> str:
    return text[:LONGEST]


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def _unseen_lines(unseen: Mapping[str, int | None]) -> str:
    """The share of an approval that was not on the screen, in the event of a decision."""
    lines = unseen.get("lines")
    return f"{'not known' if lines is None else f'{lines:,}'} of {unseen.get('of') or 0:,} lines"


def _seconds_between(
    row: Mapping[str, object], began: str = "started_at", ended: str = "ended_at"
) -> float | None:
    """The duration of a row; None if it has not ended."""
    if not row[began] or not row[ended]:
        return None
    return (datetime.fromisoformat(str(row[ended])) - datetime.fromisoformat(str(row[began]))).total_seconds()
