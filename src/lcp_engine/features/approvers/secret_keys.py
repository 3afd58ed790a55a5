"""Read the secrets that the configuration names, each time one is needed: nothing keeps or shows them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lcp_engine.core.health import Finding, broken, well
from lcp_engine.core.settings.secret_source import LEAST_BYTES, SecretSource, key_of
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine.settings import Settings

_MOST_BYTES = 4096


def read_key(source: SecretSource, environment: Mapping[str, str] = os.environ) -> bytes:
    """The key. Raises `INVALID_ARGUMENT` if it is missing or too short, or if others may read its file."""
    if source.secret_env is not None:
        where, text = source.secret_env, environment.get(source.secret_env, "")
        if not text.strip():
            message = f"the environment variable {where} should have a secret; it is not set"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"Set {where}.")
    else:
        where = str(source.secret_file)
        text = _read(Path(where))
    key = key_of(text)
    if key is None:
        message = f"the secret of {where} should have {LEAST_BYTES} bytes or more, in Base64 if it begins with whsec_"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Make one: `openssl rand -hex 32`.")
    return key


def _read(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(_MOST_BYTES)
    except OSError as refused:
        message = f"{path} should have a secret; it cannot be read: {refused.strerror}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"{path} has a secret and should be readable by its user alone; its mode is {stat.S_IMODE(mode):04o}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"`chmod 600 {path}`.")
    return data.decode("utf-8", "replace")


def examine_links(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The secret that signs links."""
    from lcp_engine.features.approvers.settings import ApproverSettings

    stated = settings.of(ApproverSettings).links
    if stated is not None:
        yield examine_secret("links", stated, stated.url)


def examine_secret(name: str, stated: SecretSource, address: str) -> Finding:
    """A secret, and the host that it is for: an address may contain a secret of its own."""
    try:
        read_key(stated)
    except LcpError as error:
        return broken(name, error.failed)
    return well(name, f"{urlsplit(address).hostname}, and its secret can be read")
