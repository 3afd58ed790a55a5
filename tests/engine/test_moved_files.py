"""A hold on a path holds for what moves, removes or replaces it, and for its content wherever that goes (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.engine.conftest import Lab, Object
from tests.walls import EACH_WALL

from lcp_engine import Engine, LcpError, PlannerSpec
from lcp_engine.workers.base import Applied, Context, FileEffect, Outcome, Worker

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
CONTRACTS: Object = {"kinds": ["read_file"], "paths": ["contracts/"], "do": "hold"}
MOVES: Object = {"kinds": ["move_file"], "do": "auto"}
DEPLOY: Object = {"kinds": ["write_file"], "paths": ["deploy/**"], "do": "hold", "approvals": 2}
WORDS = "the price is secret"
SECRET = f"{WORDS}: contracts"


def job(kind: str, **params: JsonValue) -> Object:
    return {"kind": kind, "params": params}


def ask(*jobs: JsonValue) -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


def move(old: str, new: str) -> Object:
    return job("move_file", rel_path=old, new_path=new)


def read(path: str) -> JsonValue:
    return job("read_file", rel_path=path)


@pytest.fixture
def office(lab: Lab) -> Lab:
    for path in ("contracts/acme.txt", "deploy/run.sh", "src/a.txt"):
        file = lab.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{WORDS}: {path}\n")
    return lab


def told(lab: Lab, mission: int = 1) -> str:
    """All that jobs of a mission have found."""
    return "".join(str(one.result) for one in lab.jobs(mission))


STAGED = pytest.mark.parametrize("stage", [False, True], ids=["root", "stage"])


@STAGED
def test_what_is_held_to_read_is_held_where_it_is_moved(office: Lab, *, stage: bool) -> None:
    searches = job("search_files", text="price", patterns=["x.txt"])
    office.run(
        ask(move("contracts/acme.txt", "x.txt")), ask(read("x.txt"), searches, read("src/a.txt")), DONE,
        policy=[CONTRACTS, MOVES], stage=stage,
    )  # fmt: skip
    moved, held, search, other = [one for one in office.jobs() if one.kind != "merge"]
    assert (moved.state, held.state, other.state) == ("succeeded", "held", "succeeded")
    assert "mission rule 1 (read_file contracts/) says hold" in str(held.reason)
    assert search.result is not None
    assert (search.result["lines"], search.result["skipped"]) == (
        [], ["x.txt: mission rule 1 (read_file contracts/) says hold"],
    )  # fmt: skip
    assert SECRET not in told(office)


@STAGED
@pytest.mark.parametrize(
    ("moves", "last"),
    [
        ([("contracts/acme.txt", "b.txt"), ("b.txt", "src/c.txt"), ("src/c.txt", "d.txt")], "d.txt"),
        ([("CONTRACTS/../contracts/./acme.txt", "x.txt")], "./src/../x.txt"),
        ([("contracts/acme.txt", "src/../x.txt")], "x.txt"),
        ([("contracts/acme.txt", "new/deep/x.txt")], "new/deep/x.txt"),
    ],
)
def test_it_is_held_at_the_end_of_any_way(
    office: Lab, moves: list[tuple[str, str]], last: str, *, stage: bool
) -> None:
    (office.root / "CONTRACTS").mkdir()
    steps = [ask(move(old, new)) for old, new in moves]
    office.run(*steps, ask(read(last)), DONE, policy=[CONTRACTS, MOVES], stage=stage)
    found = [one for one in office.jobs() if one.kind != "merge"]
    assert [one.state for one in found] == ["succeeded"] * len(moves) + ["held"]
    office.engine.approve(found[-1].id)
    office.work()
    assert SECRET in told(office)


def test_a_file_that_goes_into_a_directory_that_may_be_read_is_held_by_a_rule_for_all_others(
    office: Lab,
) -> None:
    docs: Object = {"kinds": ["read_file"], "paths": ["docs/**"], "do": "auto"}
    office.run(
        ask(move("src/a.txt", "docs/a.txt")), ask(read("docs/a.txt")), DONE,
        policy=[docs, {"kinds": ["read_file"], "do": "hold"}, MOVES],
    )  # fmt: skip
    assert office.states() == ["succeeded", "held"]


def test_what_is_denied_to_read_is_not_moved_by_a_rule_that_lets_all_be_moved(office: Lab) -> None:
    deny: Object = {"kinds": ["read_file"], "paths": ["contracts/"], "do": "deny"}
    office.run(ask(move("contracts/acme.txt", "x.txt")), ask(read("x.txt")), DONE, policy=[MOVES, deny])
    assert office.states() == ["rejected", "failed"]
    assert not (office.root / "x.txt").exists()


def test_a_job_that_was_requested_before_the_move_is_held_when_it_runs(office: Lab) -> None:
    office.run(ask(move("contracts/acme.txt", "x.txt"), read("x.txt")), DONE, policy=[CONTRACTS, MOVES])
    assert office.states() == ["succeeded", "held"]
    assert SECRET not in told(office)


def test_an_approval_before_the_move_is_none_of_what_was_moved(office: Lab) -> None:
    early: JsonValue = {"kind": "read_file", "params": {"rel_path": "x.txt"}, "auto_dispatch": False}
    late: JsonValue = {**move("contracts/acme.txt", "x.txt"), "auto_dispatch": False}
    office.run(ask(early, late), DONE, policy=[CONTRACTS, MOVES])
    reading, moving = office.jobs()
    office.engine.approve(moving.id)
    office.engine.approve(reading.id)
    office.work()
    assert office.states() == ["failed", "succeeded"], "there was no file yet"
    office.engine.retry(reading.id)
    office.work()
    assert SECRET not in told(office)
    assert office.states() == ["held", "succeeded"]
    office.engine.approve(reading.id)
    office.work()
    assert SECRET in told(office)


def test_a_hold_that_needs_two_people_needs_them_where_the_file_is_now(office: Lab) -> None:
    office.run(
        ask(move("contracts/acme.txt", "x.txt")), ask(read("x.txt")), DONE,
        policy=[{**CONTRACTS, "approvals": 2}, MOVES],
    )  # fmt: skip
    _, reading = office.jobs()
    office.engine.approve(reading.id, by="anna")
    assert office.engine.job(reading.id).state == "held"
    assert office.engine.approvals([office.engine.job(reading.id)])[reading.id].needed == 2
    office.engine.approve(reading.id, by="ben")
    office.work()
    assert SECRET in told(office)


def test_no_rule_of_a_person_lets_it_be_read_at_its_new_place_alone(office: Lab) -> None:
    office.run(ask(move("contracts/acme.txt", "x.txt")), ask(read("x.txt")), DONE, policy=[CONTRACTS, MOVES])
    _, reading = office.jobs()
    (rule, *_) = office.engine.rules_for(reading.id)
    with pytest.raises(LcpError, match="would not let read_file jobs like this one run"):
        office.engine.approve_always(reading.id, rule)
    explained = office.engine.explain_policy(reading.id)
    paths = explained["paths"]
    assert isinstance(paths, list)
    assert [office.dig(one, "path") for one in paths] == ["x.txt", "contracts/acme.txt"]
    assert explained["verdict"] == "hold"


@EACH_WALL
@STAGED
def test_commands_never_see_what_is_held_whoever_approved_them(office: Lab, *, stage: bool) -> None:
    cat = job("run_command", command=["sh", "-c", "cat x.txt contracts/acme.txt src/a.txt"])
    office.run(
        ask(move("contracts/acme.txt", "x.txt")), ask(cat), DONE, policy=[CONTRACTS, MOVES], stage=stage,
        commands={"allow": [["sh", "-c", "*"]], "seconds": 20},
    )  # fmt: skip
    _, command, *_ = office.jobs()
    if not stage:
        office.engine.approve(command.id)
        office.work()
    found = office.engine.job(command.id).result
    assert found is not None
    assert found["stdout"] == f"{WORDS}: src/a.txt\n"


def test_a_fork_keeps_what_was_moved_held(office: Lab) -> None:
    office.run(
        ask(move("contracts/acme.txt", "x.txt")), ask(read("src/a.txt")), DONE, policy=[CONTRACTS, MOVES]
    )
    planner = PlannerSpec.model_validate({"type": "script", "replies": [ask(read("x.txt")), DONE]})
    forked = office.engine.fork(1, turn=1, planner=planner)
    office.work()
    (reading,) = office.jobs(forked.id)
    assert reading.state == "held"
    assert SECRET not in told(office, forked.id)


@pytest.fixture
def shop(lab: Lab) -> Iterator[Lab]:
    """With kinds of a user that write, copy and say nothing of what they do."""
    workers = [
        Worker("stamp", Named, Named, _stamp, writes=True, paths=lambda given: (given.path,)),
        Worker("quiet", Named, Named, _stamp),
        Worker("copy", Named, Named, _copy, writes=True, paths=lambda given: (given.source, given.path)),
    ]
    place = lab.root.parent / "shop"
    place.mkdir()
    engine = Engine(sqlite_url(place), workers=[one.for_any_params() for one in workers])
    for path in ("contracts/acme.txt", "deploy/run.sh", "src/a.txt"):
        file = lab.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{WORDS}: {path}\n")
    own, lab.engine = lab.engine, engine
    yield lab
    engine.close()
    lab.engine = own


class Named(BaseModel, extra="allow"):
    path: str = ""
    source: str = ""


def _stamp(params: Named, context: Context) -> Outcome:
    return FileEffect(params.path, "seen\n", "overwrite", _named)


def _copy(params: Named, context: Context) -> Outcome:
    return FileEffect(params.path, (Path(context.root.path) / params.source).read_text(), "overwrite", _named)


def _named(applied: Applied) -> Named:
    return Named()


def script(lab: Lab, *replies: JsonValue, **spec: JsonValue) -> None:
    planner: JsonValue = {"type": "script", "replies": [*replies]}
    lab.engine.launch({"goal": "Go.", "planner": planner, **spec}, root=lab.root)
    lab.engine.work(until_idle=True)


def test_a_copy_that_a_kind_of_a_user_makes_is_held_as_its_source_is(shop: Lab) -> None:
    copies: Object = {"kinds": ["copy"], "do": "auto"}
    script(
        shop, ask(job("copy", source="contracts/acme.txt", path="x.txt")), ask(read("x.txt")), DONE,
        policy=[CONTRACTS, copies],
    )  # fmt: skip
    assert shop.states() == ["succeeded", "held"]


@pytest.mark.parametrize("path", ["deploy/run.sh", "src/../deploy/new.sh", "DEPLOY/run.sh"])
@pytest.mark.parametrize("kind", ["stamp", "quiet", "copy"])
def test_four_eyes_over_a_directory_are_over_the_kinds_of_users(shop: Lab, kind: str, path: str) -> None:
    autos: Object = {"kinds": [kind], "do": "auto"}
    script(shop, ask(job(kind, path=path, source="src/a.txt")), DONE, policy=[DEPLOY, autos])
    (found,) = shop.jobs()
    assert found.state == "held"
    shop.engine.approve(found.id, by="anna")
    shop.engine.work(until_idle=True)
    assert shop.jobs()[0].state in ("held", "failed")
    assert {one.name: one.read_text() for one in (shop.root / "deploy").iterdir()} == {
        "run.sh": f"{WORDS}: deploy/run.sh\n"
    }


ONTO: list[tuple[str, Object]] = [
    ("write_file", {"rel_path": "deploy/run.sh", "content": "x"}),
    ("write_file", {"rel_path": "deploy/run.sh", "content": "x", "mode": "append"}),
    ("write_file", {"rel_path": "deploy/new.sh", "content": "x"}),
    ("rewrite_file", {"rel_path": "deploy/run.sh", "content": "x"}),
    ("edit_file", {"rel_path": "deploy/run.sh", "old_text": "price", "new_text": "x"}),
    ("delete_file", {"rel_path": "deploy/run.sh"}),
    ("delete_file", {"rel_path": "src/../deploy/run.sh"}),
    ("delete_file", {"root": "deploy", "rel_path": "run.sh"}),
    ("move_file", {"rel_path": "deploy/run.sh", "new_path": "src/run.sh"}),
    ("move_file", {"rel_path": "src/a.txt", "new_path": "deploy/a.txt"}),
    ("move_file", {"rel_path": "src/a.txt", "new_path": "src/./../deploy/a.txt"}),
    ("move_file", {"rel_path": "src/a.txt", "new_path": "DEPLOY/a.txt"}),
    ("make_directory", {"rel_path": "deploy/new"}),
]


@pytest.mark.parametrize(("kind", "params"), ONTO)
def test_four_eyes_over_a_directory_are_over_all_that_changes_it(
    office: Lab, kind: str, params: Object
) -> None:
    rules: list[JsonValue] = [{**DEPLOY, "not_requester": True}, {"kinds": ["*"], "do": "auto"}]
    office.run(ask(job(kind, **params)), DONE, policy=rules)
    (found,) = office.jobs()
    assert found.state == "held"
    with pytest.raises(LcpError, match="may not be approved by"):
        office.engine.approve(found.id)
    office.engine.approve(found.id, by="anna")
    office.work()
    assert office.states() == ["held"]
    assert {one.name: one.read_text() for one in (office.root / "deploy").iterdir()} == {
        "run.sh": f"{WORDS}: deploy/run.sh\n"
    }


@pytest.mark.parametrize(
    "change", [job("delete_file", rel_path="deploy/run.sh"), move("deploy/run.sh", "a.sh")]
)
def test_the_merge_of_what_a_stage_allowed_needs_the_same_people(office: Lab, change: JsonValue) -> None:
    office.run(ask(change), DONE, policy=[DEPLOY], stage=True)
    merge = office.jobs()[-1]
    assert (merge.kind, merge.state) == ("merge", "held")
    office.engine.approve(merge.id, by="anna")
    office.work()
    assert (office.root / "deploy" / "run.sh").exists()
    office.engine.approve(merge.id, by="ben")
    office.work()
    assert not (office.root / "deploy" / "run.sh").exists()


def test_a_link_is_no_way_around_the_second_person(office: Lab) -> None:
    (office.root / "x.txt").symlink_to("contracts/acme.txt")
    office.run(ask(read("x.txt")), DONE, policy=[{**CONTRACTS, "approvals": 2}])
    (reading,) = office.jobs()
    assert reading.state == "held"
    office.engine.approve(reading.id, by="anna")
    office.work()
    (reading,) = office.jobs()
    assert (reading.state, SECRET in told(office)) == ("failed", False)
    assert reading.error is not None
    assert "needs approvals that this job was not asked for" in str(reading.error["user_message"])


def test_a_search_that_one_person_approved_shows_nothing_that_needs_two(office: Lab) -> None:
    search: JsonValue = {"kind": "search_files", "params": {"text": "price"}, "auto_dispatch": False}
    office.run(ask(search), DONE, policy=[{**CONTRACTS, "approvals": 2}])
    office.engine.approve(office.jobs()[0].id)
    office.work()
    assert f"{WORDS}: src" in told(office)
    assert SECRET not in told(office)


@pytest.mark.parametrize("kind", ["search_files", "list_files"])
def test_a_job_without_a_path_has_the_approvals_that_it_was_given(office: Lab, kind: str) -> None:
    asked = job("search_files", text="price") if kind == "search_files" else job("list_files")
    office.run(ask(asked), DONE, policy=[{"kinds": [kind], "do": "hold", "approvals": 2}])
    (held,) = office.jobs()
    for person in ("ann", "bob"):
        office.engine.approve(held.id, by=person)
    office.work()
    (done,) = office.jobs()
    assert done.state == "succeeded"
    assert "contracts/acme.txt" in told(office)


@pytest.mark.parametrize("kind", ["search_files", "list_files"])
def test_a_directory_that_needs_two_people_is_read_with_their_approvals(office: Lab, kind: str) -> None:
    params: Object = {"root": "contracts", **({"text": "price"} if kind == "search_files" else {})}
    office.run(ask(job(kind, **params)), DONE, policy=[{**CONTRACTS, "kinds": [kind], "approvals": 2}])
    (held,) = office.jobs()
    for person, states in (("ann", ["held"]), ("bob", ["succeeded"])):
        office.engine.approve(held.id, by=person)
        office.work()
        assert office.states() == states
    assert "acme.txt" in told(office)


def test_a_resumed_mission_keeps_what_it_moved_held(office: Lab) -> None:
    steps = [ask(move("contracts/acme.txt", "x.txt")), ask(read("src/a.txt")), ask(read("x.txt")), DONE]
    office.run(*steps, policy=[CONTRACTS, MOVES], limits={"max_turns": 1})
    assert office.mission().status == "failed"
    office.engine.resume(1, limits={"max_turns": 20})
    office.work()
    assert office.states()[-1] == "held"


@pytest.mark.parametrize("kind", ["delete_file", "move_file", "rewrite_file"])
def test_a_rule_that_lets_files_be_written_lets_nothing_else_run(office: Lab, kind: str) -> None:
    params: dict[str, Object] = {
        "delete_file": {"rel_path": "src/a.txt"},
        "move_file": {"rel_path": "src/a.txt", "new_path": "src/b.txt"},
        "rewrite_file": {"rel_path": "src/a.txt", "content": "x"},
    }
    office.run(ask(job(kind, **params[kind])), DONE, policy=[{"kinds": ["write_file"], "do": "auto"}])
    assert office.states() == ["held"]


def test_a_rule_of_its_own_above_says_what_a_kind_may_do(office: Lab) -> None:
    office.run(ask(job("delete_file", rel_path="deploy/run.sh")), DONE, policy=[
        {"kinds": ["delete_file"], "paths": ["deploy/run.sh"], "do": "auto"}, DEPLOY,
    ])  # fmt: skip
    assert office.states() == ["succeeded"]


@pytest.mark.parametrize("stage", [False, True], ids=["root", "stage"])
def test_a_hold_for_writing_lifts_no_denial_of_another_kind(office: Lab, *, stage: bool) -> None:
    deny: list[JsonValue] = [
        {"kinds": ["read_file"], "paths": ["contracts/"], "do": "deny"},
        {"kinds": ["delete_file"], "paths": ["src/"], "do": "deny"},
    ]
    office.run(
        ask(move("contracts/acme.txt", "x.txt"), job("delete_file", rel_path="src/a.txt")), DONE,
        policy=[{"kinds": ["write_file"], "do": "hold"}, *deny], stage=stage,
    )  # fmt: skip
    assert office.states()[:2] == ["rejected", "rejected"]
