"""The kinds of jobs on the page: the same as `lcp kinds` says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel, JsonValue
from starlette.testclient import TestClient
from tests.web.conftest import ADDRESS, HOME, House
from tests.web.test_pages import HOSTILE, SHOWN

from lcp_engine.api.engine import Engine
from lcp_engine.features.authoring.describe_kinds import describe
from lcp_engine.features.programs.servers.external_worker import kinds_in, program_of
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates
from lcp_engine.workers.base import Worker
from lcp_engine.workers.registry import BUILT_IN

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A page over an engine with a kind of a program that says odd things of itself."""
    (tmp_path / "root").mkdir()
    keys = Secrets()
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", workers=[odd(tmp_path)]) as engine:
        app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
        with TestClient(app, base_url=HOME) as browser:
            assert browser.get("/", params={"token": keys.token}).status_code == 200
            yield House(engine, tmp_path / "root", app, keys, browser)


def odd(place: Path) -> Worker[BaseModel]:
    program = place / "odd.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    properties: JsonValue = {"word": {"type": "string", "description": HOSTILE}, "how": {"enum": ["a", 2]}}
    stated: dict[str, JsonValue] = {
        "command": "./odd.sh",
        "description": HOSTILE,
        "params": {"type": "object", "properties": properties, "required": ["word"]},
        "needs": {"root": True, "network": True, "environment": ["API_KEY"]},
        "examples": [{"params": {"word": HOSTILE}}],
        "concurrency": 2,
    }
    (worker,) = kinds_in({"odd.kind": stated}, place)
    stated_program = program_of(worker)
    assert stated_program is not None
    return replace(worker, execution=replace(stated_program, claims="changes nothing"))


def test_every_kind_has_a_line_and_a_page(house: House) -> None:
    words = house.get("/kinds").words
    for kind, worker in house.engine.workers.items():
        assert kind in words
        answer = house.get(f"/kinds/{kind}")
        assert answer.status == 200
        assert worker.role.value in answer.words
        for name in worker.params.model_fields:
            assert name in answer.words
        assert json.loads(house.get(f"/kinds/{kind}/json").text) == describe(worker)
    assert "held" in words


def test_a_kind_shows_what_it_states_and_trusts_nothing_that_a_server_says(house: House) -> None:
    answer = house.get("/kinds/odd.kind")
    for said in (
        f"odd.kind kind of job {SHOWN}",
        "has effects",
        "held for a person",
        "by a program, confined",
        "for each job, at most 2 at once",
        "the root, which it may not change; network; the environment variables API_KEY",
        "changes nothing Nothing of it is trusted.",
        f"word string yes {SHOWN}",
        'how "a" or 2 no',
    ):
        assert said in answer.words
    assert "<script>alert" not in answer.text
    assert "An attempt takes at most 1 min" in answer.words
    assert "Result Any." in answer.words


def test_a_job_links_to_its_kind_unless_no_worker_executes_it(house: House) -> None:
    house.run(house.ask(house.job("list_files"), house.job("nowhere")), house.complete)
    assert '<a href="/kinds/list_files">list_files</a>' in house.get("/jobs/2").text
    assert "/kinds/nowhere" not in house.get("/jobs/3").text
    assert 'href="/kinds"' in house.get("/jobs").text


@pytest.mark.parametrize("path", ["/kinds/read_fil", "/kinds/read_fil/json"])
def test_a_kind_that_is_not_installed_is_said_to_be(house: House, path: str) -> None:
    answer = house.get(path)
    assert answer.status == 404
    assert "kind 'read_fil' is not installed; did you mean" in answer.words
    assert "read_file" in answer.words
    assert set(BUILT_IN) < set(house.engine.workers)
