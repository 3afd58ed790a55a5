"""The API as a door of the page's server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lcp_engine.api.engine import Engine
from lcp_engine.features.http_api.document import OPERATIONS, document
from lcp_engine.features.http_api.follow import Pulse
from lcp_engine.features.http_api.operations import HEADERS, KEY, Desk, defect, http_problem
from lcp_engine.features.http_api.settings import ServeSettings
from lcp_engine.features.tokens.calls import Gate
from lcp_engine.features.tokens.offers import Offers


class Api:
    """The API over an engine: a door of the page's server."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        offers: Offers,
        *,
        origins: Sequence[str] = (),
    ) -> None:
        """`origins` are those of pages in browsers that may use it."""
        self._pulse = Pulse(engine)
        desk = Desk(engine, gate, offers, self._pulse)
        by_path = groupby(sorted(OPERATIONS, key=lambda one: one.path), key=lambda one: one.path)
        routes = [
            Route(path, desk.endpoint(found), methods=[one.method for one in found])
            for path, found in ((path, [*of_path]) for path, of_path in by_path)
        ]
        headers = ["Authorization", "Content-Type", KEY, "Last-Event-ID"]
        methods = sorted({one.method for one in OPERATIONS})
        self._app = Starlette(
            routes=[Route("/v1/openapi.json", openapi), *routes],
            middleware=[
                Middleware(
                    CORSMiddleware, allow_origins=[*origins], allow_methods=methods, allow_headers=headers,
                    expose_headers=["Retry-After", "Idempotency-Replayed"],
                )
            ] if origins else [],
            exception_handlers={HTTPException: http_problem, Exception: defect},
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End the streams and waits, so that the server can end."""
        self._pulse.close()


def open_api(engine: Engine, stated: ServeSettings, gate: Gate) -> Api:
    """The API as `lcp serve` opens it. Raises like `Offers.of`."""
    return Api(engine, gate, Offers.of(stated), origins=stated.origins)


def openapi(request: Request) -> Response:
    """The OpenAPI document, which needs no token."""
    return Response(json.dumps(document()), headers=HEADERS, media_type="application/json")
