"""Put the pages together behind the gate."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lcp_engine.errors import LcpError
from lcp_engine.web import (
    actions,
    answers,
    changes,
    decide_all,
    edit,
    events,
    inbox,
    jobs,
    launch,
    missions,
    policy,
    undo,
)
from lcp_engine.web.access import Door, Gate, Keys
from lcp_engine.web.context import Desk
from lcp_engine.web.error_pages import Refusals, make_refusals
from lcp_engine.web.form_post import change
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
    Route("/missions/{mission}/undo", undo.undo_form),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{job}", jobs.job),
    Route("/jobs/{job}/json", jobs.job_json),
    Route("/jobs/{job}/diff", changes.job_diff),
    Route("/jobs/{job}/diff.txt", changes.job_patch),
    Route("/jobs/{job}/policy", policy.policy),
    Route("/jobs/{job}/edit", edit.edit_form),
    Route("/jobs/{job}/undo", undo.undo_form),
    Route("/inbox", inbox.inbox),
    Route("/inbox/all", decide_all.clear_form),
    Route("/launch", launch.launch_form),
    Route("/events", events.events),
    Route("/missions/{mission}/events", events.events),
)
CHANGES = {
    "/jobs/{job}/approve": actions.approve,
    "/jobs/{job}/reject": actions.reject,
    "/jobs/{job}/retry": actions.retry,
    "/jobs/{job}/edit": edit.edit,
    "/jobs/{job}/answer": answers.answer,
    "/jobs/{job}/say": answers.say_of_job,
    "/jobs/{job}/undo": undo.undo,
    "/missions/{mission}/say": answers.say,
    "/missions/{mission}/undo": undo.undo,
    "/missions/{mission}/cancel": actions.cancel,
    "/missions/{mission}/resume": actions.resume,
    "/inbox": inbox.decide,
    "/inbox/all": decide_all.clear,
    "/launch": launch.launch,
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
