"""A planner is shown the result of an earlier job of its mission again, by a number that stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, ask, read
from tests.features.universal.engine.test_universal import ANSWER, UNIVERSAL, plan, respond

from lcp_engine.api.engine import Engine
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.workers.base import Caps

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object

LINES = "".join(f"line {number}\n" for number in range(1, 5001))
PART = "".join(f"line {number}\n" for number in (21, 22, 23))


def recall(number: int, **part: int) -> Object:
    return {"kind": "recall", "params": {"number": number, **part}}


def result(lab: Lab, kind: str, mission_id: int = 1) -> Object:
    """What the last job of a kind has returned, or its error."""
    job = [job for job in lab.jobs(mission_id) if job.kind == kind][-1]
    found: Object | None = job.result or job.error
    assert found is not None
    return found


def refusal(lab: Lab, mission_id: int = 1) -> tuple[JsonValue, JsonValue]:
    error = result(lab, "recall", mission_id)
    return error["error_code"], error["user_message"]


def test_a_result_is_shown_again_as_it_was(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("then\n")
    lab.meanwhile.append(lambda: (lab.root / "a.txt").write_text("now\n"))
    lab.run(ask(read("a.txt")), ask("b"), ask(recall(2)), DONE)
    shown = {"action": "recall_result", "number": 2, "kind": "read_file", "content": "then\n"}
    assert lab.questions[3].results[0].result == {"ok": True, **shown}


def test_a_long_result_is_shown_in_part(lab: Lab) -> None:
    (lab.root / "long.txt").write_text(LINES)
    lab.run(ask(read("long.txt")), ask(recall(2, offset=20, limit=3), recall(2)), DONE)
    part, whole = (result.result or {} for result in lab.questions[2].results)
    assert (part["content"], part["total"]) == (PART, 5000)
    assert (whole["content"], "total" in whole) == (LINES, False)


def test_the_result_of_a_job_of_any_kind_is_shown_and_of_a_turn_too(lab: Lab) -> None:
    lab.run(ask("a"), ask(recall(1), recall(2)), DONE)
    turn, job = (json.loads(str((result.result or {})["content"])) for result in lab.questions[2].results)
    assert turn == {"jobs": 1}
    assert job == {"done": True}


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (99, "NOT_FOUND", "the mission has no job with the number 99; it has 1 to 8"),
        (
            2,
            "WRONG_STATE",
            "number 2 (change) is held; only jobs that have succeeded have a result",
        ),
        (3, "WRONG_STATE", "number 3 (fail) failed: it is not there"),
        (
            4,
            "WRONG_STATE",
            "number 4 (read_file) was rejected: read_file .env is not allowed: default policy: secrets are denied",
        ),
        (
            7,
            "WRONG_STATE",
            "number 7 (recall) is running; only jobs that have succeeded have a result",
        ),
        (8, "WRONG_STATE", "number 8 (do) is queued; only jobs that have succeeded have a result"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(lab: Lab, number: int, code: str, said: str) -> None:
    lab.launch(ask({"kind": "change"}, {"kind": "fail"}, read(".env"), "a"), ask(recall(number), "b"), DONE)
    lab.work(max_claim=1)
    assert refusal(lab) == (code, said)
    assert len(lab.jobs()[-2].attempts) == 1  # it is not tried again


def test_numbers_are_of_the_mission_whatever_else_is_in_the_database(lab: Lab) -> None:
    lab.run(ask("a", "b"), DONE)
    (lab.root / "a.txt").write_text("of the second")
    lab.run(ask(read("a.txt")), ask(recall(2), recall(6)), DONE)
    found, missing = (job for job in lab.jobs(2) if job.kind == "recall")
    assert (found.result or {})["content"] == "of the second"
    assert refusal(lab, 2) == ("NOT_FOUND", "the mission has no job with the number 6; it has 1 to 5")
    assert missing.state == "failed"


def test_a_result_that_is_gone_from_the_database_is_said_to_be(lab: Lab) -> None:
    (lab.root / "long.txt").write_text(LINES)

    def forget() -> None:
        lab.engine.instance.database.write(lambda tx: tx.plain("DELETE FROM results"))

    lab.meanwhile.append(forget)
    lab.run(ask(read("long.txt")), ask("b"), ask(recall(2)), DONE)
    assert refusal(lab) == (
        "NOT_FOUND",
        "number 2 (read_file) succeeded, and its result is no longer stored",
    )


def test_a_result_above_the_cap_is_shown_in_part_alone(lab: Lab) -> None:
    (lab.root / "long.txt").write_text(LINES)
    lab.run(ask(read("long.txt")), DONE)
    with Engine(lab.url, caps=Caps(read_bytes=1000)) as small:
        small.fork(1, turn=2, reply=json.dumps(ask(recall(2), recall(2, offset=20, limit=3))))
        small.work(until_idle=True)
    whole, part = (job for job in lab.jobs(2) if job.kind == "recall")
    assert whole.error is not None
    assert whole.error["error_code"] == "TOO_LARGE"
    assert whole.error["user_message"] == (
        "the result of number 2 (read_file) has 48893 bytes, at most 1000 are shown at once"
    )
    assert (part.result or {})["content"] == PART


def test_outside_a_mission_there_is_nothing_to_recall(tmp_path: Path) -> None:
    done = run_job("recall", {"number": 1}, tmp_path)
    assert done.error is not None
    assert (done.error.error_code, done.error.user_message) == (
        "NOT_ALLOWED",
        "recall shows the result of an earlier job of a mission; outside of one there is none",
    )


def test_a_replay_and_a_fork_know_the_same_numbers(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("the first\n")
    lab.run(ask("a"), DONE)
    lab.run(ask(read("a.txt"), "b"), ask(recall(2)), DONE)
    assert [str(one) for one in lab.engine.replay(2).differences] == []
    lab.engine.fork(2, turn=2, reply=json.dumps(ask(recall(2), recall(3))))
    lab.work()
    first, second = ((job.result or {})["content"] for job in lab.jobs(3) if job.kind == "recall")
    assert first == "the first\n"
    assert json.loads(str(second)) == {"done": True}


def test_a_fork_does_not_doubt_what_was_recalled(lab: Lab) -> None:
    (lab.root / "a.txt").write_text("the first\n")
    lab.run(ask(read("a.txt")), ask(recall(2)), DONE)
    assert lab.engine.fork(1, turn=3).unknown == ()


def test_a_step_knows_what_the_steps_before_it_have_found(lab: Lab) -> None:
    found = [respond("research", message=f"Found {number}.") for number in (1, 2, 3)]
    inner = plan("Within")
    lab.run(plan("A", "B"), found[0], inner, found[1], found[2], ANSWER, planner=UNIVERSAL)
    known = [[(job.result or {}).get("summary") for job in asked.history] for asked in lab.questions]
    assert [question.prompt.splitlines()[0] for question in lab.questions] == [
        "Find out.", "Step 1 of 2: A", "Step 2 of 2: B", "Step 1 of 1: Within", "Step 2 of 2: B", "Find out.",
    ]  # fmt: skip
    assert known[:5] == [[], [], ["Found 1."], ["Found 1."], ["Found 1.", "Found 2."]]
