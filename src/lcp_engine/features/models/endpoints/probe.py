"""Test a model before a mission relies on it: whether it answers, in which output mode, how well and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from lcp_engine.core.health import Finding, Grade, broken, doubtful, well
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.models.endpoints.chat import Completion, ModelFacts
from lcp_engine.features.models.endpoints.complete import Pace
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Trouble
from lcp_engine.features.models.planner import CONTEXT_TOKENS, ModelPlanner
from lcp_engine.features.models.prompts.output_modes import Rung, described
from lcp_engine.planners.base import Question

REPLY_TOKENS = 400
SMALL_CONTEXT = 4096
SLOW = 5.0
_PACE = Pace(tries=2, loading_total=20.0)


@dataclass(frozen=True)
class _Answer:
    """The model's answer to one of the questions."""

    completion: Completion
    seconds: float
    is_valid: bool
    is_guided: bool


def examine(
    planner: ModelPlanner, questions: Sequence[Question], is_valid: Callable[[str], bool], *, seconds: float
) -> Iterator[Finding]:
    """Findings about the model, one after the other, within about `seconds` whatever the server does."""
    clock = planner.answering.times.clock
    deadline = Deadline.after(seconds, clock())
    quick = _hurried(planner)
    found = quick.models(deadline)
    yield from _presence(quick, found)
    if isinstance(found, Trouble) and found.status is None:
        return
    try:
        facts = quick.known_facts(deadline)
    except LcpError as error:
        yield broken("model", error.failed)
        return
    yield _context(quick, facts)
    answers: list[_Answer] = []
    for question in questions:
        began = clock()
        outcome, wording = quick.complete(question, facts, deadline)
        if isinstance(outcome, Trouble):
            if not answers:
                yield broken("question", _failed(quick, outcome))
                return
            break
        answers.append(_Answer(outcome, clock() - began, is_valid(outcome.text), wording.is_guided))
    yield _rung(quick, facts)
    yield _place(answers)
    yield _validity(answers, len(questions))
    yield _guidance(answers)
    yield _speed(answers)


def _hurried(planner: ModelPlanner) -> ModelPlanner:
    """The same planner with short replies and few retries."""
    settings = replace(
        planner.settings, max_tokens=min(planner.settings.max_tokens or REPLY_TOKENS, REPLY_TOKENS)
    )
    return replace(planner, settings=settings, answering=replace(planner.answering, pace=_PACE))


def _presence(planner: ModelPlanner, found: Sequence[ModelFacts] | Trouble) -> Iterator[Finding]:
    endpoint, name = planner.settings.endpoint, planner.settings.model
    if isinstance(found, Trouble):
        if found.status is None or (found.is_refusal and found.status in {401, 403}):
            yield broken("endpoint", _failed(planner, found))
        else:
            yield doubtful(
                "endpoint", f"{endpoint} answers, but names no models: {found.message}", "Name the model."
            )
        return
    names = [model.name for model in found]
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    yield well("endpoint", f"{endpoint} answers; its models: {shown or 'none'}")
    # llama.cpp names a model by its file, and accepts any name.
    if name and name not in {*names, *(PurePath(each).stem for each in names)}:
        fact = f"{endpoint} does not name the model {name!r}: {nearest(name, names)}"
        yield doubtful("model", fact, "Correct planner.model, or load the model there.")
    elif name or len(names) == 1:
        yield well("model", name or names[0])


def _context(planner: ModelPlanner, facts: ModelFacts) -> Finding:
    stated = planner.settings.context_tokens or facts.context_tokens
    if stated is None:
        fact = f"the server does not say how large it is; {CONTEXT_TOKENS:,} tokens are assumed"
        return doubtful("context", fact, "State planner.context_tokens as the server was started with.")
    if stated < SMALL_CONTEXT:
        fact = f"{stated:,} tokens: long files and histories are cut short"
        return doubtful("context", fact, f"Give the model {SMALL_CONTEXT:,} tokens or more.")
    return well("context", f"{stated:,} tokens")


def _rung(planner: ModelPlanner, facts: ModelFacts) -> Finding:
    probe = planner.answering.probe(planner.settings.endpoint, facts.name)
    fact = described(probe)
    if probe.step.rung in {Rung.JSON_SCHEMA, Rung.JSON_OBJECT_WITH_SCHEMA}:
        return well("rung", fact)
    advice = "Replies are not held to a schema; a server with json_schema makes small models succeed."
    return doubtful("rung", fact, advice)


def _place(answers: Sequence[_Answer]) -> Finding:
    """Where the JSON of a reply is."""
    only_thought = sum(each.completion.written != each.completion.text for each in answers)
    if only_thought:
        fact = f"none, only thoughts, for {only_thought} of {len(answers)}"
        advice = "Thoughts are not executed; switch reasoning off, or raise planner.max_tokens."
        return doubtful("reply", fact, advice)
    thought = sum(
        each.completion.reasoning != "" and each.completion.text == each.completion.reasoning
        for each in answers
    )
    if not thought:
        return well("reply", "in content")
    fact = f"in reasoning_content for {thought} of {len(answers)}"
    return doubtful("reply", fact, "It is read there too; switching reasoning off saves tokens.")


def _validity(answers: Sequence[_Answer], asked: int) -> Finding:
    valid = sum(each.is_valid for each in answers)
    late = "" if len(answers) == asked else f" ({asked - len(answers)} of {asked} got no reply in time)"
    fact = f"{valid} of {len(answers)} replies are valid actions{late}"
    if valid == len(answers) and late:
        return doubtful("validity", fact, "Use a faster model or server.")
    if valid == len(answers):
        return well("validity", fact)
    advice = (
        "Invalid replies are corrected, which costs turns; use a larger model or a server with json_schema."
    )
    return doubtful("validity", fact, advice) if valid else Finding("validity", Grade.FAIL, fact, advice)


def _guidance(answers: Sequence[_Answer]) -> Finding:
    """Whether turns are guided, and whether the replies say that they should be."""
    if any(each.is_guided for each in answers):
        return well("guidance", "on: each turn offers the one thing that comes next")
    if all(each.is_valid for each in answers):
        return well("guidance", "off: the model chooses its actions")
    advice = "Set `guidance: on` in the planner's options: it offers this model fewer choices."
    return doubtful("guidance", "off, and not every reply is a valid action", advice)


def _speed(answers: Sequence[_Answer]) -> Finding:
    seconds = sum(each.seconds for each in answers)
    written = sum(each.completion.output_tokens or 0 for each in answers)
    pace = written / seconds if seconds else 0.0
    fact = f"{pace:.1f} tokens a second, {seconds / len(answers):.1f} s a reply"
    if pace >= SLOW:
        return well("speed", fact)
    return doubtful("speed", fact, "Raise planner.total_seconds, or use a smaller model.")


def _failed(planner: ModelPlanner, trouble: Trouble) -> Failed:
    code = ErrorCode.PLANNER_REFUSED if trouble.is_refusal else ErrorCode.PLANNER_FAILED
    advice = "Start the server, or correct its address." if trouble.status is None else None
    return Failed(code, planner.settings.scrub(trouble.message), advice=advice)
