"""Write the schema of the next reply: a constrained decoder cannot write what the rules would refuse.

`decide` never relies on it. An optional key of LCP that helps nobody is left out: `metrics` (the report counts itself),
and in a narrowed schema the names of jobs and the `auto_dispatch` of jobs that only read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import assert_never

from pydantic import JsonValue

from lcp_engine.core.kinds import ON_FILES, QUESTION, TURN, WRITE, KindRole
from lcp_engine.core.protocol.question_form import CHOOSING, ENTERING
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.models.prompts.guidance import (
    COMPLETE,
    Concludes,
    Guide,
    Lists,
    Open,
    Reads,
    Uses,
    Writes,
)
from lcp_engine.features.models.prompts.known_files import Known, known_of
from lcp_engine.features.models.prompts.offered_result import NAME, REFERENCE, offered_result
from lcp_engine.features.models.prompts.prompt import GOES_ON
from lcp_engine.features.universal.dialect import ENDS
from lcp_engine.features.universal.json_schema import (
    CONFINED_PATH,
    LINE,
    NULL,
    Schema,
    any_of,
    at_least,
    closed,
    constant,
    list_of,
    nullable,
    one_of_texts,
    properties_of,
    strict_params,
    with_ends,
)
from lcp_engine.features.universal.schema import strict_universal_schema
from lcp_engine.planners.base import Kind, Question

ROOT = "."
"""The root in params: it still fits when the mission is replayed or forked elsewhere, and is one token long."""


@dataclass(frozen=True)
class Narrowing:
    """Narrowing of a mission's schema by its state."""

    reads_first: int = 1
    """A goal is taken to need reading until so many files were read, or one was written. Until then, and while
    something can be listed or read, jobs only list and read, and only `error` ends the mission."""
    most_files: int = 200
    """How many files are offered to be read at once."""
    lengths: bool = True
    """Whether lists have `minItems` and `maxItems`, which some servers refuse. Without them an empty `new_jobs` can end
    the mission, and one that is too long costs a corrective turn."""

    def some(self, items: Schema, most: int, *, at_least: int = 0) -> Schema:
        """A list with an end: a small model that has begun to repeat itself does not stop on its own."""
        bounds: Schema = {"minItems": at_least, "maxItems": most} if self.lengths else {}
        return list_of(items) | {key: bound for key, bound in bounds.items() if bound}


USUAL = Narrowing()


def reply_schema(
    question: Question,
    dialect: Dialect = "lcp",
    *,
    narrow: bool = True,
    narrowing: Narrowing = USUAL,
    cut: Mapping[str, int] = {},
    left_out: Mapping[int, int] = {},
    guide: Guide | None = None,
) -> Schema:
    """The strict schema of the next reply in a dialect. Pure and total: every question has one.

    `cut` are files that the prompt does not show to their end, with the first line that is left out, and `left_out` the
    jobs whose results it does not show, by number. `guide` narrows further, to the one thing that is to be done now.
    Without `narrow` the schema depends on the kinds of the question alone. A schema without a guide allows an error.
    """
    # Without narrowing a form is not offered: hardly anything of its rules can be said in the strict vocabulary.
    models = {
        kind.name: kind.params if narrow else kind.brief_params or kind.params for kind in question.kinds
    }
    kinds, definitions = strict_params(models)
    one_thing = None if isinstance(guide, Open) or not narrow else guide
    if not narrow:
        actions = _everything(kinds, _carried(question))
    elif one_thing is None:
        actions = _narrowed(question, kinds, narrowing, cut, left_out, is_guided=guide is not None)
    else:
        actions = _guided(question, kinds, narrowing, one_thing)
    whole = any_of([*actions.values()])
    is_referring = bool(definitions) and '"$ref"' in json.dumps(whole)
    definitions_used: Schema = {"$defs": dict(definitions)} if is_referring else {}
    match dialect:
        case "lcp":
            schema = whole | definitions_used
        case "universal" if one_thing is not None:
            schema = _guided_universal(actions, definitions_used)
        case "universal":
            narrowed = narrowing if narrow else None
            may_plan = guide is None or not known_of(question).read
            schema = _universal(question, actions, definitions_used, narrowed, may_plan=may_plan)
        case _:
            known = "models are asked in the dialects 'lcp' and 'universal'"
            raise LcpError(ErrorCode.PLANNER_REFUSED, f"{known}, not in {dialect!r}", advice=GENERAL)
    return schema if question.result is None else _with_result(schema, question.result)


def _carried(question: Question) -> Mapping[str, Schema]:
    """The result in the actions that complete the mission, if it expects one."""
    return {} if question.result is None else {NAME: dict(REFERENCE)}


def _with_result(schema: Schema, result: Mapping[str, JsonValue]) -> Schema:
    """The schema with what it refers to as the mission's result."""
    known = schema.get("$defs")
    return {**schema, "$defs": {**(known if isinstance(known, dict) else {}), **offered_result(result)}}


_TEXT: Schema = {"type": "string"}
_TEXTS = list_of(_TEXT)
_PATH: Schema = {"type": "string", "pattern": CONFINED_PATH}
_MOST_ENTRIES = 5
_MODE = one_of_texts(["overwrite", "append"])
_LOOKS = frozenset(
    {
        KindRole.LISTS,
        KindRole.READS,
        KindRole.RECALLS,
        KindRole.FINDS,
        KindRole.SEARCHES,
        KindRole.RUNS,
        KindRole.OTHER,
    }
)
"""The roles of kinds that can be useful before anything is known."""
_ONLY_LOOKS = frozenset({KindRole.LISTS, KindRole.READS, KindRole.RECALLS, KindRole.FINDS, KindRole.SEARCHES})
"""Roles offered without `auto_dispatch`: a small model would hold such jobs, which leave nothing to review."""
_GOING_ON = (GOES_ON, WRITE)
_LEADS_TO = {"planning": TURN, "verification": TURN, "clarity": QUESTION}


def _action(name: str, fields: Mapping[str, Schema], *, ok: bool = True) -> dict[str, Schema]:
    """One action's schema under its name."""
    # The constant first: a model that writes in this order has chosen the action before filling it.
    head = {"action": constant(name), "ok": constant(ok), "commentary": nullable(_TEXT)}
    return {name: closed({**head, **fields})}


def _error() -> dict[str, Schema]:
    more = ("error_code", "attempted_action", "recovery_suggestion")
    return _action("error", {"error": _TEXT, **{key: nullable(_TEXT) for key in more}}, ok=False)


def _everything(kinds: Mapping[str, Schema], result: Mapping[str, Schema]) -> dict[str, Schema]:
    """The schema of each action that LCP has, if some kind allows it; `result` is what those that complete carry."""
    actions: dict[str, Schema] = {}
    if kinds:
        name = nullable({"type": "string", "description": "At most 200 characters."})
        free: Schema = {"type": "boolean"}
        jobs = [
            closed({"kind": constant(kind), "name": name, "params": params, "auto_dispatch": nullable(free)})
            for kind, params in kinds.items()
        ]
        actions |= _action(GOES_ON, {"new_jobs": list_of(any_of(jobs))})
    if WRITE in kinds:
        line = properties_of(kinds[WRITE])["rel_path"]
        write = {"root": nullable(line), "rel_path": line, "content": _TEXT, "mode": nullable(_MODE)}
        actions |= _action(WRITE, write)
    more = {key: nullable(_TEXTS) for key in ("issues", "recommendations")}
    actions |= _action(
        "analysis_result", {"target_file": nullable(_TEXT), "summary": _TEXT, **more, **result}
    )
    actions |= _action("mission_complete", {"summary": _TEXT, "deliverables": nullable(_TEXTS), **result})
    return actions | _error()


def _narrowed(
    question: Question,
    kinds: Mapping[str, Schema],
    narrowing: Narrowing,
    cut: Mapping[str, int],
    left_out: Mapping[int, int],
    *,
    is_guided: bool,
) -> dict[str, Schema]:
    """The schema of each action that the rules would accept now."""
    known = known_of(question)
    may_go_on = question.last_turn is None and not question.verifies
    jobs = _jobs(question, kinds, known, narrowing, cut=cut, left_out=left_out) if may_go_on else {}
    most = question.max_followups
    if question.jobs_left is not None:
        most = min(most, question.jobs_left)
    roles = {kind.name: kind.role for kind in question.kinds}
    needs_reading = most > 0 and _needs_reading(known, {roles[kind] for kind in jobs}, narrowing)
    if needs_reading:
        jobs = {kind: job for kind, job in jobs.items() if roles[kind] in _LOOKS}
        if ON_FILES.issuperset(roles[kind] for kind in jobs):
            most = min(most, len(known.unread) + len(known.partly) + len(cut) if known.has_listing else 1)
    actions: dict[str, Schema] = {}
    if jobs and most > 0:
        # An empty list would end the mission; that is what the terminal actions are for.
        some = narrowing.some(any_of([*jobs.values()]), most, at_least=1)
        actions |= _action(GOES_ON, {"new_jobs": some})
        if WRITE in jobs:
            files = _files(question, WRITE)
            write = {"root": constant(ROOT), "rel_path": files, "content": _TEXT, "mode": _MODE}
            actions |= _action(WRITE, write)
    # A small model gives up before it has looked.
    error = {} if is_guided and needs_reading and not known.jobs and GOES_ON in actions else _error()
    ends = {} if needs_reading else _ends(known, narrowing, _carried(question))
    allowed = {name: end for name, end in ends.items() if name in (question.endings or ends)}
    return actions | allowed | error


def _guided(
    question: Question, kinds: Mapping[str, Schema], narrowing: Narrowing, guide: Guide
) -> dict[str, Schema]:
    """The schema of the one action that is to be done now, without keys that it can do without."""
    known = known_of(question)
    by_name = {kind.name: kind for kind in question.kinds}
    match guide:
        case Lists(kind):
            given = properties_of(kinds[kind])
            params = {"root": constant(ROOT), "patterns": nullable(NULL)}
            return _requests(
                narrowing,
                [_guided_job(kind, closed({key: part for key, part in params.items() if key in given}))],
            )
        case Reads(kind, files, offset):
            part = {} if offset is None else {"offset": _number(offset), "limit": at_least(20)}
            jobs = [_guided_job(kind, _read(kinds[kind], one_of_texts(files), part))]
            return _requests(narrowing, jobs, least=len(files), most=len(files))
        case Uses(names, values):
            offered = {
                name: _about(
                    values, _others(kinds[name], by_name[name], question, known, narrowing), by_name[name]
                )
                for name in names
            }
            jobs = [_guided_job(name, params) for name, params in offered.items() if params is not None]
            return _requests(narrowing, jobs, most=question.max_followups)
        case Writes(files):
            text = _short(_MOST_WRITTEN, narrowing)
            return _action_of(WRITE, {"rel_path": one_of_texts(files), "content": text})
        case Concludes(action, parts, may_fail):
            # An answer that was refused has often repeated itself.
            said = _short(_MOST_SAID_AGAIN if question.correction else _MOST_SAID, narrowing)
            more = {key: narrowing.some(said, _MOST_ENTRIES) for key in parts}
            end = _action_of(action, {"summary": said, **more, **_carried(question)})
            return end | (_action_of("error", {"error": said}, ok=False) if may_fail else {})
        case Open():
            return {}
        case _:
            assert_never(guide)


_MOST_SAID, _MOST_SAID_AGAIN, _MOST_WRITTEN = 160, 80, 1000
"""How long a text is that a small model writes, in characters: it does not always find an end itself."""


def _short(most: int, narrowing: Narrowing) -> Schema:
    return {**_TEXT, "maxLength": most} if narrowing.lengths else _TEXT


def _number(value: int) -> Schema:
    return {"type": "integer", "enum": [value]}


def _action_of(name: str, fields: Mapping[str, Schema], *, ok: bool = True) -> dict[str, Schema]:
    return {name: closed({"action": constant(name), "ok": constant(ok), **fields})}


def _about(values: Sequence[str], params: Schema | None, kind: Kind) -> Schema | None:
    """Params whose texts are among the values, if there are any: a small model invents others."""
    if params is None or not values or kind.role is not KindRole.OTHER:
        return params
    free = [
        key
        for key, part in properties_of(params).items()
        if part.keys() <= _FREE_TEXT and part.get("type") == "string"
    ]
    return _fixed(params, dict.fromkeys(free, one_of_texts(values)))


_FREE_TEXT = {"type", "description", "title", "maxLength", "minLength"}


def _guided_job(kind: str, params: Schema) -> Schema:
    return closed({"kind": constant(kind), "params": params})


def _requests(
    narrowing: Narrowing, jobs: Sequence[Schema], *, least: int = 1, most: int = 1
) -> dict[str, Schema]:
    return _action_of(GOES_ON, {"new_jobs": narrowing.some(any_of(jobs), most, at_least=least)})


def _guided_universal(actions: Mapping[str, Schema], definitions: Schema) -> Schema:
    """The one action of a guided turn as a response, without the sections that it can do without."""
    branches = []
    for name, action in actions.items():
        fields = properties_of(action)
        match name:
            case "mission_complete" | "analysis_result":
                response = _response("answer" if name == COMPLETE else "research", fields["summary"])
                if "issues" in fields:
                    finding = closed({"topic": fields["summary"], "description": fields["summary"]})
                    findings = {**fields["issues"], "items": finding}
                    response["research_data"] = closed({"findings": findings})
                if NAME in fields:
                    response["custom_fields"] = closed({NAME: fields[NAME]})
            case "error":
                response = _response("error", fields["error"], status="error")
            case _:
                response = _response("custom", constant("")) | {"custom_fields": closed({"lcp": action})}
        branches.append(closed(response))
    return any_of(branches) | definitions


def _response(kind: str, message: Schema, *, status: str = "success") -> dict[str, Schema]:
    return {"response_type": constant(kind), "status": constant(status), "message": message}


def _universal(
    question: Question,
    actions: Mapping[str, Schema],
    definitions: Schema,
    narrowing: Narrowing | None,
    *,
    may_plan: bool,
) -> Schema:
    """The same actions as responses of the dialect `universal`; each response is allowed if its action is.

    Terminal actions are responses of their own there, so `custom_fields.lcp` holds only actions that go on.
    """
    going_on = [action for name, action in actions.items() if name in _GOING_ON]
    if narrowing is None:
        lcp = any_of(going_on)
        return strict_universal_schema(
            lcp | definitions,
            responses=_responses(question, actions, narrow=False),
            has_result=question.result is not None,
        )
    # The response has a message, and a small model that writes both writes the same twice.
    going_on = [_without_commentary(action) for action in going_on]
    lcp = any_of(going_on)
    known = known_of(question)
    files = dict.fromkeys((*known.read, *known.written)[-narrowing.most_files :])
    # A small model plans again what it has done.
    responses = [
        name for name in _responses(question, actions, narrow=True) if may_plan or name != "planning"
    ]
    schema = strict_universal_schema(
        lcp | definitions,
        responses=responses,
        files=tuple(files),
        lengths=narrowing.lengths,
        has_result=question.result is not None,
        may_ask=any(kind.role is KindRole.ASKS for kind in question.kinds),
    )
    if not narrowing.lengths:
        return schema
    return {key: with_ends(part, _MOST_ENTRIES) for key, part in schema.items()}


def _responses(question: Question, actions: Mapping[str, Schema], *, narrow: bool) -> list[str]:
    responses = ["verification", "error"] if narrow and question.verifies else ["error"]
    goes_on = any(name in _GOING_ON for name in actions)
    if goes_on:
        responses.append("custom")
    ends = [response for action, response in ENDS.items() if action in actions]
    if ends and "verification" not in responses:
        responses += ends
        # The others lead to jobs of certain kinds, and the last turn takes none.
        kinds = {kind.name for kind in question.kinds}
        more = [name for name, kind in _LEADS_TO.items() if goes_on and (kind in kinds or not narrow)]
        # A verdict would complete the mission without its result.
        responses += [name for name in more if question.result is None or name != "verification"]
    return responses


def _without_commentary(action: Schema) -> Schema:
    return closed({key: part for key, part in properties_of(action).items() if key != "commentary"})


def _needs_reading(known: Known, roles: AbstractSet[KindRole], narrowing: Narrowing) -> bool:
    """True if it is too early to end: too little was found out, and there is something to read, list or search."""
    if known.written or known.has_found or len(known.read) >= narrowing.reads_first:
        return False
    can_read = KindRole.READS in roles and bool(known.unread or known.partly)
    can_list = KindRole.LISTS in roles and not known.has_listing
    # Where there are no files, a kind that searches is the way to find something out; it need not succeed.
    can_search = KindRole.SEARCHES in roles and not known.has_tried_search and ON_FILES.isdisjoint(roles)
    return can_read or can_list or can_search


def _ends(known: Known, narrowing: Narrowing, carried: Mapping[str, Schema]) -> dict[str, Schema]:
    """The terminal actions that complete a mission; the files they name were read or written."""
    read = known.read[-narrowing.most_files :]
    target = nullable(one_of_texts(read) if read else NULL)
    made = narrowing.some(one_of_texts(known.written), len(known.written)) if known.written else NULL
    more = {key: nullable(narrowing.some(_TEXT, _MOST_ENTRIES)) for key in ("issues", "recommendations")}
    result = _action("analysis_result", {"target_file": target, "summary": _TEXT, **more, **carried})
    return result | _action("mission_complete", {"summary": _TEXT, "deliverables": nullable(made), **carried})


def _jobs(
    question: Question,
    kinds: Mapping[str, Schema],
    known: Known,
    narrowing: Narrowing,
    *,
    cut: Mapping[str, int],
    left_out: Mapping[int, int],
) -> dict[str, Schema]:
    """The jobs that may be requested now, by kind."""
    listing = {kind.name for kind in question.kinds if kind.role is KindRole.LISTS and kind.name in kinds}
    jobs: dict[str, Schema] = {}
    for kind in (kind for kind in question.kinds if kind.name in kinds):
        given = kinds[kind.name]
        params: Schema | None = given
        is_repeated = kind.name in known.repeated
        if kind.role is KindRole.READS and "rel_path" in properties_of(given):
            can_list = bool(listing - known.repeated - known.tried)
            params = _reads(given, known, narrowing, cut, can_list=can_list, is_repeated=is_repeated)
        elif is_repeated or kind.included_in in kinds:
            params = None
        elif kind.role is KindRole.RECALLS:
            params = _recalls(given, left_out)
        elif kind.role is KindRole.LISTS:
            params = _lists(given, known, narrowing, has_tried=bool(listing & known.tried))
        else:
            params = _others(given, kind, question, known, narrowing)
        if params is not None:
            jobs[kind.name] = _job(kind, params)
    return jobs


def _others(
    params: Schema, kind: Kind, question: Question, known: Known, narrowing: Narrowing
) -> Schema | None:
    match kind.role:
        case KindRole.FINDS:
            return _finds(params, known, narrowing)
        case KindRole.ASKS:
            return _asks(params, narrowing)
        case KindRole.EDITS | KindRole.DELETES:
            return _edits(params, question.writable.get(kind.name), known, narrowing)
        case KindRole.MOVES:
            moves = _edits(params, question.writable.get(kind.name), known, narrowing)
            return None if moves is None else _fixed(moves, {"new_path": _files(question, kind.name)})
        case KindRole.WRITES if not question.writable.get(kind.name, (ROOT,)):
            return None
        case KindRole.MAKES if kind.name in question.writable:
            return None  # what may be written are files
        case KindRole.OTHER:
            return params
        case _:
            return _in_root(params, _files(question, kind.name))


def _job(kind: Kind, params: Schema) -> Schema:
    fields = {"kind": constant(kind.name), "params": params}
    if not kind.is_held and kind.role not in _ONLY_LOOKS:
        fields["auto_dispatch"] = nullable({"type": "boolean"})
    return closed(fields)


def _files(question: Question, kind: str) -> Schema:
    """The files that jobs of this kind may name."""
    files = question.writable.get(kind)
    return one_of_texts(files) if files else _PATH


def _in_root(params: Schema, place: Schema) -> Schema:
    return _fixed(params, {"root": constant(ROOT), "project_root": constant(ROOT), "rel_path": place})


def _fixed(params: Schema, parts: Mapping[str, Schema]) -> Schema:
    """The params with these schemas in the place of their own."""
    return closed({key: parts.get(key, part) for key, part in properties_of(params).items()})


def _finds(params: Schema, known: Known, narrowing: Narrowing) -> Schema | None:
    """The params without optional numbers. None while every file can be offered by its name."""
    if len(known.unread) <= narrowing.most_files:
        return None
    line: Schema = {"type": "string", "pattern": LINE}
    patterns = nullable(narrowing.some(line, _MOST_ENTRIES, at_least=1))
    parts = {"root": constant(ROOT), "text": line, "patterns": patterns}
    return closed({key: parts[key] for key in properties_of(params) if key in parts})


def _edits(
    params: Schema, writable: Sequence[str] | None, known: Known, narrowing: Narrowing
) -> Schema | None:
    """The params for files that were read or written: an edit quotes what is there, a deletion should know it."""
    seen = dict.fromkeys((*known.read, *known.partly, *known.written))
    files = [path for path in seen if writable is None or path in writable]
    return _in_root(params, one_of_texts(files[-narrowing.most_files :])) if files else None


def _asks(params: Schema, narrowing: Narrowing) -> Schema:
    """The params of a question, with options or with a form, never with both."""
    line: Schema = {"type": "string", "pattern": LINE}
    options = nullable(narrowing.some(line, _MOST_ENTRIES, at_least=1))
    whole = properties_of(_fixed(params, {"question": line, "options": options}))
    fields = whole.pop("fields", None)
    if fields is None or not narrowing.lengths:
        return closed(whole)
    form = narrowing.some(any_of(_fields(narrowing)), _MOST_ENTRIES, at_least=1)
    with_form = {key: part for key, part in whole.items() if key != "options"}
    return any_of([closed(whole), closed({**with_form, "fields": form})])


def _fields(narrowing: Narrowing) -> list[Schema]:
    """The fields of a form, without defaults and bounds: whether these fit, no schema can say."""
    line: Schema = {"type": "string", "pattern": LINE}
    head: dict[str, Schema] = {"id": {"type": "string", "pattern": _FIELD_ID}, "label": line}
    tail: dict[str, Schema] = {"help": nullable(line), "required": nullable({"type": "boolean"})}
    options = narrowing.some(line, _MOST_ENTRIES, at_least=1)
    return [
        closed({"type": one_of_texts(ENTERING), **head, **tail}),
        closed({"type": one_of_texts(CHOOSING), **head, "options": options, **tail}),
    ]


_FIELD_ID = "^[a-z][a-z0-9_]{0,30}$"


def _lists(params: Schema, known: Known, narrowing: Narrowing, *, has_tried: bool) -> Schema | None:
    """The params without optional numbers: 0 lists nothing, and a model that has to write a number writes any.

    None if every file is known, unless there are too many to offer: then a list of some of them still helps.
    """
    if known.has_all and len(known.unread) <= narrowing.most_files:
        return None
    line: Schema = {"type": "string", "pattern": LINE}
    patterns = nullable(narrowing.some(line, _MOST_ENTRIES, at_least=1))
    # After patterns that matched nothing, everything is listed.
    nothing_matched = has_tried and not known.has_listing
    parts = {"root": constant(ROOT), "patterns": nullable(NULL) if nothing_matched else patterns}
    whole = properties_of(_fixed(params, parts))
    return closed({key: part for key, part in whole.items() if key in parts or not _is_optional(part)})


def _is_optional(schema: Schema) -> bool:
    return nullable(schema) == schema


def _reads(
    params: Schema,
    known: Known,
    narrowing: Narrowing,
    cut: Mapping[str, int],
    *,
    can_list: bool,
    is_repeated: bool,
) -> Schema | None:
    """Files to read from the start, and files to continue; any name only if nothing can be listed.

    After repetitions a file is continued only where the prompt cuts it.
    """
    fresh = known.unread[: narrowing.most_files]
    rest = [path for path in {**known.partly, **cut} if path not in fresh][: narrowing.most_files]
    branches: list[Schema] = []
    if fresh:
        branches.append(_read(params, one_of_texts(fresh)))
    if rest and not is_repeated:
        branches.append(_read(params, one_of_texts(rest), {"offset": at_least(0), "limit": at_least(1)}))
    elif rest:
        lines = {**known.partly, **cut}
        branches += [_continued(params, path, lines[path]) for path in rest[:_MOST_CONTINUED]]
    if branches:
        return any_of(branches)
    if known.has_listing or can_list or is_repeated:
        return None
    return _read(params, _PATH)


_MOST_CONTINUED = 5


def _continued(params: Schema, path: str, line: int) -> Schema:
    return _read(params, one_of_texts([path]), {"offset": _number(line), "limit": at_least(1)})


def _recalls(params: Schema, left_out: Mapping[int, int]) -> Schema | None:
    """Results that have no room in the prompt, and the rest of those that it cuts, from a line on."""
    whole = [number for number, line in left_out.items() if not line]
    rest = [number for number, line in left_out.items() if line]
    branches = [_recall(params, whole, {})] if whole else []
    if rest:
        branches.append(_recall(params, rest, {"offset": at_least(0), "limit": at_least(1)}))
    return any_of(branches) if branches else None


def _recall(params: Schema, numbers: Sequence[int], part: Mapping[str, Schema]) -> Schema:
    given = properties_of(params)
    numbered: Schema = {"type": "integer", "enum": [*numbers]}
    tail = {key: part.get(key, own) for key, own in given.items() if key in part or not _is_optional(own)}
    return closed(tail | {"number": numbered})


def _read(params: Schema, file: Schema, part: Mapping[str, Schema] = {}) -> Schema:
    """The params of a job that reads `file`; optional ones that are not in `part` are left out."""
    given = properties_of(params)
    # `rel_path` first: what distinguishes the branches comes before what they share.
    head = {"rel_path": file} | ({"root": constant(ROOT)} if "root" in given else {})
    tail = {key: part.get(key, own) for key, own in given.items() if key in part or not _is_optional(own)}
    return closed(head | {key: own for key, own in tail.items() if key not in head})
