"""Operations that write: launch missions, decide on jobs, steer missions, and change what outlasts them."""

from __future__ import annotations

import threading
from dataclasses import replace

from pydantic import JsonValue
from starlette.responses import Response

from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import int_in
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.http_api.look import entry_object, undo_target
from lcp_engine.features.http_api.operations import Call, Operation, problem
from lcp_engine.features.http_api.values import (
    Always,
    Answer,
    Approve,
    Decided,
    Edit,
    Fork,
    Launch,
    Looked,
    MemoryObject,
    MissionObject,
    Params,
    Reject,
    Removed,
    Replayed,
    Resume,
    RuleOf,
    Say,
    Steered,
    Undo,
    Undone,
)
from lcp_engine.features.memory.calls import MemoryEdit
from lcp_engine.features.tokens.calls import TOO_MANY_REQUESTS, Scope
from lcp_engine.inbox import Sight


def launch(call: Call) -> JsonValue:
    """Launch a mission: a listed one, or any over a listed root."""
    spec, root = call.offers.chosen(call.given(Launch))
    return call.engine.launch(spec, root=root, by=call.token.person).id


def launch_scheduled(call: Call) -> JsonValue:
    """Launch the mission of a schedule now; its next due time stays."""
    return call.engine.launch_scheduled(call.path["schedule"], by=call.token.person).id


def fork(call: Call) -> JsonValue:
    """Queue a new mission over a listed root, in the state that this one had when it asked a turn, or began a step."""
    asked = call.given(Fork)
    call.offers.root(call.engine.mission(call.id("mission")).root or "")
    planner = None if asked.planner is None else PlannerSpec(type=asked.planner)
    return call.engine.fork(
        call.id("mission"), turn=asked.turn, step=asked.step, reply=asked.reply, planner=planner,
        by=call.token.person,
    ).id  # fmt: skip


_replays = threading.Lock()


def replay(call: Call) -> JsonValue | Response:
    """Run a mission that has ended again from its history, beside its root, and compare: one at a time at a server.

    Results of jobs are in it: the token needs the scope `look`, too.
    """
    if Scope.LOOK not in call.token.scopes:
        message = f"token {call.token.name} may not look; a replay shows results of jobs"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=GENERAL)
    if not _replays.acquire(blocking=False):
        busy = Failed(TOO_MANY_REQUESTS, "another replay is under way at this server", advice=GENERAL)
        return problem(429, busy, retry_after=5)
    try:
        found = call.engine.replay(call.id("mission"))
    finally:
        _replays.release()
    return {
        "jobs": found.jobs, "questions": found.questions, "differences": found.as_json(), "stopped": found.stopped,
    }  # fmt: skip


def tell_launched(call: Call, done: JsonValue) -> JsonValue:
    """The new mission."""
    return call.engine.mission(int_in(done)).json


def look(call: Call) -> JsonValue:
    """Read what a held job would change with other params, and the mark `shown` that names it."""
    id_ = call.id("job")
    if (found := call.engine.job(id_)).state != State.HELD:
        message = f"job {id_} is {found.state}; only held jobs wait for a decision"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    seen = call.engine.look(id_, params=call.given(Params).params)
    call.engine.note_sight(id_, seen.sight, by=call.viewer)
    return {"diffs": [one.json for one in seen.diffs], "caveat": seen.caveat, "shown": seen.sight.mark}


def approve(call: Call) -> JsonValue:
    """Let a held job run as it was shown, perhaps with other params that were shown."""
    asked, id_ = call.given(Approve), call.id("job")
    return call.engine.approve(
        id_,
        params=asked.params,
        by=call.by,
        shown=_shown(call, id_, asked.shown, asked.params),
        words=asked.words,
    )


def approve_always(call: Call) -> JsonValue:
    """Approve a held job, and add a rule to its mission that lets such jobs run from now on."""
    asked, id_ = call.given(Always), call.id("job")
    offered, shown = call.engine.rules_for(id_), _shown(call, id_, asked.shown)
    if asked.rule >= len(offered):
        message = f"job {id_} has {len(offered)} rules; rule {asked.rule} is not one of them"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    call.engine.approve_always(id_, offered[asked.rule], by=call.by, shown=shown)
    return True


def reject(call: Call) -> JsonValue:
    """Refuse a held job; the planner reads the reason."""
    asked, id_ = call.given(Reject), call.id("job")
    if asked.shown is not None:
        _shown(call, id_, asked.shown)
    return call.engine.reject(id_, asked.reason, by=call.by)


def answer(call: Call) -> JsonValue:
    """Answer a question as it was shown, or bring the reply of a planner who is a person."""
    asked, found = call.given(Answer), call.engine.job(call.id("job"))
    if asked.shown is None and found.kind == QUESTION:
        message = f"an answer to job {found.id} names the question that was shown; nothing was answered"
        raise LcpError(ErrorCode.NOT_SHOWN, message)
    return call.engine.answer(
        found.id, asked.text, by=call.by, words=asked.words, form=asked.form, shown=asked.shown
    )


def say_about(call: Call) -> JsonValue:
    """Send the planner a message about a job, which stays as it is."""
    id_ = call.id("job")
    call.engine.say(call.engine.job(id_).mission_id, call.given(Say).text, job_id=id_, by=call.by)
    return True


def retry(call: Call) -> JsonValue:
    """Queue a failed, skipped or cancelled job again."""
    call.engine.retry(call.id("job"), by=call.by)
    return True


def tell_job(call: Call, done: JsonValue) -> JsonValue:
    """The job as it is now."""
    return {"job": call.engine.job(call.id("job")).json, "changed": done is not False}


def say(call: Call) -> JsonValue:
    """Send the planner of a mission a message, which decides nothing."""
    call.engine.say(call.id("mission"), call.given(Say).text, by=call.by)
    return True


def cancel(call: Call) -> JsonValue:
    """Stop a mission."""
    return call.engine.cancel(call.id("mission"), by=call.by)


def resume(call: Call) -> JsonValue:
    """Continue a mission that has ended, with other limits if given."""
    call.engine.resume(call.id("mission"), limits=call.given(Resume).limits, by=call.by)
    return True


def remove_rule(call: Call) -> JsonValue:
    """Take a rule of a mission out, if it is still the one that was listed by this number: such jobs wait again."""
    mission_id, number = call.id("mission"), call.id("number")
    there = [one.as_json() for one in call.engine.rules(mission_id)[number - 1 : number]]
    if there and there != [call.given(RuleOf).rule]:
        message = f"rule {number} of mission {mission_id} is another one by now; nothing was removed"
        raise LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)
    call.engine.remove_rule(mission_id, number, by=call.by)
    return True


def tell_mission(call: Call, done: JsonValue) -> JsonValue:
    """The mission as it is now."""
    return {"mission": call.engine.mission(call.id("mission")).json, "changed": done is not False}


def undo(call: Call) -> JsonValue:
    """Restore the files that a mission, or a job, has changed: exactly what was shown, or nothing."""
    mission_id, job_id = undo_target(call)
    return call.engine.undo(mission_id, job_id=job_id, shown=call.given(Undo).shown, by=call.by).job_id


def tell_undo(call: Call, done: JsonValue) -> JsonValue:
    """The undo itself, which is carried out first if it was interrupted."""
    if done is None:
        mission_id, job_id = undo_target(call)
        of = call.engine.job(job_id).mission_id if job_id is not None else mission_id
        return {"mission_id": of, "job_id": None, "files": []}
    undone = call.engine.finish_undo(int_in(done))
    return {"mission_id": undone.mission_id, "job_id": undone.job_id, "files": [*undone.files]}


def remove_schedule(call: Call) -> JsonValue:
    """Remove a schedule; missions that it launched go on."""
    call.engine.remove_schedule(call.path["schedule"])
    return True


def tell_removed(call: Call, done: JsonValue) -> JsonValue:
    """The name or number of what is gone."""
    return {"removed": [*call.path.values()][-1]}


def edit(call: Call) -> JsonValue:
    """Correct an entry of memory."""
    asked = call.given(Edit)
    change = MemoryEdit(
        title=asked.title, content=asked.content, tags=asked.tags, files=asked.files,
        importance=asked.importance,
    )  # fmt: skip
    call.engine.memory.edit(call.id("entry"), change, seen=asked.seen)
    return True


def tell_entry(call: Call, done: JsonValue) -> JsonValue:
    """The entry as it is now."""
    return entry_object(call.engine.memory.find(call.id("entry")))


def forget(call: Call) -> JsonValue:
    """Remove an entry of memory for good."""
    return call.engine.memory.forget(call.id("entry"))


def _shown(call: Call, job_id: int, mark: str, params: dict[str, JsonValue] | None = None) -> Sight:
    """The sight that this token had last of a job, if that has this mark and these params. Raises `CONFLICT`."""
    sight = call.engine.last_seen(job_id, by=call.viewer)
    if sight is not None and sight.mark == mark:
        if sight.fingerprint == call.engine.look(job_id, params=params).sight.fingerprint:
            return replace(sight, job_id=job_id)
        message = f"{mark!r} shows job {job_id} with other params than those to be approved"
        raise LcpError(
            ErrorCode.CONFLICT, message, advice=f"Read /v1/jobs/{job_id}/look, then decide on that."
        )
    message = f"{mark[:40]!r} is not the mark of what token {call.token.name} was shown last of job {job_id}"
    raise LcpError(ErrorCode.CONFLICT, message, advice=f"Read /v1/held/{job_id}, then decide on that.")


_JOB, _MISSION = "/v1/jobs/{job}", "/v1/missions/{mission}"
OPERATIONS = (
    Operation("POST", "/v1/missions", Scope.LAUNCH, launch, MissionObject, None, Launch, tell_launched, 201),
    Operation("POST", f"{_MISSION}/fork", Scope.LAUNCH, fork, MissionObject, None, Fork, tell_launched, 201),
    Operation(
        "POST", "/v1/schedules/{schedule}/launch", Scope.LAUNCH, launch_scheduled, MissionObject, None, None,
        tell_launched, 201, others=1,
    ),
    Operation("POST", f"{_MISSION}/replay", Scope.LAUNCH, replay, Replayed),
    Operation("POST", f"{_JOB}/look", Scope.DECIDE, look, Looked, body=Params),
    *(
        Operation("POST", f"{path}/{name}", Scope.DECIDE, do, kind, None, body, tell)
        for path, name, do, kind, body, tell in (
            (_JOB, "approve", approve, Decided, Approve, tell_job),
            (_JOB, "always", approve_always, Decided, Always, tell_job),
            (_JOB, "reject", reject, Decided, Reject, tell_job),
            (_JOB, "answer", answer, Decided, Answer, tell_job),
            (_JOB, "say", say_about, Decided, Say, tell_job),
            (_JOB, "retry", retry, Decided, None, tell_job),
            (_JOB, "undo", undo, Undone, Undo, tell_undo),
            (_MISSION, "say", say, Steered, Say, tell_mission),
            (_MISSION, "cancel", cancel, Steered, None, tell_mission),
            (_MISSION, "resume", resume, Steered, Resume, tell_mission),
            (_MISSION, "undo", undo, Undone, Undo, tell_undo),
        )
    ),
    Operation(
        "DELETE", f"{_MISSION}/rules/{{number}}", Scope.ADMIN, remove_rule, Steered, None, RuleOf, tell_mission
    ),
    Operation("DELETE", "/v1/schedules/{schedule}", Scope.ADMIN, remove_schedule, Removed, tell=tell_removed),
    Operation("PATCH", "/v1/memory/{entry}", Scope.ADMIN, edit, MemoryObject, None, Edit, tell_entry),
    Operation("DELETE", "/v1/memory/{entry}", Scope.ADMIN, forget, Removed, tell=tell_removed),
)  # fmt: skip
