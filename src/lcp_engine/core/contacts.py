"""Ways to reach people from afar, as the configuration states them: webhook, signed links, approvers. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from lcp_engine.core.secret_source import SecretSource, check_address
from lcp_engine.core.upkeep import Length

_NAME = re.compile(r"[\w.@+-](?:[\w.@+ -]{0,98}[\w.@+-])?")
RESERVED = frozenset({"a signed link", "hold_timeout"})
"""Names that the history uses for who is not a person."""


class Webhook(SecretSource):
    """A server that is sent a notice whenever a mission starts to wait for a person."""

    url: Annotated[str, AfterValidator(check_address)] = Field(
        description="Where notices are sent by POST; `https`, or `http` on this machine."
    )


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


StatedApprovers: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(check_name)], Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]],
    BeforeValidator(_read),
]
