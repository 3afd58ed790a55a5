"""What people are shown of held jobs, and that their approval holds for what they were shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from pydantic import JsonValue
from tests.engine.conftest import Lab, Object, OpenLab
from tests.loaded_python import Python

from lcp_engine.api.bulk import each_outcome
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.runner import Runner

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}


def write(path: str = "a.md", content: str = "new\n", **params: JsonValue) -> Object:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content, **params}}


def ask(*jobs: JsonValue) -> Object:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


@pytest.fixture
def shop(lab: Lab) -> Lab:
    """A root with the file a.md."""
    (lab.root / "a.md").write_text("old\n")
    return lab


def test_a_held_write_shows_what_it_would_change_now(shop: Lab) -> None:
    shop.run(ask(write()), DONE)
    (job,) = shop.jobs()
    (diff,) = shop.engine.diff(job.id)
    assert diff.lines[2:] == ("@@ -1 +1 @@", "-old", "+new")
    (shop.root / "a.md").write_text("other\n")
    assert "-other" in shop.engine.diff(job.id)[0].lines


def test_many_are_decided_at_once_and_each_by_itself(shop: Lab) -> None:
    shop.run(ask(*(write(f"{number}.md") for number in range(4)), write()), DONE)
    *_, last = jobs = [job.id for job in shop.jobs()]
    (shop.root / "a.md").write_text("other\n")
    outcomes = dict(each_outcome([*jobs, 10**6], shop.engine.approve))
    assert [*outcomes] == [*jobs, 10**6]
    refused = {key: outcome.code for key, outcome in outcomes.items() if isinstance(outcome, LcpError)}
    assert refused == {last: ErrorCode.CONFLICT, 10**6: ErrorCode.NOT_FOUND}
    assert [job.state for job in shop.jobs()] == ["queued"] * 4 + ["held"]
    rejected = each_outcome(jobs, lambda job: shop.engine.reject(job, "no"))
    assert [outcome is True for _, outcome in rejected] == [False] * 4 + [True]
    shop.work()
    assert (shop.root / "3.md").read_text() == "new\n"


def test_an_append_is_shown_with_the_encoding_and_line_ends_of_the_file(shop: Lab) -> None:
    (shop.root / "a.md").write_bytes("\ufeffold\r\n".encode())
    shop.run(ask(write(mode="append")), DONE)
    (diff,) = shop.engine.diff(shop.jobs()[0].id)
    assert diff.lines[3:] == (" old", "+new")


def test_what_would_not_be_written_is_told_as_such(shop: Lab) -> None:
    (shop.root / "dir").mkdir()
    (shop.root / "link").symlink_to("a.md")
    shop.run(ask(write("dir"), write("link"), {"kind": "change", "params": {}}), DONE)
    directory, link, change = shop.jobs()
    for job, fact in ((directory, "is a directory"), (link, "symbolic link")):
        (diff,) = shop.engine.diff(job.id)
        assert fact in (diff.note or "")
    assert shop.engine.diff(change.id) == []


def test_a_job_that_ran_shows_what_it_changed_whatever_the_file_is_now(shop: Lab) -> None:
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    mission = shop.run(ask(write(), write(content="more\n", mode="append")), DONE, policy=auto)
    (shop.root / "a.md").unlink()
    first, second = shop.jobs()
    assert shop.engine.diff(first.id)[0].lines[3:] == ("-old", "+new")
    assert shop.engine.diff(second.id)[0].lines[3:] == (" new", "+more")
    (whole,) = shop.engine.mission_diff(mission.id)
    assert whole.lines[3:] == ("-old", "+new", "+more")


def test_the_diff_of_what_is_not_there_is_refused(shop: Lab) -> None:
    for look in (shop.engine.diff, shop.engine.mission_diff):
        with pytest.raises(LcpError) as refused:
            look(99)
        assert refused.value.code == "NOT_FOUND"


def held(lab: Lab, *jobs: JsonValue) -> list[int]:
    """The ids of jobs that wait."""
    lab.run(ask(*(jobs or (write(),))), DONE, DONE)
    return [job.id for job in lab.jobs()]


def conflict(call: Callable[[], object]) -> str:
    with pytest.raises(LcpError) as refused:
        call()
    assert refused.value.code == "CONFLICT"
    return str(refused.value)


def drifts(lab: Lab) -> list[JsonValue]:
    return [event["data"] for event in lab.engine.events(1) if event["event"] == "drifted"]


def test_an_approval_without_a_look_binds_to_the_file_when_the_job_was_held(shop: Lab) -> None:
    (job,) = held(shop)
    (shop.root / "a.md").write_text("other\n")
    assert "was " in conflict(lambda: shop.engine.approve(job))
    assert shop.states() == ["held"]
    shop.engine.diff(job)
    assert shop.engine.approve(job)
    shop.work()
    assert (shop.root / "a.md").read_text() == "new\n"


def test_an_approval_binds_to_what_this_person_was_shown(shop: Lab) -> None:
    (job,) = held(shop)
    shop.engine.diff(job, by="ann")
    (shop.root / "a.md").write_text("other\n")
    shop.engine.diff(job, by="bob")
    conflict(lambda: shop.engine.approve(job, by="ann"))
    assert shop.engine.approve(job, by="bob")


def test_a_list_does_not_take_the_place_of_a_diff(shop: Lab) -> None:
    (job,) = held(shop)
    shop.engine.diff(job)
    (shop.root / "a.md").write_text("other\n")
    shop.engine.saw(shop.engine.jobs(states=["held"]))
    conflict(lambda: shop.engine.approve(job))


def deleted(file: Path) -> None:
    file.unlink()


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def link(file: Path) -> None:
    file.unlink()
    (file.parent / "elsewhere").write_text("kept\n")
    file.symlink_to("elsewhere")


def changed(file: Path) -> None:
    file.write_text("other\n")


WAYS = [changed, deleted, directory, link]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_another_when_the_job_runs_holds_it_again(
    shop: Lab, way: Callable[[Path], None]
) -> None:
    (job,) = held(shop)
    shop.engine.diff(job)
    shop.engine.approve(job)
    way(shop.root / "a.md")
    before = sorted(path.name for path in shop.root.iterdir())
    shop.work()
    found = shop.engine.job(job)
    assert (found.state, found.reason) == ("held", "drift")
    assert sorted(path.name for path in shop.root.iterdir()) == before
    assert shop.engine.changes(1) == []
    (drift,) = drifts(shop)
    assert isinstance(drift, dict)
    assert drift["approved"] == sha256(b"old\n").hexdigest()
    assert drift["found"] != drift["approved"]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_another_when_it_is_approved_is_a_conflict(
    shop: Lab, way: Callable[[Path], None]
) -> None:
    (job,) = held(shop)
    shop.engine.diff(job)
    way(shop.root / "a.md")
    conflict(lambda: shop.engine.approve(job))
    assert shop.states() == ["held"]


def test_an_approval_beneath_a_root_that_is_gone_says_what_is_missing(shop: Lab) -> None:
    (job,) = held(shop)
    shop.root.rename(shop.root.with_name("elsewhere"))
    said = conflict(lambda: shop.engine.approve(job))
    assert "it is not known what it would change now, and 'a.md' was shown" in said


def test_a_job_that_drifted_runs_once_the_new_diff_is_approved(shop: Lab) -> None:
    (job,) = held(shop, write(content="more\n", mode="append"))
    shop.engine.approve(job)
    changed(shop.root / "a.md")
    shop.work()
    shop.engine.diff(job)
    assert shop.engine.approve(job)
    shop.work()
    assert (shop.root / "a.md").read_text() == "other\nmore\n"


def test_a_new_file_that_appears_in_between_is_not_overwritten(shop: Lab) -> None:
    (job,) = held(shop, write("sub/b.md"))
    shop.engine.approve(job)
    (shop.root / "sub").mkdir()
    (shop.root / "sub" / "b.md").write_text("mine\n")
    shop.work()
    assert shop.states() == ["held"]
    assert (shop.root / "sub" / "b.md").read_text() == "mine\n"


def test_a_directory_that_went_leaves_nothing_behind(shop: Lab) -> None:
    (shop.root / "sub").mkdir()
    (shop.root / "sub" / "b.md").write_text("mine\n")
    (job,) = held(shop, write("sub/b.md"))
    shop.engine.approve(job)
    (shop.root / "sub" / "b.md").unlink()
    (shop.root / "sub").rmdir()
    shop.work()
    assert shop.states() == ["held"]
    assert not (shop.root / "sub").exists()


def test_what_approved_jobs_of_the_same_mission_wrote_is_no_drift(shop: Lab) -> None:
    jobs = held(shop, *(write(content=f"{name}\n", mode="append") for name in "bcd"))
    for job in jobs:
        shop.engine.diff(job)
    shop.engine.approve(jobs[0])
    shop.work()
    shop.engine.approve(jobs[1])
    shop.engine.approve(jobs[2])
    shop.work()
    assert (shop.root / "a.md").read_text() == "old\nb\nc\nd\n"
    assert shop.states() == ["succeeded"] * 3


def test_what_was_written_in_between_by_others_is_drift_beside_the_missions_own_writes(shop: Lab) -> None:
    first, second = held(shop, *(write(content=f"{name}\n", mode="append") for name in "bc"))
    shop.engine.approve(first)
    shop.engine.approve(second)
    (shop.root / "a.md").write_text("other\n")
    shop.work()
    assert shop.states() == ["held", "held"]
    assert (shop.root / "a.md").read_text() == "other\n"


def test_another_missions_write_is_drift(shop: Lab) -> None:
    (job,) = held(shop)
    shop.engine.approve(job)
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    other = shop.launch(ask(write(content="theirs\n")), DONE, policy=auto)
    Runner(shop.engine.instance, until_idle=True, mission_id=other).run()
    shop.work()
    assert shop.engine.job(job).state == "held"
    assert (shop.root / "a.md").read_text() == "theirs\n"


def test_a_change_from_before_the_look_does_not_excuse_what_happened_after_it(shop: Lab) -> None:
    first, second = held(shop, write(content="new\n"), write(content="end\n"))
    shop.engine.approve(first)
    shop.work()  # old becomes new
    (shop.root / "a.md").write_text("old\n")
    shop.engine.diff(second)
    (shop.root / "a.md").write_text("new\n")  # as the first job did, and yet nobody's approved job
    conflict(lambda: shop.engine.approve(second))


def test_a_file_above_the_cap_is_bound_by_its_hash_as_well(open_lab: OpenLab) -> None:
    lab = open_lab()
    cap = lab.engine.instance.caps.write_bytes
    (lab.root / "a.md").write_bytes(b"x" * (cap + 1))
    (job,) = held(lab)
    assert "too large to be compared" in (lab.engine.diff(job)[0].note or "")
    with (lab.root / "a.md").open("ab") as file:
        file.write(b"y")
    conflict(lambda: lab.engine.approve(job))
    lab.engine.diff(job)
    lab.engine.approve(job)
    lab.work()
    assert drifts(lab) == []


def test_jobs_that_run_by_policy_are_bound_to_nothing(shop: Lab) -> None:
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    shop.launch(ask(write()), DONE, policy=auto)
    changed(shop.root / "a.md")
    shop.work()
    assert (shop.root / "a.md").read_text() == "new\n"


def test_an_approval_that_was_retried_still_binds(shop: Lab) -> None:
    (job,) = held(shop)
    shop.engine.approve(job)
    shop.engine.cancel(1)
    changed(shop.root / "a.md")
    shop.engine.retry(job)
    shop.work()
    assert shop.engine.job(job).reason == "drift"


def test_edited_params_are_a_revision_that_names_who_and_what_was_before(shop: Lab) -> None:
    (job,) = held(shop)
    revised: Object = {"rel_path": "b.md", "content": "mine\n"}
    shop.engine.approve(job, params=revised, by="ann")
    shop.work()
    assert (shop.root / "b.md").read_text() == "mine\n"
    (decided,) = [event["data"] for event in shop.engine.events(1) if event["event"] == "decided"]
    before = write()["params"]
    assert decided == {"by": "ann", "decision": "approve", "params": revised, "before": before}


def test_params_that_policy_denies_or_that_do_not_fit_change_nothing(shop: Lab) -> None:
    (job,) = held(shop)
    for params, code in (
        ({"rel_path": ".env", "content": "x"}, "PATH_DENIED"),
        ({"rel_path": "b"}, "INVALID_PARAMS"),
    ):
        with pytest.raises(LcpError) as refused:
            shop.engine.approve(job, params=params)
        assert refused.value.code == code
    assert shop.states() == ["held"]
    assert shop.engine.job(job).params == write()["params"]


def test_deciding_twice_is_harmless_and_deciding_otherwise_a_conflict(shop: Lab) -> None:
    job, other = held(shop, write(), write("b.md"))
    assert shop.engine.approve(job, by="ann")
    assert not shop.engine.approve(job, by="bob")
    assert "ann has approved it" in conflict(lambda: shop.engine.reject(job, "no", by="bob"))
    conflict(lambda: shop.engine.approve(job, params={"rel_path": "c", "content": "x"}))
    assert shop.engine.reject(other, "no", by="ann")
    assert not shop.engine.reject(other, "never", by="bob")
    assert "ann has rejected it" in conflict(lambda: shop.engine.approve(other))
    with pytest.raises(LcpError) as refused:
        shop.engine.approve(1)
    assert refused.value.code == "WRONG_STATE"


APPROVER = """
import sys
from lcp_engine import Engine
from lcp_engine.api.bulk import each_outcome
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.runner import Runner
url, by, text = sys.argv[1:]
with Engine(url) as engine:
    print("ready", flush=True)
    for job in sys.stdin:
        try:
            done = engine.approve(int(job), params={"rel_path": "a.md", "content": text}, by=by)
            print("approved" if done else "before", flush=True)
        except LcpError as error:
            print(error.code, flush=True)
"""


def test_of_two_people_who_approve_at_once_one_decides_and_one_is_told(shop: Lab) -> None:
    jobs = held(shop, *(write(f"{number}.md") for number in range(3)))
    people = [Python("-c", APPROVER, shop.url, by, by, stdin=PIPE, stdout=PIPE) for by in ("ann", "bob")]
    assert _next_lines(people) == ["ready", "ready"]
    for job in jobs:
        for person in people:
            assert person.stdin is not None
            person.stdin.write(f"{job}\n")
            person.stdin.flush()
        assert sorted(_next_lines(people)) == ["CONFLICT", "approved"]
    assert [person.communicate(timeout=60)[0] for person in people] == ["", ""]
    decided = [event for event in shop.engine.events(1) if event["event"] == "decided"]
    assert len(decided) == len(jobs)


def _next_lines(processes: Sequence[Popen[str]]) -> list[str]:
    lines = []
    for process in processes:
        assert process.stdout is not None
        lines.append(process.stdout.readline().strip())
    return lines


def test_a_guessed_encoding_is_shown_and_a_named_one_reaches_the_file(shop: Lab) -> None:
    gbk = "// \u4e2d\u6587\nint x;\n".encode("gbk")
    (shop.root / "a.c").write_bytes(gbk)
    text = {"old_text": "x", "new_text": "\u5b57"}
    edit: Object = {"kind": "edit_file", "params": {"rel_path": "a.c", **text}}
    named: Object = {"kind": "edit_file", "params": {"rel_path": "a.c", "encoding": "gbk", **text}}
    refused, done, changed = held(shop, edit, named, write("a.c", "// \u4e2d\u6587\n", encoding="utf-8"))
    assert "looks like gbk, which is a guess" in str(shop.engine.diff(refused))
    assert "encoded as gbk" in str(shop.engine.diff(done))
    shop.engine.approve(done)
    shop.work()
    assert (shop.root / "a.c").read_bytes() == gbk.replace(b"x", "\u5b57".encode("gbk"))
    assert "encoded as gbk, a guess, will be utf-8" in str(shop.engine.diff(changed))
    shop.engine.approve(changed)
    shop.work()
    result = shop.engine.job(changed).result or {}
    assert (result["encoding_before"], result["encoding_after"]) == ("gbk", "utf-8")
    assert "will be utf-8" in str(shop.engine.diff(changed))


def test_two_forms_of_one_directory_in_one_reply_are_refused_with_the_first_named(shop: Lab) -> None:
    paths = ["caf\u00e9/a.md", "cafe\u0301/b.md", "caf\u00e9/c.md", "cafe\u0301/d/e.md", "caf\u00e9.md"]
    shop.run(ask(*[write(path) for path in paths]), DONE)
    first, second, third, fourth, fifth = shop.jobs()
    assert [job.state for job in (first, third, fifth)] == ["held"] * 3
    for job in (second, fourth):
        error = job.error or {}
        assert (job.state, error["error_code"]) == ("rejected", "PATH_EXISTS")
        assert r'the directory "cafe\u0301" looks the same as "caf\u00e9", which an earlier job names' in str(
            error["user_message"]
        )


def test_two_forms_of_one_name_in_one_reply_make_one_file(shop: Lab) -> None:
    first, second = held(shop, write("caf\u00e9.md"), write("cafe\u0301.md"))
    shop.engine.diff(second)
    assert shop.engine.approve(first)
    shop.work()
    (shown,) = shop.engine.diff(second)
    assert r'"caf\u00e9.md" looks the same in another Unicode form' in (shown.note or "")
    assert shop.engine.approve(second)
    shop.work()
    assert [path.name for path in shop.root.glob("caf*")] == ["caf\u00e9.md"]
    error = shop.engine.job(second).error or {}
    assert (error["error_code"], r'"caf\u00e9.md" looks the same' in str(error["user_message"])) == (
        "PATH_EXISTS",
        True,
    )
