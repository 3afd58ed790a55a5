"""Try the programs that a mission may run: each says its version inside the wall, in an empty root.

Where one cannot, what it may be missing is shown to it as well, and taken away again piece by piece: what is left is
the line of configuration that mends it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from lcp_engine.core.health import Finding, Grade, broken, doubtful, well
from lcp_engine.core.mission.spec import Commands, MissionSpec
from lcp_engine.core.programs.network import NetworkGrant, granted
from lcp_engine.core.programs.walls import Step
from lcp_engine.core.safe_text import without_escapes
from lcp_engine.errors import LcpError, NotFound
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import RunCommandResult, Surroundings, run_behind_wall
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.steps import step_here, trial_place
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.features.programs.wall.workspace import Ground, owner_of
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.installed_programs import found_program, interpreters_of, is_in, readable_place
from lcp_engine.store.host.liveness import wall_directory

if TYPE_CHECKING:
    from lcp_engine.settings import Settings

SECONDS = 20.0
_VERSION = {
    "ant": ("-version",),
    "ash": ("-c", ":"),
    "awk": ("-W", "version"),
    "dash": ("-c", ":"),
    "go": ("version",),
    "java": ("-version",),
    "javac": ("-version",),
    "lua": ("-v",),
    "openssl": ("version",),
    "sh": ("-c", ":"),
    "ssh": ("-V",),
    "unzip": ("-v",),
    "zig": ("version",),
}
"""Arguments with which a program says its version; `--version` for all others."""
_NUMBER = re.compile(r"\d+\.\d+")
_OF_PROGRAM = (".{}", ".{}rc", ".config/{}", ".local/share/{}", ".cache/{}")
"""Places in the home directory that belong to a program, by its name."""
_MOST_SHOWN = 54
"""Characters beside the name, on a line of 80."""


@dataclass(frozen=True)
class Here:
    """The root of a mission on this machine, where its commands have their places, and the walls that are allowed.

    `readable` is what the configuration opens for commands (`commands_read`).
    """

    root: Path
    places: Path
    walls: tuple[Step, ...]
    readable: Sequence[Path] = ()


def try_commands_at(root: Path, spec: MissionSpec, url: str, settings: Settings) -> Iterator[Finding]:
    """Like `try_commands` with what the configuration allows, and the places of the database at `url`."""
    stated = settings.of(ProgramSettings)
    readable = [*map(Path, stated.commands_read)]
    here = Here(root, wall_directory(url), stated.walls(settings.isolation), readable)
    yield from try_commands(spec, here, stated.commands_network)


def try_commands(spec: MissionSpec, here: Here, grant: NetworkGrant) -> Iterator[Finding]:
    """Try each program that a mission allows or that its checks name, and the network that it asks for.

    They run behind the wall that commands of the mission would have. `grant` is what the configuration allows of the
    network.
    """
    try:
        network = granted(spec.commands.network, grant)
    except LcpError as refused:
        yield broken("network", refused.failed)
    else:
        if network.is_host or network.hosts:
            hosts = ", ".join(host.name for host in network.hosts)
            yield well("network", hosts or "the network of this machine")
    opened = [readable_place(place, "commands_read") for place in here.readable]
    checks = [check.command for check in spec.accept if check.command is not None]
    for name in dict.fromkeys(command[0] for command in (*spec.commands.allow, *checks)):
        try:
            yield _Trial(name, here, spec.commands, opened).finding()
        except NotFound:
            yield Finding(
                name,
                Grade.FAIL,
                "is in no directory of PATH",
                "Install it, or start the runner with its PATH.",
            )
        except LcpError as refused:
            yield broken(name, refused.failed)


class _Trial:
    """A program, and places that are opened for it."""

    def __init__(self, name: str, here: Here, commands: Commands, opened: Sequence[str]) -> None:
        self._name = name
        self._path = found_program(name, here.root)
        self._here = here
        self._commands = Commands(environment=commands.environment, seconds=SECONDS)
        self._opened = opened
        version = _VERSION.get(Path(self._path).name, ("--version",))
        self._command = (self._path, *version)

    def finding(self) -> Finding:
        """Finding of its run, with what mends it. Raises like `run_behind_wall`."""
        if "/" in self._name and is_in([str(self._here.root)], self._path):
            return self._in_root()
        result = self._run(())
        if result.exit_code == 0:
            lines = without_escapes(result.stdout + result.stderr).split("\n")
            # Gradle draws a line above it, tox says that it has no settings, Mix names Erlang first.
            said = [line for line in lines if any(map(str.isalnum, line))]
            versions = [line for line in said if _NUMBER.search(line)]
            named = [
                line for line in versions if line.casefold().startswith(Path(self._path).name.casefold())
            ]
            return well(self._name, _shortened(next(iter((*named, *versions, *said)), "")) or "starts")
        missing = self._missing()
        if missing:
            line = ", ".join(map(_with_tilde, (*self._opened, *missing)))
            lacks = " and ".join(map(_with_tilde, missing))
            return Finding(self._name, Grade.FAIL, f"cannot read {lacks}", f"commands_read: [{line}]")
        asked = " ".join(self._command[1:])
        fact = f"{asked}: {_shortened(result.how, _MOST_SHOWN - len(asked) - 2)}"
        return doubtful(self._name, fact, "All is well if it has no such option.")

    def _in_root(self) -> Finding:
        """A program of the root is looked at and not run: it could do anything with its version."""
        if not os.access(self._path, os.X_OK):
            return Finding(
                self._name, Grade.FAIL, "is not a file that may be executed", "Create it, or `chmod +x` it."
            )
        for interpreter in interpreters_of(self._path):
            if not os.access(interpreter, os.X_OK):
                fact = f"its first line names {interpreter}, which is not there"
                return Finding(self._name, Grade.FAIL, fact, "Install that, or correct the line.")
        return well(self._name, "is in the root, and can be executed")

    def _missing(self) -> tuple[str, ...]:
        """The fewest places among those that may concern the program with which it runs; none if all do not help."""
        needed = [*self._candidates()]
        if not needed or self._run(needed).exit_code != 0:
            return ()
        for place in [*needed]:
            fewer = [one for one in needed if one != place]
            if self._run(fewer).exit_code == 0:
                needed = fewer
        return tuple(needed)

    def _candidates(self) -> Iterator[str]:
        home = Path.home()
        real = os.path.realpath(self._path)
        interpreters = [*interpreters_of(real)]
        names = dict.fromkeys(Path(one).name for one in (self._path, real, *interpreters))
        found = [str(home / form.format(name)) for name in names for form in _OF_PROGRAM]
        found += [f"/etc/{name}{ending}" for name in names for ending in ("", ".conf", "rc")]
        for one in (self._path, real, *interpreters, *map(os.path.realpath, interpreters)):
            directory = Path(one).parent
            found += [str(directory if directory.name != "bin" else directory.parent), str(directory)]
        for place in map(Path, dict.fromkeys(found)):
            if place.exists() and not is_in(["/usr", *self._opened], str(place)):
                try:
                    yield readable_place(place, "commands_read")
                except LcpError:
                    continue  # the home directory is in it

    def _run(self, more: Sequence[str]) -> RunCommandResult:
        def run(root: Root, program: Program) -> Ended:
            return run_program(root, program, (0, 1), ProgramsUnderWay())

        with Root(self._here.root) as root:
            owner = owner_of(root)
        found = step_here(self._here.places, user=owner, walls=self._here.walls)
        with trial_place(self._here.places) as place:
            empty = place / "root"
            empty.mkdir()
            os.chown(empty, *(owner or (-1, -1)))
            with Root(empty) as root:
                access = RootAccess(
                    root, lambda path: True, ground=Ground(place / "run", "trial", "0-1", found)
                )
                around = Surroundings(access, self._commands, (*self._opened, *more), run)
                return run_behind_wall(self._command, around)


def _with_tilde(place: str) -> str:
    home = str(Path.home())
    return f"~{place.removeprefix(home)}" if place.startswith(f"{home}/") else place


def _shortened(text: str, most: int = _MOST_SHOWN) -> str:
    line = " ".join(without_escapes(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def examine_walls(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The wall that commands have here, and why it is not a stronger one."""
    found = step_here(wall_directory(url), walls=settings.of(ProgramSettings).walls(settings.isolation))
    why = "; ".join(found.reasons)
    match found.step:
        case Step.OVERLAY:
            tool = "" if found.tool is None else f" ({found.tool.path})"
            yield well("wall", f"commands run in namespaces, over an overlay of the root{tool}")
        case Step.COPY:
            fact = f"commands run in namespaces, over a copy of the root: {why}"
            yield doubtful("wall", fact, found.advice)
        case Step.LANDLOCK:
            fact = f"commands run over a copy of the root, confined by Landlock alone: {why}"
            yield doubtful("wall", fact, found.advice)
        case Step.NONE:
            yield doubtful("wall", f"{why}: run_command fails", "Leave `commands` out of mission files here.")
        case other:
            assert_never(other)
