"""Decide the surveyor's next action from the results so far: list, read, write, end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, TypeAlias

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass as options

from lcp_engine.features.surveyor.markdown import number
from lcp_engine.features.surveyor.selection import Choice, choose
from lcp_engine.features.surveyor.survey import Survey
from lcp_engine.features.surveyor.tree import EXCLUDED, Tree, read_listing
from lcp_engine.planners.base import Correction, Question, Reply, SeenJob

_Action: TypeAlias = dict[str, JsonValue]
_Jobs: TypeAlias = list[JsonValue]


@options(frozen=True, config=ConfigDict(extra="forbid"))
class Surveyor:
    """Lists the tree, reads the most telling files, writes `file`, and ends. A function of the question alone."""

    speaks: ClassVar[str] = "lcp"
    file: Annotated[str, Field(min_length=1)] = "SURVEY.md"
    max_followups: Annotated[int, Field(ge=1)] | None = None
    """The most jobs at once, if fewer than the question's `max_followups`."""
    max_reads: Annotated[int, Field(ge=0, le=500)] = 25
    """The most files to read."""

    def answer(self, question: Question, /) -> Reply:
        seen = _seen(question)
        action = self._end_early(question, seen) if question.last_turn else self._go_on(question, seen)
        if question.correction:
            action = _narrow(action, question.correction)
        return Reply(json.dumps(action, ensure_ascii=False))

    def _go_on(self, question: Question, seen: _Seen) -> _Action:
        if seen.written and not (question.resumed and seen.written.state != "succeeded"):
            return self._end(question, seen, seen.written)
        if seen.write_waits:
            said = f"{self.file} waits for a person as job {seen.write_waits.job_id}."
            return _ask(said, [_again(seen.write_waits)])
        if seen.listed is None:
            return _ask("First the whole tree.", [_again(seen.list_waits) if seen.list_waits else _LIST])
        if seen.listed.state != "succeeded":
            return _ask("Once more the whole tree.", [_LIST]) if question.resumed else _give_up(seen.listed)
        tree = read_listing(seen.listed.result or {}, without=[self.file])
        asked = seen.reads.keys() | seen.reads_waiting
        left = [choice for choice in choose(tree, self.max_reads) if choice.path not in asked]
        if left:
            most = min(question.max_followups, self.max_followups or question.max_followups)
            return _ask(
                f"{number(len(left), 'file')} to read that tell what this is.",
                [_read(one) for one in left[:most]],
            )
        survey = _survey(question, seen, tree)
        return _ask(f"{number(len(survey.texts), 'file')} read; this is the survey.", [self._write(survey)])

    def _write(self, survey: Survey) -> JsonValue:
        """Without `auto_dispatch`: policy decides whether the job runs at once."""
        params: _Action = {"rel_path": self.file, "content": survey.markdown(), "mode": "overwrite"}
        return {"name": f"Write {self.file}"[:200], "kind": "write_file", "params": params}

    def _end(self, question: Question, seen: _Seen, write: SeenJob) -> _Action:
        tree = read_listing((seen.listed and seen.listed.result) or {}, without=[self.file])
        survey = _survey(question, seen, tree)
        if write.state != "succeeded":
            fact = f"{self.file} was not written: {_reason(write)}"
            is_news = question.said or any(job.job_id == write.job_id for job in question.results)
            if question.notices and not (is_news or question.last_turn or question.resumed):
                # Checks did not pass, and the surveyor has nothing else to propose.
                return _error(fact, write)
            return _findings(survey, fact)
        path = (write.result or {}).get("path")
        return {
            "ok": True,
            "action": "mission_complete",
            "summary": survey.summary,
            "deliverables": [path if isinstance(path, str) else self.file],
            "metrics": {**survey.metrics},
        }

    def _end_early(self, question: Question, seen: _Seen) -> _Action:
        """A limit was reached: report what is known, and request nothing more."""
        if seen.written:
            return self._end(question, seen, seen.written)
        if seen.listed is None or seen.listed.state != "succeeded":
            said = f"The limit {question.last_turn} was reached before anything was listed."
            return {"ok": True, "action": "analysis_result", "summary": said}
        survey = _survey(question, seen, read_listing(seen.listed.result or {}, without=[self.file]))
        waits = (
            f"waits for a person as job {seen.write_waits.job_id}" if seen.write_waits else "was not written"
        )
        return _findings(survey, f"The limit {question.last_turn} was reached; {self.file} {waits}.")


_LIST: JsonValue = {
    "name": "List the whole tree",
    "kind": "list_files",
    "params": {"patterns": [f"!{name}/" for name in EXCLUDED], "details": True},
}


@dataclass(frozen=True)
class _Seen:
    """The jobs of the plan by purpose: listed, read, written, waiting for a person."""

    listed: SeenJob | None
    list_waits: SeenJob | None
    reads: Mapping[str, SeenJob]
    reads_waiting: frozenset[str]
    written: SeenJob | None
    write_waits: SeenJob | None


def _seen(question: Question) -> _Seen:
    settled = {job.job_id: job for job in (*question.history(), *question.results)}
    jobs = [settled[job_id] for job_id in sorted(settled)]
    waiting = {job.kind: job for job in question.waiting}
    lists = sorted(
        (job for job in jobs if job.kind == "list_files"), key=lambda job: job.state == "succeeded"
    )
    writes = [job for job in jobs if job.kind == "write_file"]
    return _Seen(
        listed=lists[-1] if lists else None,
        list_waits=waiting.get("list_files"),
        reads={_path(job): job for job in jobs if job.kind == "read_file"},
        reads_waiting=frozenset(_path(job) for job in question.waiting if job.kind == "read_file"),
        written=writes[-1] if writes else None,
        write_waits=waiting.get("write_file"),
    )


def _path(job: SeenJob) -> str:
    path = job.params.get("rel_path")
    return path if isinstance(path, str) else ""


def _survey(question: Question, seen: _Seen, tree: Tree) -> Survey:
    texts: dict[str, str] = {}
    partly: set[str] = set()
    unread: dict[str, str] = {}
    for path, job in seen.reads.items():
        content = (job.result or {}).get("content")
        if job.state == "succeeded" and isinstance(content, str):
            texts[path] = content
            if _is_cut(job, content):
                partly.add(path)
        else:
            unread[path] = _reason(job)
    unread |= dict.fromkeys(sorted(seen.reads_waiting - texts.keys()), "it waits for a person")
    return Survey(PurePosixPath(question.root).name, tree, texts, frozenset(partly), unread)


def _is_cut(job: SeenJob, content: str) -> bool:
    limit = job.params.get("limit")
    full = isinstance(limit, int) and content.count("\n") >= limit
    return full or (job.result or {}).get("truncated") is True


def _reason(job: SeenJob) -> str:
    error = job.error or {}
    said = error.get("user_message") or error.get("message") or job.reason
    return str(said) if said else f"the job is {job.state}"


def _ask(commentary: str, jobs: _Jobs) -> _Action:
    return {"ok": True, "action": "create_followup_jobs", "commentary": commentary, "new_jobs": jobs}


def _read(choice: Choice) -> JsonValue:
    return {"name": f"Read {choice.path}"[:200], "kind": "read_file", "params": choice.params}


def _again(job: SeenJob) -> JsonValue:
    """The held job again: the engine does not store it twice, and the mission keeps waiting (R11)."""
    return {"name": job.name, "kind": job.kind, "params": dict(job.params)}


def _findings(survey: Survey, remark: str) -> _Action:
    issues: Sequence[str] = [sentence.replace("**", "") for sentence in survey.stand_outs]
    summary = f"{survey.summary} {remark}"
    return {"ok": True, "action": "analysis_result", "summary": summary, "issues": list(issues)}


def _give_up(listed: SeenJob) -> _Action:
    return _error(f"The directory could not be listed: {_reason(listed)}", listed)


def _error(fact: str, job: SeenJob) -> _Action:
    """The action that ends the mission because of a job that failed or was refused."""
    action: _Action = {"ok": False, "action": "error", "error": fact, "attempted_action": job.kind}
    code = (job.error or {}).get("error_code") or (job.error or {}).get("code")
    return action | ({"error_code": code} if isinstance(code, str) else {})


def _narrow(action: _Action, correction: Correction) -> _Action:
    """After a refused reply: one job instead of many; an error if it had only one."""
    jobs = action.get("new_jobs")
    if not isinstance(jobs, list):
        return action
    if _count_jobs(correction.reply) != 1:
        return {**action, "new_jobs": jobs[:1]}
    reasons = "; ".join(f"{problem.path}: {problem.message}" for problem in correction.malformed.errors[:3])
    return {
        "ok": False,
        "action": "error",
        "error": f"The surveyor's job was refused: {reasons or 'no reason given'}",
    }


def _count_jobs(reply: str) -> int | None:
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return None
    jobs = value.get("new_jobs") if isinstance(value, dict) else None
    return len(jobs) if isinstance(jobs, list) else None
