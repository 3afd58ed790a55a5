"""Define the races: how a path changes while a job uses it, and what counts as an escape."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

CANARY = "CANARY"
"""Content of every file that no job may reveal."""
READ, WRITE, LIST = "read_file", "write_file", "list_files"
SEARCH, EDIT, DELETE, MOVE, MAKE = "search_files", "edit_file", "delete_file", "move_file", "make_directory"
CHANGES = (WRITE, EDIT, DELETE, MOVE, MAKE)
FILES = {
    "root/a.txt": "in\n",
    "root/secret.txt": "in\n",
    "root/d/secret.txt": "in\n",
    "root/d/sub/secret.txt": "in\n",
    "root/e/secret.txt": "in\n",
    "root/m/etc/passwd": "in\n",
    "root/f": "in\n",
    "root/.env": f"{CANARY}-ENV\n",
    "root/.git/config": "[core]\n",
    "outside/secret.txt": f"{CANARY}-OUTSIDE\n",
    "outside/sub/secret.txt": f"{CANARY}-OUTSIDE\n",
    "outside/canary.txt": f"{CANARY}-OUTSIDE\n",
}
UNCHANGED = ("outside", "root/.git", "root/.env")
"""No job may change these."""


@dataclass(frozen=True)
class Race:
    """`links` are created first; another process repeats `steps` while the job is done.

    All steps together leave everything outside as it was.
    """

    name: str
    kind: str
    params: Mapping[str, JsonValue]
    steps: tuple[tuple[str, ...], ...]
    links: Mapping[str, str] = field(default_factory=dict)
    fifos: tuple[str, ...] = ()
    hard_links: Mapping[str, str] = field(default_factory=dict)
    moves_root: bool = False
    """The root itself is replaced: a mission that is launched meanwhile may be one over another directory."""

    def prepare(self, place: Path) -> None:
        for path, content in FILES.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(content)
        for path, target in self.links.items():
            (place / path).symlink_to(target.format(place=place))
        for path, target in self.hard_links.items():
            os.link(place / target, place / path)
        for path in self.fifos:
            os.mkfifo(place / path)

    def outside(self, place: Path) -> dict[str, bytes | int]:
        """Everything that must not change."""
        found: dict[str, bytes | int] = {}
        for one in UNCHANGED:
            for path in (place / one, *(place / one).rglob("*")):
                found[str(path)] = path.read_bytes() if path.is_file() else path.lstat().st_mode
        return found


def _exchange(one: str, other: str) -> tuple[tuple[str, ...], ...]:
    return (("exchange", f"root/{one}", f"root/{other}"),)


ANYTHING: Mapping[str, JsonValue] = {"text": ".", "is_pattern": True, "context": 1}
"""A search that shows every line that it may."""
EDITED: Mapping[str, JsonValue] = {"old_text": "n", "new_text": "new"}
"""An edit that fits what is in the root and what is outside."""
OUT = {"root/d.alt": "../outside"}
FILE_OUT = {"root/f.alt": "../outside/secret.txt"}
HARD = (
    ("fresh", "root/f", "in\n"),
    ("link", "outside/secret.txt", "root/f.alt"),
    ("exchange", "root/f", "root/f.alt"),
    ("unlink", "root/f.alt"),
)
RACES = (
    Race("a directory turns into a link out, its file is read", READ, {"rel_path": "d/secret.txt"},
         _exchange("d", "d.alt"), OUT),
    Race("a directory turns into an absolute link out, its file is read", READ, {"rel_path": "d/secret.txt"},
         _exchange("d", "d.alt"), {"root/d.alt": "{place}/outside"}),
    Race("a directory further up turns into a link out, a file below is read", READ,
         {"rel_path": "d/sub/secret.txt"}, _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link to the root of all, its file is read", READ,
         {"rel_path": "m/etc/passwd"}, _exchange("m", "m.alt"), {"root/m.alt": "/proc/self/root"}),
    Race("a directory turns into a link out, it is listed", LIST, {"root": "d"}, _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link out, the whole root is listed", LIST, {"patterns": ["*.txt"]},
         _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link out, it is searched", SEARCH, {"root": "d", **ANYTHING},
         _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link out, the whole root is searched", SEARCH, ANYTHING,
         _exchange("d", "d.alt"), OUT),
    Race("a file turns into a link out, it is searched", SEARCH, {"patterns": ["/f"], **ANYTHING},
         _exchange("f", "f.alt"), FILE_OUT),
    Race("a file turns into a link to a secret of the root, it is searched", SEARCH, {"patterns": ["/f"], **ANYTHING},
         _exchange("f", "f.alt"), {"root/f.alt": ".env"}),
    Race("a directory turns into a link out, its file is replaced", WRITE,
         {"rel_path": "d/secret.txt", "content": "new\n"}, _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link out, a file is added to it", WRITE,
         {"rel_path": "d/new.txt", "content": "new\n"}, _exchange("d", "d.alt"), OUT),
    Race("a directory turns into a link out, more are made in it", WRITE,
         {"rel_path": "d/new/deeper/f.txt", "content": "new\n"},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("rmtree", "root/d/new")), OUT),
    Race("a file turns into a link out, it is read", READ, {"rel_path": "f"}, _exchange("f", "f.alt"), FILE_OUT),
    Race("a file turns into a link out, it is replaced", WRITE, {"rel_path": "f", "content": "new\n"},
         (*_exchange("f", "f.alt"), ("unlink", "root/f.alt"), ("fresh", "root/f", "in\n"),
          ("symlink", "../outside/secret.txt", "root/f.alt")), FILE_OUT),
    Race("a file turns into a link out, a line is added", WRITE,
         {"rel_path": "f", "content": "more\n", "mode": "append"},
         (*_exchange("f", "f.alt"), ("unlink", "root/f.alt"), ("fresh", "root/f", "in\n"),
          ("symlink", "../outside/secret.txt", "root/f.alt")), FILE_OUT),
    Race("a file turns into a link out, it is edited", EDIT, {"rel_path": "f", **EDITED},
         (*_exchange("f", "f.alt"), ("unlink", "root/f.alt"), ("fresh", "root/f", "in\n"),
          ("symlink", "../outside/secret.txt", "root/f.alt")), FILE_OUT),
    Race("a directory turns into a link out, its file is edited", EDIT, {"rel_path": "d/secret.txt", **EDITED},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("fresh", "root/d/secret.txt", "in\n")), OUT),
    Race("a file turns into a link out, it is deleted", DELETE, {"rel_path": "f"},
         (*_exchange("f", "f.alt"), ("unlink", "root/f.alt"), ("fresh", "root/f", "in\n"),
          ("symlink", "../outside/secret.txt", "root/f.alt")), FILE_OUT),
    Race("a directory turns into a link out, its file is deleted", DELETE, {"rel_path": "d/secret.txt"},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("fresh", "root/d/secret.txt", "in\n")), OUT),
    Race("a file turns into a link out, it is moved", MOVE, {"rel_path": "f", "new_path": "g"},
         (*_exchange("f", "f.alt"), ("fresh", "root/g", ""), ("unlink", "root/g"), ("unlink", "root/f.alt"),
          ("fresh", "root/f", "in\n"), ("symlink", "../outside/secret.txt", "root/f.alt")), FILE_OUT),
    Race("a directory turns into a link out, its file is moved", MOVE,
         {"rel_path": "d/secret.txt", "new_path": "g"},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("fresh", "root/g", ""), ("unlink", "root/g"),
          ("fresh", "root/d/secret.txt", "in\n")), OUT),
    Race("a directory turns into a link out, a file is moved into it", MOVE,
         {"rel_path": "f", "new_path": "d/g"},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("fresh", "root/d/g", ""), ("unlink", "root/d/g"),
          ("fresh", "root/f", "in\n")), OUT),
    Race("a directory turns into a link out, one is made in it", MAKE, {"rel_path": "d/made/deeper"},
         (*_exchange("d", "d.alt"), *_exchange("d", "d.alt"), ("rmtree", "root/d/made")), OUT),
    Race("a directory that is to be made turns into a link out", MAKE, {"rel_path": "made"},
         (("mkdir", "root/made"), ("rename", "root/made", "root/g"), ("symlink", "../outside/new", "root/made"),
          ("unlink", "root/made"), ("rmtree", "root/g"))),
    Race("a file turns into a hard link of one outside, it is edited", EDIT, {"rel_path": "f", **EDITED}, HARD),
    Race("a file turns into a hard link of one outside, it is replaced", WRITE,
         {"rel_path": "f", "content": "new\n"}, HARD),
    Race("a file turns into a hard link of one outside, a line is added", WRITE,
         {"rel_path": "f", "content": "more\n", "mode": "append"}, HARD),
    Race("a file turns into a FIFO, it is read", READ, {"rel_path": "f"}, _exchange("f", "f.alt"),
         fifos=("root/f.alt",)),
    Race("a file turns into a FIFO, a line is added", WRITE,
         {"rel_path": "f", "content": "more\n", "mode": "append"},
         (*_exchange("f", "f.alt"), ("unlink", "root/f.alt"), ("fresh", "root/f", "in\n"), ("fifo", "root/f.alt"))),
    Race("a directory is renamed back and forth, its file is read", READ, {"rel_path": "d/sub/secret.txt"},
         (("rename", "root/d", "root/d.moved"), ("rename", "root/d.moved", "root/d"))),
    Race("a directory is renamed back and forth, a file is written in it", WRITE,
         {"rel_path": "d/sub/new.txt", "content": "new\n"},
         (("rename", "root/d", "root/d.moved"), ("rename", "root/d.moved", "root/d"))),
    Race("a directory is moved out and a link to it stays, its file is read", READ,
         {"rel_path": "d/sub/../secret.txt"},
         (("rename", "root/d", "outside/d"), ("symlink", "../outside", "root/d"), ("unlink", "root/d"),
          ("rename", "outside/d", "root/d"))),
    Race("a link within the root turns into one out, it is read", READ, {"rel_path": "l"},
         _exchange("l", "l.alt"), {"root/l": "d/secret.txt", "root/l.alt": "../outside/secret.txt"}),
    Race("a link that goes up and down again, while what it passes is moved", READ, {"rel_path": "d/sub/l"},
         _exchange("d", "e"), {"root/d/sub/l": "../../d/../e/../d/secret.txt"}),
    Race("a link in the middle of a chain turns into one out, its file is read", READ, {"rel_path": "c0/secret.txt"},
         _exchange("c1", "c1.alt"), {"root/c0": "c1", "root/c1": "d", "root/c1.alt": "../outside"}),
    Race("a link to a file turns into one to a secret of the root, it is read", READ, {"rel_path": "l"},
         _exchange("l", "l.alt"), {"root/l": "a.txt", "root/l.alt": ".env"}),
    Race("a secret of the root is rewritten, it is read through a link", READ, {"rel_path": "l"},
         (("fresh", "root/.env", f"{CANARY}-ENV\n"), ("fresh", "root/.env", f"{CANARY}-ENV\n")), {"root/l": ".env"}),
    Race("a secret of the root is rewritten and keeps a second name, it is read through a link", READ,
         {"rel_path": "l"},
         (("link", "root/.env", "root/.env.old"), ("fresh", "root/.env", f"{CANARY}-ENV\n"),
          ("unlink", "root/.env.old")),
         {"root/l": ".env"}),
    Race("a directory turns into a link to .git, a file is written in it", WRITE,
         {"rel_path": "d/config", "content": "new\n"}, _exchange("d", "d.alt"), {"root/d.alt": ".git"}),
    Race("the root and a directory outside take each other's place, a file is read", READ,
         {"rel_path": "secret.txt"}, (("exchange", "root", "outside"), ("exchange", "root", "outside")),
         moves_root=True),
    Race("the root turns into a link to a directory outside, a file is read", READ, {"rel_path": "secret.txt"},
         (("exchange", "root", "root.alt"), ("exchange", "root", "root.alt")), {"root.alt": "{place}/outside"},
         moves_root=True),
    Race("the root turns into a link to a directory outside, it is listed", LIST, {},
         (("exchange", "root", "root.alt"), ("exchange", "root", "root.alt")), {"root.alt": "{place}/outside"},
         moves_root=True),
    Race("the root turns into a link to a directory outside, it is searched", SEARCH, ANYTHING,
         (("exchange", "root", "root.alt"), ("exchange", "root", "root.alt")), {"root.alt": "{place}/outside"},
         moves_root=True),
    Race("the root turns into a link to a directory outside, a file is replaced", WRITE,
         {"rel_path": "secret.txt", "content": "new\n"},
         (("exchange", "root", "root.alt"), ("exchange", "root", "root.alt")), {"root.alt": "{place}/outside"},
         moves_root=True),
)  # fmt: skip
