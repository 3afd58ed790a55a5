"""Decide held jobs while a mission runs: what `--approve` says, what a person at the terminal answers."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field

from lcp_engine.api import Engine
from lcp_engine.cli.screen import make_console
from lcp_engine.effects import CONFLICT
from lcp_engine.engine.binding import DRIFT
from lcp_engine.engine.judging import NO_WORKER
from lcp_engine.engine.records import Job
from lcp_engine.engine.relaying import RELAYED
from lcp_engine.errors import LcpError
from lcp_engine.jobs import State
from lcp_engine.report import explain_reason
from lcp_engine.visible import block, json_block, one_line
from lcp_engine.wording import as_question, subject
from lcp_engine.workers.ask_user import KIND as ASK_USER

_WORDS = ("yes", "no", "later", "all", "details")
_CHOICES = "[y]es  [n]o  [l]ater  [a]ll {kind}  [d]etails"


@dataclass
class Decider:
    """Decides the held jobs of one mission. `kinds` are approved without a question; `all` means every kind."""

    engine: Engine
    mission_id: int
    kinds: Collection[str] = ()
    asks: bool = False
    _later: set[int] = field(default_factory=set)
    _all: set[str] = field(default_factory=set)

    def approve_named(self) -> bool:
        """Approve what is held and of the named kinds; whether anything was."""
        if not (self.kinds or self._all):
            return False
        approved = [self._approve(job) for job in self._open() if self._is_named(job)]
        return any(approved)

    def ask(self) -> bool:
        """Ask about every other held job that was not put off; whether anything was decided."""
        decided = False
        while self.asks and (waiting := self._open()):
            decided = self._ask(waiting[0]) or decided
        return decided

    def _open(self) -> list[Job]:
        """The held jobs that were not put off."""
        held = self.engine.jobs(mission_id=self.mission_id, states=[State.HELD])
        return [job for job in held if job.id not in self._later]

    def _is_named(self, job: Job) -> bool:
        """A file that is another now is something new to decide; questions and kinds without a worker take no yes."""
        if job.kind == ASK_USER or job.reason == RELAYED:
            return False
        named = job.kind in self.kinds or "all" in self.kinds or job.kind in self._all
        return named and job.reason not in (CONFLICT, DRIFT, NO_WORKER)

    def _ask(self, job: Job) -> bool:
        if self._is_named(job):
            return self._approve(job)
        if job.kind == ASK_USER:
            return self._answer(job)
        if job.reason == RELAYED:
            shows, brings = f"`lcp job {job.id} --prompt`", f"`lcp answer {job.id} --file REPLY`"
            _say(f"job {job.id}: {shows} shows the question, {brings} brings the reply")
            self._later.add(job.id)
            return False
        _say(f"job {job.id}: {one_line(job.kind)} {subject(job.json)}")
        _say(f"  held: {one_line(explain_reason(job.reason or 'a person has to decide'))}")
        while True:
            answer = _read_answer(f"  run it?  {_CHOICES.format(kind=one_line(job.kind))}: ")
            match _choice(answer):
                case "yes":
                    return self._approve(job)
                case "all":
                    self._all.add(job.kind)
                    return self._approve(job)
                case "no":
                    reason = _read_answer("  why? the planner reads it: ") or "a person said no"
                    return self._reject(job, reason)
                case "details":
                    _show(job)
                case "later":
                    self._later.add(job.id)
                    return False
                case _:
                    _say("  answer with y, n, l, a or d")

    def _answer(self, job: Job) -> bool:
        """Put the question; no answer puts it off."""
        _say(block(f"job {job.id}: {as_question(job.params)}"))
        answer = _read_answer("  your answer (empty: later): ")
        if answer in ("", "later"):
            self._later.add(job.id)
            return False
        try:
            return self.engine.answer(job.id, answer)
        except LcpError as refused:
            return self._put_off(job, refused)

    def _approve(self, job: Job) -> bool:
        try:
            return self.engine.approve(job.id)
        except LcpError as refused:
            return self._put_off(job, refused)

    def _reject(self, job: Job, reason: str) -> bool:
        try:
            return self.engine.reject(job.id, reason)
        except LcpError as refused:
            return self._put_off(job, refused)

    def _put_off(self, job: Job, refused: LcpError) -> bool:
        """What cannot be decided, perhaps because somebody else did, is not asked about again."""
        _say(f"  {one_line(str(refused))}")
        self._later.add(job.id)
        return False


def _choice(answer: str) -> str | None:
    """The word that `answer` is, or begins."""
    word = answer.lower()
    return next((choice for choice in _WORDS if word and choice.startswith(word)), None)


def _read_answer(question: str) -> str:
    """A line from the terminal; the end of the input puts off the decision."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
        return "later"
    return line.strip()


def _show(job: Job) -> None:
    """Params as JSON, and long texts in them as text."""
    texts = {key: value for key, value in job.params.items() if isinstance(value, str) and "\n" in value}
    _say(json_block({key: value for key, value in job.params.items() if key not in texts}))
    for key, text in texts.items():
        _say(f"  {one_line(key)}:")
        _say("\n".join(f"  │ {line}" for line in block(text).splitlines()))


def _say(text: str) -> None:
    make_console(sys.stderr).print(text)
