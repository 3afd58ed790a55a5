"""Ask once more about an approval whose page could not measure what was seen of it: it had no JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.core.json_values import object_in
from lcp_engine.core.safe_text import json_block
from lcp_engine.inbox import Diff, Look, Unseen
from lcp_engine.web.context import PageContext
from lcp_engine.web.forms import BACK, UNSEEN, Form, unseen_value

NOT_KEPT = (UNSEEN, "key")
"""Fields that get another value: a token is entered anew instead of being sent back to the browser."""
_FIELD = Markup('<input type="hidden" name="{}" value="{}">')


@dataclass(frozen=True)
class Asked:
    """The files and lines that would be approved, and the form that was submitted, to be submitted again."""

    jobs: int
    files: Sequence[Diff]
    texts: Sequence[tuple[int, int]]
    """Jobs without a diff, and how many lines their params have."""

    lines: int
    fields: Markup

    @property
    def title(self) -> str:
        return f"Approve {_count(self.jobs, 'job')}?"

    @property
    def button(self) -> str:
        counts = [_count(len(self.files), "file")] if self.files else []
        return f"Approve {', '.join([*counts, _count(self.lines, 'line')])}"


def ask_again(
    context: PageContext, request: Request, form: Form, looks: Mapping[int, Look], params: JsonValue = None
) -> Response:
    """A page that states what these jobs would change, and submits the form again; `params` if they were edited."""
    job_id = next(iter(looks))
    back = f"/jobs/{job_id}"
    if BACK in form.fields or request.url.path.startswith("/inbox"):
        back = request.url.path if BACK not in form.fields else f"/inbox?{form.text(BACK)}"
    where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return context.render(
        "ask_again.html", asked=asked_about(context, form, looks, params), where=where, back=back
    )


def asked_about(
    context: PageContext, form: Form, looks: Mapping[int, Look], params: JsonValue = None
) -> Asked:
    """The effects that a form would approve, as they are now. The approval then checks that its page showed them so."""
    unseen: dict[int, Unseen] = {}
    texts: list[tuple[int, int]] = []
    for job_id, look in looks.items():
        lines = lines_of(look, object_in(params) or context.engine.job(job_id).params)
        if not look.diffs:
            texts.append((job_id, lines))
        unseen[job_id] = Unseen(None, lines)
    kept = [(name, value) for name, values in form.fields.items() for value in values if name not in NOT_KEPT]
    fields = Markup("").join(_FIELD.format(*pair) for pair in [*kept, (UNSEEN, unseen_value(unseen))])
    files = [diff for look in looks.values() for diff in look.diffs]
    return Asked(len(looks), files, texts, sum(one.of for one in unseen.values()), fields)


def lines_of(look: Look, params: Mapping[str, JsonValue]) -> int:
    """The lines that a page shows of what a job would change, without the heads of hunks, or of its params."""
    if not look.diffs:
        return sum(_lines_in(value) for value in params.values())
    return sum(sum(not line.startswith("@@") for line in diff.lines[2:]) or 1 for diff in look.diffs)


def _lines_in(value: JsonValue) -> int:
    return (value if isinstance(value, str) else json_block(value)).count("\n") + 1


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
