"""Say as JSON Schema what a planner of the dialect `universal` may answer now; the rules are those of `wire`."""

from __future__ import annotations

from collections.abc import Mapping

from lcp_engine.core.protocol.strict_schema import Schema, closed, with_ends
from lcp_engine.core.protocol.universal_model import strict_universal_schema
from lcp_engine.planners.base import Question
from lcp_engine.planners.llm.known_files import look
from lcp_engine.planners.llm.param_schemas import properties_of
from lcp_engine.planners.llm.reply_schema import USUAL, Narrowing, wire_schema


def universal_wire_schema(
    question: Question,
    *,
    narrow: bool = True,
    narrowing: Narrowing = USUAL,
    cut: Mapping[str, int] = {},
) -> Schema:
    """Like `wire_schema`; a response is there when the action that it stands for is.

    Ends are responses of their own here, so `custom_fields.lcp` holds only what goes on.
    """
    whole = wire_schema(question, narrow=narrow, narrowing=narrowing, cut=cut)
    actions = {str(_name(branch)): branch for branch in _branches(whole)}
    going_on = [branch for name, branch in actions.items() if name in _GOING_ON]
    if narrow:
        going_on = [_without_commentary(branch) for branch in going_on]
    lcp: Schema = {"anyOf": [*going_on]} if len(going_on) != 1 else going_on[0]
    kinds = {kind.name for kind in question.kinds}
    responses = ["verification", "error"] if narrow and question.verifies else ["error"]
    if going_on:
        responses.append("custom")
    if "mission_complete" in actions and "verification" not in responses:
        responses += ["answer", "research"]
        # These lead to jobs of a kind of their own, and the last turn takes none.
        for response, kind in _LEADS_TO.items():
            if going_on and (kind in kinds or not narrow):
                responses.append(response)
    definitions = {"$defs": whole["$defs"]} if "$defs" in whole else {}
    known = look(question) if narrow else None
    files = () if known is None else (*known.read, *known.written)[-narrowing.most_files :]
    has_ends = narrow and narrowing.lengths
    schema = strict_universal_schema(
        lcp | definitions, responses=responses, files=tuple(dict.fromkeys(files)), lengths=has_ends
    )
    return {key: with_ends(part, _MOST_ENTRIES) for key, part in schema.items()} if has_ends else schema


_MOST_ENTRIES = 5
_LEADS_TO = {"planning": "agent_plan", "verification": "agent_plan", "clarity": "ask_user"}
_GOING_ON = ("create_followup_jobs", "write_file")


def _without_commentary(action: Schema) -> Schema:
    """The response has a message, and a small model that writes both writes the same twice."""
    return closed({key: part for key, part in properties_of(action).items() if key != "commentary"})


def _branches(schema: Schema) -> list[Schema]:
    branches = schema.get("anyOf")
    return [part for part in branches if isinstance(part, dict)] if isinstance(branches, list) else [schema]


def _name(branch: Schema) -> object:
    properties = branch["properties"]
    action = properties["action"] if isinstance(properties, dict) else None
    return action["const"] if isinstance(action, dict) else None
