"""An agent that speaks the Agent Client Protocol is the planner of a staged mission."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import POSTGRES, SQLITE
from tests.patience import wait_until
from tests.runner.conftest import Ground
from tests.runner.theatre import Theatre
from tests.walls import NEEDS_OVERLAY

from lcp_engine import LcpError
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import object_in
from lcp_engine.features.acp_planner.client import _message_in
from lcp_engine.sandbox.system.landlock import Isolation

pytestmark = NEEDS_OVERLAY
AGENT = (Path(__file__).parent / "fake_agent.py").read_text(encoding="utf-8")
NEW: JsonValue = ["call", "call_1", "edit", "write n.txt", {"path": "n.txt", "content": "new\n"}]


@pytest.fixture(
    params=[
        pytest.param((SQLITE, Isolation.AUTO), id="sqlite"),
        pytest.param((POSTGRES, Isolation.OFF), id="postgres", marks=pytest.mark.proof),
    ]
)
def ground(request: pytest.FixtureRequest) -> Ground:
    """Fewer than those of the kernel: each turn of an agent takes a second."""
    url, isolation = request.param
    return Ground(request.getfixturevalue(url), isolation)


def play(
    theatre: Theatre,
    *prompts: list[JsonValue],
    silence: JsonValue = 60,
    decision: JsonValue = 20,
    agent: JsonValue = "",
    **spec: JsonValue,
) -> int:
    """A mission whose agent plays these steps, a list for each prompt; its id."""
    theatre.write("agent.py", AGENT)
    theatre.write("steps.json", json.dumps(prompts))
    planner: JsonValue = {
        "type": "acp",
        "agent": agent,
        "command": [sys.executable, "agent.py", "steps.json"],
        "decision_seconds": decision,
        "silence": silence,
    }
    whole: dict[str, JsonValue] = {"goal": "Write n.txt.", "planner": planner, "stage": True, **spec}
    theatre.mission = theatre.engine.launch(whole, root=theatre.root).id
    theatre.work()
    return theatre.mission


def calls(theatre: Theatre) -> list[tuple[str, str, JsonValue]]:
    """Kind and state of each tool call, with what changed meanwhile."""
    found = []
    for job in theatre.engine.jobs(mission_id=theatre.mission):
        if job.kind.startswith("agent_") and job.kind != "agent_plan":
            details = job.result or (job.error or {}).get("technical_details") or {}
            assert isinstance(details, dict)
            found.append((job.kind, str(job.state), details.get("changed")))
    return found


def test_what_an_agent_did_is_merged_and_its_last_message_is_the_summary(theatre: Theatre) -> None:
    play(theatre, [
        ["think", "hm"], ["say", "I begin."], NEW, ["write", "n.txt", "new\n"], ["done", "call_1", "written"],
        ["call", "call_2", "execute", "wc -c n.txt", {"command": "wc -c n.txt"}], ["done", "call_2", "4"],
        ["say", "n.txt is "], ["say", "written."],
    ])  # fmt: skip
    assert calls(theatre) == [("agent_edit", "succeeded", ["n.txt"]), ("agent_run", "succeeded", [])]
    merge = theatre.merge()
    assert "n.txt" not in theatre.files()
    theatre.approve(merge)
    assert theatre.files()["n.txt"] == "new\n"
    mission = theatre.engine.mission(theatre.mission)
    assert (mission.status, mission.summary) == ("completed", "n.txt is written.")
    assert mission.tokens == {"input": 100, "output": 10}


def said(theatre: Theatre) -> str:
    """The summary of the last turn."""
    turn = theatre.engine.turns(theatre.mission)[-1]
    return str(json.loads(str(turn["reply"])).get("summary"))


HELD: dict[str, JsonValue] = {"policy": [{"kinds": ["write_file"], "do": "hold"}]}
ASK: JsonValue = ["ask", "call_1", "edit", "write n.txt", {"content": "new\n"}, "n.txt", "new\n"]
ASKED: list[JsonValue] = [
    ["call", "call_1", "edit", "write n.txt", {"content": "new\n"}, "n.txt"], ASK, ["write", "n.txt", "new\n"],
    ["settle", "call_1"], ["answers"],
]  # fmt: skip


def held(theatre: Theatre, kind: str = "agent_edit") -> int | None:
    """The call that waits for a person."""
    jobs = theatre.engine.jobs(mission_id=theatre.mission, states=[State.HELD])
    return next((job.id for job in jobs if job.kind == kind), None)


@contextmanager
def decided(theatre: Theatre, decide: Callable[[int], object], kind: str = "agent_edit") -> Iterator[None]:
    """Meanwhile somebody decides on the first call that is held."""

    def watch() -> None:
        wait_until(lambda: theatre.mission and held(theatre, kind), "no call is held")
        job = held(theatre, kind)
        assert job is not None
        decide(job)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(watch)
        yield
        found.result(60)


def test_policy_answers_at_once_what_no_rule_holds(theatre: Theatre) -> None:
    play(theatre, ASKED)
    assert calls(theatre) == [("agent_edit", "succeeded", ["n.txt"])]


def test_a_denied_call_is_rejected_and_named(theatre: Theatre) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "paths": ["n.txt"], "do": "deny"}
    play(theatre, ASKED, policy=[rule])
    assert calls(theatre) == [("agent_edit", "failed", [])]
    assert "n.txt" not in theatre.files()


def test_a_held_call_waits_for_a_person_while_the_agent_waits(theatre: Theatre) -> None:
    def approve(job: int) -> None:
        (diff,) = theatre.engine.diff(job, by="ada")
        assert diff.lines[-1] == "+new"
        theatre.engine.approve(job, by="ada")

    with decided(theatre, approve):
        play(theatre, ASKED, **HELD)
    assert calls(theatre) == [("agent_edit", "succeeded", ["n.txt"])]
    theatre.approve(theatre.merge())
    assert theatre.files()["n.txt"] == "new\n"
    assert theatre.engine.mission(theatre.mission).summary == "yes"  # and once: the agent says all answers


def test_an_agent_is_told_that_a_person_rejected(theatre: Theatre) -> None:
    with decided(theatre, lambda job: theatre.engine.reject(job, "not now", by="ada")):
        play(theatre, ASKED, **HELD)
    assert calls(theatre) == [("agent_edit", "rejected", None)]
    assert said(theatre) == "no"


def errors(theatre: Theatre) -> list[tuple[str, JsonValue]]:
    """The error of each failed call, with what differed in the stage."""
    failed = theatre.engine.jobs(mission_id=theatre.mission, states=[State.FAILED])
    found = [job.error or {} for job in failed if job.kind != "agent_plan"]
    return [(str(one["error_code"]), object_in(one["technical_details"]).get("changed")) for one in found]


def test_an_agent_that_dies_goes_on_in_its_session_and_the_call_under_way_is_unknown(
    theatre: Theatre,
) -> None:
    play(theatre, [
        ["say", "I begin."], NEW, ["write", "n.txt", "new\n"], ["die"],
    ], [["say", "It was there."]], kinds={"agent_plan": {"retry": {"delay": 0}}})  # fmt: skip
    assert errors(theatre) == [("OUTCOME_UNKNOWN", ["n.txt"])]
    assert calls(theatre) == [("agent_edit", "failed", ["n.txt"])]  # none of those that loading repeats
    assert said(theatre) == "It was there."
    assert "interrupted" in str(theatre.engine.turns(theatre.mission)[-1]["prompt"])
    (lost,) = theatre.engine.jobs(mission_id=theatre.mission, states=[State.FAILED])
    theatre.engine.retry(lost.id)
    theatre.work()
    assert "no runner does it again" in str(theatre.engine.job(lost.id).error)
    theatre.approve(theatre.merge())
    assert theatre.files()["n.txt"] == "new\n"


def test_bad_words_of_an_agent_end_no_turn(theatre: Theatre) -> None:
    outside: list[JsonValue] = [["ask", "call_7", "edit", "x", {}, "/etc/passwd", "x"], ["answers"]]
    play(theatre, [
        ["raw", 'hi\n[1]\n{"id": [1], "method": 7}\n\xff\n'], NEW, ["done", "call_1"], NEW, ["done", "call_1"],
        ["done", "call_8"], ["flood", 1000], ["call", "call_9", "read", "open", {}], *outside,
    ])  # fmt: skip
    assert said(theatre) == "no"
    assert [state for _, state, _ in calls(theatre)] == ["succeeded"] * 3 + ["failed"] * 2


def test_a_decision_that_comes_later_is_given_to_the_next_equal_call_once(theatre: Theatre) -> None:
    play(theatre, ASKED, [*ASKED[:-1], ASK, ["answers"]], decision=0.1, **HELD)
    first = held(theatre)
    assert first is not None
    assert (theatre.state(), said(theatre)) == (("waiting", None), "cancelled")
    theatre.approve(first)
    second = held(theatre)  # asked for once more than was approved
    assert second not in {None, first}
    assert said(theatre) == "cancelled yes cancelled"
    assert calls(theatre)[1] == ("agent_edit", "succeeded", ["n.txt"])
    theatre.engine.reject(second, "enough", by="ada")
    theatre.work()
    assert said(theatre).endswith("no no")
    theatre.approve(theatre.merge())
    assert theatre.state() == ("completed", "mission_complete")


UNFIT: dict[str, tuple[dict[str, JsonValue], str]] = {
    "no stage": ({"stage": False}, "needs a stage"),
    "a verification": ({"accept": [{"type": "verify", "question": "Is it?"}]}, "verify"),
    "a result": ({"result": {"schema": {"type": "object"}}}, "result: an agent ends with words"),
    "a turn for each result": ({"continue": "per_result"}, "per_batch"),
    "a cost without a price": ({"limits": {"max_cost": 1}}, "max_cost"),
    "no agent": ({"planner": {"type": "acp"}}, "agent or command"),
    "an unknown agent": ({"planner": {"type": "acp", "agent": "opencod"}}, "did you mean 'opencode'"),
}


def test_a_mission_that_no_agent_can_keep_to_is_refused_with_the_reason(theatre: Theatre) -> None:
    for given, fact in UNFIT.values():
        with pytest.raises(LcpError) as refused:
            play(theatre, ASKED, **given)
        assert fact in str(refused.value)


FAULTY: dict[str, tuple[list[JsonValue], dict[str, JsonValue], str]] = {
    "silence": ([["sleep", 60]], {"silence": 2}, "it said nothing for 2 s"),
    "an error": ([["fail", -32603, "no such model"]], {}, "no such model"),
    "no login": ([["fail", -32000, "log in"]], {}, "log in"),
    "cancelled": ([["end", "cancelled"]], {}, "did not finish: it was cancelled"),
    "a line without end": ([["endless"]], {}, "a line of more than"),
    "too many calls": ([NEW, ["done", "call_1"]] * 2, {"limits": {"max_jobs": 1}}, "max_jobs = 1"),
}  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize(("steps", "given", "fact"), FAULTY.values(), ids=FAULTY)
def test_a_turn_without_an_end_fails_with_its_reason(
    theatre: Theatre, steps: list[JsonValue], given: dict[str, JsonValue], fact: str
) -> None:
    once: JsonValue = {"agent_plan": {"retry": {"max_attempts": 1}}}
    play(theatre, steps, kinds=once, **given)
    mission = theatre.engine.mission(theatre.mission)
    assert mission.status == "failed"
    assert fact in str(mission.error["user_message"])


def test_an_error_of_an_agent_has_no_key_in_it(theatre: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-test-4f9a8b7c6d5e4f3a2b1c"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    play(theatre, [["fail", -32000, f"bad key {key}"]], agent="qwen")
    assert str(theatre.engine.mission(theatre.mission).error["user_message"]) == "qwen: bad key …"


def test_numbers_that_json_cannot_state_are_none() -> None:
    line = b'{"id": 1, "params": [NaN, -Infinity, 1e999, 1.5]}'
    assert _message_in(line) == {"id": 1, "params": [None, None, None, 1.5]}


def test_an_approval_is_for_the_call_that_was_shown_and_no_other(theatre: Theatre) -> None:
    def asked(title: str, given: JsonValue = None) -> JsonValue:
        return ["ask", "call_1", "execute", title, given]

    rule: JsonValue = [{"kinds": ["run_command"], "do": "hold"}]
    first: list[JsonValue] = [asked("ls"), asked("rm b"), ["done", "call_1"], ["answers"]]
    second: list[JsonValue] = [asked("rm c"), asked("rm c", {"a": "b"}), ["answers"]]
    with decided(theatre, lambda job: theatre.engine.approve(job, by="ada"), "agent_run"):
        play(theatre, first, second, decision=2.0, policy=rule)
    assert said(theatre) == "yes cancelled"
    theatre.approve(held(theatre, "agent_run") or 0)
    assert said(theatre) == "yes cancelled cancelled cancelled"
    jobs = theatre.engine.jobs(mission_id=theatre.mission, kinds=["agent_run"])
    assert [(one.name, one.params["title"]) for one in jobs[:2]] == [("ls", "ls"), ("rm b", "rm b")]
