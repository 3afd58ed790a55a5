from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from html import unescape
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.patience import in_thread, wait_until

from lcp_engine.core.job_states import Need, State
from lcp_engine.features.plans.chart import draw_plan
from lcp_engine.features.plans.graph import GraphStep, Link, PlanGraph
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.queries import pages
from lcp_engine.web.app import all_pages
from lcp_engine.web.pages import missions

if TYPE_CHECKING:
    from tests.web.conftest import House

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\x07\u202egnp\u200b"
SHOWN = "<script>alert(1)</script>\"'&<U+001B>[31m<U+0007><U+202E>gnp<U+200B>"


def test_an_empty_database_says_how_to_begin(house: House) -> None:
    assert "No missions yet" in house.get("/").words
    assert "No jobs wait" in house.get("/inbox").words
    assert "No jobs match" in house.get("/jobs").words


def test_pages_and_decisions_are_the_same_on_postgresql(house_on_postgresql: House) -> None:
    house = house_on_postgresql
    empty = {path: house.get(path).status for path, _ in all_pages() if "{" not in path}
    first, second = house.hold("a.md"), house.hold("b.md")
    house.approve(first)
    house.work()
    of = {"decision": "reject", "reason": "No."}
    assert house.post("/inbox", {"job": [str(first)], **of}).status == 409
    assert house.post("/inbox", {"job": [str(second)], **of}).status == 200
    assert [house.engine.job(one).state for one in (first, second)] == ["succeeded", "rejected"]
    places = [path.replace("{mission}", "1").replace("{job}", str(first)) for path, _ in all_pages()]
    found = {place: house.get(place).status for place in places if "{" not in place}
    assert [path for path, status in [*empty.items(), *found.items()] if status >= 500] == []
    assert [*found.values()].count(200) > 25, found


def test_missions_are_listed_the_newest_first_with_their_state(house: House) -> None:
    house.run(house.complete, name="First one")
    house.hold()
    words = house.get("/").words
    assert words.index("mission #2") < words.index("First one #1")
    assert "completed" in words
    assert "1 held" in words
    assert 'aria-label="Decide on 1 held job of mission 2"' in house.get("/").text
    assert "First one" not in house.get("/?status=waiting").words


def test_the_row_of_a_mission_shows_its_jobs_by_state(house: House) -> None:
    look, write = house.job("list_files", patterns=["*"]), house.job("write_file", rel_path="a", content="x")
    house.run(house.ask(look, write), house.complete)
    page = house.get("/")
    assert "3 succeeded, 1 held 3/4 1 held 2" in page.words
    assert re.findall(r'rect class="run (\w+)" x="(\d)" width="(\d)"', page.text) == [
        ("succeeded", "0", "3"), ("held", "3", "1"),
    ]  # fmt: skip


def test_missions_are_searched_and_counted_by_status(house: House) -> None:
    house.run(house.complete, name="Tidy 100% of it")
    house.run(house.complete, goal="Tidy the shelves.")
    house.run(house.ask(house.job("write_file", rel_path="a", content="x")), house.complete, name="tidy up")
    house.run(house.complete, name="Other <b>")
    answer = house.get("/?text=TIDY")
    assert "all 3 running 0 waiting 1 completed 2 failed 0 cancelled 0" in answer.words
    assert "Other" not in answer.text
    answer = house.get("/?text=tidy&status=waiting")
    assert "tidy up #3" in answer.words
    assert "shelves" not in answer.words
    assert "Tidy 100% of it" in house.get("/?text=100%25").words
    assert "No missions match" in house.get("/?text=1_0%25").words
    assert "all 4" in house.get("/").words
    assert "No missions match" in house.get("/?text=%3Cb%3E%00").words


def test_a_search_looks_through_some_missions_at_once_and_the_next_page_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = "SELECT id FROM missions WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET 1"
    monkeypatch.setattr(pages, "_SEARCHED_FROM", Sql(two, before=int))
    for name in ("sought 1", "other", "sought 2", "other", "other"):
        house.run(house.complete, name=name)
    path, seen = "/?text=sought", []
    assert "all 0+" in house.get(path).words
    while path:
        text = house.get(path).text
        seen.append(re.findall(r"sought \d", text))
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
    assert seen == [[], ["sought 2"], ["sought 1"]]


def test_a_mission_is_a_tree_of_turns_and_their_jobs(house: House) -> None:
    house.run(
        house.ask(house.job("list_files", patterns=["*.md"]), house.job("read_file", rel_path="gone.txt")),
        house.complete,
    )
    answer = house.get("/missions/1")
    words = answer.words
    for expected in (
        "Turn 1",
        "Look around.",
        "list_files",
        "*.md",
        "gone.txt",
        "PATH_NOT_FOUND",
        "Turn 2",
        "All done.",
    ):
        assert expected in words
    assert re.search(r"Turn 2.*?Turn 1.*?<ul>.*?list_files.*?</ul>", answer.text, re.DOTALL)


def test_a_turn_without_words_says_what_it_asked_for(house: House) -> None:
    look = house.job("list_files", patterns=["*.md"])
    house.run({"ok": True, "action": "create_followup_jobs", "new_jobs": [look]}, house.complete)
    words = house.get("/missions/1").words
    assert "1 job question 1" in words
    assert "create_followup_jobs" not in words


def test_a_question_shows_what_was_ignored_in_its_reply(house: House) -> None:
    look = {**house.job("list_files", patterns=["*.md"]), "comment": "look"}
    house.run({"ok": True, "action": "create_followup_jobs", "new_jobs": [look]}, house.complete)
    ignored = "Ignored in the reply new_jobs[0].comment: unknown key, ignored"
    assert ignored in house.get("/missions/1/questions/1").words
    assert "Ignored" not in house.get("/missions/1/questions/2").words
    assert "question 1 1 ignored" in house.get("/missions/1").words


def test_a_question_shows_the_reply_and_what_was_not_valid(house: House) -> None:
    house.run("no JSON at all", house.complete)
    words = house.get("/missions/1/questions/1").words
    assert "no JSON at all" in words
    assert "Errors" in words
    assert "corrects question 1" in house.get("/missions/1/questions/2").words


def test_the_timeline_says_in_words_how_long_each_job_waited_and_ran(house: House) -> None:
    house.run(house.ask(house.job("list_files")), house.complete)
    labels = re.findall(r'aria-label="(job \d+ waited [^"]+)"', house.get("/missions/1/timeline").text)
    assert [re.sub(r"[\d.]+ m?s", "T", label) for label in labels] == [
        f"job {n} waited T, ran T, succeeded" for n in (1, 2, 3)
    ]


def test_a_plan_is_drawn_with_its_longest_path_and_what_waits(house: House) -> None:
    steps: list[JsonValue] = [
        {"id": "step-001", "tool": "list_files", "parameters": {}},
        {"id": "step-002", "tool": "write_file", "parameters": {"path": "<b>.md", "content": "x"}, "name": "<b>",
         "dependencies": ["step-001"]},
        {"id": "step-003", "tool": "list_files", "parameters": {}, "dependencies": ["step-002"]},
    ]  # fmt: skip
    house.engine.launch({"goal": "Plan.", "plan": {"steps": steps}}, root=house.root)
    house.engine.work(until_idle=True)
    answer = house.get("/missions/1/plan")
    assert answer.status == 200
    assert answer.text.count("<rect ") == 3
    assert answer.text.count('<line class="success critical"') == 2
    assert "step-003 waits for step-002" in answer.words
    assert "<b>" not in answer.text


def test_equal_steps_of_a_plan_are_one_box_that_leads_to_each(house: House) -> None:
    steps: list[JsonValue] = [{"id": "first", "tool": "list_files", "parameters": {}, "name": "Look <i>"}]
    steps += [
        {"id": f"of-{number}", "tool": "list_files", "parameters": {}, "dependencies": ["first"]}
        for number in range(8)
    ]
    broken: JsonValue = {
        "id": "broken",
        "tool": "read_file",
        "parameters": {"path": "no"},
        "dependencies": ["first"],
    }
    last: JsonValue = {"id": "last", "tool": "list_files", "parameters": {}, "dependencies": ["broken"]}
    plan: JsonValue = {"steps": [*steps, broken, last]}
    house.engine.launch({"goal": "Plan.", "plan": plan}, root=house.root)
    house.engine.work(until_idle=True)
    answer = house.get("/missions/1/plan")
    assert "Look <i> list_files" in answer.words
    assert answer.text.count("<rect ") == 4
    assert "8 steps list_files succeeded of-0" in answer.words
    assert answer.text.count('class="success critical"') == 1
    assert answer.text.count("<line ") == 3
    # The lines of a step are drawn once more, to be seen when it has the pointer or the focus.
    assert sorted(path.count("M") for path in re.findall(r'class="own" d="([^"]+)"', answer.text)) == [
        1,
        1,
        2,
        2,
    ]


def test_columns_of_a_plan_fit_into_the_window_while_they_can_be_read() -> None:
    def chain(length: int) -> PlanGraph:
        before = [()] + [(Link(job, Need.SUCCESS),) for job in range(1, length)]
        steps = [GraphStep("s", n, "do", "", State.QUEUED, None, None, of) for n, of in enumerate(before, 1)]
        return PlanGraph("main", None, None, tuple(steps))

    assert [draw_plan(chain(length)).width <= 1080 for length in (1, 5, 8, 50)] == [True, True, True, False]
    assert (
        draw_plan(chain(3)).box_width > draw_plan(chain(8)).box_width > draw_plan(chain(50)).box_width == 84
    )


def test_a_mission_without_a_plan_says_so(house: House) -> None:
    house.run(house.complete)
    assert "This mission states no plan." in house.get("/missions/1/plan").words


def test_the_history_goes_on_page_by_page(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missions, "EVENTS", 4)
    house.run(house.ask(house.job("list_files")), house.complete)
    events = house.engine.events(1)
    path, seen = "/missions/1/history", []
    while path:
        text = house.get(path).text
        seen += [int(number) for number in re.findall(r'data-label="Number">(\d+)', text)]
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
    assert seen == [event["seq"] for event in reversed(events)]
    oldest = re.search(r'href="([^"]+)">Oldest events', house.get("/missions/1/history").text)
    assert oldest
    last_page = house.get(unescape(oldest[1])).text
    assert re.findall(r'data-label="Number">(\d+)', last_page) == ["4", "3", "2", "1"]
    assert "Newest events" in last_page
    assert "Older events" not in last_page


@pytest.mark.parametrize("view", ["", "/timeline"])
def test_the_jobs_of_a_mission_begin_with_the_newest(
    house: House, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setattr(missions, "JOBS", 3)
    house.run(house.ask(*(house.job("list_files", patterns=[f"*.{end}"]) for end in "abcde")), house.complete)
    path, seen = f"/missions/1{view}", []
    while path:
        text = house.get(path).text
        seen.append(sorted({int(number) for number in re.findall(r'"(?:name" href="|)/jobs/(\d+)"', text)}))
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
    assert seen == [[5, 6, 7], [2, 3, 4], [1]]
    oldest = house.get(f"/missions/1{view}?oldest")
    assert "Newest jobs" in oldest.words
    assert '"/jobs/3"' in oldest.text
    assert '"/jobs/4"' not in oldest.text


def test_the_actions_of_a_mission_are_above_its_jobs(house: House) -> None:
    house.hold()
    words = house.get("/missions/1").words
    assert words.index("Cancel this mission") < words.index("Turns and jobs")


def test_the_report_has_links_and_promises_an_undo_only_where_something_was_written(house: House) -> None:
    house.run(house.ask(house.job("list_files")), house.complete)
    report = house.get("/missions/1/report")
    assert "It changed no files" in report.words
    assert "lcp undo" not in report.words
    assert "/missions/1/undo" not in report.text
    house.approve(house.hold())
    house.work()
    report = house.get("/missions/2/report")
    assert "it can be undone while its files are as it left them" in report.words
    assert 'href="/missions/2/undo"' in report.text


def test_a_page_that_refuses_keeps_the_navigation_and_what_was_typed(house: House) -> None:
    job_id = house.hold()
    refused = house.post(
        f"/jobs/{job_id}/reject", {"csrf": "of an earlier start", "reason": "not <b>now</b>"}
    )
    assert refused.status == 403
    assert "<code>lcp serve</code>" in refused.text
    assert "not &lt;b&gt;now&lt;/b&gt;" in refused.text
    assert "of an earlier start" not in refused.text
    for answer in (refused, house.get("/missions/99"), house.get("/nowhere")):
        assert 'href="/inbox"' in answer.text
    assert 'href="/inbox"' not in house.stranger().get("/").text


def test_a_launch_says_which_field_is_at_fault(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LCP_PLANNER", "LCP_PLANNER_ENDPOINT", "LCP_PLANNER_BASE_URL", "LCP_PLANNER_SERVER"):
        monkeypatch.delenv(name, raising=False)
    answer = house.post("/launch", {"mission": "review", "root": str(house.root)})
    assert "choose a planner below" in answer.words
    assert "--planner" not in answer.words
    assert re.search(r'<select id="planner"[^>]*aria-invalid', answer.text)
    assert not re.search(r'<input id="root"[^>]*aria-invalid', answer.text)
    answer = house.post("/launch", {"mission": "survey", "root": str(house.root / "gone")})
    assert re.search(r'<input id="root"[^>]*aria-invalid', answer.text)


def test_the_report_tells_what_was_done_and_what_waits(house: House) -> None:
    house.run(
        house.ask(house.job("write_file", rel_path="x.md", content="x"), house.job("list_files")),
        house.complete,
    )
    words = house.get("/missions/1/report").words
    for expected in ("The planner says All done.", "Waits for a person Decide write_file", "1 list_files"):
        assert expected in words
    text = house.get("/missions/1/report.md")
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text.startswith("# Mission 1")


def test_the_report_of_a_large_mission_counts_among_its_newest_jobs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [house.job("list_files", patterns=[f"*.{number}"]) for number in range(4)]
    house.run(house.ask(house.job("read_file", rel_path="gone.md"), *looks), house.complete)
    whole = house.get("/missions/1/report").words
    assert "jobs succeeded" not in whole
    assert "read_file 2" in whole
    monkeypatch.setattr("lcp_engine.web.pages.missions.COUNTED", 3)
    page = house.get("/missions/1/report").words
    assert "6 jobs succeeded. See them Of the newest 3 jobs, turns left aside: 2 list_files" in page
    assert "Failed or refused 1 more" in page
    assert "6 jobs; of the newest 3: 2 list_files" in house.get("/missions/1/report.md").text


def test_the_percentage_and_the_highest_milestone_are_on_the_page_of_a_mission(house: House) -> None:
    look = house.ask(*(house.job("list_files", patterns=[f"*.{end}"]) for end in "abc"))
    mission_id = house.launch(look, house.ask(house.job("write_file", rel_path="x.md", content="x")))
    assert "0%" in house.get("/missions/1").words
    assert "reached" not in house.get("/missions/1").words
    house.work()
    for _ in range(2):
        shown = house.get("/missions/1").words
        percentage = house.engine.standing(mission_id)[1].percentage
        assert f" {percentage}% " in shown
        assert "50% reached" in shown
    house.engine.cancel(mission_id)
    assert "50% reached" in house.get("/missions/1").words


def test_the_report_of_a_plan_says_how_it_ended_and_gives_no_words_to_a_planner(house: House) -> None:
    steps: JsonValue = [{"id": "step-001", "tool": "list_files", "parameters": {}}]
    house.engine.launch({"goal": "Look.", "plan": {"steps": steps}}, root=house.root)
    house.work()
    words = house.get("/missions/1/report").words
    assert "How the plan ended 1 of 1 steps succeeded" in words
    assert "The planner says" not in words


def test_what_a_mission_found_is_on_its_page_and_in_the_report(house: House) -> None:
    found: JsonValue = {"people": ["Ada <1815>"]}
    reply: JsonValue = {
        "ok": True, "action": "analysis_result", "summary": "One.", "result": found, "issues": ["<b>torn</b>"],
    }  # fmt: skip
    house.run(reply, result={"schema": {"type": "object"}})
    for page in ("/missions/1", "/missions/1/report"):
        answer = house.get(page)
        assert '"Ada <1815>"' in answer.words
        assert "&lt;b&gt;torn&lt;/b&gt;" in answer.text


def test_a_job_shows_params_result_attempts_and_events(house: House) -> None:
    house.run(house.ask(house.job("read_file", rel_path="a.md")), house.complete)
    words = house.get("/jobs/2").words
    for expected in (
        "rel_path a.md",
        "Result",
        "read_file_result",
        "Attempts",
        "1 succeeded",
        "Events",
        "started",
    ):
        assert expected in words
    assert house.get("/jobs/2/json").headers["content-disposition"] == 'attachment; filename="job-2.json"'


def test_a_job_shows_what_its_program_wrote_to_stderr(house: House) -> None:
    house.run(house.ask(house.job("list_files", patterns=["*.md"])), house.complete)
    assert "stderr" not in house.get("/jobs/2").words
    said = f"one line\n{HOSTILE}"
    house.engine.instance.database.write(
        lambda tx: tx.plain(
            f"UPDATE attempts SET stderr = '{said.replace(chr(39), chr(39) * 2)}' WHERE job_id = 2"
        )
    )
    answer = house.get("/jobs/2")
    assert f"What attempt 1 wrote to stderr one line {SHOWN}" in answer.words
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [5, 4, 3, 2, 1]),
        ("kind=read_file", [3]),
        ("state=held", [4]),
        ("state=held&state=failed", [4, 3]),
        ("text=GONE.txt", [3, 1]),
        ("text=100%25", [4]),
        ("text=_00", []),
        ("text=say+%22hi%22", [4]),
        ("mission=1", [5, 4, 3, 2, 1]),
        ("mission=2", []),
        ("state=nothing", [5, 4, 3, 2, 1]),
    ],
)
def test_jobs_are_found_by_kind_state_mission_and_text(house: House, query: str, found: list[int]) -> None:
    jobs = [
        house.job("list_files"),
        house.job("read_file", rel_path="gone.txt"),
        house.job("write_file", rel_path="x.md", content='100% say "hi"'),
    ]
    house.run(house.ask(*jobs, commentary="Read gone.txt."), house.complete)
    text = house.get(f"/jobs?{query}").text
    assert [int(job) for job in re.findall(r'data-label="Job"><a href="/jobs/(\d+)"', text)] == found


def test_jobs_are_counted_by_state_whatever_states_are_shown(house: House) -> None:
    house.run(
        house.ask(house.job("list_files"), house.job("write_file", rel_path="x.md", content="x")),
        house.complete,
    )
    for query in ("", "?state=held", "?state=failed"):
        page = house.get(f"/jobs{query}")
        assert 'href="/jobs?state=held"' in page.text
        assert "held 1 " in page.words
        assert "succeeded 3 " in page.words
    counted = house.get("/jobs?kind=write_file&text=x.md")
    assert 'href="/jobs?state=held&amp;text=x.md&amp;kind=write_file"' in counted.text
    assert "held 1 " in counted.words
    assert "succeeded" not in counted.words


def test_words_of_several_lines_have_one_line_in_titles_and_lists(house: House) -> None:
    asked = house.ask(house.job("list_files"), house.job("write_file", rel_path="x.md", content="x"))
    said = {**asked, "commentary": "First this.\n\n  Then that.\n"}
    house.run(said, name="Look\nand tell", goal="Look around.\nTell what you saw.\n")
    for path in ("/", "/missions/1", "/inbox", "/jobs/3"):
        page = house.get(path)
        assert "Look and tell" in page.words
        assert "U+000A" not in page.words, path
        assert "\\n" not in page.words, path
    assert re.search(r"<title>\(1\) Look and tell · mission 1 · lcp</title>", house.get("/missions/1").text)
    assert "Look around. Tell what you saw." in house.get("/").words
    assert "First this. Then that." in house.get("/inbox").words


def test_whatever_a_planner_names_is_text_and_its_controls_are_seen(house: House) -> None:
    (house.root / "odd.md").write_text(f"{HOSTILE}\n")
    jobs = [
        house.job("write_file", name=HOSTILE, rel_path="<b>.md", content=HOSTILE),
        house.job("read_file", name=HOSTILE, rel_path="odd.md"),
        house.job("nothing-does-this", note=HOSTILE),
    ]
    complete: JsonValue = {
        **house.complete,
        "summary": HOSTILE,
        "deliverables": [HOSTILE],
        "metrics": {HOSTILE: HOSTILE},
    }
    house.run(house.ask(*jobs, commentary=HOSTILE), complete, name=HOSTILE, goal=HOSTILE)
    job_id = house.engine.jobs(states=["held"])[0].id
    house.post(f"/jobs/{job_id}/reject", {"reason": HOSTILE})
    views = [
        f"/missions/1{view}" for view in ("", "/timeline", "/plan", "/history", "/report", "/questions/1")
    ]
    paths = ["/", "/jobs", "/inbox", *views, *(f"/jobs/{number}" for number in range(1, 6))]
    for path in paths:
        answer = house.get(path)
        assert answer.status == 200, path
        assert "<script>alert" not in answer.text
        assert "<b>" not in answer.text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", answer.text), path
    assert SHOWN in unescape(house.get("/").text)
    assert SHOWN in unescape(house.get(f"/jobs/{job_id}").text)


def test_a_search_that_is_hostile_is_text(house: House) -> None:
    answer = house.get("/jobs?text=%22%3E%3Cscript%3Ealert(1)&kind=%22%3E%3Cimg&note=%3Cb%3E")
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/missions/99", 404, "mission 99 is not in the database"),
        ("/missions/99/events", 404, "mission 99 is not in the database"),
        ("/missions/1/questions/9", 404, "question 9 of mission 1"),
        ("/jobs/99", 404, "job 99 is not in the database"),
        ("/jobs/99/json", 404, "job 99 is not in the database"),
        ("/jobs/x", 422, "an id is a whole number"),
        ("/jobs/9999999999999999999999", 422, "an id is a whole number"),
        ("/jobs?mission=x", 422, "an id is a whole number"),
        ("/inbox?after=-1", 422, "an id is a whole number"),
        ("/nothing", 404, "there is no page at this address"),
        ("/jobs/1/approve", 405, "does not accept this method"),
    ],
)
def test_trouble_is_a_page_with_its_status_and_a_sentence(
    house: House, path: str, status: int, words: str
) -> None:
    house.run(house.complete)
    answer = house.get(path)
    assert answer.status == status
    assert words in answer.words
    assert "Traceback" not in answer.text


@pytest.mark.proof
def test_a_thousand_held_jobs_come_page_by_page(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{number}.md", content="x") for number in range(1000)]
    house.run(house.ask(*jobs), house.complete, limits={"max_followups": 1000, "max_jobs": 1000})
    path, seen, pages = "/inbox", [], 0
    while path:
        text = house.get(path).text
        pages += 1
        assert len(text) < 400_000
        seen += re.findall(r'name="job" value="(\d+)"', text)
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
    assert len(seen) == len(set(seen)) == 1000
    assert pages == 20
    assert "1,000" in house.get("/").words
    assert len(house.get("/missions/1").text) < 400_000


def test_large_params_stay_out_of_lists_and_are_cut_on_the_job(house: House) -> None:
    job_id = house.hold(content="line\n" * 60_000)
    inbox = house.get("/inbox")
    assert "notes.md" in inbox.words
    assert "Not all of it is shown here, so it cannot be approved here" in inbox.words
    assert f'action="/jobs/{job_id}/approve"' not in inbox.text
    assert len(inbox.text) < 100_000
    answer = house.get(f"/jobs/{job_id}")
    assert "too large to edit here" in answer.words
    assert "more characters in the JSON" in answer.words
    assert len(house.get(f"/jobs/{job_id}/json").text) > 300_000


def test_queued_jobs_that_nobody_works_on_are_pointed_out(house: House) -> None:
    house.launch(house.complete)
    assert "no runner is running" in house.get("/missions/1").words
    house.work()
    assert "no runner works" not in house.get("/missions/1").words


def test_a_root_that_does_not_answer_is_pointed_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a look at it hangs, in a runner that waits."""
    house.launch(house.complete)
    answers = threading.Event()
    monkeypatch.setattr("lcp_engine.store.host.roots.identity_at", lambda root: answers.wait() and None)
    runner = house.engine.runner(kinds=["list_files"])
    with in_thread(runner.run, runner.stop), ExitStack() as leaving:
        leaving.callback(answers.set)
        runner._served._disk.look("/mnt/far")
        wait_until(lambda: any(one.silent_roots for one in house.engine.runners()))
        for page in ("/", "/missions/1"):
            assert "/mnt/far does not answer runner 1" in house.get(page).words
        answers.set()
        wait_until(lambda: not any(one.silent_roots for one in house.engine.runners()))
        assert "does not answer" not in house.get("/").words


def test_a_job_says_first_what_it_is_for(house: House) -> None:
    write = house.job("write_file", rel_path="a.md", content="one\ntwo\n")
    house.run(house.ask(write, commentary="I write two lines."), goal="Fill the shelves.")
    held = house.engine.jobs(states=["held"])[0].id
    words = house.get(f"/jobs/{held}").words
    places = [
        words.index(part) for part in ("Fill the shelves.", "held a.md", "+2", "I write two lines.", "+one")
    ]
    assert places == sorted(places)


def test_progress_is_split_by_state_in_one_order(house: House) -> None:
    look, missing = house.job("list_files"), house.job("read_file", rel_path="none.md")
    writes = [house.job("write_file", rel_path=f"{name}.md", content="x") for name in "ab"]
    mission_id = house.run(house.ask(look, missing, *writes), house.ask())
    house.engine.reject(house.engine.jobs(states=["held"])[0].id, "no")
    words = "3 succeeded, 1 failed, 1 rejected, 1 held"
    for path in ("/", f"/missions/{mission_id}", f"/missions/{mission_id}/report"):
        assert f'aria-label="{words}"' in house.get(path).text, path


def test_a_mission_that_left_jobs_open_does_not_look_done(house: House) -> None:
    job_id = house.hold("a.md")
    look = house.job("list_files")
    mission_id = house.run(
        house.ask(house.job("write_file", rel_path="b.md", content="x"), look), house.complete
    )
    for path in ("/", f"/missions/{mission_id}"):
        answer = house.get(path)
        assert "ended, 1 open" in answer.words
        assert 'class="state waiting"' in answer.text
    assert '<progress max="100" value="100"' not in house.get(f"/missions/{mission_id}").text
    held = house.engine.jobs(states=["held"])[-1].id
    note = "Its mission has ended: approved, it still runs"
    assert note in house.get(f"/jobs/{held}").words
    assert note in house.get("/inbox").words
    house.engine.reject(held, "no")
    assert "ended, 1 open" in house.get("/").words
    assert note not in house.get(f"/jobs/{job_id}").words
