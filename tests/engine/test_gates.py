"""What may run, what waits for a person, what is denied, and what a person's decision does (R3, R5, R7, R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import Rule, Verdict
from lcp_engine.errors import LcpError
from lcp_engine.store.queries.mission_spec import spec_and_root

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


def ask(*jobs: Object) -> Object:
    new_jobs: list[JsonValue] = list(jobs)
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def job(kind: str, auto_dispatch: bool | None = None, **params: JsonValue) -> Object:
    return {"kind": kind, "params": params, "auto_dispatch": auto_dispatch}


def write(path: str, content: str = "text\n") -> Object:
    return job("write_file", rel_path=path, content=content)


def refused(code: str, decide: object) -> None:
    """Calling `decide` raises an error with that code."""
    assert callable(decide)
    with pytest.raises(LcpError) as raised:
        decide()
    assert raised.value.code == code


def test_a_kind_with_effects_waits_for_a_person_whose_yes_lets_it_run(lab: Lab) -> None:
    mission = lab.run(ask(write("a.md")), DONE)
    assert mission.status == "waiting"
    (held,) = lab.jobs()
    assert held.state == "held"
    assert held.reason == "default policy: kinds with effects wait for a person"
    assert not (lab.root / "a.md").exists()
    assert lab.engine.approve(held.id, by="ada")
    assert lab.mission().status == "running"
    lab.work()
    assert (lab.root / "a.md").read_text() == "text\n"
    mission = lab.mission()
    assert (mission.status, mission.deliverables) == ("completed", ["a.md"])
    decided = next(event["data"] for event in lab.engine.events(mission.id) if event["event"] == "decided")
    assert decided == {"by": "ada", "decision": "approve", "params": None}


def test_the_planner_can_hold_what_policy_lets_run(lab: Lab) -> None:
    mission = lab.run(ask(job("do", auto_dispatch=False)), DONE)
    assert mission.status == "waiting"
    assert lab.jobs()[0].reason == "the planner asked for review (auto_dispatch: false)"


def test_the_planner_cannot_let_run_what_policy_holds(lab: Lab) -> None:
    assert lab.run(ask(job("change", auto_dispatch=True)), DONE).status == "waiting"


def test_a_missions_rule_lets_run_what_the_default_holds(lab: Lab) -> None:
    rule: Object = {"kinds": ["write_file"], "paths": ["docs/**"], "do": "auto"}
    mission = lab.run(ask(write("docs/a.md"), write("b.md")), DONE, policy=[rule])
    assert mission.status == "completed"
    assert lab.states() == ["succeeded", "held"]


def test_held_jobs_do_not_stop_a_batch_and_are_shown_as_waiting(lab: Lab) -> None:
    lab.run(ask(job("do"), job("change")), DONE)
    second = lab.questions[1]
    assert [(each.kind, each.state) for each in second.results] == [("do", "succeeded")]
    assert [(each.kind, each.state) for each in second.waiting] == [("change", "held")]


def test_the_last_rejection_leads_to_a_turn_with_the_reasons(lab: Lab) -> None:
    lab.run(ask(job("change", of=1), job("change", of=2)), DONE)
    one, two = lab.jobs()
    assert lab.engine.reject(one.id, "too early")
    lab.work()
    assert (lab.mission().status, len(lab.questions)) == ("waiting", 1)
    assert lab.engine.reject(two.id, "never")
    assert lab.mission().status == "running"
    lab.work()
    assert lab.mission().status == "completed"
    results = lab.questions[1].results
    assert [(each.state, each.reason) for each in results] == [
        ("rejected", "too early"),
        ("rejected", "never"),
    ]
    assert "rejected by a person: never" in str(results[1].error)


def test_approved_and_rejected_jobs_come_back_together(lab: Lab) -> None:
    lab.run(ask(job("change", of=1), job("change", of=2)), DONE)
    one, two = lab.jobs()
    lab.engine.approve(one.id)
    lab.engine.reject(two.id, "no")
    lab.work()
    assert [each.state for each in lab.questions[1].results] == ["rejected", "succeeded"]
    assert len(lab.questions) == 2


def test_deciding_twice_is_harmless_and_deciding_otherwise_is_refused(lab: Lab) -> None:
    lab.run(ask(job("change", of=1), job("change", of=2)), DONE)
    yes, no = (each.id for each in lab.jobs())
    assert lab.engine.approve(yes)
    assert not lab.engine.approve(yes)
    refused("CONFLICT", lambda: lab.engine.reject(yes, "late"))
    assert lab.engine.reject(no, "no")
    assert not lab.engine.reject(no, "no")
    refused("CONFLICT", lambda: lab.engine.approve(no))
    lab.work()
    assert not lab.engine.approve(yes)
    refused("CONFLICT", lambda: lab.engine.reject(yes, "too late"))
    refused("NOT_FOUND", lambda: lab.engine.approve(999))
    assert lab.states() == ["succeeded", "rejected"]


def test_an_approval_may_change_the_params(lab: Lab) -> None:
    lab.run(ask(write("a.md")), DONE)
    held = lab.jobs()[0].id
    refused("INVALID_PARAMS", lambda: lab.engine.approve(held, params={"rel_path": "b.md"}))
    assert lab.engine.approve(held, params={"rel_path": "b.md", "content": "mine"})
    lab.work()
    assert [path.name for path in lab.root.iterdir()] == ["b.md"]


def test_an_unknown_kind_is_held_until_there_is_a_worker(lab: Lab) -> None:
    mission = lab.run(ask(job("teleport", to="mars")), DONE)
    (held,) = lab.jobs()
    assert (mission.status, held.state, held.reason) == ("waiting", "held", "no_worker")
    refused("NO_WORKER", lambda: lab.engine.approve(held.id))
    assert lab.states() == ["held"]
    lab.engine.reject(held.id, "nobody can")
    lab.work()
    assert lab.mission().status == "completed"


@pytest.mark.parametrize(
    ("asked", "rules", "code"),
    [
        (job("admin"), [], "NOT_ALLOWED"),
        (job("change"), [{"kinds": ["change"], "do": "deny"}], "PATH_DENIED"),
    ],
)
def test_what_is_denied_stays_denied_where_the_worker_came_later(
    lab: Lab, asked: Object, rules: list[JsonValue], code: str
) -> None:
    mission_id = lab.launch(ask(asked), DONE, policy=rules)
    with Engine(lab.url) as bare:
        bare.work(until_idle=True)
    (held,) = lab.jobs(mission_id)
    assert held.reason == "no_worker"
    refused(code, lambda: lab.engine.approve(held.id))
    assert lab.states(mission_id) == ["held"]


@pytest.mark.parametrize("path", [".env", "keys/server.pem", ".git/hooks/pre-commit"])
def test_a_denied_job_is_rejected_and_the_planner_is_told(lab: Lab, path: str) -> None:
    mission = lab.run(ask(write(path)), DONE, policy=[{"kinds": ["*"], "do": "auto"}])
    assert mission.status == "completed"
    (denied,) = lab.jobs()
    assert (denied.state, denied.attempt) == ("rejected", 0)
    assert denied.error is not None
    assert denied.error["error_code"] == "PATH_DENIED"
    assert str(denied.error["user_message"]).startswith(f"write_file {path} is not allowed: default policy: ")
    second = lab.questions[1]
    assert [each.error_code for each in second.results] == ["PATH_DENIED"]
    assert second.notices[0] == "every requested job was rejected; see the reasons"
    refused("WRONG_STATE", lambda: lab.engine.approve(denied.id))


def test_a_denied_job_beside_others_is_in_the_results_too(lab: Lab) -> None:
    lab.run(ask(job("do"), job("read_file", rel_path=".env")), DONE)
    assert sorted(each.state for each in lab.questions[1].results) == ["rejected", "succeeded"]


def test_permission_levels_hold_and_refuse(lab: Lab) -> None:
    rules: list[JsonValue] = [{"kinds": ["*"], "do": "auto"}]
    mission = lab.run(ask(job("system"), job("admin")), DONE, policy=rules)
    assert mission.status == "waiting"
    system, admin = lab.jobs()
    assert (system.state, admin.state) == ("held", "rejected")
    assert admin.error is not None
    assert admin.error["error_code"] == "NOT_ALLOWED"
    other = lab.run(ask(job("admin")), DONE, policy=rules, allow_admin=True)
    assert lab.states(other.id) == ["held"]
    assert lab.engine.approve(lab.jobs(other.id)[0].id)
    lab.work()
    assert lab.states(other.id) == ["succeeded"]


def test_only_who_launches_allows_kinds_of_the_level_admin(lab: Lab) -> None:
    spec: dict[str, JsonValue] = {"goal": "x", "planner": {"type": "script", "replies": [DONE]}}
    with pytest.raises(LcpError, match="launch with --allow-admin"):
        lab.engine.launch({**spec, "allow_admin": True}, root=lab.root)
    author = MissionSpec.model_validate({**spec, "allow_admin": True})
    granted = {
        asked: lab.engine.launch(author, root=lab.root, allow_admin=asked).id for asked in (False, True)
    }
    lab.engine.add_schedule("s", author, root=lab.root, every="1h")
    lab.engine.add_schedule("t", author, root=lab.root, every="1h", allow_admin=True)
    granted_by_schedule = {
        asked: lab.engine.launch_scheduled(name).id for name, asked in (("s", False), ("t", True))
    }
    for missions in (granted, granted_by_schedule):
        for asked, mission_id in missions.items():
            stored, _ = lab.engine.instance.read(spec_and_root, mission_id)
            assert spec_of(stored).allow_admin is asked


def test_a_job_equal_to_a_held_one_is_not_stored_again(lab: Lab) -> None:
    again = ask(job("do", of=1), job("change", of=1))
    mission = lab.run(again, ask(job("change", of=1), job("do", of=2)), ask(job("change", of=1)))
    assert mission.status == "waiting"
    assert [each.kind for each in lab.jobs()] == ["do", "change", "do"]


def test_two_equal_jobs_in_one_reply_are_held_once(lab: Lab) -> None:
    lab.run(ask(write("a.md"), write("a.md")), DONE)
    assert lab.states() == ["held"]


def linked(lab: Lab) -> None:
    (lab.root / "real").mkdir()
    (lab.root / "real" / "a.txt").write_text("plain\n")
    (lab.root / "link.txt").symlink_to("real/a.txt")


READ_LINK = job("read_file", rel_path="link.txt")


def test_a_rule_that_holds_the_resolved_path_holds_the_job_at_execution(lab: Lab) -> None:
    linked(lab)
    mission = lab.run(
        ask(READ_LINK), DONE, policy=[{"kinds": ["read_file"], "paths": ["real/**"], "do": "hold"}]
    )
    (held,) = lab.jobs()
    assert (mission.status, held.state, held.attempt) == ("waiting", "held", 1)
    assert held.reason is not None
    assert "mission rule 1" in held.reason
    assert len(lab.questions) == 1
    lab.engine.approve(held.id)
    lab.work()
    assert lab.states() == ["succeeded"]
    assert lab.dig(lab.questions[1].results[0].result, "content") == "plain\n"


def test_a_batch_that_ends_with_a_job_held_at_execution_goes_on_with_the_rest(lab: Lab) -> None:
    linked(lab)
    rule: Object = {"kinds": ["read_file"], "paths": ["real/**"], "do": "hold"}
    mission = lab.run(ask(job("do"), READ_LINK), DONE, policy=[rule])
    assert mission.status == "completed"
    assert [each.kind for each in lab.questions[1].results] == ["do"]
    assert [each.kind for each in lab.questions[1].waiting] == ["read_file"]


def test_a_rule_that_denies_the_resolved_path_fails_the_job(lab: Lab) -> None:
    linked(lab)
    lab.run(ask(READ_LINK), DONE, policy=[{"kinds": ["read_file"], "paths": ["real/**"], "do": "deny"}])
    (failed,) = lab.jobs()
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert failed.error is not None
    assert failed.error["error_code"] == "PATH_DENIED"


@pytest.mark.parametrize(("do", "state"), [(Verdict.HOLD, "held"), (Verdict.DENY, "failed")])
def test_a_users_rule_counts_at_execution_too(open_lab: OpenLab, do: Verdict, state: str) -> None:
    lab = open_lab(user_rules=[Rule(kinds=("read_file",), paths=("real/**",), do=do)])
    linked(lab)
    lab.run(ask(READ_LINK), DONE)
    assert lab.states() == [state]


def test_a_secret_behind_a_link_stays_denied(lab: Lab) -> None:
    (lab.root / ".env").write_text("TOKEN=1\n")
    (lab.root / "notes.txt").symlink_to(".env")
    lab.run(ask(job("read_file", rel_path="notes.txt")), DONE)
    (failed,) = lab.jobs()
    assert failed.error is not None
    assert (failed.state, failed.error["error_code"]) == ("failed", "PATH_DENIED")


def test_windows_roots_of_the_protocol_stand_for_the_root(lab: Lab) -> None:
    root = "C:\\Sheratan\\2_sheratan_core"
    (lab.root / "src").mkdir()
    (lab.root / "src" / "main.py").write_text("print(1)\n")
    written: Object = {
        "ok": True, "action": "write_file", "root": root, "rel_path": "docs/ANALYSIS.md",
        "content": "# Analysis Results\n", "mode": "overwrite",
    }  # fmt: skip
    mission = lab.run(
        ask(
            job("list_files", root=root, patterns=["**/*.py", "*.md", "!**/node_modules/**"]),
            job("read_file", root=root, rel_path="src/main.py"),
            job("rewrite_file", root=root, rel_path="docs/OUTPUT.md", new_content="File content here..."),
            job("list_files", root="C:\\elsewhere", patterns=["**"]),
        ),
        ask(job("read_file", path=f"{root}\\src\\main.py")),
        written,
        DONE,
        root_aliases=[root],
        policy=[{"kinds": ["write_file", "rewrite_file"], "paths": ["docs/**"], "do": "auto"}],
    )
    assert mission.status == "completed"
    assert lab.states() == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 2
    listed, read, _, outside, read_too, _ = lab.jobs()
    assert listed.result is not None
    assert listed.result["files"] == ["src/main.py"]
    assert read.result == read_too.result
    assert outside.error is not None
    assert outside.error["error_code"] == "PATH_OUTSIDE_ROOT"
    assert (lab.root / "docs" / "ANALYSIS.md").read_text() == "# Analysis Results\n"
    assert mission.deliverables == ["docs/ANALYSIS.md", "docs/OUTPUT.md"]


def test_a_write_file_action_is_one_job_under_the_same_gates(lab: Lab) -> None:
    action: Object = {"ok": True, "action": "write_file", "rel_path": "a.md", "content": "x"}
    assert lab.run(action, DONE).status == "waiting"
    (held,) = lab.jobs()
    assert (held.kind, held.state) == ("write_file", "held")
    lab.engine.approve(held.id)
    lab.work()
    assert lab.mission().status == "completed"
