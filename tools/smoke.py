"""Build the wheel, install it into an empty environment with the locked versions, and start what it installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LOCKED = PROJECT / "requirements" / "runtime.txt"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lcp-smoke-") as name:
        scratch = Path(name)
        _run("-m", "build", "--no-isolation", "--outdir", scratch / "dist", PROJECT)
        (wheel,) = (scratch / "dist").glob("*.whl")
        python = _empty_environment(scratch / "venv")
        _run("-m", "pip", "install", "--require-hashes", "--requirement", LOCKED, python=python)
        _run("-m", "pip", "install", "--no-deps", "--no-index", wheel, python=python)
        _try_commands(python.with_name("lcp"), scratch)


def _empty_environment(directory: Path) -> Path:
    venv.create(directory, with_pip=True)
    return directory / "bin" / "python"


def _try_commands(lcp: Path, scratch: Path) -> None:
    # Outside the checkout, so that nothing is found in it by accident.
    root = scratch / "root"
    root.mkdir()
    (root / "main.py").write_text("print('hello')\n")
    environment = {**os.environ, "LCP_DATABASE_URL": f"sqlite:///{scratch / 'lcp.db'}"}
    for arguments in (
        ["--version"],
        ["db", "path"],
        ["run", "survey", "--root", str(root), "--approve", "write_file"],
        ["missions"],
        ["db", "check"],
    ):
        done = subprocess.run(
            [lcp, *arguments], cwd=scratch, env=environment, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            sys.exit(f"the installed `lcp {' '.join(arguments)}` exited with {done.returncode}")


def _run(*arguments: str | Path, python: Path = Path(sys.executable)) -> None:
    """Run python; show its output only if it fails."""
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
