"""Render a mission at one moment as a structured response, from its history alone (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pydantic import JsonValue

from lcp_engine.core.summaries import subject
from lcp_engine.engine.reports.forms import QUESTION, commands_for, form_of
from lcp_engine.engine.reports.markdown import Report, Section, make_report, sections, standing, title, words
from lcp_engine.engine.reports.structured_model import (
    Content,
    Meta,
    ModuleState,
    NextStep,
    Progress,
    StructuredResponse,
    TextBlock,
)
from lcp_engine.store.queries.mission_facts import Course, Excerpt, Facts, Object

Milestone: TypeAlias = Literal["25%", "50%", "75%", "100%"]
Emotion: TypeAlias = Literal["neutral", "encouraging", "celebratory", "supportive", "informative"]
Kind: TypeAlias = Literal["educational", "conversational", "assessment", "summary", "error"]
_Block: TypeAlias = Literal["list", "info", "warning"]

MILESTONES: tuple[tuple[int, Milestone], ...] = ((100, "100%"), (75, "75%"), (50, "50%"), (25, "25%"))
_BLOCKS: dict[str, _Block] = {
    "waiting": "info",
    "failures": "warning",
    "limits": "warning",
    "invalid_replies": "warning",
}
_KINDS: dict[str, Kind] = {
    "waiting": "assessment",
    "completed": "summary",
    "cancelled": "summary",
    "failed": "error",
}
_MOST_SUGGESTED = 3


def respond(facts: Facts, course: Course) -> StructuredResponse:
    """The mission as `facts` and `course` describe it. Equal history gives an equal response."""
    report = make_report(facts)
    mission = facts.mission
    milestone = milestone_of(course.before, course.percentage)
    status = str(mission["status"])
    return StructuredResponse(
        content=Content(
            text_blocks=_blocks(report, milestone),
            forms=[form_of(job, _number(mission["id"])) for job in facts.held.rows],
            next_step=_next_step(mission, facts.held),
        ),
        meta=Meta(
            response_type=_KINDS.get(status, "conversational"),
            progress=_progress(mission, course, milestone),
            module_state=_module_state(mission, course),
            emotion=emotion_of(status, mission["outcome"], milestone),
        ),
    )


def milestone_of(before: int, now: int) -> Milestone | None:
    """The highest milestone that lies behind `before` and not behind `now`."""
    return next((name for share, name in MILESTONES if before < share <= now), None)


def emotion_of(status: str, outcome: JsonValue, milestone: Milestone | None) -> Emotion:
    """The tone: by status, by outcome for what failed, and glad of a milestone unless it failed (docs/report.md)."""
    match status:
        case "completed":
            return "celebratory"
        case "failed" if outcome == "no_progress" or str(outcome).startswith("limit:"):
            return "encouraging"
        case "failed":
            return "supportive"
        case "cancelled":
            return "neutral"
        case _ if milestone is not None:
            return "celebratory"
        case "waiting":
            return "supportive"
        case _:
            return "informative"


def _blocks(report: Report, milestone: Milestone | None) -> list[TextBlock]:
    mission = report["mission"]
    assert isinstance(mission, dict)
    how, goal, *error = standing(report)
    blocks = [
        TextBlock(type="heading", content=title(mission), level=2),
        TextBlock(type="paragraph", content=how),
        TextBlock(type="paragraph", content=goal),
    ]
    if milestone is not None:
        said = (
            "The mission is complete."
            if milestone == "100%"
            else f"**{milestone}** of the mission is reached."
        )
        blocks.append(TextBlock(type="success", content=said))
    blocks += [TextBlock(type="warning", content=line) for line in error]
    said_by_planner = "\n".join(words(report))
    if said_by_planner:
        blocks.append(TextBlock(type="quote", content=said_by_planner))
    for section in sections(report):
        blocks += _listed(section)
    return blocks


def _listed(section: Section) -> list[TextBlock]:
    lines = "\n".join(f"- {line}" for line in section.lines)
    return [
        TextBlock(type="heading", content=section.title, level=3),
        TextBlock(type=_BLOCKS.get(section.name, "list"), content=lines),
    ]


def _next_step(mission: Object, held: Excerpt) -> NextStep:
    number = mission["id"]
    match mission["status"]:
        case "waiting":
            prompt = f"{_waiting(held)} Fill in a form, or say in your own words what is to be done."
            commands = [command for job in held.rows[:_MOST_SUGGESTED] for command in commands_for(job)]
            return NextStep(
                prompt=prompt, suggestions=[*commands, f"lcp say {number} TEXT", f"lcp cancel {number}"]
            )
        case "running":
            prompt = (
                "It goes on by itself while a runner works; you can say something to the planner at any time."
            )
            commands = [
                f"lcp watch {number}",
                "lcp work --until-idle",
                f"lcp say {number} TEXT",
                f"lcp cancel {number}",
            ]
            return NextStep(prompt=prompt, suggestions=commands)
        case "completed":
            return NextStep(
                prompt="It is complete. Look at what it changed; all of it can be taken back.",
                suggestions=[f"lcp changes {number}", f"lcp undo {number} --dry-run", f"lcp resume {number}"],
            )
        case _:
            outcome = str(mission["outcome"] or "")
            higher = (
                f" --set limits.{outcome.removeprefix('limit:')}=N" if outcome.startswith("limit:") else ""
            )
            return NextStep(
                prompt="It has ended. Look at what happened, then go on with it or take its changes back.",
                suggestions=[
                    f"lcp show {number}", f"lcp resume {number}{higher}", f"lcp undo {number} --dry-run",
                ],
            )  # fmt: skip


def _waiting(held: Excerpt) -> str:
    questions = sum(job["kind"] == QUESTION for job in held.rows)
    if questions == held.total:
        return (
            "A question waits for your answer."
            if questions == 1
            else f"{questions} questions wait for your answer."
        )
    return "One job waits for you." if held.total == 1 else f"{held.total:,} jobs wait for you."


def _progress(mission: Object, course: Course, milestone: Milestone | None) -> Progress:
    counts = mission["jobs"]
    open_states = ("held", "blocked", "queued", "running")
    remaining = sum(_number(counts[state]) for state in open_states) if isinstance(counts, dict) else 0
    return Progress(
        percentage=course.percentage,
        covered_topics=_topics(course.covered.rows),
        newly_covered=_topics(course.news.rows),
        remaining_topics=remaining,
        milestone=milestone,
        covered_total=course.covered.total,
        since=course.since,
        event=course.event,
    )


def _topics(jobs: Sequence[Object]) -> list[str]:
    return list(dict.fromkeys(f"{job['kind']} {subject(job)}".strip() for job in jobs))


def _module_state(mission: Object, course: Course) -> ModuleState:
    """Sections are turns: those that were asked, of those that there can be."""
    turns = _number(mission["turns"])
    limits = mission["limits"]
    most = _number(limits["max_turns"]) if isinstance(limits, dict) and "max_turns" in limits else turns
    has_ended = mission["status"] not in ("running", "waiting")
    outcome = f": {mission['outcome']}" if mission["outcome"] else ""
    running = _topics(course.running.rows[:1])
    return ModuleState(
        current_phase=f"{mission['status']}{outcome}",
        current_section=running[0] if running else str(mission["goal"]),
        sections_completed=turns,
        total_sections=turns if has_ended else max(turns, most),
    )


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
