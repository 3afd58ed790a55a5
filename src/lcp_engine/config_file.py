"""Read the user's configuration file, `config.yaml`. Loaded only where there is one: pydantic is slow to load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from lcp_engine.core.limits.prices import Prices
from lcp_engine.core.mission.yaml import NotReadable, read_document
from lcp_engine.core.policy import Rule
from lcp_engine.core.refused_values import explain_first, is_missing
from lcp_engine.core.settings.feature_settings import FeatureSettings, S, models_of, with_fields
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import available, installed
from lcp_engine.sandbox.system.landlock import Isolation
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


class ConfigFile(BaseModel):
    """`config.yaml` in the user's configuration directory; every key is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str | None = Field(
        default=None,
        description="`sqlite:///PATH` or `postgresql://HOST/NAME`; without it, a file in the data directory.",
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
    workers: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Files with kinds of jobs of your own, Python, YAML or JSON (kinds.md), relative to this file.",
    )


def config_model() -> type[ConfigFile]:
    """The whole file: keys of the features, which are looked for if one is not known, beside those of the engine."""
    return _with(*models_of(available().settings, FeatureSettings))


@cache
def _with(*models: type[FeatureSettings]) -> type[ConfigFile]:
    return with_fields(ConfigFile, models)


def parse_config(text: str, path: Path) -> ConfigFile:
    """The configuration in `text`; errors call it `path`. Raises `INVALID_ARGUMENT`."""
    try:
        value = read_document(text)
    except NotReadable as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused}") from refused
    if value is None:
        return config_model()()
    if not isinstance(value, dict):
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: a mapping is expected, such as `policy: […]`")
    if value.keys() - config_model().model_fields.keys():
        installed()
    model = config_model()
    try:
        return model.model_validate(value)
    except ValidationError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {explain_first(refused, model)}") from refused


def with_variables(stated: S, environment: Mapping[str, str]) -> S:
    """Settings of a feature after the variables of the environment, each written as in the file.

    Paths are relative to the current directory. Raises `INVALID_ARGUMENT`.
    """
    variables = {
        key: name for key, (_, name) in available().settings.items() if key in type(stated).model_fields
    }
    given = {key: _value_in(name, text) for key, name in variables.items() if (text := environment.get(name))}
    if not given:
        return stated
    try:
        own = type(stated).model_validate(given).placed(lambda path: str(Path(path).expanduser().absolute()))
    except ValidationError as refused:
        key = str(min(refused.errors(include_url=False), key=is_missing)["loc"][0])
        message = f"{variables[key]}{explain_first(refused, type(stated)).removeprefix(key)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    return stated.model_copy(update={key: value for key, value in own if key in given})


def _value_in(variable: str, text: str) -> JsonValue:
    try:
        return read_document(text)
    except NotReadable as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{variable}: {refused}") from refused
