"""What people are shown of held jobs, and that their approval holds for what they were shown."""

from __future__ import annotations

import pytest
from pydantic import JsonValue
from tests.engine.conftest import Lab, Object

from lcp_engine.errors import LcpError

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}


def write(path: str = "a.md", content: str = "new\n", **params: JsonValue) -> Object:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content, **params}}


def ask(*jobs: JsonValue) -> Object:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


@pytest.fixture
def shop(lab: Lab) -> Lab:
    """A root with the file a.md."""
    (lab.root / "a.md").write_text("old\n")
    return lab


def test_a_held_write_shows_what_it_would_change_now(shop: Lab) -> None:
    shop.run(ask(write()), DONE)
    (job,) = shop.jobs()
    (diff,) = shop.engine.diff(job.id)
    assert diff.lines[2:] == ("@@ -1 +1 @@", "-old", "+new")
    (shop.root / "a.md").write_text("other\n")
    assert "-other" in shop.engine.diff(job.id)[0].lines


def test_an_append_is_shown_with_the_encoding_and_line_ends_of_the_file(shop: Lab) -> None:
    (shop.root / "a.md").write_bytes("\ufeffold\r\n".encode())
    shop.run(ask(write(mode="append")), DONE)
    (diff,) = shop.engine.diff(shop.jobs()[0].id)
    assert diff.lines[3:] == (" old", "+new")


def test_what_would_not_be_written_is_told_as_such(shop: Lab) -> None:
    (shop.root / "dir").mkdir()
    (shop.root / "link").symlink_to("a.md")
    shop.run(ask(write("dir"), write("link"), {"kind": "change", "params": {}}), DONE)
    directory, link, change = shop.jobs()
    for job, fact in ((directory, "is a directory"), (link, "symbolic link")):
        (diff,) = shop.engine.diff(job.id)
        assert fact in (diff.note or "")
    assert shop.engine.diff(change.id) == []


def test_a_job_that_ran_shows_what_it_changed_whatever_the_file_is_now(shop: Lab) -> None:
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    mission = shop.run(ask(write(), write(content="more\n", mode="append")), DONE, policy=auto)
    (shop.root / "a.md").unlink()
    first, second = shop.jobs()
    assert shop.engine.diff(first.id)[0].lines[3:] == ("-old", "+new")
    assert shop.engine.diff(second.id)[0].lines[3:] == (" new", "+more")
    (whole,) = shop.engine.mission_diff(mission.id)
    assert whole.lines[3:] == ("-old", "+new", "+more")


def test_the_diff_of_what_is_not_there_is_refused(shop: Lab) -> None:
    for look in (shop.engine.diff, shop.engine.mission_diff):
        with pytest.raises(LcpError) as refused:
            look(99)
        assert refused.value.code == "NOT_FOUND"
