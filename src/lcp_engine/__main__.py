"""Run the command line as `python -m lcp_engine`."""

from __future__ import annotations

from lcp_engine.cli import main

if __name__ == "__main__":
    main()
