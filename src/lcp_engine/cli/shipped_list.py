"""Print the missions that come with the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lcp_engine.cli.output import print_json, print_out
from lcp_engine.core.mission.variables import Variable
from lcp_engine.shipped_missions import Offer


def print_offers(offers: Sequence[Offer], *, as_json: bool) -> None:
    """Each with what it does, who plans it, and the variables that `--var` gives a value."""
    if as_json:
        print_json([_shown(offer) for offer in offers])
        return
    print_out("\n\n".join("\n".join(_lines(offer)) for offer in offers))


def _lines(offer: Offer) -> Iterator[str]:
    planner = offer.outline.planner
    yield f"{offer.name}  {offer.outline.description}"
    yield f"    {_command(offer)}"
    if planner is not None:
        yield f"    planned by {planner}"
    for name, variable in offer.outline.variables.items():
        yield f"    {name}: {variable.description}{_usual(variable)}"


def _command(offer: Offer) -> str:
    needed = (name for name, variable in offer.outline.variables.items() if variable.default is None)
    given = "".join(f" --var {name}={name.upper()}" for name in needed)
    planner = "" if offer.outline.planner else " --planner NAME"
    return f"lcp run {offer.name} --root DIR{given}{planner}"


def _usual(variable: Variable) -> str:
    return "" if variable.default is None else f"  [default: {variable.default}]"


def _shown(offer: Offer) -> dict[str, object]:
    outline = offer.outline
    variables = {name: variable.model_dump() for name, variable in outline.variables.items()}
    return {
        "name": offer.name, "description": outline.description, "planner": outline.planner, "variables": variables,
    }  # fmt: skip
