"""Settings for MCP clients: what they may launch, and who of them may approve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import Field

from lcp_engine.core.settings.feature_settings import FeatureSettings
from lcp_engine.features.tokens.offers import OfferSettings, Text


class ClientSettings(OfferSettings):
    """Rights of MCP clients; the options of `lcp mcp` add to them."""

    planner: Text | None = Field(default=None, description="Who answers in what they launch.")
    set: tuple[Annotated[str, Field(pattern=r"^[^=]+=")], ...] = Field(
        default=(), description="Keys of what they launch, such as `limits.max_turns=5`."
    )
    stage: bool = Field(default=False, description="Let what they launch work in a private copy of the root.")
    approve_for: tuple[Text, ...] = Field(
        default=(), description="Names of clients that approve and undo what they were shown (mcp.md)."
    )


class McpSettings(FeatureSettings):
    """Clients of the Model Context Protocol."""

    mcp: ClientSettings = Field(default=ClientSettings(), description="What MCP clients may do (mcp.md).")

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute places."""
        return self.model_copy(update={"mcp": self.mcp.placed(place)})
