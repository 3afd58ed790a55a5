"""Settings of the HTTP API: what `lcp serve` opens for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import Field

from lcp_engine.core.settings.feature_settings import FeatureSettings
from lcp_engine.features.tokens.offers import OfferSettings


class ServeSettings(OfferSettings):
    """Doors that `lcp serve` opens for programs besides the page."""

    api: bool = Field(
        default=False, description="Serve the HTTP API below `/v1` (api.md), as `lcp serve --api` does."
    )
    mcp: bool = Field(
        default=False,
        description="Serve MCP clients with a token at `/mcp` (mcp.md); the key `mcp` says what they may do.",
    )
    origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/\s]+$")], ...] = Field(
        default=(),
        description="Origins of pages in browsers that may use it, such as `https://board.example.org`.",
    )


class ApiSettings(FeatureSettings):
    """Doors for programs."""

    serve: ServeSettings = Field(
        default=ServeSettings(), description="What `lcp serve` opens for programs (api.md)."
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute places."""
        return self.model_copy(update={"serve": self.serve.placed(place)})
