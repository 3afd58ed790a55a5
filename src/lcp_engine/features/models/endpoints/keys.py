"""Decide which key of the environment goes to an endpoint: never because a mission file names the endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.http import is_loopback

OWN = "LCP_PLANNER_KEY"
"""The key for the endpoint that the user named."""
Origin: TypeAlias = tuple[str, str, int | None]


class NoKey(Enum):
    """Reason why an endpoint gets no key."""

    NONE_SET = auto()
    NAMED_BY_MISSION = auto()
    """Only the mission file names the endpoint, or it is the usual port of a server, which any program may have."""
    NOT_ENCRYPTED = auto()
    """The endpoint is on another machine and is reached by http."""
    OF_PROVIDER = auto()
    """There is only the key of a provider, which does not go to a server of this machine."""


@dataclass(frozen=True)
class KeyOwner:
    """Statements of the owner of the keys about them; addresses are URLs."""

    provider: str
    """The address of the provider."""
    provider_key: str
    """The variable that has the provider's key."""
    named: Sequence[str] = ()
    """The addresses that the environment and the configuration name."""
    provider_named: Sequence[str] = ()
    """The addresses that the provider's own variable names."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The configuration's variables for hosts, each `HOST`, `HOST:PORT` or a URL."""


def variable_for(endpoint: str, owner: KeyOwner, environment: Mapping[str, str]) -> str | NoKey:
    """The variable with the key for `endpoint`."""
    origin = _origin(endpoint)
    stated = [variable for host, variable in owner.variables.items() if _is_host_of(host, origin)]
    usable = [name for name in (*stated, OWN, owner.provider_key) if environment.get(name, "").strip()]
    if not usable:
        return NoKey.NONE_SET
    if origin[0] != "https" and not is_loopback(endpoint):
        return NoKey.NOT_ENCRYPTED
    is_named = origin in {_origin(url) for url in (*owner.named, *owner.provider_named)}
    if usable[0] in stated or (is_named and usable[0] == OWN):
        return usable[0]
    if owner.provider_key not in usable:
        return NoKey.NAMED_BY_MISSION
    if origin in {_origin(url) for url in (owner.provider, *owner.provider_named)}:
        return owner.provider_key
    if not is_named:
        return NoKey.NAMED_BY_MISSION
    return NoKey.OF_PROVIDER if is_loopback(endpoint) else owner.provider_key


def why(reason: NoKey, endpoint: str, owner: KeyOwner) -> str:
    """A sentence for people, with what they can do."""
    name_it = f"set LCP_PLANNER_ENDPOINT={endpoint} and {OWN}"
    match reason:
        case NoKey.NONE_SET:
            return f"no key was sent, because the environment has none; {name_it}"
        case NoKey.NAMED_BY_MISSION:
            return (
                f"no key was sent, because neither environment nor configuration names this address; {name_it}, "
                "or list it under `keys` of the planner in the configuration"
            )
        case NoKey.NOT_ENCRYPTED:
            return "no key was sent, because http to another machine is not encrypted; use https"
        case NoKey.OF_PROVIDER:
            return f"no key was sent, because {owner.provider_key} does not go to this machine's ports; set {OWN}"
        case _:
            assert_never(reason)


def read_variables(stated: JsonValue) -> Mapping[str, str]:
    """The option `keys` of the configuration: a variable for each host. Raises `INVALID_ARGUMENT`."""
    if not isinstance(stated, dict):
        message = "planners in the configuration: keys: should map hosts to environment variables"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    variables: dict[str, str] = {}
    for host, variable in stated.items():
        if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
            # The value is not shown: it may be the key itself.
            message = (
                f"planners in the configuration: keys: {host}: should be the name of an environment variable"
            )
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        variables[host] = variable
    return variables


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PORTS = {"http": 80, "https": 443}


def _origin(url: str) -> Origin:
    """Scheme, host and port."""
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or ""), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def _is_host_of(host: str, origin: Origin) -> bool:
    return bool(origin[1]) and _origin(host if "://" in host else f"{origin[0]}://{host}") == origin
