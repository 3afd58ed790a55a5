"""The kinds of jobs, and one kind with all that it states."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine import Worker
from lcp_engine.core.kinds import kind_named
from lcp_engine.core.safe_text import json_block
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.authoring.describe_kinds import (
    NO_FIELDS,
    NO_SCHEMA,
    describe,
    effects_in_words,
    executed_in_words,
    fields_of,
    needs_in_words,
)
from lcp_engine.web.context import context_of


def kinds(request: Request) -> Response:
    """Every kind in a line."""
    context = context_of(request)
    return context.render(
        "kinds.html", kinds=[describe(worker) for worker in context.engine.workers.values()]
    )


def kind(request: Request) -> Response:
    """All that a kind states."""
    described = describe(_asked(request))
    schemas = {name: described[name] for name in ("params", "result")}
    program = described["program"]
    return context_of(request).render(
        "kind.html",
        kind=described,
        fields={name: [*fields_of(schema)] for name, schema in schemas.items()},
        without_fields={name: NO_FIELDS if schema else NO_SCHEMA for name, schema in schemas.items()},
        effects=effects_in_words(described),
        executed=executed_in_words(described),
        needs=needs_in_words(program["needs"]) if isinstance(program, dict) else None,
    )


def kind_json(request: Request) -> Response:
    """The same as `lcp kinds KIND --json` prints."""
    described = describe(_asked(request))
    headers = {"Content-Disposition": f'attachment; filename="kind-{described["kind"]}.json"'}
    return Response(json_block(described), media_type="application/json", headers=headers)


def _asked(request: Request) -> Worker[BaseModel]:
    """The kind that the address names. Raises `NOT_FOUND`."""
    name, workers = str(request.path_params["kind"]), context_of(request).engine.workers
    name = kind_named(name, workers)
    if name not in workers:
        raise LcpError(ErrorCode.NOT_FOUND, f"kind {name!r} is not installed; {nearest(name, list(workers))}")
    return workers[name]
