"""Read a planner's reply: its text becomes one LCP action or every reason why it is not one (R1 to R3). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import kind_named
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    Findings,
    JobSpec,
    Malformed,
    MissionComplete,
    Problem,
    WriteFile,
    join,
    name_unknown,
    param_names,
    shortened,
)
from lcp_engine.core.protocol.near_misses import (
    LONGEST,
    JobKey,
    is_word_for_kind,
    job_key_meant,
    mode_meant,
    param_meant,
    squashed,
)
from lcp_engine.core.protocol.result_schema import RESULT, ResultSchema
from lcp_engine.core.protocol.strict_json import Unframed, find_object, shown
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import added, available, load

Dialect: TypeAlias = str
Kinds: TypeAlias = Mapping[str, type[BaseModel]]
"""The model of the params of each known kind of job."""


NO_REASON = "the planner gave no reason"
# Not a limit of missions (R6): it bounds the time that one text can take.
MAX_ENTRIES = 10_000


@dataclass(frozen=True)
class OrderReader:
    """Readers of a plan, with its place and the reply's commentary, and of jobs that wait for each other.

    None for what has faults, which are added to the findings.
    """

    plan: Callable[[JsonValue, Kinds, Findings, str, str | None], CreateFollowupJobs | None]
    jobs: Callable[[Sequence[JsonValue], Kinds, Findings, str | None], CreateFollowupJobs | None]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads the replies of a dialect, and knows how a planner replies in it."""

    read: Callable[[str, Kinds, ResultSchema | None], Action | Malformed]
    """No text makes it raise."""
    key: str
    """The key of a reply that names what it is."""
    ends: Mapping[str, str]
    """Its values in replies that complete a mission, by the action of each."""
    verdict: str | None = None
    """Its value in replies to a question whether a claim holds; None if these are like any."""
    to_verify: str
    """The reply to that question, as planners are told of it."""
    give_up: Callable[[str, str], dict[str, JsonValue]]
    """A reply that ends with an error: its words and code."""

    def __call__(self, text: str, kinds: Kinds, result: ResultSchema | None = None) -> Action | Malformed:
        return self.read(text, kinds, result)


def read_reply(text: str, kinds: Kinds, result: ResultSchema | None = None) -> Action | Malformed:
    """The action that `text` states. Total: no text raises.

    `kinds` maps each known kind of job to the model of its params; params of other kinds are any object. `result` is
    what a reply that completes the mission has to carry; without it, `result` is a key like any unknown one.
    """
    framed = find_object(text)
    if isinstance(framed, Unframed):
        return refuse_unframed(text, framed, '"action"')
    return read_object(framed.value, kinds, framed.recovered, result)


def read_object(
    body: dict[str, JsonValue],
    kinds: Kinds,
    recovered: tuple[str, ...] = (),
    result: ResultSchema | None = None,
) -> Action | Malformed:
    """Like `read_reply`, for the object itself; `recovered` is what was removed around it."""
    findings = Findings()
    return findings.judge(_read_action(body, kinds, result, findings), recovered)


def refuse_unframed(text: str, found: Unframed, key: str) -> Malformed:
    """Fault of a text without a single object; one with a model's marks for a call of a tool is told that first."""
    call = _CALL_MARK.search(text)
    message = f"{_no_tools(call[0], key)} ({found.message})" if call else found.message
    return Malformed(errors=(Problem(path="", message=message),), recovered=found.recovered)


def _no_tools(name: str, key: str) -> str:
    return (
        f"no tools are offered; found a call of {shown(name)}. Call none: answer in the text, with one JSON object "
        f"that has {key}; what a tool would do is a job there"
    )


def tool_call_fault(body: Mapping[str, JsonValue], key: str) -> str | None:
    """Fault of a reply that calls tools, with the `key` that it should have; None if it calls none."""
    listed = body.get("tool_calls")
    calls = listed if isinstance(listed, list) else [body]
    for call in calls:
        called = call.get("function", call) if isinstance(call, dict) else None
        name = called.get("name") if isinstance(called, dict) else None
        if isinstance(name, str) and isinstance(called, dict) and not called.keys().isdisjoint(_ARGUMENTS):
            return _no_tools(name, key)
    return None


def reader_of(dialect: str) -> Reader:
    """The reader of the dialect with this name.

    Raises `INVALID_ARGUMENT` for an unknown name.
    """
    if dialect == "lcp":
        return _LCP
    if dialect in available().readers:
        return load(available().readers[dialect], Reader)
    names = " or ".join(map(repr, dialects()))
    raise LcpError(ErrorCode.INVALID_ARGUMENT, f"a dialect is {names}; found {dialect!r}")


def dialects() -> tuple[Dialect, ...]:
    """The names of all dialects."""
    return ("lcp", *available().readers)


_LCP = Reader(
    read=read_reply,
    key="action",
    ends={"mission_complete": "mission_complete", "analysis_result": "analysis_result"},
    to_verify="If every answer is yes, reply with analysis_result or mission_complete. "
    "Otherwise reply with error, and state what is missing.",
    give_up=lambda error, code: {"ok": False, "action": "error", "error": error, "error_code": code},
)
_ARGUMENTS = ("arguments", "parameters")
# Of Hermes and Qwen, MiniMax, Llama, Mistral, harmony, DeepSeek, Kimi and Gemma.
_CALL_MARK = re.compile(
    r"<(?:minimax:)?tool_call>|<function=|\[TOOL_CALLS\]|\bto=functions\.\w+|<[|\uff5c]tool[_\u2581]calls?(?:[_\u2581]\w+)*[|\uff5c]?>"
)
_Fields = dict[str, JsonValue]

_ACTIONS: dict[str, type[CreateFollowupJobs | WriteFile | AnalysisResult | MissionComplete]] = {
    "create_followup_jobs": CreateFollowupJobs,
    "write_file": WriteFile,
    "analysis_result": AnalysisResult,
    "mission_complete": MissionComplete,
}
_NAMES = (*_ACTIONS, "error")
_RESULTS = (
    "list_files_result", "read_file_result", "search_files_result", "write_file_result", "edit_file_result",
    "delete_file_result", "move_file_result", "make_directory_result",
    "run_command_result", "ask_user_result", "recall_result",
)  # fmt: skip
NOT_KINDS = {*_NAMES, *_RESULTS} - {"write_file"}
_COMMON = ("ok", "action", "commentary")
_ERROR_KEYS = tuple(name for name in ErrorAction.model_fields if name not in _COMMON)
_ERROR_TEXTS = ("error", "message", "summary")
_ERROR_READS = {*_COMMON, *_ERROR_KEYS, *_ERROR_TEXTS}
_JOB_KEYS = tuple(JobSpec.model_fields)


def _own_keys(model: type[BaseModel]) -> tuple[str, ...]:
    more = ("new_content",) if model is WriteFile else ()
    return tuple(name for name in model.model_fields if name not in (*_COMMON, RESULT)) + more


_OWN = {name: _own_keys(model) for name, model in _ACTIONS.items()}
_OWNER = {
    **dict.fromkeys(_ERROR_KEYS, "error"),
    **{key: name for name, keys in _OWN.items() for key in keys},
    "summary": "analysis_result and mission_complete",
}
_KNOWN = {*_COMMON, *_OWNER}
_COMPLETING = tuple(name for name, model in _ACTIONS.items() if RESULT in model.model_fields)


def _read_action(
    body: _Fields, kinds: Kinds, result: ResultSchema | None, findings: Findings
) -> Action | None:
    name = body.get("action")
    if body.get("ok") is False:
        return _read_error(body, findings)
    if name is None and (fault := tool_call_fault(body, '"action"')):
        findings.refuse("", fault)
        return None
    _check_ok(body, findings)
    if not isinstance(name, str) or name not in _ACTIONS:
        if name != "error":
            findings.refuse("action", _refuse_name(name))
        return None
    carried: _Fields = {}
    if result is not None:
        carried = {key: value for key, value in body.items() if key == RESULT and value is not None}
        body = {key: value for key, value in body.items() if key != RESULT}
        _read_result(name, carried, body, result, findings)
    if name == "create_followup_jobs" and body.get(_PLAN):
        return _read_plan(body, kinds, findings)
    own = _pick_own(name, body, findings)
    match name:
        case "create_followup_jobs":
            return _read_jobs(own, kinds, findings)
        case "write_file":
            return _read_write(own, kinds, findings)
        case _:
            return findings.validate(_ACTIONS[name], {**own, **carried}, "", name)


def _read_plan(body: _Fields, kinds: Kinds, findings: Findings) -> CreateFollowupJobs | None:
    """The plan that a reply requests in place of jobs."""
    if body.get("new_jobs"):
        findings.refuse(_PLAN, f"a reply requests jobs (new_jobs) or a plan ({_PLAN}), not both")
    rest = {key: value for key, value in body.items() if key not in (_PLAN, "new_jobs")}
    said = _commentary(_pick_own("create_followup_jobs", rest, findings))
    reader = order_reader(_PLAN, findings)
    return None if reader is None else reader.plan(body[_PLAN], kinds, findings, _PLAN, said)


def order_reader(key: str, findings: Findings) -> OrderReader | None:
    """Reader of jobs that wait for each other; without it, the `key` that states some is a fault."""
    place = added().order_reader
    if place is None:
        findings.refuse(
            key, "no feature that orders jobs is installed here; request jobs that may run at once"
        )
    return None if place is None else load(place, OrderReader)


def _commentary(own: _Fields) -> str | None:
    said = own.get("commentary")
    return said if isinstance(said, str) else None


def _check_ok(body: _Fields, findings: Findings) -> None:
    ok, name = body.get("ok"), body.get("action")
    if ok is None:
        findings.refuse("ok", "a reply has ok: true, or ok: false if the mission cannot go on; ok is missing")
    elif ok is not True:
        findings.refuse("ok", f"ok is true or false; found {shown(ok)}")
    if name == "error":
        findings.refuse("ok", "the action error needs ok: false")
    elif body.get("error") is not None:
        findings.refuse("error", "ok: true does not go with error; leave error out, or answer with ok: false")


def _read_result(
    name: str, carried: _Fields, body: _Fields, result: ResultSchema, findings: Findings
) -> None:
    """Read what is `carried` as the mission's result: by an action that completes it, and by no other."""
    if name not in _COMPLETING:
        owners = " and ".join(_COMPLETING)
        if carried:
            findings.refuse(RESULT, f"{RESULT} belongs to {owners}; a reply is one action, never mix actions")
        elif result.required and body.get("new_jobs") == [] and not body.get(_PLAN):
            fact = "without jobs the mission would end without its result"
            findings.refuse("new_jobs", f"{fact}; {owners} carry it as {RESULT}")
    elif carried:
        carried[RESULT], problems = result.read(carried[RESULT])
        findings.problems += problems
    elif result.required:
        findings.refuse(
            RESULT, f"{name} needs {RESULT}, which fits the schema that the mission states; it is missing"
        )


def _refuse_name(name: JsonValue) -> str:
    if name is None:
        return f"a reply names its action, one of {', '.join(_NAMES)}; action is missing"
    if not isinstance(name, str):
        return f"action is one of {', '.join(_NAMES)}; found {shown(name)}"
    if name in _RESULTS:
        return f"{name} is the result of a worker; a planner does not invent results, it requests the job"
    return name_unknown("action", name, _NAMES)


def _read_error(body: _Fields, findings: Findings) -> ErrorAction:
    texts = (body.get(key) for key in _ERROR_TEXTS)
    error = next((text for text in texts if isinstance(text, str) and text.strip()), NO_REASON)
    fields: _Fields = {"error": error}
    for key in ("commentary", *_ERROR_KEYS[1:]):
        if isinstance(body.get(key), str):
            fields[key] = body[key]
    if body.get("action") not in (None, "error"):
        findings.ignore("action", f"ok: false reads as error; {shown(body['action'])} is ignored")
    for key, value in body.items():
        if key not in _ERROR_READS:
            findings.ignore(shortened(key), "ignored beside ok: false")
        elif key not in ("ok", "action") and value is not None and not isinstance(value, str):
            findings.ignore(key, f"not a string, ignored: {shown(value)}")
    return ErrorAction.model_validate(fields)


def _pick_own(name: str, body: _Fields, findings: Findings) -> _Fields:
    """The fields of the action itself; keys of other actions are refused, unknown ones ignored."""
    own = _pick_commentary(body, findings)
    unknown = [key for key in body if key not in _KNOWN]
    for key, value in body.items():
        if value is None or key not in _OWNER or key == "error":
            continue
        if key in _OWN[name]:
            own[key] = value
        else:
            findings.refuse(key, f"{key} belongs to {_OWNER[key]}; a reply is one action, never mix actions")
    if name == "write_file" and body.get("path") is not None:
        findings.refuse("path", "write_file names its file with rel_path, not with path")
        unknown.remove("path")
    if name == "write_file" and body.get("mode") is None:
        for key in [key for key in unknown if mode_meant(key, body[key])]:
            findings.refuse(shortened(key), _APPEND_IS_A_MODE.format(key=shortened(key)))
            unknown.remove(key)
    if name in _REQUESTING:
        unknown = [key for key in unknown if not _refuse_gate(name, key, body[key], findings)]
    unknown = [key for key in unknown if not _refuse_course("", key, body[key], findings)]
    findings.ignore_unknown("", unknown, (*_COMMON, *_OWN[name]))
    return own


_REQUESTING: Mapping[str, str] = {
    "create_followup_jobs": "auto_dispatch belongs to a job of new_jobs",
    "write_file": "the action write_file has no auto_dispatch; to have it held, request a write_file job",
}


def _refuse_gate(action: str, key: str, value: JsonValue, findings: Findings) -> bool:
    """Refuse a wish to hold the jobs of an action that is stated where no job is: ignored, they would run."""
    is_gate = value is not None and (
        key == "auto_dispatch" or job_key_meant(key, value, {}) == "auto_dispatch"
    )
    if not is_gate or (value is True and "dispatch" in key.casefold()) or findings.is_full:
        return False
    findings.refuse(shortened(key), f"{_REQUESTING[action]}; {shortened(key)} is not read here")
    return True


def _pick_commentary(body: _Fields, findings: Findings) -> _Fields:
    commentary = body.get("commentary")
    if isinstance(commentary, str):
        return {"commentary": commentary}
    if commentary is not None:
        findings.ignore("commentary", f"not a string, ignored: {shown(commentary)}")
    return {}


def _read_write(own: _Fields, kinds: Kinds, findings: Findings) -> WriteFile | None:
    if "content" in own and own.get("new_content", own["content"]) != own["content"]:
        findings.refuse("new_content", "content and new_content are one field; found two different values")
        return None
    fields = {("content" if key == "new_content" else key): value for key, value in own.items()}
    action = findings.validate(WriteFile, fields, "", "write_file")
    if "write_file" in kinds:
        params = {key: value for key, value in fields.items() if key != "commentary"}
        as_job = Findings()
        as_job.validate(kinds["write_file"], params, "", "write_file")
        findings.add(as_job.problems, whole=action is not None)
    return action


def _read_jobs(own: _Fields, kinds: Kinds, findings: Findings) -> CreateFollowupJobs | None:
    entries = own.get("new_jobs")
    if entries is None:
        findings.refuse("new_jobs", "create_followup_jobs needs new_jobs, a list of jobs; it is missing")
        return None
    if not isinstance(entries, list):
        findings.refuse("new_jobs", f"new_jobs is a list of jobs; found {shown(entries)}")
        return None
    if len(entries) > MAX_ENTRIES:
        findings.refuse("new_jobs", f"at most {MAX_ENTRIES:,} jobs are read at once; found {len(entries):,}")
        return None
    if any(isinstance(entry, dict) and entry.get("dependencies") for entry in entries):
        reader = order_reader("new_jobs", findings)
        return None if reader is None else reader.jobs(entries, kinds, findings, _commentary(own))
    known = {kind: (model, frozenset(param_names(model))) for kind, model in kinds.items()}
    jobs: list[JobSpec] = []
    for index, entry in enumerate(entries):
        if findings.is_full:
            findings.refuse("new_jobs", f"the jobs from number {index} on were not checked")
            return None
        job = _read_job(entry, f"new_jobs[{index}]", known, findings)
        if job:
            jobs.append(job)
    if findings.problems:
        return None
    return CreateFollowupJobs.model_validate({**own, "new_jobs": tuple(jobs)})


_Known = Mapping[str, tuple[type[BaseModel], frozenset[str]]]


def _read_job(entry: JsonValue, path: str, known: _Known, findings: Findings) -> JobSpec | None:
    if not isinstance(entry, dict):
        findings.refuse(path, f"a job is an object with kind and params; found {shown(entry)}")
        return None
    if isinstance(stated := entry.get("kind"), str):
        entry = {**entry, "kind": kind_named(stated, known)}
    fields = {key: value for key, value in entry.items() if value is not None and key in _JOB_KEYS}
    if len(fields) != len(entry):
        _check_unknown_keys(entry, path, known, findings)
    kind, params = fields.get("kind"), fields.get("params")
    if isinstance(kind, str) and kind in NOT_KINDS:
        findings.refuse(f"{path}.kind", f"{kind} is an action or a result, not a kind of job")
    elif isinstance(kind, str) and kind in known and isinstance(params, dict):
        fields["params"] = _read_params(params, kind, known[kind], f"{path}.params", findings)
    return findings.validate(JobSpec, fields, path, "a job")


_NOT_READ: Mapping[JobKey, str] = {
    "kind": "a job names its worker with kind",
    "params": "the params of a job are the object params",
    "auto_dispatch": "auto_dispatch: false holds a job until a person approves it",
}


_PLAN = "execution_plan"
_NO_ORDER = "a job of new_jobs lists what it waits for in dependencies, by id or name; {key} is not read here"
_NO_PLAN = "a plan stands in execution_plan of create_followup_jobs, without new_jobs; {key} is not read here"
_NO_CONDITION = "a step of execution_plan may have a condition; {key} is not read here"
_NO_REHEARSAL = "jobs are executed, or held for a person by auto_dispatch: false; {key} is not read"
_ORDERS = (
    "dependencies", "dependency", "depends_on", "depends", "wait_for", "after", "run_after", "requires", "needs",
    "sequential",
)  # fmt: skip
_CONDITIONS = ("condition", "conditions", "run_if", "only_if", "if", "when")
_PLANS = (_PLAN, "error_handling", "on_error", "on_failure", "fallback", "fallbacks", "fallback_plans")
_COURSE: Mapping[str, str] = {
    squashed(key): refusal
    for keys, refusal in (
        (_PLANS, _NO_PLAN), (_ORDERS, _NO_ORDER), (_CONDITIONS, _NO_CONDITION), (("dry_run",), _NO_REHEARSAL)
    )
    for key in keys
}  # fmt: skip
"""Keys that would change the course, and why they are refused where they are not read: ignored, jobs would run anyhow.

They are looked up without case and separators (`squashed`).

`execution_plan` beside `create_followup_jobs`, and `dependencies` of a job of it, are read.
"""


def _refuse_course(path: str, key: str, value: JsonValue, findings: Findings) -> bool:
    """Refuse a key that would change the course of the mission; one that states nothing does not."""
    refusal = None if len(key) > LONGEST else _COURSE.get(squashed(key))
    if refusal is None or not value or findings.is_full:
        return False
    findings.refuse(join(path, key), refusal.format(key=key))
    return True


def _check_unknown_keys(entry: _Fields, path: str, known: _Known, findings: Findings) -> None:
    """Refuse what was meant as a key of the job or as one of its params; ignore the others with a warning."""
    ignored: list[str] = []
    for key, value in entry.items():
        if key in _JOB_KEYS:
            continue
        if _refuse_course(path, key, value, findings):
            continue
        refusal = None if value is None or findings.is_full else _misplaced(key, value, entry, known)
        if refusal is None:
            ignored.append(key)
        else:
            findings.refuse(join(path, shortened(key)), refusal)
    findings.ignore_unknown(path, ignored, _JOB_KEYS)


def _misplaced(key: str, value: JsonValue, job: _Fields, known: _Known) -> str | None:
    """Reason why the unknown `key` of a job is an error; None if it only is ignored."""
    kind, params = job.get("kind"), job.get("params")
    names = known[kind][1] if isinstance(kind, str) and kind in known else frozenset[str]()
    given = params if isinstance(params, dict) else {}
    if key in names and given.get(key) == value:
        return None
    meant = None if key in names else job_key_meant(key, value, job)
    if meant is None and isinstance(value, dict) and value and names.issuperset(value):
        meant = "params"
    if (
        meant is None
        and isinstance(value, str)
        and value != kind
        and kind_named(value, known) in known
        and is_word_for_kind(key)
    ):
        meant = "kind"
    if meant is not None:
        return f"{_NOT_READ[meant]}; {shortened(key)} is not read"
    param = param_meant(key, names, given)
    if param is None and "mode" in names and given.get("mode") is None and mode_meant(key, value):
        return _APPEND_IS_A_MODE.format(key=shortened(key))
    if param is None:
        return None
    return f"{param} is a param of {kind} and belongs in params; {shortened(key)} is not read beside them"


_APPEND_IS_A_MODE = (
    "mode: append adds to the end of a file; {key} is not read, and the file would be replaced"
)


def _read_params(
    params: _Fields, kind: str, known: tuple[type[BaseModel], frozenset[str]], path: str, findings: Findings
) -> _Fields:
    model, names = known
    given = {key: value for key, value in params.items() if value is not None or key not in names}
    # The validator reports every wrong entry, which takes seconds for millions of them.
    long = next((k for k, v in given.items() if isinstance(v, list | dict) and len(v) > MAX_ENTRIES), None)
    if long is not None:
        findings.refuse(join(path, shortened(long)), f"a param holds at most {MAX_ENTRIES:,} entries")
    elif len(given) > MAX_ENTRIES:
        findings.refuse(path, f"params are at most {MAX_ENTRIES:,}; found {len(given):,}")
    else:
        findings.validate(model, given, path, kind)
    return given
