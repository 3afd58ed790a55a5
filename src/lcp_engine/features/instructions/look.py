"""Look for the instructions of a root once, at the launch of a mission, and show its questions what was found."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.core.policy import Verdict
from lcp_engine.engine.admission import Admission
from lcp_engine.engine.points import Section
from lcp_engine.engine.question import seen
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.instructions.found import (
    MOST_TEXT,
    File,
    InstructionKeys,
    Noted,
    Skill,
    as_json,
    noted_in,
    read_skill,
)
from lcp_engine.planners.base import SeenMemory
from lcp_engine.sandbox.paths import names_of
from lcp_engine.sandbox.reading.encoding import BAD_BYTE, encoding_of
from lcp_engine.sandbox.reading.list_tree import Filters, is_text, list_files
from lcp_engine.sandbox.reading.read_text import read_bytes
from lcp_engine.sandbox.root import Root
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.history import find_events
from lcp_engine.store.turns import question
from lcp_engine.workers.read_file import WORKER as READ_FILE

if TYPE_CHECKING:
    from lcp_engine.engine.question import Asked

MOST_BYTES = 256 * 1024
"""Size of a file that is read."""
MOST_SKILLS = 200
MOST_NESTED = 100
MOST_DIRECTORIES = 5_000
"""Skills, files of directories, and directories that are looked through."""
MOST_REFUSED = 20
PLACES = (".agents/skills", ".claude/skills")
"""Directories of skills; of two skills with one name the first counts."""


def look(admission: Admission, spec: MissionSpec, directory: Path) -> JsonValue:
    """The instructions that a mission over this root is launched with, as they are stored; None if there are none."""
    use = InstructionKeys.of(spec).instructions
    if use == "off" or spec.planner.type == "none":
        return None
    policy = admission.policy(spec, str(directory))
    judge = policy.for_kind(READ_FILE.named, has_effects=False, writes=False)
    try:
        with Root(directory) as root:
            search = _Search(root, lambda path: judge(path).verdict is Verdict.AUTO)
            paths = ["AGENTS.md", *(search.nested() if use == "all" else ())]
            files = [one for path in paths if (one := search.file(path)) is not None]
            skills = {one.name: one for one in reversed([*search.skills()])}
    except LcpError as error:  # the root is gone: what needs it says so
        return as_json(Noted(refused=(str(error),)))
    known = tuple(sorted(skills.values(), key=lambda one: one.name))
    return as_json(Noted(tuple(files), known, search.more, search.told()))


class _Search:
    """Reads files of a root that jobs could read without a person, and notes why it leaves others out."""

    def __init__(self, root: Root, may_read: Callable[[str], bool]) -> None:
        self._root, self._may_read = root, may_read
        self._refused: list[str] = []
        self.more = 0

    def told(self) -> tuple[str, ...]:
        """Reasons of what was left out, as many as are kept."""
        rest = len(self._refused) - MOST_REFUSED
        more = (f"{rest:,} more are left out",) if rest > 0 else ()
        return (*self._refused[:MOST_REFUSED], *more)

    def file(self, path: str) -> File | None:
        """An AGENTS.md; None if there is none, or nothing in it that can be shown."""
        read = self._read(path)
        if read is None or not read[0].strip():
            return None
        text, sha256 = read
        return File(path, sha256, text[:MOST_TEXT], max(0, len(text) - MOST_TEXT))

    def nested(self) -> Sequence[str]:
        """The AGENTS.md of directories, in the order of their paths."""
        entered = count(1)

        def is_closed(directory: str) -> bool:
            name = directory[:-1].rpartition("/")[2]
            return name.startswith(".") or name == "node_modules" or next(entered) > MOST_DIRECTORIES

        filters = Filters(is_closed=is_closed)
        found = list_files(
            self._root, "", compile_patterns(["*/**/AGENTS.md"]), limit=MOST_NESTED, filters=filters
        )
        if next(entered) > MOST_DIRECTORIES + 1:
            self._refused.append(f"only {MOST_DIRECTORIES:,} directories were looked through")
        if found.total > len(found.files):
            self._refused.append(f"{found.total - len(found.files):,} more AGENTS.md of directories")
        return found.files

    def skills(self) -> Iterator[Skill]:
        for place in PLACES:
            try:
                descriptor = self._root.open_directory(place)
            except OSError:
                continue
            try:
                with os.scandir(descriptor) as entries:
                    names = sorted(one.name for one in entries if is_text(one.name))
            finally:
                os.close(descriptor)
            self.more += len(names[MOST_SKILLS:])
            for name in names[:MOST_SKILLS]:
                path = f"{place}/{name}/SKILL.md"
                if (read := self._read(path)) is not None:
                    skill = read_skill(path, read[1], read[0])
                    if isinstance(skill, Skill):
                        yield skill
                    else:
                        self._refused.append(skill)

    def _read(self, path: str) -> tuple[str, str] | None:
        """The text of a file and the hash of its bytes; None if it is not there or left out."""
        try:
            self._check(path)
            opened = self._root.open_file(path)
            try:
                self._check(opened.path)
                data = read_bytes(opened.descriptor, opened.size, MOST_BYTES, path)
            finally:
                os.close(opened.descriptor)
            if (encoding := encoding_of(data)) is None:
                raise LcpError(ErrorCode.BINARY, f"{path!r} is not text", advice=GENERAL)
        except LcpError as error:
            if error.code is not ErrorCode.PATH_NOT_FOUND:
                self._refused.append(str(error))
            return None
        text = BAD_BYTE.sub("\ufffd", encoding.decode(data)).replace("\x00", "\ufffd")
        return text, hashlib.sha256(data).hexdigest()

    def _check(self, path: str) -> None:
        if not self._may_read(path):
            message = f"policy lets no job read {path!r} without a person"
            raise LcpError(ErrorCode.PATH_DENIED, message, advice=GENERAL)


def choose(ledger: Ledger, asked: Asked, admission: Admission | None) -> Sequence[SeenMemory]:
    """The instructions that a new question shows, whatever their files are by now."""
    mission, spec = asked.mission, spec_of(asked.mission.spec)
    if mission.root is None or InstructionKeys.of(spec).instructions == "off":
        return ()
    launched = next(iter(find_events(ledger.tx, mission.id, event="launched", limit=1)), {})
    data = launched.get("data")
    stored = data.get("instructions") if isinstance(data, dict) else None
    if stored is None:
        return ()
    noted = noted_in(stored)
    concerned = [] if len(noted.files) < 2 or admission is None else [*_concerned(ledger, asked, admission)]
    return [*noted.choose(concerned, str(launched["at"]))]


SECTION = Section(choose)


def _concerned(ledger: Ledger, asked: Asked, admission: Admission) -> Iterator[str]:
    """Paths of the jobs that the question tells of, open files of its user, and files that the last one showed."""
    mission, spec = asked.mission, spec_of(asked.mission.spec)
    names = names_of((mission.root or "",), spec.root_aliases)
    for job in (*asked.results, *asked.waiting):
        worker = admission.workers.get(job.kind)
        if worker is not None:
            with suppress(LcpError):  # params of a kind that has changed, or a path outside
                yield from map(names.relative, worker.paths(worker.read(job.params)))
    yield from spec.background.files if spec.background else ()
    last = question(ledger.tx, mission.id, asked.turn.number - 1)
    if last is not None and last.memories is not None:
        yield from (file for one in seen(last.memories) if one.is_of_file for file in one.files)
