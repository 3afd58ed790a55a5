"""Roots and missions that an operator lists for programs to launch: their settings, and what is there by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import shipped_missions

LIST = "Name one that is listed, or list it: `--root DIR`, `--mission NAME`, or in config.yaml."
Text = Annotated[str, Field(min_length=1)]


class OfferSettings(BaseModel):
    """Roots and missions that programs may launch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roots: tuple[Text, ...] = Field(
        default=(), description="Directories over which programs may launch missions; relative to this file."
    )
    missions: tuple[Text, ...] = Field(
        default=(),
        description="Missions that programs may launch: names of shipped ones, or files, relative to this file.",
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with absolute places."""
        shipped = shipped_missions()
        return self.model_copy(
            update={
                "roots": tuple(map(place, self.roots)),
                "missions": tuple(one if one in shipped else place(one) for one in self.missions),
            }
        )


@dataclass(frozen=True)
class Offers:
    """Listed roots, and the files of listed missions by name: those of the files without the ending."""

    roots: tuple[Path, ...] = ()
    missions: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, stated: OfferSettings) -> Self:
        """Offers that settings list. Raises `PATH_NOT_FOUND` and `INVALID_ARGUMENT` for what is not there."""
        roots = [Path(root).expanduser() for root in stated.roots]
        for root in roots:
            if not root.is_dir():
                raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root {str(root)!r} is not a directory")
        shipped, found = shipped_missions(), dict[str, Path]()
        for one in stated.missions:
            path = shipped.get(one) or Path(one)
            if not path.is_file():
                fact = f"is neither a file nor a shipped mission; {nearest(one, [*shipped])}"
                raise LcpError(ErrorCode.INVALID_ARGUMENT, f"mission {one!r} {fact}")
            if path.stem in found:
                message = f"mission {one!r}: there are two missions named {path.stem!r}"
                raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
            found[path.stem] = path.resolve()
        return cls(tuple(resolve_root(None, root, root) for root in roots), found)

    def root(self, named: str) -> Path:
        """The root that is called so. Raises `NOT_ALLOWED` if it is not listed."""
        roots = {str(root): root for root in self.roots}
        if named not in roots:
            message = f"{named[:200]!r} is not a listed root; {nearest(named, [*roots])}"
            raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=LIST)
        return roots[named]

    def mission(self, name: str) -> Path:
        """The file of the mission that is called so. Raises `NOT_ALLOWED` if it is not listed."""
        if name not in self.missions:
            message = f"{name[:200]!r} is not a listed mission; {nearest(name, [*self.missions])}"
            raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=LIST)
        return self.missions[name]
