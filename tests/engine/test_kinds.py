"""A kind describes itself: what reads a description knows no kind by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, JsonValue

import lcp_engine
from lcp_engine.core.kinds import CHANGES, KindRole
from lcp_engine.core.limits.permits import RateLimit
from lcp_engine.engine.admission import kind_of
from lcp_engine.errors import LcpError
from lcp_engine.features.authoring.describe_kinds import (
    describe,
    failed_examples,
    tool_definition,
    tool_definitions,
)
from lcp_engine.features.models.prompts.prompt import for_context, system_message, write_prompt
from lcp_engine.features.models.prompts.reply_schema import reply_schema
from lcp_engine.features.programs.servers.external_worker import kinds_in
from lcp_engine.planners.base import Question, SeenJob
from lcp_engine.workers.base import Example, Worker
from lcp_engine.workers.registry import BUILT_IN, find_workers, register

SOURCE = Path(lcp_engine.__file__).parent
NAMES_KINDS = (
    "workers/",  # each its own, and those whose rules are about it, too
    "features/surveyor/",  # a planner asks for kinds by name
    "features/programs/",
    "features/memory/",
    "features/acp_planner/kinds.py",  # rules about these are about the calls of an agent
    "features/universal/",  # forms of the protocol that have the same names
    "core/kinds.py",  # those that the engine gives a meaning
    "core/protocol/",  # actions and parts of the protocol that have the same names
    "core/summaries.py",  # what came of an action
)
"""The only places with names of kinds: not the loop, prompts, schemas, isolation, fork, admission, page or commands."""


class Search(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    query: str


class Found(BaseModel):
    ok: bool = True
    pages: list[str]


SEARCH = Worker(
    kind="search_web",
    params=Search,
    result=Found,
    execute=lambda params, context: Found(pages=[f"about {params.query}"]),
    description="Search the web.",
    has_effects=False,
    role=KindRole.SEARCHES,
    shows="pages",
    examples=(Example({"query": "oven"}, {"pages": ["about oven"]}),),
).for_any_params()
KINDS = tuple(
    kind_of(worker, is_held=worker.has_effects)
    for worker in (*BUILT_IN.values(), SEARCH)
    if worker.command is None
)


def asked(**more: object) -> Question:
    start = Question(1, 1, 1, "Find out.", "/srv/project", "Find out.", kinds=KINDS)
    return replace(start, **more)  # type: ignore[arg-type]  # fields of Question


def searched(number: int, query: str, *pages: str) -> SeenJob:
    found: list[JsonValue] = [*pages]
    return SeenJob(
        number, None, "search_web", {"query": query}, "succeeded", None, {"pages": found}, None, number
    )


def numbered() -> dict[int, int]:
    """The numbers of jobs whose ids are those of a database that has no other mission."""
    return {number: number for number in range(1, 20)}


def texts(path: Path) -> Iterator[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def test_nothing_that_reads_descriptions_names_a_kind() -> None:
    places = {path: path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    named = {
        (place, text) for path, place in places.items() for text in texts(path)
        if text in BUILT_IN and not place.startswith(NAMES_KINDS)
    }  # fmt: skip
    assert named == set()
    for place in NAMES_KINDS:
        assert any(
            text in BUILT_IN for path in places if places[path].startswith(place) for text in texts(path)
        )
    rooms = {place.partition("/")[0] for place in places.values() if not place.startswith(NAMES_KINDS)}
    assert rooms >= {"engine", "planners", "runner", "features", "store", "changes", "api", "cli", "web"}


def offered(schema: object) -> set[str]:
    """The kinds that a schema lets a decoder write."""
    if isinstance(schema, list):
        return set().union(*(offered(part) for part in schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties", {}).get("kind", {}).get("const") if "properties" in schema else None
    return offered([*schema.values()]) | ({own} if own else set())


def test_a_custom_kind_is_offered_before_anything_is_read() -> None:
    assert offered(reply_schema(asked())) == {"list_files", "remember", "search_web"}
    alone = tuple(kind for kind in KINDS if kind.name in ("search_web", "ask_user"))
    assert offered(reply_schema(asked(kinds=alone))) == {"search_web"}


def test_where_there_are_no_files_a_search_comes_before_the_end() -> None:
    alone = tuple(kind for kind in KINDS if kind.name in ("search_web", "ask_user"))
    assert "mission_complete" not in str(reply_schema(asked(kinds=alone)))
    failed = replace(searched(1, "oven"), state="failed", result=None)
    for job in (failed, searched(1, "oven", "Ovens bake.")):
        schema = reply_schema(asked(kinds=alone, turn=2, results=(job,)))
        assert "mission_complete" in str(schema), "it was tried"
        assert offered(schema) == {"search_web", "ask_user"}
    asks = tuple(kind for kind in alone if kind.name == "ask_user")
    assert "mission_complete" in str(reply_schema(asked(kinds=asks)))


def test_what_a_custom_kind_found_is_enough_to_go_on_and_to_end() -> None:
    question = asked(turn=2, results=(searched(1, "oven", "Ovens bake."),))
    assert offered(reply_schema(question)) >= {"search_web", "ask_user", "agent_plan"}
    assert "mission_complete" in str(reply_schema(question))


def test_a_prompt_describes_a_custom_kind_and_shows_what_it_found() -> None:
    system = system_message(asked(), "lcp")
    assert '- search_web: Search the web.\n    query (text)\n    such as {"query": "oven"}' in system
    shown = write_prompt(asked(results=(searched(1, "oven", "Ovens bake."),)), budget_tokens=4000).text
    assert "```\nOvens bake.\n```" in shown


def test_params_of_a_custom_kind_keep_their_meaning() -> None:
    class Deploy(BaseModel):
        root: str

    worker = Worker("deploy", Deploy, Found, SEARCH.execute).for_any_params()
    question = asked(kinds=(kind_of(worker, is_held=True),))
    assert "root (text)" in system_message(question, "lcp")
    assert '"const": "."' not in str(reply_schema(question)).replace("'", '"')


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_built_in_kind_is_described_and_its_examples_pass(kind: str) -> None:
    worker = BUILT_IN[kind]
    assert worker.description
    assert worker.examples
    assert worker.role is not KindRole.OTHER or worker.kind == "remember"
    assert list(failed_examples(worker, BUILT_IN)) == []
    for example in worker.examples:
        if not example.is_run:
            worker.result.model_validate(example.result)


def test_a_description_has_everything_that_a_kind_states() -> None:
    described = describe(SEARCH)
    assert described["role"] == "searches"
    assert described["examples"] == [
        {"params": {"query": "oven"}, "result": {"pages": ["about oven"]}, "files": {}}
    ]
    assert (described["has_effects"], described["is_held"], described["is_confined"]) == (False, False, False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"examples": (Example({"question": "?"}),)}, "example 1 is not valid: params"),
        ({"examples": (Example({"query": "x"}, {"hits": 1}),)}, "'hits', which Found has not"),
        ({"shows": "hits"}, "shows is 'hits'; the name of a field of Found is expected"),
        ({"params": dict}, "a pydantic model is expected"),
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(wrong: dict[str, object], said: str) -> None:
    worker = Worker(**{**SEARCH.__dict__, **wrong})
    for refuse in (lambda: register(worker), lambda: find_workers([worker])):
        with pytest.raises(LcpError, match="kind 'search_web'") as refused:
            refuse()
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (
            {"pages": ["about bread"]},
            "example 1: pages is ['about oven'] in the result; ['about bread'] is expected",
        ),
        ({"ok": True}, None),
    ],
)
def test_an_example_is_run_and_compared(expected: dict[str, JsonValue], said: str | None) -> None:
    worker = replace(SEARCH, examples=(Example({"query": "oven"}, expected),))
    assert list(failed_examples(worker, {worker.kind: worker})) == ([] if said is None else [said])


def test_what_a_custom_kind_found_stays_in_later_prompts() -> None:
    oven = searched(1, "oven", "Ovens bake.")
    question = asked(turn=4, results=(searched(3, "bread", "It rises."),), history=lambda: [oven])
    shown = write_prompt(question, budget_tokens=4000).text
    assert "```\nOvens bake.\n```" in shown
    assert "left out" not in shown


def test_a_prompt_says_which_earlier_results_have_no_room() -> None:
    long = [searched(number, f"word {number}", "page " * 2000) for number in (1, 2)]
    short = searched(3, "short", "A short page.")
    question = asked(
        turn=5, results=(searched(4, "bread", "It rises."),), history=lambda: [short, *long], numbers=numbered
    )
    prompt = write_prompt(question, budget_tokens=2500)
    assert prompt.fits
    assert "```\nA short page.\n```" in prompt.text
    for number in (1, 2):
        assert (
            f'- left out here: number {number}, search_web {{"query": "word {number}"}}'
            in prompt.text.replace('\\"', '"').replace('"{', "{")
        )


def test_what_concerns_the_files_of_the_turn_is_shown_before_what_is_newer() -> None:
    def read(number: int, path: str) -> SeenJob:
        found: dict[str, JsonValue] = {"content": f"{path} " * 900}
        return SeenJob(number, None, "read_file", {"rel_path": path}, "succeeded", None, found, None, number)

    waits = SeenJob(
        9, None, "write_file", {"rel_path": "old.md", "content": "x"}, "held", None, None, None, 4
    )
    history = [read(1, "old.md"), read(2, "new.md")]
    question = asked(turn=5, waiting=(waits,), history=lambda: history, numbers=numbered)
    whole = write_prompt(question, budget_tokens=20_000)
    assert "old.md old.md" in whole.text
    assert "new.md new.md" in whole.text
    prompt = write_prompt(question, budget_tokens=whole.tokens - 500).text
    assert "old.md old.md" in prompt
    assert "new.md new.md" not in prompt
    assert '- left out here: number 2, read_file "new.md": 1 line' in prompt


def recalled(number: int, of: int, content: str, **part: int) -> SeenJob:
    found: dict[str, JsonValue] = {"number": of, "kind": "search_web", "content": content}
    params: dict[str, JsonValue] = {"number": of, **part}
    return SeenJob(number, None, "recall", params, "succeeded", None, found, None, number)


def recall_params(question: Question, tokens: int) -> JsonValue:
    """What a schema allows as params of `recall`; None if it is not offered."""
    prompt = write_prompt(question, budget_tokens=tokens)
    offered = any(line.startswith("- recall: ") for line in prompt.text.splitlines())
    schema = reply_schema(for_context(question, tokens), cut=prompt.cut, left_out=prompt.left_out)
    params = params_of(schema, "recall")
    assert offered == (params is not None), "prompt and schema agree"
    return params


def params_of(schema: object, kind: str) -> JsonValue:
    if isinstance(schema, list):
        return next((found for part in schema if (found := params_of(part, kind)) is not None), None)
    if not isinstance(schema, dict):
        return None
    own = schema.get("properties")
    if isinstance(own, dict) and own.get("kind") == {"type": "string", "const": kind}:
        params: JsonValue = own["params"]
        return params
    return params_of([*schema.values()], kind)


LONG = tuple(searched(number, f"word {number}", "page\n" * 4000) for number in (1, 2))


def test_a_planner_may_recall_what_has_no_room_and_nothing_else() -> None:
    last = searched(3, "bread", "It rises.")
    assert recall_params(asked(results=(last,), numbers=numbered), 4000) is None
    question = asked(turn=4, results=(last,), history=lambda: LONG, numbers=numbered)
    number: JsonValue = {"type": "integer", "enum": [2, 1]}
    assert recall_params(question, 4000) == {
        "type": "object", "properties": {"number": number}, "required": ["number"], "additionalProperties": False,
    }  # fmt: skip
    assert recall_params(question, 2900) is None, "a small context is left to files"
    denied = replace(question, kinds=tuple(kind for kind in KINDS if kind.name != "recall"))
    assert recall_params(denied, 4000) is None


def test_the_rest_of_a_result_that_is_cut_is_recalled_from_a_line_on() -> None:
    cut = asked(turn=2, results=(LONG[0],), numbers=numbered)
    prompt = write_prompt(cut, budget_tokens=4000)
    (line,) = prompt.left_out.values()
    left = len("page\n") * (4000 - line)
    advice = f"lines 1 to {line} of 4,000 are shown, {left:,} bytes left out"
    assert f"{advice}; read on with recall, number 1, offset {line}, limit" in prompt.text
    params = recall_params(cut, 4000)
    assert isinstance(params, dict)
    assert params["required"] == ["number", "offset", "limit"]
    part = recalled(2, 1, "page\n" * 3000, offset=500)
    shown = write_prompt(
        asked(turn=3, results=(part,), history=lambda: LONG[:1], numbers=numbered), budget_tokens=4000
    )
    assert shown.left_out == {1: shown.left_out[1]}
    assert f"lines 501 to {shown.left_out[1]} of" in shown.text
    assert "left out here" not in shown.text


def test_a_result_that_was_recalled_counts_as_new() -> None:
    first, second = (searched(number, f"word {number}", f"page {number} " * 700) for number in (1, 2))
    again = recalled(3, 1, "page 1 " * 700)
    last = searched(4, "bread", "It rises.")
    question = asked(turn=5, results=(last,), history=lambda: [first, second], numbers=numbered)
    tokens = write_prompt(question, budget_tokens=7_999).tokens - 100
    assert write_prompt(question, budget_tokens=tokens).left_out == {1: 0}
    question = replace(question, history=lambda: [first, second, again])
    prompt = write_prompt(question, budget_tokens=tokens)
    assert prompt.left_out == {2: 0}
    assert prompt.text.count("page 1 page 1") > 0
    assert "turn 3: recall number 1: 1 line" in prompt.text
    part = recalled(3, 1, "page 1 " * 70, offset=0, limit=1)
    part = replace(part, result={**(part.result or {}), "total": 9})
    shown = write_prompt(replace(question, history=lambda: [first, second, part]), budget_tokens=tokens)
    assert "page 1 page 1" in shown.text, "a part stays, too"
    assert shown.left_out == {1: 1}
    now = asked(turn=4, results=(again,), history=lambda: [first, second], numbers=numbered)
    assert 1 not in write_prompt(now, budget_tokens=tokens).left_out


def test_the_lines_of_a_result_without_a_part_to_show_are_lines_of_the_prompt() -> None:
    ran: dict[str, JsonValue] = {"exit_code": 1, "stdout": "a\nexit_code: 0\n", "stderr": ""}
    job = SeenJob(1, None, "run", {}, "succeeded", None, ran, None, 1)
    prompt = write_prompt(asked(results=(job,)), budget_tokens=4000)
    assert '```\nexit_code: 1\nstdout:\n  a\n  exit_code: 0\nstderr: ""\n```' in prompt.text


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_what_a_prompt_leaves_out_of_any_kind_is_said_in_it(kind: str) -> None:
    """The content is shown, or named with its number, or counted; or the kind has a section that says so."""
    content = "".join(f"text {number} of a result\n" for number in range(3000))
    lines: list[JsonValue] = [*content.splitlines()]
    result: dict[str, JsonValue] = {
        "content": content, "files": lines, "lines": lines, "pages": lines, "summary": content, "answer": content,
        "size_bytes": len(content),
    }  # fmt: skip
    params: dict[str, JsonValue] = {"rel_path": "a.txt", "question": "Which?", "number": 1}
    job = SeenJob(2, None, kind, params, "succeeded", None, result, None, 1)
    for question in (asked(results=(job,)), asked(history=lambda: [job], results=(searched(3, "x", "y"),))):
        prompt = write_prompt(replace(question, numbers=numbered), budget_tokens=4000)
        assert prompt.fits
        assert "text 2999 of a result" not in prompt.text
        is_change = next(one.role for one in KINDS if one.name == kind) in CHANGES
        said = ("left out", "cut here", "[cut]", "more; list a part of the tree", "files by directory;")
        assert is_change or any(words in prompt.text for words in said)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_running": 0}, "its max_running is 0; a whole number from 1 to 10000 is expected"),
        ({"max_running": -1}, "its max_running is -1"),
        ({"max_running": True}, "its max_running is True"),
        ({"max_running": float("nan")}, "its max_running is nan"),
        ({"max_running": 10**6}, "its max_running is 1000000"),
        (
            {"rate_limit": {"requests_per_minute": 60}},
            "its rate_limit is {'requests_per_minute': 60}; a RateLimit",
        ),
    ],
)
def test_a_limit_that_is_none_is_refused(limit: dict[str, object], said: str) -> None:
    with pytest.raises(LcpError) as refused:
        register(replace(SEARCH, **limit))  # type: ignore[arg-type]  # fields of Worker
    assert said in str(refused.value)


def test_ids_of_tools_are_unique_and_do_not_depend_on_the_order() -> None:
    kinds = [replace(SEARCH, kind=kind) for kind in ("k.x", "k_x", "K-X", "other")]
    ids = {kind: one.id for kind, one in tool_definitions(kinds).items()}
    assert ids == {kind: one.id for kind, one in tool_definitions(reversed(kinds)).items()}
    assert len(set(ids.values())) == len(kinds)
    assert (ids["k_x"], ids["other"]) == ("tool-k-x", "tool-other")
    assert all(re.fullmatch("tool-[a-z0-9-]+", one) for one in ids.values())


def test_a_tool_definition_and_a_description_have_the_rate() -> None:
    limited = replace(SEARCH, rate_limit=RateLimit(requests_per_minute=90.5, burst=3), max_running=2)
    assert tool_definition(limited).as_json()["rate_limit"] == {"requests_per_minute": 90, "burst": 3}
    described = describe(limited)
    assert described["rate_limit"] == {"requests_per_minute": 90.5, "burst": 3}
    assert described["max_running"] == 2


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (
            {"rate_limit": {"requests_per_minute": 0}},
            "rate_limit.requests_per_minute: should be greater",
        ),
        (
            {"rate_limit": {"requests_per_minute": 60, "bursts": 2}},
            "is not a known key; did you mean 'burst'?",
        ),
        ({"max_running": 0}, "max_running: should be greater than or equal to 1, not 0"),
    ],
)
def test_a_file_of_kinds_with_a_wrong_limit_is_refused(stated: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(LcpError, match=re.escape(said)):
        [*kinds_in({"define": {"command": "/bin/cat", **stated}}, Path.cwd())]


def test_a_file_of_kinds_states_limits() -> None:
    stated: JsonValue = {
        "define": {"command": "/bin/cat", "rate_limit": {"requests_per_minute": 6}, "max_running": 4}
    }
    (worker,) = kinds_in(stated, Path.cwd())
    assert (worker.rate_limit, worker.max_running) == (RateLimit(requests_per_minute=6), 4)
