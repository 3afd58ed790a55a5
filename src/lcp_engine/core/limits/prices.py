"""Prices of models by the million of tokens, and what completions cost by them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from lcp_engine.core.limits.money import EXACT, Cost, amount_text
from lcp_engine.errors import UnexpectedValue

_MILLION = Decimal(1_000_000)


def _is_number(value: object) -> object:
    if isinstance(value, bool):
        raise UnexpectedValue("should be a number")
    return value


Amount: TypeAlias = Annotated[
    Decimal, BeforeValidator(_is_number), Field(ge=0, le=1_000_000, decimal_places=6, allow_inf_nan=False)
]
Currency: TypeAlias = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


class Price(BaseModel):
    """Price of a million tokens of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Amount = Field(description="Of prompts.")
    output: Amount = Field(description="Of replies.")
    cached_input: Amount | None = Field(
        default=None,
        description="Of the part of prompts that the server had in its cache; without it, the price of prompts.",
    )

    def of(self, read: int, cached: int, written: int) -> Decimal:
        """Cost of so many tokens; `cached` are those of the `read` ones that the server had in its cache."""
        cached = min(cached, read)
        dear = self.input if self.cached_input is None else self.cached_input
        parts = ((read - cached, self.input), (cached, dear), (written, self.output))
        whole = Decimal(0)
        for tokens, price in parts:
            whole = EXACT.add(whole, EXACT.multiply(Decimal(tokens), price))
        return EXACT.divide(whole, _MILLION)

    def most(self, tokens: int) -> Decimal:
        """Cost of so many tokens at most."""
        return max(self.of(tokens, 0, 0), self.of(0, 0, tokens))


class Prices(BaseModel):
    """Prices of models, in one currency; the first pattern that a model's name matches counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: Currency = Field(description="Its code of three letters (ISO 4217), such as `EUR`.")
    models: Mapping[str, Price] = Field(
        default={},
        description="The price of a million tokens by the name of the model; `*` stands for any text.",
    )

    def of_model(self, name: str) -> Price | None:
        """The price of a model; None if it has none."""
        return next((price for pattern, price in self.models.items() if fnmatchcase(name, pattern)), None)


def cost_of(prices: Prices | None, completions: Sequence[JsonValue], tokens: int) -> Cost:
    """Cost of the completions of a question by the prices of now; `tokens` are those of the whole question."""
    if prices is None:
        return Cost(tuple(completions))
    priced: list[JsonValue] = []
    amount: Decimal | None = None
    has_unpriced = not completions and tokens > 0
    for made in completions:
        if not isinstance(made, dict):
            continue
        read, cached, written = (
            _count(made.get(name)) for name in ("input_tokens", "cached_tokens", "output_tokens")
        )
        price = prices.of_model(str(made.get("model")))
        if read + written == 0:
            priced.append(made)
        elif price is None:
            has_unpriced = True
            priced.append(made)
        else:
            cost = price.of(read, cached, written)
            amount = cost if amount is None else EXACT.add(amount, cost)
            stated = price.model_dump(mode="json", exclude_none=True)
            total: JsonValue = {"amount": amount_text(cost), "currency": prices.currency}
            priced.append({**made, "price": stated, "cost": total})
    return Cost(tuple(priced), amount, None if amount is None else prices.currency, has_unpriced)


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
