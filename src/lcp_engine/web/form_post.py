"""Read the form of a change: within its size, with its token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.web.access import MOST_BYTES
from lcp_engine.web.context import Desk, desk_of

MOST_FIELDS = 2000
NO_REASON = "a rejection needs a reason, which the planner reads; nothing was decided"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Form:
    """What a person filled in."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """The field without white space around it, with the line ends that were typed; empty where it is not there."""
        return self.verbatim(name).strip()

    def verbatim(self, name: str) -> str:
        """Like `text`, with the white space around it."""
        # Browsers send every line end as CR LF.
        return self.fields.get(name, [""])[0].replace("\r\n", "\n")

    def ids(self, name: str) -> list[int]:
        """The ids that were ticked. Raises a 422 for what is no id."""
        return [number(text) for text in self.fields.get(name, [])]


Act = Callable[[Desk, Request, Form], Response]


def change(act: Act) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a change: `act` in a thread, once the form is read and carries the token of this page."""

    async def endpoint(request: Request) -> Response:
        desk = desk_of(request)
        form = await _read_form(request)
        if not hmac.compare_digest(form.text("csrf").encode(), desk.csrf.encode()):
            raise HTTPException(
                403, "the form is not of this page, or of an earlier `lcp serve`; load the page again"
            )
        return await run_in_threadpool(act, desk, request, form)

    return endpoint


def number(text: str) -> int:
    """An id out of a path or a form. Raises a 422."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(422, f"an id is a whole number, not {text[:40]!r}")
    return int(text)


async def _read_form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise HTTPException(415, f"a form is {FORM}, not {kind or 'without a type'}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"a form has at most {MOST_BYTES} bytes; this one has more")
    try:
        fields = parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError as refused:
        raise HTTPException(
            422, "a form is UTF-8, percent-encoded, with a modest number of fields"
        ) from refused
    return Form(fields)
