"""The table of transitions is whole, and the page in the docs says the same (R16)."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from lcp_engine.core.job_states import (
    CREATIONS,
    RETRY,
    RETRY_BLOCKED,
    RETRY_HELD,
    SETTLED,
    TRANSITIONS,
    State,
)

PROJECT = Path(__file__).resolve().parents[3]
PAGE = PROJECT / "docs" / "states.md"


def test_every_state_can_be_reached() -> None:
    reached = set(CREATIONS)
    while more := {t.target for t in TRANSITIONS if t.sources & reached} - reached:
        reached |= more
    assert reached == set(State)


def test_every_job_can_come_to_an_end() -> None:
    ends = set(SETTLED)
    while more := {source for t in TRANSITIONS if t.target in ends for source in t.sources} - ends:
        ends |= more
    assert ends == set(State)


def test_only_a_retry_leaves_a_settled_state() -> None:
    assert [t for t in TRANSITIONS if t.sources & SETTLED] == [
        RETRY,
        RETRY_HELD,
        RETRY_BLOCKED,
    ]
    assert (RETRY.target, RETRY_HELD.target) == (State.QUEUED, State.HELD)


def test_what_succeeded_is_final_and_what_was_rejected_can_only_be_held_again() -> None:
    assert State.SUCCEEDED not in RETRY.sources | RETRY_HELD.sources | RETRY_BLOCKED.sources
    assert State.REJECTED not in RETRY.sources | RETRY_BLOCKED.sources
    assert State.REJECTED in RETRY_HELD.sources


def test_every_transition_has_an_event_of_its_own() -> None:
    events = [transition.event for transition in TRANSITIONS]
    assert len(set(events)) == len(events)


def test_only_a_queued_job_starts_and_only_a_running_one_gives_a_result() -> None:
    into_running = {t.event: set(t.sources) for t in TRANSITIONS if t.target is State.RUNNING}
    assert into_running == {"started": {State.QUEUED}}
    into_failed = {t.event: set(t.sources) for t in TRANSITIONS if t.target is State.FAILED}
    assert into_failed == {
        "failed": {State.RUNNING},
        "plan_failed": {State.BLOCKED},
        "failed_by_agent": {State.BLOCKED},
    }


def test_the_page_is_what_the_tool_writes() -> None:
    written = runpy.run_path(str(PROJECT / "tools" / "states.py"))["page"]()
    assert PAGE.read_text(encoding="utf-8") == written, "python tools/states.py writes it anew"


def test_the_diagram_on_the_page_equals_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    drawn = set(re.findall(r"^    (\S+) --> (\w+): (\w+)$", text, re.MULTILINE))
    born = {("[*]", t.target.value, t.event) for t in CREATIONS.values()}
    assert drawn == born | {(s.value, t.target.value, t.event) for t in TRANSITIONS for s in t.sources}
