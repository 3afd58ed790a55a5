"""`lcp answer` and `lcp say`: questions of missions and messages to planners."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


@pytest.fixture
def asking(lcp: Lcp) -> Lcp:
    """One mission that waits with question 2."""
    ask = lcp.ask("ask_user", question="Which colour?", options=["red", "blue"])
    done = lcp("run", lcp.mission(ask, lcp.complete), "--root", "root", "--approve", "all")
    assert done.code == 3
    return lcp


def test_an_answer_picks_an_option_and_the_mission_goes_on(asking: Lcp) -> None:
    answered = asking("answer", 2, "b")
    assert answered.out == "job 2 answered: blue (option 2)\n"
    assert "lcp work" in answered.err
    assert asking("answer", 2, "2", "-q").out == "job 2 was already answered: blue (option 2)\n"
    otherwise = asking("answer", 2, "red")
    assert (otherwise.code, otherwise.err.count("\n")) == (5, 1)
    assert asking("work", "--until-idle", "-q").code == 0
    assert asking("show", 1, "--json").object["status"] == "completed"


def test_a_number_of_no_option_is_refused_with_the_options(asking: Lcp) -> None:
    done = asking("answer", 2, "3")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "job 2 has no option 3; the options are 1) red, 2) blue; `lcp answer 2 --words 3`" in done.err
    assert asking("job", 2, "--json").object["state"] == "held"
    assert asking("answer", 2, "--words", "3", "-q").out == "job 2 answered: 3 (in your own words)\n"


def test_an_answer_comes_from_stdin_or_a_file(asking: Lcp) -> None:
    answered = asking("answer", 2, "-", stdin="neither,\nreally\n")
    assert answered.out == "job 2 answered: neither, really (in your own words)\n"
    (asking.home / "same.txt").write_text("neither,\nreally")
    assert "was already answered" in asking("answer", 2, "--file", "same.txt").out
    job = asking("answer", 2, "--file", "-", "--json", stdin="neither,\nreally").object
    assert (job["state"], job["id"]) == ("succeeded", 2)


def test_approving_a_question_says_how_to_answer_it(asking: Lcp) -> None:
    done = asking("approve", 2)
    assert (done.code, "`lcp answer 2 TEXT`" in done.err) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Missing"), (("x", "yes"), 2, "x"), ((2,), 2, "TEXT or --file FILE is needed"),
        ((2, "yes", "--file", "f"), 2, "cannot be combined"), ((2, "  "), 2, "blank"), ((99, "yes"), 1, "job 99"),
        ((1, "yes"), 5, "a succeeded agent_plan"), ((2, "--file", "nowhere"), 1, "No such file"),
        ((2, "--file", "root"), 1, "directory"), ((2, "--file", "raw"), 1, "byte 0 is not"),
    ],
)  # fmt: skip
def test_an_invalid_answer_is_refused_in_one_line(
    asking: Lcp, arguments: tuple[object, ...], code: int, said: str
) -> None:
    (asking.home / "raw").write_bytes(b"\xff")
    done = asking("answer", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert said.casefold() in done.err.casefold()
    as_json = asking("answer", *arguments, "--json")
    assert json.loads(as_json.err)["error"]["user_message"]
    assert asking("job", 2, "--json").object["state"] == "held"


def test_a_message_is_shown_and_leads_to_a_turn(asking: Lcp) -> None:
    said = asking("say", 1, "Any colour will do.", "--job", 2)
    assert said.out == "mission 1: the planner reads the message in its next turn\n"
    assert "lcp work" in said.err
    assert asking("work", "--until-idle", "-q").code == 0
    shown = asking("show", 1)
    assert "about job 2: Any colour will do." in shown.out
    assert "about job 2: Any colour will do." in asking("watch", 1).out
    assert asking("job", 2, "--json").object["state"] == "held"


def test_speaking_to_a_mission_that_has_ended_names_the_way_on(asking: Lcp) -> None:
    asking("cancel", 1)
    done = asking("say", 1, "Wait!")
    assert (done.code, done.out, "`lcp resume 1`" in done.err) == (5, "", True)
    refused = asking("say", 1, "Wait!", "--json")
    assert (refused.code, refused.error["error_code"]) == (5, "WRONG_STATE")
    assert asking("say", 9, "Hello?").code == 1
    assert asking("say", 1).code == 2


def test_a_person_relays_between_a_mission_and_any_chat_window(lcp: Lcp) -> None:
    mission = lcp.mission(planner="human")
    waits = lcp("run", mission, "--root", "root", "--approve", "all")
    assert (waits.code, "`lcp answer 1 --file REPLY`" in waits.err) == (3, True)
    assert lcp("approve", "--all").out == "No held jobs.\n", "it takes a reply and no yes"
    prompt = lcp("job", 1, "--prompt").out
    assert "# Goal\nTry it." in prompt
    assert prompt.strip() in lcp("job", 1).out
    assert lcp("job", 1, "--json").object["prompt"] == prompt.removesuffix("\n")
    (lcp.home / "reply.json").write_text(json.dumps(lcp.complete))
    assert lcp("answer", 1, "--file", "reply.json", "-q").out == "job 1 answered\n"
    assert lcp("answer", 1, "--file", "reply.json", "-q").out == "job 1 was already answered\n"
    assert lcp("answer", 1, "something else").code == 5
    assert lcp("work", "--until-idle", "-q").code == 0
    assert lcp("show", 1, "--json").object["status"] == "completed"


def test_only_turns_have_a_prompt(asking: Lcp) -> None:
    done = asking("job", 2, "--prompt")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def test_held_shows_questions_with_options_and_what_answers_them(lcp: Lcp) -> None:
    ask = lcp.ask("ask_user", question="Which\x1b colour?", options=["red", "blue"])
    lcp("run", lcp.mission(ask, lcp.complete, hold_timeout=3600), "--root", "root", "-q")
    held = lcp("held").out
    assert "Which<U+001B> colour?\n  1) red\n  2) blue\n  `lcp answer 2 TEXT`" in held
    assert "expires" in held
    (job,) = json.loads(lcp("held", "--json").out)
    assert job["expires_at"] > job["created_at"]


FIELDS: JsonValue = [
    {"id": "version", "label": "Version", "required": True, "help": "Three numbers."},
    {
        "id": "channel",
        "type": "select",
        "label": "Channel",
        "options": ["stable", "beta"],
        "default": "stable",
    },
    {"id": "parts", "type": "multi_select", "label": "Parts", "options": ["cli", "web"]},
    {"id": "day", "type": "date", "label": "Day"},
]


@pytest.fixture
def form(lcp: Lcp) -> Lcp:
    """One mission that waits with question 2, which has a form."""
    ask = lcp.ask("ask_user", question="What shall it be?", fields=FIELDS)
    assert lcp("run", lcp.mission(ask, lcp.complete), "--root", "root").code == 3
    return lcp


def test_a_form_is_filled_in_and_its_values_are_the_result(form: Lcp) -> None:
    held = form("held").out
    assert "channel (stable|beta): Channel" in held
    assert "`lcp answer 2 --form KEY=VALUE … [TEXT]`" in held
    given = (
        "--form",
        "version=2.0",
        "--form",
        "parts=cli",
        "--form",
        "parts=web",
        "--form",
        "day=2026-01-31",
    )
    answered = form("answer", 2, *given, "soon, please")
    assert answered.out == (
        "job 2 answered: Version: 2.0; Channel: stable; Parts: cli, web; Day: 2026-01-31; soon, please\n"
    )
    result = form("job", 2, "--json").object["result"]
    assert isinstance(result, dict)
    assert result["values"] == {
        "version": "2.0", "channel": "stable", "parts": ["cli", "web"], "day": "2026-01-31",
    }  # fmt: skip
    assert result["words"] == "soon, please"
    assert form("answer", 2, *given, "soon, please", "-q").out.startswith("job 2 was already answered")
    assert form("answer", 2, *given).code == 5
    assert form("work", "--until-idle", "-q").code == 0
    assert form("replay", 1).code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--form", "versoin=2"), "job 2: versoin: the form has no such field; did you mean 'version'?"),
        (("--form", "day=2026-01-31"), "job 2: version: text is required; nothing was entered"),
        (("--form", "version=2", "--form", "channel=betta"), "did you mean 'beta'?"),
        (
            ("--form", "version=2", "--form", "version=3"),
            "job 2: version: text is expected; found ['2', '3']",
        ),
        (("--form", "version"), "--form"),
        ((), "TEXT or --file FILE is needed"),
    ],
)
def test_a_form_that_is_not_filled_in_is_one_line_and_decides_nothing(
    form: Lcp, given: tuple[str, ...], said: str
) -> None:
    refused = form("answer", 2, *given)
    assert refused.code == 2
    assert said in refused.err
    assert form("job", 2, "--json").object["state"] == "held"


def test_words_alone_answer_a_question_with_a_form(form: Lcp) -> None:
    assert form("answer", 2, "whatever you like", "-q").out == "job 2 answered: whatever you like\n"
    result = form("job", 2, "--json").object["result"]
    assert isinstance(result, dict)
    assert "values" not in result


def test_a_question_without_a_form_takes_none(asking: Lcp) -> None:
    assert "job 2 has no form" in asking("answer", 2, "--form", "a=b").err
