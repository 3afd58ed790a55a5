"""What a job is about and what came of it, in a few words."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from lcp_engine.core.summaries import gist, subject


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"rel_path": "a\nb.md", "content": "x"}, "a<U+000A>b.md"),
        ({"patterns": ["a", "b", "c", "d"]}, "a b c … 4 patterns"),
        ({"corrects": 2, "notices": ["no"]}, "question 2 once more"),
        ({"notices": ["every job was rejected", "more"]}, "every job was rejected"),
        ({"colour": "red"}, '{"colour": "red"}'),
        ({}, ""),
    ],
)
def test_a_job_is_about_what_its_params_say(params: JsonValue, said: str) -> None:
    assert subject({"name": None, "params": params}) == said


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"ok": True, "action": "create_followup_jobs", "jobs": 1}, "1 job"),
        ({"ok": True, "action": "create_followup_jobs", "jobs": 5, "commentary": "Look."}, "Look."),
        ({"ok": True, "action": "write_file", "rel_path": "a.md"}, "write a.md"),
        ({"ok": True, "action": "list_files_result", "files": ["a"]}, "1 file"),
        (None, ""),
    ],
)
def test_what_came_of_a_job_is_said_in_words(result: dict[str, JsonValue] | None, said: str) -> None:
    assert gist(result) == said
