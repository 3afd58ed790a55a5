"""A planner is found by its name and made with its options."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.limits.permits import Limit
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import added
from lcp_engine.features.surveyor import FEATURE
from lcp_engine.features.surveyor.planner import Surveyor
from lcp_engine.planners import registry
from lcp_engine.planners.base import Question, Reply
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, PlannerEnvironment
from lcp_engine.planners.registry import (
    endpoint_limit,
    make_planner,
    own_planners,
    planner_names,
    usual_planner,
)
from lcp_engine.planners.simple import ScriptPlanner

REPOSITORY = Path(__file__).parents[2]


def spec(**keys: JsonValue) -> PlannerSpec:
    return PlannerSpec.model_validate(keys)


def question(number: int) -> Question:
    return Question(1, number, number, "goal", "/", "goal")


class TestScript:
    REPLIES: tuple[dict[str, JsonValue] | str, ...] = ({"ok": True, "action": "é"}, "raw {text", "")

    @table(("number", "text"), [(1, '{"ok": true, "action": "é"}'), (2, "raw {text"), (3, "")])
    def test_reply_n_belongs_to_question_n(self, number: int, text: str) -> None:
        script = ScriptPlanner(self.REPLIES)
        assert script.answer(question(number)) == Reply(text)
        assert script.answer(question(number)) == Reply(text), "a retry gets the same"

    def test_a_script_that_has_run_out_answers_with_an_error(self) -> None:
        assert json.loads(ScriptPlanner(self.REPLIES).answer(question(4)).text) == {
            "ok": False,
            "action": "error",
            "error": "the script has 3 replies, question 4 has none",
            "error_code": "SCRIPT_EXHAUSTED",
        }

    def test_keys_of_replies_are_kept_as_they_are(self) -> None:
        script = make_planner(spec(type="script", replies=[{"b": 1, "a": [None, 1.5]}]))
        assert script.answer(question(1)).text == '{"b": 1, "a": [null, 1.5]}'


class Mine:
    def __init__(self, *, word: str = "hi") -> None:
        self.word = word

    def answer(self, question: Question, /) -> Reply:
        return Reply(self.word)


@table(
    ("given", "stated", "said"),
    [
        (Mine(), spec(type="mine"), "hi"),
        (Mine, spec(type="mine", word="ho"), "ho"),
        (lambda: Mine(word="he"), spec(type="mine"), "he"),
    ],
)
def test_a_program_gives_planners(given: object, stated: PlannerSpec, said: str) -> None:
    environment = PlannerEnvironment(own=own_planners({"mine": given}))
    assert make_planner(stated, environment).answer(question(1)) == Reply(said)


def test_a_planner_that_is_made_takes_no_options() -> None:
    environment = PlannerEnvironment(own=own_planners({"mine": Mine()}))
    with pytest.raises(LcpError, match=r"planner\.word: is not an option of 'mine'") as refused:
        make_planner(spec(type="mine", word="ho"), environment)
    assert refused.value.code is ErrorCode.INVALID_MISSION


@table(
    ("name", "given", "fact"),
    [("openai", Mine(), "'openai' is the name of a planner of lcp-engine"), ("mine", 3, "it is int")],
)
def test_what_is_no_planner_is_refused(name: str, given: object, fact: str) -> None:
    with pytest.raises(LcpError, match=fact) as refused:
        own_planners({name: given})
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


WRONG = [
    (spec(type="surveyer"), ErrorCode.NO_PLANNER, "no planner is named 'surveyer'; did you mean 'surveyor'?"),
    (spec(type="qqq"), ErrorCode.NO_PLANNER, "no planner is named 'qqq'; known: "),
    (
        spec(type="surveyor", max_read=3),
        ErrorCode.INVALID_MISSION,
        "planner.max_read: is not an option of 'surveyor'",
    ),
    (spec(type="surveyor", max_read=3), ErrorCode.INVALID_MISSION, "did you mean 'max_reads'?"),
    (
        spec(type="surveyor", max_reads="x"),
        ErrorCode.INVALID_MISSION,
        'planner.max_reads: should be a whole number, not "x"',
    ),
    (spec(type="script"), ErrorCode.INVALID_MISSION, "planner.replies: is required by 'script' and missing"),
    (spec(type="script", replies="x"), ErrorCode.INVALID_MISSION, "planner.replies: should be a list, not"),
    (spec(type="script", replies=5), ErrorCode.INVALID_MISSION, "planner.replies: should be a list, not 5"),
    (spec(type="script", replies=[1]), ErrorCode.INVALID_MISSION, "planner.replies.0"),
    (spec(type="gone"), ErrorCode.NO_PLANNER, "planner 'gone': nowhere:Planner cannot be imported"),
    (spec(type="flat"), ErrorCode.NO_PLANNER, "planner 'flat': sys:maxsize should be callable, it is a int"),
    (spec(type="picky"), ErrorCode.INVALID_MISSION, "planner 'picky': needs a key"),
    (spec(type="odd"), ErrorCode.NO_PLANNER, "planner 'odd': RuntimeError: no key"),
    (spec(type="clear"), ErrorCode.PLANNER_FAILED, "the model is away"),
    (
        spec(type="broken"),
        ErrorCode.NO_PLANNER,
        "planner 'broken': broken_plug_in:It cannot be imported: RuntimeE",
    ),
]


class Echo:
    def __init__(self, *, key: str = "", **more: JsonValue) -> None:
        if not key:
            raise ValueError("needs a key")
        self.said = f"{key} {more}"

    def answer(self, question: Question, /) -> Reply:
        return Reply(self.said)


def odd() -> Echo:
    raise RuntimeError("no key")


def clear() -> Echo:
    raise LcpError(ErrorCode.PLANNER_FAILED, "the model is away")


@pytest.fixture(autouse=True)
def _plug_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Entry points as an installed package would bring them."""
    (tmp_path / "broken_plug_in.py").write_text("raise RuntimeError('not here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "plug_in_of_a_test", sys.modules[__name__])
    targets = {
        "gone": "nowhere:Planner", "flat": "sys:maxsize", "picky": "plug_in_of_a_test:Echo", "script": "sys:maxsize",
        "odd": "plug_in_of_a_test:odd", "clear": "plug_in_of_a_test:clear", "broken": "broken_plug_in:It",
        "surveyor": "sys:maxsize",
    }  # fmt: skip
    points = [EntryPoint(name, target, registry.GROUP) for name, target in targets.items()]
    monkeypatch.setattr(registry, "offered_in", lambda group: points)


@table(("wrong", "code", "said"), WRONG)
def test_what_does_not_fit_is_named(wrong: PlannerSpec, code: ErrorCode, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        make_planner(wrong)
    assert refused.value.code is code
    assert said in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_plug_in_is_made_with_its_options() -> None:
    made = make_planner(spec(type="picky", key="k", depth=2))
    assert made.answer(question(1)).text == "k {'depth': 2}"


def test_a_plug_in_does_not_take_the_place_of_a_planner_of_ours() -> None:
    assert isinstance(make_planner(spec(type="script", replies=[])), ScriptPlanner)
    assert isinstance(make_planner(spec(type="surveyor")), Surveyor)
    assert set(planner_names()) - set(registry.BUILT_IN) - set(added().planners) == {
        "broken",
        "clear",
        "flat",
        "gone",
        "odd",
        "picky",
    }
    assert {*registry.BUILT_IN, *added().planners} <= set(planner_names())


def test_the_surveyor_is_registered_as_a_plug_in_is() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {registry.GROUP: FEATURE.planners}


def test_the_surveyor_imports_the_public_api_alone() -> None:
    package = REPOSITORY / "src/lcp_engine/features/surveyor"
    imports = {
        node.module
        for file in package.glob("[!_]*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    own = {name for name in imports if name.startswith("lcp_engine.features.surveyor")}
    assert {name for name in imports - own if name.startswith("lcp_engine")} == {"lcp_engine.planners.base"}


@table(
    ("environment", "chosen"),
    [
        ({"LCP_PLANNER": "local"}, "local"),
        ({"LCP_PLANNER": "local", "LCP_PLANNER_SERVER": "ollama"}, "local"),
        ({"LCP_PLANNER_SERVER": "ollama"}, "openai"),
        ({"LCP_PLANNER_ENDPOINT": "http://127.0.0.1:1/v1"}, "openai"),
    ],
)
def test_the_environment_chooses_a_planner(environment: dict[str, str], chosen: str) -> None:
    assert usual_planner(environment) == chosen


def test_a_key_in_the_environment_chooses_no_planner() -> None:
    with pytest.raises(LcpError, match="none is named; choose one with `--planner NAME`") as refused:
        usual_planner({"OPENAI_API_KEY": "secret", "ANTHROPIC_API_KEY": "secret"})
    assert refused.value.code is ErrorCode.NO_PLANNER
    assert "secret" not in str(refused.value)


@table(
    ("mission", "user", "limit"),
    [
        ({"max_running": 2}, {}, ("http://127.0.0.1:1/v1 m", Limit(max_running=2))),
        ({}, {"max_running": 3}, ("http://127.0.0.1:1/v1 m", Limit(max_running=3))),
        (
            {"rate_limit": {"requests_per_minute": 60}},
            {"max_running": 3},
            ("http://127.0.0.1:1/v1 m", Limit(1_000_000, 1, 3)),
        ),
        ({}, {}, None),
        ({"temperature": 0}, {}, None),
    ],
)
def test_what_limits_the_questions_to_a_server_is_known_by_address_and_model(
    mission: dict[str, JsonValue], user: dict[str, JsonValue], limit: tuple[str, Limit] | None
) -> None:
    stated = PlannerSpec.model_validate(
        {"type": "openai", "base_url": "http://127.0.0.1:1", "model": "m", **mission}
    )
    assert endpoint_limit(stated, PlannerEnvironment({"openai": user})) == limit


@table(
    "wrong",
    [
        {"max_running": 0},
        {"max_running": 10**9},
        {"rate_limit": {"requests_per_minute": 0}},
        {"rate_limit": {"requests_per_minute": "many"}},
        {"rate_limit": {"burst": 1}},
        {"rate_limit": 5},
    ],
)
def test_a_limit_of_a_planner_that_is_none_is_refused(wrong: dict[str, JsonValue]) -> None:
    stated = PlannerSpec.model_validate(
        {"type": "openai", "base_url": "http://127.0.0.1:1", "model": "m", **wrong}
    )
    with pytest.raises(LcpError) as refused:
        make_planner(stated)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert endpoint_limit(stated, EMPTY_ENVIRONMENT) is None, "the turn says so"
