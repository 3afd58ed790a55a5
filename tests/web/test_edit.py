from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from lcp_engine.core.safe_text import json_block
from lcp_engine.errors import LcpError
from lcp_engine.web.pages.edit import fields_of, read_fields, read_value
from lcp_engine.workers.registry import BUILT_IN

if TYPE_CHECKING:
    from tests.web.conftest import House


def _form(house: House, job_id: int, **changed: str) -> dict[str, str | list[str]]:
    """What a browser would send of the form, with some params typed anew."""
    text = house.get(f"/jobs/{job_id}/edit").text
    names = dict(re.findall(r'<label for="param-(\d+)"><code>([^<]+)</code>', text))
    values = {
        int(number): unescape(area or line)
        for number, area, line in re.findall(
            r'id="param-(\d+)" name="param.\d+"(?:[^>]*?>\n(.*?)</textarea>|[^>]*? value="([^"]*)")',
            text.replace(' rows="2"', ""), re.DOTALL,
        )
    }  # fmt: skip
    shown = re.search(r'name="shown" value="([^"]+)"', text)
    assert shown
    fields = {
        f"param.{number - 1}": changed.get(names[str(number)], value) for number, value in values.items()
    }
    return {**fields, "shown": unescape(shown[1])}


def test_the_form_has_a_field_for_each_param_those_that_are_given_first(house: House) -> None:
    job_id = house.hold("x.md", "one\ntwo\n")
    text = house.get(f"/jobs/{job_id}/edit").text
    names = re.findall(r"<code>([a-z_]+)</code>", text)
    assert names == ["rel_path", "content", "root", "path", "new_content", "encoding", "mode"]
    assert ">\none\ntwo\n</textarea>" in text


def test_params_that_were_edited_are_what_runs(house: House) -> None:
    job_id = house.hold("x.md", "hello\n")
    form = _form(house, job_id, rel_path="y.md", content="bye\r\n")
    assert "Approved" in house.post(f"/jobs/{job_id}/edit", {**form, "decision": "approve"}).words
    house.work()
    assert (house.root / "y.md").read_text() == "bye\n"
    assert not (house.root / "x.md").exists()


def test_the_diff_of_edited_params_is_shown_before_anything_is_decided(house: House) -> None:
    job_id = house.hold("a.md", "# a\nmore\n")
    form = _form(house, job_id, content="# b\n")
    answer = house.post(f"/jobs/{job_id}/edit", {**form, "decision": "preview"})
    assert "What it would change with these params" in answer.words
    assert "-# a" in answer.words
    assert "+# b" in answer.words
    assert ">\n# b\n</textarea>" in answer.text
    assert house.engine.job(job_id).state == "held"


def test_params_that_were_only_looked_at_are_no_revision(house: House) -> None:
    job_id = house.hold("x.md", " leading\r\nand trailing \u202e\n\n")
    house.post(f"/jobs/{job_id}/edit", {**_form(house, job_id), "decision": "approve"})
    decided = [event["data"] for event in house.engine.events(1) if event["event"] == "decided"]
    assert isinstance(decided[0], dict)
    assert decided[0]["params"] is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rel_path": ""}, "should be text that is not empty"),
        ({"rel_path": "a\tb"}, "holds the control character U+0009"),
        ({"path": "also.md"}, "rel_path and path are both given"),
        ({"mode": "sideways"}, "should be 'overwrite' or 'append'"),
        ({"new_content": "other"}, "are the same field and differ"),
    ],
)
def test_what_does_not_fit_is_explained_beside_its_field_and_nothing_is_lost(
    house: House, changed: dict[str, str], words: str
) -> None:
    job_id = house.hold()
    before = house.engine.job(job_id)
    form = _form(house, job_id, **{"content": "typed with care\n", **changed})
    answer = house.post(f"/jobs/{job_id}/edit", {**form, "decision": "approve"})
    assert answer.status == 422
    assert words in answer.words
    assert 'class="bad error"' in answer.text
    assert ">\ntyped with care\n</textarea>" in answer.text
    assert "nothing was decided" in answer.words
    assert house.engine.job(job_id) == before


def test_a_path_that_policy_denies_stays_denied(house: House) -> None:
    job_id = house.hold()
    form = _form(house, job_id, rel_path=".env")
    answer = house.post(f"/jobs/{job_id}/edit", {**form, "decision": "approve"})
    assert answer.status == 422
    assert "may not run" in answer.words
    assert 'value=".env"' in answer.text
    assert house.engine.job(job_id).state == "held"


def test_a_file_that_changed_while_the_person_edited_is_shown_anew(house: House) -> None:
    job_id = house.hold("a.md", "mine\n")
    form = _form(house, job_id, content="edited\n")
    (house.root / "a.md").write_text("somebody was faster\n")
    answer = house.post(f"/jobs/{job_id}/edit", {**form, "decision": "approve"})
    assert answer.status == 409
    assert "-somebody was faster" in answer.words
    assert ">\nedited\n</textarea>" in answer.text
    assert house.engine.job(job_id).state == "held"


def test_only_a_job_that_waits_for_a_yes_is_edited(house: House) -> None:
    job_id = house.hold()
    house.engine.reject(job_id, "no")
    answer = house.get(f"/jobs/{job_id}/edit")
    assert answer.status == 409
    assert "is rejected; only held jobs can be edited" in answer.words
    house.run(house.ask(house.job("ask_user", question="Which?")), house.complete)
    question = house.engine.jobs(states=["held"])[-1].id
    assert house.get(f"/jobs/{question}/edit").status == 409
    assert house.post(f"/jobs/{question}/edit").status == 409


def test_what_is_not_text_is_typed_as_json() -> None:
    model = BUILT_IN["list_files"].params
    fields = fields_of(model, {"patterns": ["*.md"]})
    assert (fields[0].name, fields[0].raw) == ("patterns", False)
    params, fields, is_sound = read_fields(model, fields)
    assert (params, is_sound) == ({"patterns": ["*.md"]}, True)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1,}', '{"a": 1, "a": 2}', '{"a": NaN}', "{} {}", "1 2", "{'a': 1}"]
)
def test_what_is_no_json_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(LcpError, match="JSON"):
        read_value(text)


def test_params_as_they_are_shown_read_as_what_they_are() -> None:
    params = {"text": "a\u202e\x7f\x9b\u2028\U0001f600 ü\n", "list": [1, 2.5, None, True]}
    assert read_value(json_block(params)) == params
    for value in (True, None, 3, "x", [1]):
        assert read_value(f" {json_block(value)}\n") == value
