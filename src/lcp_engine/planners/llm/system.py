"""Write the system message: the actions, the kinds of jobs and their params, the rules (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from string import Template

from lcp_engine.core.protocol.dialects import Dialect
from lcp_engine.core.protocol.strict_schema import Schema
from lcp_engine.planners.base import Question
from lcp_engine.planners.llm.job_text import plain
from lcp_engine.planners.llm.param_schemas import params_of, properties_of

_ROOTS = ("root", "project_root")


def system_message(question: Question, dialect: Dialect) -> str:
    """What the planner has to know whatever it is asked."""
    kinds = {kind.name for kind in question.kinds}
    blocks = template("actions").strip().split("\n\n")
    usable = {"create_followup_jobs": bool(kinds), "write_file": "write_file" in kinds}
    actions = "\n\n".join(block for block in blocks if usable.get(block.partition(":")[0], True))
    if dialect == "universal":
        inner = "\n\n".join(block for block in actions.split("\n\n") if block.partition(":")[0] in usable)
        actions = Template(template("universal").strip()).substitute(actions=inner)
    return Template(template("system")).substitute(
        actions=actions,
        kinds="\n".join(_kinds(question)) or "None: only actions that end the mission are possible.",
        root=_slashed(question.root) or ".",
        most=question.max_followups,
    )


@cache
def template(name: str) -> str:
    """A text that is shipped beside this module."""
    return resources.files("lcp_engine.planners.llm").joinpath("templates", f"{name}.txt").read_text("utf-8")


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _kinds(question: Question) -> Iterator[str]:
    params, _ = params_of(question.kinds)
    for kind in question.kinds:
        waits = " Waits for a person." if kind.is_held else ""
        yield f"- {kind.name}: {plain(kind.description)}{waits}"
        for key, schema in properties_of(params.get(kind.name, {})).items():
            described = schema.get("description")
            said = f": {described}" if isinstance(described, str) else ""
            files = question.writable.get(kind.name, ()) if key == "rel_path" else ()
            only = " or ".join(f'"{place}"' for place in ((".",) if key in _ROOTS else files))
            yield f"    {key}: {only}" if only else f"    {key} ({_type(schema)}){said}"


def _type(schema: Schema) -> str:
    branches = schema.get("anyOf")
    parts = [part for part in branches if isinstance(part, dict)] if isinstance(branches, list) else [schema]
    words = [_word(part) for part in parts]
    optional = ", or null" if "null" in words else ""
    return " or ".join(word for word in words if word != "null") + optional


def _word(schema: Schema) -> str:
    values = schema.get("enum")
    if isinstance(values, list):
        return " or ".join(f'"{value}"' for value in values)
    if "const" in schema:
        return f'"{schema["const"]}"'
    known = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "array": "list",
        "null": "null",
    }
    kind = schema.get("type")
    return known.get(kind, kind) if isinstance(kind, str) else "object"
