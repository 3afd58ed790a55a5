"""A mission at one moment as a structured response: blocks, forms and progress, for a program that shows it (pure).

The forms offer what a person can decide on each held job. The response follows from the history alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Annotated, Literal, Self, TypeAlias, assert_never

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from lcp_engine.core.json_values import int_in, list_in
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.protocol import question_form
from lcp_engine.core.reasons import ReasonCode, explain_reason
from lcp_engine.core.safe_text import shortened
from lcp_engine.core.summaries import question_in, subject_of
from lcp_engine.features.reports.facts import Course, Excerpt, Facts, JobFact
from lcp_engine.features.reports.markdown import Section, sections, standing, title, words
from lcp_engine.features.reports.progress import Milestone, milestone_of
from lcp_engine.store.queries.records import Mission, MissionStatus
from lcp_engine.workers.ask_user import asked_in, fields_of

Emotion: TypeAlias = Literal["neutral", "encouraging", "celebratory", "supportive", "informative"]
Kind: TypeAlias = Literal["educational", "conversational", "assessment", "summary", "error"]
FieldType: TypeAlias = Literal["radio", "checkbox", "select", "text", "textarea", "number"]
_Block: TypeAlias = Literal["list", "info", "warning"]

_BLOCKS: dict[str, _Block] = {
    "unfulfilled": "warning",
    "waiting": "info",
    "failures": "warning",
    "limits": "warning",
    "invalid_replies": "warning",
}
_KINDS: dict[str, Kind] = {
    "waiting": "assessment",
    "completed": "summary",
    "cancelled": "summary",
    "failed": "error",
}
_MOST_SUGGESTED = 3
_UNSETTLED = ("held", "blocked", "queued", "running")
MOST_SHOWN = 4000
"""Characters; longer params are cut in a form."""
_CHOSEN = ("radio", "checkbox", "select")


def _describe_absence(schema: dict[str, JsonValue]) -> None:
    """An optional property is absent rather than null; only a milestone is read as null, too."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    for name, stated in properties.items():
        if name == "milestone" or not isinstance(stated, dict):
            continue
        kinds = [kind for kind in list_in(stated.get("anyOf")) if kind != {"type": "null"}]
        if len(kinds) == 1 and isinstance(kinds[0], dict):
            kept = {key: value for key, value in stated.items() if key not in ("anyOf", "default")}
            properties[name] = {**kinds[0], **kept}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_extra=_describe_absence)


class TextBlock(_Part):
    """A piece of text; `content` is Markdown, `level` belongs to a heading."""

    type: Literal["paragraph", "heading", "list", "quote", "info", "warning", "success", "tip"]
    content: str
    level: Annotated[int, Field(ge=1, le=6)] | None = None


class Option(_Part):
    """One of the answers to choose from."""

    value: str
    label: str


class FormField(_Part):
    """One thing to fill in. `options` are needed where something is chosen."""

    id: str = Field(pattern="^[a-z][a-z0-9_]*$")
    type: FieldType
    label: str
    required: bool = False
    options: list[Option] | None = None
    placeholder: str | None = None
    help_text: str | None = None
    min: float | None = None
    max: float | None = None
    default: JsonValue = Field(default=None, description="The value that it has if nothing is entered")

    @model_validator(mode="after")
    def _has_options(self) -> Self:
        if self.type in _CHOSEN and not self.options:
            raise ValueError(f"a {self.type} needs options; {self.id} has none")
        return self


class Form(_Part):
    """A form that may always be skipped: what it asks can be said in plain words as well."""

    id: str
    title: str | None = None
    description: str | None = None
    fields: list[FormField]
    submit_label: str = "Submit"
    optional: bool = True
    job_id: int | None = Field(default=None, description="The held job that it decides on")


class Medium(_Part):
    """An image, a video or a sound; the engine shows none."""

    type: Literal["image", "video", "audio"]
    src: str
    alt: str | None = None
    caption: str | None = None


class NextStep(_Part):
    """Next steps: words that answer the first question that has options, and commands."""

    prompt: str | None = None
    suggestions: list[str] | None = None
    can_skip: bool = True
    commands: list[str] | None = Field(
        default=None, description="Commands; words in capitals are to be replaced"
    )


class Content(_Part):
    """All that is shown."""

    text_blocks: list[TextBlock]
    forms: list[Form] | None = None
    media: list[Medium] | None = None
    next_step: NextStep | None = None


class Progress(_Part):
    """How far the mission has come.

    `percentage` never falls. `newly_covered` and `milestone` tell what is new since event `since`; a program that asks
    the next time with `--since` and the `event` of this time gets each milestone once.
    """

    percentage: float | None = Field(default=None, ge=0, le=100)
    covered_topics: list[str] | None = None
    newly_covered: list[str] | None = None
    remaining_topics: int | None = None
    milestone: Literal["25%", "50%", "75%", "100%"] | None = None
    covered_total: int | None = Field(default=None, description="How many topics are covered, listed or not")
    since: int | None = Field(default=None, description="The event after which things are new")
    event: int | None = Field(default=None, description="The newest event that is known here")


class ModuleState(_Part):
    """The state of the mission; its sections are its turns."""

    current_phase: str | None = None
    current_section: str | None = None
    sections_completed: int | None = None
    total_sections: int | None = None


class Meta(_Part):
    """What kind of response this is, and how far the mission has come."""

    response_type: Literal["educational", "conversational", "assessment", "summary", "error"]
    progress: Progress | None = None
    module_state: ModuleState | None = None
    emotion: Literal["neutral", "encouraging", "celebratory", "supportive", "informative"] | None = None


class StructuredResponse(_Part):
    """A mission at one moment, made by the engine from the history."""

    content: Content
    meta: Meta

    def as_json(self) -> dict[str, JsonValue]:
        """The object as it is published: what is not there is left out."""
        return self.model_dump(mode="json", exclude_none=True)


def respond(facts: Facts, course: Course) -> StructuredResponse:
    """The mission as `facts` and `course` describe it. Equal history gives an equal response."""
    mission = facts.mission
    milestone = milestone_of(course.before, course.percentage)
    return StructuredResponse(
        content=Content(
            text_blocks=_blocks(facts, milestone),
            forms=_forms(facts.held.rows, mission.id),
            next_step=next_step(facts),
        ),
        meta=Meta(
            response_type=_KINDS.get(mission.status, "conversational"),
            progress=_progress(mission, course, milestone),
            module_state=_module_state(mission, course),
            emotion=_emotion(mission, milestone),
        ),
    )


def _emotion(mission: Mission, milestone: Milestone | None) -> Emotion:
    if mission.status is MissionStatus.COMPLETED and mission.unfulfilled:
        return "supportive"
    return emotion_of(mission.status, mission.outcome, milestone)


def emotion_of(status: MissionStatus, outcome: str | None, milestone: Milestone | None) -> Emotion:
    """The tone, by status, outcome and milestone as docs/report.md lists them."""
    match status:
        case MissionStatus.COMPLETED:
            return "celebratory"
        case MissionStatus.FAILED:
            is_limited = outcome == "no_progress" or str(outcome).startswith("limit:")
            return "encouraging" if is_limited else "supportive"
        case MissionStatus.CANCELLED:
            return "neutral"
        case MissionStatus.WAITING:
            return "supportive" if milestone is None else "celebratory"
        case MissionStatus.RUNNING:
            return "informative" if milestone is None else "celebratory"
        case _:
            assert_never(status)


def _blocks(facts: Facts, milestone: Milestone | None) -> list[TextBlock]:
    how, goal, *error = standing(facts.mission)
    wrong, helps = error[:1], error[1:]
    blocks = [
        TextBlock(type="heading", content=title(facts.mission), level=2),
        TextBlock(type="paragraph", content=how),
        TextBlock(type="paragraph", content=goal),
    ]
    if milestone is not None:
        said = (
            _completed(facts.mission)
            if milestone == "100%"
            else f"**{milestone}** of the mission is reached."
        )
        is_whole = milestone != "100%" or not facts.mission.unfulfilled
        blocks.append(TextBlock(type="success" if is_whole else "info", content=said))
    blocks += [TextBlock(type="warning", content=line) for line in wrong]
    blocks += [TextBlock(type="tip", content=line) for line in helps]
    said_by_planner = "\n".join(words(facts))
    if said_by_planner:
        blocks.append(TextBlock(type="quote", content=said_by_planner))
    for section in sections(facts):
        blocks += _listed(section)
    return blocks


def _completed(mission: Mission) -> str:
    left = len(mission.unfulfilled)
    if not left:
        return "The mission is complete."
    return f"The mission has ended, with {left:,} job{'' if left == 1 else 's'} asked for and not done."


def _listed(section: Section) -> list[TextBlock]:
    lines = "\n".join(f"- {line}" for line in section.lines)
    return [
        TextBlock(type="heading", content=section.title, level=3),
        TextBlock(type=_BLOCKS.get(section.name, "list"), content=lines),
    ]


def next_step(facts: Facts) -> NextStep:
    """What a person can do next."""
    mission, held, has_written = facts.mission, facts.held, bool(facts.files.rows)
    number = mission.id
    match mission.status:
        case MissionStatus.WAITING:
            prompt = f"{_waiting(held)} Fill in a form, or say in your own words what to do."
            decisions = [command for job in held.rows[:_MOST_SUGGESTED] for command in commands_for(job)]
            commands = [*decisions, f"lcp say {number} TEXT", f"lcp cancel {number}"]
        case MissionStatus.RUNNING:
            prompt = "It continues while a runner works; you can send the planner a message at any time."
            commands = [
                f"lcp watch {number}", "lcp work --until-idle", f"lcp say {number} TEXT", f"lcp cancel {number}",
            ]  # fmt: skip
        case MissionStatus.COMPLETED:
            left = mission.unfulfilled
            if left:
                prompt = "Not all that was asked for is done. Decide on it, or check what was changed."
            elif has_written:
                prompt = "It is complete. Check what it changed; it can be undone while its files are as it left them."
            else:
                prompt = "It is complete. It changed no files."
            commands = [
                *_about_unfulfilled(left, held),
                *([f"lcp changes {number}", f"lcp undo {number} --dry-run"] if has_written else []),
                f"lcp resume {number}",
            ]
        case MissionStatus.FAILED | MissionStatus.CANCELLED:
            outcome = mission.outcome or ""
            limit = outcome.removeprefix("limit:")
            higher = f" --set limits.{limit}=N" if outcome.startswith("limit:") else ""
            prompt = "It has ended. Check what happened, then resume it or undo its changes."
            commands = [
                f"lcp show {number}", f"lcp resume {number}{higher}", f"lcp undo {number} --dry-run",
            ]  # fmt: skip
        case _:
            assert_never(mission.status)
    return NextStep(prompt=prompt, suggestions=_words_to_say(held), commands=commands)


def _words_to_say(held: Excerpt[JobFact]) -> list[str] | None:
    """The options of the first question that has some, as the words that answer it."""
    asked = (_choices(job.params.get("options")) for job in held.rows if job.kind == QUESTION)
    return next(([option.value for option in options] for options in asked if options), None)


def _about_unfulfilled(ids: Sequence[int], held: Excerpt[JobFact]) -> list[str]:
    """The commands that look at the first jobs whose effect did not happen, or decide on them."""
    waiting = {job.id: job for job in held.rows}
    return [
        command
        for number in ids[:_MOST_SUGGESTED]
        for command in (commands_for(waiting[number]) if number in waiting else [f"lcp job {number}"])
    ]


def _waiting(held: Excerpt[JobFact]) -> str:
    questions = sum(job.kind == QUESTION for job in held.rows)
    if questions == held.total:
        return (
            "A question waits for your answer."
            if questions == 1
            else f"{questions} questions wait for your answer."
        )
    return "One job waits for you." if held.total == 1 else f"{held.total:,} jobs wait for you."


def _progress(mission: Mission, course: Course, milestone: Milestone | None) -> Progress:
    return Progress(
        percentage=course.percentage,
        covered_topics=_topics(course.covered.rows),
        newly_covered=_topics(course.news.rows),
        remaining_topics=sum(mission.jobs.get(state, 0) for state in _UNSETTLED),
        milestone=milestone,
        covered_total=course.covered.total,
        since=course.since,
        event=course.event,
    )


def _topics(jobs: Sequence[JobFact]) -> list[str]:
    return list(dict.fromkeys(_topic(job) for job in jobs))


def _topic(job: JobFact) -> str:
    return f"{job.kind} {subject_of(job.params, job.name)}".strip()


def _module_state(mission: Mission, course: Course) -> ModuleState:
    """Sections are turns: those asked so far, and the most that the mission may ask."""
    most = int_in(mission.limits.get("max_turns", mission.turns))
    outcome = f": {mission.outcome}" if mission.outcome else ""
    running = _topics(course.running.rows[:1])
    return ModuleState(
        current_phase=f"{mission.status}{outcome}",
        current_section=running[0] if running else mission.goal,
        sections_completed=mission.turns,
        total_sections=mission.turns if mission.status.has_ended else max(mission.turns, most),
    )


def _forms(held: Sequence[JobFact], mission_id: int) -> list[Form]:
    """A form for each held job, each with an id of its own."""
    forms = [form_of(job, mission_id) for job in held]
    known = Counter(form.id for form in forms)
    return [
        form if known[form.id] == 1 else form.model_copy(update={"id": f"job_{form.job_id}"})
        for form in forms
    ]


def form_of(job: JobFact, mission_id: int) -> Form:
    """The form of a held job: an answer to a question, a decision on anything else."""
    return _answer(job, mission_id) if job.kind == QUESTION else _decision(job, mission_id)


def commands_for(job: JobFact) -> list[str]:
    """The commands that decide on a held job, the most likely first."""
    if job.kind == QUESTION:
        way = " ".join(f"--form {field.id}=VALUE" for field in fields_of(job.params)) or "TEXT"
        return [f"lcp answer {job.id} {way}"]
    reject = f"lcp reject {job.id} --reason TEXT"
    return [reject] if job.reason == ReasonCode.NO_WORKER else [f"lcp approve {job.id}", reject]


def _answer(job: JobFact, mission_id: int) -> Form:
    choices, asked = _choices(job.params.get("options")), asked_in(job.params)
    own = [_of_question(field, job.id) for field in fields_of(job.params)]
    if choices:
        own.append(FormField(id="choice", type="radio", label="Your choice", options=choices))
    taken = {field.id for field in own}
    words = FormField(
        id=_free("answer", taken), type="textarea", label="Or in your own words" if own else "Your answer",
        help_text=f"lcp answer {job.id} TEXT",
    )  # fmt: skip
    stated_id = asked.id if asked is not None else None
    return Form(
        id=f"job_{job.id}" if stated_id is None or _OF_ENGINE.fullmatch(stated_id) else stated_id,
        title=f"Question {job.id}",
        description=(question_in(job.params) if asked is None else asked.question) or job.name or "",
        fields=[*own, words, _message(mission_id, _free("words", taken))],
        submit_label=(asked.submit_label if asked is not None else None) or "Answer",
        job_id=job.id,
    )


_OF_ENGINE = re.compile(r"job_\d+")


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or with the first number from 2 on that makes it one that is not taken."""
    numbered = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def _of_question(field: question_form.FormField, job_id: int) -> FormField:
    """A field of the question itself, in the types that this format has."""
    options = [Option(value=option.value, label=option.shown) for option in field.options or ()]
    kind, default = field.type, field.default
    if kind == "checkbox":
        options = [Option(value="yes", label="Yes"), Option(value="no", label="No")]
        default = None if default is None else field.shown(default)
    command = f"lcp answer {job_id} --form {field.id}=VALUE"
    return FormField(
        id=field.id,
        type=_TYPES[kind],
        label=field.label,
        required=field.required,
        options=options or None,
        placeholder=field.placeholder,
        help_text=f"{field.help} ({command})" if field.help else f"{field.expectation} ({command})",
        min=field.min,
        max=field.max,
        default=default,
    )


_TYPES: Mapping[question_form.Type, FieldType] = {
    "text": "text", "textarea": "textarea", "number": "number", "select": "select", "radio": "radio",
    "multi_select": "checkbox", "checkbox": "radio", "date": "text",
}  # fmt: skip


def _choices(options: JsonValue) -> list[Option]:
    """The options of a question, each a text or an object with a value and perhaps a label."""
    found: list[Option] = []
    for option in list_in(options):
        value = option.get("value", option.get("label")) if isinstance(option, dict) else option
        label = option.get("label", value) if isinstance(option, dict) else option
        if value is not None:
            found.append(Option(value=_text(value), label=_text(label)))
    return found


def _decision(job: JobFact, mission_id: int) -> Form:
    options = [
        Option(value="approve", label="Approve: let it run"),
        Option(value="reject", label="Reject: the planner reads the reason"),
        Option(value="edit", label="Edit: let it run with other params"),
        Option(value="later", label="Later: it stays held"),
    ]
    fields = [
        FormField(id="reason", type="text", label="Why not", help_text=f"lcp reject {job.id} --reason TEXT"),
        FormField(
            id="params", type="textarea", label="Params, to edit", placeholder=_shown_params(job),
            help_text=f"lcp approve {job.id} --params JSON",
        ),
    ]  # fmt: skip
    if job.reason == ReasonCode.NO_WORKER:
        options, fields = [option for option in options if option.value in ("reject", "later")], fields[:1]
    decision = FormField(id="decision", type="radio", label="Your decision", options=options)
    return Form(
        id=f"job_{job.id}",
        title=_topic(job),
        description=f"Job {job.id} waits: {explain_reason(job.reason or 'it needs a person')}.",
        fields=[decision, *fields, _message(mission_id)],
        submit_label="Decide",
        job_id=job.id,
    )


def _message(mission_id: int, field_id: str = "words") -> FormField:
    """A message is possible instead of any decision (R14)."""
    return FormField(
        id=field_id,
        type="textarea",
        label="Or send the planner a message; it decides nothing",
        help_text=f"lcp say {mission_id} TEXT",
    )


def _shown_params(job: JobFact) -> str | None:
    if job.is_cut:
        return None
    return shortened(json.dumps(job.params, ensure_ascii=False, indent=2), MOST_SHOWN)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
