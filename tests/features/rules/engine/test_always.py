"""A person lets jobs like a held one run from now on, by a rule that is added to the mission."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.engine.conftest import Lab, Object, OpenLab

from lcp_engine import Rule
from lcp_engine.core.paths.patterns import compile_rule, literal
from lcp_engine.core.policy import Verdict
from lcp_engine.errors import ErrorCode, LcpError

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}
DOCS = Rule(kinds=("write_file",), paths=("docs/",), do=Verdict.AUTO)


def ask(*jobs: tuple[str, Object], **keys: JsonValue) -> Object:
    new_jobs: list[JsonValue] = [{"kind": kind, "params": params, **keys} for kind, params in jobs]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def write(*paths: str, **keys: JsonValue) -> Object:
    params: list[Object] = [{"rel_path": path, "content": f"{path}\n"} for path in paths]
    return ask(*(("write_file", each) for each in params), **keys)


def refusal(lab: Lab, job: int, rule: Rule) -> LcpError:
    with pytest.raises(LcpError) as refused:
        lab.engine.approve_always(job, rule, by="anna")
    assert lab.engine.rules(1) == ()
    return refused.value


def test_the_narrowest_rule_is_about_the_very_path(lab: Lab) -> None:
    lab.run(write("docs/guide/a.md", "b.md"), DONE)
    assert [rule.as_json() for rule in lab.engine.rules_for(2)] == [
        {"kinds": ["write_file"], "paths": ["/docs/guide/a.md"], "do": "auto"},
        {"kinds": ["write_file"], "paths": ["/docs/guide/"], "do": "auto"},
    ]
    assert [str(rule) for rule in lab.engine.rules_for(3)] == ["write_file /b.md"]


@given(st.lists(st.text("ab *?[]!#\\ .é-", min_size=1, max_size=6), min_size=1, max_size=3))
def test_a_literal_pattern_matches_its_path_and_no_other(parts: list[str]) -> None:
    names = [part for part in parts if part not in (".", "..")]
    if not names:
        return
    path = "/".join(names)
    matches = compile_rule((literal(path),), grants=True).matches
    assert matches(path)
    assert not matches(f"{path}x")
    assert not matches(f"x/{path}")


def test_jobs_like_it_run_from_then_on_and_others_wait(lab: Lab) -> None:
    lab.run(write("docs/a.md", "b.md"), write("docs/c.md", "d.md"), DONE)
    assert lab.engine.approve_always(2, DOCS, by="anna") == []
    assert lab.states() == ["queued", "held"]
    lab.engine.reject(3, "no", by="anna")
    lab.work()
    assert {job.params["rel_path"]: job.state for job in lab.jobs()} == {
        "docs/a.md": "succeeded", "b.md": "rejected", "docs/c.md": "succeeded", "d.md": "held",
    }  # fmt: skip
    (event,) = lab.engine.events(1, event="rules_changed")
    assert event["job_id"] == 2
    assert event["data"] == {
        "by": "anna", "added": DOCS.as_json(), "rules": [DOCS.as_json()], "before": [],
    }  # fmt: skip


def test_what_waited_already_is_approved_with_it(lab: Lab) -> None:
    lab.run(write("docs/a.md", "docs/b.md", "c.md"), DONE)
    assert lab.engine.approve_always(2, DOCS, by="anna") == [3]
    assert lab.states() == ["queued", "queued", "held"]


def test_what_the_planner_wants_reviewed_still_waits(lab: Lab) -> None:
    lab.run(write("docs/a.md", "docs/b.md", auto_dispatch=False), DONE)
    assert lab.engine.approve_always(2, DOCS, by="anna") == []
    assert lab.states() == ["queued", "held"]


def test_a_rule_lifts_no_denial_of_the_mission(lab: Lab) -> None:
    denial: Object = {"paths": ["docs/secret/"], "do": "deny"}
    hold: Object = {"kinds": ["write_file"], "do": "hold"}
    lab.run(write("docs/a.md"), write("docs/secret/b.md"), DONE, policy=[denial, hold])
    lab.engine.approve_always(2, DOCS, by="anna")
    assert [rule.do for rule in lab.engine.rules(1)] == ["deny", "auto", "hold"]
    lab.work()
    assert lab.states() == ["succeeded", "rejected"]


def test_a_rule_that_is_not_about_the_job_is_refused_and_nothing_is_decided(lab: Lab) -> None:
    lab.run(write("docs/a.md"), DONE)
    refused = refusal(lab, 2, DOCS.model_copy(update={"paths": ("other/",)}))
    assert refused.code is ErrorCode.WRONG_STATE
    assert "write_file other/" in str(refused)
    assert lab.states() == ["held"]


def test_a_final_rule_of_the_user_comes_first(open_lab: OpenLab) -> None:
    final = Rule(kinds=("write_file",), do=Verdict.HOLD, final=True)
    lab = open_lab(user_rules=[final])
    lab.run(write("docs/a.md"), DONE)
    assert "final user rule 1" in str(refusal(lab, 2, DOCS))
    assert lab.states() == ["held"]


@pytest.mark.parametrize(
    ("reply", "keys", "fact"),
    [
        (ask(("ask_user", {"question": "Which?"})), {}, "is a question"),
        (
            ask(("run_command", {"command": ["true"]})),
            {"commands": {"allow": [["true"]]}},
            "one command from another",
        ),
        (
            write("docs/a.md"),
            {"policy": [{"kinds": ["write_file"], "do": "hold", "not_requester": True}]},
            "others than one person",
        ),
    ],
)
def test_what_a_person_decides_each_time_gets_no_rule(
    lab: Lab, reply: Object, keys: Object, fact: str
) -> None:
    lab.run(reply, DONE, **keys)  # type: ignore[arg-type]  # none of them is one of run's own
    (job,) = lab.jobs()
    with pytest.raises(LcpError, match=fact):
        lab.engine.approve_always(job.id, Rule(kinds=(job.kind,), do=Verdict.AUTO), by="anna")
    assert lab.states() == ["held"]


def test_a_rule_is_taken_back(lab: Lab) -> None:
    lab.run(write("docs/a.md"), write("docs/b.md"), DONE)
    lab.engine.approve_always(2, DOCS, by="anna")
    assert lab.engine.remove_rule(1, 1, by="ben") == DOCS
    lab.work()
    assert lab.states() == ["succeeded", "held"]
    with pytest.raises(LcpError, match="has no rule 1; it has none of its own"):
        lab.engine.remove_rule(1, 1)


def test_a_rule_that_denies_stays(lab: Lab) -> None:
    lab.run(write("a.md"), DONE, policy=[{"paths": ["docs/"], "do": "deny"}])
    with pytest.raises(LcpError, match="rule 1 of mission 1 says deny"):
        lab.engine.remove_rule(1, 1)
    with pytest.raises(LcpError, match="has no rule 7; its rules are 1 to 1"):
        lab.engine.remove_rule(1, 7)


def test_the_same_rule_twice_is_one(lab: Lab) -> None:
    lab.run(write("docs/a.md", "docs/b.md", auto_dispatch=False), DONE)
    for job in (2, 2, 3):
        lab.engine.approve_always(job, DOCS, by="anna")
    assert len(lab.engine.rules(1)) == 1


def test_a_mission_with_rules_added_replays_the_same_and_forks_without_them(lab: Lab) -> None:
    lab.run(write("docs/a.md"), write("docs/b.md"), DONE)
    lab.engine.approve_always(2, DOCS, by="anna")
    lab.work()
    lab.engine.remove_rule(1, 1, by="anna")
    assert lab.engine.mission(1).status == "completed"
    replayed = lab.engine.replay(1)
    assert (replayed.differences, replayed.stopped) == ((), None)
    lab.engine.fork(1, turn=2)
    assert lab.engine.rules(2) == (DOCS,)
    lab.engine.fork(1, turn=1)
    assert lab.engine.rules(3) == ()


def test_a_rule_reaches_a_runner_that_has_the_mission_open(lab: Lab) -> None:
    lab.meanwhile.append(lambda: lab.engine.approve_always(3, DOCS, by="anna"))
    first = ask(("do", {}), ("write_file", {"rel_path": "docs/a.md", "content": "a"}))
    lab.run(first, write("docs/b.md"), DONE)
    assert lab.states() == ["succeeded", "succeeded", "succeeded"]
