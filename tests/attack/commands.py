"""Have commands reach for what lies outside of their root or is denied in it, by names that files there can give."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.walls import ground_behind, missing

from lcp_engine.core.mission.spec import Commands
from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.core.programs.walls import WALLS, Step
from lcp_engine.errors import LcpError
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import Surroundings, run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.read_file import WORKER as READ_FILE

SECRET = "S3CRET"
INTERPRETERS = (
    "/bin/sh", "//bin/sh", "/bin//sh", "/./bin/sh", "/etc/../bin/sh", "/proc/self/root/bin/sh", "/proc/self/cwd/bin/sh",
    "./bin/sh", "bin/sh", "../../../../../../bin/sh", "/usr/bin/env sh", "/usr/bin/env -S sh", "//usr/bin/env sh",
    "/usr/bin/env tool", "OUTSIDE/bin/sh", "OUTSIDE/bin/tool", "ROOT/../outside/bin/sh", "ROOT/bin/sh",
    "ROOT/out/bin/sh", "ROOT/venv/bin/python", "ROOT/bin/nested",
)  # fmt: skip
"""What the first line of a script can say."""
DENIED = ("node_modules/pk/", "node_modules/ok/one.txt", "venv/lib/mine.txt")
"""What the attacked mission denies, besides what every one does."""
SECRETS = (
    "node_modules/.env", "node_modules/pk/s", "node_modules/ok/one.txt", "node_modules/ok/deep/.npmrc", "venv/.git/f",
    "venv/lib/mine.txt",
)  # fmt: skip
LINKS = {
    "venv": "../outside",
    ".venv": "OUTSIDE",
    "node_modules": "out",
    "venv/bin": "../../outside/bin",
    "venv/lib": "OUTSIDE",
    "node_modules/ok": "../../outside",
    "node_modules/.bin/tool": "../../../outside/bin/tool",
    "node_modules/.bin": "../out/bin",
}
"""Links in the places of installed packages, which are there instead of what `build` makes."""

Runs: TypeAlias = Callable[[Root, Program], Ended]


def by_the_engine(root: Root, program: Program) -> Ended:
    """Run a program as a runner does."""
    return run_program(root, program, (0, 1), ProgramsUnderWay())


def by_a_naive_runner(root: Root, program: Program) -> Ended:
    """Open the directory that the root is in, with all that lies beside the root: it must be found out."""
    return by_the_engine(root, replace(program, readable=(str(Path(root.path).parent),), hidden=()))


def attacks() -> Iterator[tuple[str, Callable[[Path], Sequence[str]]]]:
    """Each prepares a root and returns the command to run there."""
    for interpreter in INTERPRETERS:
        for place in ("run.sh", "bin/run.sh", "node_modules/.bin/run.sh"):
            yield f"#!{interpreter} in {place}", partial(_script, place=place, interpreter=interpreter)
    for link, target in LINKS.items():
        yield f"{link} -> {target}", partial(_link, link=link, target=target)
    yield "what is denied", lambda root: ["/bin/sh", "-c", _reach(root)]
    yield "a path out of the copy", lambda root: ["../../../../../../../../../../bin/sh", "-c", _reach(root)]


def leaks(runs: Runs, build_attack: Callable[[Path], Sequence[str]], wall: Step) -> list[str]:
    """Whatever a command reads behind a wall that it must not."""
    with scratch() as root, tempfile.TemporaryDirectory(prefix="lcp-wall-") as state:
        command = build_attack(root)
        policy = Policy([Rule(do=Verdict.DENY, paths=DENIED)])
        with Root(root) as opened:
            ground = ground_behind(wall, Path(state).resolve())
            may_read = READ_FILE.allowed_paths(policy)
            access = RootAccess(opened, may_read, ground=ground)
            around = Surroundings(access, Commands(seconds=20), (), runs)
            try:
                said = run_behind_wall(command, around).stdout
            except LcpError:
                return []  # such as an interpreter that may not be executed; the control shows that others run
    return [line for line in said.splitlines() if SECRET in line or line.startswith("root:")]


@contextmanager
def scratch() -> Iterator[Path]:
    """A root with packages, beside a directory with programs; `tool` there is found in `PATH`."""
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory(prefix="lcp-attacked-") as directory:
        root = Path(directory).resolve() / "root"
        build(root)
        os.environ["PATH"] = f"{root.parent}/outside/bin:{root}/venv/bin:{before}"
        try:
            yield root
        finally:
            os.environ["PATH"] = before


def build(root: Path) -> None:
    """Each file that must not be read says so with its path."""
    outside = root.parent / "outside"
    secrets = (
        *(outside / path for path in ("secret", "lib/secret", "pk/s")),
        *(root / path for path in (".env", *SECRETS)),
    )
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{SECRET} {path}\n")
    (root / "node_modules" / "ok" / "index.js").write_text("ok\n")
    (root / "node_modules" / ".bin").mkdir()
    (root / "venv" / "pyvenv.cfg").touch()
    for directory in (outside / "bin", root / "bin", root / "venv" / "bin"):
        directory.mkdir()
    shutil.copy("/bin/sh", outside / "bin" / "sh")
    (outside / "bin" / "tool").write_text(f'#!{outside}/bin/sh\nexec sh "$@"\n')
    (outside / "bin" / "tool").chmod(0o755)
    (outside / "pyvenv.cfg").touch()
    (root / "out").symlink_to("../outside")
    (root / "bin" / "sh").symlink_to("//bin/sh")
    (root / "bin" / "nested").write_text(f"#!{outside}/bin/sh\n")
    (root / "bin" / "nested").chmod(0o755)
    (root / "venv" / "bin" / "python").symlink_to(outside / "bin" / "sh")


def _script(root: Path, place: str, interpreter: str) -> Sequence[str]:
    first = interpreter.replace("ROOT", str(root)).replace("OUTSIDE", f"{root.parent}/outside")
    (root / place).write_text(f"#!{first}\n{_reach(root)}")
    (root / place).chmod(0o755)
    return [f"./{place}"]


def _link(root: Path, link: str, target: str) -> Sequence[str]:
    place = root / link
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(target.replace("OUTSIDE", f"{root.parent}/outside"))
    return ["/bin/sh", "-c", _reach(root)]


def _reach(root: Path) -> str:
    """A shell script that tries whatever there is to read."""
    places = f"{root} {root}/out {root}/../outside . ./venv/.."
    places = f"{places} {root.parent}/outside"
    inner = "secret .env */.env */s */*/s */*.txt */*/*.txt */*/*/.npmrc */secret */.git/f .venv/secret"
    known = " ".join(f"{root}/{path}" for path in (".env", *SECRETS, "../outside/secret"))
    return (
        f"for place in {places}; do cd $place 2>/dev/null || continue; cat {inner}; cd - >/dev/null; done\n"
        f"cat {known} "
        "venv/secret .venv/secret node_modules/secret node_modules/pk/s node_modules/.env venv/.git/f /etc/shadow\n"
        "ls node_modules/pk 2>/dev/null && echo S3CRET listed\n"
        "true\n"
    )


def attack(_: float, __: int) -> bool:
    """Run every attack once behind each wall, and a naive runner as the control."""
    held = [_held(wall) for wall in WALLS]
    return all(held)


def _held(wall: Step) -> bool:
    if (why := missing(wall)) is not None:
        print(f"commands, {wall}: left out, {why}")
        return True
    tried: Mapping[str, list[str]] = {name: leaks(by_the_engine, build, wall) for name, build in attacks()}
    found = {name: lines for name, lines in tried.items() if lines}
    naive = leaks(by_a_naive_runner, partial(_script, place="run.sh", interpreter="/bin/sh"), wall)
    for name, lines in found.items():
        print(f"  {name}: {lines[0]}")
    counts = f"{len(tried)} attacks, {len(found)} got through; {len(naive)} lines of the control did"
    print(f"commands, {wall}: {counts}", flush=True)
    return not found and bool(naive)
