from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.web.conftest import House


def _ask(house: House, *options: str) -> int:
    """A held question; its id."""
    chosen: JsonValue = [*options] or None
    house.run(
        house.ask(house.job("ask_user", question="Which one?\nSay it.", options=chosen)), house.complete
    )
    return house.engine.jobs(states=["held"])[-1].id


def test_a_question_shows_its_options_to_choose_from(house: House) -> None:
    job_id = _ask(house, "<b>red</b>", "blue")
    for path in (f"/jobs/{job_id}", "/inbox"):
        answer = house.get(path)
        assert "Which one? Say it." in answer.words
        assert "<b>red" not in answer.text
        assert re.findall(r'type="radio" name="option" value="(\d)"', answer.text) == ["1", "2"], path
        assert f'action="/jobs/{job_id}/approve"' not in answer.text


FORM: JsonValue = {"type": "form", "title": "<b>T", "fields": [{"id": "t", "type": "text", "label": "Label"}]}


@pytest.mark.parametrize("is_of_an_earlier_version", [False, True])
def test_the_form_of_another_protocol_is_shown_and_answered(
    house: House, is_of_an_earlier_version: bool
) -> None:
    house.run(house.ask({"kind": "ask_user", "params": FORM}), house.complete)
    (held,) = house.engine.jobs(states=["held"])
    if is_of_an_earlier_version:  # which stored what the planner wrote
        stored = {"now": json.dumps(FORM), "job": held.id}
        with (
            closing(sqlite3.connect(house.engine.instance.url.removeprefix("sqlite:///"))) as database,
            database,
        ):
            database.execute("UPDATE jobs SET params = :now WHERE id = :job", stored)
    for path in ("/inbox", f"/jobs/{held.id}", "/missions/1", "/missions/1/report", "/jobs"):
        answer = house.get(path)
        assert (answer.status, "<b>T" in answer.text, "<b>T" in answer.words) == (200, False, True), path
    assert "Label" in house.get("/inbox").words
    shown = house.shown(f"/jobs/{held.id}", "question")
    entered = {"way": "form", "field.t": "yes", **shown}
    assert "Answered" in house.post(f"/jobs/{held.id}/answer", entered).words


def test_an_option_is_an_answer_and_the_mission_goes_on(house: House) -> None:
    job_id = _ask(house, "2", "1")
    assert "Answered" in house.post(f"/jobs/{job_id}/answer", {"option": "2", "answer": ""}).words
    result = house.engine.job(job_id).result
    assert result is not None
    assert (result["answer"], result["option"]) == ("1", 2)
    house.work()
    assert house.engine.mission(1).status == "completed"


def test_words_of_ones_own_count_before_an_option(house: House) -> None:
    job_id = _ask(house, "red", "blue")
    house.post(f"/jobs/{job_id}/answer", {"option": "1", "answer": "green,\r\nrather"})
    result = house.engine.job(job_id).result
    assert result is not None
    assert (result["answer"], result["option"]) == ("green,\nrather", None)


def test_answering_twice_is_harmless_and_otherwise_a_conflict(house: House) -> None:
    job_id = _ask(house)
    house.post(f"/jobs/{job_id}/answer", {"answer": "yes"})
    assert "Answered. A runner will continue" in house.post(f"/jobs/{job_id}/answer", {"answer": "yes"}).words
    conflict = house.post(f"/jobs/{job_id}/answer", {"answer": "no"})
    assert conflict.status == 409
    assert "has given another answer" in conflict.words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "is blank; a text is expected"),
        ({"answer": " \r\n "}, "is blank; a text is expected"),
        ({"option": "3"}, "has no option 3; its options are 1 to 2"),
        ({"option": "x"}, "an id is a whole number"),
        ({"answer": "x" * 100_001}, "at most 100000 characters"),
    ],
)
def test_an_answer_that_is_none_is_explained_and_decides_nothing(
    house: House, fields: dict[str, str | list[str]], words: str
) -> None:
    job_id = _ask(house, "red", "blue")
    answer = house.post(f"/jobs/{job_id}/answer", fields)
    assert answer.status == 422
    assert words in answer.words
    assert house.engine.job(job_id).state == "held"


def test_a_job_that_asks_nothing_takes_no_answer_and_a_question_no_yes(house: House) -> None:
    job_id = house.hold()
    assert "only questions can be answered" in house.post(f"/jobs/{job_id}/answer", {"answer": "yes"}).words
    question = _ask(house)
    assert "it is answered, not approved" in house.post(f"/jobs/{question}/approve").words
    assert house.engine.job(question).state == "held"


def test_a_person_who_is_the_planner_gets_the_prompt_and_brings_the_reply(house: House) -> None:
    spec: dict[str, JsonValue] = {"goal": "Find <i>out</i>.", "planner": {"type": "human"}}
    mission_id = house.engine.launch(spec, root=house.root).id
    house.work()
    turn = house.engine.jobs(states=["held"])[0].id
    assert "Submit a reply" in house.get("/inbox").words
    page = house.get(f"/jobs/{turn}")
    assert re.search(r'<textarea id="prompt"[^>]* readonly', page.text)
    assert "Find &lt;i&gt;out&lt;/i&gt;." in page.text
    assert "Find <i>out</i>." in house.get(f"/missions/{mission_id}/questions/1/prompt.txt").text
    blank = house.post(f"/jobs/{turn}/answer", {"answer": " "})
    assert (blank.status, f"the reply to job {turn} is blank" in blank.words) == (422, True)
    wrong = house.post(f"/jobs/{turn}/answer", {"answer": "All <done>."})
    assert (wrong.status, "the reply is not valid, and nothing was submitted" in wrong.words) == (422, True)
    assert ">\nAll &lt;done&gt;.</textarea>" in wrong.text
    assert 'name="anyway"' in wrong.text
    assert house.engine.job(turn).state == "held"
    assert "Answered" in house.post(f"/jobs/{turn}/answer", {"answer": json.dumps(house.complete)}).words
    house.work()
    assert house.engine.mission(mission_id).outcome == "mission_complete"


def test_a_reply_that_is_not_valid_is_submitted_when_that_is_meant(house: House) -> None:
    house.engine.launch({"goal": "Find out.", "planner": {"type": "human"}}, root=house.root)
    house.work()
    (turn,) = house.engine.jobs(states=["held"])
    assert "Answered" in house.post(f"/jobs/{turn.id}/answer", {"answer": "no JSON", "anyway": "yes"}).words
    house.work()
    assert house.engine.turns(1)[0]["errors"]


def test_what_is_said_decides_nothing_and_reaches_the_planner(house: House) -> None:
    job_id = house.hold()
    assert "Sent." in house.post(f"/jobs/{job_id}/say", {"words": "not in docs/"}).words
    assert "Sent." in house.post("/missions/1/say", {"words": "and be brief"}).words
    said = [event for event in house.engine.events(1) if event["event"] == "said"]
    assert [(event["job_id"], event["data"]["text"]) for event in said] == [  # type: ignore[call-overload,index]  # objects
        (job_id, "not in docs/"),
        (None, "and be brief"),
    ]
    assert house.engine.job(job_id).state == "held"


def test_to_a_mission_that_has_ended_nothing_is_said_and_the_words_are_kept(house: House) -> None:
    house.run(house.complete)
    answer = house.post("/missions/1/say", {"words": "one more thing"})
    assert answer.status == 409
    assert "continues it" in answer.words
    assert "Say something to the planner" not in house.get("/missions/1").words


@pytest.mark.parametrize("path", ["/missions/1/say", "/jobs/2/say"])
def test_blank_words_are_refused(house: House, path: str) -> None:
    house.hold()
    answer = house.post(path, {"words": "  "})
    assert answer.status == 422
    assert "is blank; a text is expected" in answer.words


FIELDS: list[JsonValue] = [
    {"id": "version", "label": "<b>Version</b>", "required": True, "help": "Three numbers."},
    {"id": "channel", "type": "select", "label": "Channel", "options": ["stable", "beta"], "default": "stable"},
    {"id": "parts", "type": "multi_select", "label": "Parts", "options": ["cli", "web"]},
    {"id": "seats", "type": "number", "label": "Seats", "min": 1, "max": 10},
    {"id": "public", "type": "checkbox", "label": "Public", "default": True},
    {"id": "day", "type": "date", "label": "Day"},
]  # fmt: skip


def _ask_form(house: House) -> int:
    house.run(house.ask(house.job("ask_user", question="What shall it be?", fields=FIELDS)), house.complete)
    return house.engine.jobs(states=["held"])[-1].id


def _result(house: House, job_id: int) -> dict[str, JsonValue]:
    result = house.engine.job(job_id).result
    assert result is not None
    return result


def test_a_form_is_a_form_on_the_page_with_labels_help_and_defaults(house: House) -> None:
    job_id = _ask_form(house)
    for path in (f"/jobs/{job_id}", "/inbox"):
        text = house.get(path).text
        assert "<b>Version" not in text
        assert f'<label for="field-{job_id}-version">' in text
        assert f'aria-describedby="field-{job_id}-version-help"' in text
        assert '<option value="stable" selected>' in text
        assert 'name="field.public" value="yes" checked' in text
        assert 'type="date"' in text


def test_what_is_filled_in_becomes_typed_values(house: House) -> None:
    job_id = _ask_form(house)
    shown = house.shown(f"/jobs/{job_id}", "question")
    sent: dict[str, str | list[str]] = {
        "way": "form", "answer": "soon", "field.version": "2.0", "field.channel": "beta",
        "field.parts": ["cli", "web"], "field.seats": "3", "field.day": "2026-01-31",
    }  # fmt: skip
    assert "Answered" in house.post(f"/jobs/{job_id}/answer", {**sent, **shown}).words
    assert _result(house, job_id)["values"] == {
        "version": "2.0", "channel": "beta", "parts": ["cli", "web"], "seats": 3, "public": False, "day": "2026-01-31",
    }  # fmt: skip
    assert _result(house, job_id)["words"] == "soon"


def test_what_does_not_fit_is_said_beside_its_field_and_all_that_was_typed_stays(house: House) -> None:
    job_id = _ask_form(house)
    sent = {
        "way": "form",
        "answer": "my words",
        "field.seats": "eleven",
        "field.day": "31.1.",
        "field.channel": "beta",
    }
    answer = house.post(f"/jobs/{job_id}/answer", sent)
    assert answer.status == 422
    assert "3 fields of the form cannot be read; nothing was submitted" in answer.words
    assert "Text is required; nothing was entered" in answer.words
    for kept in ('value="eleven"', 'value="31.1."', '<option value="beta" selected>', "my words"):
        assert kept in answer.text
    about = f'aria-describedby="field-{job_id}-seats-help field-{job_id}-seats-fault" aria-invalid="true"'
    assert about in answer.text
    assert 'name="field.public" value="yes" checked' not in answer.text
    assert house.engine.job(job_id).state == "held"


def test_each_type_of_a_field_is_what_it_says_on_the_page(house: House) -> None:
    fields: list[JsonValue] = [
        {
            "id": "notes",
            "type": "textarea",
            "label": "Notes",
            "placeholder": '<in "full">',
            "default": "a\nb",
        },
        {"id": "licence", "type": "radio", "label": "Licence", "options": ["MIT", "GPL"]},
        {"id": "size", "type": "radio", "label": "Size", "options": ["S", "L"], "default": "L"},
        {"id": "seats", "type": "number", "label": "Seats", "min": 1, "max": 2_000_000},
    ]
    question = house.job("ask_user", question="Which?", fields=fields, submit_label="Share <it>")
    house.run(house.ask(question), house.complete)
    (held,) = house.engine.jobs(states=["held"])
    text = house.get(f"/jobs/{held.id}").text
    name = f"field-{held.id}"
    assert f'<textarea id="{name}-notes" name="field.notes" rows="4"' in text
    assert 'placeholder="&lt;in &#34;full&#34;&gt;">\na\nb</textarea>' in text
    assert re.findall(r'type="radio" name="field.licence" value="(\w*)"( checked)?', text) == [
        ("MIT", ""), ("GPL", ""), ("", " checked"),
    ]  # fmt: skip
    assert re.findall(r'type="radio" name="field.size" value="(\w*)"( checked)?', text) == [
        ("S", ""), ("L", " checked"),
    ]  # fmt: skip
    assert 'type="number" step="any" min="1" max="2000000"' in text
    assert f'<p class="dim" id="{name}-seats-help">a number from 1 to 2000000</p>' in text
    assert 'name="way" value="form">Share &lt;it&gt;</button>' in text
    sent: dict[str, str | list[str]] = {
        "way": "form", "field.notes": "one\r\n\r\ntwo", "field.licence": "GPL", "field.size": "S", "field.seats": "2",
    }  # fmt: skip
    house.post(f"/jobs/{held.id}/answer", {**sent, **house.shown(f"/jobs/{held.id}", "question")})
    assert _result(house, held.id)["values"] == {
        "notes": "one\n\ntwo",
        "licence": "GPL",
        "size": "S",
        "seats": 2,
    }


def test_words_alone_answer_a_form_and_an_empty_answer_keeps_what_was_typed(house: House) -> None:
    job_id = _ask_form(house)
    empty = house.post(f"/jobs/{job_id}/answer", {"way": "words", "answer": "", "field.version": "2.0"})
    assert (empty.status, 'value="2.0"' in empty.text) == (422, True)
    house.post(f"/jobs/{job_id}/answer", {"way": "words", "answer": "as you like", "field.version": "2.0"})
    assert _result(house, job_id)["answer"] == "as you like"
    assert "values" not in _result(house, job_id)


def test_an_answer_is_bound_to_the_question_that_was_shown(house: House) -> None:
    job_id = _ask_form(house)
    sent = {"way": "form", "answer": "", "field.version": "2.0", "question": "another"}
    refused = house.post(f"/jobs/{job_id}/answer", sent)
    assert (refused.status, house.engine.job(job_id).state) == (409, "held")
    assert "is not the one that was shown" in refused.words
