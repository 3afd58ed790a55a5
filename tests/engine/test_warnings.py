"""What is ignored in a reply is stored with its turn, told to the planner, and harms no replay or fork."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.engine.replies import DONE, ask
from tests.features.replay.engine.test_replay import same

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

COMMENTED: Object = {"kind": "do", "params": {"of": "a"}, "comment": "a look around"}
IGNORED = "new_jobs[0].comment: unknown key, ignored"


def test_warnings_are_stored_with_the_turn_and_told_in_the_next_prompt(lab: Lab) -> None:
    lab.run(ask(COMMENTED), ask("b"), DONE)
    assert [question.warnings for question in lab.questions] == [[], [IGNORED], []]
    assert [turn["warnings"] for turn in lab.engine.turns(1)] == [[IGNORED], None, None]
    assert lab.rows("SELECT number, warnings FROM turn_history WHERE warnings IS NOT NULL") == [
        (1, json.dumps([IGNORED]))
    ]
    (told,) = lab.engine.warnings(1)
    assert (told["number"], told["turn"], told["job_id"]) == (1, 1, 1)
    noted = [event["data"] for event in lab.engine.events(1, job_id=1) if event["event"] == "succeeded"]
    assert noted == [{"warnings": [IGNORED]}]


def test_warnings_of_a_malformed_reply_are_told_with_the_correction(lab: Lab) -> None:
    lab.run(ask({**COMMENTED, "auto_dispatch": "no"}), ask("a"), DONE)
    corrective = lab.questions[1]
    assert corrective.warnings == [IGNORED]
    assert [error["path"] for error in corrective.correction.errors] == ["new_jobs[0].auto_dispatch"]
    assert lab.questions[2].warnings == []


def test_of_countless_warnings_a_few_are_stored(lab: Lab) -> None:
    keys = {f"{'k' * 100}{number}": 1 for number in range(40_000)}
    lab.run({**ask("a"), **keys}, DONE)
    (told,) = lab.engine.warnings(1)
    warnings = told["warnings"]
    assert isinstance(warnings, list)
    assert (len(warnings), warnings[-1]) == (21, "… and 39,980 more")
    assert lab.questions[1].warnings == warnings
    assert len(json.dumps(warnings)) < 4000


def test_a_plan_is_told_what_was_ignored_in_its_own_replies(lab: Lab) -> None:
    part: Object = {
        "kind": "agent_plan",
        "params": {"scope": "step", "user_prompt": "Look."},
        "why": "to see",
    }
    lab.run(ask(part), ask(COMMENTED), DONE, DONE)
    assert [question.warnings for question in lab.questions] == [
        [],
        [],
        [IGNORED],
        ["new_jobs[0].why: unknown key, ignored"],
    ]


def test_a_mission_with_warnings_replays_and_forks(lab: Lab) -> None:
    lab.run(ask(COMMENTED), ask("b"), DONE, DONE)
    same(lab)
    fork = lab.engine.fork(1, turn=2, planner=None)
    lab.work()
    assert lab.engine.mission(fork.id).status == "completed"
    assert lab.questions[3].warnings == [IGNORED]


def test_a_mission_that_was_stored_before_there_were_warnings_replays_and_forks(lab: Lab) -> None:
    lab.run(ask(COMMENTED), ask("b"), DONE, DONE)
    lab.engine.instance.database.write(lambda tx: tx.plain("UPDATE turns SET warnings = NULL"))
    lab.engine.instance.database.write(
        lambda tx: tx.plain("UPDATE events SET data = NULL WHERE event = 'succeeded'")
    )
    same(lab)
    lab.engine.fork(1, turn=2, planner=None)
    lab.work()
    assert lab.questions[3].warnings == []
