"""Write docs/reference.md from the models of the mission file and the configuration: `python tools/reference.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine.config_file import CapSettings, config_model
from lcp_engine.core.json_values import list_in
from lcp_engine.core.limits.permits import RateLimit
from lcp_engine.core.limits.prices import Price, Prices
from lcp_engine.core.mission.accept import AcceptCheck, FileMatch, FileQuotes
from lcp_engine.core.mission.parse import Variable, mission_file
from lcp_engine.core.mission.spec import (
    Commands,
    KindSettings,
    Limits,
    PlannerSpec,
    ResultSpec,
    Retry,
)
from lcp_engine.core.policy import Rule
from lcp_engine.core.programs.network import AllowedHost, NetworkGrant
from lcp_engine.feature import added
from lcp_engine.features.evaluation.suite import Expectation, SuiteFile
from lcp_engine.features.http_api.settings import ServeSettings
from lcp_engine.features.mcp_server.settings import ClientSettings
from lcp_engine.features.plans.stated_plan import (
    StatedCondition,
    StatedErrorHandling,
    StatedPlan,
    StatedRetry,
    StatedStep,
)
from lcp_engine.mission import MemoryUse
from lcp_engine.operation import Backups, Checks, Retention, SignedLinks, Webhook

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

BEGINNING = """# Reference: files and environment

Written by `python tools/reference.py` from the models that read these files. An unknown key is an error that names the
nearest known one. `lcp schema mission` and `lcp schema config` print the same as JSON Schema. With
`lcp schema mission > mission.schema.json` and the first line `# yaml-language-server: $schema=mission.schema.json` many
editors complete and check a mission file."""

MISSION = """A mission is a YAML or JSON file; [missions.md](missions.md) explains it, with examples. Texts may contain
`${NAME}`, which `--var NAME=VALUE` fills in, and `--set KEY=VALUE` overrides a key, such as
`--set limits.max_turns=5`."""

CONFIG = """`config.yaml` in the user's configuration directory (`~/.config/lcp-engine/` on Linux) is read by every
command. A missing file, or a missing key, means the default."""

SUITE = """A suite is a YAML or JSON file for `lcp eval`; [eval.md](eval.md) explains it, with an example."""

ENVIRONMENT = {
    "LCP_DATABASE_URL": "The database, as `database_url`. `--db` comes first.",
    "LCP_BUSY_SECONDS": "As `busy_seconds`.",
    "LCP_AWAY_SECONDS": "As `away_seconds`.",
    "LCP_ISOLATION": "As `isolation`.",
    "LCP_WORKERS": "As `workers`; several files are separated by `:`.",
    **{
        variable: f"As `{key}`, written as in the file, such as `null` for none."
        for key, (_, variable) in added().settings.items()
        if variable
    },
    "LCP_PLANNER": "The planner of missions that name none.",
    "LCP_PLANNER_ENDPOINT": "The address of a model's server, which may be sent the key (planners.md).",
    "LCP_PLANNER_KEY": "The key for that address. Keys are read from the environment alone.",
    "LCP_PLANNER_…": "Any other option of a planner, such as `LCP_PLANNER_MODEL` (planners.md).",
    "LCP_APPROVER_TOKEN": "The token of the person that `--as NAME` names (approvals.md).",
    "LCP_MISSION": "Set for the command of `on_wait`: the mission's number.",
    "LCP_MISSION_NAME": "Set for the command of `on_wait`: its name.",
    "LCP_MISSION_JSON": "Set for a check program of `lcp eval`: the file with its mission (eval.md).",
    "LCP_HELD": "Set for the command of `on_wait`: how many jobs wait.",
}

SECTIONS: Mapping[str, tuple[type[BaseModel], ...]] = {
    "The mission file": (
        mission_file(),
        Variable,
        PlannerSpec,
        Limits,
        MemoryUse,
        KindSettings,
        Retry,
        RateLimit,
        Commands,
        StatedPlan,
        StatedStep,
        StatedCondition,
        StatedRetry,
        StatedErrorHandling,
        Rule,
        AcceptCheck,
        FileMatch,
        FileQuotes,
        ResultSpec,
    ),
    "The suite file": (SuiteFile, Expectation),
    "The configuration file": (
        config_model(),
        Webhook,
        SignedLinks,
        CapSettings,
        ServeSettings,
        ClientSettings,
        NetworkGrant,
        AllowedHost,
        Prices,
        Price,
        Retention,
        Backups,
        Checks,
    ),
}
INTRODUCTIONS = {
    "The mission file": MISSION,
    "The suite file": SUITE,
    "The configuration file": CONFIG,
}
KEYS: Mapping[type[BaseModel], str] = {
    PlannerSpec: "planner",
    Limits: "limits",
    MemoryUse: "memory",
    KindSettings: "kinds.KIND",
    Retry: "kinds.KIND.retry",
    RateLimit: "kinds.KIND.rate_limit",
    Commands: "commands",
    StatedPlan: "plan",
    StatedStep: "plan.steps",
    StatedCondition: "plan.steps.condition",
    StatedRetry: "plan.steps.retry",
    StatedErrorHandling: "plan.error_handling",
    Rule: "policy",
    AcceptCheck: "accept",
    FileMatch: "file_matches",
    FileQuotes: "file_quotes",
    ResultSpec: "result",
    Variable: "variables.NAME",
    CapSettings: "caps",
    NetworkGrant: "commands_network",
    AllowedHost: "commands_network.hosts",
    Prices: "prices",
    Price: "prices.models.NAME",
    Expectation: "missions.expect",
    Webhook: "webhook",
    SignedLinks: "links",
    ServeSettings: "serve",
    ClientSettings: "mcp",
}
"""Where each model stands in its file."""


def page() -> str:
    """The whole page in Markdown."""
    lines = [BEGINNING]
    for title, models in SECTIONS.items():
        lines += ["", f"## {title}", "", INTRODUCTIONS[title]]
        for model in models:
            if model in KEYS:
                lines += ["", f"### `{KEYS[model]}`", "", _first_line(model)]
            lines += ["", "| key | type | default | means |", "|---|---|---|---|", *_rows(model)]
    lines += ["", "## Environment", "", "A variable comes before the key of the configuration file.", ""]
    lines += [
        "| variable | means |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in ENVIRONMENT.items()),
    ]
    return _linked("\n".join(lines)) + "\n"


def _rows(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    # A planner may be a text as well.
    stated = next(part for part in (schema, *schema.get("anyOf", [])) if "properties" in part)
    required = list_in(stated.get("required"))
    for name, key in stated["properties"].items():
        default = "required" if name in required else _default(key.get("default"))
        yield f"| `{name}` | {_type(key, schema.get('$defs', {}))} | {default} | {key['description']} |"


def _default(value: JsonValue) -> str:
    """The default; nothing for a mapping, whose parts have their own."""
    if isinstance(value, dict):
        return ""
    if value is None or value == []:
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(stated: Mapping[str, JsonValue], models: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """A JSON Schema in a few words."""
    if isinstance(reference := stated.get("$ref"), str):
        return _type(models[reference.rpartition("/")[2]], models)
    if parts := list_in(stated.get("anyOf")):
        kinds = [_type(part, models) for part in parts if isinstance(part, dict) and part != {"type": "null"}]
        return " or ".join(kinds)
    if choices := list_in(stated.get("enum")):
        return " \\| ".join(f"`{choice}`" for choice in choices)
    if stated.get("type") == "array":
        items = stated["items"]
        assert isinstance(items, dict)
        one = _type(items, models)
        return f"list of {_PLURALS.get(one, one)}"
    return {"object": "mapping", "string": "text"}.get(str(stated["type"]), str(stated["type"]))


_PLURALS = {"text": "texts", "mapping": "mappings"}


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", "\n")


def _linked(text: str) -> str:
    """`text` with each `(page.md)` as a link."""
    for name in ("approvals", "isolation", "planners", "reliability"):
        text = text.replace(f"({name}.md)", f"([{name}]({name}.md))")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
