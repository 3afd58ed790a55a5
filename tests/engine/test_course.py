"""Progress never goes back, whatever happens to a mission, and each milestone is told once."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.errors import LcpError
from lcp_engine.features.reports.progress import COUNTED, Measure, milestone_of
from lcp_engine.features.reports.store.progress import percentages
from lcp_engine.features.universal.structured import respond
from lcp_engine.store.queries.pages import find_named_events

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

ADDS = {"queued", "held", "blocked", "retried", "retried_held"}
DOES = {"succeeded", "failed", "plan_succeeded", "plan_failed", "answered", "rejected"}
COMPLETE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}


def asks(*kinds: str, **more: JsonValue) -> JsonValue:
    jobs: list[JsonValue] = [
        {"kind": kind, "params": {"place": place, **more}} for place, kind in enumerate(kinds)
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}


def by_hand(events: list[str]) -> list[int]:
    """The percentage after each event, as docs/report.md defines it."""
    known = done = highest = 0
    shares: list[int] = []
    for event in events:
        known += event in ADDS
        done += event in DOES
        now = 100 if event == "mission_completed" else 100 * done // (known + 5)
        highest = max(highest, now)
        shares.append(highest)
    return shares


def counted(events: list[str]) -> list[int]:
    """The percentage after each event, as a display that follows the mission has it."""
    measures = accumulate(events, Measure.after, initial=Measure())
    return [measure.percentage for measure in measures][1:]


def an_eventful_mission(lab: Lab, chance: random.Random) -> int:
    """A mission with a random script, in which a person takes part at random."""
    replies: list[JsonValue] = []
    kinds = ("do", "do", "change", "fail", "nobody_knows_it")
    for turn in range(chance.randint(1, 6)):
        replies.append(asks(*chance.choices(kinds, k=chance.randint(1, 5)), turn=turn))
        if chance.random() < 0.3:
            replies.append("this is not an action")
    mission_id = lab.launch(*replies, COMPLETE, asks("do", after="resuming"), COMPLETE)
    for _ in range(6):
        lab.work()
        take_part(lab, chance, mission_id)
    return mission_id


def take_part(lab: Lab, chance: random.Random, mission_id: int) -> None:
    for job in lab.engine.jobs(mission_id=mission_id, states=["held", "failed", "cancelled"]):
        what = chance.choice(["approve", "reject", "retry", "nothing"])
        try:
            if what == "approve":
                lab.engine.approve(job.id)
            elif what == "reject":
                lab.engine.reject(job.id, "not this")
            elif what == "retry":
                lab.engine.retry(job.id)
        except LcpError:
            pass  # not every job may be decided this way in every state
    mission = lab.mission(mission_id)
    if mission.ended_at is None and chance.random() < 0.05:
        lab.engine.cancel(mission_id)
    elif mission.ended_at is not None and chance.random() < 0.5:
        lab.engine.resume(mission_id)


def measured(lab: Lab, mission_id: int, since: int, until: int) -> tuple[int, int]:
    """The percentage of the history up to one event, and what it was at an earlier one."""
    return lab.engine.instance.database.read(lambda tx: percentages(tx, mission_id, since, until))


def counted_events(lab: Lab, mission_id: int, after: int) -> list[tuple[int, str]]:
    return lab.engine.instance.database.read(lambda tx: find_named_events(tx, mission_id, COUNTED, after))


@pytest.mark.parametrize("seed", range(3))
def test_the_percentage_of_every_prefix_is_what_the_rule_says_and_never_falls(lab: Lab, seed: int) -> None:
    mission_id = an_eventful_mission(lab, random.Random(seed))
    events = lab.events(mission_id)
    expected = by_hand(events)

    shares = [measured(lab, mission_id, 0, until)[0] for until in range(1, len(events) + 1)]
    assert shares == expected
    assert shares == sorted(shares)
    assert counted(events) == expected
    for after in (0, len(events) // 2):
        names = [event for _, event in counted_events(lab, mission_id, after)]
        assert names == [event for event in events[after:] if event in {*ADDS, *DOES, "mission_completed"}]
    has_completed = [("mission_completed" in events[:until]) for until in range(1, len(events) + 1)]
    assert [percentage == 100 for percentage in shares] == has_completed


@pytest.mark.parametrize("seed", range(3))
def test_who_asks_since_the_last_time_gets_each_milestone_once(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    mission_id = an_eventful_mission(lab, chance)
    count = len(lab.events(mission_id))
    stops = sorted({*chance.sample(range(1, count), k=min(8, count - 1)), count})
    told: list[str] = []
    shares: list[int] = []
    since = 0
    for until in stops:
        now, before = measured(lab, mission_id, since, until)
        milestone = milestone_of(before, now)
        told += [milestone] if milestone else []
        shares.append(now)
        since = until
    assert told == sorted(set(told), key=lambda name: int(name.rstrip("%")))
    highest = max((share for share in (25, 50, 75, 100) if share <= shares[-1]), default=0)
    assert (told[-1] if told else "0%") == f"{highest}%"


def test_a_resumed_mission_keeps_what_it_had_reached(lab: Lab) -> None:
    mission_id = lab.launch(asks("do"), COMPLETE, asks("do", "do", "do", "do", "do", again=True), COMPLETE)
    lab.work()
    _, course = lab.engine.standing(mission_id)
    assert course.percentage == 100
    lab.engine.resume(mission_id)
    facts, course = lab.engine.standing(mission_id)
    assert (facts.mission.status, course.percentage) == ("running", 100)
    lab.work()


def test_what_is_new_is_new_since_the_newest_question_or_since_an_event(lab: Lab) -> None:
    mission_id = lab.run(asks("do"), asks("change"), COMPLETE).id
    facts, course = lab.engine.standing(mission_id)
    progress = respond(facts, course).meta.progress
    assert progress is not None
    assert (progress.covered_topics, progress.newly_covered) == (['do {"place": 0}'], [])
    assert progress.remaining_topics == 1
    whole = respond(*lab.engine.standing(mission_id, since=0)).meta.progress
    assert whole is not None
    assert whole.newly_covered == ['do {"place": 0}']
    assert whole.event == len(lab.events(mission_id))


def test_equal_history_gives_an_equal_response(lab: Lab) -> None:
    mission_id = lab.run(asks("do", "change"), COMPLETE).id
    first = respond(*lab.engine.standing(mission_id)).as_json()
    assert respond(*lab.engine.standing(mission_id)).as_json() == first


def test_a_long_list_keeps_its_ends_and_says_what_is_left_out(lab: Lab) -> None:
    replies = [asks("fail", "change", turn=turn) for turn in range(6)]
    mission_id = lab.run(*replies, COMPLETE).id
    facts = lab.engine.facts(mission_id, most=3)
    ids = [job.id for job in lab.jobs(mission_id) if job.kind == "fail"]
    assert [row.id for row in facts.failures.rows] == [ids[0], ids[1], ids[-1]]
    assert (facts.failures.total, facts.failures.omitted) == (6, 3)
    assert [row.number for row in facts.turns.rows] == [1, 2, 7]


def test_large_params_are_not_read_into_a_report(lab: Lab) -> None:
    large: JsonValue = {"ok": True, "action": "write_file", "rel_path": "large.md", "content": "x" * 100_000}
    mission_id = lab.run(large).id
    (held,) = lab.engine.facts(mission_id).held.rows
    assert held.params == {"rel_path": "large.md", "mode": "overwrite"}
    (form,) = respond(*lab.engine.standing(mission_id)).content.forms or []
    assert form.title == "write_file large.md"
    assert all(field.placeholder is None for field in form.fields)
