"""Write the prompt of a guided turn: short, with the one thing that is to be done, and last what it is done with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TypeAlias, assert_never

from pydantic import JsonValue

from lcp_engine.core.kinds import WRITE
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.core.safe_text import fenced
from lcp_engine.features.models.echo import words_of
from lcp_engine.features.models.endpoints.chat import Message, about_tokens
from lcp_engine.features.models.prompts.evidence import is_english, telling_lines
from lcp_engine.features.models.prompts.guidance import (
    COMPLETE,
    FOUND,
    Concludes,
    Guide,
    Lists,
    Open,
    Reads,
    Uses,
    Writes,
)
from lcp_engine.features.models.prompts.job_text import Count
from lcp_engine.features.models.prompts.known_files import known_of
from lcp_engine.features.models.prompts.prompt import FRAME, GOES_ON, Prompt, Turn, kind_lines
from lcp_engine.features.universal.json_schema import properties_of, strict_params
from lcp_engine.planners.base import Kind, PromptRecord, Question

Fields: TypeAlias = Mapping[str, JsonValue]

LINES, MORE_LINES = 2, 12
"""How many lines of each text a small model is shown: it answers better from few. More if the goal is about a whole."""
MOST_OF_LINE = 200
_ASKS_FOR_MORE = re.compile(r"(?i)\b(?:summari[sz]e|summary of|describe|explain|overview|review|analy[sz]e)")


def write_guided(
    question: Question,
    guide: Guide,
    *,
    budget_tokens: int,
    count: Count = about_tokens,
    dialect: Dialect = "lcp",
) -> Prompt:
    """The prompt of a guided turn in at most `budget_tokens`; `guide` is any but `Open`.

    Words of people and of the engine come first, then what is to be done, and last what it is done with, in one fence:
    of each text that was found the lines that share words with the goal.
    """
    turn = Turn(question, known_of(question), count, budget_tokens - FRAME, 0, dialect, question.numbers)
    examples = _examples(guide, dialect)
    taken = sum(count(message.content) + FRAME for message in examples) + FRAME
    background, task = turn.background(), _task(question, guide, dialect)
    room = budget_tokens - taken - count(f"{background}\n\n{task}\n")
    found = _shown(turn, guide, max(room, 0))
    content = "\n".join(part for part in (f"{background}\n" if background else "", task, found) if part)
    messages = (*examples, Message("user", content))
    tokens = taken + count(content)
    record = (
        turn.record(tokens) if isinstance(guide, Uses | Writes | Concludes) else PromptRecord(tokens=tokens)
    )
    return Prompt(messages, tokens, tokens <= budget_tokens, turn.cut, turn.left_out, record)


def taken_from_example(text: str, prompt: str) -> str | None:
    """Two words of a text that only an example of its stored prompt has, about a thing of the examples; None if none.

    A small model puts what it found into the sentence of an example: "so 10 boxes fit".
    """
    sentences = list[str]()
    rest = prompt
    for goal, found, said in (*_ASKED, *_DONE, *_WRITTEN):
        if goal in prompt:
            sentences.append(said)
            for part in (goal, found, json.dumps(said)[1:-1]):
                rest = rest.replace(part, " ")
    things = _THINGS.difference(words_of(rest))
    examples = {
        pair for said in sentences for pair in pairwise(words_of(said)) if not things.isdisjoint(pair)
    }
    return next((" ".join(pair) for pair in pairwise(words_of(text)) if pair in examples), None)


def _task(question: Question, guide: Guide, dialect: Dialect) -> str:
    """The goal, and the action that is asked for; a conclusion is asked for by the goal alone."""
    goal = question.prompt.strip() if question.of_step else question.goal.strip()
    match guide:
        case Lists(kind):
            said = f"First list the files:\n{_requests(kind, [{'root': '.', 'patterns': None}], dialect)}"
        case Reads(kind, files, offset):
            part: Fields = {} if offset is None else {"offset": offset, "limit": 200}
            params = [{"rel_path": path, "root": ".", **part} for path in files]
            said = f"First read what it names:\n{_requests(kind, params, dialect)}"
        case Uses(kinds):
            chosen = [_without_copies(kind) for kind in question.kinds if kind.name in kinds]
            # What the params are taken from comes last: a small model copies what it read last.
            return f"{_described(kind_lines(replace(question, kinds=chosen)))}\n\n{goal}"
        case Writes() | Concludes():
            return goal
        case Open():
            return ""
        case _:
            assert_never(guide)
    return f"{goal}\n\n{said}"


def _described(lines: Iterable[str]) -> str:
    return "Have this done:\n" + "\n".join(lines)


def _without_copies(kind: Kind) -> Kind:
    """A kind without its example, if its params can do without: a small model copies the values."""
    params, _ = strict_params({kind.name: kind.params})
    is_plain = all(one.get("type") in _PLAIN for one in properties_of(params.get(kind.name, {})).values())
    return replace(kind, example=None) if is_plain else kind


_PLAIN = ("string", "integer", "number", "boolean")


def _requests(kind: str, params: Sequence[Fields], dialect: Dialect) -> str:
    jobs: list[JsonValue] = [{"kind": kind, "params": {**each}} for each in params]
    return _reply(GOES_ON, {"new_jobs": jobs}, dialect)


def _reply(action: str, fields: Fields, dialect: Dialect) -> str:
    """An action as a planner of the dialect writes it."""
    body: dict[str, JsonValue] = {"action": action, "ok": True, **fields}
    if dialect == "universal" and action in (COMPLETE, FOUND):
        kind = "answer" if action == COMPLETE else "research"
        body = {"response_type": kind, "status": "success", "message": fields["summary"]}
    elif dialect == "universal":
        custom: dict[str, JsonValue] = {"lcp": body}
        body = {"response_type": "custom", "status": "success", "message": "", "custom_fields": custom}
    return json.dumps(body, ensure_ascii=False)


def _shown(turn: Turn, guide: Guide, room: int) -> str:
    """Material of the task: what was found, or changed where the mission ends because of that."""
    if isinstance(guide, Concludes) and guide.action == COMPLETE and (made := turn.changes()):
        return fenced("\n".join(_bare(line)[:MOST_OF_LINE] for line in made.values()))
    return _found(turn, room) if isinstance(guide, Uses | Writes | Concludes) else ""


def _found(turn: Turn, room: int) -> str:
    """In one fence the lines that are likely to answer the goal, the best last, as there is room."""
    bodies = {told.path or told.job.kind: told for told in turn.everything_found()}
    if not bodies:
        return ""
    goal = f"{turn.question.goal}\n{turn.question.prompt}"
    # Of a goal in another language, few of its words stand in the lines that answer it.
    most = MORE_LINES if _ASKS_FOR_MORE.search(goal) or not is_english(goal) else LINES
    shown = list[str]()
    left = room - FRAME
    for line in reversed(telling_lines(goal, {name: told.text for name, told in bodies.items()}, most)):
        text = f"{line.source}: {_bare(line.text)[:MOST_OF_LINE]}"
        left -= turn.count(text) + 1
        if left < 0:
            break
        shown.insert(0, text)
        job = bodies[line.source].job.job_id
        turn.kept[job] = f"{line.text}\n{turn.kept.get(job, '')}"
    return fenced("\n".join(shown)) if shown else ""


def _bare(text: str) -> str:
    """The text without quotation marks: a small model ends its own text at the first one."""
    return text.translate(_MARKS)


_MARKS = str.maketrans("", "", "\"'`")


@cache
def _examples(guide: Guide, dialect: Dialect) -> tuple[Message, ...]:
    """Two turns that show how the answer to a question is taken from what was found, or params from a goal."""
    match guide:
        case Uses():
            return tuple(
                message
                for goal, described, kind, params in _USED
                for message in (
                    Message("user", f"{_described([described])}\n\n{goal}"),
                    Message("assistant", _requests(kind, [params], dialect)),
                )
            )
        case Concludes(action, parts, may_fail) if not parts and not may_fail and action == FOUND:
            shown = [(goal, found, _reply(FOUND, {"summary": said}, dialect)) for goal, found, said in _ASKED]
        case Concludes(action, _, may_fail) if not may_fail and action == COMPLETE:
            shown = [
                (goal, found, _reply(COMPLETE, {"summary": said}, dialect)) for goal, found, said in _DONE
            ]
        case Writes(files):
            shown = [
                (goal, found, _reply(WRITE, {"rel_path": files[0], "content": text}, dialect))
                for goal, found, text in _WRITTEN
            ]
        case _:
            shown = []
    return tuple(
        message
        for goal, found, reply in shown
        for message in (Message("user", f"{goal}\n{fenced(found)}"), Message("assistant", reply))
    )


_THINGS = frozenset({"bakery", "lund", "mondays", "shop", "van", "boxes"})
"""Of which examples speak, and hardly a file."""
_ASKED = (
    (
        "Read shop.txt and say on which day the bakery is closed.",
        "shop.txt: Bakery Lund, telephone 5521\nshop.txt: open 8 to 17, closed on Mondays",
        "The bakery is closed on Mondays.",
    ),
    (
        "Read lib/van.cfg and say how many boxes fit in the van.",
        "lib/van.cfg: colour = green\nlib/van.cfg: max_boxes = 70",
        "lib/van.cfg sets max_boxes to 70, so 70 boxes fit in the van.",
    ),
)
_USED: Sequence[tuple[str, str, str, Fields]] = (
    (
        "Weigh the loaf rye and say how heavy it is.",
        "- weigh_loaf: Put a loaf on the scales.\n    loaf (text)",
        "weigh_loaf",
        {"loaf": "rye"},
    ),
    (
        "On which road is the van K-42 now?",
        "- find_van: Look up on which road a van is.\n    van (text)",
        "find_van",
        {"van": "K-42"},
    ),
)
_WRITTEN = (
    (
        "Read lib/van.cfg, then write the file with the number of boxes that fit in the van.",
        "lib/van.cfg: colour = green\nlib/van.cfg: max_boxes = 70",
        "70 boxes fit in the van.\n",
    ),
    (
        "Read shop.txt, then write the file with a heading and the day on which the bakery is closed.",
        "shop.txt: Bakery Lund, telephone 5521\nshop.txt: open 8 to 17, closed on Mondays",
        "# Bakery Lund\n\nThe bakery is closed on Mondays.\n",
    ),
)
_DONE = (
    (
        "Read shop.txt, then write docs/SHOP.md with the day on which the bakery is closed.",
        "docs/SHOP.md: # Bakery Lund The bakery is closed on Mondays.",
        "docs/SHOP.md says: The bakery is closed on Mondays.",
    ),
    (
        "Read lib/van.cfg, then write VAN.md with the number of boxes that fit in the van.",
        "VAN.md: # Van 70 boxes fit in the van.",
        "VAN.md says: 70 boxes fit in the van.",
    ),
)
