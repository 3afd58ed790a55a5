"""What a model costs is counted by the prices of the time, limits a mission, and changes no history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.core.limits.prices import Prices
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})
LOOK = json.dumps(
    {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "list_files", "params": {}}]}
)
# A completion has 11 tokens of prompt and 7 of reply here: 0.0018.
PRICES: JsonValue = {"currency": "EUR", "models": {"tiny*": {"input": 100, "output": 100}}}
OpenPriced: TypeAlias = Callable[..., Engine]


@pytest.fixture
def priced(emptied_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenPriced]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as opened:

        def open_priced(prices: JsonValue = PRICES) -> Engine:
            stated = None if prices is None else Prices.model_validate(prices)
            return opened.enter_context(Engine(emptied_database_url, prices=stated))

        yield open_priced


def launch(engine: Engine, faults: FaultServer, root: Path, model: str = "tiny", **limits: JsonValue) -> int:
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "context_tokens": 4096, "max_tokens": 64,
        **({"model": model} if model else {}),
    }  # fmt: skip
    return engine.launch({"goal": "g", "planner": planner, "limits": limits}, root=root).id


def euros(amount: str) -> JsonValue:
    return {"amount": amount, "currency": "EUR"}


def test_a_mission_has_the_cost_of_its_turns_with_what_was_asked_again(
    priced: OpenPriced, faults: FaultServer, tmp_path: Path
) -> None:
    engine = priced()
    faults.play(faults.says(DONE, finish="length"), faults.says(LOOK), faults.says(DONE))
    mission = launch(engine, faults, tmp_path)
    engine.work(until_idle=True)
    assert engine.mission(mission).cost == {"amount": "0.0054", "currency": "EUR", "unpriced": 0}
    turns = engine.turns(mission)
    assert [turn["cost"] for turn in turns] == [euros("0.0036"), euros("0.0018")]
    assert [object_in(made)["cost"] for made in list_in(turns[0]["completions"])] == [euros("0.0018")] * 2


def test_attempts_without_a_reply_cost_as_well(
    priced: OpenPriced, faults: FaultServer, tmp_path: Path
) -> None:
    engine = priced()
    faults.play(*[faults.says(DONE, finish="length")] * 3, faults.says(DONE))
    mission = launch(engine, faults, tmp_path)
    engine.work(until_idle=True)
    assert engine.mission(mission).cost["amount"] == "0.0072"
    assert engine.turns(mission)[0]["cost"] == euros("0.0072")


def test_max_cost_leaves_one_last_turn(priced: OpenPriced, faults: FaultServer, tmp_path: Path) -> None:
    engine = priced()
    faults.play(faults.says(LOOK))
    mission = launch(engine, faults, tmp_path, max_cost=0.0018)
    engine.work(until_idle=True)
    ended = engine.mission(mission)
    assert [turn["last_turn"] for turn in engine.turns(mission)] == [None, "max_cost"]
    assert ended.outcome == "limit:max_cost"
    assert engine.replay(mission).differences == ()
    faults.play(faults.says(DONE))
    engine.resume(mission, limits={"max_cost": "0.01"})
    engine.work(until_idle=True)
    assert engine.mission(mission).status == "completed"
    assert engine.mission(mission).limits["max_cost"] == "0.01"
    assert engine.replay(mission).differences == ()


def test_other_prices_change_no_history(priced: OpenPriced, faults: FaultServer, tmp_path: Path) -> None:
    faults.play(faults.says(DONE))
    engine = priced()
    mission = launch(engine, faults, tmp_path)
    engine.work(until_idle=True)
    dearer = priced({"currency": "USD", "models": {"tiny*": {"input": 9, "output": 9}}})
    assert dearer.mission(mission).cost["amount"] == "0.0018"
    dearer.resume(mission)
    dearer.work(until_idle=True)
    assert dearer.mission(mission).cost == {"amount": "0.0018", "currency": "EUR", "unpriced": 1}
    assert [object_in(turn["cost"])["currency"] for turn in dearer.turns(mission)] == ["EUR", "USD"]
    assert str(object_in(list_in(dearer.turns(mission)[0]["completions"])[0])["price"]).count("100") == 2


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (
            (None, "tiny"),
            "the model 'tiny' has no price; add 'tiny': {input: PRICE, output: PRICE} to prices",
        ),
        ((PRICES, "huge"), "the model 'huge' has no price"),
        ((PRICES, ""), "needs the name of the model, whose price counts"),
    ],
    ids=["no prices", "another model", "no name"],
)
def test_a_cost_that_cannot_be_counted_is_refused_at_launch(
    priced: OpenPriced, faults: FaultServer, tmp_path: Path, stated: tuple[JsonValue, str], said: str
) -> None:
    with pytest.raises(LcpError, match=r"limits\.max_cost") as refused:
        launch(priced(stated[0]), faults, tmp_path, stated[1], max_cost=1)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert said in str(refused.value)


@pytest.mark.parametrize("bad", [-1, True, "a lot", ".nan", 1e300, "0.0000001"])
def test_a_cost_that_is_none_is_refused(
    priced: OpenPriced, faults: FaultServer, tmp_path: Path, bad: JsonValue
) -> None:
    with pytest.raises(LcpError, match=r"limits\.max_cost"):
        launch(priced(), faults, tmp_path, max_cost=bad)


def test_a_price_or_currency_that_has_gone_since_stops_a_limited_mission(
    priced: OpenPriced, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(faults.says(LOOK))
    mission = launch(priced(), faults, tmp_path, max_cost=1)
    engine = priced(None)
    engine.work(until_idle=True)
    assert "has no price" in str(engine.mission(mission).error["user_message"])
    assert faults.requests == []


def test_no_model_needs_no_price(priced: OpenPriced, tmp_path: Path) -> None:
    engine = priced(None)
    planner: JsonValue = {"type": "script", "replies": [json.loads(DONE)]}
    mission = engine.launch({"goal": "g", "planner": planner, "limits": {"max_cost": 1}}, root=tmp_path)
    engine.work(until_idle=True)
    assert engine.mission(mission.id).status == "completed"


def test_a_person_grants_more_money(priced: OpenPriced, faults: FaultServer, tmp_path: Path) -> None:
    engine = priced()
    faults.play(faults.says(LOOK), faults.says(DONE))
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096}
    stated: JsonValue = {"goal": "g", "planner": planner, "limits": {"max_cost": "0.001"}, "on_limit": "hold"}
    assert isinstance(stated, dict)
    mission = engine.launch(stated, root=tmp_path)
    engine.work(until_idle=True)
    (job,) = engine.jobs(states=["held"])
    assert "has reached max_cost: 0.0018 of 0.001 EUR are used" in str(job.params["question"])
    with pytest.raises(LcpError, match="more: limits"):
        engine.answer(job.id, "0.0000001")
    engine.answer(job.id, "0.1")
    engine.work(until_idle=True)
    assert engine.mission(mission.id).status == "completed"
    assert engine.mission(mission.id).limits["max_cost"] == "0.1018"
    assert engine.replay(mission.id).differences == ()
