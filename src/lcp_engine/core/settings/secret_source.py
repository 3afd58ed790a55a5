"""Secrets that the configuration names and does not contain, and the addresses that they are for. Pure."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lcp_engine.errors import UnexpectedValue

_PREFIX = "whsec_"
LEAST_BYTES = 16
"""A shorter secret could be guessed."""


class SecretSource(BaseModel):
    """Where a secret is, which neither the configuration nor the database contains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,99}$")] | None = Field(
        default=None, description="The environment variable with the secret."
    )
    secret_file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The file with the secret, relative to the configuration file, readable by its user alone.",
    )

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.secret_env is None) == (self.secret_file is None):
            raise ValueError("either secret_env or secret_file is needed")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The file with the secret, if it is in one."""
        return () if self.secret_file is None else (self.secret_file,)

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with the path of its file as `place` makes it."""
        if self.secret_file is None:
            return self
        return self.model_copy(update={"secret_file": place(self.secret_file)})


def check_address(url: str) -> str:
    """An address to which something may be sent, or that a link may lead to. Raises ValueError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as wrong:
        raise UnexpectedValue(f"should be a URL; {wrong}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UnexpectedValue("should begin with https:// and name a host")
    if parts.username is not None or parts.fragment:
        raise UnexpectedValue("should have neither a user name nor a fragment")
    if parts.scheme == "http" and not is_this_machine(host):
        raise UnexpectedValue("should begin with https://; http to another machine is not encrypted")
    return url


def is_this_machine(host: str) -> bool:
    """True if a host name is always this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_of(text: str) -> bytes | None:
    """The key that a secret is the text of, `whsec_` and Base64 or any other text; None if it is too short."""
    stated = text.strip()
    key = stated.encode()
    if stated.startswith(_PREFIX):
        try:
            key = base64.b64decode(stated.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            return None
    return key if len(key) >= LEAST_BYTES else None
