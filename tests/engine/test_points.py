"""Features are found at the places that they state, and their observers share the fate of what they observe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.engine.replies import DONE, ask

from lcp_engine import feature as features
from lcp_engine.engine import points
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.queue import ClaimGate, Unlimited

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


def _raise(*given: object) -> NoReturn:
    raise KeyError("nothing works here")


class _Broken(Unlimited):
    admit = staticmethod(_raise)


BAD_CHECK = points.DecisionGate(check=_raise)
BAD_NAMES = points.DecisionGate(names=_raise)
BAD_STATE = ClaimGate(state=_raise)
BAD_OPEN = ClaimGate(open=_raise)
BAD_THROTTLE = ClaimGate(open=lambda *runner: _Broken())
BAD_ROOTS = points.RootProvider(open=_raise)
BAD_ASKER = points.Asker(answered=_raise)
RAISED = "KeyError: 'nothing works here'"


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, object], None]]:
    """States one point of the features in another way, as if a package had it."""
    cached = points.decision_gate, points.claim_gate, points.root_provider, points.asker_of

    def clear() -> None:
        for one in cached:
            one.cache_clear()

    def change(point: str, stated: object) -> None:
        whole = features.installed()
        places = dict(zip(whole._fields, whole, strict=True)) | {point: stated}
        monkeypatch.setattr(points, "installed", lambda: features.Feature._make(places.values()))
        clear()

    monkeypatch.setattr(features, "_left_out", set())
    yield change
    clear()


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        (f"{__name__}:BAD_CHECK", f"raised {RAISED}"),
        (f"{__name__}:BAD_NAMES", "is left out"),
        ("no:GATE", "is left out"),
    ],
)
def test_a_gate_of_decisions_that_raises_refuses_approvals_alone(
    lab: Lab, state: Callable[[str, object], None], gate: str, said: str
) -> None:
    mission = lab.run(ask({"kind": "change"}))
    (held,) = lab.jobs(mission.id)
    state("decision_gate", gate)
    with pytest.raises(LcpError, match=f"feature {gate} {said}") as refused:
        lab.engine.approve(held.id, by="ann")
    assert refused.value.code is ErrorCode.NOT_INSTALLED
    assert lab.engine.job(held.id).state == "held"
    assert lab.engine.reject(held.id, "no", by="ann")


@pytest.mark.parametrize("gate", ["BAD_STATE", "BAD_OPEN", "BAD_THROTTLE"])
def test_a_gate_of_claims_that_raises_is_left_out(
    lab: Lab, state: Callable[[str, object], None], caplog: pytest.LogCaptureFixture, gate: str
) -> None:
    state("claim_gate", f"{__name__}:{gate}")
    assert lab.run(DONE).status == "completed"
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert told == [f"feature {__name__}:{gate} is left out: {RAISED}"]


def test_a_provider_of_roots_that_raises_fails_jobs_in_words(
    lab: Lab, state: Callable[[str, object], None]
) -> None:
    state("root_provider", f"{__name__}:BAD_ROOTS")
    mission = lab.run(DONE)
    assert mission.status == "failed"
    assert f"feature {__name__}:BAD_ROOTS raised {RAISED}" in str(
        lab.engine.jobs(mission_id=mission.id)[0].error
    )


def test_an_asker_that_raises_is_left_out(
    lab: Lab, state: Callable[[str, object], None], caplog: pytest.LogCaptureFixture
) -> None:
    state("askers", {"change": f"{__name__}:BAD_ASKER"})
    mission = lab.run(ask({"kind": "change"}), DONE)
    (held,) = lab.jobs(mission.id)
    lab.engine.approve(held.id, by="ann")
    lab.work()
    assert lab.engine.mission(mission.id).status == "completed"
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert told == [f"feature {__name__}:BAD_ASKER is left out: {RAISED}"]
