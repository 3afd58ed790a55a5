"""What is remembered of a root beyond one mission: an entry, its limits, and the terms by which it is found. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import TypeAlias

from lcp_engine.core.summaries import nearest_name
from lcp_engine.errors import ErrorCode, LcpError

Micros: TypeAlias = int

MOST_TITLE = 200
MOST_CONTENT = 8_000
MOST_TAGS, LONGEST_TAG = 20, 50
MOST_FILES, LONGEST_FILE = 50, 1_000
MOST_RELATED = 20
"""What one entry may have: characters of title and content, tags, files and related entries."""
MOST_ENTRIES = 100_000
"""Entries of one root."""
LEAST_IMPORTANCE, USUAL_IMPORTANCE, MOST_IMPORTANCE = 1, 5, 10
USUAL_TAG = "note"
_MOST_TERMS = 1_000
_LONGEST_TERM = 40
_WORD = re.compile(r"[^\W_]+")
_MEMORY_ID = re.compile(r"mem-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is to be remembered. `source` says what kind of statement it is, `files` are relative to the root."""

    title: str
    content: str
    tags: tuple[str, ...] = (USUAL_TAG,)
    files: tuple[str, ...] = ()
    importance: int = USUAL_IMPORTANCE
    source: str = "user_statement"
    related: tuple[str, ...] = ()
    expires_at: Micros | None = None

    @property
    def fingerprint(self) -> str:
        """What two entries with the same words share."""
        words = f"{len(self.title)} {self.title} {self.content}"
        return hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=12).hexdigest()

    @property
    def terms(self) -> tuple[str, ...]:
        """By what the entry is found: its words, tags and files."""
        named = (*map(tag_term, self.tags), *map(file_term, self.files))
        words = dict.fromkeys(words_of(" ".join((self.title, *self.tags, *self.files, self.content))))
        return (*named, *list(words)[:_MOST_TERMS])


def checked(entry: Entry, place: str = "") -> Entry:
    """The entry with tidy tags and files. Raises `INVALID_ARGUMENT` that names the field, beneath `place`."""
    check = _Check(f"{place}." if place else "")
    check.text("title", entry.title, MOST_TITLE)
    if "\n" in entry.title or "\r" in entry.title:
        check.refuse("title", "it has a line end; one line is expected")
    check.text("content", entry.content, MOST_CONTENT)
    if not LEAST_IMPORTANCE <= entry.importance <= MOST_IMPORTANCE:
        allowed = f"a number from {LEAST_IMPORTANCE}, low, to {MOST_IMPORTANCE}, high, is expected"
        check.refuse("importance", f"it is {entry.importance}; {allowed}")
    tags = check.listed("tags", [tag.strip() for tag in entry.tags], MOST_TAGS, LONGEST_TAG)
    files = check.listed(
        "files", [check.path(*one) for one in enumerate(entry.files)], MOST_FILES, LONGEST_FILE
    )
    related = check.listed("related_memories", entry.related, MOST_RELATED, 40)
    for number, one in enumerate(related):
        if not _MEMORY_ID.fullmatch(one):
            check.refuse(f"related_memories[{number}]", f"{one!r} is not the id of an entry, mem- and a UUID")
    return replace(
        entry,
        title=entry.title.strip(),
        content=entry.content.strip(),
        tags=tags or (USUAL_TAG,),
        files=files,
        related=related,
    )


@dataclass(frozen=True)
class _Check:
    """Refuses what an entry may not have; `before` is written before the name of a field."""

    before: str

    def refuse(self, name: str, fact: str) -> None:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{self.before}{name}: {fact}")

    def text(self, name: str, text: str, most: int) -> None:
        if not text.strip():
            self.refuse(name, "it is blank; a text is expected")
        if len(text) > most:
            self.refuse(name, f"it has {len(text):,} characters; at most {most:,} are kept")

    def listed(self, name: str, values: Sequence[str], most: int, longest: int) -> tuple[str, ...]:
        """The values without those that are there twice."""
        different = tuple(dict.fromkeys(values))
        if len(different) > most:
            self.refuse(name, f"there are {len(different):,}; at most {most} are kept")
        for number, value in enumerate(different):
            if not value or not value.isprintable():
                self.refuse(
                    f"{name}[{number}]", f"{value!r} is not a name; printable characters are expected"
                )
            if len(value) > longest:
                self.refuse(
                    f"{name}[{number}]", f"it has {len(value):,} characters; at most {longest:,} are kept"
                )
        return different

    def path(self, number: int, path: str) -> str:
        tidy = tidy_path(path)
        if tidy is None:
            self.refuse(f"files[{number}]", f"{path!r} is not a path beneath the root, relative to it")
        return tidy or ""


def tidy_path(path: str) -> str | None:
    """A path relative to the root, without `.` and doubled separators; None if it is none, or leads out of the root."""
    if not path.strip() or path.startswith("/") or not path.isprintable():
        return None
    tidy = normpath(path.replace("\\", "/"))
    return None if tidy.split("/", 1)[0] in ("..", ".") else tidy


def words_of(text: str) -> Iterator[str]:
    """The words of a text as terms, in their order. A word that is not ASCII becomes one that is.

    So both databases take each word for one, whatever they know of Unicode.
    """
    for found in _WORD.finditer(text.casefold()):
        word = found[0][:_LONGEST_TERM]
        if len(word) > 1:
            yield word if word.isascii() else f"u{word.encode('utf-8', 'replace').hex()}"


def file_term(path: str) -> str:
    """The term of an entry about a file."""
    return f"f{_digest(path)}"


def tag_term(tag: str) -> str:
    """The term of an entry with a tag; case makes no difference."""
    return f"t{_digest(tag.casefold())}"


def within_root(root_id: int, term: str) -> str:
    """The term as it is stored for the entries of one root: those of others are not even looked at."""
    return f"{root_id}x{term}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=10).hexdigest()


def entry_key(text: str) -> int | str:
    """What names an entry: its number, or its id, `mem-` and a UUID. Raises `INVALID_ARGUMENT`."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if _MEMORY_ID.fullmatch(text):
        return text
    message = f"{text!r} names no entry; its number or its id, mem- and a UUID, is expected"
    raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="`lcp memory list` shows the numbers.")


def unknown_root(name: str, known: Iterable[str]) -> LcpError:
    """The error for a root of which nothing is remembered."""
    near = nearest_name(name, [*known])
    hint = f"did you mean {near!r}?" if near else "`lcp memory list` shows what is remembered"
    return LcpError(ErrorCode.NOT_FOUND, f"nothing is remembered of root {name!r}; {hint}")
