"""The user's settings: environment, configuration file, defaults; and the root directory of a mission."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from platformdirs import user_config_path, user_data_path

from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.feature import available
from lcp_engine.sandbox.root import unfit_root
from lcp_engine.sandbox.system.landlock import Isolation, isolation_named
from lcp_engine.sandbox.system.own_places import APP, CONFIGURATION, make_private
from lcp_engine.store.db.sqlite import BUSY_SECONDS

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine.config_file import ConfigFile
    from lcp_engine.core.limits.prices import Prices
    from lcp_engine.core.policy import Rule
    from lcp_engine.core.settings.feature_settings import FeatureSettings, S
    from lcp_engine.workers.base import Caps

_Default = TypeVar("_Default", bound=float | None)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of this user; `stated` is the configuration file, None if there is none."""

    url: str
    busy_seconds: float
    """How long to wait for a database that another process has locked."""
    away_seconds: float | None
    """How long to wait for a database that was there and is away; None for what suits its kind."""
    isolation: Isolation
    stated: ConfigFile | None
    workers: tuple[Path, ...] = ()
    """Files with kinds of jobs."""
    beside: Path = Path()
    """The directory of the configuration file."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def policy(self) -> tuple[Rule, ...]:
        """The user's policy rules (R5)."""
        return () if self.stated is None else self.stated.policy

    @property
    def caps(self) -> Caps:
        """The limits of one job."""
        from lcp_engine.workers.base import Caps

        return Caps() if self.stated is None else Caps(**self.stated.caps.model_dump())

    def of(self, model: type[S]) -> S:
        """The settings of a feature: the environment's, else the file's, else the defaults."""
        from lcp_engine.config_file import with_variables

        keys = {key: value for key, value in self.stated or () if key in model.model_fields}
        made = model().model_copy(update=keys)
        made = made.placed(lambda path: str(self.beside / Path(path).expanduser()))
        return with_variables(made, self.environment)

    def of_features(self) -> Sequence[FeatureSettings]:
        """Settings that the file and the environment state for features."""
        if self.stated is None and not any(
            self.environment.get(name) for _, name in available().settings.values()
        ):
            return ()
        from lcp_engine.core.settings.feature_settings import FeatureSettings, models_of

        return [self.of(model) for model in models_of(available().settings, FeatureSettings)]

    @property
    def prices(self) -> Prices | None:
        """What models cost."""
        return None if self.stated is None else self.stated.prices

    @property
    def planners(self) -> Mapping[str, Mapping[str, JsonValue]]:
        """Options for planners by their type, used if neither mission nor environment states them."""
        return {} if self.stated is None else self.stated.planners


def read_settings(environment: Mapping[str, str] | None = None, config: Path | None = None) -> Settings:
    """The settings: the environment's `LCP_DATABASE_URL`, `LCP_BUSY_SECONDS`, `LCP_AWAY_SECONDS`, `LCP_ISOLATION`,
    `LCP_WORKERS` and variables of features, else the file, else the defaults; the files of `LCP_WORKERS` and those of
    the file are all loaded.

    Raises `INVALID_ARGUMENT` for an invalid value, with the place where it was set.
    """
    given = os.environ if environment is None else environment
    config = config or config_path()
    stated = _read_config(config)
    url = given.get("LCP_DATABASE_URL") or (stated and stated.database_url) or default_url()
    busy_seconds = BUSY_SECONDS if stated is None else stated.busy_seconds
    away_seconds = None if stated is None else stated.away_seconds
    isolation = Isolation.AUTO if stated is None else stated.isolation
    settings = Settings(
        url=read_url(url),
        busy_seconds=_seconds(given, "LCP_BUSY_SECONDS", 3600, busy_seconds),
        away_seconds=_seconds(given, "LCP_AWAY_SECONDS", 86_400, away_seconds),
        isolation=isolation_named(given.get("LCP_ISOLATION") or isolation, "LCP_ISOLATION"),
        stated=stated,
        workers=_workers(given, stated, config.parent),
        beside=config.parent,
        environment=given,
    )
    settings.of_features()
    return settings


def config_path() -> Path:
    """The path of the configuration file, which may not exist."""
    return user_config_path(APP) / CONFIGURATION


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
        make_private(place)
    except OSError as refused:
        message = (
            f"the database needs its directory {place}: {refused.strerror}; use --db for another database"
        )
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=GENERAL) from refused


def has_room(url: str) -> bool:
    """True if the directory of the database exists, as far as `make_room` would create it."""
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


def _read_config(path: Path) -> ConfigFile | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused}") from refused
    except OSError as refused:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{path}: {refused.strerror}") from refused
    from lcp_engine.config_file import parse_config

    return parse_config(text, path)


def _workers(given: Mapping[str, str], stated: ConfigFile | None, beside: Path) -> tuple[Path, ...]:
    """Those of the environment, and those of the configuration file, relative to its directory."""
    named = [Path(one) for one in given.get("LCP_WORKERS", "").split(os.pathsep) if one]
    return (*named, *(beside / Path(one).expanduser() for one in (stated.workers if stated else ())))


def _seconds(environment: Mapping[str, str], name: str, most: int, default: _Default) -> float | _Default:
    text = environment.get(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= most:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} is {text!r}; a number of seconds from 0 to {most} is expected",
        )
    return seconds


def resolve_root(stated: str | None, base: Path, override: Path | None = None) -> Path:
    """The absolute, existing root of a mission: `override`, else the `stated` one relative to `base`, else `base`.

    `base` is the directory of the mission file, or the current directory for a mission without a file.
    Raises `PATH_NOT_FOUND`, or `INVALID_MISSION` for anything but a directory below that of the whole file system,
    which as `override` is an `INVALID_ARGUMENT`.
    """
    directory = override if override is not None else base / (stated or ".")
    try:
        root = directory.resolve()
        if (unfit := unfit_root(str(override or stated or "."), str(root))) is not None:
            of_mission = override is None and unfit.code is ErrorCode.INVALID_ARGUMENT
            code = ErrorCode.INVALID_MISSION if of_mission else unfit.code
            raise LcpError(code, unfit.message, {"field": "root"}, unfit.advice)
        if root.is_dir():
            return root
        exists = root.exists()
    except (OSError, ValueError, RuntimeError) as refused:
        reason = refused.strerror if isinstance(refused, OSError) and refused.strerror else refused
        message = f"root: {str(directory)!r} cannot be read: {reason}; a directory is expected"
        raise LcpError(ErrorCode.INVALID_MISSION, one_line(message), {"field": "root"}) from refused
    if exists:
        message = f"root: {str(root)!r} is a file; a directory is expected"
        raise LcpError(ErrorCode.INVALID_MISSION, message, {"field": "root"})
    raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root: {str(root)!r} does not exist; a directory is expected")
