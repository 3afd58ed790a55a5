"""Load the templates: whatever they show is escaped, and what is invisible is made visible."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lcp_engine.core import summaries
from lcp_engine.core.job_states import State
from lcp_engine.core.safe_text import block, json_block, one_line, shortened
from lcp_engine.engine.reports.markdown import explain_reason
from lcp_engine.web.flash import NOTES

PACKAGE = Path(__file__).parent
LONGEST = 64 * 1024
"""A text on a page has at most so many characters; the whole is in the job's JSON."""


def make_templates() -> Environment:
    """The templates with their filters. A name that is not given is an error, never an empty place."""
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
        line=one_line, short=shortened, json=json_block, subject=summaries.subject, gist=summaries.gist,
        size=summaries.size, duration=summaries.duration, reason=explain_reason, age=_age, clock=_clock, part=_part,
        seconds=_seconds_between,
    )  # fmt: skip
    templates.globals.update(
        query=_query, notes=NOTES, states=[state.value for state in State], longest=LONGEST
    )
    return templates


def _visible(value: object) -> object:
    """What a place in a template shows; `autoescape` comes after this."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) or not isinstance(value, str) else block(value)


def _query(**values: object) -> str:
    """The values that are not empty, as the query of a link."""
    given = {name: value for name, value in values.items() if value not in (None, "", [], ())}
    return f"?{urlencode(given, doseq=True, errors='backslashreplace')}" if given else ""


def _age(at: str) -> str:
    return summaries.age(at, datetime.now(UTC))


def _clock(at: str) -> str:
    """A time to the second; browsers are not asked for their zone, so it says its own."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _part(text: str) -> str:
    return text[:LONGEST]


def _seconds_between(
    row: Mapping[str, object], began: str = "started_at", ended: str = "ended_at"
) -> float | None:
    """How long a row took; None where it has not ended."""
    if not row[began] or not row[ended]:
        return None
    return (datetime.fromisoformat(str(row[ended])) - datetime.fromisoformat(str(row[began]))).total_seconds()
