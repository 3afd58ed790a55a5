"""Let the person at the terminal be the planner: show the question of a turn, take the reply."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lcp_engine.api import Engine
from lcp_engine.api.records import Job
from lcp_engine.cli.answer import read_words
from lcp_engine.cli.editor import edit_text
from lcp_engine.cli.paste_input import read_paste
from lcp_engine.cli.prompt_io import Choice, Closed, choose, page, read_line, say, say_legend
from lcp_engine.core.job_states import State
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.safe_text import block, one_line
from lcp_engine.errors import LcpError

_CHOICES = (
    Choice("paste", " the reply"),
    Choice("edit", " it"),
    Choice("file", " that holds it"),
    Choice("view", " the question"),
    Choice("later"),
    Choice("quit"),
)


class PlannerSeat:
    """One turn of a mission whose planner is a person."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._draft = ""

    def take(self, place: str) -> bool:
        """Ask for the reply until it is there; False puts it off. Raises `Closed` where the person leaves."""
        job = self._job
        turns = self._engine.turns(job.mission_id, job_id=job.id)
        prompt = str(turns[-1]["prompt"] or "") if turns else ""
        with tempfile.TemporaryDirectory(prefix="lcp-") as directory:  # private to its user
            question = Path(directory) / f"turn-{job.id}.md"
            question.write_text(prompt, encoding="utf-8", errors="replace")
            say(f"\njob {job.id}{place}: you are the planner; the question has {len(prompt):,} characters")
            say(f"  {question}")
            say_legend(_CHOICES)
            while True:
                word = choose("your reply?", _CHOICES)
                if word == "later":
                    return False
                if word == "quit":
                    raise Closed
                if word == "view":
                    page(lambda console: console.print(block(prompt)))
                elif self._bring(word):
                    return True

    def _bring(self, way: str) -> bool:
        """Take the reply on one of the ways, and bring it; False asks again."""
        try:
            reply = self._read(way)
            if not reply.strip():
                say("  the reply is empty; nothing was brought")
                return False
            if not self._is_meant(reply):
                return False
            self._engine.answer(self._job.id, reply)
        except LcpError as refused:
            say(f"  {one_line(str(refused))}")
            return self._engine.job(self._job.id).state != State.HELD
        return True

    def _read(self, way: str) -> str:
        if way == "paste":
            return read_paste("  paste the reply; an empty line after it, or Ctrl-D, ends it")
        if way == "edit":
            self._draft = edit_text(self._draft, "reply.json")
            return self._draft
        try:
            name = read_line("  file: ")
        except Closed:
            return ""
        return read_words(None, str(Path(name).expanduser())) if name not in ("", "-") else ""

    def _is_meant(self, reply: str) -> bool:
        """A reply that is no action is a slip of the hand more often than what the planner has to hear about."""
        read = self._engine.read_reply(self._job.mission_id, reply)
        if not isinstance(read, Malformed):
            return True
        for problem in read.errors[:10]:
            say(f"  {one_line(problem.path or 'reply')}: {one_line(problem.message)}")
        choices = (Choice("no"), Choice("yes"))
        return choose("that is no valid reply. Bring it, to be asked for a correction?", choices) == "yes"
