"""Hide characters in contents and paths, and compare what the commands print that people decide with."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from pydantic import JsonValue
from tests.cli.in_process import run_in_process
from tests.core.test_safe_text import IGNORABLE

from lcp_engine.api.engine import Engine
from lcp_engine.errors import LcpError

CONTROLS = [*range(1, 0x20), *range(0x7F, 0xA0)]
BIDI = [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
CODES = sorted({*CONTROLS, *BIDI, *IGNORABLE} - {0x0A, 0x09})
_UNSEEN = dict.fromkeys(CODES)
_VARYING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|--shown [0-9a-f]+")
"""Times, and the names of looks, which depend on times."""

Print = Callable[[Path, Sequence[str]], str]


@dataclass(frozen=True)
class Place:
    """Where text of a planner is hidden, and the commands that show it to who decides. The last one may approve."""

    name: str
    params: Callable[[str], Mapping[str, JsonValue]]
    commands: tuple[str, ...]


_IN_FULL = ("diff 2", "approve --all")
PLACES = (
    Place("content", lambda text: {"rel_path": "run.js", "content": f"run('{text}')\n"}, _IN_FULL),
    Place("end of a line", lambda text: {"rel_path": "run.js", "content": f"run(){text}\n"}, _IN_FULL),
    Place("path", lambda text: {"rel_path": f"docs/{text}a.md", "content": "x\n"},
          ("held", "jobs", "diff 2", "job 2", "policy explain 2", "approve --all")),
)  # fmt: skip


@dataclass
class Compared:
    """The number of outputs, and those that show different things alike or pass on what cannot be seen."""

    outputs: int = 0
    alike: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    """Commands whose output of the same thing differs, so that comparing it says nothing."""


def seen(text: str) -> str:
    """The text as it looks: without times, which differ, and without what cannot be seen."""
    return normalize("NFC", _VARYING.sub("…", text).translate(_UNSEEN))


def compare(codes: Sequence[int], prints: Mapping[str, Callable[[str], str]] | None = None) -> Compared:
    """Print each place with each character hidden in it, and with none; `prints` replaces the commands (a control)."""
    found = Compared()
    with tempfile.TemporaryDirectory(prefix="lcp-shown-") as directory:
        home = Path(directory).resolve()
        for place in PLACES:
            looks: dict[str, dict[str, str]] = {}
            for number, text in enumerate(("", "", *map(chr, codes))):
                for command, output in _outputs(home, place, text, prints):
                    found.outputs += 1
                    name = f"{place.name} with U+{ord(text):04X}" if text else f"{place.name} as it is"
                    if any(ord(character) in _UNSEEN for character in output):
                        found.raw.append(f"lcp {command}: {name}")
                    known = looks.setdefault(command, {})
                    look = seen(output)
                    if number == 1 and look not in known:
                        found.blind.append(f"lcp {command}: {place.name}")
                    elif look in known and number > 1:
                        found.alike.append(f"lcp {command}: {name} looks like {known[look]}")
                    known[look] = name
    return found


def _outputs(
    home: Path, place: Place, text: str, prints: Mapping[str, Callable[[str], str]] | None
) -> list[tuple[str, str]]:
    if prints is not None:
        return [
            (name, show(str(dict(place.params(text))["rel_path"]) + text)) for name, show in prints.items()
        ]
    for old in home.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    (home / "root").mkdir()
    try:
        hold(home, place.params(text))
    except LcpError:  # a path with a control character, which is refused
        return []
    return [(command, _printed(home, command.split())) for command in place.commands]


def hold(home: Path, params: Mapping[str, JsonValue]) -> None:
    """One held job, number 2, that would write a file."""
    reply: JsonValue = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "write_file", "params": dict(params)}],
    }
    with Engine(f"sqlite:///{home}/lcp.db") as engine:
        engine.launch(
            {"goal": "Try it.", "planner": {"type": "script", "replies": [reply]}}, root=home / "root"
        )
        engine.work(until_idle=True)


def _printed(home: Path, arguments: Sequence[str]) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LCP_", "XDG_"))}
    places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    environment = {**inherited, **places, "LCP_DATABASE_URL": f"sqlite:///{home}/lcp.db", "NO_COLOR": "1"}
    _, out, err = run_in_process(arguments, home=home, environment=environment, stdin="")
    return out + err


def sample(count: int, number: int) -> list[int]:
    """So many of the characters, drawn from a seed; all controls are more likely than their share."""
    drawn = random.Random(number)
    half = count // 2
    return sorted({*drawn.sample([*CONTROLS, *BIDI], half), *drawn.sample(CODES, count - half)} - {0x0A})


def attack(seconds: float, number: int) -> bool:
    """Prints what was counted; whether nothing that differs looked alike."""
    codes = sample(max(10, min(60, int(seconds * 40))), number)
    found, control = compare(codes), compare(codes, {"as it is": str})
    print(
        f"outputs: {found.outputs:,} with {len(codes)} characters in {len(PLACES)} places, "
        f"{len(found.alike)} look alike, {len(found.raw)} pass on what cannot be seen, "
        f"{len(found.blind)} cannot be compared; "
        f"{len(control.alike)} of {control.outputs} printed as they are look alike"
    )
    for fault in (*found.alike, *found.raw, *found.blind):
        print(f"  <- {fault}")
    return not (found.alike or found.raw or found.blind) and bool(control.alike)
