"""What may not be read without a person is told by no outcome of a job that writes, moves or deletes it (R5)."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue
from tests.engine.conftest import Lab, Object

from lcp_engine.core.policy import Named, Policy, Rule, Verdict
from lcp_engine.workers.edit_file import WORKER as EDIT
from lcp_engine.workers.move_file import WORKER as MOVE

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
AUTO: Object = {"do": "auto"}
MAY_MOVE: Object = {"kinds": ["edit_file", "move_file"], "do": "auto"}
TEXTS = (b"price: 1\n", b"price: 1,000,000\r\n", b"\xff\xfep\x00r\x00")
"""Texts that differ in size, line ends and encoding."""
OTHERS = (b"\x00\x01\x02", b"\xd6\xd0\xce\xc4\n")
"""A binary file, and one whose encoding is a guess."""


JOBS: dict[str, tuple[str, Object]] = {
    "overwrite": ("write_file", {"content": "one\ntwo\n"}),
    "rewrite": ("rewrite_file", {"content": "one\ntwo\n"}),
    "append": ("write_file", {"content": "é\n", "mode": "append"}),
    "delete": ("delete_file", {}),
    "make": ("make_directory", {}),
    "move": ("move_file", {"new_path": "moved.txt"}),
    "edit": ("edit_file", {"old_text": "price", "new_text": "cost"}),
    "read": ("read_file", {}),
    "search": ("search_files", {"text": "price"}),
}


def reading(verdict: str) -> Object:
    return {"kinds": ["read_file"], "paths": ["secret.txt"], "do": verdict}


def told(lab: Lab, content: bytes, policy: list[JsonValue]) -> dict[str, str]:
    """All that the planner is told of each of the jobs, each on a file of its own with that content."""
    jobs: list[JsonValue] = []
    for name, (kind, params) in JOBS.items():
        file = lab.root / name / "secret.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        where: Object = {"root": name} if kind == "search_files" else {"rel_path": f"{name}/secret.txt"}
        jobs.append({"kind": kind, "params": {**where, **params}})
    (lab.root / "moved.txt").unlink(missing_ok=True)
    plan: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    lab.log.unlink(missing_ok=True)
    lab.run(plan, DONE, policy=policy, limits={"max_followups": len(jobs)})
    (*_, last) = lab.questions
    found = {}
    for one in (*last.results, *last.waiting):
        error = one.error or {}
        about = (one.state, one.reason, one.result, error.get("error_code"), error.get("user_message"))
        (name,) = {str(value).split("/")[0] for value in one.params.values()} & JOBS.keys()
        found[name] = json.dumps(about)
    return found


@pytest.mark.parametrize("verdict", ["deny", "hold"])
def test_an_outcome_is_the_same_whatever_is_in_the_file(lab: Lab, verdict: str) -> None:
    first, *others = (told(lab, content, [MAY_MOVE, reading(verdict), AUTO]) for content in TEXTS)
    assert first.keys() == JOBS.keys()
    probes = {"edit"} if verdict == "hold" else set()
    for other in others:
        assert {name for name in JOBS if other[name] != first[name]} <= probes
    assert (
        ('"rejected", "mission rule 2' in first["edit"])
        is ('"rejected"' in first["move"])
        is (verdict == "deny")
    )
    assert (
        '"size_bytes": null, "sha256_before": null, "sha256_after": null, "created": false' in first["append"]
    )


def test_an_append_that_does_not_fit_does_not_tell_why(lab: Lab) -> None:
    first, other = (told(lab, content, [reading("deny"), AUTO])["append"] for content in OTHERS)
    assert first == other
    assert '"NOT_ALLOWED"' in first
    assert "its content, which may not be read without a person, does not fit" in first


def test_of_a_new_file_all_is_told(lab: Lab) -> None:
    job: JsonValue = {"kind": "write_file", "params": {"rel_path": "secret.txt", "content": "mine\n"}}
    plan: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}
    lab.run(plan, DONE, policy=[reading("deny"), AUTO])
    result = lab.jobs()[0].result
    assert result is not None
    assert (result["size_bytes"], result["created"], result["sha256_before"]) == (5, True, None)
    assert result["sha256_after"] is not None


@pytest.mark.parametrize("named", [EDIT.named, MOVE.named], ids=["edit_file", "move_file"])
def test_a_denied_content_is_denied_where_it_is_now(named: Named) -> None:
    allowed = Rule(kinds=("edit_file", "move_file"), do=Verdict.AUTO)
    denied = Rule(kinds=("read_file",), paths=("a.txt",), do=Verdict.DENY)
    policy = Policy([allowed, denied]).following([("a.txt", "b.txt")])
    judge = policy.for_kind(named, has_effects=True, writes=True)
    assert [judge(path).verdict for path in ("b.txt", "c.txt")] == [Verdict.DENY, Verdict.AUTO]
    explained = policy.explain(named, has_effects=True, writes=True, paths=("b.txt",))
    assert explained[0].ruling.verdict is Verdict.DENY
