"""Mission, environment and the user's configuration say how to reach a model, in that order."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TypeAlias

import pytest
from pydantic import JsonValue, TypeAdapter
from tests.tables import table

from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.chat import ModelSettings
from lcp_engine.features.models.factories import anthropic_planner, openai_planner
from lcp_engine.features.models.options import (
    ANTHROPIC,
    OPENAI,
    OpenAIOptions,
    RemoteOptions,
    read_remote,
    remote_settings,
)
from lcp_engine.planners.registry import make_planner

NOTHING: dict[str, JsonValue] = {}
KEYS = {"OPENAI_API_KEY": "sk-canary-openai", "ANTHROPIC_API_KEY": "sk-canary-anthropic"}


def settings(
    environment: Mapping[str, str],
    user: Mapping[str, JsonValue] = NOTHING,
    mission: Mapping[str, JsonValue] = NOTHING,
) -> ModelSettings:
    options = TypeAdapter(OpenAIOptions).validate_python(mission)
    return remote_settings(OPENAI, read_remote(OPENAI, options, environment, user), environment)


def test_the_mission_counts_before_the_environment_and_that_before_the_configuration() -> None:
    environment = {
        "LCP_PLANNER_MODEL": "e",
        "LCP_PLANNER_MAX_TOKENS": "20",
        "LCP_PLANNER_TOTAL_SECONDS": "9.5",
    }
    user: dict[str, JsonValue] = {"model": "u", "max_tokens": 30, "temperature": 0.5, "concurrency": 2}
    settled = settings(environment, user, {"model": "m"})
    assert (settled.model, settled.max_tokens, settled.temperature) == ("m", 20, 0.5)
    assert (settled.total_seconds, settled.concurrency, settled.seed) == (9.5, 2, None)


ENDPOINTS: list[tuple[dict[str, str], dict[str, JsonValue], dict[str, JsonValue], str]] = [
    ({}, {}, {}, "https://api.openai.com/v1"),
    ({}, {"base_url": "http://c"}, {}, "http://c/v1"),
    ({"OPENAI_BASE_URL": "http://o/v2/"}, {"base_url": "http://c"}, {}, "http://o/v2"),
    ({"OPENAI_BASE_URL": "http://o", "LCP_PLANNER_ENDPOINT": "http://e:1"}, {}, {}, "http://e:1/v1"),
    ({"LCP_PLANNER_ENDPOINT": "http://e"}, {}, {"server": "lmstudio"}, "http://127.0.0.1:1234/v1"),
    ({"LCP_PLANNER_ENDPOINT": "http://e"}, {}, {"server": "ollama"}, "http://127.0.0.1:11434/v1"),
    ({}, {}, {"server": "llamacpp"}, "http://127.0.0.1:8080/v1"),
    ({}, {}, {"server": "vllm"}, "http://127.0.0.1:8000/v1"),
    ({}, {}, {"server": "vllm", "base_url": "http://[::1]:9/api/v1"}, "http://[::1]:9/api/v1"),
]


@table(("environment", "user", "mission", "endpoint"), ENDPOINTS)
def test_the_endpoint_is_the_first_that_is_named(
    environment: dict[str, str], user: dict[str, JsonValue], mission: dict[str, JsonValue], endpoint: str
) -> None:
    assert settings(environment, user, mission).endpoint == endpoint


MINE = {"LCP_PLANNER_KEY": " sk-mine\n"}
OPENAI_KEY, OWN_KEY = "sk-canary-openai", "sk-mine"
NAMED = {"LCP_PLANNER_ENDPOINT": "https://mine.example/v1"}
LOCAL = "http://127.0.0.1:1234/v1"
Options: TypeAlias = dict[str, JsonValue]
OWNERS: list[tuple[dict[str, str], Options, Options, str | None]] = [
    # The provider's key goes to the provider.
    ({}, {}, {}, OPENAI_KEY),
    ({}, {}, {"base_url": "https://api.openai.com/v1"}, OPENAI_KEY),
    ({}, {}, {"base_url": "https://API.openai.com:443/v2"}, OPENAI_KEY),
    ({}, {}, {"server": "openai"}, OPENAI_KEY),
    (MINE, {}, {}, OPENAI_KEY),
    ({}, {}, {"base_url": "http://api.openai.com/v1"}, None),
    ({}, {}, {"base_url": "https://api.openai.com:8443/v1"}, None),
    ({}, {}, {"base_url": "https://api.openai.com.elsewhere.example/v1"}, None),
    # No key goes where only the mission says so, or to whoever listens on a well-known port.
    ({}, {}, {"base_url": "https://elsewhere.example/v1"}, None),
    (MINE, {}, {"base_url": "https://elsewhere.example/v1"}, None),
    ({**MINE, **NAMED}, {}, {"base_url": "https://elsewhere.example/v1"}, None),
    (MINE, {}, {"server": "lmstudio"}, None),
    (MINE, {}, {"server": "ollama"}, None),
    (MINE, {}, {"server": "llamacpp"}, None),
    (MINE, {}, {"server": "vllm"}, None),
    ({**MINE, "LCP_PLANNER_SERVER": "lmstudio"}, {}, {}, None),
    (MINE, {"server": "vllm"}, {}, None),
    (MINE, {}, {"base_url": "http://localhost:9/v1"}, None),
    # Both go to an address that the owner named, the provider's not to a port of this machine.
    (NAMED, {}, {}, OPENAI_KEY),
    ({**MINE, **NAMED}, {}, {}, OWN_KEY),
    ({**MINE, **NAMED}, {}, {"base_url": "https://mine.example/v1"}, OWN_KEY),
    (MINE, {"base_url": "https://mine.example"}, {}, OWN_KEY),
    ({**MINE, "LCP_PLANNER_ENDPOINT": LOCAL}, {}, {}, OWN_KEY),
    ({**MINE, "LCP_PLANNER_ENDPOINT": LOCAL}, {}, {"server": "lmstudio"}, OWN_KEY),
    ({"LCP_PLANNER_ENDPOINT": LOCAL}, {}, {}, None),
    ({"OPENAI_BASE_URL": LOCAL}, {}, {}, OPENAI_KEY),
    ({**MINE, "LCP_PLANNER": "openai"}, {}, {}, OWN_KEY),
    ({**MINE, "LCP_PLANNER_SERVER": "openai"}, {}, {}, OWN_KEY),
    # Never over http to another machine.
    ({**MINE, "LCP_PLANNER_ENDPOINT": "http://mine.example/v1"}, {}, {}, None),
    ({"OPENAI_BASE_URL": "http://192.168.1.2:1234/v1"}, {}, {}, None),
    ({**MINE, "LCP_PLANNER_ENDPOINT": "http://model.localhost/v1"}, {}, {}, None),
    (MINE, {"keys": {"mine.example": "LCP_PLANNER_KEY"}}, {"base_url": "http://mine.example/v1"}, None),
    # The configuration names a variable for a host.
    ({"GATE": "sk-gate"}, {"keys": {"gate.example": "GATE"}}, {"base_url": "https://gate.example/v1"}, "sk-gate"),
    ({"GATE": "sk-gate"}, {"keys": {"gate.example": "GATE"}}, {"base_url": "https://gate.example:8443/v1"}, None),
    ({"GATE": "sk-gate"}, {"keys": {"127.0.0.1:8000": "GATE"}}, {"server": "vllm"}, "sk-gate"),
    ({"GATE": "sk-gate"}, {"keys": {"https://gate.example/v1": "GATE"}},
     {"base_url": "https://gate.example/v1"}, "sk-gate"),
    ({**MINE, **NAMED, "GATE": "sk-gate"}, {"keys": {"gate.example": "GATE"}}, {}, OWN_KEY),
]  # fmt: skip


@table(("environment", "user", "mission", "key"), OWNERS)
def test_a_key_goes_only_where_its_owner_said(
    environment: dict[str, str], user: Options, mission: Options, key: str | None
) -> None:
    settled = settings({**KEYS, **environment}, user, mission)
    assert (settled.key and settled.key.get_secret_value()) == key
    assert bool(settled.keyless) == (key is None)


@table(
    ("environment", "mission", "said"),
    [
        (
            {},
            LOCAL,
            "the environment has none; set LCP_PLANNER_ENDPOINT=http://127.0.0.1:1234/v1 and LCP_PLANNER_KEY",
        ),
        (
            KEYS,
            LOCAL,
            "neither environment nor configuration names this address; set LCP_PLANNER_ENDPOINT=http://127",
        ),
        (MINE, "http://192.168.1.2/v1", "http to another machine is not encrypted; use https"),
        (
            {**KEYS, "LCP_PLANNER_ENDPOINT": LOCAL},
            LOCAL,
            "OPENAI_API_KEY does not go to this machine's ports; set LCP_PLANNER_KEY",
        ),
    ],
)
def test_why_no_key_is_sent_is_said_with_the_way_out(
    environment: dict[str, str], mission: str, said: str
) -> None:
    assert said in settings(environment, NOTHING, {"base_url": mission}).keyless


@table("keys", [["a"], {"gate.example": "sk-canary-1"}, {"gate.example": 3}])
def test_a_key_in_the_configuration_is_refused_unsaid(keys: JsonValue) -> None:
    with pytest.raises(
        LcpError, match=r"planners in the configuration: keys: .*environment variable"
    ) as refused:
        settings({}, {"keys": keys})
    assert "canary" not in str(refused.value)
    with pytest.raises(LcpError, match="is not an option"):
        make_planner(
            PlannerSpec.model_validate({"type": "openai", "keys": {"gate.example": "OPENAI_API_KEY"}})
        )


def test_a_key_shows_itself_nowhere() -> None:
    assert "canary" not in f"{settings(KEYS)!r} {settings(KEYS).key}"


def test_anthropic_has_its_own_words() -> None:
    environment = {**KEYS, "ANTHROPIC_BASE_URL": "https://gateway.example/v1/", "OPENAI_BASE_URL": "http://o"}
    stated = read_remote(ANTHROPIC, RemoteOptions(), environment, {})
    settled = remote_settings(ANTHROPIC, stated, environment)
    assert settled.endpoint == "https://gateway.example"
    assert settled.key is not None
    assert settled.key.get_secret_value() == "sk-canary-anthropic"
    settled = remote_settings(ANTHROPIC, read_remote(ANTHROPIC, RemoteOptions(), KEYS, {}), KEYS)
    assert (settled.endpoint, settled.context_tokens) == ("https://api.anthropic.com", 200_000)


WRONG: list[tuple[dict[str, str], dict[str, JsonValue], str]] = [
    ({"LCP_PLANNER_MAX_TOKENS": "many"}, {}, 'LCP_PLANNER_MAX_TOKENS: should be a whole number, not "many"'),
    ({"LCP_PLANNER_ENDPOINT": "localhost:1234"}, {}, "LCP_PLANNER_ENDPOINT: should be a URL such as http"),
    ({"OPENAI_BASE_URL": "http://u:p@h"}, {}, "OPENAI_BASE_URL: should be a URL without credentials"),
    ({}, {"modle": "x"}, "planners in the configuration: modle: is not an option; did you mean 'model'?"),
    (
        {},
        {"max_tokens": 0},
        "planners in the configuration: max_tokens: should be greater than or equal to 1",
    ),
]


@table(("environment", "user", "said"), WRONG)
def test_what_does_not_fit_is_named_with_its_place(
    environment: dict[str, str], user: dict[str, JsonValue], said: str
) -> None:
    with pytest.raises(LcpError) as refused:
        settings(environment, user)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert said in str(refused.value)


MISSIONS: list[tuple[dict[str, JsonValue], str]] = [
    (
        {"type": "openai", "bas_url": "x"},
        "planner.bas_url: is not an option of 'openai'; did you mean 'base_url'?",
    ),
    ({"type": "openai", "base_url": "ftp://x"}, "planner.base_url: should be a URL such as"),
    ({"type": "openai", "base_url": "http://u:secret@h"}, "should be a URL without credentials"),
    ({"type": "openai", "base_url": "http://h:99999"}, "should be a URL such as"),
    ({"type": "openai", "server": "lm-studio"}, "planner.server: should be 'lmstudio', 'ollama'"),
    ({"type": "openai", "api_key": "sk-secret"}, "planner.api_key: is not an option of 'openai'"),
    ({"type": "anthropic", "server": "ollama"}, "planner.server: is not an option of 'anthropic'"),
    ({"type": "local", "threads": 0}, "planner.threads: should be greater than or equal to 1"),
    ({"type": "openai", "temperature": 3}, "planner.temperature: should be less than or equal to 2"),
]


@table(("spec", "said"), MISSIONS)
def test_a_mission_with_a_wrong_option_does_not_begin(spec: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(LcpError) as refused:
        make_planner(PlannerSpec.model_validate(spec))
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("planner", ["openai", "anthropic", "local"])
def test_without_its_extra_a_planner_says_how_to_install_it(
    planner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(LcpError) as refused:
        make_planner(PlannerSpec(type=planner))
    assert refused.value.code is ErrorCode.NO_PLANNER
    missing = f"planner {planner!r} needs the package httpx2, which is not installed"
    assert str(refused.value) == f"{missing}: pip install '.[llm]' in a clone of lcp-engine"


def test_the_context_of_what_says_nothing_is_known() -> None:
    assert settings({}).context_tokens == 128_000
    assert settings({}, NOTHING, {"server": "ollama"}).context_tokens == 4096
    assert settings({}, NOTHING, {"server": "ollama", "context_tokens": 32_768}).context_tokens == 32_768
    assert settings({}, NOTHING, {"server": "lmstudio"}).context_tokens is None


def test_a_provider_is_not_asked_without_a_key() -> None:
    with pytest.raises(LcpError) as refused:
        openai_planner(OpenAIOptions(), {})
    assert str(refused.value) == (
        "https://api.openai.com/v1: a key is expected in OPENAI_API_KEY; no key was sent, because the environment has "
        "none; set LCP_PLANNER_ENDPOINT=https://api.openai.com/v1 and LCP_PLANNER_KEY"
    )
    with pytest.raises(LcpError, match="a key is expected in ANTHROPIC_API_KEY; no key was sent"):
        anthropic_planner(RemoteOptions(), {"OPENAI_API_KEY": "sk-canary"})


@table("variable", ["LCP_PLANNER_KEY", "OPENAI_API_KEY"])
@table("key", ["sk-first\nsk-second", "sk-caf\u00e9", "sk-\u2026", "sk-\x1b"])
def test_a_key_that_no_header_can_hold_is_refused_unsaid(variable: str, key: str) -> None:
    with pytest.raises(LcpError) as refused:
        settings({variable: key, **NAMED})
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert (
        str(refused.value)
        == f"{variable}: a key is one line of printable ASCII; this one has other characters"
    )


def test_making_a_planner_asks_nobody() -> None:
    for planner in ("openai", "anthropic"):
        made = make_planner(PlannerSpec(type=planner))
        assert json.dumps(repr(made)).isprintable()
