"""Copy this repository's files, including new and changed ones, to the directory given as argument."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def main(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in _names():
        source, copy = PROJECT / name, target / name
        # Git also lists files whose deletion is not committed yet.
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _names() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listing.stdout.split("\0") if name]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
