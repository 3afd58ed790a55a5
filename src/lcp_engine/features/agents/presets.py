"""Describe the agents that are known: how each is started, configured and read. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

GOAL = "{goal}"
"""The place of the goal in a command."""
SESSION = "{session}"


@dataclass(frozen=True)
class Model:
    """A model as an agent is told of it; empty parts are the agent's own choice."""

    name: str = ""
    endpoint: str = ""


@dataclass(frozen=True)
class Configured:
    """Everything that an agent is started with for a model."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of its home, by their paths there."""


@dataclass(frozen=True)
class Preset:
    """An agent whose command is `command`, with what `configure` adds behind its first part."""

    command: tuple[str, ...]
    form: str
    """The form of its stream (`streams.FORMS`)."""
    keys: tuple[str, ...]
    """Variables of which it needs one."""
    host: str
    """The host of its model, where no endpoint is stated."""
    package: str
    """The package that installs it, with the version that was tried."""
    configure: Callable[[Model], Configured] = lambda model: Configured()
    resume: tuple[str, ...] = ()
    """Arguments before the goal, or what leads to it, that have it go on with a session."""
    output: str = ""
    """The file of its home that has the stream; without one, its stdout."""


def _codex(model: Model) -> Configured:
    # Its sandbox would need namespaces of its own; the wall is around it instead.
    lines = [
        "check_for_update_on_startup = false",
        *([f"model = {json.dumps(model.name)}"] if model.name else []),
        *(['model_provider = "stated"'] if model.endpoint else []),
        "[analytics]\nenabled = false",
        "[features]\nplugins = false\napps = false",
    ]
    if model.endpoint:
        lines += [
            f'[model_providers.stated]\nname = "stated"\nbase_url = {json.dumps(model.endpoint)}',
            'env_key = "OPENAI_API_KEY"\nwire_api = "responses"',
        ]
    return Configured(files={".codex/config.toml": "\n".join(lines) + "\n"})


def _claude(model: Model) -> Configured:
    stated = {"ANTHROPIC_BASE_URL": model.endpoint, "ANTHROPIC_MODEL": model.name}
    quiet = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # else it refuses as root to ask nobody
    }
    return Configured(environment={**quiet, **_given(stated)})


def _gemini(model: Model) -> Configured:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return Configured(
        ("-m", model.name) if model.name else (),
        _given({"GOOGLE_GEMINI_BASE_URL": model.endpoint}),
        {".gemini/settings.json": json.dumps(settings)},
    )


def _qwen(model: Model) -> Configured:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    stated = {"OPENAI_BASE_URL": model.endpoint, "OPENAI_MODEL": model.name}
    # It would ask the proxy for a port of its own loopback, too.
    near = dict.fromkeys(_PROXIES if model.endpoint.startswith("http://127.0.0.1:") else (), "")
    return Configured(
        environment={**_given(stated), **near}, files={".qwen/settings.json": json.dumps(settings)}
    )


_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def _opencode(model: Model) -> Configured:
    settings: dict[str, object] = {"permission": "allow", "share": "disabled", "autoupdate": False}
    if model.endpoint:
        options = {"baseURL": model.endpoint, "apiKey": "{env:OPENAI_API_KEY}"}
        stated = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {model.name: {}}}
        settings |= {"provider": {"stated": stated}, "model": f"stated/{model.name}"}
    elif model.name:
        settings |= {"model": model.name}
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return Configured(environment=quiet, files={".config/opencode/opencode.json": json.dumps(settings)})


def _pi(model: Model) -> Configured:
    if not model.endpoint:
        return Configured(("--model", model.name) if model.name else (), {"PI_OFFLINE": "1"})
    provider = {
        "baseUrl": model.endpoint,
        "api": "openai-completions",
        "apiKey": "OPENAI_API_KEY",
        "models": [{"id": model.name}],
    }
    models = {".pi/agent/models.json": json.dumps({"providers": {"stated": provider}})}
    return Configured(("--provider", "stated", "--model", model.name), {"PI_OFFLINE": "1"}, models)


def _mini(model: Model) -> Configured:
    quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
    arguments = ("-m", f"openai/{model.name}") if model.name else ()
    return Configured(arguments, {**quiet, **_given({"OPENAI_BASE_URL": model.endpoint})})


def _aider(model: Model) -> Configured:
    arguments = ("--model", f"openai/{model.name}") if model.name else ()
    # Else they are in the root.
    histories = {
        f"AIDER_{name.upper()}_HISTORY_FILE": f"/home/lcp/.aider.{name}" for name in ("chat", "input")
    }
    return Configured(arguments, {**histories, **_given({"OPENAI_API_BASE": model.endpoint})})


def _given(stated: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in stated.items() if value}


PRESETS: Mapping[str, Preset] = {
    "aider": Preset(
        ("aider", "--yes-always", "--no-check-update", "--analytics-disable", "--no-git", "--no-show-model-warnings",
         "--message", GOAL),
        "text", ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "api.openai.com", "aider-chat==0.86.2", _aider,
    ),
    "claude": Preset(
        ("claude", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "-p", GOAL),
        "claude", ("ANTHROPIC_API_KEY",), "api.anthropic.com", "@anthropic-ai/claude-code@2.1.197", _claude,
        resume=("--resume", SESSION),
    ),
    "codex": Preset(
        ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", GOAL),
        "codex", ("CODEX_API_KEY", "OPENAI_API_KEY"), "api.openai.com", "@openai/codex@0.169.0", _codex,
        resume=("resume", SESSION),
    ),
    "gemini": Preset(
        ("gemini", "-o", "stream-json", "--approval-mode", "yolo", "--skip-trust", "-p", GOAL),
        "gemini", ("GEMINI_API_KEY",), "generativelanguage.googleapis.com", "@google/gemini-cli@0.61.0", _gemini,
    ),
    "mini": Preset(
        ("mini", "-y", "--exit-immediately", "-l", "0", "-o", "/home/lcp/trajectory.json", "-t", GOAL),
        "mini", ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "api.openai.com", "mini-swe-agent==2.4.6", _mini,
        output="trajectory.json",
    ),
    "opencode": Preset(
        ("opencode", "run", "--format", "json", GOAL),
        "opencode", ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "api.openai.com", "opencode-ai@1.18.33", _opencode,
        resume=("--session", SESSION),
    ),
    "pi": Preset(
        ("pi", "--mode", "json", "-p", GOAL),
        "pi", ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "api.openai.com", "@earendil-works/pi-coding-agent@0.74.2", _pi,
    ),
    "qwen": Preset(
        ("qwen", "-o", "stream-json", "--approval-mode", "yolo", "-p", GOAL),
        "claude", ("OPENAI_API_KEY",), "dashscope.aliyuncs.com", "@qwen-code/qwen-code@0.15.10", _qwen,
    ),
}  # fmt: skip
"""Agents by their name."""
