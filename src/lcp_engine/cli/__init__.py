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

    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home raises where there is none
    if not home.startswith("/"):
        sys.exit(f"the home directory of this user is {home!r}: set HOME to the absolute path of a directory")

    from lcp_engine.cli.app import start

    sys.exit(start(sys.argv[1:]))
