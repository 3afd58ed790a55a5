"""Read the user's configuration file, `config.yaml`. Loaded only where there is one: pydantic is slow to load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from lcp_engine.core.commands import split_command
from lcp_engine.core.contacts import SignedLinks, StatedApprovers, Webhook
from lcp_engine.core.mission.yaml import NotReadable, read_document
from lcp_engine.core.network import NO_NETWORK_GRANTED, NetworkGrant
from lcp_engine.core.policy import Rule
from lcp_engine.core.prices import Prices
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.upkeep import (
    Duty,
    StatedBackups,
    StatedChecks,
    StatedRetention,
    Upkeep,
)
from lcp_engine.core.walls import WallName
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.workers.base import Caps

_Bytes = Annotated[int, Field(ge=1)]


class CapSettings(BaseModel):
    """Limits of one job: bytes read, bytes written, bytes stored of the content it replaces, paths listed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    read_bytes: _Bytes = Field(default=Caps.read_bytes, description="Bytes that one job reads.")
    write_bytes: _Bytes = Field(default=Caps.write_bytes, description="Bytes that one job writes.")
    preimage_bytes: _Bytes = Field(
        default=Caps.preimage_bytes,
        description="Bytes of a replaced file that are stored so that it can be undone.",
    )
    listed_paths: _Bytes = Field(default=Caps.listed_paths, description="Paths that one job lists.")


_SECRET = re.compile(r"(^|_)(key|apikey|token|secret|password|authorization)$", re.IGNORECASE)


def _without_keys(planners: dict[str, dict[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
    for planner, options in planners.items():
        for name in options:
            if _SECRET.search(name):
                raise ValueError(
                    f"{planner}.{name}: keys belong in the environment (LCP_PLANNER_KEY), not in a file"
                )
    return planners


class ServeSettings(BaseModel):
    """Doors that `lcp serve` opens for programs besides the page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api: bool = Field(
        default=False, description="Serve the HTTP API below `/v1` (api.md), as `lcp serve --api` does."
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


class ConfigFile(BaseModel):
    """`config.yaml` in the user's configuration directory; every key is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str | None = Field(
        default=None,
        description="`sqlite:///PATH` or `postgresql://HOST/NAME`; without it, a file in the data directory.",
    )
    on_wait: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(split_command)] = (
        Field(
            default=(),
            description="A command that a runner starts when a mission begins to wait for a person; a text is "
            "split as a shell would.",
        )
    )
    webhook: Webhook | None = Field(
        default=None,
        description="Where runners send what waits when a mission begins to wait for a person (approvals.md).",
    )
    links: SignedLinks | None = Field(
        default=None, description="Signed links that decide one job each (approvals.md)."
    )
    approvers: StatedApprovers = Field(
        default={},
        description="People who decide from afar, by name, each with a hash of their token (`lcp approvers add NAME`).",
    )
    busy_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=BUSY_SECONDS, description="How long to wait for a database that another process has locked."
    )
    away_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="How long commands wait for a database that was there and is away (reliability.md); without it, "
        "what suits its kind.",
    )
    isolation: Isolation = Field(
        default=Isolation.AUTO, description="Whether jobs run in confined processes (isolation.md)."
    )
    policy: tuple[Rule, ...] = Field(
        default=(),
        description="Rules for every mission; they come after a mission's own, but for `final` ones.",
    )
    caps: CapSettings = Field(default=CapSettings(), description="The limits of one job.")
    planners: Annotated[dict[str, dict[str, JsonValue]], AfterValidator(_without_keys)] = Field(
        default={},
        description="Options of planners by the name of the planner, such as an endpoint; never a key.",
    )
    prices: Prices | None = Field(
        default=None,
        description="What a million tokens cost by model, for `limits.max_cost` and what missions cost (planners.md).",
    )
    commands_read: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Files and directories that commands of missions may read and execute beside the system's "
        "(commands.md), such as `~/.cargo`; relative to this file.",
    )
    commands_network: NetworkGrant = Field(
        default=NO_NETWORK_GRANTED,
        description="What missions may ask of the network for their commands: `{hosts: [registry.example.org]}`, or "
        "`host` (commands.md).",
    )
    commands_wall: tuple[WallName, ...] | None = Field(
        default=None,
        description="Walls behind which commands may run, of `overlay`, `copy` and `landlock`: the strongest of them "
        "that holds here is used (commands.md). Default: any; with `isolation: require`, `overlay` alone.",
    )
    serve: ServeSettings = Field(
        default=ServeSettings(), description="What `lcp serve` opens for programs (api.md)."
    )
    workers: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Files with kinds of jobs of your own, Python, YAML or JSON (kinds.md), relative to this file.",
    )
    retention: StatedRetention = Field(
        default=None,
        description="Runners remove missions that ended so long ago, such as `30d`, once a day (database.md); without "
        "it, all stay.",
    )
    backup: StatedBackups = Field(
        default=None,
        description="Runners make backups regularly and keep the newest, such as `daily, keep 7` (database.md).",
    )
    check: StatedChecks = Field(
        default=None,
        description="Runners check the database regularly, such as `weekly` (database.md).",
    )


def parse_config(text: str, path: Path) -> ConfigFile:
    """The configuration in `text`; errors call it `path`. Raises `INVALID_ARGUMENT`."""
    try:
        value = read_document(text)
    except NotReadable as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused}") from refused
    if value is None:
        return ConfigFile()
    if not isinstance(value, dict):
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: a mapping is expected, such as `policy: […]`")
    try:
        return ConfigFile.model_validate(value)
    except ValidationError as refused:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"{path}: {explain_first(refused, ConfigFile)}"
        ) from refused


def parse_upkeep(environment: Mapping[str, str]) -> Upkeep:
    """What `LCP_RETENTION`, `LCP_BACKUP` and `LCP_CHECK` state, each written as in the file.

    The directory of backups is relative to the current one. Raises `INVALID_ARGUMENT`.
    """
    given = {
        duty.value: _value_in(variable, text)
        for duty in Duty
        if (text := environment.get(variable := f"LCP_{duty.name}"))
    }
    try:
        upkeep = Upkeep.model_validate(given)
    except ValidationError as refused:
        duty = Duty(str(refused.errors(include_url=False)[0]["loc"][0]))
        message = f"LCP_{duty.name}{explain_first(refused, Upkeep).removeprefix(duty.value)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    backup = upkeep.backup
    if backup is None or backup.to is None:
        return upkeep
    absolute = str(Path(backup.to).expanduser().absolute())
    return upkeep.model_copy(update={"backup": backup.model_copy(update={"to": absolute})})


def _value_in(variable: str, text: str) -> JsonValue:
    try:
        return read_document(text)
    except NotReadable as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{variable}: {refused}") from refused
