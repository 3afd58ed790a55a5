"""Run Python as an ordinary user, where this is root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.walls import REQUIRED

import lcp_engine

NOBODY = 65534
PROJECT = Path(__file__).resolve().parent.parent
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_PLACES = (sys.executable, f"/usr/bin/python{_VERSION}", f"/usr/local/bin/python{_VERSION}")


def missing() -> str | None:
    """Reason why nothing can be run as another, ordinary user; None if that is possible."""
    if os.geteuid() != 0:
        return "this is an ordinary user already"
    return None if _interpreter() else f"an ordinary user may execute none of {', '.join(_PLACES)}"


def run_as_ordinary_user(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run `python *arguments` in the project, with a home of its own and the packages of this process."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    with TemporaryDirectory(prefix="lcp-nobody-", dir="/tmp") as home:
        os.chown(home, NOBODY, NOBODY)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(Path(lcp_engine.__file__).parent.parent), *packages]),
            **({"LCP_TEST_REQUIRE_WALL": "1"} if REQUIRED else {}),
        }
        return _run([_interpreter() or sys.executable, *arguments], environment, seconds)


@cache
def _interpreter() -> str | None:
    """An interpreter of this version that any user may execute."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(os.path.exists, _PLACES):
        try:
            said = _run([path, "-c", ask], {}, 60).stdout
        except PermissionError:
            continue
        if said.strip() == _VERSION:
            return path
    return None


def _run(
    command: list[str], environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=PROJECT,
        env=environment,
        timeout=seconds,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
