"""What a model with a small context is offered at which turn, and what it is asked."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator
from pydantic import BaseModel, JsonValue
from tests.features.models.planners.test_wire import (
    FILES,
    KINDS,
    MODELS,
    actions,
    asked,
    branches,
    job,
    listing,
    reading,
    writing,
)
from tests.tables import table

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.protocol.actions import AnalysisResult, CreateFollowupJobs, WriteFile
from lcp_engine.core.protocol.read_reply import Dialect, read_reply
from lcp_engine.features.models.options import Guidance
from lcp_engine.features.models.planner import shown
from lcp_engine.features.models.prompts.evidence import telling_lines
from lcp_engine.features.models.prompts.guidance import (
    OPEN,
    Concludes,
    Guide,
    Lists,
    Reads,
    Uses,
    Writes,
    asks_for,
    guide_of,
    named_files,
    only_asks,
    values_in,
)
from lcp_engine.features.models.prompts.guided_prompt import taken_from_example, write_guided
from lcp_engine.features.models.prompts.reply_schema import reply_schema
from lcp_engine.features.universal.dialect import read_universal
from lcp_engine.planners.base import Kind, Question, Said

TREE = (
    "README.md",
    "Makefile",
    "src/a.py",
    "src/b.py",
    "src/deep/a.py",
    "docs/long name.md",
    "CHANGES.rst",
    "NEWS",
)
LOOKS = tuple(kind for kind in KINDS if kind.name in ("list_files", "read_file"))


@table(
    ("text", "named"),
    [
        ("Read src/b.py.", ["src/b.py"]),
        ("Compare b.py with README.md, then say more.", ["src/b.py", "README.md"]),
        ("Read a.py.", []),  # two files have that name
        ("Read deep/a.py (not the other).", ["src/deep/a.py"]),
        ("Read ./src/a.py", ["src/a.py"]),
        ("What does the Makefile do?", ["Makefile"]),
        ("Is there any news?", []),
        ('Read "NEWS".', ["NEWS"]),
        ("Read readme.md", ["README.md"]),
        ("Read the README and CHANGES.", ["README.md", "CHANGES.rst"]),
        ("Read `docs/long name.md`.", ["docs/long name.md"]),
        ("Read all of src/", ["src/a.py", "src/b.py", "src/deep/a.py"]),
        ("List src/, then read src/b.py", ["src/b.py"]),
        ("Review *.md", ["README.md", "docs/long name.md"]),
        ("Review the files * for bugs.", []),
        ("Read missing.py and 1.2.3", []),
        ("Lies README.md und nenne die Lizenz.", ["README.md"]),
        ("../README.md", []),
        ("", []),
    ],
)
def test_a_goal_names_files(text: str, named: list[str]) -> None:
    assert list(named_files(text, TREE)) == named


def test_a_directory_of_many_files_names_none_of_them() -> None:
    assert named_files("Read src/", [f"src/{number}.py" for number in range(11)]) == ()


@table(
    ("goal", "is_question"),
    [
        ("Read a.py and say what it does.", True),
        ("Which command was removed?", True),
        ("Fix what is wrong in a.py.", False),
        ("Read a.py, then write b.py.", False),
        ("a.py", False),
        ("Schreibe README.md neu.", False),
    ],
)
def test_a_goal_that_only_asks_is_told_from_one_that_has_something_done(goal: str, is_question: bool) -> None:
    assert only_asks(goal) is is_question


def guide(goal: str, *jobs: object, kinds: tuple[Kind, ...] = LOOKS, **more: object) -> Guide:
    return guide_of(question(goal, *jobs, kinds=kinds, **more))


def question(goal: str, *jobs: object, kinds: tuple[Kind, ...] = LOOKS, **more: object) -> Question:
    return asked(*jobs, kinds=kinds, goal=goal, prompt=goal, **more)  # type: ignore[arg-type] # jobs are SeenJobs


BOTH = "Read README.md and src/a.py, and say what they are for."
LISTED = listing(1, *FILES)


def test_the_files_are_listed_then_those_that_the_goal_names_are_read_then_the_mission_ends() -> None:
    first, second = reading(2, "README.md"), reading(3, "src/a.py")
    assert guide(BOTH) == Lists("list_files")
    assert guide(BOTH, LISTED) == Reads("read_file", ("README.md", "src/a.py"))
    assert guide(BOTH, LISTED, first) == Reads("read_file", ("src/a.py",))
    assert guide(BOTH, LISTED, first, second) == Concludes("analysis_result")


def test_a_named_file_that_cannot_be_read_does_not_keep_the_mission_from_ending() -> None:
    failed = job(3, "read_file", {"rel_path": "src/a.py"}, code="BINARY")
    assert guide(BOTH, LISTED, reading(2, "README.md"), failed) == Concludes("analysis_result")


def test_a_named_file_that_was_read_in_part_is_read_on() -> None:
    part = reading(2, "README.md", "line\n" * 40, truncated=True, total=90)
    assert guide("Say what README.md is about.", LISTED, part) == Reads("read_file", ("README.md",), 40)


def test_no_more_files_are_read_at_once_than_a_reply_may_request() -> None:
    assert guide(BOTH, LISTED, max_followups=1) == Reads("read_file", ("README.md",))
    assert guide(BOTH, LISTED, jobs_left=1) == Reads("read_file", ("README.md",))
    assert guide(BOTH, LISTED, jobs_left=0) == OPEN


def test_a_goal_that_names_no_file_leaves_the_choice_to_the_model() -> None:
    assert guide("Say what this project is for.", LISTED) == OPEN


def test_the_last_turn_concludes_and_may_fail_if_nothing_was_found() -> None:
    assert guide(BOTH, last_turn="max_turns") == Concludes("analysis_result", may_fail=True)
    assert guide(BOTH, LISTED, reading(2, "README.md"), last_turn="max_turns") == Concludes("analysis_result")


@table(
    ("goal", "concludes"),
    [
        ("Read README.md and end with mission_complete.", Concludes("mission_complete")),
        ("Read README.md; report issues.", Concludes("analysis_result", ("issues",))),
        ("Read README.md and say what it is.", Concludes("analysis_result")),
    ],
)
def test_the_ending_is_the_one_that_the_goal_asks_for(goal: str, concludes: Concludes) -> None:
    assert guide(goal, LISTED, reading(2, "README.md")) == concludes


def test_a_goal_that_may_want_changes_is_not_ended_for_the_model() -> None:
    assert guide("Read README.md and fix it.", LISTED, reading(2, "README.md"), kinds=KINDS) == OPEN
    assert guide("Say what README.md is.", LISTED, reading(2, "README.md"), kinds=KINDS) == Concludes(
        "analysis_result"
    )


def test_the_only_files_that_may_be_written_are_written_before_the_end() -> None:
    writes = tuple(kind for kind in KINDS if kind.name in ("list_files", "read_file"))
    writes += tuple(
        Kind(kind.name, kind.description, kind.params, is_held=False, role=kind.role)
        for kind in KINDS
        if kind.name == "write_file"
    )
    goal, files = "Read README.md, then write docs/a.md.", {"write_file": ("docs/a.md",)}
    done = (LISTED, reading(2, "README.md"))
    assert guide(goal, *done, kinds=writes, writable=files) == Writes(("docs/a.md",))
    wrote = (*done, writing(3, "docs/a.md"))
    assert guide(goal, *wrote, kinds=writes, writable=files) == Concludes("mission_complete")
    refused = guide(goal, *wrote, kinds=writes, writable=files, notices=("The heading is missing.",))
    assert refused == Writes(("docs/a.md",)), "a notice says what is wrong with it"


class Word(BaseModel):
    word: str


LOOK_UP = Kind("look_up", "Say what a word means.", Word, is_held=False, example={"word": "rye"})


@table(
    ("text", "is_asked"),
    [
        ("Look up what oven means.", True),
        ("Say what oven is.", False),
        ("Give the meaning of these words", True),
        ("Read README.md.", False),
    ],
)
def test_a_goal_asks_for_a_kind_by_its_name_or_by_its_description(text: str, is_asked: bool) -> None:
    kind = Kind("look_up", "Give the meaning of a foreign expression in words.", Word, is_held=False)
    assert asks_for(text, kind) is is_asked


def test_a_kind_that_the_goal_asks_for_is_used_once_what_it_names_is_read() -> None:
    kinds = (*LOOKS, LOOK_UP)
    assert guide("Look up what oven means.", kinds=kinds) == Uses(("look_up",), ("oven",))
    goal = "Read README.md and look up its first word."
    assert guide(goal, kinds=kinds) == Lists("list_files")
    assert guide(goal, LISTED, kinds=kinds) == Reads("read_file", ("README.md",))
    read = (LISTED, reading(2, "README.md"))
    assert guide(goal, *read, kinds=kinds) == Uses(("look_up",))
    found = job(3, "look_up", {"word": "rye"}, {"meaning": "a grain"})
    assert guide(goal, *read, found, kinds=kinds) == Concludes("analysis_result")


def test_what_a_person_says_is_heard_as_the_goal_is() -> None:
    said = (Said("Read src/b.py as well.", "ada"),)
    read = (LISTED, reading(2, "README.md"))
    assert guide("Say what README.md is.", *read, said=said) == Reads("read_file", ("src/b.py",))


@table(
    "goal",
    [
        "Lies src/a.py und README.md und sage, welche Version es ist.",
        "Прочитай src/a.py и README.md.",
        "阅读README.md和src/a.py并说明版本号。",
        "src/a.pyとREADME.mdを読んで、バージョンを答えてください。",
        "อ่านREADME.mdและsrc/a.pyแล้วบอกเวอร์ชัน",
    ],
)
def test_files_are_named_in_any_language(goal: str) -> None:
    assert set(named_files(goal, FILES)) == {"README.md", "src/a.py"}


def test_a_name_in_letters_without_blanks_is_found_in_a_sentence() -> None:
    assert named_files("请阅读说明.md并总结。", ("说明.md", "README.md")) == ("说明.md",)
    assert named_files("Lies Größe.md.", ("e.md", "Größe.md")) == ("Größe.md",)


@table(
    "goal",
    [
        "Was steht in README.md? Dann schreibe docs/a.md.",
        "Schreibe den Name des Autors aus README.md nach docs/a.md.",
        "README.md里写了什么?然后写docs/a.md。",
    ],
)
def test_what_a_goal_in_another_language_asks_for_is_left_to_the_model(goal: str) -> None:
    assert not only_asks(goal)


@table(
    ("goal", "values"),
    [
        ("Look up what oven means.", ("oven",)),
        (
            "Look up the words 'cold store' and rye-bread.",
            ("cold store", "words", "cold", "store", "rye-bread"),
        ),
        ("Schlage oven nach.", ("Schlage", "oven", "Schlage oven", "nach", "oven nach", "Schlage oven nach")),
        ("查oven的意思", ()),
        (" ".join(f"w{n}" for n in range(99)), ()),
    ],
)
def test_a_kind_takes_its_params_from_the_words_of_the_goal(goal: str, values: tuple[str, ...]) -> None:
    assert set(values_in(goal, [LOOK_UP])) >= set(values)
    assert bool(values_in(goal, [LOOK_UP])) == bool(values)


def test_words_of_the_goal_narrow_free_texts_alone() -> None:
    asked_now = question("Look up what oven means.", kinds=(*LOOKS, LOOK_UP))
    schema = reply_schema(asked_now, guide=Uses(("look_up",), ("oven",)))

    def accepts(word: str) -> bool:
        job: JsonValue = {"kind": "look_up", "params": {"word": word}}
        reply: JsonValue = {"action": "create_followup_jobs", "ok": True, "new_jobs": [job]}
        return Draft202012Validator(schema).is_valid(reply)

    assert (accepts("oven"), accepts("rye")) == (True, False)


GUIDES: dict[str, tuple[Question, Guide]] = {
    "lists": (question(BOTH), Lists("list_files")),
    "reads": (question(BOTH, LISTED), Reads("read_file", ("README.md", "src/a.py"))),
    "reads on": (question(BOTH, LISTED), Reads("read_file", ("README.md",), 40)),
    "uses": (question(BOTH, kinds=(*LOOKS, LOOK_UP)), Uses(("look_up",))),
    "writes": (question(BOTH, LISTED, kinds=KINDS), Writes(("docs/a.md",))),
    "concludes": (question(BOTH, LISTED, reading(2, "README.md")), Concludes("analysis_result")),
}
SAMPLES: dict[str, dict[str, JsonValue]] = {
    "lists": {"new_jobs": [{"kind": "list_files", "params": {"root": ".", "patterns": None}}]},
    "reads": {
        "new_jobs": [
            {"kind": "read_file", "params": {"rel_path": path, "root": "."}}
            for path in ("README.md", "src/a.py")
        ]
    },
    "reads on": {
        "new_jobs": [
            {"kind": "read_file", "params": {"rel_path": "README.md", "root": ".", "offset": 40, "limit": 20}}
        ]
    },
    "uses": {"new_jobs": [{"kind": "look_up", "params": {"word": "oven"}}]},
    "writes": {"rel_path": "docs/a.md", "content": "# A\n"},
    "concludes": {"summary": "They are texts."},
}
NAMES = {"writes": "write_file", "concludes": "analysis_result"}


@table("case", GUIDES)
def test_a_guided_turn_offers_one_action_which_is_valid(case: str) -> None:
    asked_now, guided = GUIDES[case]
    name = NAMES.get(case, "create_followup_jobs")
    schema = reply_schema(asked_now, guide=guided)
    assert actions(schema).keys() == {name}
    reply = json.dumps({"action": name, "ok": True, **SAMPLES[case]})
    assert Draft202012Validator(schema).is_valid(json.loads(reply)), reply
    found = read_reply(reply, {**MODELS, "look_up": Word})
    assert isinstance(found, CreateFollowupJobs | WriteFile | AnalysisResult), found


@table("case", GUIDES)
def test_a_guided_response_of_the_dialect_universal_is_the_same_action(case: str) -> None:
    asked_now, guided = GUIDES[case]
    schema = reply_schema(asked_now, "universal", guide=guided)
    assert len(branches(schema)) == 1
    response: dict[str, JsonValue] = {
        "response_type": "research",
        "status": "success",
        "message": "They are texts.",
    }
    if case != "concludes":
        name = NAMES.get(case, "create_followup_jobs")
        inner: dict[str, JsonValue] = {"action": name, "ok": True, **SAMPLES[case]}
        response = {
            "response_type": "custom",
            "status": "success",
            "message": "",
            "custom_fields": {"lcp": inner},
        }
    assert Draft202012Validator(schema).is_valid(response)
    found = read_universal(json.dumps(response), {**MODELS, "look_up": Word})
    assert isinstance(found, CreateFollowupJobs | WriteFile | AnalysisResult), found


@table("dialect", ["lcp", "universal"])
@table("case", ["lists", "reads"])
def test_what_the_prompt_shows_as_the_answer_fits_its_schema(case: str, dialect: Dialect) -> None:
    asked_now, guided = GUIDES[case]
    text = write_guided(asked_now, guided, budget_tokens=3000, dialect=dialect).messages[-1].content
    shown = json.loads(text.rsplit("\n", 1)[-1])
    assert Draft202012Validator(reply_schema(asked_now, dialect, guide=guided)).is_valid(shown)


def test_an_error_and_a_plan_after_reading_are_left_out_where_a_model_is_guided() -> None:
    assert actions(reply_schema(asked(), guide=OPEN)).keys() == {"create_followup_jobs"}
    read = asked(LISTED, reading(2, "README.md"))
    types = [str(branch["properties"]) for branch in branches(reply_schema(read, "universal", guide=OPEN))]
    assert not [text for text in types if "planning_data" in text]
    assert [text for text in map(str, branches(reply_schema(read, "universal"))) if "planning_data" in text]


def test_a_conclusion_is_asked_for_with_the_telling_lines_last() -> None:
    text = "# Tiny\n\nAdds numbers.\n\n## Licence\n\nApache-2.0\n\n## Thanks\n\nTo all.\n"
    read = (listing(1, "README.md"), reading(2, "README.md", text))
    goal = "Read README.md and say under which licence it is."
    prompt = write_guided(question(goal, *read), Concludes("analysis_result"), budget_tokens=3000)
    last = prompt.messages[-1].content
    assert last.startswith(goal)
    assert last.endswith(("README.md: Apache-2.0\n```", "README.md: ## Licence\n```")), last
    assert "To all." not in last
    assert prompt.fits


def test_people_the_engine_and_a_refused_answer_are_heard_in_a_guided_turn() -> None:
    read = (LISTED, reading(2, "README.md"))
    heard = question(BOTH, *read, said=(Said("Be brief.", "ada"),), notices=("The summary is missing.",))
    prompt = write_guided(heard, Concludes("analysis_result"), budget_tokens=3000)
    assert "ada says: Be brief." in prompt.text
    assert "The summary is missing." in prompt.text


def test_a_long_file_leaves_a_guided_prompt_within_its_budget() -> None:
    read = (LISTED, reading(2, "README.md", "what they are for is said here, at length\n" * 3000))
    goal = "Read README.md and summarise what it says at length."
    prompt = write_guided(question(goal, *read), Concludes("analysis_result"), budget_tokens=300)
    assert prompt.fits
    assert prompt.tokens <= 300


def test_lines_that_share_words_with_the_goal_tell_most() -> None:
    texts = {"a.conf": "colour = green\nport = 8123\n", "b.txt": "Ports of call: none.\nThe port is open.\n"}
    found = telling_lines("On which port does a.conf listen?", texts, 1)
    assert [(line.source, line.text) for line in found][-1] == ("a.conf", "port = 8123")
    assert telling_lines("Anything", {"empty": "\n\n--\n"}, 3) == []


def test_what_stands_below_a_heading_that_tells_is_telling() -> None:
    text = "0.9.3\n-----\nAmounts are rounded.\n\n0.9.2\n-----\nA command was dropped.\n"
    found = [line.text for line in telling_lines("What changed in 0.9.2?", {"CHANGES": text}, 2)]
    assert sorted(found) == ["0.9.2", "A command was dropped."]


@table(
    ("guidance", "context", "guides"),
    [("auto", 4096, True), ("auto", 4097, False), ("on", 100_000, True), ("off", 2048, False)],
)
def test_guidance_is_for_small_contexts_unless_the_options_say_otherwise(
    guidance: str, context: int, guides: bool
) -> None:
    assert Guidance(guidance).guides(context) is guides


def test_a_kind_of_another_role_is_no_kind_of_ones_own() -> None:
    held = Kind("look_up", "Say what a word means.", Word, is_held=True, role=KindRole.OTHER)
    assert guide("Look up what oven means.", kinds=(held,)) == OPEN


@table(
    ("goal", "said", "taken"),
    [
        ("Read README.md and say how many users it allows.", "It allows 10, so 10 boxes fit.", "boxes fit"),
        ("Read README.md and say when it is closed.", "The bakery is closed on Mondays.", "the bakery"),
        (
            "Read README.md and say what it sets.",
            "README.md sets max_users to 10, so 10 users fit in it.",
            None,
        ),
        ("Read README.md and say what it boxes.", "It boxes the error.", None),
        ("Read README.md and say how many boxes fit in the van.", "So 10 boxes fit in the van.", None),
        ("Read README.md and say whether it boxes.", "10 boxes fit.", None),
    ],
)
def test_words_about_the_things_of_an_example_are_taken_from_it(
    goal: str, said: str, taken: str | None
) -> None:
    question = asked(reading(1, "README.md", "users = 10\n"), goal=goal)
    prompt = write_guided(question, Concludes("analysis_result"), budget_tokens=2000)
    assert taken_from_example(said, shown(prompt.messages)) == taken
    assert taken_from_example(said, goal) is None
