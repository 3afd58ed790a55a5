"""Put the pages together behind the gate."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lcp_engine.errors import LcpError
from lcp_engine.web import (
    answering,
    changes,
    clearing,
    editing,
    explaining,
    inbox,
    jobs,
    launching,
    live,
    missions,
    steering,
    undoing,
)
from lcp_engine.web.desk import Desk
from lcp_engine.web.forms import change
from lcp_engine.web.gate import Door, Gate, Keys
from lcp_engine.web.refusals import Refusals, make_refusals
from lcp_engine.web.templates import PACKAGE

LOOKS = (
    Route("/", missions.missions),
    Route("/missions/{mission}", missions.tree),
    Route("/missions/{mission}/timeline", missions.timeline),
    Route("/missions/{mission}/history", missions.history),
    Route("/missions/{mission}/report", missions.report),
    Route("/missions/{mission}/report.md", missions.report_text),
    Route("/missions/{mission}/questions/{number}", missions.question),
    Route("/missions/{mission}/questions/{number}/prompt.txt", missions.prompt_text),
    Route("/missions/{mission}/changes", changes.changed_files),
    Route("/missions/{mission}/undo", undoing.undo_form),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{job}", jobs.job),
    Route("/jobs/{job}/json", jobs.job_json),
    Route("/jobs/{job}/diff", changes.job_diff),
    Route("/jobs/{job}/diff.txt", changes.job_patch),
    Route("/jobs/{job}/policy", explaining.policy),
    Route("/jobs/{job}/edit", editing.edit_form),
    Route("/jobs/{job}/undo", undoing.undo_form),
    Route("/inbox", inbox.inbox),
    Route("/inbox/all", clearing.clear_form),
    Route("/launch", launching.launch_form),
    Route("/events", live.events),
    Route("/missions/{mission}/events", live.events),
)
CHANGES = {
    "/jobs/{job}/approve": steering.approve,
    "/jobs/{job}/reject": steering.reject,
    "/jobs/{job}/retry": steering.retry,
    "/jobs/{job}/edit": editing.edit,
    "/jobs/{job}/answer": answering.answer,
    "/jobs/{job}/say": answering.say_of_job,
    "/jobs/{job}/undo": undoing.undo,
    "/missions/{mission}/say": answering.say,
    "/missions/{mission}/undo": undoing.undo,
    "/missions/{mission}/cancel": steering.cancel,
    "/missions/{mission}/resume": steering.resume,
    "/inbox": inbox.decide,
    "/inbox/all": clearing.clear,
    "/launch": launching.launch,
}


def make_app(desk: Desk, keys: Keys, door: Door) -> ASGIApp:
    """The whole page, for whoever has `keys`."""
    refusals = Refusals(desk.templates)
    app = Starlette(
        routes=[
            *LOOKS,
            *(Route(path, change(act), methods=["POST"]) for path, act in CHANGES.items()),
            Mount("/static", StaticFiles(directory=PACKAGE / "static")),
        ],
        exception_handlers={
            LcpError: refusals.trouble,
            HTTPException: refusals.http,
            Exception: refusals.defect,
        },
    )
    app.state.desk = desk
    # Around everything, so that the page of a defect has the headers as well.
    return Gate(app, keys=keys, door=door, refuse=make_refusals(desk.templates))
