"""The command line `lcp`."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code."""
    import sys

    from lcp_engine.cli.app import start

    sys.exit(start(sys.argv[1:]))
