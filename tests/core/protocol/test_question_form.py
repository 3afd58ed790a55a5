"""The fields of a form: what a planner may ask for, and what a person's entries are read as."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.tables import table

from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.question_form import Filled, Unfilled, as_words, fill_in
from lcp_engine.core.protocol.read_reply import read_reply
from lcp_engine.workers.ask_user import AskUserParams, fields_of

if TYPE_CHECKING:
    from pydantic import JsonValue

Object = dict[str, "JsonValue"]
FIELDS: list[JsonValue] = [
    {"id": "version", "type": "text", "label": "Version", "required": True, "help": "Three numbers."},
    {"id": "notes", "type": "textarea", "label": "Notes"},
    {"id": "licence", "type": "radio", "label": "Licence", "options": ["MIT", "GPL"]},
    {"id": "channel", "type": "select", "label": "Channel", "options": ["stable", {"value": "beta", "label": "Beta 1"}],
     "default": "stable"},
    {"id": "parts", "type": "multi_select", "label": "Parts", "options": ["cli", "web", "docs"]},
    {"id": "seats", "type": "number", "label": "Seats", "min": 1, "max": 10},
    {"id": "public", "type": "checkbox", "label": "Public"},
    {"id": "day", "type": "date", "label": "Day"},
]  # fmt: skip
FORM: Object = {"question": "What shall it be?", "fields": FIELDS}


def errors(**params: JsonValue) -> dict[str, str]:
    """What is wrong with these params of a question, by the path."""
    job: JsonValue = {"kind": "ask_user", "params": params}
    reply = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [job]})
    action = read_reply(reply, {"ask_user": AskUserParams})
    return {error.path: error.message for error in action.errors} if isinstance(action, Malformed) else {}


def field(**stated: JsonValue) -> dict[str, str]:
    """What is wrong with the second field of a form."""
    first: JsonValue = {"id": "a", "label": "A"}
    whole: JsonValue = {"id": "b", "label": "B", **stated}
    return errors(question="Which?", fields=[first, whole])


def test_a_form_with_every_type_is_valid() -> None:
    assert errors(**FORM) == {}
    assert errors(question="Which?", options=["a"]) == {}


PLACE = "new_jobs[0].params.fields[1]"


@table(
    ("stated", "path", "said"),
    [
        ({"type": "select"}, ".options", "a select needs options"),
        ({"type": "multi_select", "options": []}, ".options", "a multi_select needs options"),
        (
            {"type": "text", "options": ["x"]},
            ".options",
            "options belong to select, radio and multi_select, not to text",
        ),
        ({"type": "select", "options": ["x", "x"]}, ".options", "the option 'x' is there twice"),
        ({"type": "text", "min": 1}, ".min", "min belongs to number, not to text"),
        ({"type": "number", "min": 3, "max": 1}, ".max", "max is a number, not below min"),
        ({"type": "number", "default": "many"}, "", "the default of b: a number is expected; found 'many'"),
        (
            {"type": "number", "max": 3, "default": 4},
            "",
            "the default of b: a number to 3 is expected; found 4",
        ),
        ({"type": "date", "default": "31.1.2026"}, "", "a date such as 2026-01-31 is expected"),
        ({"type": "select", "options": ["x"], "default": "y"}, "", "'y' is not one of the options"),
        ({"type": "colour"}, ".type", "type is 'text', 'textarea', 'number'"),
        ({"type": "radio"}, ".options", "a radio needs options"),
        (
            {"type": "number", "min": 1_234_567, "default": 1},
            "",
            "a number from 1234567 is expected; found 1",
        ),
        ({"id": "B 2"}, ".id", "id"),
        ({"label": ""}, ".label", "label is not empty"),
        ({"lable": "x"}, ".lable", "lable"),
    ],
)
def test_a_field_that_cannot_be_asked_is_named_with_its_place(stated: Object, path: str, said: str) -> None:
    found = field(**stated)
    assert said in found[f"{PLACE}{path}"]


def test_each_field_has_an_id_of_its_own() -> None:
    assert field(id="a") == {
        "new_jobs[0].params.fields": "the id 'a' is that of fields[0] and of fields[1]; each has its own"
    }


def test_a_question_has_options_or_fields() -> None:
    assert "both given" in errors(**FORM, options=["a"])["new_jobs[0].params"]
    assert "new_jobs[0].params.fields" in errors(question="Which?", fields=[])
    many: list[JsonValue] = [{"id": f"f{n}", "label": "x"} for n in range(21)]
    assert "new_jobs[0].params.fields" in errors(question="Which?", fields=many)


def test_a_form_of_seed_004_is_read() -> None:
    legacy: Object = {
        "type": "form",
        "title": "Feedback",
        "description": "It helps.",
        "optional": True,
        "submit_label": "Send",
        "id": "Feedback-1",
        "fields": [
            {"id": "level", "type": "radio", "label": "Level", "options": [{"value": "a", "label": "All"}]},
            {"id": "seen", "type": "checkbox", "label": "Seen", "options": [{"value": "x", "label": "X"}]},
            {"id": "more", "type": "textarea", "label": "More", "placeholder": "…", "help_text": "In full."},
        ],
    }
    assert errors(**legacy) == {}
    asked = AskUserParams.model_validate(legacy)
    assert (asked.question, asked.submit_label, asked.id) == ("Feedback\nIt helps.", "Send", "Feedback-1")
    fields = fields_of(legacy)
    assert [one.type for one in fields] == ["radio", "multi_select", "textarea"]
    assert (fields[2].help, fields[2].placeholder) == ("In full.", "…")
    bare = {key: part for key, part in legacy.items() if key != "type"}
    assert AskUserParams.model_validate(bare) == asked
    empty: Object = {"submit_label": "", "id": ""}
    assert errors(**{**legacy, **empty}) == {}
    assert "submit_label" in next(iter(errors(**{**legacy, "submit_label": "a\nb"})))


def test_what_a_person_types_becomes_values() -> None:
    typed: Object = {
        "version": " 2.0 ", "notes": "one\n\ntwo\n", "licence": "mit", "channel": "beta 1", "parts": ["cli", "WEB"],
        "seats": "3", "public": "yes", "day": "2026-01-31",
    }  # fmt: skip
    read = fill_in(fields_of(FORM), typed)
    assert isinstance(read, Filled)
    assert read.values == {
        "version": "2.0", "notes": "one\n\ntwo", "licence": "MIT", "channel": "beta", "parts": ["cli", "web"],
        "seats": 3, "public": True, "day": "2026-01-31",
    }  # fmt: skip
    again = fill_in(fields_of(FORM), read.values)
    assert again == read
    assert as_words(fields_of(FORM), read.values) == (
        "Version: 2.0\nNotes: one\n\ntwo\nLicence: MIT\n"
        "Channel: Beta 1\nParts: cli, web\nSeats: 3\nPublic: yes\nDay: 2026-01-31"
    )


def test_what_is_left_out_has_its_default_or_no_value() -> None:
    read = fill_in(fields_of(FORM), {"version": "2", "seats": "", "parts": []})
    assert read == Filled({"version": "2", "channel": "stable"})


@table(
    ("name", "entered", "said"),
    [
        ("version", "  ", "text is required; nothing was entered"),
        ("version", 2, "text is expected; found 2"),
        ("version", "x" * 10_001, "at most 10,000 characters"),
        ("channel", "bet", "'bet' is not one of the options; did you mean 'beta'?"),
        ("licence", "BSD", "'BSD' is not one of the options; known: GPL, MIT"),
        ("notes", 2, "text is expected; found 2"),
        ("parts", ["cli", "man"], "'man' is not one of the options; known: cli, docs, web"),
        ("seats", "eleven", "a number from 1 to 10 is expected; found 'eleven'"),
        ("seats", "11", "a number from 1 to 10 is expected; found '11'"),
        ("seats", "nan", "a number from 1 to 10 is expected; found 'nan'"),
        ("seats", True, "a number from 1 to 10 is expected; found True"),
        ("public", "perhaps", "yes or no is expected; found 'perhaps'"),
        ("public", [], None),
        ("day", "2026-02-30", "a date such as 2026-01-31 is expected; found '2026-02-30'"),
        ("day", "20260131", "a date such as 2026-01-31 is expected"),
        ("dya", "2026-01-31", "the form has no such field; did you mean 'day'?"),
    ],
)
def test_what_does_not_fit_is_named_by_its_field(name: str, entered: JsonValue, said: str | None) -> None:
    read = fill_in(fields_of(FORM), {"version": "1", name: entered})
    if said is None:
        assert isinstance(read, Filled)
        return
    assert isinstance(read, Unfilled)
    assert [problem.path for problem in read.problems] == [name]
    assert said in read.problems[0].message
