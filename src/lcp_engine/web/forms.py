"""Read a submitted form within its limits, check its token, and redirect afterwards."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.inbox import Sight, Unseen

if TYPE_CHECKING:
    from lcp_engine.web.context import PageContext

MOST_BYTES = 1024 * 1024
"""The largest request body: an edited job, percent-encoded."""
MOST_FIELDS = 2000
NO_REASON = "a rejection needs a reason for the planner; nothing was decided"
NOT_OF_THIS_PAGE = "this form is not from this page or this `lcp serve`; reload the page and try again"
TYPED = ("answer", "reply", "words", "reason", "content", "title", "text", "paths", "back_words")
"""The fields in which people write what they would not like to write again."""
URLENCODED = "application/x-www-form-urlencoded"
SHOWN = "shown"
"""The field with what the form's page showed of a job."""
UNSEEN = "unseen"
"""The field with how much of that was not on the screen: for some jobs `JOB:LINES/OF`, or `UNMEASURED`."""
UNMEASURED = "unknown"
"""What the field says until a script of the page has measured it."""
_UNSEEN = re.compile(r"([0-9]{1,18}):([0-9]{1,9}|\?)/([0-9]{1,9})")
BACK = "back"
"""The field of the inbox's forms with the query of the inbox, to return to it."""
NEXT = "next"
"""The field of those forms with the job below, to go on there."""

FLASH_MESSAGES: Mapping[str, str] = {
    "approved": "Approved. A runner will execute it.",
    "consented": "Approved.",
    "sent_back": "Approved. The planner reads your words about the rest once it is merged.",
    "always": "Approved, and such jobs run without asking from now on. The page of the mission lists its rules.",
    "approved_before": "It was already approved; nothing changed.",
    "rejected": "Rejected. The planner will read the reason.",
    "rejected_unread": "Rejected. Its mission has ended, and no planner reads the reason.",
    "rejected_before": "It was already rejected; nothing changed.",
    "answered": "Answered. A runner will continue the mission.",
    "answered_before": "It was already answered this way; nothing changed.",
    "said": "Sent. The planner will read it in its next turn.",
    "undone": "Undone. This job did it and can be undone itself.",
    "cancelled": "Cancelled. Files that were written stay as they are.",
    "cancelled_before": "It was already cancelled; nothing changed.",
    "resumed": "Resumed. The planner gets another turn.",
    "retried": "Queued again.",
    "retried_held": "Held again, because it was never approved.",
    "launched": "Launched.",
    "forked": "Forked. A runner will continue it.",
    "remembered": "Saved.",
    "forgotten": "Forgotten.",
    "removed": "Removed.",
    "rule_removed": "The rule was removed: such jobs wait for you again.",
}
"""What a page says after a redirect: the address carries the name and never the text."""


@dataclass(frozen=True)
class Form:
    """The fields of a submitted form."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """The field without leading and trailing white space; empty if it is missing."""
        return self.verbatim(name).strip()

    def verbatim(self, name: str) -> str:
        """Like `text`, with the white space around it."""
        # Browsers send every line end as CR LF.
        return self.fields.get(name, [""])[0].replace("\r\n", "\n")

    def texts(self, name: str) -> list[str]:
        """Every field of that name, as it was sent."""
        return [*self.fields.get(name, [])]

    def ids(self, name: str) -> list[int]:
        """The ids of the ticked boxes. Raises a 422 for what is not an id."""
        return [number(text) for text in self.fields.get(name, [])]

    @property
    def is_measured(self) -> bool:
        """True if the form says how much of what its page showed was on the screen."""
        return self.text(UNSEEN) != UNMEASURED

    @cached_property
    def unseen(self) -> Mapping[int, Unseen]:
        """Read what of each job was not on the screen, as `unseen_value` writes it. Raises a 422 for anything else."""
        found: dict[int, Unseen] = {}
        for part in self.text(UNSEEN).split() if self.is_measured else ():
            read = _UNSEEN.fullmatch(part)
            if read is None or (read[2] != "?" and int(read[2]) > int(read[3])):
                raise HTTPException(
                    422, "the form does not say how much of its page was seen; reload the page"
                )
            found[int(read[1])] = Unseen(None if read[2] == "?" else int(read[2]), int(read[3]))
        return found


class RefusedForm(HTTPException):
    """A form without the token of this run; `typed` is what a person typed in it, so that it is not lost."""

    def __init__(self, form: Form) -> None:
        super().__init__(403, NOT_OF_THIS_PAGE)
        self.typed = {name: form.verbatim(name) for name in form.fields if name in TYPED and form.text(name)}


Action = Callable[["PageContext", Request, Form], Response]


def form_endpoint(action: Action) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that runs `action` in a thread after it has read the form and checked its token."""

    async def endpoint(request: Request) -> Response:
        context: PageContext = request.app.state.context
        try:
            form = await read_form(request)
        except ClientDisconnect as gone:
            raise HTTPException(400, "the request ended before its form did") from gone
        if not hmac.compare_digest(form.text("csrf").encode(), context.csrf.encode()):
            raise RefusedForm(form)
        return await run_in_threadpool(action, context, request, form)

    return endpoint


def number(text: str) -> int:
    """An id from a path or a form. Raises a 422."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(422, f"an id is a whole number, not {text[:40]!r}")
    return int(text)


def cursor(request: Request, name: str) -> int | None:
    """The id in the query after which a page of a list begins. Raises a 422 for what is not an id."""
    text = request.query_params.get(name, "")
    return number(text) if text else None


_SIGHT = re.compile(r"([1-9][0-9]{0,17})@([0-9]{1,18}) (\S{1,100}) (\S{0,60000}) (\S{1,100}) (\S{1,100})")
"""Job, time, fingerprint, the quoted path and both hashes; `*` for None."""

_SHA256 = re.compile("[0-9a-f]{64}")
_PACKED = re.compile("[A-Za-z0-9_-]{43}=")


def shown_value(sight: Sight) -> str:
    """The sight that a page shows of a job, as a field's value, so that a decision binds to it (R5, R25).

    Printable ASCII without quotes, so that no browser changes it and no page has to escape it.
    """
    path = "*" if sight.path is None else quote(sight.path, errors="backslashreplace")
    return (
        f"{sight.job_id}@{sight.at} {sight.fingerprint} {path} {_packed(sight.found)} {_packed(sight.after)}"
    )


def _packed(digest: str | None) -> str:
    """A SHA-256 in Base64, which `=` ends; an error code as it is."""
    if digest is None or not _SHA256.fullmatch(digest):
        return digest or "*"
    return base64.urlsafe_b64encode(bytes.fromhex(digest)).decode()


def _unpacked(text: str) -> str | None:
    if _PACKED.fullmatch(text):
        return base64.urlsafe_b64decode(text).hex()
    return None if text == "*" else text


def read_shown(form: Form, name: str = SHOWN) -> Sight | None:
    """The sight that the form's page showed in full, which is all that it can approve; None if the field is missing.

    Raises a 422 for a value not made by `shown_value`.
    """
    text = form.text(name)
    if not text:
        return None
    read = _SIGHT.fullmatch(text)
    if read is None:
        raise HTTPException(422, "the form does not say what its page showed; reload the page and try again")
    job_id, path = int(read[1]), None if read[4] == "*" else unquote(read[4], errors="backslashreplace")
    found, after = _unpacked(read[5]), _unpacked(read[6])
    return Sight(read[3], path, found, int(read[2]), after, job_id, form.unseen.get(job_id))


def unseen_value(found: Mapping[int, Unseen]) -> str:
    """The lines of some jobs that were not on the screen, as a field's value."""
    return " ".join(f"{job}:{'?' if one.lines is None else one.lines}/{one.of}" for job, one in found.items())


def shown_name(job_id: int) -> str:
    """The name of the `shown` field of one job in a form with several."""
    return f"{SHOWN}.{job_id}"


def to_job(job_id: int, note: str, form: Form) -> Response:
    """Redirect to the job, or to the inbox if the form was on it; `note` is a key of `FLASH_MESSAGES`."""
    if BACK not in form.fields:
        return RedirectResponse(f"/jobs/{job_id}?note={note}", 303)
    return to_inbox(
        form.text(BACK), note, form.text(NEXT), **({"job": job_id} if note == "consented" else {})
    )


def to_mission(mission_id: int, note: str) -> Response:
    """Redirect to the mission."""
    return RedirectResponse(f"/missions/{mission_id}?note={note}", 303)


def to_inbox(query: str, note: str, place: str = "", **said: int) -> Response:
    """Redirect to the inbox with the same filter, to the job `place`; nothing else of the query is kept.

    `said` are the numbers of the note: how many jobs were decided (`count`, `waits`, `before`), and the `job` whose
    missing approvals it names.
    """
    asked = parse_qs(query, max_num_fields=50)
    kept = [(name, asked[name][0]) for name in ("mission", "kind", "text", "after") if name in asked]
    anchor = f"#job-{number(place)}" if place else ""
    numbers = [(name, value) for name, value in said.items() if value]
    return RedirectResponse(f"/inbox?{urlencode([*kept, ('note', note), *numbers])}{anchor}", 303)


async def read_form(request: Request) -> Form:
    """The fields of a form, within the limits. Raises a 4xx for what is not a form, and `ClientDisconnect`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != URLENCODED:
        raise HTTPException(415, f"a form is sent as {URLENCODED}, not {kind or 'without a type'}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"a form may have {MOST_BYTES} bytes; this one has more")
    try:
        # Not `request.form()`: it replaces bytes that are not UTF-8 instead of refusing them.
        fields = parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError as refused:
        raise HTTPException(
            422, f"a form is percent-encoded UTF-8 with at most {MOST_FIELDS} fields"
        ) from refused
    return Form(fields)
