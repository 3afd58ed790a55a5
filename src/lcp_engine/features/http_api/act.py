"""Operations that write: launch missions, decide on jobs, steer missions, and change what outlasts them."""

from __future__ import annotations

import threading
from dataclasses import replace

from pydantic import JsonValue, ValidationError
from starlette.responses import Response

from lcp_engine.api.bulk import decide_each
from lcp_engine.api.inbox import ViewedFiles
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import int_in
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.mission.spec import PlannerSpec, expected_result
from lcp_engine.core.policy import Rule
from lcp_engine.core.refused_values import explain_first
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.authoring.dry_run import dry_run
from lcp_engine.features.http_api.launch import chosen
from lcp_engine.features.http_api.look import diff_object, entry_object, undo_target
from lcp_engine.features.http_api.operations import Call, Operation, problem
from lcp_engine.features.http_api.values import (
    Always,
    Answer,
    Approve,
    Checking,
    Decided,
    DecidedEach,
    DecideHeld,
    Edit,
    Fork,
    Launch,
    Looked,
    Marks,
    MemoryObject,
    Merged,
    MissionObject,
    NewSchedule,
    Outlook,
    Params,
    Reject,
    Removed,
    Replayed,
    Resume,
    RuleOf,
    Say,
    SayAbout,
    ScheduleObject,
    Steered,
    Text,
    Undo,
    Undone,
    View,
)
from lcp_engine.features.memory.calls import MemoryEdit
from lcp_engine.features.models.examination import examine_planner
from lcp_engine.features.rules.config_text import add_rule, with_rule
from lcp_engine.features.tokens.calls import TOO_MANY_REQUESTS, Scope
from lcp_engine.inbox import Sight
from lcp_engine.settings import config_path


def launch(call: Call) -> JsonValue:
    """Launch a mission: a listed one, or any over a listed root."""
    spec, root = chosen(call.offers, call.given(Launch))
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


_long = threading.Lock()
"""A server does one thing at a time that takes long."""


def replay(call: Call) -> JsonValue | Response:
    """Run a mission that has ended again from its history, beside its root, and compare: one at a time at a server.

    Results of jobs are in it: the token needs the scope `look`, too.
    """
    _need(call, Scope.LOOK, "a replay shows results of jobs")
    if not _long.acquire(blocking=False):
        return _busy()
    try:
        found = call.engine.replay(call.id("mission"))
    finally:
        _long.release()
    return {
        "jobs": found.jobs, "questions": found.questions, "differences": found.as_json(), "stopped": found.stopped,
    }  # fmt: skip


def check(call: Call) -> JsonValue | Response:
    """Read what a mission would do, without launching it.

    With `ask`, its model is tested, too: one at a time at a server.
    """
    asked = call.given(Checking)
    spec, root = chosen(call.offers, asked)
    instance = call.engine.instance
    found = dry_run(spec, root, instance.url, instance.admission, instance.planner_environment)
    findings: list[JsonValue] = []
    if asked.ask:
        if not _long.acquire(blocking=False):
            return _busy()
        try:
            tested = examine_planner(spec.planner, instance.planner_environment, expected_result(spec))
            findings = [one.json for one in tested]
        finally:
            _long.release()
    return {**found.json, "findings": findings}


def _busy() -> Response:
    message = "another replay, or test of a model, is under way at this server"
    return problem(429, Failed(TOO_MANY_REQUESTS, message, advice=GENERAL), retry_after=5)


def _need(call: Call, scope: Scope, fact: str) -> None:
    """Raise `NOT_ALLOWED` for a token without this scope, which a part of an operation needs besides its own."""
    if scope not in call.token.scopes:
        message = f"token {call.token.name} may not {scope}; {fact}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=GENERAL)


def tell_launched(call: Call, done: JsonValue) -> JsonValue:
    """The new mission."""
    return call.engine.mission(int_in(done)).json


def look(call: Call) -> JsonValue:
    """Read what a held job would change with other params, and the mark `shown` that names it if all is shown."""
    id_ = call.id("job")
    if (found := call.engine.job(id_)).state != State.HELD:
        message = f"job {id_} is {found.state}; only held jobs wait for a decision"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    seen = call.engine.look(id_, params=call.given(Params).params)
    sight = seen.sight if seen.is_whole else None
    if sight is not None:
        call.engine.note_sight(id_, sight, by=call.viewer)
    shown = None if sight is None else sight.mark
    return {"diffs": [*map(diff_object, seen.diffs)], "caveat": seen.caveat, "shown": shown}


def merged(call: Call) -> JsonValue:
    """Read the text that a held merge would give a file, to edit it: `edits` of other params have the edited texts."""
    asked = call.given(Merged)
    return {"text": call.engine.merged_text(call.id("job"), asked.path, params=asked.params)}


def approve(call: Call) -> JsonValue:
    """Let a held job run as it was shown, perhaps with other params that were shown."""
    asked, id_ = call.given(Approve), call.id("job")
    return call.engine.approve(
        id_,
        params=asked.params,
        by=call.by,
        shown=_shown(call, id_, asked.shown, asked.params),
        words=asked.with_comments(asked.words),
    )


def approve_always(call: Call) -> JsonValue:
    """Approve a held job, and add a rule to its mission, or to all, that lets such jobs run from now on."""
    asked, id_ = call.given(Always), call.id("job")
    rule, shown = _rule_of(call), _shown(call, id_, asked.shown)
    if asked.scope == "user":
        _need(call, Scope.ADMIN, "a rule for all missions outlasts this one")
        with_rule(config_path(), rule)  # raises for a file that cannot be changed
    call.engine.approve_always(id_, rule, by=call.by, shown=shown)
    return True


def tell_always(call: Call, done: JsonValue) -> JsonValue:
    """The job as it is now; a rule for all missions is in the configuration then."""
    if call.given(Always).scope == "user":
        add_rule(config_path(), _rule_of(call))
    return tell_job(call, done)


def _rule_of(call: Call) -> Rule:
    asked, id_ = call.given(Always), call.id("job")
    offered = call.engine.rules_for(id_)
    if asked.rule >= len(offered):
        message = f"job {id_} has {len(offered)} rules; rule {asked.rule} is not one of them"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    rule = offered[asked.rule]
    if asked.paths is None:
        return rule
    try:
        return Rule.model_validate({**rule.model_dump(), "paths": asked.paths})
    except ValidationError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, explain_first(refused, Rule)) from refused


def decide_held(call: Call) -> JsonValue:
    """Approve or reject several held jobs, each as it was shown; what one is refused for stops no other."""
    asked, by = call.given(DecideHeld), call.by
    reason, marks = asked.reason, {one.job: one.shown for one in asked.jobs}
    if asked.decision == "reject" and reason is None:
        message = "a rejection needs a reason; nothing was decided"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Send it again with `reason`, in words.")

    def decide(id_: int) -> bool:
        mark, sight = marks[id_], Sight("", None, None, 0)
        if call.engine.job(id_).state == State.HELD and (mark is not None or asked.decision == "approve"):
            sight = _shown(call, id_, mark or "")
        if asked.decision == "reject":
            return call.engine.reject(id_, reason or "", by=by)
        return call.engine.approve(id_, by=by, shown=sight)

    tally = decide_each(call.engine, [*marks], decide, asked.decision, by=by)
    left = [id_ for id_ in marks if id_ not in {*tally.done, *tally.waiting, *tally.before}]
    refused: list[JsonValue] = [
        {"job": id_, "code": str(why.code), "detail": str(why)}
        for id_, why in zip(left, tally.refused, strict=True)
    ]
    return {
        "done": [*tally.done], "waiting": [*tally.waiting], "before": [*tally.before], "refused": refused,
    }  # fmt: skip


def tell(call: Call, done: JsonValue) -> JsonValue:
    """The result itself."""
    return done


def view(call: Call) -> JsonValue:
    """Mark a file of a job as viewed by the token's person, in its mission, or no longer; all marks of that mission."""
    asked = call.given(View)
    files = ViewedFiles(call.engine.instance, call.engine.job(call.id("job")).mission_id, call.by)
    if asked.viewed:
        files.add(asked.mark, was_seen=asked.seen)
    else:
        files.remove(asked.mark)
    return {**files.marks()}


def reject(call: Call) -> JsonValue:
    """Refuse a held job; the planner reads the reason."""
    asked, id_ = call.given(Reject), call.id("job")
    if asked.shown is not None:
        _shown(call, id_, asked.shown)
    return call.engine.reject(id_, asked.with_comments(asked.reason) or "", by=call.by)


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
    id_, asked = call.id("job"), call.given(SayAbout)
    words = asked.with_comments(asked.text) or ""
    call.engine.say(call.engine.job(id_).mission_id, words, job_id=id_, by=call.by)
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


def add_schedule(call: Call) -> JsonValue:
    """Have runners launch a mission, as a launch names it, repeatedly or once at a time.

    The token needs the scope `launch`, too.
    """
    _need(call, Scope.LAUNCH, "a schedule launches missions")
    asked = call.given(NewSchedule)
    spec, root = chosen(call.offers, asked)
    call.engine.add_schedule(
        asked.name, spec, root=root, every=asked.every, cron=asked.cron, at=asked.at, timezone=asked.timezone,
        overlap=asked.overlap, replace=asked.replace,
    )  # fmt: skip
    return True


def tell_schedule(call: Call, done: JsonValue) -> JsonValue:
    """The schedule as it is now."""
    return call.engine.schedule(call.given(NewSchedule).name).json


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
    Operation("POST", "/v1/check", Scope.LAUNCH, check, Outlook, body=Checking),
    Operation("POST", f"{_JOB}/look", Scope.DECIDE, look, Looked, body=Params),
    Operation("POST", f"{_JOB}/merged", Scope.DECIDE, merged, Text, body=Merged),
    Operation("POST", "/v1/decisions", Scope.DECIDE, decide_held, DecidedEach, None, DecideHeld, tell, others=-1),
    *(
        Operation("POST", f"{path}/{name}", Scope.DECIDE, do, kind, None, body, told)
        for path, name, do, kind, body, told in (
            (_JOB, "approve", approve, Decided, Approve, tell_job),
            (_JOB, "always", approve_always, Decided, Always, tell_always),
            (_JOB, "reject", reject, Decided, Reject, tell_job),
            (_JOB, "answer", answer, Decided, Answer, tell_job),
            (_JOB, "say", say_about, Decided, SayAbout, tell_job),
            (_JOB, "viewed", view, Marks, View, tell),
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
    Operation(
        "POST", "/v1/schedules", Scope.ADMIN, add_schedule, ScheduleObject, None, NewSchedule, tell_schedule, 201
    ),
    Operation("DELETE", "/v1/schedules/{schedule}", Scope.ADMIN, remove_schedule, Removed, tell=tell_removed),
    Operation("PATCH", "/v1/memory/{entry}", Scope.ADMIN, edit, MemoryObject, None, Edit, tell_entry),
    Operation("DELETE", "/v1/memory/{entry}", Scope.ADMIN, forget, Removed, tell=tell_removed),
)  # fmt: skip
