"""Print the report of a mission, in the form that was asked for."""

from __future__ import annotations

import sys

from lcp_engine.api import Engine
from lcp_engine.cli.output import make_console, print_json, print_out
from lcp_engine.core.safe_text import block
from lcp_engine.engine.reports.agent_response import respond_as_agent
from lcp_engine.engine.reports.markdown import as_markdown, make_report
from lcp_engine.engine.reports.structured import respond

FORMATS = ("text", "json", "structured", "agent")
MOST_LINES = 20
"""A list of the text shows at most that many rows."""


def print_report(engine: Engine, mission_id: int, form: str = "text", since: int | None = None) -> None:
    """The report on stdout. `since` is the number of the event that a structured report goes on from."""
    if form == "json":
        print_json(make_report(engine.facts(mission_id)))
    elif form == "structured":
        facts, course = engine.standing(mission_id, since=since, most=MOST_LINES)
        print_json(respond(facts, course).as_json())
    elif form == "agent":
        answer = respond_as_agent(*engine.standing(mission_id))
        print_json(answer.model_dump(mode="json"))
    else:
        _print_text(as_markdown(make_report(engine.facts(mission_id, most=MOST_LINES))))


def _print_text(markdown: str) -> None:
    """Markdown, set on a terminal and as it is elsewhere."""
    shown = block(markdown)
    if not sys.stdout.isatty():
        print_out(shown)
        return
    from rich.markdown import Markdown

    # A link shows where it leads: what is named and where it goes may differ.
    make_console(sys.stdout).print(Markdown(shown, hyperlinks=False), soft_wrap=False)
