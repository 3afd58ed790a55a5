"""A turn is asked with what is remembered of its root: chosen once, stored, the same after a crash and in a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.engine.replies import DONE, ask

from lcp_engine.api.memory import MemoryEdit
from lcp_engine.engine.question import open_question
from lcp_engine.store.ledger import ledger_of

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object


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
    lab.run(ask("a"), DONE)
    number = add(lab, "As it was")
    lab.run(ask("a"), ask("b"), DONE)
    lab.engine.memory.edit(number, MemoryEdit(title="As it is"))
    assert lab.engine.replay(2).is_same
    lab.engine.fork(2, turn=2)
    lab.engine.fork(1, turn=1)
    lab.work()
    saw = {(question.number, *question.memories) for question in lab.questions[5:]}
    assert saw == {(2, "As it was"), (3, "As it is"), (1,), (2, "As it is")}
    assert lab.engine.replay(3).is_same


def test_nothing_is_shown_about_a_file_that_the_mission_may_not_read(lab: Lab) -> None:
    add(lab, "Open", files=("a.md",))
    add(lab, "Closed", files=("a.md", "hr/pay.md"))
    rules: list[Object] = [{"kinds": ["*"], "paths": ["hr/**"], "do": "deny"}]
    lab.run(DONE, policy=[*rules])
    lab.run(DONE)
    assert [question.memories for question in lab.questions] == [["Open"], ["Closed", "Open"]]


def test_a_mission_says_whether_and_how_much_is_shown(lab: Lab) -> None:
    add(lab, "Long", "word " * 1_000)
    add(lab, "Short", "word")
    uses: list[Object] = [{"read": False}, {"characters": 200}, {"characters": 0}, {}]
    for use in uses:
        lab.run(DONE, memory=use)
    assert [question.memories for question in lab.questions] == [[], ["Short"], [], ["Short", "Long"]]


def test_another_root_has_another_memory(lab: Lab) -> None:
    (lab.root / "inner").mkdir()
    lab.engine.memory.add("Inner", "text", root=lab.root / "inner")
    lab.run(DONE)
    assert [question.memories for question in lab.questions] == [[]]
