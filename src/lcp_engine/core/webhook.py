"""What the configuration says of a webhook, and how its requests are signed. Pure.

The signature is that of Standard Webhooks, which receivers can check with a library that exists.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Annotated

from pydantic import AfterValidator, Field

from lcp_engine.core.secret_source import SecretSource, check_address


class Webhook(SecretSource):
    """A server that is sent a notice whenever a mission starts to wait for a person."""

    url: Annotated[str, AfterValidator(check_address)] = Field(
        description="Where notices are sent by POST; `https`, or `http` on this machine."
    )


def signature(secret: bytes, notice_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    signed = b".".join((notice_id.encode(), str(timestamp).encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()}"
