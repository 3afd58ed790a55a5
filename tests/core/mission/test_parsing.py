"""A mission file is read strictly: what is wrong is one line that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.mission.parse import NotFilled, build_mission, outline_mission, parse_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.yaml import MAX_CHARACTERS, MAX_VALUES, NotReadable, read_document, read_scalar
from lcp_engine.core.policy import Verdict
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.plans.stated_plan import PlanKeys

GOOD = "goal: Look around.\nplanner: {type: surveyor}\n"
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def refusal(text: str, **given: object) -> str:
    with pytest.raises(LcpError) as refused:
        parse_mission(text, source="m.yaml", **given)  # type: ignore[arg-type]  # forwarded from a table
    assert refused.value.code is ErrorCode.INVALID_MISSION
    message = str(refused.value)
    assert message.isprintable(), "one line without control characters"
    return message


BAD_TEXTS = [
    ("", "a mapping with a goal and a planner is expected; there is nothing in it"),
    ("- a", 'a mapping with a goal and a planner is expected, not ["a"]'),
    ("just words", 'is expected, not "just words"'),
    ("[", "line 1, column 2"),
    ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
    (f"{GOOD}goal: twice", "line 3: the key 'goal' is there twice"),
    ('{"goal": "a", "goal": "b"}', "the key 'goal' is there twice"),
    ('{"goal": NaN}', "NaN is no JSON number"),
    ('{"goal": "a\\u0000b", "planner": "script"}', "U+0000"),
    (f"{GOOD}---\na: b", "another document"),
    (
        f"{GOOD}name: !!python/name:os.system x",
        "the tag 'tag:yaml.org,2002:python/name:os.system' is not used",
    ),
    (f"{GOOD}? [a]\n: b", "line 3: a key is text"),
    ("\x00\x01\x02", "line 1: plain text is expected, not the character U+0000"),
    ("goal: \ud800", "not the character U+D800"),
    ("goal: *nowhere", "undefined alias"),
    ("a" * (MAX_CHARACTERS + 1), f"at most {MAX_CHARACTERS:,} characters"),
    ("[" * 100_000, "nests deeper"),
    ('{"a":' * 100_000, "nests deeper"),
    ("a: &a [*a]", "aliases counted"),
    (LAUGHS, "aliases counted"),
]


@table(("text", "said"), BAD_TEXTS)
def test_a_text_that_is_no_mission_is_refused_in_one_line(text: str, said: str) -> None:
    message = refusal(text)
    assert message.startswith("m.yaml: ")
    assert said in message


BAD_KEYS = [
    ("planner: script", "goal: is required and missing"),
    ("goal: x", "planner: is required and missing"),
    ("goal: ''\nplanner: script", 'goal: should be text that is not empty, not ""'),
    ("goal: '  '\nplanner: script", "goal: should be text that is not empty"),
    ("goal: 5\nplanner: script", "goal: should be text, not 5"),
    ("goal: x\nplanner: {}", "planner.type: is required and missing"),
    ("goal: x\nplanner: [script]", "planner: should be a mapping"),
    (f"{GOOD}limit: {{}}", "limit: is not a known key; did you mean 'limits'?"),
    (
        f"{GOOD}zzz: 1",
        "zzz: is not a known key; known: accept, commands, continue, description, endings, fallback_plans, git, goal",
    ),
    (f"{GOOD}allow_admin: true", "allow_admin: is granted by who launches the mission, not by its author"),
    (f"{GOOD}allow_admin: false", "launch with --allow-admin (in Python: allow_admin=True)"),
    (f"{GOOD}background: {{}}", "background: is what a request states; leave it out, and launch the request"),
    (f"{GOOD}commands: {{allow: [[]]}}", "commands.allow.0: should be a list that is not empty, not []"),
    (f"{GOOD}accept: [{{command: []}}]", "accept.0.command: should be a list that is not empty, not []"),
    (f"{GOOD}commands: {{second: 1}}", "commands.second: is not a known key; did you mean 'seconds'?"),
    (f"{GOOD}kinds: {{do: {{timout: 1}}}}", "kinds.do.timout: is not a known key; did you mean 'timeout'?"),
    (
        f"{GOOD}kinds: {{do: {{retry: {{delai: 1}}}}}}",
        "kinds.do.retry.delai: is not a known key; did you mean 'delay'?",
    ),
    (f"{GOOD}kinds: {{do: {{timeout: 0}}}}", "kinds.do.timeout: should be greater than 0, not 0"),
    (f"{GOOD}kinds: {{do: {{timeout: true}}}}", "kinds.do.timeout: should be a number, not true"),
    (f"{GOOD}kinds: {{do: {{timeout: .nan}}}}", 'kinds.do.timeout: should be a number, not ".nan"'),
    (f"{GOOD}kinds: {{do: 3}}", "kinds.do: should be a mapping, not 3"),
    (f"{GOOD}kinds: [do]", 'kinds: should be a mapping, not ["do"]'),
    (f"{GOOD}limits: {{max_job: 1}}", "limits.max_job: is not a known key; did you mean 'max_jobs'?"),
    (f"{GOOD}limits: {{max_jobs: many}}", 'limits.max_jobs: should be a whole number, not "many"'),
    (f"{GOOD}limits: {{max_jobs: true}}", "limits.max_jobs: should be a number, not true"),
    (f"{GOOD}limits: {{max_turns: 1.5}}", "limits.max_turns: should be a whole number, not 1.5"),
    (
        f"{GOOD}limits: {{max_followups: 0}}",
        "limits.max_followups: should be greater than or equal to 1, not 0",
    ),
    (f"{GOOD}limits: {{max_seconds: .inf}}", 'limits.max_seconds: should be a number, not ".inf"'),
    (f"{GOOD}limits: 5", "limits: should be a mapping, not 5"),
    (f"{GOOD}policy: {{do: auto}}", "policy: should be a list"),
    (f"{GOOD}policy: [{{kind: [a], do: auto}}]", "policy.0.kind: is not a known key; did you mean 'kinds'?"),
    (f"{GOOD}policy: [{{do: maybe}}]", "policy.0.do: should be 'auto', 'hold' or 'deny', not \"maybe\""),
    (f"{GOOD}continue: on", "continue: should be 'per_batch', 'per_result' or 'per_decision', not \"on\""),
    (f"{GOOD}accept: [{{}}]", "accept.0: should state exactly one of file_exists, file_matches, file_parses"),
    (f"{GOOD}accept: [{{file_exists: a, file_parses: b}}]", "accept.0: should state exactly one of"),
    (
        f"{GOOD}accept: [{{file_exist: a}}]",
        "accept.0.file_exist: is not a known key; did you mean 'file_exists'?",
    ),
    (f"{GOOD}accept: [{{file_exists: ../a}}]", "accept.0.file_exists: should be a path beneath the root"),
    (f"{GOOD}accept: [{{file_exists: /a}}]", "accept.0.file_exists: should be a path beneath the root"),
    (
        f"{GOOD}accept: [{{file_matches: {{path: a, pattern: '('}}}}]",
        "file_matches.pattern: should be a regular",
    ),
    (f"{GOOD}accept: [{{file_matches: {{paths: a, pattern: a}}}}]", "did you mean 'path'?"),
]


@table(("text", "said"), BAD_KEYS)
def test_a_wrong_key_or_value_is_named_with_what_is_expected(text: str, said: str) -> None:
    assert said in refusal(text)


@table(
    ("text", "said"),
    [
        ("gaol: x\nplanner: script", "gaol: is not a known key; did you mean 'goal'?"),
        ("goal: x\nplaner: script", "planer: is not a known key; did you mean 'planner'?"),
        ("goal: x\nplanner: {typ: human}", "planner.typ: is not a known key; did you mean 'type'?"),
        (f"{GOOD}policy: [{{doo: deny}}]", "policy.0.doo: is not a known key; did you mean 'do'?"),
        (
            f"{GOOD}accept: [{{file_matches: {{paht: a, pattern: a}}}}]",
            "accept.0.file_matches.paht: is not a known key; did you mean 'path'?",
        ),
        (
            f"{GOOD}variables: {{a: {{descripton: x}}}}",
            "variables.a.descripton: is not a known key; did you mean 'description'?",
        ),
    ],
)
def test_a_misspelt_key_is_named_and_not_also_missing(text: str, said: str) -> None:
    assert refusal(text) == f"m.yaml: {said}"


def test_every_problem_is_in_the_details() -> None:
    with pytest.raises(LcpError) as refused:
        parse_mission("goals: x", source="m.yaml")
    assert refused.value.failed.details == {
        "problems": [
            "goals: is not a known key; did you mean 'goal'?",
            "planner: is required and missing",
        ],
        "places": [["goals"], ["planner"]],
    }


def test_a_whole_mission_is_read_as_the_contract_states_it() -> None:
    text = r"""
name: survey
goal: Describe this project in SURVEY.md.
root: .
root_aliases: ["C:\\Sheratan\\2_sheratan_core"]
planner: {type: local, model: small, temperature: 0.5}
limits: {max_followups: 5, max_jobs: 100, max_turns: 25, max_seconds: null}
policy:
  - {kinds: [write_file], paths: ["docs/**"], do: auto}
accept:
  - {file_exists: SURVEY.md}
  - {file_matches: {path: SURVEY.md, pattern: "^# "}}
continue: per_result
on_job_failure: fail
"""
    spec = parse_mission(text, source="m.yaml")
    assert spec.root_aliases == (r"C:\Sheratan\2_sheratan_core",)
    assert spec.planner.options == {"model": "small", "temperature": 0.5}
    assert spec.limits.max_seconds is None
    assert spec.policy[0].do is Verdict.AUTO
    assert spec.continue_ == "per_result"
    assert [check.description for check in spec.accept] == [
        "the file SURVEY.md exists",
        "the file SURVEY.md matches ^# ",
    ]


def test_json_with_tabs_is_a_mission_file_too() -> None:
    text = '{\n\t"goal": "x",\n\t"planner": {"type": "script", "replies": ["a", {"ok": true}]}\n}'
    assert parse_mission(text, source="m.json").planner.options == {"replies": ["a", {"ok": True}]}


def test_a_flow_mapping_that_is_not_json_is_yaml() -> None:
    assert parse_mission("{goal: x, planner: script}", source="m.yaml").goal == "x"


def test_aliases_are_copied_where_they_stay_small() -> None:
    text = f"{GOOD}policy:\n- &rule {{kinds: [write_file], do: hold}}\n- *rule\n"
    assert len(parse_mission(text, source="m.yaml").policy) == 2


SCALARS = [
    ("no", "no"), ("on", "on"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("1_000", "1_000"), ("007", 7),
    ("0o17", 15), ("0x1f", 31), ("true", True), ("~", None), ("null", None), ("-1.5e3", -1500.0), (".5", 0.5),
    ("1e999", "1e999"),
]  # fmt: skip


@table(("text", "value"), SCALARS)
def test_plain_words_read_as_in_yaml_1_2(text: str, value: object) -> None:
    assert read_scalar(text) == value
    assert read_document(f"- {text}") == [value]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(NotReadable):
        json.dumps(read_document(text), allow_nan=False)


SIMPLE = st.none() | st.booleans() | st.integers() | st.text("ab\"'\\\n", max_size=8)


@given(st.recursive(SIMPLE, st.lists, max_leaves=9))
def test_what_json_writes_is_read_back(value: object) -> None:
    assert read_document(json.dumps({"a": value})) == {"a": value}


def test_a_value_that_is_read_already_has_no_variables() -> None:
    stated: dict[str, JsonValue] = {"goal": "${x}", "planner": {"type": "script"}}
    assert build_mission(stated, source="m", settings=["name=n"]).goal == "${x}"
    assert "name" not in stated


class TestVariables:
    def test_are_replaced_in_strings_at_any_depth(self) -> None:
        text = "goal: Look at ${what}.\nplanner: {type: script, replies: [{summary: '${what}!'}]}"
        spec = parse_mission(text, source="m.yaml", variables={"what": "it"})
        assert spec.goal == "Look at it."
        assert spec.planner.options == {"replies": [{"summary": "it!"}]}

    def test_are_not_replaced_in_what_they_bring(self) -> None:
        spec = parse_mission(
            "name: ${b}\ngoal: ${a}\nplanner: script",
            source="m",
            variables={"a": "${b} {x: y}\n", "b": "no"},
        )
        assert (spec.name, spec.goal) == ("no", "${b} {x: y}\n")

    def test_are_escaped_by_a_second_dollar(self) -> None:
        assert parse_mission("goal: $${a} costs $5\nplanner: script", source="m").goal == "${a} costs $5"

    def test_are_not_replaced_in_keys(self) -> None:
        message = refusal(f"{GOOD}name: ${{key}}\n${{key}}: 1", variables={"key": "name"})
        assert "${key}: is not a known key" in message

    UNKNOWN: tuple[tuple[str, dict[str, str], str], ...] = (
        ("goal: ${who}", {}, "goal: the variable 'who' has no value; give it with --var who=VALUE"),
        ("goal: ${a} ${b}", {"a": "x"}, "goal: the variable 'b' has no value; give it with --var b=VALUE"),
        ("policy: [{paths: ['${x}']}]", {}, "policy.0.paths.0: the variable 'x' has no value"),
        ("goal: ${a b}", {}, "goal: '${' begins a variable"),
    )

    @table(("text", "variables", "said"), UNKNOWN)
    def test_without_a_value_are_named(self, text: str, variables: dict[str, str], said: str) -> None:
        assert said in refusal(text, variables=variables)


class TestSettings:
    def set(self, *settings: str) -> MissionSpec:
        return parse_mission(f"{GOOD}policy: [{{do: hold}}]", source="m", settings=settings)

    def test_replace_values_before_validation(self) -> None:
        spec = self.set("limits.max_jobs=200", "limits.max_seconds=null", "policy.0.do=auto", "name = a name")
        assert (spec.limits.max_jobs, spec.limits.max_seconds, spec.name) == (200, None, "a name")
        assert spec.policy[0].do is Verdict.AUTO

    def test_take_text_as_it_stands_and_quoted_or_flow_values_as_yaml(self) -> None:
        spec = self.set("goal=Do: this = that", 'name="5"', "root_aliases=[a, 'C:\\b']", "planner=script")
        assert (spec.goal, spec.name, spec.root_aliases) == ("Do: this = that", "5", ("a", "C:\\b"))
        assert (spec.planner.type, spec.planner.options) == ("script", {})

    WRONG = (
        ("limits.max_job=3", "limits.max_job: is not a known key; did you mean 'max_jobs'?"),
        ("limits", '--set: key=value is expected, not "limits"'),
        ("a..b=3", "--set: key=value is expected"),
        (".".join("a" * 30) + "=1", "--set: key=value is expected"),
        ("goal.x=3", "--set goal.x: 'x' needs a mapping or a list around it, not \"Look around.\""),
        ("policy.7.do=auto", "--set policy.7.do: '7' should be an index of a list of 1"),
        ("name=[a", "--set name: line 1"),
    )

    @table(("setting", "said"), WRONG)
    def test_that_do_not_fit_are_named(self, setting: str, said: str) -> None:
        assert said in refusal(f"{GOOD}policy: [{{do: hold}}]", settings=[setting])


class TestDeclaredVariables:
    TEXT = (
        f"{GOOD}name: ${{out}}\nvariables:\n  module: the module to look at\n"
        "  out: {description: where to write, default: 'docs/${module}.md'}\n"
    )

    def test_have_a_default_that_may_name_the_ones_before(self) -> None:
        assert parse_mission(self.TEXT, source="m", variables={"module": "a.py"}).name == "docs/a.py.md"
        given = {"module": "a.py", "out": "${x}"}
        assert parse_mission(self.TEXT, source="m", variables=given).name == "${x}"

    def test_without_a_value_say_what_they_are_for(self) -> None:
        said = "the variable 'module' has no value: the module to look at; give it with --var module=VALUE"
        assert refusal(self.TEXT) == f"m.yaml: {said}"

    @pytest.mark.parametrize(
        ("text", "given", "meant"), [(TEXT, "modul", "module"), ("goal: ${who}", "whom", "who")]
    )
    def test_are_the_only_ones_that_can_be_given(self, text: str, given: str, meant: str) -> None:
        with pytest.raises(LcpError) as refused:
            parse_mission(text, source="m.yaml", variables={given: "a.py"})
        assert refused.value.code is ErrorCode.INVALID_ARGUMENT
        assert (
            str(refused.value) == f"m.yaml: --var {given}: no variable is named so; did you mean {meant!r}?"
        )

    BAD: ClassVar = [
        ("variables: [a]", "variables: should be"),
        ("variables: {a b: x}", "variables.a b"),
        ("variables: {a: ''}", "variables.a.description: should be text that is not empty"),
        ("variables: {a: {about: x}}", "variables.a.about: is not a known key"),
        ("variables: {a: {description: x, defualt: y}}", "did you mean 'default'?"),
        (
            "variables: {a: {description: x, default: '${b}'}, b: {description: x, default: y}}",
            "'b' has no value",
        ),
        ("variable: {a: x}", "variable: is not a known key; did you mean 'variables'?"),
    ]

    @table(("text", "said"), BAD)
    def test_are_read_strictly(self, text: str, said: str) -> None:
        assert said in refusal(f"{GOOD}{text}\n")

    def test_are_told_before_they_have_values(self) -> None:
        outline = outline_mission(self.TEXT, source="m")
        assert (outline.description, outline.planner) == ("Look around.", "surveyor")
        assert [variable.default for variable in outline.variables.values()] == [None, "docs/${module}.md"]


MERGES = "".join(
    ["a0: &a0 {x: 1}\n", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))]
)


@pytest.mark.proof
@table("text", ["[" + "a, " * 340_000 + "a]", "- - - - \n" * 110_000, MERGES])
def test_keys_and_values_are_counted_while_they_are_read(text: str) -> None:
    read = 0

    def counted(text: str, Loader: type[yaml.CSafeLoader]) -> Iterator[yaml.Event]:  # noqa: N803 -- PyYAML's name
        nonlocal read
        for event in parse(text, Loader=Loader):
            read += 1
            yield event

    with pytest.MonkeyPatch.context() as patch:
        parse = yaml.parse
        patch.setattr(yaml, "parse", counted)
        with pytest.raises(NotReadable, match="more than 200,000 keys and values"):
            read_document(text)
    assert read <= 2 * MAX_VALUES


@table("loader", ["with libyaml", "without libyaml"])
@table(
    ("text", "value"),
    [
        (
            "a: &x [1, 'b', {c: ~}]\nd: *x\n? f\n: e\n",
            {"a": [1, "b", {"c": None}], "d": [1, "b", {"c": None}], "f": "e"},
        ),
        ("|\n  \ttab\n", "\ttab\n"),
        ("a: |\n  one\n   two\n", {"a": "one\n two\n"}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("--- x\n...\n", "x"),
        ("# nothing", None),
    ],
)
def test_both_parsers_read_the_same(
    loader: str, text: str, value: JsonValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", loader == "with libyaml")
    assert read_document(text) == value


@table("loader", ["with libyaml", "without libyaml"])
@table(
    ("text", "said"),
    [
        ("a: &x 1\nb: &x 2", "line 2: the anchor 'x' is there twice"),
        ("a: *x", "line 1: found undefined alias 'x'"),
        ("a: [1\nb: 2", "line 2, column 2: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("a: 1\n--- b", "line 2: but found another document; one is expected"),
        ("a: &x [[1]]\nb: " + "[" * 57 + "*x" + "]" * 57, "more than 200,000 keys and values or 60 levels"),
    ],
)
def test_both_parsers_refuse_the_same(
    loader: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", loader == "with libyaml")
    with pytest.raises(NotReadable, match=re.escape(said)):
        read_document(text)


def test_a_long_text_that_is_no_yaml_is_read_once() -> None:
    text = "a: 1\n" + "# long\n" * 200_000 + "b: c: d"
    with pytest.raises(NotReadable, match="line 200002, column 5: mapping values are not allowed"):
        read_document(text)


@pytest.mark.parametrize("is_json", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_a_plan_has_as_many_steps_in_yaml_as_in_json(*, is_json: bool) -> None:
    def mission(count: int) -> str:
        steps = [
            {
                "id": f"step-{n:05}",
                "tool": "read_file",
                "parameters": {"path": "a"},
                "dependencies": [f"step-{n - 1:05}"],
            }
            for n in range(1, count + 1)
        ]
        steps[0]["dependencies"] = []
        plan = {"goal": "x", "plan": {"steps": steps}}
        return json.dumps(plan) if is_json else yaml.dump(plan, Dumper=yaml.CSafeDumper)

    spec = parse_mission(mission(10_000), source="m")
    assert (plan := PlanKeys.of(spec).plan) is not None
    assert len(plan.steps) == 10_000
    assert "plan.steps: at most 10,000 are read; there are 10,001" in refusal(mission(10_001))


class TestSchemaOfTheResult:
    def read(self, name: str) -> str:
        if name != "people.json":
            raise NotFilled("it does not exist")
        return '{"type": "array"}'

    def test_a_file_is_read_where_the_mission_names_it(self) -> None:
        spec = parse_mission(f"{GOOD}result: {{schema: people.json}}", source="m.yaml", read_file=self.read)
        assert spec.result is not None
        assert json.loads(spec.model_dump_json(by_alias=True))["result"] == {"schema": {"type": "array"}}

    def test_a_setting_may_name_another_one(self) -> None:
        settings = ["result.schema=people.json"]
        spec = parse_mission(GOOD, source="m.yaml", settings=settings, read_file=self.read)
        assert spec.result is not None

    @table(
        ("text", "said"),
        [
            ("{schema: other.json}", 'm.yaml: result.schema: "other.json": it does not exist'),
            (
                "{schema: {type: strin}}",
                'm.yaml: result.schema: should be a JSON Schema: "strin" is not valid',
            ),
            ("{}", "m.yaml: result.schema: is required and missing"),
            ("people.json", "m.yaml: result: should be a mapping, not"),
            ("{scheme: people.json}", "m.yaml: result.scheme: is not a known key; did you mean 'schema'?"),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, text: str, said: str) -> None:
        with pytest.raises(LcpError, match="result") as refused:
            parse_mission(f"{GOOD}result: {text}", source="m.yaml", read_file=self.read)
        assert str(refused.value).startswith(said)
