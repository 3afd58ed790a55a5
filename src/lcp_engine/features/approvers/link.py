"""Signed links that decide one job: what one says, and whether it is as it was signed. Pure.

A link names the job and its mission, the params and the file as they were when it was made, a person perhaps, and when
it expires. Only who has the key can make or change one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import NamedTuple

PATH = "/d/"
"""Where the page has them."""
_PURPOSE = b"lcp-engine decision link 2\n"
"""The same secret may sign other things, which are not links."""
_MOST_CHARACTERS = 2000


class DecisionLink(NamedTuple):
    """What a link says: `fingerprint`, `found` and `at` are those of a `Sight`; `expires_at` in seconds since 1970.

    `mission` is the uid of the mission, since other databases have jobs of the same number.
    """

    job_id: int
    fingerprint: str
    found: str | None
    at: int
    expires_at: int
    person: str | None
    mission: str

    def signed(self, key: bytes) -> str:
        """The link as a part of a URL."""
        said = json.dumps(self, separators=(",", ":"), ensure_ascii=False)
        payload = _encoded(said.encode())
        return f"{payload}.{_encoded(_signature(key, payload))}"


def read_link(token: str, key: bytes) -> DecisionLink | None:
    """The link that was signed so; None if it was not, or was edited since."""
    payload, dot, stated = token.partition(".")
    try:
        given = _decoded(stated) if dot and len(token) <= _MOST_CHARACTERS else b""
        if not hmac.compare_digest(given, _signature(key, payload)) or _encoded(given) != stated:
            return None
        # Only what this module wrote has such a signature.
        return DecisionLink(*json.loads(_decoded(payload)))
    except (ValueError, binascii.Error):
        return None


def name_of(token: str) -> str:
    """What a used link is remembered by: it cannot be made a link again."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _signature(key: bytes, payload: str) -> bytes:
    return hmac.digest(key, _PURPOSE + payload.encode("utf-8", "surrogateescape"), hashlib.sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
