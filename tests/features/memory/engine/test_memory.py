"""A turn is asked with what is remembered of its root: chosen once, stored, the same after a crash and in a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pydantic import JsonValue
from tests.engine.replies import DONE, ask

from lcp_engine.engine.question import open_question
from lcp_engine.features.memory.calls import MemoryEdit
from lcp_engine.store.ledger import ledger_of
from lcp_engine.universal import AgentRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

Object: TypeAlias = dict[str, JsonValue]

NO_WRITE: Object = {"write": False}


def add(lab: Lab, title: str, content: str = "Nothing else.", **more: object) -> int:
    files = more.pop("files", ())
    assert isinstance(files, tuple)
    importance = more.pop("importance", 5)
    assert isinstance(importance, int)
    return lab.engine.memory.add(title, content, root=lab.root, files=files, importance=importance).number


def read(path: str) -> Object:
    job: Object = {"kind": "read_file", "params": {"path": path}}
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}


def test_a_turn_is_asked_with_what_concerns_it(lab: Lab) -> None:
    for number in range(5):
        add(lab, f"Other {number}")
    add(lab, "About Zebra")
    add(lab, "About the file", files=("src/a.py",))
    for number in range(5):
        add(lab, f"More {number}")
    (lab.root / "src").mkdir()
    (lab.root / "src" / "a.py").write_text("x = 1\n")
    lab.run(read("src/a.py"), DONE, goal="Count the ZEBRAS; a zebra is an animal.")
    first, second = (question.memories for question in lab.questions)
    assert first == ["About Zebra", "More 4", "More 3", "More 2"]
    assert second == ["About the file", *first]
    chosen = lab.rows("SELECT number FROM turns WHERE memories IS NOT NULL ORDER BY number")
    assert [row[0] for row in chosen] == [1, 2]


def test_what_a_chosen_entry_names_as_related_is_chosen_too(lab: Lab) -> None:
    far = lab.engine.memory.add("Far", "Nothing else.", root=lab.root)
    closed = lab.engine.memory.add("Closed", "Nothing else.", root=lab.root, files=("hr/pay.md",))
    for number in range(3):
        add(lab, f"More {number}")
    entry: Object = {
        "id": "mem-6b1d7a7e-3a55-4a3c-9a3f-0d5a0a3c1e11", "title": "About Zebra", "content": "Text.",
        "created_at": "2026-01-01T00:00:00Z", "tags": ["a"], "related_memories": [far.id, closed.id],
    }  # fmt: skip
    lab.engine.memory.take_in([entry], root=lab.root)
    rules: list[Object] = [{"kinds": ["*"], "paths": ["hr/**"], "do": "deny"}]
    lab.run(DONE, goal="Count the zebras.", policy=[*rules], memory=NO_WRITE)
    lab.run(DONE, goal="Count nothing.", memory={**NO_WRITE, "characters": 250})
    first, second = (question.memories for question in lab.questions)
    assert "Far" in first
    assert "Closed" not in first
    assert "Far" not in second


def test_the_editor_and_the_project_of_a_request_are_shown_and_choose_what_is_remembered(lab: Lab) -> None:
    add(lab, "About the open file", files=("src/Make me",))
    add(lab, "About the cursor", files=("b.py",))
    add(lab, "About Haskell")
    add(lab, "About Servant")
    for number in range(3):
        add(lab, f"More {number}")
    stated: Object = {
        "id": "req-3f2b8c1a-0d4e-4a6b-9c7d-1e2f3a4b5c6d", "timestamp": "2026-01-31T12:00:00Z", "input": "Go on.",
        "metadata": {
            "environment": {
                "editor": "vim", "open_files": ["src/Make me", f"{lab.root}/c.py"],
                "cursor_position": {"file": "b.py", "line": 3, "column": 0},
            },
            "project": {"name": "shop", "language": "Haskell", "framework": "Servant"},
        },
    }  # fmt: skip
    scribe: Object = {"type": "scribe", "log": str(lab.log), "replies": [ask("a"), DONE]}
    request = AgentRequest.model_validate(stated)
    lab.engine.launch({"goal": "Go on.", "planner": scribe}, root=lab.root, request=request)
    lab.work()
    for question in lab.questions:
        assert {"About the open file", "About the cursor", "About Haskell", "About Servant"} < {
            *question.memories
        }
        assert (question.context or "").splitlines()[1:] == [
            "- project: shop", "- language: Haskell", "- framework: Servant", "- editor: vim",
            "- open file: src/Make me", f"- open file: {lab.root}/c.py", "- cursor: b.py, line 3, column 0",
        ]  # fmt: skip
    assert len(lab.questions) == 2


def test_a_question_is_asked_again_after_a_crash_with_the_same(lab: Lab) -> None:
    number = add(lab, "As it was")
    lab.launch(DONE)
    job = lab.claim_and_die()
    assert lab.engine.instance.database.write(lambda tx: open_question(ledger_of(tx), job.copy()))
    lab.engine.memory.edit(number, MemoryEdit(title="As it is"))
    add(lab, "New")
    lab.work()
    assert [question.memories for question in lab.questions] == [["As it was"]]


def test_a_correction_is_asked_with_the_same(lab: Lab) -> None:
    number = add(lab, "As it was")
    lab.meanwhile.append(lambda: lab.engine.memory.forget(number))
    lab.run("not LCP", ask("a"), DONE)
    assert [question.memories for question in lab.questions] == [["As it was"], ["As it was"], []]


def test_a_fork_and_a_replay_see_what_the_turn_saw(lab: Lab) -> None:
    lab.run(ask("a"), DONE, memory=NO_WRITE)
    number = add(lab, "As it was")
    lab.run(ask("a"), ask("b"), DONE, memory=NO_WRITE)
    lab.engine.memory.edit(number, MemoryEdit(title="As it is"))
    assert lab.engine.replay(2).is_same
    lab.engine.fork(2, turn=2)
    lab.engine.fork(1, turn=1)
    lab.work()
    saw = {(question.number, *question.memories) for question in lab.questions[5:]}
    assert saw == {(2, "As it was"), (3, "As it is"), (1,), (2, "As it is")}
    assert lab.engine.replay(3).is_same


def test_a_correction_of_a_reply_that_a_fork_was_given_sees_what_the_turn_saw(lab: Lab) -> None:
    number = add(lab, "As it was")
    lab.run(DONE, DONE, memory=NO_WRITE)
    lab.engine.memory.forget(number)
    lab.engine.fork(1, turn=1, reply="not LCP")
    lab.work()
    assert [question.memories for question in lab.questions] == [["As it was"], ["As it was"]]


def test_nothing_is_shown_about_a_file_that_the_mission_may_not_read(lab: Lab) -> None:
    add(lab, "Open", files=("a.md",))
    add(lab, "Closed", files=("a.md", "hr/pay.md"))
    rules: list[Object] = [{"kinds": ["*"], "paths": ["hr/**"], "do": "deny"}]
    lab.run(DONE, policy=[*rules], memory=NO_WRITE)
    lab.run(DONE)
    assert [question.memories for question in lab.questions] == [["Open"], ["Closed", "Open"]]


def test_a_mission_says_whether_and_how_much_is_shown(lab: Lab) -> None:
    add(lab, "Long", "word " * 1_000)
    add(lab, "Short", "word")
    uses: list[Object] = [{"read": False}, {"characters": 200}, {"characters": 0}, {}]
    for use in uses:
        lab.run(DONE, memory={**use, **NO_WRITE})
    assert [question.memories for question in lab.questions] == [[], ["Short"], [], ["Short", "Long"]]


def test_another_root_has_another_memory(lab: Lab) -> None:
    (lab.root / "inner").mkdir()
    lab.engine.memory.add("Inner", "text", root=lab.root / "inner")
    lab.run(DONE)
    assert [question.memories for question in lab.questions] == [[]]


def remembered(lab: Lab) -> list[tuple[str, str, int | None]]:
    """What missions left, oldest first: kind of statement, content and job."""
    found = [*lab.engine.memory.entries(root=lab.root)]
    return [(one.source, one.content, one.job_id) for one in reversed(found)]


def test_the_next_mission_sees_what_one_found_out(lab: Lab) -> None:
    finding: Object = {
        "ok": True,
        "action": "analysis_result",
        "summary": "The parser drops comments.",
        "target_file": "src/parse.py",
        "issues": ["line 3 strips them", {"line": 7}],
    }
    lab.run(finding, goal="Analyse the parser.")
    lab.run(DONE, goal="Correct src/parse.py.")
    (seen,) = lab.questions[1].memories
    assert seen == "The parser drops comments."
    (entry,) = lab.engine.memory.entries(root=lab.root, tag="analysis")
    assert (entry.source, entry.files, entry.mission_id, entry.job_id) == (
        "analysis_result", ("src/parse.py",), 1, 1,
    )  # fmt: skip
    assert entry.content == 'The parser drops comments.\n\nIssues:\n- line 3 strips them\n- {"line":7}'
    assert entry.expires_at is not None


def test_what_people_say_and_why_a_mission_failed_is_remembered(lab: Lab) -> None:
    question: Object = {"kind": "ask_user", "params": {"question": "Which branch?"}}
    change: Object = {"kind": "change", "params": {"path": "a.md"}}
    asked: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": [question, change]}
    lab.run(asked, {"ok": False, "action": "error", "error": "No branch is called so."}, goal="Release.")
    first, second = (job.id for job in lab.jobs())
    lab.engine.answer(first, "main", by="ana")
    lab.engine.reject(second, "Not that file", by="ana")
    lab.engine.say(1, "Use spaces.", by="bob")
    lab.work()
    assert remembered(lab) == [
        ("user_answer", "Question: Which branch?\nAnswer of ana: main", first),
        ("user_correction", "ana refused change a.md: Not that file", second),
        ("user_correction", "bob said: Use spaces.", None),
        ("mission_error", "Goal: Release.\nError: No branch is called so.", None),
    ]
    assert lab.mission().status == "failed"


def test_a_mission_may_leave_nothing_and_repeats_nothing(lab: Lab) -> None:
    lab.run(DONE, memory={"write": False})
    assert lab.engine.memory.roots() == {}
    lab.run(DONE)
    lab.run(DONE, memory={"tags": ["nightly"]})
    assert lab.engine.memory.roots() == {str(lab.root): 1}
    assert [source for source, _, _ in remembered(lab)] == ["mission_summary"]


def test_nothing_about_a_secret_file_is_remembered(lab: Lab) -> None:
    finding: Object = {
        "ok": True,
        "action": "analysis_result",
        "summary": "It has a key.",
        "target_file": ".env",
    }
    lab.run(finding)
    assert lab.engine.memory.roots() == {}


def test_what_is_remembered_is_there_if_the_end_of_the_mission_is(lab: Lab) -> None:
    lab.launch(DONE)
    job = lab.claim_and_die()
    lab.work()
    assert (lab.mission().status, len(remembered(lab))) == ("completed", 1)
    assert lab.engine.job(job.id).attempt == 2


def note(title: str, **params: JsonValue) -> Object:
    job: Object = {"kind": "remember", "params": {"title": title, "content": "Use make db.", **params}}
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}


PROPOSES: Object = {"propose": True, "write": False, "tags": ["nightly"]}


def test_a_planner_proposes_an_entry_if_its_mission_lets_it(lab: Lab) -> None:
    lab.run(note("Tests need a database", files=["Makefile"], importance=8), DONE, memory=PROPOSES)
    (entry,) = lab.engine.memory.entries(root=lab.root)
    assert (entry.source, entry.title, entry.files, entry.importance) == (
        "planner_note", "Tests need a database", ("Makefile",), 8,
    )  # fmt: skip
    assert (entry.tags, entry.mission_id, entry.job_id) == (("note", "nightly"), 1, lab.jobs()[0].id)
    lab.run(note("Another"), DONE, memory=NO_WRITE)
    (job,) = lab.jobs(2)
    assert job.error is not None
    assert (job.state, job.error["error_code"]) == ("failed", "NOT_ALLOWED")
    assert lab.engine.memory.roots() == {str(lab.root): 1}
    assert lab.engine.replay(1).is_same


def test_policy_decides_about_proposals_as_about_any_kind(lab: Lab) -> None:
    rules: list[Object] = [{"kinds": ["remember"], "do": "hold"}]
    lab.run(note("Held"), DONE, memory=PROPOSES, policy=[*rules])
    assert (lab.states(), lab.engine.memory.roots()) == (["held"], {})
    lab.engine.approve(lab.jobs()[0].id)
    lab.work()
    assert lab.engine.memory.roots() == {str(lab.root): 1}
    lab.run(note("Secret", files=[".env"]), note(" "), DONE, memory=PROPOSES)
    assert lab.states(2) == ["rejected", "failed"]


def test_an_entry_is_stored_once_whatever_dies(lab: Lab) -> None:
    lab.launch(note("Once"), DONE, memory=PROPOSES)
    lab.work(max_claim=1)
    assert [one.title for one in lab.engine.memory.entries()] == ["Once"]
