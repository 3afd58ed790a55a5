"""Settings of people who decide from afar: their names, and the links that are sent to them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from lcp_engine.core.settings.feature_settings import FeatureSettings, Length
from lcp_engine.core.settings.secret_source import SecretSource, check_address

_NAME = re.compile(r"[\w.@+-](?:[\w.@+ -]{0,98}[\w.@+-])?")
RESERVED = frozenset({"a signed link", "hold_timeout"})
"""Names that the history uses for who is not a person."""


class SignedLinks(SecretSource):
    """Links that let a person decide one job without access to the page, sent with notices and made by `lcp link`."""

    url: Annotated[str, AfterValidator(check_address)] = Field(
        description="Where people reach the page of `lcp serve`, such as `https://lcp.example.org`."
    )
    expires: Length = Field(
        default=timedelta(days=1), description="For how long a link can be used, such as `12h`."
    )


def check_name(name: str) -> str:
    """A name that a person can have. Raises ValueError."""
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(f"{name[:100]!r} is given; a name of letters, digits, spaces and .@+- is expected")
    return name


def _read(value: JsonValue) -> JsonValue:
    """A key without a value, such as the last person's removal leaves, names nobody."""
    return {} if value is None else value


class ApproverSettings(FeatureSettings):
    """Approvers, by name with the hash of the token of each, and signed links."""

    links: SignedLinks | None = Field(
        default=None, description="Signed links that decide one job each (approvals.md)."
    )
    approvers: Annotated[
        dict[
            Annotated[str, AfterValidator(check_name)], Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
        ],
        BeforeValidator(_read),
    ] = Field(
        default={},
        description="People who decide from afar, by name, each with a hash of their token (`lcp approvers add NAME`).",
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with an absolute file of the secret."""
        return self.model_copy(update={"links": self.links and self.links.placed(place)})

    def protected(self) -> Iterable[str]:
        """The file with the secret: a job that reads it could decide."""
        return () if self.links is None else self.links.files
