"""Find the strongest wall for commands that holds here, by one trial run with the real directories."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lcp_engine.core.programs.walls import WALLS, Step
from lcp_engine.errors import LcpError
from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap, NoBubblewrap, find_bubblewrap
from lcp_engine.features.programs.wall.programs import (
    Bounds,
    CannotConfine,
    Program,
    cannot_confine,
    supervise,
)
from lcp_engine.features.programs.wall.views.view import Bind, Overlay, View
from lcp_engine.sandbox.root import refusal
from lcp_engine.sandbox.system.own_places import make_private

_TRIAL = "trial-"
_SECONDS = 60.0
_TRIAL_SECONDS = 20.0
_ROOM, _ROOM_FILES = 64 * 1024, 32
"""Bytes and files on the disk that a trial may need."""
_NOT_NAMED = "the configuration does not name it (commands_wall)"
_OTHER_STATE = (
    "Name a state directory on a file system that takes overlays (--db), or allow `copy` in commands_wall."
)
_NO_PLACE = "Let this user write there, or name a directory of your own with XDG_STATE_HOME."
_NAMESPACES = "Allow programs of this user to make user namespaces, or `landlock` in commands_wall."
_NEWER_KERNEL = "Run commands on Linux 6.2 or newer, with Landlock."
RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_BY_APPARMOR = ("Permission denied", "Operation not permitted")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""Characters that proc_pid_mountinfo(5) escapes."""
_SCRIPT = "rm old && echo new > new && ! echo x 2>/dev/null >/proc/sys/kernel/core_pattern"


@dataclass(frozen=True)
class Found:
    """The strongest step that holds, and a reason for each stronger one that does not, a line each."""

    step: Step
    reasons: tuple[str, ...] = ()
    tool: Bubblewrap | None = None
    """What runs programs in namespaces, for `Program.tool`."""
    advice: str = ""
    """Advice against the first reason that this machine has; empty if it has none."""


@dataclass(frozen=True)
class Refusal:
    """Reason why a step does not hold, in one line, and what helps."""

    why: str
    advice: str = ""


def step_here(
    state: Path,
    root: Path | None = None,
    user: tuple[int, int] | None = None,
    places: tuple[str, ...] | None = None,
    walls: tuple[Step, ...] = WALLS,
) -> Found:
    """Try `walls` with directories in `state`, which is made if it is missing, and over `root`, if it is named.

    The programs of the trial run as `user`, if this process is root. The result is kept for this process;
    mounts inside the root are looked for each time. Raises `FILE_SYSTEM` if `state` has no room for a trial.
    """
    return _tried(state, root, user, places, walls, mounted=_mount_inside(root))


@cache
def _tried(
    state: Path,
    root: Path | None,
    user: tuple[int, int] | None,
    places: tuple[str, ...] | None,
    walls: tuple[Step, ...],
    *,
    mounted: Refusal | None,
) -> Found:
    refused: dict[Step, Refusal] = {}
    tool = find_bubblewrap(places)

    @cache
    def trial(step: Step) -> str | None:
        assert isinstance(tool, Bubblewrap)
        return _try(step, state, root, user, tool)

    for step in (Step.OVERLAY, Step.COPY):
        if step not in walls:
            refused[step] = Refusal(_NOT_NAMED)
        elif isinstance(tool, NoBubblewrap):
            refused[step] = Refusal(tool.reason, tool.advice)
        else:
            refusal = mounted if step is Step.OVERLAY else None
            if refusal is None and (why := trial(step)) is not None:
                refusal = by_apparmor(why, tool) or Refusal(why, _advice(step, trial))
            if refusal is None:
                return _found(step, refused, tool)
            refused[step] = refusal
    why = cannot_confine() if Step.LANDLOCK in walls else _NOT_NAMED
    if why is None:
        return _found(Step.LANDLOCK, refused)
    refused[Step.LANDLOCK] = Refusal(why, "" if why == _NOT_NAMED else _NEWER_KERNEL)
    return _found(Step.NONE, refused)


def _found(step: Step, refused: Mapping[Step, Refusal], tool: Bubblewrap | None = None) -> Found:
    reasons = tuple(f"{stronger}: {refusal.why}" for stronger, refusal in refused.items())
    return Found(step, reasons, tool, next((one.advice for one in refused.values() if one.advice), ""))


def _advice(step: Step, trial: Callable[[Step], str | None]) -> str:
    """Advice where a step was tried in vain: another place for an overlay if a copy holds."""
    return _OTHER_STATE if step is Step.OVERLAY and trial(Step.COPY) is None else _NAMESPACES


def is_trial(place: Path) -> bool:
    """True for the name of a directory in which the wall was tried."""
    return place.name.startswith(_TRIAL)


def _mount_inside(root: Path | None) -> Refusal | None:
    """A mount below the root, which an overlay of the root would not show."""
    if root is None:
        return None
    inside = f"{os.path.realpath(root).rstrip('/')}/"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines]
    for place in points:
        if place.startswith(inside):
            why = f"{place} is mounted inside the root; an overlay would hide what is there"
            return Refusal(why, f"Unmount {place}, use a root without it, or allow `copy` in commands_wall.")
    return None


def by_apparmor(why: str, tool: Bubblewrap, restricted: Path = RESTRICTED) -> Refusal | None:
    """The refusal if AppArmor is the likely reason, else None."""
    try:
        is_restricted = restricted.read_text().strip() == "1"
    except OSError:
        is_restricted = False
    if not is_restricted or not any(words in why for words in _BY_APPARMOR):
        return None
    advice = f"Install the profile of {tool.path}, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    return Refusal(f"{why}; AppArmor keeps programs without a profile from user namespaces", advice)


def _try(
    step: Step, state: Path, root: Path | None, user: tuple[int, int] | None, tool: Bubblewrap
) -> str | None:
    """Reason why a step is refused; None if it holds. The trial is a process of its own: it must have one thread.

    Raises `FILE_SYSTEM` where the disk has no room for it: that says nothing of the step.
    """
    with trial_place(state) as place:
        asked = {
            "step": step,
            "place": str(place),
            "root": None if root is None else os.path.realpath(root),
            "user": user if os.geteuid() == 0 else None,
            "tool": [tool.path, list(tool.version)],
        }
        try:
            done = subprocess.run(  # noqa: S603 -- this module
                [sys.executable, "-P", "-m", __name__, json.dumps(asked)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            return f"{sys.executable} cannot be started for a trial: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"the trial has not ended within {_SECONDS:g} s"
    if done.returncode == 0:
        return None
    disk = os.statvfs(state)
    if disk.f_bavail * disk.f_frsize < _ROOM or (disk.f_files and disk.f_favail < _ROOM_FILES):
        raise refusal(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), str(state))
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return said[-1] if said else f"the trial ended with {done.returncode}"


@contextmanager
def trial_place(state: Path) -> Iterator[Path]:
    """A directory in `state` for a trial, removed at the end; both are made. Raises `FILE_SYSTEM`."""
    try:
        make_private(state)
        place = Path(tempfile.mkdtemp(prefix=_TRIAL, dir=state))
    except OSError as error:
        found = refusal(error, str(state))
        advice = None if error.errno == errno.ENOSPC else _NO_PLACE
        raise LcpError(found.code, str(found), {"errno": error.errno}, advice) from error
    try:
        yield place
    finally:
        with_kernels = place / "work" / "work"  # the kernel gives it mode 000
        if with_kernels.exists():
            with_kernels.chmod(0o700)
        shutil.rmtree(place, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run a trial in this process; it prints why a step is refused, and returns 1 then."""
    why = _asked(json.loads(arguments[0]))
    if why is not None:
        sys.stdout.write(" ".join(why.split()) + "\n")
    return 0 if why is None else 1


def _asked(asked: Mapping[str, object]) -> str | None:
    match asked:
        case {
            "step": str(step),
            "place": str(place),
            "root": root,
            "user": user,
            "tool": [str(path), [*version]],
        }:
            tool = Bubblewrap(path, tuple(one for one in version if isinstance(one, int)))
            owner = (int(user[0]), int(user[1])) if isinstance(user, list) else None
            return _attempt(Step(step), Path(place), root if isinstance(root, str) else None, owner, tool)
        case _:
            raise ValueError(f"no trial: {asked}")


def _attempt(
    step: Step, place: Path, root: str | None, user: tuple[int, int] | None, tool: Bubblewrap
) -> str | None:
    seen, mask, upper, work = (place / name for name in ("seen", "mask", "upper", "work"))
    for one in (seen, mask, upper, work):
        one.mkdir(mode=0o755)
    (mask / "old").touch()
    (seen / "old").touch()
    if user is not None:
        for one in (seen, upper, *seen.iterdir()):
            os.chown(one, *user)
    path = str(seen) if root is None else root
    if step is Step.OVERLAY:
        lower = (path, str(mask))
        view = View((Overlay(path, lower, str(upper), str(work)),), user=user)
    else:
        view = View(binds=(Bind(str(seen), path, writable=True),), user=user)
    program = Program(
        "/bin/sh",
        ("/bin/sh", "-c", _SCRIPT),
        path,
        {"PATH": "/usr/bin:/bin"},
        owned=(),
        bounds=Bounds(seconds=_TRIAL_SECONDS),
        view=view,
        tool=tool,
    )
    return _run(program) or _missing(upper if step is Step.OVERLAY else seen)


def _run(program: Program) -> str | None:
    near, far = socket.socketpair()
    with near, far:
        try:
            ended = supervise(program, near.fileno())
        except CannotConfine as error:
            return str(error)
        except OSError as error:
            return f"{program.path}: {error.strerror}"
    if ended.exit_code == 0:
        return None
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"a trial command: {ended.stopped or ended.exit_code}"


def _missing(changed: Path) -> str | None:
    """Reason if the changes of the trial are not where they belong."""
    return None if (changed / "new").exists() else f"changes did not arrive in {changed.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
