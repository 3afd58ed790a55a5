"""Write the prompt of a turn, rules, knowledge and question, within a budget of tokens.

Pure but for the texts of rules, which are files of the package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from itertools import groupby, islice
from string import Template

from pydantic import JsonValue

from lcp_engine.core.kinds import CHANGES, WRITE, KindRole
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.core.safe_text import fenced, quoted
from lcp_engine.features.models.endpoints.chat import Message, about_tokens
from lcp_engine.features.models.prompts.job_text import (
    Body,
    Count,
    body,
    byte_count,
    counted,
    cut,
    directory_lines,
    fold,
    headline,
    left_out,
    listed_name,
    listed_paths,
    plain,
    recall,
    recalled_number,
    show,
)
from lcp_engine.features.models.prompts.known_files import (
    Known,
    View,
    identity,
    known_of,
    line_count,
    view_of,
)
from lcp_engine.features.universal.dialect import ENDS
from lcp_engine.features.universal.json_schema import Schema, properties_of, strict_params
from lcp_engine.planners.base import LeftOut, PromptRecord, Question, Said, SeenJob, SeenMemory

FRAME = 16
"""Tokens that a model's template may put around the messages."""


@dataclass(frozen=True)
class Prompt:
    """The messages of a turn."""

    messages: tuple[Message, ...]
    tokens: int
    """How many tokens they have."""
    fits: bool
    """False if what is never cut (goal, names of the last results, rules) alone is above the budget."""
    cut: Mapping[str, int]
    """The files that are not shown to their end, with the first line that is left out."""
    left_out: Mapping[int, int] = field(default_factory=dict)
    """The jobs, by number, whose results are not shown to their end, with the first line that is left out."""
    record: PromptRecord = field(default_factory=PromptRecord)

    @property
    def text(self) -> str:
        """All messages in one text, for a person who pastes it into a chat window."""
        return "\n".join(message.content for message in self.messages)


def write_prompt(
    question: Question,
    *,
    budget_tokens: int,
    count: Count = about_tokens,
    most_files: int = 200,
    dialect: Dialect = "lcp",
) -> Prompt:
    """The prompt of a turn in at most `budget_tokens`, as `count` counts them; the reply needs room beyond them.

    The goal, the names of the last results, decisions and corrections are never cut. The contents of the last results
    share what is left; a long one is cut, and followed by how to read on. Then come a line for each earlier turn, the
    files that can be read, and what earlier turns found, with a note of each result that is left out. Kinds that recall
    results are offered if there is such a note.
    """
    whole = for_context(question, budget_tokens)
    known, numbers = known_of(whole), cache(whole.numbers)

    def written(offered: Question) -> Prompt:
        system = system_message(offered, dialect, room=budget_tokens // 4, count=count)
        taken = count(system) + FRAME
        turn = Turn(whole, known, count, budget_tokens - taken, most_files, dialect, numbers)
        content = turn.write()
        tokens = count(content)
        # The whole may have more tokens than its parts, which were counted one by one.
        while taken + tokens > budget_tokens and turn.room > 0:
            room = max(0, turn.room - max(taken + tokens - budget_tokens, 8))
            turn = replace(turn, room=room, cut={}, left_out={}, kept={})
            content = turn.write()
            tokens = count(content)
        messages = (Message("system", system), Message("user", content))
        fits, record = taken + tokens <= budget_tokens, turn.record(taken + tokens)
        return Prompt(messages, taken + tokens, fits, turn.cut, turn.left_out, record)

    prompt = written(without_recall(whole))
    # A kind that recalls results takes room, too: it is offered only where it is of use.
    return written(whole) if prompt.left_out and view_of(whole).recalls else prompt


def without_recall(question: Question) -> Question:
    """The question without kinds that show earlier results again: of no use where none was left out."""
    kinds = tuple(kind for kind in question.kinds if kind.role is not KindRole.RECALLS)
    return replace(question, kinds=kinds)


def for_context(question: Question, tokens: int) -> Question:
    """The question without kinds that a model with few tokens of context can do without: files need the room."""
    roles = {kind.role for kind in question.kinds}
    spared = {role for role, (least, other) in _NEEDS_ROOM.items() if tokens < least and other in roles}
    kept = [kind for kind in question.kinds if kind.role not in spared]
    if tokens < _ALL_PARAMS:
        kept = [replace(kind, params=kind.brief_params or kind.params) for kind in kept]
    return replace(question, kinds=tuple(kept))


_ALL_PARAMS = 8000
"""From how many tokens on all params of a kind are offered, also those that are seldom needed."""
_NEEDS_ROOM = {
    KindRole.FINDS: (3000, KindRole.READS),
    KindRole.EDITS: (3000, KindRole.WRITES),
    KindRole.DELETES: (5000, KindRole.WRITES),
    KindRole.MOVES: (5000, KindRole.WRITES),
    KindRole.MAKES: (5000, KindRole.WRITES),
    KindRole.RECALLS: (3000, KindRole.READS),
}
"""From how many tokens on a kind is offered, and what can be done in its stead.

A small context mostly belongs to a small model, which each further kind confuses.
"""


def system_message(
    question: Question, dialect: Dialect, *, room: int = 2**31, count: Count = about_tokens
) -> str:
    """Message with what the planner needs for any question; the schema of a result in at most `room` tokens."""
    kinds = {kind.name for kind in question.kinds}
    lists = not kinds or any(kind.role is KindRole.LISTS for kind in question.kinds)
    blocks = _template("actions").strip().split("\n\n")
    usable = {GOES_ON: bool(kinds), WRITE: WRITE in kinds, **{end: end in _ends(question) for end in ENDS}}
    actions = "\n\n".join(block for block in blocks if usable.get(block.partition(":")[0], True))
    if dialect == "universal":
        going_on = (block for block in actions.split("\n\n") if block.partition(":")[0] in (GOES_ON, WRITE))
        responses = Template(_template("universal").strip()).substitute(actions="\n\n".join(going_on))
        refused = {ENDS[end] for end in ENDS if end not in _ends(question)}
        kept = [block for block in responses.split("\n\n") if block.partition(":")[0] not in refused]
        actions = "\n\n".join(kept)
    if question.result is not None:
        actions = f"{_carrying(actions)}\n\n{_about_result(question.result, room, count)}"
    return Template(_template("system")).substitute(
        actions=actions,
        look=f"{_template('look').strip()}\n" if lists else "",
        kinds="\n".join(kind_lines(question)) or "None: only actions that end the mission are possible.",
        root=quoted(_slashed(question.root) or ".", 4096),
        most=question.max_followups,
    )


_CARRIED: Mapping[str, str] = {
    "analysis_result": '"result": <result>',
    "mission_complete": '"result": <result>',
    "research": '"custom_fields": {"result": <result>}',
    "answer": '"custom_fields": {"result": <result>}',
}
"""Where the actions and responses that complete a mission carry its result."""


def _carrying(actions: str) -> str:
    """The descriptions of the actions, where those that complete the mission carry its result."""
    blocks = actions.split("\n\n")
    added = ((block, _CARRIED.get(block.partition(":")[0])) for block in blocks)
    return "\n\n".join(f"{block[:-1]}, {more}}}" if more else block for block, more in added)


def _about_result(schema: Mapping[str, JsonValue], room: int, count: Count) -> str:
    """Form of `<result>`: the schema, without what explains it where there is little room, or its beginning."""
    shown = next((text for text in (_compact(schema), _compact(_bare(schema))) if count(text) <= room), None)
    if shown is None:
        shown = f"{cut(_compact(_bare(schema)), room, count)} [cut; what does not fit is sent back to you]"
    return (
        f"# The result\n<result> is what the mission is to find, as JSON that fits this JSON Schema:\n{shown}"
    )


def _compact(value: JsonValue | Mapping[str, JsonValue]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_EXPLAIN = ("title", "description", "$comment", "examples", "default", "$id", "$schema")


def _bare(schema: JsonValue | Mapping[str, JsonValue], *, names: bool = False) -> JsonValue:
    """A schema without what only explains it; `names`: its keys are names of properties, which stay."""
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _bare(part, names=key in ("properties", "$defs", "definitions") and not names)
        for key, part in schema.items()
        if names or key not in _EXPLAIN
    }


@dataclass
class Turn:
    """One attempt to write the turn's message in `room` tokens."""

    question: Question
    known: Known
    count: Count
    room: int
    most_files: int
    dialect: Dialect
    numbers: Callable[[], Mapping[int, int]]
    cut: dict[str, int] = field(default_factory=dict)
    left_out: dict[int, int] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    """The files that a new list shows by name."""
    has_directories: bool = False
    """Whether a new list shows directories instead."""
    kept: dict[int, str] = field(default_factory=dict)
    """What is shown of the result of each job; nothing of those that are not in it."""

    @property
    def view(self) -> View:
        """Way to read the jobs of the question's mission."""
        return view_of(self.question)

    @cached_property
    def _old(self) -> Sequence[SeenJob]:
        """The jobs of the plan that earlier turns were told of."""
        new = {job.job_id for job in self.question.results}
        return [job for job in self.known.jobs if job.job_id not in new]

    def write(self) -> str:
        sections = self._fixed()
        left = self.room - self.count(_join(sections))
        listings = self._listings(left // 3)
        sections["memory"] = self._memory(left // 5)
        sections["files"] = self._files(left // 5)
        left -= self.count(f"{sections['memory']}\n{sections['files']}")
        # What was found earlier is shown or said to be left out, however much is new.
        needed = sum(self.count(told.text) + 2 * _FENCE for told in self._found())
        sections["results"] = self._results(listings, left - min(needed, left // 8))
        left = self.room - self.count(_join(sections))
        sections["instructions"] = self._instructions(left // 3)
        left -= self.count(sections["instructions"])
        sections["remembered"] = self._remembered(left // 3)
        left -= self.count(sections["remembered"])
        sections["earlier"] = self._earlier(left)
        return _join(sections)

    def record(self, tokens: int) -> PromptRecord:
        """Record of what the message shows and leaves out of all that was found and is still true."""
        view, shown, left = self.view, dict[int, None](), dict[int, LeftOut]()
        told_now = filter(None, (body(job, view) for job in self.question.results))
        for told in (*told_now, *self._found()):
            number = self._number(told.job)
            if number is None:
                continue
            part = left_out(told, self.kept.get(told.job.job_id), number, view)
            if part is None:
                shown[number] = None
            else:
                left[number] = part
        return PromptRecord(tuple(shown), tuple(left.values())[:_MOST_LEFT_OUT], tokens)

    def _fixed(self) -> dict[str, str]:
        """The sections that are never cut."""
        question = self.question
        own = question.prompt.strip() if question.prompt.strip() != question.goal.strip() else ""
        return {
            "goal": question.goal.strip(),
            "part": own,
            "context": (question.context or "").strip(),
            "results": "\n".join(self._name(job) for job in question.results),
            "waiting": "\n".join(self._name(job) for job in question.waiting),
            "people": self._people(self.room // 3),
            "notices": "\n".join(f"- {plain(notice, _MOST_NOTICE)}" for notice in question.notices),
            "ignored": _ignored(question.warnings),
            "correction": _correction(question, self.count),
            "now": _now(question, self.dialect),
        }

    def background(self) -> str:
        """Background of a guided turn's task: nothing in most turns."""
        names = ("part", "context", "people", "notices", "ignored", "correction")
        sections = {name: text for name, text in self._fixed().items() if name in names}
        sections["instructions"] = self._instructions(self.room // 3)
        sections["remembered"] = self._remembered(self.room // 3 - self.count(sections["instructions"]))
        return _join(sections, "background")

    def changes(self) -> Mapping[str, str]:
        """Changes of the plan's jobs: for each file that was written its beginning, else the job's outcome."""
        made = dict[str, str]()
        for job in (job for job in self.known.jobs if job.state == "succeeded"):
            path, content = self.view.target(job) or "", job.params.get("content")
            if self.view.role(job) in CHANGES:
                is_text = path and isinstance(content, str)
                made[path] = f"{path}: {fold(str(content))}" if is_text else headline(job, self.view)
        return made

    def everything_found(self) -> list[Body]:
        """Findings of the plan's jobs that are still true, but for lists, the oldest first."""
        new = filter(None, (body(job, self.view) for job in self.question.results))
        found = (told for told in (*self._found(), *new) if told.items != "files")
        return sorted(found, key=lambda told: told.job.job_id)

    def _name(self, job: SeenJob) -> str:
        return f"- {headline(job, self.view)}"

    def _listings(self, tokens: int) -> Mapping[int, str]:
        """The last lists of files by job: whole while there is room, else the directories with their counts."""
        self.listed, self.has_directories = set(), False
        shown: dict[int, str] = {}
        for job in self.question.results:
            told = body(job, self.view)
            if told is None or told.items != "files":
                continue
            needed = self.count(told.text) + _FENCE
            if needed <= tokens:
                tokens -= needed
                self.listed |= set(listed_paths(job, self.view))
                shown[job.job_id] = show(told, needed, self.count).text
                self.kept[job.job_id] = told.text
            else:
                self.has_directories = True
                shown[job.job_id] = self._directories(listed_paths(job, self.view), tokens)
                self.kept[job.job_id] = _BY_DIRECTORY
                tokens -= self.count(shown[job.job_id])
        return shown

    def _directories(self, paths: Sequence[str], tokens: int) -> str:
        """The directories of files with how many are in each, as many as there is room for."""
        for most in (40, 20, 10, 5):
            lines = directory_lines(paths, most)
            text = (
                f'{fenced(chr(10).join(lines))}\n[files by directory; patterns such as "src/**" list a part]'
            )
            if self.count(text) <= tokens:
                return text
        return f'[{counted(len(paths), "files")}; patterns such as "src/**" list a part]'

    def _results(self, listings: Mapping[int, str], tokens: int) -> str:
        """The last results by name, each with as much of its content as there is room for."""
        view = self.view
        bodies = {
            job.job_id: told
            for job in self.question.results
            if job.job_id not in listings and (told := body(job, view)) is not None
        }
        tokens -= sum(map(self.count, listings.values()))
        share = _share([self.count(told.text) + _FENCE for told in bodies.values()], tokens)
        parts: list[str] = []
        for job in self.question.results:
            parts.append(self._name(job))
            if job.job_id in listings:
                parts.append(listings[job.job_id])
            if job.job_id in bodies:
                parts.append(self._show(bodies[job.job_id], max(share - _FENCE, 0)))
        return "\n".join(parts)

    def _show(self, told: Body, tokens: int) -> str:
        shown = show(told, tokens, self.count)
        self.kept[told.job.job_id] = shown.kept
        if shown.goes_on is not None and told.path is not None:
            self.cut[told.path] = shown.goes_on
        elif shown.goes_on is not None and told.items == "lines":
            number = self._number(told.job)
            shown = show(replace(told, read_on=recall(self.view, number)), tokens, self.count)
            self.kept[told.job.job_id] = shown.kept
            if number is not None and shown.goes_on is not None:
                self.left_out[number] = shown.goes_on
        return shown.text

    def _number(self, job: SeenJob) -> int | None:
        """The number by which the job's result can be recalled: its own, or that of the job whose result it shows."""
        is_recalled = self.view.role(job) is KindRole.RECALLS
        return recalled_number(job) if is_recalled else self.numbers().get(job.job_id)

    def _people(self, tokens: int) -> str:
        """Answers and messages of people, new ones last; without room for all, the newest."""
        question, view = self.question, self.view
        earlier = (*_answers(self._old, view), *map(self._said, question.said_before()))
        now = (*_answers(question.results, view), *map(self._said, question.said))
        lines = [*(f"- earlier, {line}" for line in earlier), *(f"- {line}" for line in now)]
        kept: list[str] = []
        for line in reversed(lines):
            needed = self.count(line) + 1
            if needed > tokens and kept:
                kept.append(f"- {len(lines) - len(kept)} earlier ones are left out")
                break
            kept.append(line if needed <= tokens else f"{cut(line, tokens, self.count)} [cut]")
            tokens -= needed
        return "\n".join(reversed(kept))

    def _said(self, said: Said) -> str:
        about = "" if said.job is None else f" about {headline(said.job, self.view)}"
        return f"{plain(said.by)} says{about}: {said.text.strip()}"

    def _memory(self, tokens: int) -> str:
        """A line for each earlier turn; without room for all, the newest."""
        lines: list[str] = []
        for turn, group in groupby(self._old, key=lambda job: job.turn):
            lines_of_turn = [headline(job, self.view) for job in group]
            lines += (
                [f"- turn {turn}: {'; '.join(lines_of_turn)}"]
                if turn is not None
                else [f"- {line}" for line in lines_of_turn]
            )
        kept: list[str] = []
        for line in reversed(lines):
            tokens -= self.count(line) + 1
            if tokens < 0:
                kept.append(f"- {len(lines) - len(kept)} earlier lines are left out")
                break
            kept.append(line)
        return "\n".join(reversed(kept))

    def _instructions(self, tokens: int) -> str:
        """Instructions in files of the root, the nearest first; without room for all, cut where that ends."""
        kept: list[str] = []
        for one in (found for found in self.question.memories if found.is_of_file):
            whole = f"{quoted(one.title)}\n{one.content}"
            tokens -= 2 * _FENCE
            shown = whole if self.count(whole) <= tokens else cut(whole, max(tokens, 0), self.count)
            if left_out := len(whole) - len(shown) + one.left_out:
                shown += f"\n[cut: {left_out:,} more characters]"
            kept.append(fenced(shown))
            tokens -= self.count(shown)
        return "\n".join(kept)

    def _remembered(self, tokens: int) -> str:
        """Memories of the root, the best first; without room for all, the others are counted."""
        kept: list[str] = []
        memories = [one for one in self.question.memories if not one.is_of_file]
        tokens -= _FENCE if memories else 0
        for memory in memories:
            text = f"{fenced(_memory_text(memory))}"
            tokens -= self.count(text) + 1
            if tokens < 0:
                break
            kept.append(text)
        left_out = len(memories) - len(kept)
        if left_out and kept:
            kept.append(f"- {left_out} more {'note is' if left_out == 1 else 'notes are'} left out here")
        return "\n".join(kept)

    def _files(self, tokens: int) -> str:
        """The files that can be read next, except those that a new list shows: each name is shown once.

        The schema limits the decoder to them, but the model does not see it.
        """
        if self.question.last_turn is not None:
            return ""
        lines: list[str] = []
        unread = [path for path in self.known.unread if path not in self.listed]
        for_names = tokens // 2 if len(unread) > self.most_files else tokens
        for_names -= _FENCE
        for path in unread[: self.most_files]:
            line = listed_name(path)
            for_names -= self.count(line) + 2
            if for_names < 0:
                break
            lines.append(line)
        names = fenced("\n".join(lines)) if lines else ""
        rest = unread[len(lines) :]
        more = f"- and {len(rest):,} more" if rest else ""
        if len(rest) > self.most_files and not self.has_directories:
            more = f"{more}:\n{self._directories(rest, tokens - self.count(names))}"
        elif rest and not self.has_directories:
            more = f"{more}; list a part of the tree to see its files"
        return "\n".join(part for part in (names, more) if part)

    def _earlier(self, tokens: int) -> str:
        """Findings of earlier turns that are still true; without room for all, notes of the rest."""
        found = self._found()
        kept, dropped = self._fit(found, tokens)
        notes = ""
        if dropped:
            for_notes = max(tokens // 5, min(tokens, 8 * _FENCE))
            kept, dropped = self._fit(found, tokens - for_notes)
            notes = self._notes(dropped, for_notes)
        view = self.view
        kept.sort(key=lambda told: self._old.index(told.job))
        shown = [f"- {headline(told.job, view)}\n{self._show(told, 2**31)}" for told in kept]
        return "\n".join([*shown, *([notes] if notes else [])])

    def _found(self) -> Sequence[Body]:
        """Results of earlier turns: of the same request the newest, of a file what was read since it changed last.

        What concerns the files of this turn comes first, then the newest, one that was recalled as new as that.
        """
        view, current = self.view, {told.job.job_id: told for told in self._current()}
        now = {self._number(job) for job in self.question.results if view.role(job) is KindRole.RECALLS}
        found = dict[int, Body]()
        for job in reversed(self._old):
            told = self._shown_by(job, current)
            if told is not None and (not now or self._number(told.job) not in now):
                found.setdefault(told.job.job_id, told)
        wanted = {view.target(job) for job in (*self.question.results, *self.question.waiting)}
        return sorted(found.values(), key=lambda told: told.path is None or told.path not in wanted)

    def _current(self) -> Iterable[Body]:
        """Findings of earlier turns first-hand, and what was not found again or changed since."""
        view, newest = self.view, dict[str, Body]()
        firsthand = (
            job for job in (*self._old, *self.question.results) if view.role(job) is not KindRole.RECALLS
        )
        for told in filter(None, (body(job, view) for job in firsthand)):
            if told.path is not None and told.job.job_id in self.known.current:
                newest = {key: other for key, other in newest.items() if not _has_lines_of(told, other)}
                newest[f"{told.path}\n{told.job.job_id}"] = told
            elif told.path is None and told.items != "files":
                newest[identity(told.job)] = told
        new = {job.job_id for job in self.question.results}
        return [told for told in newest.values() if told.job.job_id not in new]

    def _shown_by(self, job: SeenJob, current: Mapping[int, Body]) -> Body | None:
        """Result of a job that is still true: its own result, or all of the one that it recalled."""
        if self.view.role(job) is not KindRole.RECALLS:
            return current.get(job.job_id)
        told, number = body(job, self.view), recalled_number(job)
        recalled = next((other for other in self._old if self.numbers().get(other.job_id) == number), None)
        if told is None or recalled is None:
            return told
        whole = current.get(recalled.job_id)
        return told if whole is not None and told.total > line_count(told.text) else whole

    def _fit(self, found: Sequence[Body], tokens: int) -> tuple[list[Body], list[Body]]:
        """The results that are shown whole in `tokens`, and those that are left out."""
        kept, left_out = list[Body](), list[Body]()
        for told in found:
            needed = self.count(told.text) + self.count(headline(told.job, self.view)) + _FENCE
            fits = needed <= tokens
            tokens -= needed if fits else 0
            (kept if fits else left_out).append(told)
        return kept, left_out

    def _notes(self, dropped: Sequence[Body], tokens: int) -> str:
        """A line for each result that is left out, as long as there is room, and how much there is beyond."""
        lines = list[str]()
        tokens -= _FENCE
        for told in dropped:
            number = self._number(told.job)
            if told.path is not None:
                self.cut.setdefault(told.path, self.known.partly.get(told.path, told.first))
            if number is not None:
                self.left_out[number] = 0
            named = "" if number is None else f"number {number}, "
            size = counted(byte_count(told.text), "bytes")
            line = f"- left out here: {named}{headline(told.job, self.view)}, {size}{self._again(told)}"
            tokens -= self.count(line) + 1
            if tokens >= 0:
                lines.append(line)
        rest = dropped[len(lines) :]
        if rest:
            size = counted(sum(byte_count(told.text) for told in rest), "bytes")
            more = f"{len(rest)} more results" if lines else counted(len(rest), "results")
            lines.append(f"- {more}, {size}, left out here")
        return "\n".join(lines)

    def _again(self, told: Body) -> str:
        """Advice to read a file again that is left out."""
        if told.path is None or told.read_on is None:
            return ""
        return f"; read it with {told.read_on}, offset {self.cut[told.path]}"


_BY_DIRECTORY = "by directory"
_MOST_LEFT_OUT = 200


def _has_lines_of(new: Body, old: Body) -> bool:
    """True if a newer result shows all the lines of a file that an older one does."""
    if new.path != old.path:
        return False
    stop = old.first + line_count(old.text)
    return new.first <= old.first and stop <= new.first + line_count(new.text)


_FENCE = 12


def _memory_text(memory: SeenMemory) -> str:
    """An entry of memory with its title, all of it inside the fence: none of it is to be trusted."""
    about = f", about {', '.join(map(quoted, memory.files[:_MOST_FILES]))}" if memory.files else ""
    more = f"\n[cut: {memory.left_out:,} more characters]" if memory.left_out else ""
    return f"{plain(memory.source, 40)}, {memory.created_at[:10]}{about}: {plain(memory.title)}\n{memory.content}{more}"


_MOST_FILES = 5


def _share(sizes: Sequence[int], tokens: int) -> int:
    """The most that each may have so that all together fit; small ones get all they need."""
    left, share = max(tokens, 0), max(tokens, 0)
    for rank, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - rank)
        if size > share:
            return share
        left -= size
    return max([share, *sizes])


def _join(sections: Mapping[str, str], template: str = "turn") -> str:
    """A template without its empty sections."""
    parts = _template(template).strip().split("\n\n")
    filled = [(part, part.partition("$")[2]) for part in parts]
    return "\n\n".join(
        Template(part).substitute(sections) for part, name in filled if sections.get(name, "").strip()
    )


def _answers(jobs: Iterable[SeenJob], view: View) -> Iterator[str]:
    """The answers of people to the planner's questions."""
    for job in jobs:
        answer = (job.result or {}).get("answer")
        if view.role(job) is KindRole.ASKS and job.state == "succeeded" and isinstance(answer, str):
            values = (job.result or {}).get("values")
            told = f"{json.dumps(values, ensure_ascii=False)}\n{answer}" if values else answer
            yield f"to your question {fold(str(job.params.get('question')))} a person answers: {told}"


def _correction(question: Question, count: Count) -> str:
    if question.correction is None:
        return ""
    reply, problems = question.correction.reply, question.correction.malformed.errors
    shown = reply if count(reply) <= _MOST_REPLY else f"{reply[: 2 * _MOST_REPLY]}\n[cut]"
    described = (plain(f"{problem.path}: {problem.message}".removeprefix(": ")) for problem in problems)
    reasons = "\n".join(f"- {line}" for line in islice(described, _MOST_PROBLEMS))
    more = f"\n- and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
    return f"{fenced(shown)}\nIt was refused because:\n{reasons}{more}"


_MOST_REPLY, _MOST_PROBLEMS, _MOST_WARNINGS, _MOST_NOTICE = 400, 12, 5, 2000


def _ignored(warnings: Sequence[str]) -> str:
    lines = [f"- {plain(warning)}" for warning in warnings[:_MOST_WARNINGS]]
    left_out = len(warnings) - len(lines)
    return "\n".join([*lines, *([f"- and {left_out} more"] if left_out else [])])


def _ends(question: Question) -> Sequence[str]:
    """The actions that may complete the mission."""
    return [end for end in ENDS if end in (question.endings or ENDS)]


def _listed_ends(question: Question, dialect: Dialect) -> str:
    if dialect == "lcp":
        return f"{', '.join(_ends(question))} or error"
    return f"a response of the type {', '.join(ENDS[end] for end in _ends(question))} or error"


_OF_STEP = (
    "You carry out this part alone: what ends it is its result, which later parts read. The mission goes on."
)


def _now(question: Question, dialect: Dialect) -> str:
    if question.last_turn is not None:
        ends = _listed_ends(question, dialect)
        carried = "" if question.result is None else " Carry the result, as far as you know it."
        limit = question.last_turn
        return (
            f"The mission has reached its limit {limit}: this is the last turn. Answer with {ends}.{carried}"
        )
    said = ["Correct your answer." if question.correction else "Answer with the next action."]
    if question.of_step:
        said.insert(0, _OF_STEP)
    if question.turns_left is not None:
        said.append(f"Turns left after this one: {question.turns_left}.")
    if question.jobs_left is not None and question.jobs_left < 2 * question.max_followups:
        said.append(f"Jobs left: {max(question.jobs_left, 0)}.")
    # Small models attend most to the end of a prompt.
    goal = plain(" ".join(question.prompt.split()), 200)
    return " ".join([*said, "One JSON object, nothing else."]) + f"\nThe goal is still: {goal}"


GOES_ON = "create_followup_jobs"
_ROOTS = ("root", "project_root")


@cache
def _template(name: str) -> str:
    """A template of this package."""
    return (
        resources.files("lcp_engine.features.models").joinpath("templates", f"{name}.txt").read_text("utf-8")
    )


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def kind_lines(question: Question) -> Iterator[str]:
    """The kinds that may be requested, with their params."""
    params, _ = strict_params({kind.name: kind.params for kind in question.kinds})
    for kind in question.kinds:
        if kind.included_in in params:
            continue
        waits = " Waits for a person." if kind.is_held else ""
        yield f"- {kind.name}: {plain(kind.description)}{waits}"
        for key, schema in properties_of(params.get(kind.name, {})).items():
            described = schema.get("description")
            said = f": {described}" if isinstance(described, str) else ""
            files = question.writable.get(kind.name, ()) if key == "rel_path" else ()
            fixed = (".",) if key in _ROOTS and kind.role is not KindRole.OTHER else files
            only = " or ".join(quoted(place) for place in fixed)
            yield f"    {key}: {only}" if only else f"    {key} ({_type(schema)}){said}"
        if kind.example is not None and kind.role in _BY_EXAMPLE:
            yield f"    such as {plain(json.dumps(kind.example, ensure_ascii=False))}"


_BY_EXAMPLE = (KindRole.SEARCHES, KindRole.RECALLS, KindRole.RUNS, KindRole.OTHER)
"""The params of the others are in every prompt, as actions or files."""


def _type(schema: Schema) -> str:
    branches = schema.get("anyOf")
    parts = [part for part in branches if isinstance(part, dict)] if isinstance(branches, list) else [schema]
    words = [_word(part) for part in parts]
    optional = ", or null" if "null" in words else ""
    return " or ".join(word for word in words if word != "null") + optional


def _word(schema: Schema) -> str:
    values = schema.get("enum")
    if isinstance(values, list):
        return " or ".join(f'"{value}"' for value in values)
    if "const" in schema:
        return f'"{schema["const"]}"'
    known = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "array": "list",
        "null": "null",
    }
    kind = schema.get("type")
    return known.get(kind, kind) if isinstance(kind, str) else "object"
