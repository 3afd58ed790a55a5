"""Offer the engine on the command line: `lcp`."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """The console script: runs the command that `sys.argv` names, and exits with its code."""
    import sys

    from lcp_engine.cli.app import start

    sys.exit(start(sys.argv[1:]))
