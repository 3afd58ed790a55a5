"""Hold the code to the limits of tools/rooms.toml, which says what each of them is.

    .venv/bin/python tools/budget.py           names what breaks a limit; nothing if all hold
    .venv/bin/python tools/budget.py --list    lists what is counted, with its places

No limit may be above one of its last committed values, but for lines of code: those may, with a new reason. Where git
or the history is missing (an archive, a shallow clone), the limits hold as stated.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

STATED = Path("tools") / "rooms.toml"
SOURCE = Path("src") / "lcp_engine"
KERNEL = "kernel-"
SURFACE = "surface"
"""Room that names every feature, and that every feature may import: the public API."""
SLACK = 50
"""Lines of code that a room may be below its limit before that has to follow."""
VERSIONS = 20
"""Committed versions of the limits that today's are compared with."""
QUESTIONS = frozenset({"What", "Whether", "How", "Why", "Who", "Of", "That"})


class Room(BaseModel):
    """The files of a part of the kernel, or of a feature and what the kernel still knows of that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most: int
    why: str = ""
    files: tuple[str, ...]
    needs: tuple[str, ...] = ()
    reads: dict[str, int] = Field(default_factory=dict)
    imports: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        return name in self.files or any(fnmatchcase(name, part) for part in self.files if "*" in part)


class House(BaseModel):
    """All limits, as tools/rooms.toml states them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel_is_closed: bool
    docstrings: int
    kernel_words: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    in_circles: int | None = None
    """None in versions that did not state it; no feature may be in a circle then, as with 0."""
    rooms: dict[str, Room]

    def rooms_of(self, name: str) -> list[str]:
        """Return the rooms that list the file `name`, a path below the package."""
        return [room for room, one in self.rooms.items() if one.holds(name)]

    def is_kernel(self, name: str) -> bool:
        return any(room.startswith(KERNEL) for room in self.rooms_of(name))

    @property
    def count_imports(self) -> int:
        return sum(len(room.imports) for room in self.rooms.values())

    @property
    def circular(self) -> list[str]:
        """The features that need themselves, through those that they need."""
        return [room for room in self.rooms if room in self._needed_by(room)]

    def _needed_by(self, room: str) -> set[str]:
        found, waiting = set[str](), [room]
        while waiting:
            stated = self.rooms.get(waiting.pop())
            new = set(() if stated is None else stated.needs) - found
            found |= new
            waiting += new
        return found

    @property
    def reads(self) -> dict[str, int]:
        return {name: most for room in self.rooms.values() for name, most in room.reads.items()}


@dataclass(frozen=True)
class Module:
    """A module of the package, named by its path below it."""

    name: str
    lines: int
    """Number of lines that are neither blank nor part of a comment or docstring, of a field either."""
    docstrings: tuple[str, ...]
    """Docstrings of modules, classes and functions that begin with one of `QUESTIONS`, each with its place."""
    reads: tuple[tuple[int, str, str], ...]
    """Line, owner and name of each `owner.name`, `owner["name"]` and `owner(name=…)` of a match; only in the kernel."""
    imports: tuple[tuple[int, str], ...]
    """Line and dotted name of what is imported of the package, in functions and for types, too."""


def read_house(text: str) -> House:
    """Raises `ValueError` for what is no TOML, or has other keys."""
    return House.model_validate(tomllib.loads(text))


def find_names(root: Path) -> list[str]:
    source = root / SOURCE
    return sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))


def read_module(name: str, text: str, *, in_kernel: bool) -> Module:
    lines = enumerate(text.splitlines(), start=1)
    code = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    docstrings, imports, tree = list[str](), list[tuple[int, str]](), ast.parse(text)
    for node in _statements(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last) if last is not None:
                code.difference_update(range(first, last + 1))
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                said = ast.get_docstring(node) or ""
                if re.split(r"\W", said, maxsplit=1)[0] in QUESTIONS:
                    docstrings.append(f"{SOURCE / name}:{node.body[0].lineno}: {said.splitlines()[0]}")
            case ast.ImportFrom(module=str(module), names=named, lineno=line):
                imports += ((line, f"{module}.{one.name}") for one in named)
            case ast.Import(names=named, lineno=line):
                imports += ((line, one.name) for one in named)
    own = tuple((line, one) for line, one in imports if one.split(".")[0] == SOURCE.name)
    return Module(name, len(code), tuple(docstrings), tuple(_reads(tree)) if in_kernel else (), own)


def find_faults(root: Path) -> list[str]:
    """Check the project at `root`; each fault names the file, the fact, and what to do."""
    try:
        house = read_house((root / STATED).read_text(encoding="utf-8"))
    except ValueError as error:
        return [f"{STATED}: {error}"]
    modules = _read_modules(root, house)
    return [
        *_find_misplaced(house, modules),
        *_find_large(house, modules),
        *_find_reads(house, modules),
        *_find_docstrings(house, modules),
        *_find_needs(house, modules),
        *_find_circles(house),
        *_find_risen(house, earlier_houses(root)),
    ]


def earlier_houses(root: Path) -> dict[str, House]:
    """Return the limits by the commits that changed them last, newest first: none without git or its history."""
    commits = _git(root, "log", f"--max-count={VERSIONS}", "--format=%h", "--", STATED.as_posix()).split()
    houses = dict[str, House]()
    for commit in commits:
        try:
            houses[commit] = read_house(_git(root, "show", f"{commit}:./{STATED.as_posix()}"))
        except ValueError:
            continue  # removed there, or written for an earlier form of this tool
    return houses


def count_reads(house: House, modules: list[Module]) -> dict[str, list[str]]:
    """Return the places at which the kernel reads an attribute, by its name in the table of the room that owns it."""
    places: dict[str, list[str]] = {name: [] for name in house.reads}
    for module in modules:
        for line, owner, name in module.reads:
            for stated in (name, f"{owner}.{name}"):
                if stated in places:
                    places[stated].append(f"{SOURCE / module.name}:{line}")
    return places


def find_needed(house: House, modules: list[Module]) -> dict[tuple[str, str], str]:
    """Return the first place at which a feature imports another one, by both."""
    names, places = {module.name for module in modules}, dict[tuple[str, str], str]()
    for module in modules:
        for room in house.rooms_of(module.name):
            for line, dotted in () if room.startswith(KERNEL) else module.imports:
                for needed in house.rooms_of(_file_of(dotted, names)):
                    if needed != room and not needed.startswith(KERNEL):
                        places.setdefault((room, needed), f"{SOURCE / module.name}:{line}")
    return places


def count_lines(house: House, modules: list[Module]) -> dict[str, int]:
    """Return the lines of code of each room."""
    lines = dict.fromkeys(house.rooms, 0)
    for module in modules:
        for room in house.rooms_of(module.name):
            lines[room] += module.lines
    return lines


def _find_misplaced(house: House, modules: list[Module]) -> Iterator[str]:
    for module in modules:
        match house.rooms_of(module.name):
            case []:
                yield f"{SOURCE / module.name} is in no room; add it to `files` of its room in {STATED}"
            case [_]:
                pass
            case rooms:
                yield f"{SOURCE / module.name} is in {' and '.join(rooms)}; leave it in one room of {STATED}"
    names = {module.name for module in modules}
    for room_name, room in house.rooms.items():
        for part in room.files:
            if part not in names and not any(fnmatchcase(name, part) for name in names):
                yield f"{STATED}: {room_name} lists {part!r}, which does not exist; remove it"


def _find_large(house: House, modules: list[Module]) -> Iterator[str]:
    for name, lines in count_lines(house, modules).items():
        most = house.rooms[name].most
        if lines > most:
            yield f"{STATED}: {name} has {lines:,} lines of code, {most:,} are allowed; {_how_to_grow(house, name)}"
        elif lines < most - SLACK:
            yield f"{STATED}: {name} has {lines:,} lines of code, {most:,} are allowed; lower `most` to {lines}"


def _find_reads(house: House, modules: list[Module]) -> Iterator[str]:
    for name in house.kernel_words.keys() & house.reads.keys():
        yield f"{STATED}: `{name}` is in `kernel_words` and in `reads` of a feature; leave it in one of them"
    places = count_reads(house, modules)
    for room, one in house.rooms.items():
        for name, most in one.reads.items():
            count = len(places[name])
            fact = f"{STATED}: {room}: the kernel reads `{name}` {count} times, {most} are allowed"
            if count > most:
                yield f"{fact}; leave it to {room}, or ask through a protocol: {', '.join(places[name])}"
            elif count < most:
                yield f"{fact}; lower the number to {count}"


def _find_docstrings(house: House, modules: list[Module]) -> Iterator[str]:
    count = sum(len(module.docstrings) for module in modules)
    fact = f"{STATED}: {count} docstrings begin with {', '.join(sorted(QUESTIONS))}; {house.docstrings} are allowed"
    if count > house.docstrings:
        yield f"{fact}: begin yours with a verb or a noun; tools/budget.py --list names them"
    elif count < house.docstrings:
        yield f"{fact}: lower `docstrings` to {count}"


def _find_needs(house: House, modules: list[Module]) -> Iterator[str]:
    needed = find_needed(house, modules)
    for (room, other), place in needed.items():
        if SURFACE not in (room, other) and other not in house.rooms[room].needs:
            yield (
                f"{place}: {room} imports {other}, which it does not state to need; add it to `needs` in {STATED}, "
                "or move what both use into the kernel"
            )
    for room, one in house.rooms.items():
        for other in one.needs:
            if (room, other) not in needed:
                yield f"{STATED}: {room} states that it needs {other}, and imports nothing of it; remove it"


def _find_circles(house: House) -> Iterator[str]:
    circular, most = house.circular, house.in_circles or 0
    fact = f"{STATED}: {len(circular)} features need themselves through others, {most} are allowed"
    if len(circular) > most:
        yield f"{fact}; a feature of a circle cannot be removed alone: {', '.join(circular)}"
    elif len(circular) < most:
        yield f"{fact}: lower `in_circles` to {len(circular)}"


def _find_risen(house: House, earlier: Mapping[str, House]) -> Iterator[str]:
    checks: list[Callable[[House, str, House], Iterator[str]]] = [_find_risen_lines, _find_risen_counts]
    found = (
        fault for check in checks for commit, then in earlier.items() for fault in check(house, commit, then)
    )
    told = set[str]()
    for fault in found:
        subject = fault.partition(":")[0]
        if subject not in told:
            told.add(subject)
            yield f"{STATED}: {fault}"


def _find_risen_lines(house: House, commit: str, then: House) -> Iterator[str]:
    for name, room in house.rooms.items():
        before = then.rooms.get(name)
        most, why = (0, "") if before is None else (before.most, before.why)
        if room.most > most:
            if name.startswith(KERNEL) and then.kernel_is_closed:
                yield f"{name}: `most` is {room.most}, {most} in {commit}; the kernel is closed, so keep it there"
            elif room.why.strip() in {"", why.strip()}:
                yield f"{name}: `most` is {room.most}, {most} in {commit}; say in a new `why` what for"


def _find_risen_counts(house: House, commit: str, then: House) -> Iterator[str]:
    if then.kernel_is_closed and not house.kernel_is_closed:
        yield f"kernel_is_closed: it is false, true in {commit}; leave it true"
    if house.docstrings > then.docstrings:
        yield f"docstrings: {house.docstrings} are stated, {then.docstrings} in {commit}; that may only fall"
    if then.in_circles is not None and (house.in_circles or 0) > then.in_circles:
        yield f"in_circles: {house.in_circles} are stated, {then.in_circles} in {commit}; that may only fall"
    if house.count_imports > then.count_imports:
        yield (
            f"imports: {house.count_imports} are listed in all rooms, {then.count_imports} in {commit}; "
            "that may only fall"
        )
    for room in then.rooms.keys() & house.rooms.keys():
        for name, most in then.rooms[room].reads.items():
            count = house.reads.get(name)
            if count is None and name not in house.kernel_words:
                yield f"reads.{name}: it is left out, {most} were stated in {commit}; state them, or 0"
            elif count is not None and count > most:
                yield f"reads.{name}: {count} are stated, {most} in {commit}; that may only fall"


def _how_to_grow(house: House, room: str) -> str:
    if room.startswith(KERNEL) and house.kernel_is_closed:
        return "the kernel is closed: make it smaller, or move it into a feature"
    return "make it smaller, or raise `most` and say in `why` what for"


def _read_modules(root: Path, house: House) -> list[Module]:
    names = ((name, root / SOURCE / name) for name in find_names(root))
    return [
        read_module(name, path.read_text(encoding="utf-8"), in_kernel=house.is_kernel(name))
        for name, path in names
    ]


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and all its statements, without a look at what they are made of: a tenth of the nodes."""
    found: list[ast.AST] = [tree]
    while found:
        yield (node := found.pop())
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            below: object = getattr(node, field, None)
            found += below if isinstance(below, list) else []


def _reads(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name, lineno=line):
                yield line, _last_name(owner), name
            case ast.Subscript(value=owner, slice=ast.Constant(value=str() as name), lineno=line):
                yield line, _last_name(owner), name
            case ast.MatchClass(cls=owner, kwd_attrs=names, lineno=line):
                yield from ((line, _last_name(owner), name) for name in names)


def _file_of(dotted: str, names: Collection[str]) -> str:
    """Path of the module that has a name, or is it; empty for none of the package."""
    _, *parts = dotted.split(".")
    for path in ("/".join(parts), "/".join(parts[:-1])):
        for name in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if name in names:
                return name
    return ""


def _last_name(node: ast.expr) -> str:
    """Name `c` of `a.b.c`, of `c` and of `c()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=called):
            return _last_name(called)
        case _:
            return ""


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints: nothing if it fails, or is not installed."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return ""


def _list(root: Path) -> None:
    house = read_house((root / STATED).read_text(encoding="utf-8"))
    modules = _read_modules(root, house)
    lines = count_lines(house, modules)
    print(f"{sum(lines.values()):,} lines of code, {_sum_kernel(lines):,} of them in the kernel")
    print(*(f"  {room}: {count:,}" for room, count in lines.items()), sep="\n")
    places = count_reads(house, modules)
    print(f"{house.count_imports} imports of features by the kernel, {sum(map(len, places.values()))} reads")
    print(*(f"  {name}: {', '.join(found)}" for name, found in places.items()), sep="\n")
    found = [place for module in modules for place in module.docstrings]
    print(f"{len(found)} docstrings that begin with {', '.join(sorted(QUESTIONS))}")
    print(*(f"  {one}" for one in found), sep="\n")


def _sum_kernel(lines: Mapping[str, int]) -> int:
    return sum(count for room, count in lines.items() if room.startswith(KERNEL))


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        _list(Path.cwd())
    else:
        sys.exit("\n".join(find_faults(Path.cwd())) or 0)
