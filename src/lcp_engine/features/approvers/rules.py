"""People who decide, each known by a name and a token of which only a hash is kept. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import TypeAlias

PREFIX = "lcp-approver-"
"""What a token begins with, so that whoever finds one knows what it is."""

Approvers: TypeAlias = Mapping[str, str]
"""The hash of each person's token, by name."""


def hash_of(token: str) -> str:
    """What is kept of a token, which is random and so long that its hash needs no salt."""
    return f"sha256:{hashlib.sha256(token.strip().encode('utf-8', 'surrogateescape')).hexdigest()}"


def person_with(approvers: Approvers, token: str) -> str | None:
    """Whose token it is; None if it is nobody's."""
    given = hash_of(token)
    # Each is compared, so that the time tells nothing.
    found = [name for name, kept in approvers.items() if hmac.compare_digest(kept, given)]
    return found[0] if found else None
