"""Settings for MCP clients: what they may launch, and who of them may approve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from lcp_engine.core.feature_settings import FeatureSettings
from lcp_engine.shipped_missions import shipped_missions

_Text = Annotated[str, Field(min_length=1)]


class ClientSettings(BaseModel):
    """Rights of MCP clients; the options of `lcp mcp` add to them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roots: tuple[_Text, ...] = Field(
        default=(), description="Directories over which they may launch missions; relative to this file."
    )
    missions: tuple[_Text, ...] = Field(
        default=(),
        description="Missions that they may launch there: names of shipped ones, or files, relative to this file; "
        "without any, what they say in words.",
    )
    planner: _Text | None = Field(default=None, description="Who answers in what they launch.")
    set: tuple[Annotated[str, Field(pattern=r"^[^=]+=")], ...] = Field(
        default=(), description="Keys of what they launch, such as `limits.max_turns=5`."
    )
    stage: bool = Field(
        default=False,
        description="Let what they launch work in a private copy of the root.",
    )
    approve_for: tuple[_Text, ...] = Field(
        default=(), description="Names of clients that approve and undo what they were shown (mcp.md)."
    )

    def placed(self, place: Callable[[str], str]) -> ClientSettings:
        """The same with absolute places."""
        shipped = shipped_missions()
        return self.model_copy(
            update={
                "roots": tuple(map(place, self.roots)),
                "missions": tuple(one if one in shipped else place(one) for one in self.missions),
            }
        )


class McpSettings(FeatureSettings):
    """Clients of the Model Context Protocol."""

    mcp: ClientSettings = Field(default=ClientSettings(), description="What MCP clients may do (mcp.md).")

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute places."""
        return self.model_copy(update={"mcp": self.mcp.placed(place)})
