"""Sign the requests of a webhook. Pure.

The signature is that of Standard Webhooks, which receivers can check with a library that exists.
"""

from __future__ import annotations

import base64
import hashlib
import hmac


def signature(secret: bytes, notice_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    signed = b".".join((notice_id.encode(), str(timestamp).encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()}"
