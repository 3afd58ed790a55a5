"""The command line `lcp`."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code."""
    import os
    import sys

    # File names are UTF-8 in every locale; Python takes them so only from its start on.
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 -- itself

    from lcp_engine.cli.app import start

    sys.exit(start(sys.argv[1:]))
