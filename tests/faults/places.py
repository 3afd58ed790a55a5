"""Make places that are full, read-only or hang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

FILLER = "filler"


class Memory:
    """A file system of its own in memory at `place`, of about `kibibytes`."""

    def __init__(self, place: Path, stack: ExitStack, kibibytes: int) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={kibibytes}k,mode=0700", "tmpfs", str(place))
        stack.callback(_run, "umount", "--lazy", str(place))

    def fill(self) -> None:
        """Leave no room."""
        with (self.place / FILLER).open("ab", buffering=0) as file:
            for block in (65536, 4096, 1):
                try:
                    while file.write(bytes(block)) == block:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        (self.place / FILLER).unlink()

    def refuse_writes(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.place))

    def allow_writes(self) -> None:
        _run("mount", "-o", "remount,rw", str(self.place))


class Hanging:
    """The directory `behind` seen at `place` through a program that can be stopped: whoever looks then waits."""

    def __init__(self, place: Path, behind: Path, stack: ExitStack) -> None:
        place.mkdir(parents=True)
        behind.mkdir(parents=True)
        self._server = subprocess.Popen(["bindfs", "-f", "--no-allow-other", str(behind), str(place)])
        stack.callback(self._end, place)
        while not os.path.ismount(place):
            assert self._server.poll() is None, "bindfs ended"

    def hang(self) -> None:
        self._server.send_signal(signal.SIGSTOP)

    def recover(self) -> None:
        self._server.send_signal(signal.SIGCONT)

    def _end(self, place: Path) -> None:
        self.recover()
        _run("umount", "--lazy", str(place))
        self._server.kill()
        self._server.wait()


def no_mounts() -> str | None:
    """Why there can be no file system of a scenario's own; None if there can."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if (
        os.getuid() == 0
        and shutil.which("unshare")
        and not subprocess.run(command, capture_output=True, check=False).returncode
    ):
        return None
    return "needs the right to make mounts (root)"


def no_fuse() -> str | None:
    if shutil.which("bindfs") is None:
        return "needs bindfs"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    return None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
