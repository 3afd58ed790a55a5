"""Decide what a model with a small context does next: read the files that its goal names, use a kind, conclude (pure).

A guided turn offers one thing at a time. `Open` leaves the choice to the model, within the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from lcp_engine.core.kinds import CHANGES, WRITE, KindRole
from lcp_engine.features.models.prompts.evidence import WITHOUT_BLANKS, is_common, is_english
from lcp_engine.features.models.prompts.known_files import Known, known_of, line_count, view_of
from lcp_engine.planners.base import Kind, Question

COMPLETE, FOUND = "mission_complete", "analysis_result"
"""The actions that complete a mission."""
MOST_OF_MANY = 10
"""A directory or a pattern that a goal names stands for its files if there are at most so many."""


@dataclass(frozen=True)
class Open:
    """The model chooses among all that the rules allow."""


@dataclass(frozen=True)
class Lists:
    """The files of the root have to be known first."""

    kind: str


@dataclass(frozen=True)
class Reads:
    """These files, which the goal names, are read before anything else."""

    kind: str
    files: tuple[str, ...]
    offset: int | None = None
    """The line (from 0) from which the only file is read on; None from the start."""


@dataclass(frozen=True)
class Uses:
    """The goal asks for what these kinds do."""

    kinds: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The words of the goal from which their params are taken; empty if these may come from elsewhere."""


@dataclass(frozen=True)
class Writes:
    """These files are the only ones that may be written, and what they need was read."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class Concludes:
    """Only an ending is left."""

    action: str
    parts: tuple[str, ...] = ()
    """Those of `issues` and `recommendations` that the goal asks for by name."""
    may_fail: bool = False
    """Whether the model may report an error instead, because nothing was found out."""


Guide: TypeAlias = Open | Lists | Reads | Uses | Writes | Concludes
OPEN = Open()


def guide_of(question: Question) -> Guide:
    """Guide that narrows the next turn."""
    known = known_of(question)
    if question.verifies:
        return OPEN
    if question.last_turn is not None:
        return OPEN if question.result is not None else _conclusion(question, known)
    if not question.kinds or question.jobs_left == 0:
        return OPEN
    guide = (
        _use(question, known) or _look(question, known) or _write(question, known) or _end(question, known)
    )
    # What a result has to be, only the long prompt says.
    return OPEN if question.result is not None and isinstance(guide, Concludes) else guide


def named_files(text: str, files: Sequence[str]) -> tuple[str, ...]:
    """The files that a text names, in the order of their names.

    A name is a path, the end of a path, or a bare name that one file alone has. A word without a dot or a slash counts
    if it has a capital (`Makefile`) or is quoted; `README` may be `README.md`. A directory is named as `src/` or in
    quotes, several files by a pattern (`*.py`): these stand for all of them, unless the text names some of them.
    """
    # A name that follows Chinese without a blank is a word of its own.
    words = list(dict.fromkeys([*_words(text), *_words(WITHOUT_BLANKS.sub(" ", text))]))
    found = dict.fromkeys(path for word in words if (path := _one(word, files)) is not None)
    found |= dict.fromkeys(path for path in files if WITHOUT_BLANKS.search(path) and path in text)
    for word in words:
        several = _several(word, files)
        if len(several) <= MOST_OF_MANY and found.keys().isdisjoint(several):
            found |= dict.fromkeys(several)
    return tuple(found)


@dataclass(frozen=True)
class _Word:
    """A word of a text that may be a name."""

    text: str
    is_quoted: bool


_QUOTED = re.compile(r"([`\"'])([^`\"'\n]{1,300})\1")
_PLAIN = re.compile(r"(?<![\w./])(?:\./)?[\w.@+*-]*[\w*](?:/[\w.@+*-]*[\w*])*/?")
_ENDS = (".md", ".rst", ".txt", ".adoc", ".org")
"""What a text such as README may have at its end."""


def _words(text: str) -> Iterator[_Word]:
    """The quoted parts of a text and its words, in their order."""
    at = 0
    for quoted in _QUOTED.finditer(text):
        yield from (_Word(word, is_quoted=False) for word in _PLAIN.findall(text[at : quoted.start()]))
        yield _Word(quoted[2].strip(), is_quoted=True)
        at = quoted.end()
    yield from (_Word(word, is_quoted=False) for word in _PLAIN.findall(text[at:]))


def _one(word: _Word, files: Sequence[str]) -> str | None:
    """The file that a word names."""
    name = word.text.removeprefix("./").rstrip(".")
    is_name = word.is_quoted or "." in name or "/" in name or name != name.lower()
    if not is_name or not name or name.endswith("/"):
        return None
    if name in files:
        return name
    ends = [path for path in files if path.endswith(f"/{name}")]
    folded = [
        path for path in files if path.lower() == name.lower() or path.lower().endswith(f"/{name.lower()}")
    ]
    texts = (
        [path for path in files if path.rsplit("/", 1)[-1] in {name + end for end in _ENDS}]
        if name.isupper()
        else []
    )
    return next((found[0] for found in (ends, folded, texts) if len(found) == 1), None)


def _several(word: _Word, files: Sequence[str]) -> list[str]:
    """The files that a word names as a directory or by a pattern."""
    name = word.text.removeprefix("./")
    if "*" in name and name.strip("*./"):
        pattern = name.replace("**/", "*") if "/" in name else name
        return [
            path for path in files if fnmatchcase(path if "/" in name else path.rsplit("/", 1)[-1], pattern)
        ]
    if name.strip("/") and (name.endswith("/") or word.is_quoted):
        return [path for path in files if path.startswith(f"{name.strip('/')}/")]
    return []


def _asked(question: Question) -> str:
    """Subject of the question, in the words of people."""
    own = question.prompt if question.of_step else f"{question.goal}\n{question.prompt}"
    return "\n".join([own, *(said.text for said in question.said)])


def _kinds(question: Question, *roles: KindRole) -> list[Kind]:
    """The kinds of these roles that run without a person."""
    return [kind for kind in question.kinds if kind.role in roles and not kind.is_held]


def _look(question: Question, known: Known) -> Guide | None:
    lists, reads = _kinds(question, KindRole.LISTS), _kinds(question, KindRole.READS)
    if lists and not known.has_listing:
        kind = lists[0].name
        return None if kind in known.tried else Lists(kind)
    if not reads or reads[0].name in known.repeated:
        return None
    kind = reads[0].name
    named = named_files(_asked(question), (*known.unread, *known.read, *known.written))
    fresh = tuple(path for path in named if path in known.unread and path not in known.written)
    most = min(question.max_followups, question.jobs_left or question.max_followups)
    if fresh:
        return Reads(kind, fresh[:most])
    ends = _ends_of_parts(question, known)
    rest = next((path for path in named if path in ends), None)
    return None if rest is None else Reads(kind, (rest,), ends[rest])


def _ends_of_parts(question: Question, known: Known) -> dict[str, int]:
    """The files that were not read to their end, with the first line that was not read."""
    view, ends, totals = view_of(question), dict[str, int](), dict[str, int]()
    for job in (job for job in known.jobs if job.job_id in known.current):
        path, found, total = view.target(job), view.found(job), (job.result or {}).get("total")
        offset = job.params.get("offset")
        if path is not None and isinstance(found, str) and isinstance(total, int):
            end = (offset if isinstance(offset, int) else 0) + line_count(found)
            ends[path], totals[path] = max(end, ends.get(path, 0)), total
    return {path: end for path, end in ends.items() if end < totals[path]}


_OWN = (KindRole.SEARCHES, KindRole.RUNS, KindRole.OTHER)
"""The roles of kinds that an operator adds for a purpose of their own."""


def _use(question: Question, known: Known) -> Guide | None:
    """The kinds that the goal asks for and that were not tried yet, once the files that it names are read."""
    asked = [
        kind.name
        for kind in _kinds(question, *_OWN)
        if kind.name not in known.tried and asks_for(_asked(question), kind)
    ]
    first = _look(question, known)
    may_name_files = any(
        word.is_quoted or _LIKE_A_PATH.search(word.text) for word in _words(_asked(question))
    )
    if not asked or isinstance(first, Reads) or (isinstance(first, Lists) and may_name_files):
        return None
    # What was read before may say what the params are about.
    is_known = bool(known.read) or known.has_found
    used = [kind for kind in question.kinds if kind.name in asked]
    return Uses(tuple(asked), () if is_known else values_in(_asked(question), used))


_LIKE_A_PATH = re.compile(r"\w/|\.[A-Za-z]\w*$")


def asks_for(text: str, kind: Kind) -> bool:
    """True if a text asks for a kind: it has every word of its name, or two of its description."""
    words = set(_LETTERS.findall(text.lower()))
    name = _LETTERS.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.name).lower())
    described = {word for word in _LETTERS.findall(kind.description.lower()) if len(word) >= _LONG}
    return all(_has(words, part) for part in name) or sum(_has(words, word) for word in described) >= 2


_LETTERS = re.compile(r"[^\W\d_]+")
_LONG = 5


def _has(words: Iterable[str], part: str) -> bool:
    """True if one of the words is `part`, or begins like it (`counts`, `counting`)."""
    return any(word == part or _begin_alike(word, part) for word in words)


def _begin_alike(one: str, other: str) -> bool:
    short = min(len(one), len(other))
    return short >= _LONG - 1 and one[: max(short - 1, _LONG - 1)] == other[: max(short - 1, _LONG - 1)]


MOST_VALUES = 40


def values_in(text: str, kinds: Sequence[Kind]) -> tuple[str, ...]:
    """Values that the kinds may be meant to work on: the quoted parts of a text, and up to three of its words in a row.

    Common words and words of the kinds themselves are left out. Empty if the text is long, or in a script that has no
    blanks between words.
    """
    if WITHOUT_BLANKS.search(text):
        return ()
    own = {word for kind in kinds for word in _LETTERS.findall(f"{kind.name} {kind.description}".lower())}
    own |= {
        word for kind in kinds for key in kind.params.model_fields for word in _LETTERS.findall(key.lower())
    }
    found = dict.fromkeys(quoted[2].strip() for quoted in _QUOTED.finditer(text))
    words = [word.strip(_AROUND_WORDS) for word in text.split()]
    row: list[str] = []
    for word in words:
        row = [*row, word] if word and word.lower() not in own and not is_common(word.lower()) else []
        found |= dict.fromkeys(" ".join(row[-count:]) for count in range(1, min(len(row), 3) + 1))
    return tuple(found) if len(found) <= MOST_VALUES else ()


_AROUND_WORDS = ".,;:!?()[]{}<>\"'`“”„«»¿¡"


def _write(question: Question, known: Known) -> Guide | None:
    """The files that policy names as the only ones to be written, until they are, and again after a notice."""
    may_write = any(kind.name == WRITE for kind in question.kinds)
    files = question.writable.get(WRITE, ()) if may_write else ()
    left = tuple(path for path in files if path not in known.written or question.notices)
    return Writes(left) if left and WRITE not in known.repeated else None


def _end(question: Question, known: Known) -> Guide:
    """Only an ending is left if something was found out and the goal asks for nothing that could still be done."""
    named = named_files(_asked(question), known.read)
    if not (named or known.has_found or known.written):
        return OPEN
    roles = {kind.role for kind in question.kinds if kind.name not in known.tried}
    may_change = not roles.isdisjoint(CHANGES) and not known.written
    if may_change and not only_asks(_asked(question)):
        return OPEN
    return _conclusion(question, known)


def _conclusion(question: Question, known: Known) -> Concludes:
    asked = _asked(question)
    allowed = [action for action in (FOUND, COMPLETE) if action in (question.endings or (FOUND, COMPLETE))]
    said = [action for action in allowed if action in asked]
    usual = COMPLETE if known.written else FOUND
    action = said[0] if len(said) == 1 else usual if usual in allowed else allowed[0]
    parts = tuple(part for part in ("issues", "recommendations") if part in asked and action == FOUND)
    return Concludes(action, parts, may_fail=not (known.read or known.written or known.has_found))


_ASKING = re.compile(
    r"(?i)\?|\b(?:analy[sz]e|answer|count|describe|explain|find|how|list|name|report|review|say|show|summari[sz]e|tell"
    r"|what|when|where|which|who|whom|whose|why)\b"
)
_DOING = re.compile(
    r"(?i)\b(?:add|append|apply|ask|change|convert|copy|correct|create|delete|document|draft|edit|extend|fill|fix|format"
    r"|generate|implement|insert|install|make|merge|migrate|move|port|put|refactor|remove|rename|repair|replace|reword"
    r"|rewrite|rework|run|save|sort|split|test|translate|update|upgrade|write)\b"
)


def only_asks(text: str) -> bool:
    """True if a text asks for something to be said, and for nothing to be done, as far as its English tells.

    Of another language nothing is known, so that anything may be asked for.
    """
    return is_english(text) and _ASKING.search(text) is not None and _DOING.search(text) is None
