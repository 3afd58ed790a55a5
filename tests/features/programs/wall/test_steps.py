"""The strongest wall that holds here is found by a trial, and each stronger one has a reason in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.features.programs.wall.namespaces import FOUND, NOBODY
from tests.tables import table
from tests.walls import NEEDS_NAMESPACES

from lcp_engine.core.programs.walls import Step
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap, NoBubblewrap, find_bubblewrap
from lcp_engine.features.programs.wall.programs import cannot_confine
from lcp_engine.features.programs.wall.steps import Found, by_apparmor, step_here

pytestmark = NEEDS_NAMESPACES
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts, and becomes another user")
WITHOUT = Step.LANDLOCK if cannot_confine() is None else Step.NONE
"""The step where there are no namespaces."""
ASK = """
import sys
from pathlib import Path
from lcp_engine.features.programs.wall.steps import step_here
found = step_here(Path(sys.argv[1]), None if len(sys.argv) < 3 else Path(sys.argv[2]))
print(found.step, found.advice, *found.reasons, sep="\\n")
"""


def test_a_state_directory_that_cannot_be_made_is_refused_with_what_helps() -> None:
    with pytest.raises(LcpError, match="/proc/home/state") as refused:
        step_here(Path("/proc/home/state"))
    assert "XDG_STATE_HOME" in refused.value.failed.recommendation


def test_it_is_an_overlay_here(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    assert step_here(state) == Found(Step.OVERLAY, (), FOUND if isinstance(FOUND, Bubblewrap) else None)
    assert not list(state.iterdir())
    assert state.stat().st_mode & 0o777 == 0o700


@AS_ROOT
def test_it_is_an_overlay_for_another_user_too(tmp_path: Path) -> None:
    assert step_here(tmp_path, user=(NOBODY, NOBODY)).step is Step.OVERLAY


def test_the_root_itself_is_tried(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").touch()
    assert step_here(tmp_path, root).step is Step.OVERLAY
    assert [one.name for one in root.iterdir()] == ["file"]


@AS_ROOT
@pytest.mark.parametrize("options", ["size=64k", "size=4m,nr_inodes=6"])
def test_a_full_disk_is_no_reason_for_a_weaker_wall(tmp_path: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", str(tmp_path)], check=True)
    try:
        with suppress(OSError), (tmp_path / "fill").open("wb", buffering=0) as fill:
            while "size=64k" in options:
                fill.write(bytes(4096))
        with pytest.raises(LcpError, match="No space left on device") as caught:
            step_here(tmp_path)
        assert (caught.value.code, caught.value.failed.advice) == (
            ErrorCode.FILE_SYSTEM,
            "Free space on its disk.",
        )
        assert [one.name for one in tmp_path.iterdir()] == ["fill"]
        subprocess.run(["mount", "-o", "remount,size=4m,nr_inodes=100", str(tmp_path)], check=True)
        assert step_here(tmp_path).step is Step.OVERLAY
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@AS_ROOT
def test_what_is_mounted_inside_the_root_later_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    assert step_here(tmp_path / "state", tmp_path / "root").step is Step.OVERLAY
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(inner)], check=True)
    try:
        assert step_here(tmp_path / "state", tmp_path / "root").step is Step.COPY
    finally:
        subprocess.run(["umount", str(inner)], check=True)
    assert step_here(tmp_path / "state", tmp_path / "root").step is Step.OVERLAY


INSTALL = "Install the system's package bubblewrap, or lcp-engine[wall]."
REFUSALS = {
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
    "namespaces.": "No permissions to create new namespace",
    "bwrap: Creating new namespace failed: Operation not permitted": "failed: Operation not permitted",
    "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded "
    "(ENOSPC)": "ENOSPC",
    "bwrap: setting up uid map: Permission denied": "setting up uid map: Permission denied",
    "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted": "RTM_NEWADDR",
    "bwrap: cannot open /proc/sys/user/max_user_namespaces: Permission denied": "max_user_namespaces",
}  # fmt: skip


@table(("said", "part"), REFUSALS.items())
def test_a_refusal_of_bubblewrap_is_the_reason(said: str, part: str, tmp_path: Path) -> None:
    fake = tmp_path / f"{abs(hash(said))}" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && exec echo bubblewrap 0.11.0\necho '{said}' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    found = step_here(tmp_path, places=(str(fake),))
    assert found.step is WITHOUT
    assert [reason.split(":")[0] for reason in found.reasons][:2] == ["overlay", "copy"]
    assert all(part in reason and "\n" not in reason for reason in found.reasons[:2])
    assert found.advice.startswith("Allow programs of this user to make user namespaces")


def test_a_bubblewrap_that_may_not_be_used_is_named(tmp_path: Path) -> None:
    setuid, old, odd = (tmp_path / name for name in ("setuid", "old", "odd"))
    shutil.copy("/bin/true", setuid)
    setuid.chmod(0o4755)
    for path, said in ((old, "echo bubblewrap 0.4.1"), (odd, "echo what; exit 3")):
        path.write_text(f"#!/bin/sh\n{said}\n")
        path.chmod(0o755)
    for path, part, advice in (
        (setuid, "is setuid, which it must not be", f"chmod u-s,g-s {setuid}"),
        (old, "is version 0.4.1; 0.8 is needed", "Install bubblewrap 0.8 or newer, or lcp-engine[wall]."),
        (odd, "--version says 'what'", INSTALL),
        (tmp_path / "missing", "bubblewrap is not installed", INSTALL),
    ):
        none = find_bubblewrap((str(path),))
        assert isinstance(none, NoBubblewrap)
        assert part in none.reason
        found = step_here(tmp_path, places=(str(path),))
        assert (found.reasons[0], found.advice) == (f"overlay: {none.reason}", advice)


def test_the_next_one_is_used_where_the_first_may_not_be(tmp_path: Path) -> None:
    assert isinstance(FOUND, Bubblewrap)
    shutil.copy("/bin/true", tmp_path / "bwrap")
    (tmp_path / "bwrap").chmod(0o4755)
    assert find_bubblewrap((str(tmp_path / "bwrap"), FOUND.path)) == FOUND


@AS_ROOT
def test_without_user_namespaces_it_is_the_weaker_wall(tmp_path: Path) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    step, advice, *reasons = _asked(
        ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"], tmp_path
    )
    assert step in {Step.LANDLOCK, Step.NONE}
    assert all("namespace" in reason for reason in reasons[:2]), reasons
    assert "user namespaces" in advice


@AS_ROOT
def test_a_state_directory_on_an_overlay_makes_it_a_copy(tmp_path: Path) -> None:
    for name in ("low", "up", "work", "state"):
        (tmp_path / name).mkdir()
    mount = f'mount -t overlay none -o lowerdir=low,upperdir=up,workdir=work {tmp_path}/state && exec "$@"'
    begin = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    step, advice, *reasons = _asked(begin, tmp_path / "state", cwd=tmp_path)
    assert step == Step.COPY
    assert advice.startswith("Name a state directory on a file system that takes overlays")
    assert len(reasons) == 1
    assert reasons[0].startswith("overlay: an overlay at ")


@AS_ROOT
def test_a_mount_inside_the_root_makes_it_a_copy(tmp_path: Path) -> None:
    root = tmp_path / "a b\\c"
    (root / "inner").mkdir(parents=True)
    mount = 'mount -t tmpfs none "a b\\c/inner" && exec "$@"'
    begin = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    step, advice, *reasons = _asked(begin, tmp_path / "state", root, cwd=tmp_path)
    assert step == Step.COPY
    assert advice.startswith(f"Unmount {root}/inner, ")
    assert reasons == [
        f"overlay: {root}/inner is mounted inside the root; an overlay would hide what is there"
    ]


def test_apparmor_is_named_with_its_remedy(tmp_path: Path) -> None:
    tool, why = Bubblewrap("/usr/bin/bwrap", (0, 9)), "bwrap: setting up uid map: Permission denied"
    switch = tmp_path / "restricted"
    assert by_apparmor(why, tool, switch) is None
    switch.write_text("1\n")
    refusal = by_apparmor(why, tool, switch)
    assert refusal is not None
    assert refusal.why.startswith(f"{why}; AppArmor")
    assert "sysctl kernel.apparmor_restrict_unprivileged_userns=0" in refusal.advice
    assert by_apparmor("no space", tool, switch) is None


def _asked(begin: list[str], *arguments: Path, cwd: Path | None = None) -> list[str]:
    command = [*begin, sys.executable, "-c", ASK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=cwd)
    return done.stdout.splitlines()
