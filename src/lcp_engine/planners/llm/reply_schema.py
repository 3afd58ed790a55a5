"""Say as JSON Schema what a planner may answer now: what the rules would refuse, a constrained decoder cannot write.

`decide` never relies on it. A key that LCP leaves optional is left out where nobody is better off with it: `metrics`
(the report counts itself), and in a narrowed schema the names of jobs and `auto_dispatch` of jobs that only look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lcp_engine.core.protocol.strict_schema import (
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
)
from lcp_engine.planners.base import Kind, Question
from lcp_engine.planners.llm.known_files import Known, look
from lcp_engine.planners.llm.param_schemas import params_of, properties_of

ROOT = "."
"""The root in params: true wherever the mission is replayed or forked, and one token long."""


@dataclass(frozen=True)
class Narrowing:
    """How far the state of a mission narrows its schema.

    A goal is taken to need reading until `reads_first` files were read, or a file was written: so long, and while
    something can be listed or read, the jobs are such that look, and only `error` ends the mission. 0 is for goals
    that need no reading. At most `most_files` are offered to be read at once. `lengths` are `minItems` and `maxItems`
    of lists, for servers that refuse them: without, an empty `new_jobs` can still end the mission, and one too long is
    a corrective turn.
    """

    reads_first: int = 1
    most_files: int = 200
    lengths: bool = True

    def some(self, items: Schema, most: int, *, at_least: int = 0) -> Schema:
        """A list that has an end: a small model that has begun to repeat itself does not find it alone."""
        bounds: Schema = {"minItems": at_least, "maxItems": most} if self.lengths else {}
        return list_of(items) | {key: bound for key, bound in bounds.items() if bound}


USUAL = Narrowing()


def wire_schema(
    question: Question,
    *,
    narrow: bool = True,
    narrowing: Narrowing = USUAL,
    cut: Mapping[str, int] = {},
) -> Schema:
    """The schema of the next reply. Pure and total: every question has one, and `error` is always in it.

    `cut` are files that the prompt does not show to their end, with the line from which on. Without `narrow` it
    depends on the question's kinds alone.
    """
    kinds, definitions = params_of(question.kinds)
    branches = _narrowed(question, kinds, narrowing, cut) if narrow else _everything(kinds)
    whole = any_of(branches)
    used = json.dumps(whole)
    return whole | ({"$defs": dict(definitions)} if definitions and '"$ref"' in used else {})


_TEXT: Schema = {"type": "string"}
_TEXTS = list_of(_TEXT)
_PATH: Schema = {"type": "string", "pattern": CONFINED_PATH}
_MOST_ENTRIES = 5
_MODE = one_of_texts(["overwrite", "append"])
_LOOKS = ("list_files", "read_file")
_WRITES = ("write_file", "rewrite_file")


def _action(name: str, fields: Mapping[str, Schema], *, ok: bool = True) -> Schema:
    # The constant first: who writes in this order has chosen the action before filling it.
    return closed({"action": constant(name), "ok": constant(ok), "commentary": nullable(_TEXT), **fields})


def _error() -> Schema:
    more = ("error_code", "attempted_action", "recovery_suggestion")
    return _action("error", {"error": _TEXT, **{key: nullable(_TEXT) for key in more}}, ok=False)


def _everything(kinds: Mapping[str, Schema]) -> list[Schema]:
    branches: list[Schema] = []
    if kinds:
        name = nullable({"type": "string", "description": "At most 200 characters."})
        free: Schema = {"type": "boolean"}
        jobs = [
            closed({"kind": constant(kind), "name": name, "params": params, "auto_dispatch": nullable(free)})
            for kind, params in kinds.items()
        ]
        branches.append(_action("create_followup_jobs", {"new_jobs": list_of(any_of(jobs))}))
    if "write_file" in kinds:
        line = properties_of(kinds["write_file"])["rel_path"]
        write = {"root": nullable(line), "rel_path": line, "content": _TEXT, "mode": nullable(_MODE)}
        branches.append(_action("write_file", write))
    more = {key: nullable(_TEXTS) for key in ("issues", "recommendations")}
    branches.append(_action("analysis_result", {"target_file": nullable(_TEXT), "summary": _TEXT, **more}))
    branches.append(_action("mission_complete", {"summary": _TEXT, "deliverables": nullable(_TEXTS)}))
    return [*branches, _error()]


def _narrowed(
    question: Question, kinds: Mapping[str, Schema], narrowing: Narrowing, cut: Mapping[str, int]
) -> list[Schema]:
    known = look(question)
    may_go_on = question.last_turn is None and not question.verifies
    jobs = {} if not may_go_on else _jobs(question, kinds, known, narrowing, cut)
    most = (
        question.max_followups
        if question.jobs_left is None
        else min(question.max_followups, question.jobs_left)
    )
    needs_reading = most > 0 and _needs_reading(known, jobs, narrowing)
    if needs_reading:
        jobs = {kind: job for kind, job in jobs.items() if kind in _LOOKS}
        most = min(most, len(known.unread) + len(known.partly) + len(cut) if known.has_listing else 1)
    branches: list[Schema] = []
    if jobs and most > 0:
        # None at all would end the mission; that is what the terminal actions are for.
        some = narrowing.some(any_of([*jobs.values()]), most, at_least=1)
        branches.append(_action("create_followup_jobs", {"new_jobs": some}))
        if "write_file" in jobs:
            place = _place(question, "write_file")
            write = {"root": constant(ROOT), "rel_path": place, "content": _TEXT, "mode": _MODE}
            branches.append(_action("write_file", write))
    return [*branches, *([] if needs_reading else _ends(known, narrowing)), _error()]


def _needs_reading(known: Known, jobs: Mapping[str, Schema], narrowing: Narrowing) -> bool:
    """Whether it is too early to end: too little was read, and there is something to read or to look for."""
    if known.written or len(known.read) >= narrowing.reads_first:
        return False
    can_read = "read_file" in jobs and bool(known.unread or known.partly)
    return can_read or ("list_files" in jobs and not known.has_listing)


def _ends(known: Known, narrowing: Narrowing) -> list[Schema]:
    """The terminal actions; the files they speak of are files that were read or written."""
    read = known.read[-narrowing.most_files :]
    target = nullable(one_of_texts(read) if read else NULL)
    made = narrowing.some(one_of_texts(known.written), len(known.written)) if known.written else NULL
    more = {key: nullable(narrowing.some(_TEXT, _MOST_ENTRIES)) for key in ("issues", "recommendations")}
    return [
        _action("analysis_result", {"target_file": target, "summary": _TEXT, **more}),
        _action("mission_complete", {"summary": _TEXT, "deliverables": nullable(made)}),
    ]


def _jobs(
    question: Question,
    kinds: Mapping[str, Schema],
    known: Known,
    narrowing: Narrowing,
    cut: Mapping[str, int],
) -> dict[str, Schema]:
    """The jobs that may be asked for now, by kind."""
    jobs: dict[str, Schema] = {}
    for kind in (kind for kind in question.kinds if kind.name in kinds):
        params: Schema | None = kinds[kind.name]
        if kind.name == "read_file":
            params = _reads(kinds, known, narrowing, cut)
        elif kind.name in known.repeated or (kind.name == "rewrite_file" and "write_file" in kinds):
            params = None
        elif kind.name == "list_files":
            params = _lists(known, narrowing)
        elif kind.name == "ask_user":
            params = _asks(narrowing)
        elif kind.name in _WRITES and not question.writable.get(kind.name, (ROOT,)):
            params = None
        elif kind.name in (*_WRITES, "agent_plan"):
            params = _in_root(kinds[kind.name], _place(question, kind.name))
        if params is not None:
            jobs[kind.name] = _job(kind, params)
    return jobs


def _job(kind: Kind, params: Schema) -> Schema:
    fields = {"kind": constant(kind.name), "params": params}
    if not kind.is_held and kind.name not in _LOOKS:
        fields["auto_dispatch"] = nullable({"type": "boolean"})
    return closed(fields)


def _place(question: Question, kind: str) -> Schema:
    """The files that jobs of this kind may name."""
    files = question.writable.get(kind)
    return one_of_texts(files) if files else _PATH


def _in_root(params: Schema, place: Schema) -> Schema:
    fixed = {"root": constant(ROOT), "project_root": constant(ROOT), "rel_path": place}
    return closed({key: fixed.get(key, part) for key, part in properties_of(params).items()})


def _asks(narrowing: Narrowing) -> Schema:
    line: Schema = {"type": "string", "pattern": LINE}
    return closed({"question": line, "options": nullable(narrowing.some(line, _MOST_ENTRIES, at_least=1))})


def _lists(known: Known, narrowing: Narrowing) -> Schema | None:
    """Without a limit: 0 lists nothing, and a model that has to write a number writes any.

    None where every file is known; where that are too many to be offered, a list of some of them still helps.
    """
    if known.has_all and len(known.unread) <= narrowing.most_files:
        return None
    line: Schema = {"type": "string", "pattern": LINE}
    patterns = nullable(narrowing.some(line, _MOST_ENTRIES, at_least=1))
    # Patterns that matched nothing are no help twice: everything is listed then.
    nothing_matched = "list_files" in known.tried and not known.has_listing
    return closed({"root": constant(ROOT), "patterns": nullable(NULL) if nothing_matched else patterns})


def _reads(
    kinds: Mapping[str, Schema], known: Known, narrowing: Narrowing, cut: Mapping[str, int]
) -> Schema | None:
    """Files to read from the start, and files to read on; any name only where nothing can be listed."""
    fresh = known.unread[: narrowing.most_files]
    rest = [path for path in {**known.partly, **cut} if path not in fresh][: narrowing.most_files]
    branches: list[Schema] = []
    # `rel_path` first: what tells the branches apart comes before what they share.
    if fresh:
        branches.append(closed({"rel_path": one_of_texts(fresh), "root": constant(ROOT)}))
    if rest and "read_file" not in known.repeated:
        part = {"offset": at_least(0), "limit": at_least(1)}
        branches.append(closed({"rel_path": one_of_texts(rest), "root": constant(ROOT), **part}))
    if branches:
        return any_of(branches)
    may_list = "list_files" in kinds and "list_files" not in known.repeated
    if known.has_listing or (may_list and "list_files" not in known.tried) or "read_file" in known.repeated:
        return None
    return closed({"rel_path": _PATH, "root": constant(ROOT)})
