"""Print the report of a mission."""

from __future__ import annotations

from lcp_engine.api import Engine
from lcp_engine.cli.screen import print_out
from lcp_engine.engine.records import Mission
from lcp_engine.report import Report, as_markdown, make_report
from lcp_engine.visible import block


def report_on(engine: Engine, mission: Mission) -> Report:
    """The report as data."""
    jobs = [job.json for job in engine.jobs(mission_id=mission.id)]
    return make_report(mission.json, jobs, engine.changes(mission.id), engine.turns(mission.id))


def print_report(engine: Engine, mission: Mission) -> None:
    """The report for people, on stdout."""
    print_out(block(as_markdown(report_on(engine, mission))))
