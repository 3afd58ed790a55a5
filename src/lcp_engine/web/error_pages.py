"""Turn trouble into pages: the right status and one sentence, never a traceback."""

from __future__ import annotations

import sys
import traceback
from http import HTTPStatus

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.access import Refuse

_STATUS = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.WRONG_STATE: 409,
    ErrorCode.CONFLICT: 409,
    ErrorCode.NO_WORKER: 409,
    ErrorCode.NOT_ALLOWED: 403,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.DATABASE_BUSY: 503,
    ErrorCode.DATABASE_FAILED: 500,
    ErrorCode.DATABASE_VERSION: 500,
}


def status_of(error: LcpError) -> int:
    """The status of a page that tells `error`: most are about what a person typed."""
    return _STATUS.get(error.code, 422)


def told(error: LcpError) -> str:
    """What a page says of a decision that was refused: a conflict is shown as it is now, right below."""
    words = str(error).partition(": look again with")[0]
    return (
        f"{words}. Nothing was decided; below is how it is now."
        if error.code is ErrorCode.CONFLICT
        else words
    )


def make_refusals(templates: Environment) -> Refuse:
    """Makes a page of a status and a sentence; it needs neither the database nor a cookie."""

    def refuse(status: int, message: str, advice: str = "") -> Response:
        template = templates.get_template("refused.html")
        title = HTTPStatus(status).phrase
        return HTMLResponse(
            template.render(status=status, title=title, message=message, advice=advice), status
        )

    return refuse


class Refusals:
    """The handlers of everything that an endpoint may raise."""

    def __init__(self, templates: Environment) -> None:
        self._refuse = make_refusals(templates)

    def trouble(self, request: Request, error: Exception) -> Response:
        """An `LcpError`: what it says."""
        assert isinstance(error, LcpError)
        return self._refuse(status_of(error), str(error))

    def http(self, request: Request, error: Exception) -> Response:
        """An address that there is not, a method, a form that is not whole."""
        assert isinstance(error, HTTPException)
        known = {404: "there is no such page", 405: "this address does not take that method"}
        said = known.get(error.status_code) if error.detail == HTTPStatus(error.status_code).phrase else None
        return self._refuse(error.status_code, said or error.detail)

    def defect(self, request: Request, error: Exception) -> Response:
        """A surprise: named here, and on stderr with its place."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        fact = f"{type(error).__name__}: {error}"
        sys.stderr.write(
            f"{one_line(fact)} ({place.filename}:{place.lineno}, {request.method} {request.url.path})\n"
        )
        return self._refuse(
            500, f"the page met a defect of its own, {type(error).__name__}; `lcp serve` says more"
        )
