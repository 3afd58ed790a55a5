"""Find out what has changed in a root since a mission's jobs looked at it or wrote to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from lcp_engine.changes.recovery import APPLIED
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.engine.instance import Site
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.paths import names_of
from lcp_engine.sandbox.read_text import read_bytes
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.queries.archive import Archive, PastJob
from lcp_engine.store.queries.states_at import Life
from lcp_engine.workers.base import Context

READ, LIST = "read_file", "list_files"
"""Kinds whose results say what the root was like."""
MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Drift:
    """Something that a job saw or wrote and that is no longer so. `path` is relative to the root."""

    path: str
    now: str
    job: int
    kind: str

    def __str__(self) -> str:
        """The change as a sentence."""
        return f"{self.path} is {self.now} since job {self.job} ({self.kind})"

    def as_json(self) -> dict[str, JsonValue]:
        return {"path": self.path, "now": self.now, "job": self.job, "kind": self.kind}


def find_drift(
    site: Site, past: Archive, lives: Mapping[int, Life], root: Root
) -> tuple[tuple[Drift, ...], tuple[int, ...]]:
    """What has changed since the jobs of `lives` succeeded, and those that saw what nobody can compare.

    Of several jobs that knew a path, the last one counts.
    """
    known: dict[str, tuple[PastJob, str | None]] = {}
    unknown: list[int] = []
    succeeded = [job for job in past.jobs if job.id in lives and lives[job.id].state is State.SUCCEEDED]
    for job in sorted(succeeded, key=lambda job: lives[job.id].last.seq):
        changes = [change for change in past.changes if change.job_id == job.id and change.state == APPLIED]
        known |= {change.path: (job, change.sha256_after) for change in changes}
        if job.kind in (READ, LIST):
            known[_place(past, root, job)] = (job, None)
        elif job.role == "work" and not changes and not _is_of_person(site, job):
            unknown.append(job.id)
    found: list[Drift] = []
    for path, (job, sha) in sorted(known.items()):
        if sha is not None:
            found += _rewritten(path, job, sha, root)
        else:
            found += _looked_at_again(site, past, path, job, root)
    listed = {drift.path: drift for drift in reversed(found)}
    return tuple(listed[path] for path in sorted(listed)), tuple(unknown)


def _is_of_person(site: Site, job: PastJob) -> bool:
    worker = site.bench.workers.get(job.kind)
    return worker is not None and worker.asks_person


def _place(past: Archive, root: Root, job: PastJob) -> str:
    """The path of the file that was read; a listing is known by its params."""
    params = from_json(job.params)
    if job.kind == LIST:
        return f"{LIST} {job.params}"
    given = {
        name: value if isinstance(value := params.get(name), str) else None
        for name in ("root", "rel_path", "path")
    }
    return names_of(root.spellings, spec_of(past.spec).root_aliases).place(**given).path


def _rewritten(path: str, job: PastJob, sha: str, root: Root) -> Iterator[Drift]:
    try:
        opened = root.open_file(path)
        try:
            data = read_bytes(opened.descriptor, opened.size, MOST_BYTES, path)
        finally:
            os.close(opened.descriptor)
    except LcpError as error:
        yield Drift(path, _words(error.failed), job.id, job.kind)
        return
    if sha256(data) != sha:
        yield Drift(path, "changed", job.id, job.kind)


def _looked_at_again(site: Site, past: Archive, path: str, job: PastJob, root: Root) -> Iterator[Drift]:
    """Do what the job did and compare: reading changes nothing."""
    before, now = from_json(job.result or "{}"), _result(site, past, job, root)
    if isinstance(now, Failed):
        yield Drift(path if job.kind == READ else ".", _words(now), job.id, job.kind)
    elif job.kind == LIST:
        base = str(from_json(job.params).get("root") or ".").removeprefix(past.root or "").strip("/")
        prefix = "" if base in ("", ".") else f"{base}/"
        then, there = _files(before), _files(now)
        yield from (Drift(f"{prefix}{name}", "new", job.id, job.kind) for name in sorted(there - then))
        yield from (Drift(f"{prefix}{name}", "gone", job.id, job.kind) for name in sorted(then - there))
    elif before != now:
        yield Drift(path, "changed", job.id, job.kind)


def _result(site: Site, past: Archive, job: PastJob, root: Root) -> JsonObject | Failed:
    worker, spec = site.bench.workers[job.kind], spec_of(past.spec)
    judge = site.bench.policy(spec, root.path).for_kind(job.kind, has_effects=False, writes=False)
    context = Context(root, spec.root_aliases, judge, site.caps, approved=True)
    try:
        outcome = worker.execute(worker.params.model_validate(from_json(job.params)), context)
    except ValidationError as error:
        return Failed(ErrorCode.INVALID_PARAMS, str(error))
    if isinstance(outcome, worker.result):
        dumped: JsonObject = outcome.model_dump(mode="json")
        return dumped
    return outcome if isinstance(outcome, Failed) else Failed(ErrorCode.NOT_ALLOWED, "policy holds it back")


def _files(result: JsonObject) -> set[str]:
    files = result.get("files")
    return {str(name) for name in files} if isinstance(files, list) else set()


def _words(failed: Failed) -> str:
    return "gone" if failed.code is ErrorCode.PATH_NOT_FOUND else f"not to be read ({failed.code})"
