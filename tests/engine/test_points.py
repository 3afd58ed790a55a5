"""Features are found at the places that they state, and their observers share the fate of what they observe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import ask

from lcp_engine import feature as features
from lcp_engine.engine import points
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

    from lcp_engine.store.ledger import Ledger
    from lcp_engine.store.row_types import JobRow


def _refuse(ledger: Ledger, job: JobRow, reason: str, by: str) -> None:
    ledger.note(ledger.mission(job.mission_id), "observed", job.id, {"reason": reason})
    raise LcpError(ErrorCode.NOT_ALLOWED, f"{by} is observed", advice="Stop it.")


OBSERVER = points.Observer(rejected=_refuse)


def _places(value: object) -> Iterator[str]:
    match value:
        case str() if value.startswith("lcp_engine.") and ":" in value:
            yield value
        case tuple():
            for one in value:
                yield from _places(one)
        case Mapping():
            for one in value.values():
                yield from _places(one)


def test_every_feature_is_at_its_place() -> None:
    places = [*_places(features.added())]
    assert len(places) > 10
    for place in places:
        assert features.load(place, object) is not None


def test_what_an_observer_raises_fails_what_it_observes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    mission = lab.run(ask({"kind": "change"}))
    (held,) = lab.jobs(mission.id)
    with monkeypatch.context() as changed:
        added = features.added()
        more = added._replace(observers=(*added.observers, f"{__name__}:OBSERVER"))
        changed.setattr(points, "installed", lambda: more)
        changed.setattr(points, "is_shipped", lambda place: True)
        points.observers.cache_clear()
        with pytest.raises(LcpError, match="ann is observed"):
            lab.engine.reject(held.id, "no", by="ann")
    points.observers.cache_clear()
    assert lab.engine.job(held.id).state == "held"
    assert {"decided", "observed"}.isdisjoint(lab.events(mission.id))
    assert lab.rows("SELECT count(*) FROM memories") == [(0,)]
    assert lab.engine.reject(held.id, "no", by="ann")
    assert lab.rows("SELECT count(*) FROM memories") == [(1,)]


def test_a_call_that_no_installed_feature_adds_is_said_to_be_missing(lab: Lab) -> None:
    with pytest.raises(AttributeError, match="Engine has no 'dance': no installed feature adds it"):
        lab.engine.dance  # type: ignore[attr-defined]  # noqa: B018
