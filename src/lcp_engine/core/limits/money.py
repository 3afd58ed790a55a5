"""Amounts of money as exact decimals, never floats, and what completions cost; `prices.py` has the prices. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

from lcp_engine.core.json_values import JsonValue

# Tokens have 16 digits at most, and prices 13.
EXACT = Context(prec=100)


@dataclass(frozen=True)
class Cost:
    """Cost of completions: those whose model has a price, and whether there are others."""

    completions: tuple[JsonValue, ...]
    """The completions with `price` and `cost`, where they have one."""
    amount: Decimal | None = None
    currency: str | None = None
    has_unpriced: bool = False


def add_amounts(one: str | None, other: Decimal) -> str:
    """The sum of an amount as it is stored, and another one."""
    return amount_text(other if one is None else EXACT.add(Decimal(one), other))


def amount_text(amount: Decimal) -> str:
    """An amount as it is stored: every digit, no exponent, no zeros at the end."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def told_amount(amount: str | Decimal, currency: str) -> str:
    """An amount for people: in hundredths from 1 on, with two digits that count below."""
    exact = Decimal(amount)
    if exact == 0 or exact >= 1:
        return f"{exact:.2f} {currency}"
    places = max(2, 1 - exact.adjusted())
    return f"{exact:.{places}f} {currency}"


def told_cost(cost: JsonValue) -> str | None:
    """The cost of a mission for people, from its JSON; None if nothing of it was counted."""
    if not isinstance(cost, dict):
        return None
    amount, currency, unpriced = cost.get("amount"), cost.get("currency"), cost.get("unpriced")
    if not isinstance(amount, str) or not isinstance(currency, str):
        return None
    without = unpriced if isinstance(unpriced, int) else 0
    more = f", without {without:,} question{'s' * (without != 1)} that {'have' if without != 1 else 'has'} no price"
    return told_amount(amount, currency) + (more if without else "")
