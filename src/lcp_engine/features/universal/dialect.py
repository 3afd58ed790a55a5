"""The dialect `universal`: the LCP action that each reply means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from pydantic import BaseModel, JsonValue

from lcp_engine.core.protocol.actions import (
    Action,
    Findings,
    Malformed,
    Manner,
    Problem,
    join,
    param_names,
    shortened,
)
from lcp_engine.core.protocol.read_reply import (
    MAX_ENTRIES,
    NO_REASON,
    Reader,
    order_reader,
    read_object,
    refuse_unframed,
    tool_call_fault,
)
from lcp_engine.core.protocol.result_schema import RESULT, ResultSchema
from lcp_engine.core.protocol.strict_json import Unframed, find_object, shown
from lcp_engine.features.universal.response import (
    PAIRS,
    AnswerData,
    Check,
    ClarityData,
    ErrorDetails,
    Finding,
    PlanningData,
    ResearchData,
    Response,
    Step,
    VerificationData,
)

MOST_QUESTIONS = 20
"""How many questions a person is asked at once."""
MOST_KEPT = 100
"""Checks, sources, suggestions or questions that an assessment has at most; the whole lists are in the reply."""
CLEAR = 85
"""From this total score on, of 100, a reply counts as clear: below it a person is asked."""


ENDS: Mapping[str, str] = {"mission_complete": "answer", "analysis_result": "research"}
"""The type of response for each action that completes a mission."""


def read_universal(
    text: str, kinds: Mapping[str, type[BaseModel]], result: ResultSchema | None = None
) -> Action | Malformed:
    """The LCP action that a reply in the universal schema means. Total: no text raises.

    | response and status | action |
    |---|---|
    | any, `error` | `error` |
    | any but verification and error, `needs_clarification` | one held `ask_user` job with every question |
    | clarity, `success` with a score below `CLEAR` | the same |
    | planning, `success` | an `agent_plan` of `scope: step` for each step, one after another |
    | verification, `PASS` with checks that all passed | `mission_complete` |
    | verification, otherwise | one `agent_plan` with what did not pass |
    | answer, `success` | `mission_complete`; if a follow-up is needed, a person is asked first (`Manner.FOLLOW_UP`) |
    | research or clarity, `success` | `analysis_result` |
    | custom, `success` | `custom_fields.lcp` where that is an LCP action, else `analysis_result` |
    | custom, `success`, with `custom_fields.execution_plan` | the steps of that plan, or `Malformed` |

    Every other pair is `Malformed`, and so are a plan that states no list of steps, more than `MOST_QUESTIONS`
    questions, and a `custom_fields.lcp` that names an action and is not a valid one. An empty list of steps is like
    empty `new_jobs`. Sections and keys that are not read are named in warnings. `kinds` and `result` are those of
    `read_reply`; a response that completes the mission carries its result in `custom_fields.result`.
    """
    framed = find_object(text)
    if isinstance(framed, Unframed):
        return refuse_unframed(text, framed, '"response_type"')
    if "response_type" not in framed.value and (fault := tool_call_fault(framed.value, '"response_type"')):
        return Malformed(errors=(Problem(path="", message=fault),), recovered=framed.recovered)
    findings = Findings()
    response = _validate(framed.value, findings)
    if response is not None:
        _check_pair(response, findings)
    if response is None or findings.problems:
        return Malformed(errors=tuple(findings.problems), recovered=framed.recovered)
    _note_unread(framed.value, response, result, findings)
    action = _translate(response, kinds, framed.recovered, result)
    if isinstance(action, Malformed):
        return action
    return action.note(framed.recovered, (*findings.warnings, *action.warnings))


_Body: TypeAlias = dict[str, JsonValue]
_PLAN = "execution_plan"
_PLACE = f"custom_fields.{_PLAN}"


def _validate(body: _Body, findings: Findings) -> Response | None:
    for section, part in body.items():
        entries = part.items() if isinstance(part, dict) and section != "custom_fields" else ()
        long = next(
            (key for key, value in entries if isinstance(value, list) and len(value) > MAX_ENTRIES), None
        )
        if long is not None:
            # The validator would check each of millions.
            findings.refuse(
                join(shortened(section), shortened(long)), f"at most {MAX_ENTRIES:,} entries are read"
            )
            return None
    return findings.validate(Response, body, "", "a universal response")


def _check_pair(response: Response, findings: Findings) -> None:
    allowed = PAIRS[response.response_type]
    if response.status not in allowed:
        findings.refuse(
            "status",
            f"the status of {response.response_type} is one of {', '.join(allowed)}; found {shown(response.status)}",
        )
        return
    if response.response_type == "planning" and response.status == "success":
        _check_steps(response.planning_data or PlanningData(), findings)
    if _asks(response):
        _check_questions(response.clarity_data or ClarityData(), findings)


def _check_steps(planning: PlanningData, findings: Findings) -> None:
    if planning.steps is None:
        findings.refuse(
            "planning_data.steps", "a plan states its steps, [] if nothing is to be done; steps is missing"
        )
    for index, step in enumerate(planning.steps or ()):
        if not step.action.strip(" \t\r\n"):
            findings.refuse(
                f"planning_data.steps[{index}].action", "a step says what is to be done; action is empty"
            )


def _check_questions(clarity: ClarityData, findings: Findings) -> None:
    found = len(_questions(clarity))
    if found > MOST_QUESTIONS:
        findings.refuse(
            "clarity_data.follow_up_questions",
            f"a person is asked at most {MOST_QUESTIONS} questions at once; found {found:,}",
        )


def _asks(response: Response) -> bool:
    """True if a person is asked: the response says so, or rates what it judges as not clear enough."""
    if response.response_type == "clarity" and response.status == "success":
        total = _total(response.clarity_data or ClarityData())
        return total is not None and total < CLEAR
    return response.status == "needs_clarification"


def _total(clarity: ClarityData) -> int | None:
    """The total score, else the mean of the others; None if nothing was rated."""
    if clarity.total_score is not None:
        return clarity.total_score
    rated = [clarity.completeness_score, clarity.clarity_score, clarity.accuracy_score]
    scores = [score for score in rated if score is not None]
    return sum(scores) // len(scores) if scores else None


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "planning_data": PlanningData,
    "verification_data": VerificationData,
    "clarity_data": ClarityData,
    "research_data": ResearchData,
    "answer_data": AnswerData,
    "error_details": ErrorDetails,
}
_ENTRIES: Mapping[str, type[BaseModel]] = {"steps": Step, "checks": Check, "findings": Finding}


def _note_unread(body: _Body, response: Response, result: ResultSchema | None, findings: Findings) -> None:
    """Name the sections that belong to another response, and the keys that no section has."""
    read = {"planning": "planning_data", "verification": "verification_data", "custom": "custom_fields"}.get(
        response.response_type, f"{response.response_type}_data"
    )
    if response.status == "error":
        read = "error_details"
    elif _asks(response):
        read = "clarity_data"
    for section, stated in body.items():
        if not isinstance(stated, dict):
            continue
        own = {RESULT} if section == "custom_fields" and result is not None else set()
        part = {key: value for key, value in stated.items() if key not in own}
        if section == read:
            _note_unknown(section, part, findings)
        elif any(value not in (None, "", [], {}) for value in part.values()):
            said = f"{response.response_type} with the status {response.status}"
            findings.ignore(section, f"not read in a response of the type {said}, ignored")


def _note_unknown(section: str, part: _Body, findings: Findings) -> None:
    model = _SECTIONS.get(section)
    if model is None:
        return
    known = param_names(model)
    findings.ignore_unknown(section, [key for key in part if key not in known], known)
    for key, entries in part.items():
        if (entry_model := _ENTRIES.get(key)) is None or not isinstance(entries, list):
            continue
        of_entry = param_names(entry_model)
        for index, entry in enumerate(entries):
            unknown = [name for name in entry if name not in of_entry] if isinstance(entry, dict) else []
            findings.ignore_unknown(f"{section}.{key}[{index}]", unknown, of_entry)


def _translate(
    response: Response,
    kinds: Mapping[str, type[BaseModel]],
    recovered: tuple[str, ...],
    result: ResultSchema | None,
) -> Action | Malformed:
    manner = Manner.PLAIN
    if response.status == "error":
        body = _error(response)
    elif _asks(response):
        body, manner = _ask(response), Manner.CLARIFICATION
    else:
        match response.response_type:
            case "planning":
                body, manner = _plan(response, response.planning_data or PlanningData()), Manner.STEPS
            case "verification":
                body, manner = _verify(response, response.verification_data or VerificationData())
            case "answer":
                body, manner = _complete(response, response.answer_data or AnswerData())
            case "research" | "clarity" | "error":
                body = _analysis(response)
            case "custom":
                return _custom(response, kinds, recovered, result)
            case _:
                assert_never(response.response_type)
    action = _read_body(response, body, kinds, recovered, result)
    if isinstance(action, Malformed):
        return action
    return action.in_manner(manner).assessed(_assessment(response))


def _assessment(response: Response) -> _Body:
    """Collect what a response says of the work or of itself, with the keys of its section; long lists lose their end.

    Empty if it says nothing of that kind. Findings of research are the issues of an `analysis_result` already.
    """
    sections: Mapping[str, BaseModel | None] = {
        "verification": response.verification_data, "clarity": response.clarity_data,
        "research": response.research_data, "answer": response.answer_data,
    }  # fmt: skip
    section = sections.get("clarity" if _asks(response) else response.response_type)
    if section is None or response.status == "error":
        return {}
    said: _Body = section.model_dump(mode="json", exclude_none=True, exclude={"findings"})
    kept = {key: part[:MOST_KEPT] if isinstance(part, list) else part for key, part in said.items()}
    return {"response_type": response.response_type, "status": response.status, **kept}


def _read_body(
    response: Response,
    body: _Body,
    kinds: Mapping[str, type[BaseModel]],
    recovered: tuple[str, ...],
    result: ResultSchema | None,
) -> Action | Malformed:
    """The action that a response was translated into, with the result that it carries."""
    carried = (response.custom_fields or {}).get(RESULT)
    if result is not None and carried is not None:
        body = {**body, RESULT: carried}
    action = read_object(body, kinds, recovered, result)
    if not isinstance(action, Malformed):
        return action
    errors = (
        _beneath("custom_fields", problem) if problem.path.startswith(RESULT) else problem
        for problem in action.errors
    )
    return action.model_copy(update={"errors": tuple(errors)})


def _error(response: Response) -> _Body:
    details = response.error_details or ErrorDetails()
    error = _first(details.error_message, response.message) or NO_REASON
    return _present(
        ok=False,
        action="error",
        commentary=response.message if response.message.strip() not in ("", error) else None,
        error=error,
        error_code=details.error_code,
        recovery_suggestion=details.suggested_action,
    )


def _ask(response: Response) -> _Body:
    clarity = response.clarity_data or ClarityData()
    asked = [f"{number}. {question}" for number, question in enumerate(_questions(clarity), 1)]
    text = "\n".join(part for part in (response.message.strip(), _rated(clarity), *asked) if part)
    job: _Body = {
        "name": "Clarify what is wanted",
        "kind": "ask_user",
        "params": {"question": text or "What is to be done?"},
        "auto_dispatch": False,
    }
    return _jobs(None, [job])


def _questions(clarity: ClarityData) -> list[str]:
    return [question.strip() for question in clarity.follow_up_questions or () if question.strip()]


def _rated(clarity: ClarityData) -> str | None:
    """The scores in a sentence; None if nothing was rated."""
    total = _total(clarity)
    if total is None:
        return None
    scores = {
        "completeness": clarity.completeness_score,
        "clarity": clarity.clarity_score,
        "accuracy": clarity.accuracy_score,
    }
    parts = ", ".join(f"{name} {score}" for name, score in scores.items() if score is not None)
    return f"Rated {total} of 100" + (f" ({parts})" if parts else "") + f"; clear from {CLEAR} on."


def _plan(response: Response, planning: PlanningData) -> _Body:
    steps = sorted(planning.steps or (), key=lambda step: step.step_number)
    known = [_first(planning.summary, response.message)]
    if planning.dependencies:
        known.append(f"The plan depends on: {', '.join(planning.dependencies)}.")
    plan = [f"{place}. {step.action}{_minutes(step)}" for place, step in enumerate(steps, 1)]
    context = "\n".join([*(line for line in known if line), "The whole plan:", *plan])
    jobs: list[JsonValue] = []
    for place, step in enumerate(steps, 1):
        lines = [f"Step {place} of {len(steps)}: {step.action.strip()}", (step.details or "").strip()]
        params: _Body = {
            "user_prompt": "\n".join(line for line in lines if line),
            "context": context,
            "scope": "step",
        }
        jobs.append({"name": step.action.strip()[:200], "kind": "agent_plan", "params": params})
    return _jobs(response.message, jobs)


def _minutes(step: Step) -> str:
    return "" if step.estimated_minutes is None else f" (about {step.estimated_minutes} minutes)"


def _verify(response: Response, verification: VerificationData) -> tuple[_Body, Manner]:
    """The planner's verdict alone does not count: a PASS needs checks that all passed."""
    checks = verification.checks or []
    failed = [check for check in checks if not check.passed]
    if response.status == "PASS" and checks and not failed:
        said = [f"{check.criterion}: {check.note}" if check.note else check.criterion for check in checks]
        return _present(
            ok=True, action="mission_complete", summary=response.message, commentary=_listed("Checked", said)
        ), Manner.VERIFICATION
    lines = ["These checks did not pass; make them pass, then verify again:"]
    lines += [f"- {check.criterion}" + (f" ({check.note})" if check.note else "") for check in failed]
    if not failed:
        fact = (
            "no check was stated"
            if not checks
            else f"the verdict was {response.status} though each check passed"
        )
        lines = [f"The verification does not count: {fact}. Verify again, check by check."]
    lines += [f"Suggested: {suggestion}" for suggestion in verification.suggestions or ()]
    params: _Body = {"user_prompt": "\n".join(lines), "context": response.message or "A verification."}
    job: _Body = {"name": "Mend what the verification found", "kind": "agent_plan", "params": params}
    return _jobs(response.message, [job]), Manner.VERIFICATION


def _complete(response: Response, answer: AnswerData) -> tuple[_Body, Manner]:
    said = [f"Confidence: {answer.confidence}."] if answer.confidence else []
    said += [_listed("Sources", answer.sources) or ""]
    said += ["A follow-up is needed."] if answer.follow_up_needed else []
    commentary = " ".join(part for part in said if part) or None
    body = _present(ok=True, action="mission_complete", summary=response.message, commentary=commentary)
    return body, Manner.FOLLOW_UP if answer.follow_up_needed else Manner.PLAIN


def _analysis(response: Response) -> _Body:
    research, clarity = response.research_data or ResearchData(), response.clarity_data or ClarityData()
    findings: list[JsonValue] = [finding.model_dump(exclude_none=True) for finding in research.findings or ()]
    said = _listed("Sources", research.sources) or _rated(clarity)
    return _present(
        ok=True,
        action="analysis_result",
        summary=response.message,
        issues=findings or None,
        recommendations=[*(clarity.follow_up_questions or ())] or None,
        commentary=said,
    )


def _custom(
    response: Response,
    kinds: Mapping[str, type[BaseModel]],
    recovered: tuple[str, ...],
    result: ResultSchema | None,
) -> Action | Malformed:
    fields = response.custom_fields or {}
    inner = fields.get("lcp")
    warnings: tuple[str, ...] = ()
    if (plan := fields.get(_PLAN)) is not None:
        if inner is None:
            return _read_plan(plan, kinds, recovered, response.message.strip() or None)
        message = "a response holds an action (lcp) or a plan (execution_plan), not both"
        return Malformed(errors=(Problem(path=_PLACE, message=message),), recovered=recovered)
    if isinstance(inner, dict):
        action = read_object(_commented(inner, response.message), kinds, recovered, result)
        if not isinstance(action, Malformed):
            return action
        within = tuple(_beneath("custom_fields.lcp", problem) for problem in action.errors)
        if "action" in inner:
            # A reply that names an action meant one: ending the mission with it unread would lose it.
            return Malformed(errors=within, recovered=recovered, warnings=action.warnings)
        warnings = tuple(f"{problem.path}: {problem.message}" for problem in within)
    found = {key: value for key, value in fields.items() if result is None or key != RESULT}
    body = _present(
        ok=True, action="analysis_result", summary=response.message, issues=[found] if found else None
    )
    action = _read_body(response, body, kinds, recovered, result)
    return action if isinstance(action, Malformed) else action.note(recovered, warnings)


def _read_plan(
    stated: JsonValue,
    kinds: Mapping[str, type[BaseModel]],
    recovered: tuple[str, ...],
    commentary: str | None,
) -> Action | Malformed:
    findings = Findings()
    reader = order_reader(_PLACE, findings)
    plan = None if reader is None else reader.plan(stated, kinds, findings, _PLACE, commentary)
    return findings.judge(plan, recovered)


def _commented(inner: _Body, message: str) -> _Body:
    """The action within a response; without a commentary of its own it gets the response's message."""
    return (
        inner
        if inner.get("commentary") is not None or not message.strip()
        else {**inner, "commentary": message}
    )


def _beneath(path: str, problem: Problem) -> Problem:
    return Problem(path=join(path, problem.path), message=problem.message)


def _jobs(commentary: str | None, jobs: list[JsonValue]) -> _Body:
    return _present(ok=True, action="create_followup_jobs", commentary=commentary or None, new_jobs=jobs)


def _present(**fields: JsonValue) -> _Body:
    return {key: value for key, value in fields.items() if value is not None}


def _first(*texts: str | None) -> str | None:
    return next((text for text in texts if text and text.strip()), None)


def _listed(what: str, entries: list[str] | None) -> str | None:
    return f"{what}: {', '.join(entries)}." if entries else None


def _give_up(error: str, code: str) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"error_code": code}
    return {"response_type": "error", "status": "error", "message": error, "error_details": details}


READER = Reader(
    read=read_universal,
    key="response_type",
    ends=ENDS,
    verdict="verification",
    to_verify="Reply with a response of the type verification: one check for each question, and PASS if "
    "all of them passed.",
    give_up=_give_up,
)
