"""Find the strongest wall for commands that holds here, by one trial run with the real directories."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lcp_engine.core.walls import WALLS, Step
from lcp_engine.sandbox.own_places import make_private
from lcp_engine.wall.bubblewrap import Bubblewrap, NoBubblewrap, find_bubblewrap
from lcp_engine.wall.programs import Bounds, CannotConfine, Program, cannot_confine, supervise
from lcp_engine.wall.view import Bind, Overlay, View

_TRIAL = "trial-"
_SECONDS = 60.0
_TRIAL_SECONDS = 20.0
_NOT_NAMED = "the configuration does not name it (commands_wall)"
RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_BY_APPARMOR = ("Permission denied", "Operation not permitted")
_SCRIPT = "rm old && echo new > new && ! echo x 2>/dev/null >/proc/sys/kernel/core_pattern"


@dataclass(frozen=True)
class Found:
    """The strongest step that holds, and a reason for each stronger one that does not, a line each."""

    step: Step
    reasons: tuple[str, ...] = ()
    tool: Bubblewrap | None = None
    """What runs programs in namespaces, for `Program.tool`."""


@cache
def step_here(
    state: Path,
    root: Path | None = None,
    user: tuple[int, int] | None = None,
    places: tuple[str, ...] | None = None,
    walls: tuple[Step, ...] = WALLS,
) -> Found:
    """Try `walls` with directories in `state`, which is made if it is missing, and over `root`, if it is named.

    The programs of the trial run as `user`, if this process is root. The result is kept for this process.
    """
    reasons: list[str] = []
    tool = find_bubblewrap(places)
    for step in (Step.OVERLAY, Step.COPY):
        if step not in walls:
            why: str | None = _NOT_NAMED
        elif isinstance(tool, NoBubblewrap):
            why = tool.reason
        else:
            why = _mount_inside(root) if step is Step.OVERLAY else None
            why = why or _try(step, state, root, user, tool)
            if why is None:
                return Found(step, tuple(reasons), tool)
            why = with_remedy(why, tool)
        reasons.append(f"{step}: {why}")
    why = cannot_confine() if Step.LANDLOCK in walls else _NOT_NAMED
    if why is None:
        return Found(Step.LANDLOCK, tuple(reasons))
    return Found(Step.NONE, (*reasons, f"{Step.LANDLOCK}: {why}"))


def is_trial(place: Path) -> bool:
    """True for the name of a directory in which the wall was tried."""
    return place.name.startswith(_TRIAL)


def _mount_inside(root: Path | None) -> str | None:
    """A mount below the root, which an overlay of the root would not show."""
    if root is None:
        return None
    real = os.path.realpath(root)
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        place = line.split(" ")[4].replace("\\040", " ")
        if place.startswith(real.rstrip("/") + "/"):
            return f"{place} is mounted inside the root; an overlay would hide what is there"
    return None


def with_remedy(why: str, tool: Bubblewrap, restricted: Path = RESTRICTED) -> str:
    """Add what mends it, if AppArmor is the likely reason."""
    try:
        is_restricted = restricted.read_text().strip() == "1"
    except OSError:
        is_restricted = False
    if not is_restricted or not any(words in why for words in _BY_APPARMOR):
        return why
    return (
        f"{why}; AppArmor keeps programs without a profile from user namespaces: install the profile of {tool.path}, "
        "or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    )


def _try(
    step: Step, state: Path, root: Path | None, user: tuple[int, int] | None, tool: Bubblewrap
) -> str | None:
    """Reason why a step is refused; None if it holds. The trial is a process of its own: it must have one thread."""
    make_private(state)
    place = Path(tempfile.mkdtemp(prefix=_TRIAL, dir=state))
    try:
        asked = {
            "step": step,
            "place": str(place),
            "root": None if root is None else os.path.realpath(root),
            "user": user if os.geteuid() == 0 else None,
            "tool": [tool.path, list(tool.version)],
        }
        command = [sys.executable, "-P", "-m", __name__, json.dumps(asked)]
        done = subprocess.run(  # noqa: S603 -- this module
            command,
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
    finally:
        _remove(place)
    if done.returncode == 0:
        return None
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return said[-1] if said else f"the trial ended with {done.returncode}"


def _remove(place: Path) -> None:
    with_kernels = place / "work" / "work"  # the kernel gives it mode 000
    if with_kernels.exists():
        with_kernels.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run a trial in this process; it prints why a step is refused, and returns 1 then."""
    why = _tried(json.loads(arguments[0]))
    if why is not None:
        sys.stdout.write(" ".join(why.split()) + "\n")
    return 0 if why is None else 1


def _tried(asked: Mapping[str, object]) -> str | None:
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
