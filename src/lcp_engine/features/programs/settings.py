"""Settings of commands: what they may read and reach besides, and the walls behind which they may run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from lcp_engine.core.programs.network import NO_NETWORK_GRANTED, NetworkGrant
from lcp_engine.core.programs.walls import Step, WallName, walls_for
from lcp_engine.core.settings.feature_settings import FeatureSettings
from lcp_engine.sandbox.system.installed_programs import readable_place
from lcp_engine.sandbox.system.landlock import Isolation


def _as_texts(value: object) -> object:
    """Paths and members of enumerations as texts; anything else as it is."""
    if not isinstance(value, list | tuple):
        return value
    return [str(one) if isinstance(one, os.PathLike | str) else one for one in value]


class ProgramSettings(FeatureSettings):
    """Permissions of the user for the commands of all missions."""

    commands_read: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_texts)] = (
        Field(
            default=(),
            description="Files and directories that commands of missions may read and execute beside the system's "
            "(commands.md), such as `~/.cargo`; relative to this file.",
        )
    )
    commands_network: NetworkGrant = Field(
        default=NO_NETWORK_GRANTED,
        description="What missions may ask of the network for their commands: `{hosts: [registry.example.org]}`, or "
        "`host` (commands.md).",
    )
    commands_wall: Annotated[tuple[WallName, ...] | None, BeforeValidator(_as_texts)] = Field(
        default=None,
        description="Walls behind which commands may run, of `overlay`, `copy` and `landlock`: the strongest of them "
        "that holds here is used (commands.md). Default: any; with `isolation: require`, `overlay` alone.",
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute paths."""
        return self.model_copy(update={"commands_read": tuple(map(place, self.commands_read))})

    def refuse(self) -> None:
        """Refuse places that no program may read."""
        _ = self.places

    @property
    def places(self) -> tuple[str, ...]:
        """Paths that commands may read besides. Raises `INVALID_ARGUMENT` for one that no program may read."""
        return tuple(readable_place(Path(place), "commands_read") for place in self.commands_read)

    def walls(self, isolation: Isolation) -> tuple[Step, ...]:
        """Walls that commands may run behind."""
        return walls_for(self.commands_wall, is_required=isolation is Isolation.REQUIRE)
