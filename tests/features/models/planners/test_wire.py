"""What the wire schema allows is valid LCP, and what the rules would refuse it does not allow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, JsonValue
from tests.tables import table

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.protocol.actions import (
    AnalysisResult,
    CreateFollowupJobs,
    Malformed,
    Manner,
    MissionComplete,
    WriteFile,
)
from lcp_engine.core.protocol.read_reply import read_reply
from lcp_engine.engine.admission import kind_of
from lcp_engine.features.models.prompts.known_files import known_of
from lcp_engine.features.models.prompts.reply_schema import Narrowing, reply_schema
from lcp_engine.features.universal.dialect import read_universal
from lcp_engine.planners.base import Kind, Question, SeenJob
from lcp_engine.sandbox.paths import Names
from lcp_engine.workers.registry import BUILT_IN

Schema: TypeAlias = dict[str, JsonValue]

MODELS: dict[str, type[BaseModel]] = {kind: worker.params for kind, worker in BUILT_IN.items()}
KINDS = tuple(
    kind_of(worker, is_held=worker.has_effects)
    for worker in BUILT_IN.values()
    if worker.command is None and worker.kind != "remember"
)
FILES = ("README.md", "src/a.py", "src/b.py", "docs/long.md")
ENDS = {"analysis_result", "mission_complete", "error"}
CALM = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def job(
    number: int,
    kind: str,
    params: Schema,
    result: Schema | None = None,
    *,
    state: str = "succeeded",
    code: str = "",
) -> SeenJob:
    error: Schema | None = {"error_code": code, "user_message": "it went wrong"} if code else None
    return SeenJob(number, None, kind, params, "failed" if code else state, None, result, error, number)


def listing(number: int, *files: str, patterns: Sequence[str] = ()) -> SeenJob:
    names: list[JsonValue] = [*files]
    result: Schema = {"files": names, "root": ".", "patterns": [*patterns]}
    params: Schema = {"patterns": [*patterns]} if patterns else {}
    return job(number, "list_files", params, result)


def reading(number: int, path: str, content: str = "text\n", **more: JsonValue) -> SeenJob:
    params: Schema = {"rel_path": path, "offset": more.pop("offset", None)}
    return job(number, "read_file", params, {"path": path, "content": content, **more})


def writing(number: int, path: str) -> SeenJob:
    result: Schema = {"path": path, "sha256_before": None, "sha256_after": "1" * 64, "size_bytes": 4}
    return job(number, "write_file", {"rel_path": path, "content": "text"}, result)


def asked(*jobs: SeenJob, kinds: tuple[Kind, ...] = KINDS, **more: object) -> Question:
    question = Question(
        1, 1, 1, "Describe the project.", "/srv/project", "Describe the project.", kinds=kinds
    )
    fields = {"results": jobs[-1:], "history": lambda: jobs, **more}
    return question.__class__(**{**question.__dict__, **fields})


def at(value: JsonValue, *keys: str) -> Schema:
    """The object that stands there."""
    for key in keys:
        assert isinstance(value, dict)
        value = value[key]
    assert isinstance(value, dict)
    return value


def branches(schema: Schema) -> list[Schema]:
    """What the schema is one of; itself where it is not a union."""
    found = schema.get("anyOf", [schema])
    assert isinstance(found, list)
    return [at(branch) for branch in found]


def actions(schema: Schema) -> dict[str, Schema]:
    return {str(at(branch, "properties", "action")["const"]): branch for branch in branches(schema)}


def new_jobs(schema: Schema) -> Schema:
    return at(actions(schema)["create_followup_jobs"], "properties", "new_jobs")


def jobs_of(schema: Schema) -> dict[str, Schema]:
    """The params of the jobs that may be asked for."""
    if "create_followup_jobs" not in actions(schema):
        return {}
    jobs = [at(branch, "properties") for branch in branches(at(new_jobs(schema), "items"))]
    return {str(at(each, "kind")["const"]): at(each, "params") for each in jobs}


def readable(schema: Schema) -> set[str]:
    """The files that may be read from their start."""
    found: set[str] = set()
    for branch in branches(jobs_of(schema).get("read_file", {"properties": {}})):
        properties = at(branch, "properties")
        if "rel_path" in properties and "offset" not in properties:
            path = at(properties, "rel_path")
            names = path.get("enum", [path.get("const", "any")])
            found |= {str(name) for name in names} if isinstance(names, list) else set()
    return found


def test_before_anything_is_listed_only_a_list_can_be_asked_for() -> None:
    schema = reply_schema(asked())
    assert actions(schema).keys() == {"create_followup_jobs", "error"}
    assert jobs_of(schema).keys() == {"list_files"}


def test_what_was_listed_can_be_read_and_nothing_else() -> None:
    schema = reply_schema(asked(listing(1, *FILES)))
    assert readable(schema) == set(FILES)
    assert actions(schema).keys() == {"create_followup_jobs", "error"}


def test_what_was_read_cannot_be_read_again_and_the_mission_may_end() -> None:
    schema = reply_schema(asked(listing(1, *FILES), reading(2, "README.md")))
    assert readable(schema) == set(FILES) - {"README.md"}
    assert actions(schema).keys() >= ENDS
    assert {"write_file", "agent_plan"} <= jobs_of(schema).keys()


def test_a_file_that_changed_since_can_be_read_again() -> None:
    schema = reply_schema(asked(listing(1, *FILES), reading(2, "src/a.py"), writing(3, "src/a.py")))
    assert "src/a.py" in readable(schema)


def test_a_file_that_could_not_be_read_is_not_offered_again() -> None:
    failed = job(2, "read_file", {"rel_path": "src/b.py"}, code="BINARY")
    assert "src/b.py" not in readable(reply_schema(asked(listing(1, *FILES), failed)))


def test_a_file_whose_read_waits_for_a_person_is_not_offered_again() -> None:
    waiting = job(2, "read_file", {"rel_path": "src/b.py"}, state="held")
    assert "src/b.py" not in readable(reply_schema(asked(listing(1, *FILES), waiting=(waiting,))))


def test_a_file_that_policy_denies_is_not_offered() -> None:
    schema = reply_schema(asked(listing(1, ".env", "a.md"), may_read=lambda path: path != ".env"))
    assert readable(schema) == {"a.md"}


def test_a_listing_of_a_directory_names_files_from_the_root() -> None:
    inner = job(1, "list_files", {"root": "/srv/project/src"}, {"files": ["a.py"]})
    assert readable(reply_schema(asked(inner))) == {"src/a.py"}


@pytest.mark.parametrize("cut", [{}, {"docs/long.md": 40}], ids=["by the job", "by the prompt"])
def test_a_file_that_was_shown_in_part_can_be_read_on(cut: dict[str, int]) -> None:
    more: dict[str, JsonValue] = {} if cut else {"truncated": True, "total": 900}
    whole = reading(2, "docs/long.md", "line\n" * 40, **more)
    schema = reply_schema(asked(listing(1, *FILES), whole), cut=cut)
    params: Schema = {"rel_path": "docs/long.md", "root": ".", "offset": 40, "limit": 40}
    assert Draft202012Validator(jobs_of(schema)["read_file"]).is_valid(params)
    assert "docs/long.md" not in readable(schema)


def test_a_file_read_to_its_end_in_parts_is_read() -> None:
    parts = [
        reading(2, "a.md", "x\n" * 5, offset=0, total=9, truncated=True),
        reading(3, "a.md", "x\n" * 4, offset=5, total=9, truncated=True),
    ]
    known = known_of(asked(listing(1, "a.md"), *parts))
    assert known.partly == {}
    assert known.read == ("a.md",)


def test_files_that_the_goal_names_are_offered_first() -> None:
    many = [f"m{number}.py" for number in range(20)]
    question = asked(listing(1, *many, "deep/in/plan.py"), goal="Say what plan.py does.")
    assert readable(reply_schema(question, narrowing=Narrowing(most_files=1))) == {"deep/in/plan.py"}


def test_a_tree_that_is_known_is_not_listed_again_unless_it_is_too_large_to_be_offered() -> None:
    question = asked(listing(1, *FILES))
    assert "list_files" not in jobs_of(reply_schema(question))
    assert "list_files" in jobs_of(reply_schema(question, narrowing=Narrowing(most_files=2)))


def test_a_search_is_offered_for_more_files_than_are_named() -> None:
    question = asked(listing(1, *FILES))
    assert "search_files" not in jobs_of(reply_schema(question))
    params = jobs_of(reply_schema(question, narrowing=Narrowing(most_files=2)))["search_files"]
    assert at(params, "properties").keys() == {"text", "root", "patterns"}


def test_only_files_that_were_read_or_written_are_edited() -> None:
    read, written = reading(2, "README.md"), writing(3, "NEW.md")
    assert "edit_file" not in jobs_of(reply_schema(asked(listing(1, *FILES))))
    params = jobs_of(reply_schema(asked(listing(1, *FILES), read, written)))["edit_file"]
    assert at(params, "properties", "rel_path")["enum"] == ["README.md", "NEW.md"]
    allowed = {"edit_file": ("NEW.md",)}
    params = jobs_of(reply_schema(asked(listing(1, *FILES), read, written, writable=allowed)))["edit_file"]
    assert at(params, "properties", "rel_path")["const"] == "NEW.md"


def test_patterns_that_matched_nothing_leave_a_list_of_everything() -> None:
    schema = reply_schema(asked(listing(1, patterns=["**/*.java"])))
    assert at(jobs_of(schema)["list_files"], "properties", "patterns") == {"type": "null"}


def test_an_empty_root_does_not_keep_the_mission_from_ending() -> None:
    assert actions(reply_schema(asked(listing(1)))).keys() >= ENDS


def test_a_goal_that_needs_no_reading_may_end_at_once() -> None:
    assert actions(reply_schema(asked(), narrowing=Narrowing(reads_first=0))).keys() >= ENDS


def test_the_last_turn_only_ends_the_mission() -> None:
    assert actions(reply_schema(asked(last_turn="max_turns"))).keys() == ENDS


@pytest.mark.parametrize("left", [0, -3])
def test_without_jobs_left_only_ends_remain(left: int) -> None:
    assert actions(reply_schema(asked(jobs_left=left))).keys() == ENDS


def test_new_jobs_are_as_many_as_the_cap_allows_and_at_least_one() -> None:
    question = asked(listing(1, *FILES), reading(2, "README.md"), max_followups=4, jobs_left=2)
    jobs = new_jobs(reply_schema(question))
    assert (jobs["minItems"], jobs["maxItems"]) == (1, 2)


def test_a_stalled_plan_cannot_ask_for_the_repeated_job_again() -> None:
    same: Schema = {"user_prompt": "Think."}
    jobs = [
        listing(1, *FILES),
        reading(2, "README.md"),
        job(3, "agent_plan", same),
        job(4, "agent_plan", same),
    ]
    assert "agent_plan" in jobs_of(reply_schema(asked(*jobs)))
    assert "agent_plan" not in jobs_of(reply_schema(asked(*jobs, stalled=1)))


def test_where_policy_names_the_files_that_may_be_written_no_others_can_be() -> None:
    done = (listing(1, *FILES), reading(2, "README.md"))
    files = {"write_file": ("docs/a.md", "docs/b.md"), "rewrite_file": ()}
    schema = reply_schema(asked(*done, writable=files))
    allowed = {"type": "string", "enum": ["docs/a.md", "docs/b.md"]}
    assert at(jobs_of(schema)["write_file"], "properties")["rel_path"] == allowed
    assert at(actions(schema)["write_file"], "properties")["rel_path"] == allowed
    nothing = reply_schema(asked(*done, writable={"write_file": (), "rewrite_file": ()}))
    assert not {"write_file", "rewrite_file"} & {*jobs_of(nothing), *actions(nothing)}


def test_who_verifies_asks_for_no_jobs() -> None:
    question = asked(listing(1, *FILES), verifies=True)
    assert actions(reply_schema(question)).keys() == ENDS
    responses = branches(reply_schema(question, "universal"))
    said = {str(at(branch, "properties", "response_type")["const"]) for branch in responses}
    assert said == {"verification", "error"}


def test_a_kind_that_does_not_exist_cannot_be_asked_for() -> None:
    few = tuple(kind for kind in KINDS if kind.name in ("list_files", "read_file"))
    schema = reply_schema(asked(listing(1, *FILES), reading(2, "README.md"), kinds=few))
    assert actions(schema).keys() == {"create_followup_jobs", *ENDS}
    assert jobs_of(schema).keys() == {"read_file"}


def test_without_kinds_there_are_only_ends() -> None:
    assert actions(reply_schema(asked(kinds=()))).keys() == ENDS


def test_the_root_is_a_constant_and_paths_stay_in_it() -> None:
    validator = Draft202012Validator(reply_schema(asked(listing(1, *FILES), writing(2, "a.md"))))
    write = {
        "action": "write_file",
        "ok": True,
        "commentary": None,
        "root": ".",
        "content": "",
        "mode": "append",
    }
    assert validator.is_valid({**write, "rel_path": ".github/a b.md"})
    assert not validator.is_valid({**write, "rel_path": "a.md", "root": "/srv/project"})
    for path in ("../a", "/a", "a/../b", "C:/a", "a\\b", "a\tb", "", "a/", "./a", "*.py"):
        assert not validator.is_valid({**write, "rel_path": path}), path


SCHEMAS = {
    "everything": reply_schema(asked(), narrow=False),
    "first turn": reply_schema(asked()),
    "later": reply_schema(asked(listing(1, *FILES), reading(2, "README.md"), writing(3, "a.md"))),
    "universal": reply_schema(asked(listing(1, *FILES), reading(2, "README.md")), "universal"),
    "universal, everything": reply_schema(asked(), "universal", narrow=False),
}
ALLOWED = {
    "anyOf", "type", "const", "enum", "pattern", "minimum", "maximum", "description", "properties", "required",
    "additionalProperties", "items",
}  # fmt: skip


@table("name", SCHEMAS)
def test_schemas_hold_only_what_every_constrained_decoder_takes(name: str) -> None:
    lengths = set() if "everything" in name else {"minItems", "maxItems"}
    for schema in _objects(SCHEMAS[name]):
        assert schema.keys() <= ALLOWED | lengths
        assert not ("anyOf" in schema and "properties" in schema)
        if schema.get("type") == "object":
            assert schema["required"] == [*at(schema, "properties")]
            assert schema["additionalProperties"] is False


@table("name", SCHEMAS)
def test_each_branch_begins_with_its_own_constant(name: str) -> None:
    first = [next(iter(at(branch, "properties").items())) for branch in branches(SCHEMAS[name])]
    assert {key for key, _ in first} == ({"response_type"} if "universal" in name else {"action"})
    assert len({at(schema)["const"] for _, schema in first}) == len(branches(SCHEMAS[name]))


def _objects(schema: JsonValue) -> Iterator[Schema]:
    """The schema and all within it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _objects(each)
    if isinstance(schema, dict):
        yield schema
        yield from _objects(schema.get("anyOf"))
        yield from _objects(schema.get("items"))
        yield from _objects([*at(schema.get("properties", {})).values()])


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


ENCODINGS = st.sampled_from([None, "utf-8", "gbk"])
"""The schema has no list of encodings: they have more names than it is worth telling each model."""


def values(schema: Schema) -> st.SearchStrategy[JsonValue]:
    """Anything that the schema allows."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        choices = schema["enum"]
        assert isinstance(choices, list)
        return st.sampled_from(choices)
    if "anyOf" in schema:
        return st.one_of([values(branch) for branch in branches(schema)])
    match schema["type"]:
        case "object":
            stated = at(schema, "properties").items()
            parts = {key: ENCODINGS if key == "encoding" else values(at(part)) for key, part in stated}
            return st.fixed_dictionaries(parts).map(dict)
        case "array":
            low, high = _number(schema, "minItems") or 0, _number(schema, "maxItems") or 7
            return st.lists(values(at(schema, "items")), min_size=low, max_size=high).map(list)
        case "string" if "pattern" in schema:
            # Python's "$" stands before a line end, too; that of JSON Schema does not.
            texts = st.from_regex(str(schema["pattern"]), fullmatch=True)
            return texts.filter(lambda text: not text.endswith("\n"))
        case "string":
            return TEXTS
        case "integer":
            return st.integers(_number(schema, "minimum"), _number(schema, "maximum") or 10**9)
        case "boolean":
            return st.booleans()
        case _:
            return st.none()


def _number(schema: Schema, key: str) -> int | None:
    number = schema.get(key)
    return number if isinstance(number, int) else None


PATHS = st.sampled_from((*FILES, "new.md"))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A plan in any state."""
    jobs: list[SeenJob] = []
    for number in range(1, draw(st.integers(1, 8))):
        match draw(st.integers(0, 6)):
            case 0:
                jobs.append(
                    listing(
                        number,
                        *draw(st.lists(PATHS, unique=True)),
                        patterns=draw(st.sampled_from([(), ("*.md",)])),
                    )
                )
            case 1:
                jobs.append(reading(number, draw(PATHS)))
            case 2:
                jobs.append(
                    reading(
                        number, draw(PATHS), total=draw(st.integers(1, 9)), offset=draw(st.integers(0, 3))
                    )
                )
            case 3:
                jobs.append(writing(number, draw(PATHS)))
            case 4:
                code = draw(st.sampled_from(["BINARY", "TOO_LARGE", "PATH_NOT_FOUND"]))
                jobs.append(job(number, "read_file", {"rel_path": draw(PATHS)}, code=code))
            case 5:
                jobs.append(
                    job(number, draw(st.sampled_from([*MODELS])), {"user_prompt": "x"}, state="rejected")
                )
            case _:
                jobs.append(job(number, "agent_plan", {"user_prompt": "x"}, {"summary": "y"}))
    return asked(
        *jobs,
        kinds=tuple(draw(st.lists(st.sampled_from(KINDS), unique=True))),
        results=jobs[draw(st.integers(0, 8)) :],
        last_turn=draw(st.sampled_from([None, None, "max_turns"])),
        stalled=draw(st.integers(0, 2)),
        max_followups=draw(st.integers(1, 5)),
        jobs_left=draw(st.none() | st.integers(-1, 9)),
    )


@CALM
@given(st.data(), questions(), st.booleans())
def test_whatever_a_schema_allows_is_valid_lcp_and_keeps_the_rules(
    data: st.DataObject, question: Question, narrow: bool
) -> None:
    schema = reply_schema(
        question, narrow=narrow, narrowing=Narrowing(reads_first=data.draw(st.integers(0, 2)))
    )
    value = data.draw(values(schema))
    Draft202012Validator(schema).validate(value)
    action = read_reply(json.dumps(value), MODELS)
    assume(not _repeats_an_id(action))  # no schema can say that each field of a form has an id of its own
    assert not isinstance(action, Malformed), action.errors
    assert action.warnings == ()
    if narrow:
        _keeps_the_rules(question, action)


@CALM
@given(st.data(), questions())
def test_whatever_a_universal_schema_allows_is_translated(data: st.DataObject, question: Question) -> None:
    schema = reply_schema(question, "universal")
    value = data.draw(values(schema))
    Draft202012Validator(schema).validate(value)
    action = read_universal(json.dumps(value), MODELS)
    assume(not _repeats_an_id(action))
    assert not isinstance(action, Malformed), action.errors
    if isinstance(value, dict) and value["response_type"] == "custom":
        assert action.warnings == ()
        _keeps_the_rules(question, action)
    if question.last_turn is not None:
        assert action.action in ENDS
    if isinstance(action, AnalysisResult | MissionComplete) and action.manner is Manner.FOLLOW_UP:
        assert any(kind.role is KindRole.ASKS for kind in question.kinds)


def _repeats_an_id(action: object) -> bool:
    return isinstance(action, Malformed) and all(
        "there twice" in error.message or "has its own" in error.message for error in action.errors
    )


def _keeps_the_rules(question: Question, action: object) -> None:
    known, names = known_of(question), Names(("/srv/project",))
    if question.last_turn is not None:
        assert not isinstance(action, CreateFollowupJobs | WriteFile)
    if not isinstance(action, CreateFollowupJobs | WriteFile):
        return
    most = (
        question.max_followups
        if question.jobs_left is None
        else min(question.max_followups, question.jobs_left)
    )
    assert 1 <= len(action.requested) <= most
    for spec in action.requested:
        assert spec.kind in {kind.name for kind in question.kinds}
        assert spec.params.get("root", ".") == spec.params.get("project_root", ".") == "."
        if spec.kind != "agent_plan":
            path = spec.params.get("rel_path")
            names.place(root=".", rel_path=path if isinstance(path, str) else None)
        if spec.kind == "read_file" and known.has_listing:
            assert spec.params["rel_path"] in {*known.unread, *known.partly}
        if question.stalled and spec.kind in known.repeated:
            assert spec.kind == "read_file"
