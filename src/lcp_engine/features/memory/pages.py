"""What is remembered of roots: list it by root, correct an entry, forget it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.errors import Conflict, LcpError
from lcp_engine.features.memory.calls import MemoryEdit, Remembered
from lcp_engine.features.memory.entries import MOST_CONTENT, MOST_TITLE
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import Form, cursor, number

MOST_ON_A_PAGE = 30


def memory_list(request: Request) -> Response:
    """The entries of a root, or of all, newest first; with `text` those that have all of its words."""
    context = context_of(request)
    root, text = (request.query_params.get(name, "").strip() for name in ("root", "text"))
    before, memory = cursor(request, "before"), context.engine.memory
    roots = memory.roots()
    found = memory.entries(root=root or None, text=text or None, before=before) if roots else iter(())
    rows = [*islice(found, MOST_ON_A_PAGE + 1)]
    return context.render(
        "memory.html",
        entries=[_fields(one) for one in rows[:MOST_ON_A_PAGE]],
        behind=rows[MOST_ON_A_PAGE - 1].number if len(rows) > MOST_ON_A_PAGE else None,
        before=before,
        roots=roots,
        root=root,
        text=text,
        note=request.query_params.get("note", ""),
    )


def memory_entry(request: Request) -> Response:
    """One entry, with the form that corrects it."""
    return _show(context_of(request), request)


def edit(context: PageContext, request: Request, form: Form) -> Response:
    """Change an entry that is as the form's page showed it."""
    key = number(request.path_params["entry"])
    change = MemoryEdit(
        title=form.text("title"),
        content=form.text("content"),
        tags=[tag.strip() for tag in form.text("tags").split(",") if tag.strip()],
        files=[line.strip() for line in form.text("files").splitlines() if line.strip()],
        importance=_importance(form.text("importance")),
        never_expires=bool(form.text("forever")),
    )
    try:
        context.engine.memory.edit(key, change, seen=_time(form.text("seen")))
    except Conflict as refused:
        return _show(context, request, status=409, problem=f"{refused}. It is shown below as it is now.")
    except LcpError as refused:
        entered = {name: form.text(name) for name in ("title", "content", "tags", "files", "importance")}
        return _show(context, request, status=refused.status, problem=str(refused), entered=entered)
    return RedirectResponse(f"/memory/{key}?note=remembered", 303)


def forget(context: PageContext, request: Request, form: Form) -> Response:
    """Remove an entry for good."""
    context.engine.memory.forget(number(request.path_params["entry"]))
    return RedirectResponse("/memory?note=forgotten", 303)


def _show(
    context: PageContext,
    request: Request,
    *,
    status: int = 200,
    problem: str = "",
    entered: Mapping[str, str] = {},
) -> Response:
    entry = context.engine.memory.find(number(request.path_params["entry"]))
    return context.render(
        "memory_entry.html",
        status=status,
        entry={**_fields(entry), **entered},
        problem=problem,
        most_title=MOST_TITLE,
        most_content=MOST_CONTENT,
        note=request.query_params.get("note", ""),
    )


def _fields(entry: Remembered) -> dict[str, object]:
    return {
        "number": entry.number,
        "id": entry.id,
        "root": entry.root,
        "title": entry.title,
        "content": entry.content,
        "tags": ", ".join(entry.tags),
        "files": "\n".join(entry.files),
        "importance": str(entry.importance),
        "source": entry.source,
        "author": entry.author or "",
        "mission_id": entry.mission_id,
        "job_id": entry.job_id,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
        "expires_at": "" if entry.expires_at is None else entry.expires_at.isoformat(),
    }


def _importance(text: str) -> int:
    """The number of the form; 0, which is refused with what is allowed, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def _time(text: str) -> datetime:
    try:
        seen = datetime.fromisoformat(text)
    except ValueError:
        seen = None
    if seen is None or seen.tzinfo is None:
        raise HTTPException(422, "the form does not say what its page showed; reload the page and try again")
    return seen
