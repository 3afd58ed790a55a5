"""Let the kernel refuse system calls of this process, as a broken disk would (seccomp(2))."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_NUMBERS = {
    "x86_64": {"seccomp": 317, "fsync": 74, "fdatasync": 75, "pwrite64": 18, "write": 1, "ftruncate": 77},
    "aarch64": {"seccomp": 277, "fsync": 82, "fdatasync": 83, "pwrite64": 68, "write": 64, "ftruncate": 46},
}
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1
# linux/bpf_common.h, linux/seccomp.h
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FIRST_AT = 0, 16  # of struct seccomp_data


def can_refuse() -> bool:
    return sys.platform == "linux" and platform.machine() in _NUMBERS


def refuse(calls: Iterable[str], descriptors: Iterable[int], code: int) -> None:
    """From now on these calls with one of these descriptors fail with `code`, in every thread and until the end."""
    numbers = _NUMBERS[platform.machine()]
    wanted = [numbers[call] for call in calls]
    open_ = list(descriptors)
    # The number, and whether it is one of `wanted`; then the descriptor likewise.
    program = [(_LOAD, 0, 0, _NUMBER_AT), *_one_of(wanted), (_RETURN, 0, 0, _ALLOW)]
    program += [
        (_LOAD, 0, 0, _FIRST_AT),
        *_one_of(open_),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | code),
    ]
    _install(b"".join(struct.pack("<HBBI", *line) for line in program), len(program))


def _one_of(values: list[int]) -> list[tuple[int, int, int, int]]:
    """Skip the line after these if the loaded value is one of them."""
    return [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]


def descriptors_of(path: Path) -> list[int]:
    """The descriptors of this process that are open on a file."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            if descriptor.readlink() == path:
                found.append(int(descriptor.name))
    return found


def _install(program: bytes, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    kept = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", length, ctypes.addressof(kept)))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    numbers = _NUMBERS[platform.machine()]
    if libc.syscall(numbers["seccomp"], _SET_FILTER, _ALL_THREADS, filter_):
        raise OSError(ctypes.get_errno(), "seccomp")
