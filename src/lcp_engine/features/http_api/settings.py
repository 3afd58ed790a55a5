"""Settings of the HTTP API: what `lcp serve` opens for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from lcp_engine.core.feature_settings import FeatureSettings
from lcp_engine.shipped_missions import shipped_missions


class ServeSettings(BaseModel):
    """Doors that `lcp serve` opens for programs besides the page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    roots: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Directories over which programs may launch missions; relative to this file."
    )
    missions: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Missions that programs may launch: names of shipped ones, or files, relative to this file.",
    )

    def placed(self, place: Callable[[str], str]) -> ServeSettings:
        """The same with absolute places."""
        shipped = shipped_missions()
        return self.model_copy(
            update={
                "roots": tuple(map(place, self.roots)),
                "missions": tuple(one if one in shipped else place(one) for one in self.missions),
            }
        )


class ApiSettings(FeatureSettings):
    """Doors for programs."""

    serve: ServeSettings = Field(
        default=ServeSettings(), description="What `lcp serve` opens for programs (api.md)."
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute places."""
        return self.model_copy(update={"serve": self.serve.placed(place)})
