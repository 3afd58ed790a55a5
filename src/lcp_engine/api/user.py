"""Name the user of this process."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """The user of this process, as the system knows them: who decides unless `by` names another person.

    The environment is not asked, which would let one person decide under several names.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
