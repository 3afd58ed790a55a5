"""The kinds of jobs that the engine itself gives a meaning, and what a kind can be for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

from lcp_engine.core.json_values import JsonValue

TURN = "agent_plan"
"""A question to the planner."""
TURN_PRIORITY = 10
QUESTION = "ask_user"
"""A question to a person (R13)."""
MERGE = "merge"
"""The engine's own job that brings what a mission did in its stage into the root (R28)."""
APPLY = "apply"
"""The engine's own job that brings what a command changed into the root."""
UNDO = "undo"
"""The engine's own job that takes changes back (R27)."""
WRITE = "write_file"
"""What the action of the same name has done."""


class KindRole(StrEnum):
    """Purpose of a kind, as a planner sees it."""

    LISTS = "lists"
    """It lists files: the list `files` of its result has paths relative to the directory `root` of its params."""
    READS = "reads"
    """It reads the file that its params name, from line `offset` on; `total` of its result counts all lines."""
    WRITES = "writes"
    """It writes the file that its params name."""
    EDITS = "edits"
    """It changes the file that its params name, which has to be there."""
    DELETES = "deletes"
    """It deletes the file that its params name."""
    MOVES = "moves"
    """It moves the file that its params name to `new_path`."""
    MAKES = "makes"
    """It makes the directory that its params name."""
    FINDS = "finds"
    """It finds lines in the files of the root."""
    RECALLS = "recalls"
    """It shows the result of an earlier job: `number` of its params says which, from line `offset` on; `total` of its
    result counts all lines."""
    SEARCHES = "searches"
    RUNS = "runs"
    ASKS = "asks"
    """It asks a person."""
    PLANS = "plans"
    """It asks a planner."""
    OTHER = "other"


CHANGES = frozenset({KindRole.WRITES, KindRole.EDITS, KindRole.DELETES, KindRole.MOVES, KindRole.MAKES})
ON_FILES = frozenset({KindRole.LISTS, KindRole.READS, *CHANGES})
"""What a planner learns from these, it learns about files of the root."""


def shown_text(result: Mapping[str, JsonValue], shows: str | None) -> str:
    """Part of a result that prompts show, as text: the part that its kind `shows` if there is one, else all of it."""
    found = None if shows is None else result.get(shows)
    if isinstance(found, str):
        return found
    if isinstance(found, list) and all(isinstance(line, str) for line in found):
        return "\n".join(str(line) for line in found)
    rest = {key: value for key, value in result.items() if key not in ("ok", "action")}
    answer = rest.get("answer") if len(rest) == 1 else None
    if isinstance(answer, str) or not rest:
        return str(answer or "")
    if found is None and any(isinstance(value, str) and "\n" in value for value in rest.values()):
        return "".join(_with_lines(key, value) for key, value in rest.items())
    return json.dumps(rest if found is None else found, ensure_ascii=False, indent=1)


def _with_lines(key: str, value: JsonValue) -> str:
    """A key and its value; the lines of a text are those of the result, which can then be shown in part."""
    if not isinstance(value, str) or "\n" not in value:
        return f"{key}: {json.dumps(value, ensure_ascii=False)}\n"
    return "".join((f"{key}:\n", *(f"  {line}\n" for line in value.removesuffix("\n").split("\n"))))


def tool_ids(kinds: Iterable[str]) -> dict[str, str]:
    """By kind, its id as a ToolDefinition. Of kinds alike all but the first have a part of a hash in theirs.

    The first is the one in small letters with `_`, as the built-in kinds are: no further kind takes their ids.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    plains = {kind: f"tool-{re.sub('[^a-z0-9-]', '-', kind.lower())}" for kind in sorted(kinds)}
    for kind, plain in sorted(plains.items(), key=lambda one: one[1] != f"tool-{one[0].replace('_', '-')}"):
        is_taken = plain in taken
        ids[kind] = f"{plain}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}" if is_taken else plain
        taken.add(ids[kind])
    return ids


def kind_named(name: str, kinds: Collection[str]) -> str:
    """The kind with this name or, if none has it, with this id of a tool; else the name itself."""
    if name in kinds or not name.startswith("tool-"):
        return name
    return _by_tool_id(tuple(kinds)).get(name, name)


@lru_cache(maxsize=8)
def _by_tool_id(kinds: tuple[str, ...]) -> Mapping[str, str]:
    return {id_: kind for kind, id_ in tool_ids(kinds).items()}
