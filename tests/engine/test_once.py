"""Exactly once: one continuation whoever settles last, the first reply, nothing for a lost lease (R7, R17, R21)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.protocol.actions import MissionComplete
from lcp_engine.engine.question import Asked, keep_reply, open_question
from lcp_engine.engine.reply import FinishedTurn, apply_reply
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.turns import StoredReply

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

    from lcp_engine.store.row_types import JobRow

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
BATCHES = 12


def ask(*names: str) -> Object:
    new_jobs: list[JsonValue] = [{"kind": "do", "params": {"of": name}} for name in names]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def test_a_batch_that_ends_everywhere_at_once_is_continued_once(open_lab: OpenLab) -> None:
    labs = [open_lab() for _ in range(3)]
    together = threading.Barrier(5, timeout=60)
    for lab in labs:
        lab.meanwhile.append(lambda: together.wait(30))
    batches = [ask(*(f"{batch}.{job}" for job in range(5))) for batch in range(BATCHES)]
    mission_id = labs[0].launch(*batches, DONE, limits={"max_turns": BATCHES + 1})
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda lab: lab.work(threads=2, max_claim=1), labs))
    mission = labs[0].mission(mission_id)
    assert (mission.outcome, mission.turns) == ("mission_complete", BATCHES + 1)
    assert labs[0].states() == ["succeeded"] * 5 * BATCHES
    assert [len(question.results) for question in labs[0].questions] == [0] + [5] * BATCHES


def test_per_result_continues_once_for_each_of_many_at_once(open_lab: OpenLab) -> None:
    labs = [open_lab() for _ in range(2)]
    together = threading.Barrier(4, timeout=60)
    for lab in labs:
        lab.meanwhile.append(lambda: together.wait(30))
    nothing: Object = {**ask(), "new_jobs": [{"kind": "change", "params": {}}]}
    mission_id = labs[0].launch(ask(*"abcd"), *[nothing] * 4, each_result=True, limits={"max_stalled": 9})
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda lab: lab.work(threads=2, max_claim=1), labs))
    assert labs[0].mission(mission_id).turns == 5
    assert labs[0].mission(mission_id).status == "waiting"


def question(lab: Lab, job: JobRow) -> Asked:
    asked = lab.engine.instance.database.write(lambda tx: open_question(ledger_of(tx), copy(job)))
    assert asked is not None
    return asked


def test_a_reply_that_is_stored_is_used_and_the_planner_not_asked_again(lab: Lab) -> None:
    mission_id = lab.launch("never asked")
    asked = question(lab, lab.claim_and_die())
    reply = StoredReply(
        '{"ok": true, "action": "mission_complete", "summary": "paid for"}', "as asked", 7, 5, 0.1
    )
    lab.engine.instance.database.write(lambda tx: keep_reply(ledger_of(tx), asked.turn, reply))
    lab.work()
    mission = lab.mission(mission_id)
    assert (mission.summary, mission.turns) == ("paid for", 1)
    assert mission.json["tokens"] == {"input": 7, "output": 5}
    assert lab.questions == []
    assert lab.engine.job(1).attempt == 2


def test_a_question_that_was_stored_is_asked_again_under_the_same_number(lab: Lab) -> None:
    mission_id = lab.launch(DONE)
    question(lab, lab.claim_and_die())
    lab.work()
    assert lab.mission(mission_id).turns == 1
    assert [each.number for each in lab.questions] == [1]


def test_of_two_replies_to_one_question_the_first_counts(lab: Lab) -> None:
    mission_id = lab.launch(DONE)
    asked = question(lab, lab.claim_and_die())
    database = lab.engine.instance.database
    first, second = (StoredReply(text, None, 1, 1, 0.1) for text in ("first", "second"))
    assert database.write(lambda tx: keep_reply(ledger_of(tx), asked.turn, first)).reply == "first"
    assert database.write(lambda tx: keep_reply(ledger_of(tx), asked.turn, second)).reply == "first"
    assert lab.mission(mission_id).json["tokens"] == {"input": 2, "output": 2}, "both were paid for"
    lab.engine.cancel(1)


def test_a_turn_that_lost_its_lease_decides_nothing(lab: Lab) -> None:
    mission_id = lab.launch(DONE)
    job = lab.claim_and_die()
    question(lab, job)
    lab.work()
    events = lab.events(mission_id)
    database, admission = lab.engine.instance.database, lab.engine.instance.admission
    late = MissionComplete(summary="too late")
    assert not database.write(lambda tx: apply_reply(ledger_of(tx), FinishedTurn(copy(job), late, admission)))
    assert database.write(lambda tx: open_question(ledger_of(tx), copy(job))) is None
    assert lab.events(mission_id) == events
    assert lab.mission(mission_id).summary == "all done"


def test_a_turn_of_a_mission_that_was_cancelled_meanwhile_is_dropped(lab: Lab) -> None:
    mission_id = lab.launch(DONE)
    job = lab.claim_and_die()
    lab.engine.cancel(mission_id)
    assert lab.engine.instance.database.write(lambda tx: open_question(ledger_of(tx), copy(job))) is None
    lab.work()
    assert lab.engine.job(job.id).state == "cancelled"
    assert lab.questions == []
