"""Error pages: a status and one sentence, never a traceback."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import Conflict, LcpError
from lcp_engine.web.forms import RefusedForm


def refusal_text(error: LcpError) -> str:
    """Words of a page about a refused decision. After a conflict it shows the job as it is now."""
    if not isinstance(error, Conflict):
        return str(error)
    # Without the command that the message recommends to people at a terminal.
    statement = error.failed.details.get("statement", str(error))
    return f"{statement}. Nothing was decided; the current state is shown below."


class ErrorPage(Protocol):
    """Renders a status and a sentence as a page, with what was typed in a form that was refused."""

    def __call__(self, status: int, message: str, typed: Mapping[str, str] | None = None) -> Response: ...


def make_error_page(templates: Environment) -> ErrorPage:
    """A function that renders a status and a sentence as a page, without database or cookie."""

    def error_page(status: int, message: str, typed: Mapping[str, str] | None = None) -> Response:
        template = templates.get_template("error.html")
        title = HTTPStatus(status).phrase
        text = template.render(status=status, title=title, message=message, typed=typed or {})
        return HTMLResponse(text, status)

    return error_page


class ErrorHandlers:
    """The exception handlers of the application."""

    def __init__(self, templates: Environment) -> None:
        self._error_page = make_error_page(templates)

    def lcp_error(self, request: Request, error: Exception) -> Response:
        """An `LcpError`: its message."""
        assert isinstance(error, LcpError)
        return self._error_page(error.status, str(error))

    def http_error(self, request: Request, error: Exception) -> Response:
        """An unknown address or method, or a form that is not valid."""
        assert isinstance(error, HTTPException)
        known = {404: "there is no page at this address", 405: "this address does not accept this method"}
        text = known.get(error.status_code) if error.detail == HTTPStatus(error.status_code).phrase else None
        typed = error.typed if isinstance(error, RefusedForm) else {}
        return self._error_page(error.status_code, text or error.detail, typed)

    def defect(self, request: Request, error: Exception) -> Response:
        """Any other exception: its type on the page, message and place on stderr."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        fact = f"{type(error).__name__}: {error}"
        sys.stderr.write(
            f"{one_line(fact)} ({place.filename}:{place.lineno}, {request.method} {one_line(request.scope['path'])})\n"
        )
        return self._error_page(
            500, f"this is a bug of the page ({type(error).__name__}); the output of `lcp serve` says more"
        )
