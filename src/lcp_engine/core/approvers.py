"""People who decide, each known by a name and a token of which only a hash is kept. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

PREFIX = "lcp-approver-"
"""What a token begins with, so that whoever finds one knows what it is."""
_NAME = re.compile(r"[\w.@+-](?:[\w.@+ -]{0,98}[\w.@+-])?")
RESERVED = frozenset({"a signed link", "hold_timeout"})
"""Names that the history uses for who is not a person."""


def check_name(name: str) -> str:
    """A name that a person can have. Raises ValueError."""
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(f"{name[:100]!r} is given; a name of letters, digits, spaces and .@+- is expected")
    return name


Approvers: TypeAlias = Mapping[str, str]
"""The hash of each person's token, by name."""


def _read(value: JsonValue) -> JsonValue:
    """A key without a value, such as the last person's removal leaves, names nobody."""
    return {} if value is None else value


StatedApprovers: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(check_name)], Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]],
    BeforeValidator(_read),
]


def hash_of(token: str) -> str:
    """What is kept of a token, which is random and so long that its hash needs no salt."""
    return f"sha256:{hashlib.sha256(token.strip().encode('utf-8', 'surrogateescape')).hexdigest()}"


def person_with(approvers: Approvers, token: str) -> str | None:
    """Whose token it is; None if it is nobody's."""
    given = hash_of(token)
    # Each is compared, so that the time tells nothing.
    found = [name for name, kept in approvers.items() if hmac.compare_digest(kept, given)]
    return found[0] if found else None
