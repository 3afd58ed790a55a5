"""Keep the keys of the page for its next start, in a file that only its user can read."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from platformdirs import user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lcp_engine.api.history import database_digest
from lcp_engine.sandbox.system.own_places import APP, make_private
from lcp_engine.web.access import Secrets

LIFETIME_SECONDS = 30 * 86_400
"""After this time new keys are made at the next start."""
LARGEST = 4096

_Key = Annotated[str, Field(min_length=43, max_length=200, pattern=r"\A[A-Za-z0-9_-]+\Z")]


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", regex_engine="python-re")

    cookie: _Key
    csrf: _Key
    name: Annotated[str, Field(pattern=r"\A[0-9a-f]{20}\Z")]


def keys_file(url: str) -> Path:
    """Where the keys of a page over this database are; no job may use the engine's own places."""
    return user_state_path(APP) / "page" / f"{database_digest(url)}.json"


def kept_secrets(path: Path, *, anew: bool = False) -> Secrets:
    """The secrets of the last start, or new ones that are kept: `anew`, if those are old, or if others could read them.

    Raises `OSError` if new ones cannot be kept.
    """
    kept = None if anew else _read(path)
    if kept is not None:
        return Secrets(cookie=kept.cookie, csrf=kept.csrf, name=kept.name)
    made = Secrets()
    _write(path, _Kept(cookie=made.cookie, csrf=made.csrf, name=made.name).model_dump_json())
    return made


def _read(path: Path) -> _Kept | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_private = status.st_uid == os.getuid() and not status.st_mode & 0o077
        is_young = 0 <= time.time() - status.st_mtime + 1 <= LIFETIME_SECONDS
        if not (stat.S_ISREG(status.st_mode) and is_private and is_young):
            return None
        with suppress(ValidationError):
            return _Kept.model_validate_json(file.read(LARGEST))
    return None


def _write(path: Path, text: str) -> None:
    make_private(path.parent)
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=path.parent, delete=False) as written:
        written.write(text)
    Path(written.name).replace(path)
