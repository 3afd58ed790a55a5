"""Lead back to the page that a decision came from."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

from starlette.responses import RedirectResponse, Response

from lcp_engine.web.form_post import Form

BACK = "back"
"""A form of the inbox has what the inbox looked for in this field."""
_KEPT = ("mission", "kind", "text", "after")


def to_job(job_id: int, note: str, form: Form) -> Response:
    """To the job, or to the inbox if the form is of the inbox."""
    if BACK not in form.fields:
        return RedirectResponse(f"/jobs/{job_id}?note={note}", 303)
    return to_inbox(form.text(BACK), note)


def to_mission(mission_id: int, note: str) -> Response:
    return RedirectResponse(f"/missions/{mission_id}?note={note}", 303)


def to_inbox(query: str, note: str) -> Response:
    """To the same view of the inbox; nothing else of the query is kept."""
    asked = parse_qs(query, max_num_fields=50)
    kept = {name: asked[name][0] for name in _KEPT if name in asked}
    return RedirectResponse(f"/inbox?{urlencode({**kept, 'note': note})}", 303)
