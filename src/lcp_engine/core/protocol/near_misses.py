"""Recognise keys of a job that were meant as `kind`, `params` or `auto_dispatch`, and params beside `params` (R3).

A job that ran without them would not be the job that the planner asked for, so such keys are errors. Every other
unknown key is only ignored: `comment`, `reason` and `priority` are nothing like these.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

from pydantic import JsonValue

JobKey: TypeAlias = Literal["kind", "params", "auto_dispatch"]

LONGEST = 40
"""Longer keys are sentences or noise."""


def job_key_meant(key: str, value: JsonValue, job: Mapping[str, JsonValue]) -> JobKey | None:
    """The key that the unknown `key` of `job` was meant as; None for a key of another meaning, and beside a null.

    Another spelling is always meant as the key, as is another word for `params`. Another word for `auto_dispatch` is
    one beside a yes or no, another word for `kind` in a job without `kind`.
    """
    if value is None or len(key) > LONGEST:
        return None
    word = squashed(key)
    if (spelled := _respelled(word)) is not None:
        return spelled
    if word in _PARAMS or (job.get("params") is None and word in _PERHAPS_PARAMS):
        return "params"
    if _is_yes_or_no(value) and (word in _GATES or _GATE.fullmatch(word)):
        return "auto_dispatch"
    if _is_wish_for_review(value) and (word in _REVIEWS or word in _GATES or _GATE.fullmatch(word)):
        return "auto_dispatch"
    return "kind" if word in _KINDS and job.get("kind") is None else None


def mode_meant(key: str, value: JsonValue) -> bool:
    """True if a key was meant as `mode: append`: `append: true`, `write_mode: "a"`; without it the file is replaced."""
    if len(key) > LONGEST:
        return False
    word, said = squashed(key), str(value).strip().casefold()
    if word in _APPENDING:
        return said in _YES
    if word in _REPLACING:
        return said in _NO
    return word in _MODES and said in _APPENDS


def is_word_for_kind(key: str) -> bool:
    """True if `key` may name a job's worker: `tool`, `type`."""
    return len(key) <= LONGEST and squashed(key) in _KINDS


def param_meant(key: str, names: frozenset[str], given: Collection[str]) -> str | None:
    """The one of a kind's params, `names`, that the key of a job was meant as; `given` are those that it has.

    A name of a param in another spelling counts only if the job does not have that param.
    """
    if key in names:
        return key
    if len(key) > LONGEST:
        return None
    word = squashed(key)
    for name, target in _words(names):
        if (
            abs(len(word) - len(target)) <= 1
            and name not in given
            and (word == target or (len(target) > 4 and _has_slip(word, target)))
        ):
            return name
    return None


@lru_cache(maxsize=256)
def _words(names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    # A job may have hundreds of thousands of unknown keys.
    return tuple((name, squashed(name)) for name in sorted(names))


def squashed(key: str) -> str:
    """`key` without case and separators: `autoDispatch`, `auto-dispatch` and `AUTO_DISPATCH` are one word."""
    if not key.isascii():
        key = unicodedata.normalize("NFKC", key)
    return _SEPARATORS.sub("", key.casefold())


_SEPARATORS = re.compile(r"[\W_]+")

_PARAMS = frozenset(
    ("arg", "args", "argument", "arguments", "kwargs", "argv", "prms", "parameter", "parameters", "jobparams",
     "jobparameters", "jobargs", "jobarguments", "toolparams", "toolparameters", "toolargs", "toolarguments",
     "toolinput", "functionargs", "functionarguments", "functionparams", "input", "inputs", "inputparams",
     "inputparameters",
     "inputargs", "inputdata", "actioninput", "actionparams", "taskparams", "taskinput", "workerparams", "kindparams",
     "payload", "jobpayload", "paramslist", "paramsobject", "paramsjson", "paramset"),
)  # fmt: skip
# Words that also name other things; without `params` they are where the params went.
_PERHAPS_PARAMS = frozenset(
    ("body", "config", "configuration", "content", "data", "details", "fields", "jobdata", "options", "opts",
     "properties", "props", "query", "request", "settings", "spec", "values", "variables", "vars", "with"),
)  # fmt: skip
_GATES = frozenset(
    ("approve", "auto", "autoapprove", "autoapproved", "autoexec", "autoexecute", "autolaunch", "automatic",
     "automatically", "autoqueue", "autorun", "autosend", "autostart", "confirm", "dispatchautomatically", "execute",
     "executeautomatically", "held", "hold", "holdforapproval", "holdforreview", "isautomatic", "isheld", "manual",
     "manualdispatch", "onhold", "review", "run", "runautomatically", "shouldrun", "waitforapproval", "waitforreview",
     "waitforuser"),
)  # fmt: skip
_REVIEWS = frozenset(
    ("approval", "approvalmode", "approvalpolicy", "approvalstate", "approvalstatus", "confirmation", "consent",
     "dispatchmode", "executionmode", "gate", "gating"),
)  # fmt: skip
_WISHES = frozenset(
    ("required", "require", "requires", "needed", "needsapproval", "requiresapproval", "pending", "pendingapproval",
     "awaitingapproval", "manual", "manually", "held", "hold", "onhold", "human", "person", "user", "ask", "review"),
)  # fmt: skip
_APPENDING = frozenset(
    ("append", "appending", "appendmode", "appendtoend", "appendtofile", "doappend", "isappend")
)
_REPLACING = frozenset(("overwrite", "overwriting", "replace", "truncate"))
_MODES = frozenset(("filemode", "openmode", "writemode", "writingmode", "writestrategy", "writetype"))
_APPENDS = frozenset(("append", "a", "a+", "ab", "at", "add", "appending"))
_WHO = "(?:human|manual|operator|person|user)"
_WHAT = "(?:approval|confirmation|consent|permission|review)"
_GATE = re.compile(
    rf"(?:is|must|should)?(?:requires?|needs?|awaits?|wants?){_WHO}?{_WHAT}"
    rf"|{_WHO}?{_WHAT}(?:required|needed|wanted)|{_WHO}{_WHAT}|.*autodispatch.*"
)
_KINDS = frozenset(
    ("action", "actiontype", "cmd", "command", "function", "functionname", "jobkind", "jobtype", "kindname",
     "kindofjob", "method", "op", "operation", "skill", "task", "taskkind", "taskname", "tasktype", "tool", "toolname",
     "tooltype", "type", "worker", "workerkind", "workername", "workertype"),
)  # fmt: skip


def _respelled(word: str) -> JobKey | None:
    """The key that `word` is with a slip or two of the pen; longer words may have more."""
    match word:
        case "kind":
            return "kind"
        case "params":
            return "params"
        case "autodispatch" | "dispatch" | "autodispatched":
            return "auto_dispatch"
    size = len(word)
    if 10 <= size <= 14 and _distance(word, "autodispatch", 2) <= 2:
        return "auto_dispatch"
    if 3 <= size <= 5 and word[0] == "k" and _distance(word, "kind", 1) <= 1:
        return "kind"
    if (5 <= size <= 7 and _distance(word, "params", 1) <= 1) or (
        8 <= size <= 12 and min(_distance(word, "parameters", 2), _distance(word, "arguments", 2)) <= 2
    ):
        return "params"
    return None


def _has_slip(word: str, name: str) -> bool:
    """True if one letter is missing, too many or out of order; a replaced one makes other words: content, context."""
    if len(word) == len(name):
        return sorted(word) == sorted(name) and _distance(word, name, 1) <= 1
    return _distance(word, name, 1) <= 1


def _distance(one: str, other: str, most: int) -> int:
    """Count the letters that are missing, too many, replaced or swapped with the next one; above `most`, any number."""
    if abs(len(one) - len(other)) > most or len(set(one) ^ set(other)) > 2 * most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _is_yes_or_no(value: JsonValue) -> bool:
    if isinstance(value, bool):
        return True
    return str(value).strip().casefold() in _ANSWERS if isinstance(value, int | str) else False


def _is_wish_for_review(value: JsonValue) -> bool:
    return isinstance(value, str) and squashed(value[:LONGEST]) in _WISHES


_YES, _NO = frozenset(("true", "yes", "on", "1")), frozenset(("false", "no", "off", "0"))
_ANSWERS = _YES | _NO
