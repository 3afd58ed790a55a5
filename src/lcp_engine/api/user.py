"""Name the user of this process."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user of this process: who decides unless `by` names another person."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
