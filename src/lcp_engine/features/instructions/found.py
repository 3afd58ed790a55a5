"""Instructions that a root held when its mission was launched, and those of them that a question shows. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue, TypeAdapter

from lcp_engine.core.mission.spec import MissionKeys
from lcp_engine.core.safe_text import quoted
from lcp_engine.planners.base import OF_FILE, SeenMemory

MOST_TEXT = 12_000
"""Characters of all AGENTS.md that one question shows, and of each that is kept."""
MOST_FILES = 8
"""Files that one question shows, the nearest first."""
MOST_LIST = 6_000
"""Characters of the list of skills."""
LONGEST_DESCRIPTION = 1024
_LONGEST_HEAD = 16_000
_HEAD = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64


class InstructionKeys(MissionKeys):
    """The key `instructions`."""

    instructions: Literal["off", "root", "all"] = Field(
        default="root",
        description="Which instructions of its root the planner is shown: none, AGENTS.md and skills of the root, or "
        "those and AGENTS.md of directories that its jobs are about (instructions.md).",
    )


@dataclass(frozen=True)
class File:
    """An AGENTS.md, of which `left_out` characters are not kept; the hash is that of its bytes."""

    path: str
    sha256: str
    text: str
    left_out: int = 0

    @property
    def directory(self) -> str:
        """The directory that it is about, with "/" at its end; empty for the root."""
        return self.path.removesuffix("AGENTS.md")


@dataclass(frozen=True)
class Skill:
    """A skill by what its SKILL.md says first."""

    path: str
    sha256: str
    name: str
    description: str


@dataclass(frozen=True)
class Noted:
    """Instructions of a root, as they were at the launch. `refused` are sentences, `more` counts further skills."""

    files: tuple[File, ...] = ()
    skills: tuple[Skill, ...] = ()
    more: int = 0
    refused: tuple[str, ...] = ()

    def choose(self, concerned: Collection[str], at: str) -> Iterator[SeenMemory]:
        """Those that a question about these paths shows: the nearest file first, then skills. `at` is in ISO 8601."""
        near = [one for one in self.files if any(path.startswith(one.directory) for path in ("", *concerned))]
        near.sort(key=lambda one: (-one.directory.count("/"), one.path))
        left = MOST_TEXT
        for one in near[:MOST_FILES]:
            kept = one.text[:left]
            left -= len(kept)
            left_out = one.left_out + len(one.text) - len(kept)
            yield _shown(one.path, kept, one.sha256, at, left_out)
        if self.skills:
            text = self._listed()
            yield _shown("skills", text, hashlib.sha256(text.encode()).hexdigest(), at, 0)

    def _listed(self) -> str:
        """The skills by name, a line each, and how many are left out."""
        lines, left = list[str](), MOST_LIST
        for one in self.skills:
            line = f"{quoted(one.path)} ({one.name}): {' '.join(one.description.split())}"
            left -= len(line) + 1
            if left < 0:
                break
            lines.append(line)
        left_out = len(self.skills) - len(lines) + self.more
        return "\n".join([*lines, *([f"[cut: {left_out:,} more skills]"] if left_out else [])])


def _shown(title: str, text: str, sha256: str, at: str, left_out: int) -> SeenMemory:
    files = (title,) if title != "skills" else ()
    return SeenMemory(
        f"{OF_FILE}{sha256}", title, text, "instructions", at, files=files, importance=10, left_out=left_out
    )


_NOTED = TypeAdapter(Noted)


def as_json(noted: Noted) -> JsonValue:
    """The instructions as they are stored with the launch; None if nothing was found."""
    stored: JsonValue = _NOTED.dump_python(noted, mode="json")
    return stored if noted != Noted() else None


def noted_in(stored: JsonValue) -> Noted:
    """Like `as_json`, in the other direction."""
    return _NOTED.validate_python(stored)


def told(stored: JsonValue) -> list[str]:
    """Lines about the instructions of a mission, for people."""
    noted = noted_in(stored)
    names = [one.path for one in noted.files]
    count = len(noted.skills) + noted.more
    names += [f"{count:,} skill{'' if count == 1 else 's'}"] if count else []
    lines = [f"instructions: {', '.join(names)}"] if names else []
    return [*lines, *(f"no instructions: {why}" for why in noted.refused)]


def read_skill(path: str, sha256: str, text: str) -> Skill | str:
    """A skill, or a sentence that says why it is none. Its name is that of its directory, as the format demands."""
    from lcp_engine.core.mission.yaml import NotReadable, read_document  # slow to load

    head = _HEAD.match(text[:_LONGEST_HEAD].removeprefix("\ufeff"))
    if head is None:
        return f"{path!r} does not begin with front matter between two lines ---"
    try:
        stated = read_document(head[1])
    except NotReadable as error:
        return f"{path!r}: its front matter cannot be read: {error}"
    named = stated if isinstance(stated, dict) else {}
    name, description = named.get("name"), named.get("description")
    expected = path.split("/")[-2]
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return f"{path!r}: name: up to {_LONGEST_NAME} lower-case letters, digits and single hyphens are expected"
    if name != expected:
        return f"{path!r}: name: it is {name!r}; that of its directory, {expected!r}, is expected"
    if not isinstance(description, str) or not description.strip():
        return f"{path!r}: description: a text is expected"
    return Skill(path, sha256, name, description.strip()[:LONGEST_DESCRIPTION])
