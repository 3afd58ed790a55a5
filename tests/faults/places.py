"""Make places that are full, read-only or hang, and a network that falls silent."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
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


class Served:
    """The directory `behind` seen at `place` through a program that can be stopped: whoever looks then waits.

    With `kind` it says to be a file system such as `sshfs`. Locks in one such place exclude nobody in another one.
    """

    def __init__(self, place: Path, behind: Path, stack: ExitStack, kind: str | None = None) -> None:
        place.mkdir(parents=True)
        behind.mkdir(parents=True, exist_ok=True)
        options = ["-o", f"subtype={kind}"] if kind else []
        command = ["bindfs", "-f", "--no-allow-other", *options, str(behind), str(place)]
        self._server = subprocess.Popen(command)
        stack.callback(self._end, place)
        until = time.monotonic() + 60
        while not os.path.ismount(place):
            assert self._server.poll() is None, "bindfs ended"
            assert time.monotonic() < until, "bindfs has not mounted anything"

    def hang(self) -> None:
        self._server.send_signal(signal.SIGSTOP)

    def recover(self) -> None:
        self._server.send_signal(signal.SIGCONT)

    def _end(self, place: Path) -> None:
        self.recover()
        _run("umount", "--lazy", str(place))
        self._server.kill()
        self._server.wait()


_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of unshare(2)"""


class Network:
    """A loopback for this thread and the processes that it starts from now on."""

    def __init__(self, stack: ExitStack) -> None:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        stack.callback(os.close, before)
        _call("unshare", _NEW_NETWORK)
        stack.callback(_call, "setns", before, _NEW_NETWORK)
        _run("ip", "link", "set", "lo", "up")

    def fall_silent(self) -> None:
        """Nothing that is sent arrives, and nobody is told."""
        _run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8bit", "burst", "1", "limit", "1")

    def recover(self) -> None:
        _run("tc", "qdisc", "delete", "dev", "lo", "root")


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def no_network() -> str | None:
    """Why a thread cannot have a network of its own; None if it can."""
    if shutil.which("unshare") is None or shutil.which("tc") is None:
        return "needs unshare and tc"
    silence = "ip link set lo up && tc qdisc add dev lo root tbf rate 8bit burst 1 limit 1"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", silence], capture_output=True, check=False)
    return None if tried.returncode == 0 else "needs the right to make networks (root)"


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
