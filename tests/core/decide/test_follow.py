"""The table of what follows a settled, rejected or held job: it has one row for every situation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.tables import table

from lcp_engine.core.decide import End, Outcome
from lcp_engine.core.follow import (
    ASK_NEXT,
    GO_ON,
    JOB_FAILED,
    NO_REPLY,
    NOTHING_LEFT,
    RELEASES,
    RELEASES_FAULT,
    REPLACES,
    STOPS,
    STOPS_REST,
    Changes,
    Ends,
    Event,
    Followup,
    Situation,
    Stated,
    follow,
)

SETTLED, REJECTED, HELD = Event
CHANGES = Changes()
ENDS = Ends(End(Outcome.MISSION_COMPLETE, succeeded=True), claimed_in=2, of_mission=True)
BOTH = (False, True)
VALUES: dict[str, tuple[object, ...]] = {
    "event": (SETTLED, REJECTED, HELD),
    "is_released": BOTH,
    "answered": (None, CHANGES, ENDS),
    "is_refused": BOTH,
    "fails_mission": BOTH,
    "has_ended": BOTH,
    "open": (0, 2),
    "held": (0, 2),
}
OF_A_PLANNER: dict[str, tuple[object, ...]] = {
    **VALUES,
    "continues": ("per_batch", "per_result", "per_decision"),
    "is_asking": BOTH,
    "waits_behind": BOTH,
    "has_news": BOTH,
}
STATED: dict[str, tuple[object, ...]] = {
    **VALUES,
    "steps": tuple(Stated(*values) for values in product(BOTH, repeat=4)),
}

Row = tuple[dict[str, object], Followup]
UNASKED: dict[str, object] = {"answered": None, "is_refused": False}
"""No person has decided about the end of the plan."""
FIRST: dict[str, object] = {**UNASKED, "is_planners": True, "is_released": False}
TURN: dict[str, object] = {**UNASKED, "is_planners": True, "is_released": True, "has_ended": False}
AFTER_SETTLING: dict[str, object] = {**TURN, "event": SETTLED, "waits_behind": False}
AFTER_HOLDING: dict[str, object] = {**UNASKED, "is_planners": True, "has_ended": False, "event": HELD}
AT_REST: dict[str, object] = {"open": 0, "is_asking": False}
STEP: dict[str, object] = {**UNASKED, "is_planners": False}
ENDED_STEP: dict[str, object] = {**STEP, "is_released": False, "event": (SETTLED, REJECTED)}
LEFT: dict[str, object] = {**STEP, "has_ended": False, "open": 0, "held": 0}

ROWS: list[Row] = [
    # A person decided.
    ({"answered": CHANGES}, CHANGES),
    ({"answered": ENDS}, ENDS),
    ({"answered": None, "is_refused": True}, NO_REPLY),
    # A job of a planner's plan.
    ({**FIRST, "event": SETTLED, "fails_mission": True}, JOB_FAILED),
    ({**FIRST, "event": SETTLED, "fails_mission": False}, RELEASES),
    ({**FIRST, "event": REJECTED}, RELEASES),
    # Its next turn.
    ({**AFTER_SETTLING, "continues": "per_result"}, ASK_NEXT),
    ({**AFTER_SETTLING, **AT_REST, "continues": "per_batch"}, ASK_NEXT),
    ({**AFTER_SETTLING, **AT_REST, "continues": "per_decision", "held": 0}, ASK_NEXT),
    ({**TURN, **AT_REST, "event": REJECTED, "held": 0}, ASK_NEXT),
    ({**AFTER_HOLDING, **AT_REST, "held": 0}, ASK_NEXT),
    ({**AFTER_HOLDING, **AT_REST, "held": 2, "has_news": True, "continues": ("per_batch", "per_result")}, ASK_NEXT),
    # A step of a stated plan.
    ({**STEP, "is_released": False, "event": HELD, "is_stopped": True}, STOPS_REST),
    ({**STEP, "is_released": False, "event": HELD, "is_stopped": False}, GO_ON),
    ({**ENDED_STEP, "is_fault": True, "is_tolerant": False}, STOPS),
    ({**ENDED_STEP, "is_fault": True, "is_tolerant": True, "is_stopped": False}, RELEASES_FAULT),
    ({**ENDED_STEP, "is_fault": False, "is_stopped": False}, RELEASES),
    # The end of a stated plan.
    ({**LEFT, "is_released": True, "is_stopped": True, "falls_back": True}, REPLACES),
    ({**LEFT, "is_released": True, "is_stopped": True, "falls_back": False}, NOTHING_LEFT),
    ({**LEFT, "is_released": True, "is_stopped": False}, NOTHING_LEFT),
    ({**LEFT, **ENDED_STEP, "is_stopped": True, "is_fault": False, "falls_back": True}, REPLACES),
    ({**LEFT, **ENDED_STEP, "is_stopped": True, "is_fault": False, "falls_back": False}, NOTHING_LEFT),
    ({**LEFT, **ENDED_STEP, "is_stopped": True, "is_fault": True, "is_tolerant": True, "falls_back": True}, REPLACES),
    (
        {**LEFT, **ENDED_STEP, "is_stopped": True, "is_fault": True, "is_tolerant": True, "falls_back": False},
        NOTHING_LEFT,
    ),
]  # fmt: skip
"""Any other situation changes nothing but the status of the mission."""


def situations(values: dict[str, tuple[object, ...]]) -> Iterator[Situation]:
    for combined in product(*values.values()):
        yield Situation(**dict(zip(values, combined, strict=True)))  # type: ignore[arg-type]  # of each field


def is_row_for(situation: Situation, conditions: dict[str, object]) -> bool:
    """Conditions name a value, or a tuple of those that will do."""
    stated = situation.steps or Stated()
    facts = {**situation._asdict(), **stated._asdict(), "is_planners": situation.steps is None}
    return all(
        facts[name] in wanted if isinstance(wanted, tuple) else facts[name] == wanted
        for name, wanted in conditions.items()
    )


@table("values", [OF_A_PLANNER, STATED], ids=["of a planner", "stated"])
def test_every_situation_has_the_followup_of_its_one_row(values: dict[str, tuple[object, ...]]) -> None:
    for situation in situations(values):
        rows = [followup for conditions, followup in ROWS if is_row_for(situation, conditions)]
        assert len(rows) <= 1, situation
        assert follow(situation) == (rows[0] if rows else GO_ON), situation


def test_every_row_is_met() -> None:
    every = [*situations(OF_A_PLANNER), *situations(STATED)]
    assert not [
        conditions for conditions, _ in ROWS if not any(is_row_for(each, conditions) for each in every)
    ]


@table("values", [OF_A_PLANNER, STATED], ids=["of a planner", "stated"])
def test_nothing_follows_again_once_released(values: dict[str, tuple[object, ...]]) -> None:
    """What is carried out and then followed again comes once: the second answer is final."""
    released = (each for each in situations(values) if each.is_released)
    assert not {follow(each) for each in released} & {RELEASES, RELEASES_FAULT, STOPS, STOPS_REST}
