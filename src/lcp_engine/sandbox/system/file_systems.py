"""Find out which file systems may be shared with other machines, whose locks exclude nobody here."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# linux/magic.h, and the sources of those that are not in it
_SHARED = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "SMB",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x01021997: "9P",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x786F4256: "VirtualBox",
}
_FUSE = 0x65735546
_SHARED_BY_FUSE = ("sshfs", "glusterfs", "ceph", "s3fs", "rclone", "davfs", "gcsfuse", "smbnetfs", "virtiofs")
_BYTES = 120
"""Of struct statfs on 64-bit Linux; its first long is the type."""


def shared_file_system(path: Path) -> str | None:
    """The name of the file system at `path` if other machines may write to it; None for a local or unknown one."""
    number = file_system_type(path)
    if number == _FUSE:
        kind = _mounted_as(path).removeprefix("fuse.")
        return f"FUSE ({kind})" if kind.startswith(_SHARED_BY_FUSE) else None
    return None if number is None else _SHARED.get(number)


def file_system_type(path: Path) -> int | None:
    """`f_type` of statfs(2); None where there is none."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    found = (ctypes.c_long * (_BYTES // 8))()
    if ctypes.CDLL(None).statfs(os.fsencode(path), ctypes.byref(found)) != 0:
        return None
    return int(found[0]) & 0xFFFFFFFF


def _mounted_as(path: Path) -> str:
    """The type of the mount of a file, such as `fuse.sshfs`; empty if it is not known."""
    try:
        device = path.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        if mount.split()[2] == wanted:
            return rest.split()[0]
    return ""
