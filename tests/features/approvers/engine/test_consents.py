"""A rule may ask for the approvals of several people, and not for that of who launched the mission."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError
from tests.engine.conftest import Lab, Object, OpenLab

from lcp_engine import Engine, Rule
from lcp_engine.api.user import user_name
from lcp_engine.core.policy import Consent, Policy
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.settings import ApproverSettings, SignedLinks

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}
TWO: Object = {"kinds": ["write_file"], "do": "hold", "approvals": 2}
OTHERS: Object = {"kinds": ["write_file"], "do": "hold", "not_requester": True}


def write(path: str = "a.md", content: str = "new\n") -> Object:
    return {
        "ok": True, "action": "create_followup_jobs",
        "new_jobs": [{"kind": "write_file", "params": {"rel_path": path, "content": content}}],
    }  # fmt: skip


@pytest.fixture
def shop(lab: Lab) -> Lab:
    (lab.root / "a.md").write_text("old\n")
    return lab


def decisions(lab: Lab, job: int) -> list[tuple[str, JsonValue]]:
    found = lab.engine.events(1, job_id=job)
    return [
        (str(event["event"]), data["by"])
        for event in found
        if event["event"] in ("consented", "decided") and isinstance(data := event["data"], dict)
    ]


def test_the_last_of_two_approvals_lets_a_job_run(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    assert shop.engine.approve(job.id, by="anna")
    assert (shop.states(), shop.engine.mission(1).status) == (["held"], "waiting")
    assert shop.engine.approve(job.id, by="anna") is False
    assert shop.states() == ["held"]
    assert shop.engine.approve(job.id, by="ben")
    assert decisions(shop, job.id) == [("consented", "anna"), ("decided", "ben")]
    shop.work()
    assert (shop.root / "a.md").read_text() == "new\n"


def test_words_reach_the_planner_with_each_of_the_approvals(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    for who in ("anna", "ben"):
        shop.engine.approve(job.id, by=who, words=f"{who} has read it")
    assert shop.states() == ["queued"]
    said = [event["data"] for event in shop.engine.events(1, event="said")]
    assert [(one["by"], one["text"]) for one in said if isinstance(one, dict)] == [
        ("anna", "anna has read it"), ("ben", "ben has read it"),
    ]  # fmt: skip


def test_one_no_is_enough(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    shop.engine.approve(job.id, by="anna")
    assert shop.engine.reject(job.id, "no", by="ben")
    assert shop.states() == ["rejected"]


def test_an_approval_counts_for_the_file_that_its_person_was_shown(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    shop.engine.approve(job.id, by="anna")
    (shop.root / "a.md").write_text("other\n")
    for who in ("ben", "carl"):
        shop.engine.diff(job.id, by=who)
    assert shop.engine.approve(job.id, by="ben")
    assert shop.states() == ["held"]
    assert shop.engine.approve(job.id, by="carl")
    assert shop.states() == ["queued"]


def test_what_was_held_anew_needs_all_its_approvals_anew(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    shop.engine.approve(job.id, by="anna")
    shop.engine.reject(job.id, "no", by="ben")
    shop.engine.retry(job.id, by="ben")
    shop.engine.approve(job.id, by="ben")
    assert shop.states() == ["held"]
    shop.engine.approve(job.id, by="anna")
    assert shop.states() == ["queued"]


def test_params_that_several_people_approve_are_not_edited(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    with pytest.raises(LcpError, match="needs 2 approvals, so that its params cannot be edited") as refused:
        shop.engine.approve(job.id, by="anna", params={"rel_path": "a.md", "content": "mine"})
    assert refused.value.code is ErrorCode.WRONG_STATE
    assert decisions(shop, job.id) == []


def test_who_launched_the_mission_does_not_approve_it(shop: Lab) -> None:
    spec: Object = {
        "goal": "Look.",
        "planner": {"type": "script", "replies": [write(), DONE]},
        "policy": [OTHERS],
    }
    mission = shop.engine.launch(spec, root=shop.root, by="anna").id
    shop.work()
    (job,) = shop.jobs(mission)
    with pytest.raises(LcpError, match="may not be approved by anna, who launched mission 1") as refused:
        shop.engine.approve(job.id, by="anna")
    assert refused.value.code is ErrorCode.NOT_ALLOWED
    assert shop.engine.approve(job.id, by="ben")
    assert shop.states(mission) == ["queued"]


def test_a_rule_of_the_user_asks_for_several_people_too(open_lab: OpenLab) -> None:
    lab = open_lab(user_rules=[Rule.model_validate({**TWO, "final": True})])
    lab.run(write(), DONE, policy=[{"kinds": ["write_file"], "do": "auto"}])
    (job,) = lab.jobs()
    lab.engine.approve(job.id, by="anna")
    assert lab.states() == ["held"]


def test_a_rule_that_the_mission_has_takes_no_approval_from_several_people(open_lab: OpenLab) -> None:
    lab = open_lab(user_rules=[Rule.model_validate({**TWO, "final": True})])
    lab.run(write(), DONE, policy=[{"kinds": ["write_file"], "do": "auto"}])
    (job,), (rule,) = lab.jobs(), lab.engine.rules(1)
    with pytest.raises(LcpError, match="others than one person"):
        lab.engine.approve_always(job.id, rule, by="anna")
    assert not lab.engine.approvals([job])[job.id].given


def test_where_there_are_approvers_only_they_count(emptied_database_url: str, tmp_path: Path) -> None:
    with approving(emptied_database_url, tmp_path) as engine:
        (job,) = engine.jobs(states=["held"])
        with pytest.raises(
            LcpError, match=r"approved by people of the configuration \(anna, ben\), not by carl"
        ):
            engine.approve(job.id, by="carl")
        engine.approve(job.id, by="anna")
        engine.approve(job.id, by="ben")
        assert engine.job(job.id).state == "queued"


def approving(url: str, directory: Path) -> Engine:
    """An engine with two approvers, and a job that needs both."""
    root = directory / "shop"
    root.mkdir()
    engine = Engine(url, approvers=dict.fromkeys(("anna", "ben"), f"sha256:{'0' * 64}"))
    spec: Object = {
        "goal": "Look.",
        "planner": {"type": "script", "replies": [write(), DONE]},
        "policy": [TWO],
    }
    engine.launch(spec, root=root)
    engine.work(until_idle=True)
    return engine


def test_a_replay_decides_as_several_people_did(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO])
    (job,) = shop.jobs()
    for who in ("anna", "ben"):
        shop.engine.approve(job.id, by=who)
    shop.work()
    assert not shop.engine.replay(1).differences


def test_of_several_paths_each_rule_has_to_be_satisfied() -> None:
    rules = [
        Rule.model_validate({"paths": ["a"], "do": "hold", "approvals": 3}),
        Rule.model_validate({"paths": ["b"], "do": "hold", "not_requester": True}),
    ]
    policy = Policy(rules)
    assert policy.consent("move_file", has_effects=True, writes=True, paths=["a", "b"]) == Consent(3, True)
    assert policy.consent("move_file", has_effects=True, writes=True, paths=["c"]) == Consent()


@pytest.mark.parametrize("kind", ["write_file", "make_directory"])
def test_a_merge_needs_the_people_that_any_of_its_files_may_need(shop: Lab, kind: str) -> None:
    shop.run(write(), DONE, policy=[{**TWO, "kinds": [kind], "paths": ["deploy/**"]}], stage=True)
    merge = shop.jobs()[-1]
    assert shop.engine.approvals([merge])[merge.id].needed == 2
    shop.engine.approve(merge.id, by="anna")
    assert shop.states()[-1] == "held"


def test_a_staged_mission_is_merged_after_the_last_of_two_approvals(shop: Lab) -> None:
    shop.run(write(), DONE, policy=[TWO], stage=True)
    merge = shop.jobs()[-1]
    assert (merge.kind, merge.state) == ("merge", "held")
    for who in ("anna", "ben"):
        assert (shop.root / "a.md").read_text() == "old\n"
        shop.engine.approve(merge.id, by=who)
        shop.work()
    assert (shop.root / "a.md").read_text() == "new\n"


@pytest.mark.parametrize("stated", [{"approvals": 2}, {"not_requester": True}])
@pytest.mark.parametrize("does", ["auto", "deny"])
def test_a_rule_that_holds_nothing_asks_for_nobody(stated: Object, does: str) -> None:
    with pytest.raises(ValidationError, match="approvals and not_requester need `do: hold`"):
        Rule.model_validate({**stated, "do": does})


@pytest.mark.parametrize("count", [0, 21, "two"])
def test_a_number_of_people_that_makes_no_sense_is_refused(count: JsonValue) -> None:
    with pytest.raises(ValidationError):
        Rule.model_validate({"do": "hold", "approvals": count})


def test_it_is_told_who_has_approved_and_who_may_not(shop: Lab) -> None:
    rule: Object = {**TWO, "not_requester": True}
    shop.run(write(), DONE, policy=[rule])
    (job,) = shop.jobs()
    launched = user_name()

    def told() -> list[str]:
        return [str(approvals) for approvals in shop.engine.approvals(shop.jobs()).values()]

    assert told() == [f"0 of 2 approvals; {launched}, who launched the mission, may not approve"]
    shop.engine.approve(job.id, by="anna")
    assert told() == [f"1 of 2 approvals, by anna; {launched}, who launched the mission, may not approve"]
    (shop.root / "a.md").write_text("other\n")
    assert told() == [f"0 of 2 approvals; {launched}, who launched the mission, may not approve"]


def test_a_job_of_one_approval_is_told_nothing_about(shop: Lab) -> None:
    shop.run(write(), DONE)
    assert shop.engine.approvals(shop.jobs()) == {}


def test_keywords_count_before_settings_whose_other_keys_stay(tmp_path: Path) -> None:
    links = SignedLinks(url="https://a.example", secret_env="SECRET")
    anna, ben = ({name: f"sha256:{digit * 64}"} for name, digit in (("anna", "1"), ("ben", "2")))
    settings = [ApproverSettings(links=links, approvers=ben)]
    with Engine(f"sqlite:///{tmp_path}/lcp.db", settings=settings, approvers=anna) as engine:
        stated = engine.instance.settings(ApproverSettings)
    assert (stated.links, stated.approvers) == (links, anna)
