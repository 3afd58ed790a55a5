"""Write into a form what its page showed of a job, so that a decision binds to that and to nothing newer (R5)."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from lcp_engine.store.approvals import Sight
from lcp_engine.web.form_post import Form

MARK = "shown"
_Word = Annotated[str, Field(max_length=100)]


class _Mark(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    fingerprint: _Word
    path: Annotated[str, Field(max_length=20_000)] | None
    found: _Word | None
    at: Annotated[int, Field(ge=0, lt=2**62)]


def mark_of(sight: Sight) -> str:
    """The sight as the value of a field; ASCII, so that no browser changes it."""
    return json.dumps(
        {"fingerprint": sight.fingerprint, "path": sight.path, "found": sight.found, "at": sight.at},
        separators=(",", ":"),
    )


def read_mark(form: Form, name: str = MARK) -> Sight | None:
    """What the form's page showed; None where it showed nothing. Raises a 422 for what no page of this wrote."""
    text = form.text(name)
    if not text:
        return None
    try:
        mark = _Mark.model_validate_json(text)
    except ValidationError as refused:
        raise HTTPException(
            422, "the form does not tell what its page showed; load the page again"
        ) from refused
    return Sight(mark.fingerprint, mark.path, mark.found, mark.at)


def mark_name(job_id: int) -> str:
    """The field of one job among several."""
    return f"{MARK}.{job_id}"
