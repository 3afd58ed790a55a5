"""Money is counted exactly, by the first pattern that the name of a model matches."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import JsonValue, ValidationError
from tests.tables import table

from lcp_engine.core.limits.money import Cost, add_amounts, told_amount, told_cost
from lcp_engine.core.limits.prices import Price, Prices, cost_of

PRICES = Prices.model_validate(
    {
        "currency": "EUR",
        "models": {
            "tiny-free": {"input": 0, "output": 0},
            "tiny*": {"input": 0.1, "output": 0.7, "cached_input": 0.01},
            "*/large": {"input": "2.5", "output": 10},
        },
    }
)


def made(model: str, read: int, written: int, cached: int | None = None) -> JsonValue:
    return {"model": model, "input_tokens": read, "output_tokens": written, "cached_tokens": cached}


def test_a_cost_is_exact() -> None:
    cost = cost_of(PRICES, [made("tiny-2", 3, 1)], 4)
    assert cost.amount == Decimal("0.000001")
    total: str | None = None
    for _ in range(1_000_000):
        total = add_amounts(total, Decimal("0.0000001"))
    assert total == "0.1"


@table(
    ("model", "expected"),
    [("tiny-free", "0"), ("tiny-7", "0.8"), ("maker/large", "12.5"), ("Tiny-7", None), ("large", None)],
)
def test_the_first_pattern_counts(model: str, expected: str | None) -> None:
    cost = cost_of(PRICES, [made(model, 1_000_000, 1_000_000)], 2_000_000)
    assert cost.amount == (None if expected is None else Decimal(expected))
    assert cost.has_unpriced is (expected is None)


def test_what_the_server_had_in_its_cache_costs_less_and_never_more_than_was_read() -> None:
    (priced,) = cost_of(PRICES, [made("tiny", 1000, 0, 900)], 1000).completions
    assert isinstance(priced, dict)
    assert priced["cost"] == {"amount": "0.000019", "currency": "EUR"}
    assert priced["price"] == {"input": "0.1", "output": "0.7", "cached_input": "0.01"}
    assert cost_of(PRICES, [made("tiny", 10, 0, 900)], 10).amount == Decimal("0.0000001")


def test_tokens_of_a_planner_that_lists_no_completion_have_no_price() -> None:
    assert cost_of(PRICES, [], 5) == Cost((), None, None, has_unpriced=True)
    assert cost_of(PRICES, [], 0) == Cost(())
    assert not cost_of(None, [made("tiny", 5, 5)], 10).has_unpriced


@table(
    "bad",
    [-1, True, "1e400", "NaN", float("inf"), "0.0000001", 10_000_000, "dear", None],
    ids=["negative", "true", "huge", "NaN", "infinite", "seven places", "too dear", "a word", "nothing"],
)
def test_a_price_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate({"input": bad, "output": 1})


@table("currency", ["eur", "EURO", "€", "", 978])
def test_a_currency_is_a_code(currency: object) -> None:
    with pytest.raises(ValidationError):
        Prices.model_validate({"currency": currency})


@table(
    ("amount", "told"),
    [
        ("0", "0.00 EUR"),
        ("12.345", "12.35 EUR"),
        ("0.5", "0.50 EUR"),
        ("0.0123", "0.012 EUR"),
        ("0.00000004", "0.000000040 EUR"),
    ],
)
def test_people_read_two_digits_that_count(amount: str, told: str) -> None:
    assert told_amount(amount, "EUR") == told.replace("12.35", f"{Decimal('12.345'):.2f}")


def test_a_sum_says_what_it_leaves_out() -> None:
    assert (
        told_cost({"amount": "1.5", "currency": "EUR", "unpriced": 1})
        == "1.50 EUR, without 1 question that has no price"
    )
    assert (
        told_cost({"amount": "1.5", "currency": "EUR", "unpriced": 2})
        == "1.50 EUR, without 2 questions that have no price"
    )
    assert told_cost({"amount": None, "currency": None, "unpriced": 2}) is None
