"""Draw random missions and replies, and write them as people and planners do."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import strategies as st
from pydantic import JsonValue
from tests.model.rules import ACCEPT, DONE, GIVE_UP, QUESTION, TURN, Ask, Job, Limits, Reply, Spec, outcome_of

from lcp_engine.core.protocol.read_reply import Dialect

Object = dict[str, JsonValue]

asks = st.builds(
    Ask,
    kind=st.sampled_from(["do", "do", "do", TURN, TURN, "change", "ask_user", "system", "admin", "unknown"]),
    of=st.integers(0, 2),
    is_step=st.booleans(),
    auto_dispatch=st.sampled_from([None, None, None, True, False]),
).map(lambda ask: ask if ask.kind == TURN else replace(ask, is_step=False))
followups = st.one_of(
    st.builds(Reply, st.just("jobs"), st.lists(asks, min_size=1, max_size=4).map(tuple)),
    st.builds(Reply, st.just("jobs"), st.lists(asks, min_size=1, max_size=3).map(tuple)),
    st.builds(
        Reply, st.just("write_file"), st.tuples(st.builds(Ask, st.just("write_file"), st.integers(0, 1)))
    ),
)
replies = st.one_of(
    followups,
    st.sampled_from(
        ["mission_complete", "analysis_result", "no_followup_jobs", "error", "malformed", "malformed"]
    ).map(Reply),
)
numbers = st.integers(0, 2)


def steps_of(whole: list[int]) -> Reply:
    """A plan whose steps are asked one after the other."""
    places = enumerate(whole, 1)
    steps = (Ask(TURN, of, is_step=True, whole=tuple(whole), place=place) for place, of in places)
    return Reply("steps", tuple(steps))


followups_in_universal = st.one_of(
    followups,
    st.lists(numbers, min_size=2, max_size=4).map(steps_of),
    st.lists(numbers, min_size=1, max_size=4).map(steps_of),
    numbers.map(lambda of: Reply("unclear", (Ask(QUESTION, of, auto_dispatch=False),))),
    numbers.map(lambda of: Reply("faulty", (Ask(TURN, of, mends=True),))),
)
claims = st.sampled_from(["mission_complete", "passed", "passed", "no_followup_jobs"]).map(Reply)
replies_in_universal = st.one_of(replies, followups_in_universal, st.just(Reply("passed")))
limits = st.builds(
    Limits,
    max_turns=st.sampled_from([2, 4, 25]),
    max_seconds=st.sampled_from([30.0, 1800.0]),
    max_jobs=st.sampled_from([3, 100]),
    max_depth=st.sampled_from([1, 5]),
    max_followups=st.sampled_from([2, 5]),
    overflow=st.sampled_from(["refuse", "hold"]),
    max_corrections=st.sampled_from([0, 2]),
    max_stalled=st.sampled_from([1, 3]),
)
specs = st.builds(
    Spec,
    limits=st.one_of(st.just(Limits()), limits),
    each_result=st.sampled_from([False, False, True]),
    fails_with_job=st.sampled_from([False, False, True]),
    hold_timeout=st.sampled_from([None, None, 20.0]),
    holds_turns=st.sampled_from([False, False, True]),
    is_universal=st.booleans(),
    is_checked=st.booleans(),
    is_verified=st.booleans(),
)
answers = st.sampled_from(["yes", "no", ACCEPT, GIVE_UP])
outcomes = st.sampled_from(["done", "done", "written", "failed", "raised", "held"])


def dialect_of(spec: Spec) -> Dialect:
    return "universal" if spec.is_universal else "lcp"


def replies_to(turn: Job, *, goes_on: bool = False) -> st.SearchStrategy[Reply]:
    """The replies that a planner may give to the turn; `goes_on`: none that would end its plan."""
    spec = turn.mission.spec
    if not goes_on:
        return replies_in_universal if spec.is_universal else replies
    wanted = followups_in_universal if spec.is_universal else followups
    is_accepted = turn.acting.owner is None and (spec.is_checked or spec.is_verified)
    # LCP has no reply of its own for a verification: two replies with the same text are the same.
    done = claims if spec.is_universal else claims.map(lambda reply: Reply(outcome_of(reply)))
    return st.one_of(wanted, done) if is_accepted else wanted


def file_of(spec: Spec) -> Object:
    accept: list[JsonValue] = []
    if spec.is_checked:
        accept.append({"file_exists": "done.txt"})
    if spec.is_verified:
        accept.append({"verify": "Is it done?"})
    return {
        "goal": "Find out.",
        "planner": {"type": "script", "replies": [], "dialect": dialect_of(spec)},
        "limits": limits_of(spec.limits),
        "continue": "per_result" if spec.each_result else "per_batch",
        "on_job_failure": "fail" if spec.fails_with_job else "report",
        "hold_timeout": spec.hold_timeout,
        "policy": [{"kinds": [TURN], "do": "hold"}] if spec.holds_turns else [],
        "accept": accept,
    }


def limits_of(given: Limits) -> Object:
    return {**vars(given)}


def text_of(reply: Reply, spec: Spec) -> str:
    """The reply as a planner writes it."""
    if reply.is_malformed:
        return "I would rather not."
    return json.dumps(response_of(reply) if spec.is_universal else action_of(reply))


def action_of(reply: Reply) -> Object:
    """The reply in LCP."""
    if reply.action == "error":
        return {"ok": False, "action": "mission_complete", "error": "it cannot be done"}
    if reply.action == "write_file":
        return {"ok": True, "action": "write_file", "rel_path": f"{reply.asks[0].of}.txt", "content": "x"}
    if reply.action in DONE:
        return {"ok": True, "action": outcome_of(reply), "summary": "all done"}
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [request_of(ask) for ask in reply.asks]}


def response_of(reply: Reply) -> Object:
    """The reply in the universal schema: translated if that has such a reply, otherwise as LCP inside it."""
    ofs = [ask.of for ask in reply.asks]
    match reply.action:
        case "error":
            return respond("error", "error", "it cannot be done")
        case "mission_complete":
            return respond("answer", "success", "all done")
        case "analysis_result":
            return respond("research", "success", "all done")
        case "steps":
            steps: list[JsonValue] = [
                {"step_number": place, "action": f"Look at {of}."} for place, of in enumerate(ofs, 1)
            ]
            return respond("planning", "success", "", planning_data={"steps": steps})
        case "unclear":
            return respond("clarity", "needs_clarification", f"Which {ofs[0]}?")
        case "passed":
            return respond("verification", "PASS", "all done", verification_data=checks(passed=True))
        case "faulty":
            return respond("verification", "FAIL", "no", verification_data=checks(ofs[0], passed=False))
        case _:
            return respond("custom", "success", "", custom_fields={"lcp": action_of(reply)})


def respond(kind: str, status: str, message: str, **parts: JsonValue) -> Object:
    return {"response_type": kind, "status": status, "message": message, **parts}


def checks(of: int = 0, *, passed: bool) -> Object:
    return {"checks": [{"criterion": f"{of} is there", "passed": passed}]}


def request_of(ask: Ask) -> Object:
    params: Object = {"of": ask.of}
    if ask.kind == "ask_user":
        params = {"question": f"Which {ask.of}?"}
    if ask.kind == TURN:
        params = {"user_prompt": f"Look at {ask.of}.", **({"scope": "step"} if ask.is_step else {})}
    dispatch: Object = {} if ask.auto_dispatch is None else {"auto_dispatch": ask.auto_dispatch}
    return {"kind": ask.kind, "params": params, **dispatch}
