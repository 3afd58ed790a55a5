"""Decide which hosts the commands of a mission may reach: those that the user's configuration allows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema

from lcp_engine.core.mission.accept import Frozen
from lcp_engine.errors import ErrorCode, LcpError, UnexpectedValue

OWN_NETWORK: Literal["host"] = "host"
"""The network of this machine, without a proxy."""
PORTS = (443, 80)
"""Where a host may be reached that is named without a port of its own."""
_MOST_HOSTS = 200
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_PATTERN = re.compile(rf"\*(?:\.{_LABEL}){{2,}}")
_NUMERIC_END = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
"""Names that end so are read as IPv4 addresses: `2130706433`, `0x7f.1`, `127.1`."""


def is_host_name(text: str) -> bool:
    """True for a name in small ASCII letters, without a dot at its end, that no resolver reads as an address."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None and _NUMERIC_END.search(text) is None


def _as_name(text: str) -> str:
    if not is_host_name(name := text.lower()):
        raise UnexpectedValue("should be the name of a host, such as registry.example.org")
    return name


def _as_pattern(text: str) -> str:
    name = text.lower()
    if not is_host_name(name) and not (len(name) <= 253 and _PATTERN.fullmatch(name)):
        raise UnexpectedValue("should be the name of a host, or *.example.org for all names below one")
    return name


def _as_address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        address = None
    if address is None or "%" in text:
        raise UnexpectedValue("should be an IP address")
    return str(address)


HostPattern: TypeAlias = Annotated[str, AfterValidator(_as_pattern)]


class AllowedHost(Frozen):
    """A host that commands may reach; a bare name is one that is looked up."""

    name: HostPattern = Field(description="Its name, or `*.example.org` for all names below one.")
    address: Annotated[str, AfterValidator(_as_address)] | None = Field(
        default=None,
        description="Its IP address, which may be one of a local network or of this machine; without it the name is "
        "looked up, and such addresses are refused.",
    )
    port: int | None = Field(
        default=None, ge=1, le=65_535, description="Its one port, beside an address; without it, 443 and 80."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: JsonValue) -> JsonValue:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_placed_as_a_whole(self) -> Self:
        if self.address is None and self.port is not None:
            raise ValueError("port: needs an address")
        if self.address is not None and self.name.startswith("*"):
            raise ValueError("address: is of one host, not of all names below one")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, JsonValue]:
        """Like `_from_name`, the schema accepts a bare name."""
        return {"anyOf": [{"type": "string", "minLength": 1}, handler.resolve_ref_schema(handler(schema))]}

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports at which it may be reached."""
        return PORTS if self.port is None else (self.port,)


class _Network(Frozen):
    is_host: SkipJsonSchema[bool] = Field(default=False, exclude_if=lambda value: not value)
    """Whether it is the network of this machine, without a proxy."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            if value != OWN_NETWORK:
                raise UnexpectedValue(f"should be {OWN_NETWORK} or a mapping with hosts")
            return {"is_host": True}
        return value

    @model_serializer(mode="wrap")
    def _as_word(self, dump: SerializerFunctionWrapHandler) -> JsonValue:
        return OWN_NETWORK if self.is_host else dump(self)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, JsonValue]:
        """Like `_from_word`, the schema accepts the word."""
        return {
            "anyOf": [{"type": "string", "const": OWN_NETWORK}, handler.resolve_ref_schema(handler(schema))]
        }


class NetworkGrant(_Network):
    """Grant of the user to the commands of all missions: some hosts, or the network of this machine (`host`)."""

    hosts: Annotated[tuple[AllowedHost, ...], Field(max_length=_MOST_HOSTS)] = Field(
        default=(), description="The hosts, reached through a proxy of the engine."
    )


class NetworkUse(_Network):
    """Request of a mission for its commands: some hosts, or the network of this machine (`host`)."""

    hosts: Annotated[tuple[HostPattern, ...], Field(max_length=_MOST_HOSTS)] = Field(
        default=(), description="Their names, or `*.example.org` for all names below one."
    )


NO_NETWORK_GRANTED = NetworkGrant()
NO_NETWORK = NetworkUse()


def granted(use: NetworkUse, grant: NetworkGrant) -> NetworkGrant:
    """The part of a grant that a mission uses. Raises `NOT_ALLOWED` if it names more than that."""
    if use.is_host and not grant.is_host:
        raise _refused("commands.network: host", "commands_network: host")
    hosts = []
    for name in use.hosts:
        found = host_of(grant.hosts, name)
        if found is None and not grant.is_host:
            raise _refused(f"commands.network: {name}", f"commands_network: {{hosts: [{_as_yaml(name)}]}}")
        hosts.append(AllowedHost(name=name) if found is None or found.name != name else found)
    return NetworkGrant(is_host=use.is_host, hosts=tuple(hosts))


def host_of(hosts: Iterable[AllowedHost], name: str) -> AllowedHost | None:
    """The one of some hosts that a name or pattern belongs to: by the same name first, then by the longest pattern."""
    below = [host for host in hosts if host.name == name or _is_below(name, host.name)]
    return max(below, key=lambda host: (host.name == name, len(host.name)), default=None)


def _is_below(name: str, pattern: str) -> bool:
    return pattern.startswith("*.") and name.removeprefix("*.").endswith(pattern[1:])


def _as_yaml(name: str) -> str:
    return f'"{name}"' if name.startswith("*") else name


def _refused(asked: str, line: str) -> LcpError:
    return LcpError(
        ErrorCode.NOT_ALLOWED,
        f"{asked}: the configuration of this machine does not allow it",
        advice=f"Remove it from the mission, or have the user of the runner add `{line}` to config.yaml.",
    )
