"""A planner finds what the user has set for it, and what earlier processes found out about its endpoint."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python
from tests.tables import table

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.openai_chat import OpenAIChat
from lcp_engine.features.models.factories import openai_planner
from lcp_engine.features.models.options import OpenAIOptions
from lcp_engine.features.models.planner import ModelPlanner
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step, probe_text, read_probe
from lcp_engine.features.models.store import PROBE_LIFETIME, StoredProbeCache, newest_probes
from lcp_engine.planners.base import Question
from lcp_engine.planners.environment import MemoryProbeCache, PlannerEnvironment
from lcp_engine.planners.registry import make_planner
from lcp_engine.store.db.open import open_database

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer, Play

ACTION = '{"ok": true, "action": "mission_complete", "summary": "done"}'
QUESTION = Question(1, 1, 1, "goal", "/", "goal")
LADDER = OpenAIChat.ladder


def new_process(faults: FaultServer, kept: MemoryProbeCache) -> ModelPlanner:
    """A planner that remembers nothing but what is kept."""
    options = OpenAIOptions(base_url=faults.url, model="tiny", context_tokens=4096)
    made = openai_planner(options, {}, PlannerEnvironment(probes=kept))
    return replace(made, answering=replace(made.answering, memory=MemoryProbeCache()))


def test_a_new_process_starts_at_the_rung_that_was_found(faults: FaultServer) -> None:
    kept = MemoryProbeCache()
    faults.play(*[faults.refuses(400)] * 3, faults.says(ACTION))
    new_process(faults, kept).answer(QUESTION)
    assert json.loads(kept.everything()[faults.url, "tiny"]) == {
        "rung": "json_object", "in_envelope": False, "without": [],
    }  # fmt: skip
    assert new_process(faults, kept).answer(QUESTION).text == ACTION
    assert faults.rungs() == ["json_schema"] * 2 + ["json_object"] * 3


def test_what_does_not_hold_twice_in_a_row_is_forgotten(faults: FaultServer) -> None:
    kept = MemoryProbeCache()
    kept.store(faults.url, "tiny", probe_text(Probe(faults.url, "tiny", LADDER[3])))
    planner = new_process(faults, kept)
    refused: list[Play] = [faults.refuses(400), faults.says(ACTION)]
    faults.play(*refused, faults.says(ACTION), *refused, *refused, faults.says(ACTION))
    for _ in range(4):
        planner.answer(QUESTION)
    assert not kept.everything()
    planner.answer(QUESTION)
    assert faults.rungs() == [
        "json_object",
        "None",
        "json_object",
        *["json_object", "None"] * 2,
        "json_schema",
    ]
    assert kept.everything(), "the ladder was climbed down anew"


def test_where_nothing_below_holds_the_ladder_is_tried_from_the_top(faults: FaultServer) -> None:
    kept = MemoryProbeCache()
    kept.store(faults.url, "tiny", probe_text(Probe(faults.url, "tiny", LADDER[-1])))
    faults.play(faults.refuses(400), faults.says(ACTION))
    assert new_process(faults, kept).answer(QUESTION).text == ACTION
    assert faults.rungs() == ["None", "json_schema"]
    assert json.loads(kept.everything()[faults.url, "tiny"])["rung"] == "json_schema"


def test_a_server_that_refuses_everything_is_not_asked_for_ever(faults: FaultServer) -> None:
    kept = MemoryProbeCache()
    kept.store(faults.url, "tiny", probe_text(Probe(faults.url, "tiny", LADDER[-1])))
    faults.play(faults.refuses(400))
    with pytest.raises(LcpError):
        new_process(faults, kept).answer(QUESTION)
    assert faults.rungs() == ["None", *["json_schema"] * 2, *["json_object"] * 2, *["None"] * 5]
    assert faults.requests[-1].body.keys() == {"model", "messages"}, "everything was given up"


def test_a_probe_is_read_as_it_was_written() -> None:
    probe = Probe(
        "http://e", "m", Step(Rung.JSON_SCHEMA, in_envelope=True), frozenset({"seed"}), is_found=True
    )
    assert read_probe("http://e", "m", probe_text(probe), LADDER) == probe


@table(
    "text",
    ["", "[]", '{"rung": "tower"}', '{"rung": "json_object", "in_envelope": true, "without": []}'],
    ids=["nothing", "a list", "no rung", "no step of this ladder"],
)
def test_what_is_no_probe_counts_as_none(text: str) -> None:
    assert read_probe("http://e", "m", text, LADDER) is None


def test_probes_are_stored_for_some_days(database_url: str) -> None:
    now = [1_000_000 * SECOND]
    database = open_database(database_url, lambda: now[0])
    try:
        probes = StoredProbeCache(database)
        probes.store("http://e", "m", "first")
        probes.store("http://e", "m", "second")
        assert probes.find("http://e", "m") == "second"
        assert probes.find("http://e", "other") is None
        now[0] += 1
        probes.store("http://e", "other", "newer")
        assert database.read(lambda tx: newest_probes(tx, 9)) == [
            ("http://e", "other", "newer"), ("http://e", "m", "second")
        ]  # fmt: skip
        assert len(database.read(lambda tx: newest_probes(tx, 1))) == 1
        now[0] -= 1
        now[0] += PROBE_LIFETIME + 1
        assert probes.find("http://e", "m") is None
        probes.store("http://e", "m", "third")
        probes.forget("http://e", "m")
        assert probes.find("http://e", "m") is None
    finally:
        database.close()


def test_a_runner_starts_at_the_rung_that_another_process_found(
    faults: FaultServer, database_url: str, tmp_path: Path
) -> None:
    faults.play(*[faults.refuses(400)] * 2, faults.says(ACTION))
    spec: dict[str, JsonValue] = {"goal": "g", "planner": {"type": "openai"}}
    options: dict[str, JsonValue] = {"base_url": faults.url, "model": "tiny"}
    with Engine(database_url, planners={"openai": options}) as engine:
        engine.launch(spec, root=tmp_path)
        engine.work(until_idle=True)
        second = engine.launch(spec, root=tmp_path).id
        asked = len(faults.requests)
        _work_in_a_process(database_url, tmp_path, options)
        assert engine.mission(second).status == "completed"
    assert faults.rungs()[asked:] == ["json_object"]


def _work_in_a_process(database_url: str, place: Path, options: dict[str, JsonValue]) -> None:
    home = place / "home" / "lcp-engine"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(json.dumps({"planners": {"openai": options}}))
    command = ("-m", "lcp_engine", "--db", database_url, "work", "--until-idle")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home.parent)}
    assert Python(*command, env=environment).wait(timeout=60) == 0


WRONG: list[tuple[dict[str, JsonValue], ErrorCode, str]] = [
    ({"modle": "x"}, ErrorCode.INVALID_ARGUMENT, "planners in the configuration: modle: is not an option"),
    ({"base_url": "http://u:pw@h"}, ErrorCode.INVALID_ARGUMENT, "without credentials"),
]


@pytest.mark.parametrize(("options", "code", "said"), WRONG, ids=["unknown", "with a password"])
def test_what_the_user_set_wrongly_is_said_at_launch(
    options: dict[str, JsonValue], code: ErrorCode, said: str
) -> None:
    with pytest.raises(LcpError) as refused:
        make_planner(PlannerSpec(type="openai"), PlannerEnvironment({"openai": options}))
    assert (refused.value.code, said in str(refused.value)) == (code, True)


def test_a_planner_of_any_kind_takes_what_the_mission_leaves_open() -> None:
    user: dict[str, dict[str, JsonValue]] = {"script": {"replies": ["from the user"]}}

    def ask(spec: PlannerSpec) -> str:
        return make_planner(spec, PlannerEnvironment(user)).answer(QUESTION).text

    assert ask(PlannerSpec(type="script")) == "from the user"
    mine = PlannerSpec.model_validate({"type": "script", "replies": ["from the mission"]})
    assert ask(mine) == "from the mission"


def test_a_penalty_on_repeating_is_sent_and_left_out_where_it_is_refused(faults: FaultServer) -> None:
    options = OpenAIOptions(base_url=faults.url, model="tiny", context_tokens=4096, repeat_penalty=1.2)
    planner = openai_planner(options, {})
    planner = replace(planner, answering=replace(planner.answering, memory=MemoryProbeCache()))
    faults.play(
        faults.refuses(400, "Unrecognized request argument supplied: repeat_penalty"), faults.says(ACTION)
    )
    assert planner.answer(QUESTION).text == ACTION
    assert [request.body.get("repeat_penalty") for request in faults.requests] == [1.2, None]
    assert faults.rungs() == ["json_schema"] * 2
