"""The page of decisions: who approved, rejected or answered what, over all missions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.clock import SECOND, Micros
from lcp_engine.web.context import context_of
from lcp_engine.web.forms import cursor

ROWS = 50
LONGEST = 200
"""Characters of a name that is searched for."""
_FIELDS = ("by", "kind", "since", "until")


def decisions(request: Request) -> Response:
    """The newest decisions that fit the filter of the query; `behind` is the place where an older page begins."""
    context, query = context_of(request), request.query_params
    asked = {name: query.get(name, "").strip()[:LONGEST] for name in _FIELDS}
    mission, behind = cursor(request, "mission"), query.get("behind")
    found = context.engine.decisions(
        by=asked["by"] or None,
        kind=asked["kind"] or None,
        mission_id=mission,
        since=_day(asked["since"]),
        until=_day(asked["until"], days=1),
        behind=behind,
        limit=ROWS,
    )
    return context.render(
        "decisions.html",
        decisions=found.rows,
        asked={**asked, "mission": mission},
        is_filtered=any(asked.values()) or mission is not None,
        behind=found.behind,
        is_later=behind is not None,
        week=(datetime.now(UTC) - timedelta(days=7)).date().isoformat(),
    )


def _day(text: str, *, days: int = 0) -> Micros | None:
    """The beginning of a day in UTC, or of one so many `days` later. Raises a 422 for what is no day."""
    if not text:
        return None
    try:
        at = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
    except (ValueError, OverflowError) as refused:
        raise HTTPException(422, f"a day is written like 2026-11-20, not {text[:40]!r}") from refused
    return int(at.timestamp()) * SECOND
