"""Operations that read, for programs with the scope `look`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial

from anyio.to_thread import run_sync
from pydantic import JsonValue
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Scope_

from lcp_engine.api.inbox import HeldJob, ViewedFiles, mark_of, question_in
from lcp_engine.api.pages import JobFilter
from lcp_engine.clock import SECOND, iso
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject, int_in, list_in
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.activity.store import read_activity
from lcp_engine.features.authoring.describe_kinds import describe
from lcp_engine.features.http_api.follow import stream_all, stream_mission, wait_for
from lcp_engine.features.http_api.operations import HEADERS, Call, Operation, problem
from lcp_engine.features.http_api.values import (
    ActivityAsked,
    ActivityObject,
    Changed,
    ContentsAsked,
    DecisionPage,
    DecisionsAsked,
    DiffObject,
    Drafts,
    EventObject,
    EventsAsked,
    HeldAsked,
    HeldObject,
    JobHead,
    JobObject,
    JobsAsked,
    Listed,
    Marks,
    MemoryAsked,
    MemoryObject,
    MissionHead,
    MissionObject,
    MissionsAsked,
    Offered,
    Page,
    Report,
    Ruling,
    RunnerPage,
    ScheduleObject,
    Shown,
    Sides,
    Stated,
    Statistics,
    ToUndo,
    Turn,
    TurnHead,
    Waited,
)
from lcp_engine.features.memory.calls import Remembered
from lcp_engine.features.reports.reports import as_markdown, make_report
from lcp_engine.features.tokens.calls import TOKEN_REFUSED, TOO_MANY_REQUESTS, Scope
from lcp_engine.inbox import Diff

STREAM = "text/event-stream"
_LISTED = 1000
"""Rows of a report, and of a mission's changes."""


def missions(call: Call) -> JsonValue:
    """List missions, the newest first."""
    asked = call.asked(MissionsAsked)
    found = call.queries.missions(
        before=asked.cursor, status=str(asked.status or ""), text=asked.text, limit=asked.limit
    )
    return {"items": [*found.rows], "next": found.behind}


async def mission(call: Call) -> JsonValue | Response:
    """Read a mission; with `wait`, once it rests or has ended, or after so many seconds."""
    asked, id_ = call.asked(Waited), call.id("mission")
    if not asked.wait:
        return (await run_sync(call.engine.mission, id_)).json
    with_end = ("completed", "failed", "cancelled")
    enough = with_end if asked.until == "end" else (*with_end, "waiting")
    if (refused := call.pulse.enter(call.token)) is not None:
        return _busy(refused)
    try:
        found = await wait_for(
            call.pulse, lambda: call.engine.mission(id_).json, lambda found: found["status"] in enough,
            asked.wait, may_go_on=call.may_go_on,
        )  # fmt: skip
    finally:
        call.pulse.leave(call.token)
    ended = Failed(TOKEN_REFUSED, "the token has ended during the wait", advice="Send another one.")
    return problem(401, ended) if found is None else found


def turns(call: Call) -> JsonValue:
    """List the questions to the planner of a mission, in their order."""
    asked, id_ = call.asked(Listed), call.engine.mission(call.id("mission")).id
    after = asked.cursor or 0
    found = [one for one in call.queries.turn_heads(id_, 0, 2**62) if int_in(one["number"]) > after]
    return _page(found, asked.limit, "number")


def turn(call: Call) -> JsonValue:
    """Read a question with its prompt and its reply."""
    return call.queries.turn(call.id("mission"), call.id("number"))


async def mission_events(call: Call) -> JsonValue | Response:
    """List the events of a mission in their order; as a stream, send each as soon as it is there.

    A stream goes on after the event that the header `Last-Event-ID` names by its `seq`.
    """
    asked, id_ = call.asked(EventsAsked), call.id("mission")
    await run_sync(call.engine.mission, id_)
    last, named = await run_sync(call.queries.last_event, id_), _last_event_id(call)
    if not _wants_stream(call):
        read = partial(call.engine.events, id_, after_seq=asked.after, limit=asked.limit)
        found = await run_sync(read)
        behind = None if not found or found[-1]["seq"] == last else found[-1]["seq"]
        return {"items": [*found], "next": behind}
    after = asked.after if named is None else named
    if after > last:
        message = f"event {after} of mission {id_} is from the future; the last one is {last}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return _stream(
        call,
        stream_mission(call.pulse, id_, after, may_go_on=call.may_go_on, until_end=asked.until == "end"),
    )


async def events(call: Call) -> JsonValue | Response:
    """Stream the events of all missions from now on, or after the `id` that the header `Last-Event-ID` names.

    An id comes after the events of a moment, without one of its own. Events of the seconds before it may come again:
    `mission_id` and `seq` tell.
    """
    news = await call.pulse.follow(_last_event_id(call))
    return _stream(call, stream_all(call.pulse, news, may_go_on=call.may_go_on))


def jobs(call: Call) -> JsonValue:
    """List jobs in the order of their ids."""
    asked = call.asked(JobsAsked)
    wanted = JobFilter(asked.mission, asked.state, asked.kind, asked.text)
    found = call.queries.jobs(wanted, behind=asked.cursor, limit=asked.limit, newest_first=asked.newest_first)
    return {"items": [*found.rows], "next": found.behind}


def job(call: Call) -> JsonValue:
    """Read a job with its params, result and attempts."""
    return call.engine.job(call.id("job")).json


def attempts(call: Call) -> JsonValue:
    """List the attempts of a job that have ended."""
    return {"items": list_in(call.engine.job(call.id("job")).json["attempts"]), "next": None}


def diff(call: Call) -> JsonValue:
    """Read what a job has changed; of a held one, read `held` instead."""
    found = call.engine.job(call.id("job"))
    if found.state == State.HELD:
        message = f"job {found.id} is held; what it would change is at /v1/held/{found.id}"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    return {"items": [*map(diff_object, call.engine.diff(found.id, by=call.viewer))], "next": None}


def diff_object(one: Diff) -> JsonObject:
    """A diff as the API gives it."""
    return {**one.json, "mark": mark_of(one)}


def contents(call: Call) -> JsonValue:
    """Read both contents that the diff of a file of a job compares."""
    found = call.engine.contents(call.id("job"), call.asked(ContentsAsked).path)
    sides = {"before": found.before, "after": found.after}
    return {name: None if one is None else b64encode(one).decode() for name, one in sides.items()}


def policy(call: Call) -> JsonValue:
    """Read which rule decides about a job, and every rule that was considered."""
    return call.engine.explain_policy(call.id("job"))


def viewed(call: Call) -> JsonValue:
    """Read which files of held jobs of a mission the token's person has viewed."""
    mission_id = call.engine.mission(call.id("mission")).id
    return {**ViewedFiles(call.engine.instance, mission_id, call.token.person).marks()}


def decisions(call: Call) -> JsonValue:
    """List what people have approved, rejected and answered, the newest first, with their words."""
    asked = call.asked(DecisionsAsked)
    since, until = (None if at is None else int(at.timestamp() * SECOND) for at in (asked.since, asked.until))
    found = call.engine.decisions(
        by=asked.by, kind=asked.kind, mission_id=asked.mission, since=since, until=until, behind=asked.cursor,
        limit=asked.limit,
    )  # fmt: skip
    return {"items": [one.json for one in found.rows], "next": found.behind}


def activity(call: Call) -> JsonValue:
    """Read how much happened in the last hour, day or week: jobs, waits, runners, tokens, money in billionths."""
    found = call.engine.instance.read(read_activity, call.asked(ActivityAsked).over)
    amounts: JsonObject = {measure: [*counts] for measure, counts in found.amounts.items()}
    return {"begin": iso(found.begin), "step_seconds": found.span.step // SECOND, "amounts": amounts}


def changes(call: Call) -> JsonValue:
    """List the files that a mission has changed, each from its first content to its last."""
    asked, id_ = call.asked(Listed), call.id("mission")
    first = asked.cursor or 0
    found, count = call.engine.changed_files(id_, first=first, most=asked.limit)
    items: list[JsonValue] = [
        {**diff_object(one.diff), "jobs": [*one.jobs], "disk": one.disk} for one in found
    ]
    return {"items": items, "next": first + len(items) if first + len(items) < count else None}


def report(call: Call) -> JsonValue:
    """Read what a mission did, wrote and was refused, what waits, and what its planner said."""
    facts = call.engine.facts(call.id("mission"), most=_LISTED, most_counted=20_000)
    return {"report": make_report(facts), "markdown": as_markdown(facts)}


def drafts(call: Call) -> JsonValue:
    """Read the ends of the replies that the planner of a mission is writing, by the job of each turn."""
    found = call.engine.drafts(call.engine.mission(call.id("mission")).id)
    return {str(job): text for job, text in found.items()}


def plan(call: Call) -> JsonValue:
    """List the plans of a mission with their steps, and what each step waits for."""
    graphs = call.engine.plan_graphs(call.engine.mission(call.id("mission")).id)
    return {"items": [asdict(one) for one in graphs], "next": None}


def spec(call: Call) -> JsonValue:
    """Read what a mission was launched with."""
    stated: JsonObject = call.queries.spec(call.id("mission")).model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    return stated


def rules(call: Call) -> JsonValue:
    """List the rules of a mission in their order; they are numbered from 1."""
    return {"items": [rule.as_json() for rule in call.engine.rules(call.id("mission"))], "next": None}


def held(call: Call) -> JsonValue:
    """List the jobs that wait for a person, the oldest first."""
    asked = call.asked(HeldAsked)
    wanted = JobFilter(asked.mission, ("held",), asked.kind, asked.text)
    found = call.queries.jobs(wanted, behind=asked.cursor, limit=asked.limit)
    return {"items": [_held(one) for one in call.engine.inbox.of(found.rows)], "next": found.behind}


def held_job(call: Call) -> JsonValue:
    """Read all that a person has to know before they decide on a held job, and the mark `shown` that names it.

    An approval states that mark. Each read with a token that decides makes the one before void. There is none for a
    change that is not shown in full.
    """
    id_ = call.id("job")
    found = call.engine.job(id_)
    if found.state != State.HELD:
        message = f"job {id_} is {found.state}; only held jobs wait for a decision"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    seen = call.engine.inbox.review(id_)
    sight = None if seen.look is None or not seen.look.is_whole else seen.look.sight
    if sight is not None and Scope.DECIDE in call.token.scopes:
        call.engine.note_sight(id_, sight, by=call.viewer)
    asks: JsonValue = None
    if seen.held.awaits == "answer":
        question = question_in(seen.job.params)
        asks = {
            "text": str(seen.job.params.get("question", "")), "options": [*question.options],
            "fields": [one.model_dump(mode="json") for one in question.fields], "shown": question.shown,
        }  # fmt: skip
    rule = call.engine.rules_for(id_) if "rule" in seen.held.acts else []
    return {
        **_held(seen.held),
        "params": seen.job.params,
        "diffs": [] if seen.look is None else [*map(diff_object, seen.look.diffs)],
        "caveat": "" if seen.look is None else seen.look.caveat,
        "shown": None if sight is None else sight.mark,
        "approvals": None if seen.approvals is None else seen.approvals.as_json(),
        "question": asks,
        "prompt": None if seen.question is None else seen.question["prompt"],
        "rules": [one.as_json() for one in rule],
    }


def to_undo(call: Call) -> JsonValue:
    """Read what an undo of a mission, or of a job, would do now, and the mark `shown` that names it."""
    mission_id, job_id = undo_target(call)
    planned = call.engine.undo(mission_id, job_id=job_id, dry_run=True)
    found = call.engine.undo_diffs(mission_id, job_id=job_id, shown=planned.shown)
    return {"files": [*planned.files], "diffs": [*map(diff_object, found)], "shown": planned.shown}


def undo_target(call: Call) -> tuple[int | None, int | None]:
    """The mission, or else the job, that is to be undone."""
    return (None, call.id("job")) if "job" in call.path else (call.id("mission"), None)


def memory(call: Call) -> JsonValue:
    """List entries of memory, the newest first."""
    asked = call.asked(MemoryAsked)
    found = call.engine.memory.entries(
        root=asked.root, tag=asked.tag, text=asked.text, before=asked.cursor, limit=asked.limit + 1
    )
    return _page([entry_object(one) for one in found], asked.limit, "number")


def entry(call: Call) -> JsonValue:
    """Read an entry of memory."""
    return entry_object(call.engine.memory.find(call.id("entry")))


def entry_object(one: Remembered) -> JsonObject:
    """An entry of memory as the API gives it."""
    return {
        "number": one.number, "id": one.id, "root": one.root, "title": one.title, "content": one.content,
        "tags": [*one.tags], "files": [*one.files], "importance": one.importance, "source": one.source,
        "author": one.author, "mission_id": one.mission_id, "created_at": one.created_at.isoformat(),
        "updated_at": one.updated_at.isoformat(),
        "expires_at": None if one.expires_at is None else one.expires_at.isoformat(),
    }  # fmt: skip


def runners(call: Call) -> JsonValue:
    """List the processes that execute jobs now."""
    return {"items": [one.json for one in call.engine.runners()], "next": None}


def schedules(call: Call) -> JsonValue:
    """List the schedules by name."""
    return {"items": [one.json for one in call.engine.schedules()], "next": None}


def kinds(call: Call) -> JsonValue:
    """List the kinds of jobs with all that each states."""
    return {"items": [describe(worker) for worker in call.engine.workers.values()], "next": None}


def statistics(call: Call) -> JsonValue:
    """Read what the database holds: missions, jobs, roots, sizes."""
    found = call.queries.overview()
    return {
        "missions": {**found.missions}, "jobs": {**found.jobs}, "held": call.queries.held_count(),
        "pruned": found.pruned, "waiting": {str(limit): count for limit, count in found.waiting.items()},
        "oldest_mission": found.oldest_mission, "bytes": found.bytes,
        "roots": [asdict(one) for one in call.queries.roots(limit=50).rows],
    }  # fmt: skip


def offered(call: Call) -> JsonValue:
    """Read which roots and missions the operator listed for launches, and what this token may."""
    return {
        "roots": [*map(str, call.offers.roots)], "missions": [*sorted(call.offers.missions)], "token": call.token.name,
        "scopes": [*call.token.scopes], "person": call.token.person,
    }  # fmt: skip


OPERATIONS = tuple(
    Operation(
        "GET", f"/v1{path}", Scope.LOOK, do, answer, query=query, streams=do in (events, mission_events)
    )
    for path, do, answer, query in (
        ("/missions", missions, Page[MissionHead], MissionsAsked),
        ("/missions/{mission}", mission, MissionObject, Waited),
        ("/missions/{mission}/turns", turns, Page[TurnHead], Listed),
        ("/missions/{mission}/turns/{number}", turn, Turn, None),
        ("/missions/{mission}/events", mission_events, Page[EventObject], EventsAsked),
        ("/missions/{mission}/changes", changes, Page[Changed], Listed),
        ("/missions/{mission}/report", report, Report, None),
        ("/missions/{mission}/rules", rules, Page[JsonObject], None),
        ("/missions/{mission}/plan", plan, Page[JsonObject], None),
        ("/missions/{mission}/spec", spec, Stated, None),
        ("/missions/{mission}/drafts", drafts, Drafts, None),
        ("/missions/{mission}/undo", to_undo, ToUndo, None),
        ("/missions/{mission}/viewed", viewed, Marks, None),
        ("/decisions", decisions, DecisionPage, DecisionsAsked),
        ("/activity", activity, ActivityObject, ActivityAsked),
        ("/events", events, None, None),
        ("/jobs", jobs, Page[JobHead], JobsAsked),
        ("/jobs/{job}", job, JobObject, None),
        ("/jobs/{job}/attempts", attempts, Page[JsonObject], None),
        ("/jobs/{job}/diff", diff, Page[DiffObject], None),
        ("/jobs/{job}/contents", contents, Sides, ContentsAsked),
        ("/jobs/{job}/policy", policy, Ruling, None),
        ("/jobs/{job}/undo", to_undo, ToUndo, None),
        ("/held", held, Page[HeldObject], HeldAsked),
        ("/held/{job}", held_job, Shown, None),
        ("/memory", memory, Page[MemoryObject], MemoryAsked),
        ("/memory/{entry}", entry, MemoryObject, None),
        ("/runners", runners, RunnerPage, None),
        ("/schedules", schedules, Page[ScheduleObject], None),
        ("/kinds", kinds, Page[JsonObject], None),
        ("/statistics", statistics, Statistics, None),
        ("/offers", offered, Offered, None),
    )
)


def _held(one: HeldJob) -> JsonObject:
    return {
        "id": one.id, "mission_id": one.mission_id, "kind": one.kind, "about": one.about,
        "reason": one.job["reason"], "awaits": one.awaits, "acts": [*sorted(one.acts)], "expires_at": one.expires_at,
        "has_ended": one.has_ended,
    }  # fmt: skip


def _page(found: list[JsonObject], limit: int, name: str) -> JsonObject:
    """The first of the rows, and the number of the last of them if there are more."""
    items: list[JsonValue] = [*found[:limit]]
    return {"items": items, "next": found[limit - 1][name] if len(found) > limit else None}


def _wants_stream(call: Call) -> bool:
    return STREAM in call.request.headers.get("accept", "")


def _last_event_id(call: Call) -> int | None:
    """The number that the header names. Raises `INVALID_ARGUMENT` for what is none."""
    text = call.request.headers.get("last-event-id")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        message = f"Last-Event-ID is {text[:40]!r}; the id of an event is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return int(text)


def _stream(call: Call, content: AsyncIterator[str]) -> Response:
    refused = call.pulse.enter(call.token)
    return _Counted(call, content) if refused is None else _busy(refused)


class _Counted(StreamingResponse):
    """A stream that counts until it has ended, however it does."""

    def __init__(self, call: Call, content: AsyncIterator[str]) -> None:
        super().__init__(content, media_type=STREAM, headers=HEADERS)
        self._call = call

    async def __call__(self, scope: Scope_, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.pulse.leave(self._call.token)


def _busy(message: str) -> Response:
    return problem(429, Failed(TOO_MANY_REQUESTS, message, advice=GENERAL), retry_after=5)
