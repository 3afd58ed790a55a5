"""A person lets jobs like a held one run from now on, and takes that back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.web.conftest import House


def _rules(house: House, mission_id: int = 1) -> list[str]:
    return [str(rule) for rule in house.engine.rules(mission_id)]


def _hold_three(house: House) -> None:
    jobs = [
        house.job("write_file", rel_path=path, content="x\n") for path in ("docs/a.md", "docs/b.md", "c.md")
    ]
    house.run(house.ask(*jobs), house.complete)


def _always(house: House, job_id: int, **fields: str | list[str]) -> tuple[int, str]:
    page = house.post(f"/jobs/{job_id}/always", {**house.shown(f"/jobs/{job_id}"), **fields})
    return page.status, page.words


def test_the_form_shows_the_narrowest_rule_and_the_directory(house: House) -> None:
    _hold_three(house)
    page = house.get("/jobs/2")
    assert "The rule: write_file jobs of these paths run without asking /docs/a.md" in page.words
    assert "Its directory is /docs/ ." in page.words
    assert 'href="/jobs/2#always"' in house.get("/inbox").text


def test_a_rule_approves_the_job_and_others_like_it_and_is_taken_back(house: House) -> None:
    _hold_three(house)
    status, words = _always(house, 2, paths="/docs/", scope="mission")
    assert (status, "such jobs run without asking from now on" in words) == (200, True)
    assert [house.engine.job(job).state for job in (2, 3, 4)] == ["queued", "queued", "held"]
    assert _rules(house) == ["write_file /docs/"]

    page = house.get("/missions/1")
    assert "Rules of this mission (1) write_file /docs/ runs without asking" in page.words
    removal = house.post("/missions/1/rules/1/remove", house.shown("/missions/1", "rule"))
    assert "The rule was removed" in removal.words
    assert _rules(house) == []
    assert "Rules of this mission" not in house.get("/missions/1").words


def test_a_rule_for_all_missions_is_in_the_configuration(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", os.fspath(tmp_path))
    _hold_three(house)
    assert _always(house, 4, paths="/c.md\n/d.md", scope="user")[0] == 200
    assert _rules(house) == ["write_file /c.md /d.md"]
    written = (tmp_path / "lcp-engine" / "config.yaml").read_text()
    assert written == "policy:\n  - {kinds: [write_file], paths: [/c.md, /d.md], do: auto}\n"


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"paths": "", "scope": "mission"}, 422, "enter the paths that such jobs may have"),
        ({"paths": "\n \n", "scope": "mission"}, 422, "enter the paths that such jobs may have"),
        ({"paths": "/other.md", "scope": "mission"}, 409, "would not let write_file jobs like this one run"),
        (
            {"paths": "!/docs/a.md", "scope": "mission"},
            409,
            "would not let write_file jobs like this one run",
        ),
        ({"paths": "/docs/a.md", "scope": "world"}, 422, "'world' is neither mission nor user"),
        ({"paths": "x" * 2000, "scope": "mission"}, 422, "1024"),
        ({"paths": "\u202e\0", "scope": "mission"}, 422, "holds a control character"),
        ({"paths": "/docs/\n" * 300, "scope": "mission"}, 422, "256"),
    ],
    ids=["empty", "blank", "another path", "negative", "scope", "long", "control", "many"],
)
def test_a_rule_that_cannot_be_is_refused_and_stays_typed(
    house: House, fields: dict[str, str | list[str]], status: int, expected: str
) -> None:
    _hold_three(house)
    got, words = _always(house, 2, **fields)
    assert (got, expected in words) == (status, True), words[:2000]
    assert (house.engine.job(2).state, _rules(house)) == ("held", [])
    typed = str(fields["paths"]).strip()
    assert not typed or "\u202e" in typed or typed.split("\n")[0] in words


def test_a_rule_is_bound_to_what_the_page_showed(house: House) -> None:
    job_id = house.hold("a.md", "# b\n")
    shown = house.shown(f"/jobs/{job_id}")
    (house.root / "a.md").write_text("somebody else's\n")
    page = house.post(f"/jobs/{job_id}/always", {**shown, "paths": "/a.md", "scope": "mission"})
    assert (page.status, "Nothing was decided" in page.words) == (409, True)
    assert (house.engine.job(job_id).state, _rules(house)) == ("held", [])
    without = house.post(f"/jobs/{job_id}/always", {"paths": "/a.md", "scope": "mission"})
    assert without.status == 409
    assert (house.engine.job(job_id).state, _rules(house)) == ("held", [])


def test_what_no_rule_can_let_run_has_no_form(house: House) -> None:
    house.run(house.ask(house.job("ask_user", question="Which?")), house.complete)
    assert "let such jobs run" not in house.get("/jobs/2").words
    page = house.post("/jobs/2/always", {"paths": "/a.md", "scope": "mission"})
    assert (page.status, "no rule can let jobs like job 2 run" in page.words) == (403, True)


def test_a_rule_that_holds_is_listed_and_not_removed(house: House) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "do": "hold"}
    house.run(house.ask(house.job("write_file", rel_path="x.md", content="x")), policy=[rule])
    assert "write_file waits for a person" in house.get("/missions/1").words
    page = house.post("/missions/1/rules/1/remove", {"rule": '{"kinds":["write_file"],"do":"hold"}'})
    assert (page.status, "only a rule that says auto can be removed" in page.words) == (409, True)


@pytest.mark.parametrize("place", ["0", "7"])
def test_a_rule_that_is_not_the_one_that_was_shown_stays(house: House, place: str) -> None:
    _hold_three(house)
    _always(house, 2, paths="/docs/a.md", scope="mission")
    page = house.post(f"/missions/1/rules/{place}/remove", house.shown("/missions/1", "rule"))
    assert (page.status, "is another one by now; nothing was removed" in page.words) == (409, True)
    assert _rules(house) == ["write_file /docs/a.md"]


def test_a_form_without_the_token_adds_no_rule(house: House) -> None:
    _hold_three(house)
    fields = {"csrf": "x", **house.shown("/jobs/2"), "paths": "/docs/mine/", "scope": "mission"}
    page = house.post("/jobs/2/always", fields)
    assert (page.status, "/docs/mine/" in page.words) == (403, True)
    assert _rules(house) == []
