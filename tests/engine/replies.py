"""Word replies that ask for jobs, as the tests of replays and forks need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.engine.conftest import Object

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
FREE: Object = {"kinds": ["*"], "do": "auto"}


def ask(*jobs: Object | str) -> Object:
    """A reply that asks for jobs; a name is a job of the kind `do` with that name. Params may be left out."""
    new_jobs: list[JsonValue] = [
        {"kind": "do", "params": {"of": job}} if isinstance(job, str) else {"params": {}, **job}
        for job in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def read(path: str) -> Object:
    return {"kind": "read_file", "params": {"rel_path": path}}


def write(path: str, content: str, **more: JsonValue) -> Object:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content, **more}}
