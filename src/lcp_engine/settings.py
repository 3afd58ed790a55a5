"""The user's settings: environment, configuration file, defaults; and the root directory of a mission."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from platformdirs import user_config_path, user_data_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from lcp_engine.core.policy import Rule
from lcp_engine.core.safe_text import one_line
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.workers.base import Caps

APP = "lcp-engine"
_Bytes = Annotated[int, Field(ge=1)]


class CapSettings(BaseModel):
    """Limits of one job: bytes read, bytes written, bytes stored of the content it replaces, paths listed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    read_bytes: _Bytes = Caps.read_bytes
    write_bytes: _Bytes = Caps.write_bytes
    preimage_bytes: _Bytes = Caps.preimage_bytes
    listed_paths: _Bytes = Caps.listed_paths


_SECRET = re.compile(r"(^|_)(key|apikey|token|secret|password|authorization)$", re.IGNORECASE)


def _without_keys(planners: dict[str, dict[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
    for planner, options in planners.items():
        for name in options:
            if _SECRET.search(name):
                raise ValueError(
                    f"{planner}.{name}: keys belong in the environment (LCP_PLANNER_KEY), not in a file"
                )
    return planners


def _split(command: JsonValue) -> JsonValue:
    """A command line split as a shell would split it, without expansion."""
    return [*shlex.split(command)] if isinstance(command, str) else command


class ConfigFile(BaseModel):
    """`config.yaml` in the user's configuration directory; every key is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str | None = None
    on_wait: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_split)] = ()
    busy_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    isolation: Isolation = Isolation.AUTO
    policy: tuple[Rule, ...] = ()
    caps: CapSettings = CapSettings()
    planners: Annotated[dict[str, dict[str, JsonValue]], AfterValidator(_without_keys)] = {}


class Settings(BaseModel):
    """The settings of this user: `policy` are the user's rules (R5), `busy_seconds` is the time to wait for a lock.

    `planners` are default options for planners by their type; mission and environment come before them.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    busy_seconds: float
    """How long to wait for a database that another process has locked."""
    policy: tuple[Rule, ...]
    """The user's policy rules (R5)."""
    caps: Caps
    on_wait: tuple[str, ...] = ()
    isolation: Isolation = Isolation.AUTO
    planners: Mapping[str, Mapping[str, JsonValue]] = {}
    """Options for planners by their type, used if neither mission nor environment states them."""


def read_settings(environment: Mapping[str, str] | None = None, config: Path | None = None) -> Settings:
    """The settings: `LCP_DATABASE_URL`, `LCP_BUSY_SECONDS` and `LCP_ISOLATION`, else the file, else the defaults.

    Raises `INVALID_ARGUMENT` for an invalid value, with the place where it was set.
    """
    given = os.environ if environment is None else environment
    stated = _read_config(config or config_path())
    url = given.get("LCP_DATABASE_URL") or stated.database_url or default_url()
    return Settings(
        url=read_url(url),
        busy_seconds=_seconds(given.get("LCP_BUSY_SECONDS"), stated.busy_seconds),
        policy=stated.policy,
        caps=Caps(**stated.caps.model_dump()),
        on_wait=stated.on_wait,
        isolation=_isolation(given.get("LCP_ISOLATION"), stated.isolation),
        planners=stated.planners,
    )


def config_path() -> Path:
    """The path of the configuration file, which may not exist."""
    return user_config_path(APP) / "config.yaml"


def default_url() -> str:
    """The URL of the default database."""
    return f"sqlite:///{user_data_path(APP) / 'lcp.db'}"


def read_url(text: str) -> str:
    """A database URL; `sqlite:///PATH` with PATH made absolute. Raises `INVALID_ARGUMENT` for anything else."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        # `sqlite:////absolute` as SQLAlchemy writes it, and `sqlite:///relative`.
        return f"sqlite:///{Path(rest[1:]).expanduser().absolute()}"
    if separator and scheme.split("+")[0] in ("postgresql", "postgres"):
        return text
    shown = f"begins with {(scheme if separator else text)!r}"
    if scheme == "sqlite":
        shown = f"has no file after {text!r}"
    message = f"a database URL is sqlite:///PATH or postgresql://HOST/NAME; this one {shown}"
    raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def make_room(url: str) -> None:
    """Create the directory of the default database, private to its user; other directories must exist.

    Raises `FILE_SYSTEM` if that fails.
    """
    if url != default_url():
        return
    place = user_data_path(APP)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        message = (
            f"the database needs its directory {place}: {refused.strerror}; use --db for another database"
        )
        raise LcpError(ErrorCode.FILE_SYSTEM, message) from refused


def has_room(url: str) -> bool:
    """Whether the directory of the database exists, as far as `make_room` would create it."""
    return url != default_url() or user_data_path(APP).is_dir()


def shown_url(url: str) -> str:
    """The URL without a password."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite":
        return url
    rest = re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1…", rest)
    # Up to the last "@": a password may contain characters that should have been percent-encoded.
    login, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{login.partition(':')[0]}{at}{place}"


def _read_config(path: Path) -> ConfigFile:
    from lcp_engine.core.mission.yaml import NotReadable, read_document

    try:
        value = read_document(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ConfigFile()
    except (NotReadable, UnicodeDecodeError) as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused}") from refused
    except OSError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused.strerror}") from refused
    if value is None:
        return ConfigFile()
    if not isinstance(value, dict):
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: a mapping is expected, such as `policy: […]`")
    try:
        return ConfigFile.model_validate(value)
    except ValidationError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {_explain(refused)}") from refused


_MODELS: Mapping[str, type[BaseModel]] = {"policy": Rule, "caps": CapSettings}


def _explain(refused: ValidationError) -> str:
    first = refused.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    model = _MODELS.get(str(first["loc"][0]), ConfigFile) if len(first["loc"]) > 1 else ConfigFile
    return f"{where}: is not a known key; {nearest(str(first['loc'][-1]), list(model.model_fields))}"


def _isolation(text: str | None, default: Isolation) -> Isolation:
    if not text:
        return default
    try:
        return Isolation(text)
    except ValueError:
        expected = ", ".join(Isolation)
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"LCP_ISOLATION is {text!r}; it must be one of {expected}"
        ) from None


def _seconds(text: str | None, default: float) -> float:
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"LCP_BUSY_SECONDS is {text!r}; a number of seconds from 0 to 3600 is expected",
        )
    return seconds


def resolve_root(stated: str | None, base: Path, override: Path | None = None) -> Path:
    """The absolute, existing root of a mission: `override`, else the `stated` one relative to `base`, else `base`.

    `base` is the directory of the mission file, or the current directory for a mission without a file.
    Raises `PATH_NOT_FOUND`, or `INVALID_MISSION` for anything but a directory.
    """
    directory = override if override is not None else base / (stated or ".")
    try:
        root = directory.resolve()
        if root.is_dir():
            return root
        exists = root.exists()
    except (OSError, ValueError, RuntimeError) as refused:
        reason = refused.strerror if isinstance(refused, OSError) and refused.strerror else refused
        message = f"root: {str(directory)!r} cannot be read: {reason}; a directory is expected"
        raise LcpError(ErrorCode.INVALID_MISSION, one_line(message)) from refused
    if exists:
        message = f"root: {str(root)!r} is a file; a directory is expected"
        raise LcpError(ErrorCode.INVALID_MISSION, message)
    raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root: {str(root)!r} does not exist; a directory is expected")
