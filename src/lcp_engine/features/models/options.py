"""Read the options of a model: the mission's come first, then the environment's, then the user's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields, replace
from enum import StrEnum
from hashlib import pbkdf2_hmac
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, SecretStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lcp_engine.core.limits.permits import MOST_RUNNING, Limit, RateLimit, limit_of
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.refused_values import explain
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError, UnexpectedValue
from lcp_engine.features.models.endpoints.chat import ModelSettings
from lcp_engine.features.models.endpoints.keys import KeyOwner, NoKey, read_variables, variable_for, why

STRICT = ConfigDict(extra="forbid")
SMALL_CONTEXT = 4096
"""A model with so few tokens of context is guided, unless its options say otherwise."""


class Guidance(StrEnum):
    """Whether each turn of a model is narrowed to what is to be done next."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"

    def guides(self, context_tokens: int) -> bool:
        return self is Guidance.ON or (self is Guidance.AUTO and context_tokens <= SMALL_CONTEXT)


Server: TypeAlias = Literal["lmstudio", "ollama", "llamacpp", "vllm", "openai"]
SERVERS: Mapping[str, str] = {
    "lmstudio": "http://127.0.0.1:1234/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "openai": "https://api.openai.com/v1",
}


def _is_endpoint(url: str) -> str:
    parts = _split(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UnexpectedValue("should be a URL such as http://127.0.0.1:1234/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UnexpectedValue("should be a URL without credentials or query; put keys in the environment")
    return url.rstrip("/")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        is_usable = parts.port != 0
    except ValueError:
        return None
    return parts if is_usable else None


Endpoint = Annotated[str, AfterValidator(_is_endpoint)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelOptions:
    """The options of any model; None leaves an option to the next source."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Tokens | None = None
    context_tokens: Tokens | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    first_byte_seconds: Seconds | None = None
    total_seconds: Seconds | None = None
    narrow: bool | None = None
    guidance: Guidance | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RemoteOptions(ModelOptions):
    """Like `ModelOptions`, for a model behind an endpoint."""

    base_url: Endpoint | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    connect_seconds: Seconds | None = None
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_answer_bytes: Annotated[int, Field(ge=4096, le=2**30)] | None = None
    rate_limit: RateLimit | None = None
    max_running: Annotated[int, Field(ge=1, le=MOST_RUNNING)] | None = None
    max_wait: Annotated[float, Field(ge=0, le=604_800)] | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenAIOptions(RemoteOptions):
    """Like `RemoteOptions`; `server` is short for the endpoint where such a server listens by default."""

    server: Server | None = None


Options = TypeVar("Options", bound=ModelOptions)
Remote = TypeVar("Remote", bound=RemoteOptions)


@plain_dataclass(frozen=True)
class Provider:
    """A provider: its endpoint, the environment variables for endpoint and key, the usual size of the context."""

    name: str
    endpoint: str
    base_url: str
    key: str
    context_tokens: int


OPENAI = Provider("openai", SERVERS["openai"], "OPENAI_BASE_URL", "OPENAI_API_KEY", 128_000)
ANTHROPIC = Provider(
    "anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", 200_000
)


@plain_dataclass(frozen=True)
class Stated(Generic[Options]):
    """The options of the three sources; the first that has a value counts."""

    mission: Options
    environment: Options
    user: Options
    keys: Mapping[str, str] = field(default_factory=dict)
    """The user's environment variables of keys by host."""

    def values(self) -> dict[str, object]:
        """The options that count."""
        places = (self.user, self.environment, self.mission)
        return {key: value for place in places for key, value in vars(place).items() if value is not None}

    @property
    def is_narrow(self) -> bool:
        """True if the schema of a turn is narrowed to what the rules would accept."""
        return self.values().get("narrow") is not False

    @property
    def guidance(self) -> Guidance:
        return Guidance(str(self.values().get("guidance", Guidance.AUTO)))


def read_stated(
    mission: Options,
    environment: Mapping[str, str],
    user: Mapping[str, JsonValue],
    variables: Mapping[str, str] = {},
) -> Stated[Options]:
    """The options of the mission with those of the environment and of the user's configuration.

    In the environment an option is `LCP_PLANNER_` and its name, or one of `variables` (name to option). Raises
    `INVALID_ARGUMENT` for a value that cannot be used.
    """
    kind = type(mission)
    named = {f"LCP_PLANNER_{field.name.upper()}": field.name for field in fields(kind)} | dict(variables)
    given = {variable: option for variable, option in named.items() if environment.get(variable)}
    for variable, option in given.items():
        _parse(kind, {option: environment[variable]}, variable)
    values = {option: environment[variable] for variable, option in given.items()}
    return Stated(
        mission, _parse(kind, values, "environment"), _parse(kind, user, "planners in the configuration")
    )


def read_remote(
    provider: Provider, options: Remote, environment: Mapping[str, str], user: Mapping[str, JsonValue]
) -> Stated[Remote]:
    """Like `read_stated`; the engine's variable for the endpoint comes before the provider's.

    The user's options may have `keys`, the environment variable of the key for each host.
    """
    own = environment.get("LCP_PLANNER_ENDPOINT")
    variables = {"LCP_PLANNER_ENDPOINT" if own else provider.base_url: "base_url"}
    options_of_user = {name: value for name, value in user.items() if name != "keys"}
    stated = read_stated(options, environment, options_of_user, variables)
    return replace(stated, keys=read_variables(user["keys"])) if "keys" in user else stated


def remote_settings(
    provider: Provider, stated: Stated[Remote], environment: Mapping[str, str]
) -> ModelSettings:
    """The settings of a model behind an endpoint, with the key of the environment. Raises `INVALID_ARGUMENT`."""
    endpoint = _endpoint(stated, provider)
    owner = _owner(provider, stated, environment)
    variable = variable_for(endpoint, owner, environment)
    settings = settings_of(
        stated,
        endpoint=endpoint,
        key=_key(variable, environment) if isinstance(variable, str) else None,
        keyless=why(variable, endpoint, owner) if isinstance(variable, NoKey) else "",
        # Unless one is set, none is sent: many models refuse any temperature but their own.
        temperature=stated.values().get("temperature"),
    )
    if settings.context_tokens is not None:
        return settings
    return replace(settings, context_tokens=_context_tokens(provider, endpoint))


def shared_limit(stated: Stated[Remote], settings: ModelSettings) -> tuple[str, Limit] | None:
    """The name of the model at its endpoint, and what limits the questions to it; None without a limit."""
    values = stated.values()
    rate, most = values.get("rate_limit"), values.get("max_running")
    limit = limit_of(rate if isinstance(rate, RateLimit) else None, most if isinstance(most, int) else None)
    named = f"{settings.endpoint} {settings.model}" if settings.model else settings.endpoint
    return None if limit.is_none else (named, limit)


def server_wait(settings: ModelSettings) -> tuple[str, float]:
    """The name of endpoint and key, for which a server asks to wait, and how many seconds a question does at most.

    The name is stored. It tells keys apart by a few bytes of a slow, salted hash, which no key can be found from.
    """
    name = settings.endpoint
    if settings.key is not None:
        key, salt = settings.key.get_secret_value().encode(), settings.endpoint.encode()
        name = f"{name} {pbkdf2_hmac('sha256', key, salt, _ROUNDS, dklen=6).hex()}"
    return name, settings.max_wait


_ROUNDS = 20_000


def require_key(provider: Provider, settings: ModelSettings) -> None:
    """Refuse to ask a provider without a key. Raises `INVALID_ARGUMENT`."""
    if settings.endpoint == provider.endpoint and settings.key is None:
        message = f"{provider.endpoint}: a key is expected in {provider.key}; {settings.keyless}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def settings_of(stated: Stated[Options], **more: object) -> ModelSettings:
    """The settings that count; `more` are values that no option states."""
    known = {field.name for field in fields(ModelSettings)}
    values = {key: value for key, value in stated.values().items() if key in known}
    return TypeAdapter(ModelSettings).validate_python({**values, **more})


def _parse(kind: type[Options], values: Mapping[str, object], where: str) -> Options:
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as refused:
        error = refused.errors(include_url=False)[0]
        name, message = str(error["loc"][0]), explain(error, PlannerSpec)
        if error["type"] == "unexpected_keyword_argument":
            message = f"is not an option; {nearest(name, [field.name for field in fields(kind)])}"
        place = where if where.startswith("LCP_") or where.isupper() else f"{where}: {name}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{place}: {message}") from None


def _endpoint(stated: Stated[Remote], provider: Provider) -> str:
    places = (stated.mission, stated.environment, stated.user)
    return next((endpoint for place in places if (endpoint := _stated_endpoint(place))), provider.endpoint)


def _owner(provider: Provider, stated: Stated[Remote], environment: Mapping[str, str]) -> KeyOwner:
    """The owner of the key by environment and configuration. A short name (`lmstudio`) names a port, and no host."""
    named = [place.base_url for place in (stated.environment, stated.user) if place.base_url]
    if environment.get("LCP_PLANNER") == provider.name or any(
        isinstance(place, OpenAIOptions) and place.server == provider.name
        for place in (stated.environment, stated.user)
    ):
        named.append(provider.endpoint)
    own = environment.get(provider.base_url)
    return KeyOwner(provider.endpoint, provider.key, named, (own,) if own else (), stated.keys)


def _stated_endpoint(place: RemoteOptions) -> str | None:
    """A host alone gets its usual path: `/v1` for OpenAI's; none for Anthropic's, whose paths begin with it."""
    if not isinstance(place, OpenAIOptions):
        return place.base_url and place.base_url.removesuffix("/v1")
    if place.base_url is None:
        return SERVERS[place.server] if place.server else None
    return place.base_url if urlsplit(place.base_url).path else f"{place.base_url}/v1"


def _context_tokens(provider: Provider, endpoint: str) -> int | None:
    """The context of a server that does not report it. Ollama cuts longer prompts silently."""
    return {provider.endpoint: provider.context_tokens, SERVERS["ollama"]: 4096}.get(endpoint)


def _key(variable: str, environment: Mapping[str, str]) -> SecretStr:
    key = environment[variable].strip()
    if not (key.isascii() and key.isprintable()):
        # A library that cannot send it as a header would quote it in its error.
        message = f"{variable}: a key is one line of printable ASCII; this one has other characters"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return SecretStr(key)
