"""Decide whether file kinds are executed in processes of their own."""

from __future__ import annotations

from enum import StrEnum

from lcp_engine.core.health import Finding, broken, doubtful, well
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.syscalls import landlock_version


class Isolation(StrEnum):
    """`auto`: where the kernel has Landlock; `require`: or else not at all; `off`: never."""

    REQUIRE = "require"
    AUTO = "auto"
    OFF = "off"


def isolates(mode: Isolation) -> bool:
    """Whether processes of their own execute file kinds here. Raises `NOT_ISOLATED` where they have to and cannot."""
    if mode is Isolation.OFF:
        return False
    if landlock_version() is None and mode is Isolation.REQUIRE:
        raise LcpError(
            ErrorCode.NOT_ISOLATED, "isolation is set to require; this kernel offers no Landlock to runners"
        )
    return landlock_version() is not None


def examine_isolation(mode: Isolation) -> Finding:
    """Which protection file kinds have beside the confinement of each path."""
    version = landlock_version()
    if version is not None and mode is not Isolation.OFF:
        return well("isolation", f"file kinds run in processes confined to the root (Landlock {version})")
    if mode is Isolation.REQUIRE:
        return broken("isolation", Failed(ErrorCode.NOT_ISOLATED, "it is required, and there is no Landlock"))
    fact = "switched off" if version is not None else "this kernel offers no Landlock"
    advice = "File kinds run in the runner; every path is confined one by one. See docs/isolation.md."
    return doubtful("isolation", fact, advice)
