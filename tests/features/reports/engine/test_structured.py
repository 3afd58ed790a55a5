"""A structured response is what its published schema says, and offers each thing that waits as a form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import JsonValue, ValidationError
from tests.features.reports.engine.facts import a_job, a_mission, all_of

from lcp_engine.core.protocol.question_form import Filled, fill_in
from lcp_engine.features.reports.facts import Course, Facts, JobFact
from lcp_engine.features.reports.progress import milestone_of
from lcp_engine.features.universal.structured import (
    FormField,
    StructuredResponse,
    emotion_of,
    form_of,
    next_step,
    respond,
)
from lcp_engine.store.queries.records import MissionStatus
from lcp_engine.workers.ask_user import fields_of

SEED = json.loads((Path(__file__).parent / "seed_004.json").read_text(encoding="utf-8"))
SCHEMA = StructuredResponse.model_json_schema()
PUBLISHED = Draft202012Validator(SCHEMA)
REFERENCE = Draft7Validator(SEED["schema"])


def a_course(percentage: int = 10, before: int = 10) -> Course:
    return Course(event=9, at="2025-01-01T00:00:00+00:00", since=5, percentage=percentage, before=before)


def rendered(*waiting: JobFact, course: Course | None = None, **mission: JsonValue) -> dict[str, JsonValue]:
    stated: dict[str, JsonValue] = {"status": "running", "outcome": None, **mission}
    facts = Facts(mission=a_mission(**stated), held=all_of(*waiting))
    return respond(facts, course or a_course()).as_json()


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("example", SEED["examples"], ids=lambda example: example["title"])
def test_every_example_of_the_reference_fits(example: dict[str, JsonValue]) -> None:
    PUBLISHED.validate(example["response"])
    StructuredResponse.model_validate(example["response"])


def test_only_a_milestone_may_be_null() -> None:
    response = rendered()
    PUBLISHED.validate(response)
    meta = response["meta"]
    assert isinstance(meta, dict)
    assert not PUBLISHED.is_valid({**response, "meta": {**meta, "emotion": None}})
    assert not PUBLISHED.is_valid({**response, "meta": {**meta, "progress": {"percentage": None}}})
    assert PUBLISHED.is_valid({**response, "meta": {**meta, "progress": {"milestone": None}}})


@pytest.mark.parametrize("broken", [
    {"meta": {"response_type": "summary"}},
    {"content": {"text_blocks": []}, "meta": {"response_type": "poem"}},
    {"content": {"text_blocks": [{"type": "heading", "content": "x", "level": 7}]}, "meta": {"response_type": "error"}},
    {"content": {"text_blocks": []}, "meta": {"response_type": "error", "progress": {"percentage": 101}}},
    {"content": {"text_blocks": [], "forms": [{"id": "f", "fields": [{"id": "A b", "type": "text", "label": ""}]}]},
     "meta": {"response_type": "error"}},
])  # fmt: skip
def test_what_the_reference_refuses_is_refused(broken: JsonValue) -> None:
    assert not REFERENCE.is_valid(broken)
    assert not PUBLISHED.is_valid(broken)


@pytest.mark.parametrize("course", [a_course(30, 20), a_course(20, 20)], ids=["a milestone", "none"])
@pytest.mark.parametrize(("status", "outcome"), [
    ("running", None), ("waiting", None), ("completed", "mission_complete"), ("failed", "limit:max_turns"),
    ("failed", "error"), ("cancelled", "cancelled"),
])  # fmt: skip
def test_a_mission_in_every_status_fits_the_reference(
    status: str, outcome: str | None, course: Course
) -> None:
    jobs = [
        a_job(2, "write_file", reason="policy", rel_path="a.md"),
        a_job(3, "ask_user", question="Which?", options=["a"]),
    ]
    response = rendered(*jobs, status=status, outcome=outcome, course=course)
    PUBLISHED.validate(response)
    REFERENCE.validate(response)


def test_a_job_is_approved_rejected_edited_or_left_for_later() -> None:
    form = form_of(a_job(7, "write_file", reason="policy says so", rel_path="a.md", content="x"), 1)
    fields = {field.id: field for field in form.fields}
    assert [option.value for option in fields["decision"].options or []] == [
        "approve",
        "reject",
        "edit",
        "later",
    ]
    assert json.loads(fields["params"].placeholder or "") == {"rel_path": "a.md", "content": "x"}
    assert (form.title, form.description) == ("write_file a.md", "Job 7 waits: policy says so.")
    assert form.optional
    assert not any(field.required for field in form.fields)


def test_the_options_of_a_question_become_choices_beside_free_text() -> None:
    options: list[JsonValue] = ["MIT", {"value": "apache", "label": "Apache 2.0"}]
    form = form_of(a_job(7, "ask_user", question="Which licence?", options=options), 1)
    choice, answer, words = form.fields
    assert [(option.value, option.label) for option in choice.options or []] == [
        ("MIT", "MIT"),
        ("apache", "Apache 2.0"),
    ]
    assert (choice.type, answer.type, words.type) == ("radio", "textarea", "textarea")
    assert form.description == "Which licence?"


def test_a_question_without_options_is_answered_in_free_text() -> None:
    form = form_of(a_job(7, "ask_user", question="What for?"), 1)
    assert [field.type for field in form.fields] == ["textarea", "textarea"]


def test_the_options_of_a_question_are_suggestions_and_commands_stand_apart() -> None:
    options: list[JsonValue] = ["MIT", {"value": "apache", "label": "Apache 2.0"}]
    held = (
        a_job(6, "write_file", reason="policy", rel_path="a.md"),
        a_job(7, "ask_user", question="What for?"),
        a_job(8, "ask_user", question="Which licence?", options=options),
    )
    step = next_step(Facts(mission=a_mission(status="waiting", outcome=None), held=all_of(*held)))
    assert step.suggestions == ["MIT", "apache"]
    assert step.commands is not None
    assert step.commands[:3] == ["lcp approve 6", "lcp reject 6 --reason TEXT", "lcp answer 7 TEXT"]
    for status in MissionStatus:
        step = next_step(Facts(mission=a_mission(status=status), held=all_of(*held[:2])))
        assert step.suggestions is None, status
        assert step.commands, status
        assert all(command.startswith("lcp ") for command in step.commands), status


FORMS = {
    form["id"]: form
    for example in SEED["examples"]
    for form in example["response"]["content"].get("forms", [])
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_the_reference_is_asked_as_it_is(name: str) -> None:
    """Everything that a form of the reference states is in the response, whole, and it is answered by its own ids."""
    asked = FORMS[name]
    job = a_job(7, "ask_user", **asked)
    response = rendered(job, status="waiting")
    PUBLISHED.validate(response)
    REFERENCE.validate(response)
    form = StructuredResponse.model_validate(response).content.forms[0]  # type: ignore[index]  # one job is held
    assert (form.id, form.submit_label, form.job_id) == (name, asked["submit_label"], 7)
    assert form.description == f"{asked['title']}\n{asked['description']}"
    shown = [field.model_dump(exclude_none=True, exclude={"help_text"}) for field in form.fields]
    assert shown[: len(asked["fields"])] == [{"required": False, **field} for field in asked["fields"]]
    chosen = {field["id"]: field["options"][1]["value"] for field in asked["fields"]}
    several = {field["id"] for field in asked["fields"] if field["type"] == "checkbox"}
    values = {key: [value] if key in several else value for key, value in chosen.items()}
    assert fill_in(fields_of(asked), chosen) == Filled(values)


def test_each_type_of_a_field_keeps_what_it_states() -> None:
    fields: list[JsonValue] = [
        {"id": "answer", "type": "textarea", "label": "A", "placeholder": "in full"},
        {"id": "words", "type": "number", "label": "W", "min": 1, "max": 2000000.5, "default": 3},
        {
            "id": "pick",
            "type": "select",
            "label": "P",
            "options": ["a", "b"],
            "default": "b",
            "required": True,
        },
        {"id": "sure", "type": "checkbox", "label": "S", "default": True},
        {"id": "day", "type": "date", "label": "D", "help": "Any."},
    ]
    form = form_of(a_job(7, "ask_user", question="Which?", fields=fields), 1)
    found = {field.id: field for field in form.fields}
    assert [*found] == ["answer", "words", "pick", "sure", "day", "answer_2", "words_2"]
    assert [field.type for field in form.fields[:5]] == ["textarea", "number", "select", "radio", "text"]
    assert (found["answer"].placeholder, found["pick"].placeholder) == ("in full", None)
    assert (found["words"].min, found["words"].max) == (1, 2000000.5)
    assert [found[name].default for name in ("words", "pick", "sure", "day")] == [3, "b", "yes", None]
    assert found["words"].help_text == "a number from 1 to 2000000.5 (lcp answer 7 --form words=VALUE)"
    assert (form.id, form.submit_label) == ("job_7", "Answer")


def test_two_forms_never_have_one_id() -> None:
    def asked(number: int, name: str) -> JobFact:
        return a_job(number, "ask_user", question="Q", fields=[{"id": "t", "label": "T"}], id=name)

    forms = respond(
        Facts(
            mission=a_mission(), held=all_of(asked(3, "a"), asked(4, "a"), asked(5, "job_3"), asked(6, "b"))
        ),
        a_course(),
    ).content.forms
    assert [form.id for form in forms or ()] == ["job_3", "job_4", "job_5", "b"]


def test_a_job_that_nothing_executes_is_not_offered_for_approval() -> None:
    form = form_of(a_job(7, "frobnicate", reason="no_worker"), 1)
    assert [option.value for option in form.fields[0].options or []] == ["reject", "later"]
    assert "params" not in {field.id for field in form.fields}


def test_a_choice_without_options_cannot_be_built() -> None:
    with pytest.raises(ValidationError, match="a radio needs options; x has none"):
        FormField(id="x", type="radio", label="")


def test_a_milestone_is_the_highest_that_was_passed() -> None:
    passed = [milestone_of(*pair) for pair in ((0, 24), (24, 25), (25, 49), (10, 80), (99, 100), (100, 100))]
    assert passed == [None, "25%", None, "75%", "100%", None]


def test_a_milestone_is_celebrated() -> None:
    response = rendered(course=a_course(50, 40))
    content, meta = response["content"], response["meta"]
    assert isinstance(content, dict)
    assert isinstance(meta, dict)
    assert {"type": "success", "content": "**50%** of the mission is reached."} in (
        content["text_blocks"] or []
    )  # type: ignore[operator]  # a list
    assert meta["emotion"] == "celebratory"


@pytest.mark.parametrize(("status", "outcome", "emotion"), [
    ("completed", "mission_complete", "celebratory"), ("failed", "limit:max_turns", "encouraging"),
    ("failed", "no_progress", "encouraging"), ("failed", "error", "supportive"), ("cancelled", "cancelled", "neutral"),
    ("waiting", None, "supportive"), ("running", None, "informative"),
])  # fmt: skip
def test_the_tone_follows_from_status_and_outcome(status: str, outcome: str | None, emotion: str) -> None:
    assert emotion_of(MissionStatus(status), outcome, None) == emotion


def test_a_mission_that_failed_on_a_limit_names_the_limit_to_raise() -> None:
    content = rendered(status="failed", outcome="limit:max_turns")["content"]
    assert isinstance(content, dict)
    step = content["next_step"]
    assert isinstance(step, dict)
    assert "lcp resume 1 --set limits.max_turns=N" in (step["commands"] or [])  # type: ignore[operator]  # a list
