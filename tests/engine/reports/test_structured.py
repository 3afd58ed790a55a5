"""A structured response is what its published schema says, and offers each thing that waits as a form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import JsonValue, ValidationError
from tests.engine.reports.facts import a_job, a_mission, all_of

from lcp_engine.core.progress import milestone_of
from lcp_engine.engine.reports.structured import (
    FormField,
    StructuredResponse,
    emotion_of,
    form_of,
    respond,
)
from lcp_engine.store.queries.mission_facts import Course, Facts, JobFact
from lcp_engine.store.queries.records import MissionStatus

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
    assert "lcp resume 1 --set limits.max_turns=N" in (step["suggestions"] or [])  # type: ignore[operator]  # a list
