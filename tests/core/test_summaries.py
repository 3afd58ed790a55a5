"""What a job is about and what came of it, in a few words."""

from __future__ import annotations

from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.summaries import gist, subject


@table(
    ("params", "said"),
    [
        ({"rel_path": "a\nb.md", "content": "x"}, "a<U+000A>b.md"),
        ({"patterns": ["a", "b", "c", "d"]}, "a b c … 4 patterns"),
        ({"text": "TODO  now", "root": "src"}, "TODO now in src"),
        ({"text": "TODO", "patterns": ["*.py", "!a"]}, "TODO in *.py !a"),
        ({"text": "TODO"}, "TODO"),
        ({"text": "hi", "to": "all"}, '{"text": "hi", "to": "all"}'),
        ({"corrects": 2, "notices": ["no"]}, "question 2 once more"),
        ({"notices": ["every job was rejected", "more"]}, "every job was rejected"),
        ({"number": 2}, "number 2"),
        ({"number": 2, "offset": 20, "limit": 3}, "number 2, from line 21 on"),
        ({"number": 2, "size": 3}, '{"number": 2, "size": 3}'),
        ({"colour": "red"}, '{"colour": "red"}'),
        ({}, ""),
    ],
)
def test_a_job_is_about_what_its_params_say(params: JsonValue, said: str) -> None:
    assert subject({"name": None, "params": params}) == said


@table(
    ("result", "said"),
    [
        ({"ok": True, "action": "create_followup_jobs", "jobs": 1}, "1 job"),
        ({"ok": True, "action": "create_followup_jobs", "jobs": 5, "commentary": "Look."}, "Look."),
        ({"ok": True, "action": "write_file", "rel_path": "a.md"}, "write a.md"),
        ({"ok": True, "action": "list_files_result", "files": ["a"]}, "1 file"),
        ({"ok": True, "action": "edit_file_result", "path": "a", "size_bytes": 72}, "edited, 72 B"),
        ({"ok": True, "action": "search_files_result", "found": 1, "files": 3}, "1 line in 3 files"),
        (
            {"ok": True, "action": "search_files_result", "found": 100, "files": 1, "truncated": True},
            "100 lines in 1 file, the first ones",
        ),
        (
            {
                "action": "run_command_result",
                "exit_code": 1,
                "stdout": "1 failed in 0.1s\n",
                "stderr": "slow\n",
            },
            "exit code 1: slow",
        ),
        (
            {
                "action": "run_command_result",
                "exit_code": 1,
                "verdict": "1 failed",
                "cpu_seconds": 2.46,
                "stdout": "1 failed in 0.1s\n",
                "stderr": "slow\n",
            },
            "exit code 1, 2.5 s CPU: 1 failed",
        ),
        (
            {
                "action": "run_command_result",
                "exit_code": None,
                "ended": "signal 9",
                "stdout": "",
                "stderr": "",
            },
            "signal 9",
        ),
        (
            {
                "action": "run_command_result",
                "exit_code": 0,
                "stdout": "\x1b[1mMaven 3\x1b[m\n 10 %\r 100 %\r\n",
                "stderr": "\x1b[0m\x1b[?25h\n",
            },
            "exit code 0: 100 %",
        ),
        ({"action": "recall_result", "number": 2, "kind": "do", "content": "a"}, "number 2 (do), 1 line"),
        (
            {"action": "recall_result", "number": 2, "kind": "do", "content": "a\nb\n", "total": 2000},
            "number 2 (do), 2 lines of 2,000",
        ),
        (None, ""),
    ],
)
def test_what_came_of_a_job_is_said_in_words(result: dict[str, JsonValue] | None, said: str) -> None:
    assert gist(result) == said
