"""Load this project's own path cases, build the tree of one, and find the faults of an answer."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue
from tests.ways import Done

CASES = Path(__file__).parent / "sandbox" / "own_paths.jsonl"
CANARY = "CANARY"
FILES = {
    "root/notes.txt": "notes\n",
    "root/src/app.py": "run()\n",
    "root/src/lib/deep.txt": "deep\n",
    "root/.env": f"KEY={CANARY}\n",
    "root/.git/config": f"[core] {CANARY}\n",
    "outside/hidden.txt": f"{CANARY}\n",
    "root-twin/hidden.txt": f"{CANARY}\n",
}
MAY_CHANGE = ("write_file", "move_file", "make_directory")
LEAKS = (CANARY, "root:x:0:0", "hidden.txt")
Case = dict[str, JsonValue]


def load_own_cases() -> list[Case]:
    """The cases that this user can build: only root creates devices."""
    with CASES.open(encoding="ascii") as lines:
        cases: list[Case] = [json.loads(line) for line in lines]
    return [case for case in cases if case.get("user") != "root" or os.getuid() == 0]


class Tree:
    """The tree of one case in the directory `place`."""

    def __init__(self, place: Path, case: Case) -> None:
        self.place, self.case = place, case
        self.root = place / str(case.get("root", "root"))
        for path, text in FILES.items():
            self._file(path, text)
        for step in _lists(case["made"]):
            getattr(self, f"_{step[0]}")(*step[1:])
        self._before = self._everything()

    @property
    def kind(self) -> str:
        return str(self.case["kind"])

    @property
    def params(self) -> dict[str, JsonValue]:
        given = self.case["params"]
        assert isinstance(given, dict)
        return {name: self._expanded(value) for name, value in given.items()}

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(map(str, _list(self.case.get("aliases", []))))

    def faults(self, done: Done) -> list[str]:
        """The faults of this answer and of the tree after it."""
        told = json.dumps(done.result, ensure_ascii=False)
        wanted, became = _list(self.case["comes_to"]), done.code or "ok"
        faults = [f"{leak} is told" for leak in LEAKS if done.result is not None and leak in told]
        if became not in wanted:
            faults.append(f"it came to {became}, not to {' or '.join(map(str, wanted))}")
        faults += self._changes(done)
        if done.result is not None:
            if "tells" in self.case and done.result.get("content") != self.case["tells"]:
                faults.append(f"it tells {done.result.get('content')!r}")
            if "lists" in self.case and sorted(map(str, _list(done.result["files"]))) != sorted(
                map(str, _list(self.case["lists"]))
            ):
                faults.append(f"it lists {done.result['files']}")
        return faults

    def _changes(self, done: Done) -> list[str]:
        now = self._everything()
        changed = [path for path in {*self._before, *now} if self._before.get(path) != now.get(path)]
        may_change = done.result is not None and self.kind in MAY_CHANGE
        faults = [
            f"{path!r} has changed" for path in changed if not (may_change and path.startswith("root/"))
        ]
        held = self.case.get("holds", {})
        assert isinstance(held, dict)
        if done.result is not None:
            faults += [f"{path!r} has not the text {text!r}" for path, text in held.items()
                       if now.get(path, (0, b""))[1] != str(text).encode()]  # fmt: skip
        return faults

    def _everything(self) -> dict[str, tuple[int, bytes]]:
        found: dict[str, tuple[int, bytes]] = {}
        for directory, names, files in os.walk(self.place):
            for name in (*names, *files):
                path = Path(directory, name)
                mode = path.lstat().st_mode
                content = path.read_bytes() if stat.S_ISREG(mode) else b""
                found[str(path.relative_to(self.place))] = mode, content
        return found

    def _expanded(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list) and len(value) > 1 and isinstance(value[1], int):
            return str(value[0]) * value[1] + "".join(map(str, value[2:]))
        if not isinstance(value, str):
            return value
        for name in ("root", "outside", "alias"):
            value = value.replace(f"{{{name}}}", str(self.place / name))
        return value

    def _file(self, path: str, text: str) -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_text(text)

    def _link(self, path: str, target: str) -> None:
        (self.place / path).symlink_to(str(self._expanded(target)))

    def _chain(self, path: str, count: int, target: str) -> None:
        for number in range(count):
            last = number == count - 1
            (self.place / f"{path}{number}").symlink_to(target if last else f"{Path(path).name}{number + 1}")

    def _hard(self, path: str, other: str) -> None:
        os.link(self.place / other, self.place / path)

    def _fifo(self, path: str) -> None:
        os.mkfifo(self.place / path)

    def _socket(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(self.place / path))

    def _device(self, path: str, major: int, minor: int) -> None:
        os.mknod(self.place / path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))


def _list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def _lists(value: JsonValue) -> list[list[JsonValue]]:
    return [_list(one) for one in _list(value)]


def naive(place: Path, kind: str, params: Mapping[str, JsonValue]) -> Done:
    """Do the job as a careless worker would: a test of the cases, not of the engine."""
    path = Path(f"{place}/{params.get('root') or ''}/{params.get('rel_path') or params.get('path')}")
    if not str(path).startswith(str(place)):
        return Done(code="PATH_OUTSIDE_ROOT")
    try:
        return Done({"content": path.read_text()})
    except FileNotFoundError:
        return Done(code="PATH_NOT_FOUND")
    except (OSError, ValueError):
        return Done(code="PATH_DENIED")
