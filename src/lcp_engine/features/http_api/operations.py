"""Operations of the API: read a request, check its token, carry it out once, and answer it or say what was refused."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TypeAlias, TypeVar, get_origin
from urllib.parse import parse_qs

from pydantic import BaseModel, JsonValue, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import PageQueries
from lcp_engine.core.protocol.strict_json import Broken, StrictDecoder
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.safe_text import is_storable, one_line
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.http_api.follow import Pulse
from lcp_engine.features.http_api.store import (
    Claim,
    Written,
    WrittenBefore,
    claiming,
    find_write,
    keep_answer,
)
from lcp_engine.features.http_api.values import Asked, Body
from lcp_engine.features.tokens.calls import Denied, Gate, Scope, Token
from lcp_engine.features.tokens.offers import Offers
from lcp_engine.web.access import ACCESS
from lcp_engine.web.forms import MOST_BYTES

M = TypeVar("M", bound=BaseModel)
NUMBERS = frozenset({"mission", "job", "number", "entry"})
"""The parts of a path that are numbers; others are names."""
KEY = "Idempotency-Key"
MOST_KEY = 200
_TRIES, _PAUSE = 200, 0.05
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Call:
    """A request that was let in and read."""

    engine: Engine
    token: Token
    offers: Offers
    pulse: Pulse
    path: Mapping[str, str]
    request: Request
    query: BaseModel | None = None
    body: BaseModel | None = None
    may_go_on: Callable[[], bool] = field(default=lambda: True)

    @property
    def queries(self) -> PageQueries:
        return PageQueries(self.engine.instance)

    def id(self, name: str) -> int:
        """A number of the path. Raises `NOT_FOUND` for what is none."""
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise LcpError(ErrorCode.NOT_FOUND, f"{name} {text[:40]!r} is not in the database")
        return int(text)

    def asked(self, kind: type[M]) -> M:
        """The query, of which the operation states the model."""
        assert isinstance(self.query, kind)
        return self.query

    def given(self, kind: type[M]) -> M:
        """The body, of which the operation states the model."""
        assert isinstance(self.body, kind)
        return self.body

    @property
    def by(self) -> str:
        """The person whose decision it is. Raises `NOT_ALLOWED`."""
        return self.engine.tokens.decider(self.token)

    @property
    def viewer(self) -> str:
        """The name under which it is noted what the program was shown; no person has it."""
        return f"token {self.token.uid}"


Read: TypeAlias = Callable[[Call], JsonValue | Response | Awaitable[JsonValue | Response]]
Write: TypeAlias = Callable[[Call], JsonValue]
Tell: TypeAlias = Callable[[Call, JsonValue], JsonValue]


@dataclass(frozen=True)
class Operation:
    """One thing that the API does, with what it takes and gives."""

    method: str
    path: str
    scope: Scope
    do: Read | Write
    answer: object
    query: type[Asked] | None = None
    body: type[Body] | None = None
    tell: Tell | None = None
    """Of a write: what it answers, by what it came to."""
    status: int = 200
    others: int = 0
    """Transactions of a write before the one that decides."""
    streams: bool = False
    """Whether it gives server-sent events to those who accept them."""


@dataclass
class Desk:
    """Everything that the requests to a server share."""

    engine: Engine
    gate: Gate
    offers: Offers
    pulse: Pulse

    def endpoint(self, operations: Sequence[Operation]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of one path, with an operation for each of its methods."""
        by_method = {one.method: one for one in operations}

        async def answer(request: Request) -> Response:
            operation = by_method.get("GET" if request.method == "HEAD" else request.method)
            assert operation is not None  # the route refuses other methods
            try:
                return await self._answer(operation, request)
            except LcpError as refused:
                return problem(refused.status, refused.failed)

        return answer

    async def _answer(self, operation: Operation, request: Request) -> Response:
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            raise HTTPException(413, f"a request may have {MOST_BYTES} bytes; this one has {length[:20]}")
        token = await run_in_threadpool(self._admit, request, operation.scope)
        if isinstance(token, Denied):
            return problem(token.status, token.failed, retry_after=token.retry_after)
        request.scope.setdefault("state", {})[ACCESS] = True
        if not is_storable([request.scope["path"], *request.query_params.values()]):
            raise HTTPException(422, "an address has no character U+0000, and no half of one")
        call = Call(
            self.engine, token, self.offers, self.pulse, request.path_params, request,
            query=None if operation.query is None else read_query(operation.query, _query_of(request)),
            body=None if operation.body is None else await read_body(operation.body, request),
            may_go_on=lambda: isinstance(self._admit(request, operation.scope, is_new=False), Token),
        )  # fmt: skip
        if operation.query is None and _query_of(request):
            raise HTTPException(422, "this address takes no query")
        if operation.tell is not None:
            return await run_in_threadpool(self._write, operation, call)
        if iscoroutinefunction(operation.do):
            found = await operation.do(call)
        else:
            found = await run_in_threadpool(operation.do, call)
        return found if isinstance(found, Response) else as_json(found, operation.status)

    def _admit(self, request: Request, scope: Scope, *, is_new: bool = True) -> Token | Denied:
        sent = request.headers.getlist("authorization")
        address = f"{request.scope['path']}?{_query_of(request)}"
        return self.gate.admit(sent[0] if len(sent) == 1 else None, scope, address=address, is_new=is_new)

    def _write(self, operation: Operation, call: Call) -> Response:
        """Carry a write out once: the same key gives the same answer, and has no second effect."""
        assert operation.tell is not None
        claim = Claim(call.token.uid, _key_of(call.request), _hash_of(call))
        instance = self.engine.instance
        for _ in range(_TRIES):
            before = instance.read(find_write, claim)
            if before is not None:
                return self._again(operation, call, before)
            engine = claiming(self.engine, claim, operation.others)
            try:
                done = operation.do(replace(call, engine=engine))
                break
            except WrittenBefore:  # by a transaction that is not committed yet
                time.sleep(_PAUSE)
            except LcpError:
                if instance.read(find_write, claim) is None:
                    raise  # else another request has done it meanwhile
        else:
            message = f"another request with the key {claim.key!r} is being carried out"
            raise LcpError(ErrorCode.DATABASE_BUSY, message, advice="Send it again.")
        assert not isinstance(done, Awaitable | Response)
        text = json.dumps(operation.tell(call, done))
        instance.write(keep_answer, claim, done, operation.status, text)
        return Response(text, operation.status, HEADERS, "application/json")

    def _again(self, operation: Operation, call: Call, before: Written) -> Response:
        assert operation.tell is not None
        text = before.answer or json.dumps(operation.tell(call, before.done))
        headers = {**HEADERS, "Idempotency-Replayed": "true"}
        return Response(text, before.status or operation.status, headers, "application/json")


def as_json(value: JsonValue, status: int = 200) -> Response:
    """A value as it is sent."""
    return Response(json.dumps(value), status, HEADERS, "application/json")


def _query_of(request: Request) -> str:
    """The query as it was sent. `request.url` is put together from `Host`, which anyone may write."""
    sent: bytes = request.scope["query_string"]
    return sent.decode("latin-1")


def read_query(model: type[M], text: str) -> M:
    """The fields of a query. Raises a 422 for anything else."""
    try:
        found = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as refused:
        raise HTTPException(422, "a query is percent-encoded UTF-8 with at most 50 fields") from refused
    stated: dict[str, object] = {}
    for name, values in found.items():
        one = model.model_fields.get(name)
        is_list = one is not None and get_origin(one.annotation) is tuple
        if len(values) > 1 and not is_list:
            raise HTTPException(422, f"{name[:40]!r} is stated {len(values)} times")
        stated[name] = values if is_list else values[0]
    try:
        return model.model_validate(stated)
    except ValidationError as refused:
        raise HTTPException(422, explain_first(refused, model)) from refused


async def read_body(model: type[M], request: Request) -> M:
    """The body of a request, within its limit. Raises a 4xx for anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"a body is sent as application/json, not {kind[:80] or 'without a type'}")
    sent = bytearray()
    try:
        async for chunk in request.stream():
            sent += chunk
            if len(sent) > MOST_BYTES:
                raise HTTPException(413, f"a request may have {MOST_BYTES} bytes; this one has more")
    except ClientDisconnect as gone:
        raise HTTPException(400, "the request ended before its body did") from gone
    try:
        text = sent.decode().strip(" \t\r\n")
    except UnicodeDecodeError as refused:
        raise HTTPException(422, "the body is not UTF-8") from refused
    if not text.startswith("{"):
        raise HTTPException(422, "the body is not a JSON object")
    read = StrictDecoder(text).decode(0)
    if isinstance(read, Broken):
        raise HTTPException(422, f"the body is not a JSON object: {read.message}")
    if read.end != len(text):
        raise HTTPException(422, "the body goes on after its JSON object")
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as refused:
        raise HTTPException(422, explain_first(refused, model)) from refused


def _key_of(request: Request) -> str:
    """The key of a write. Raises a 422 without one, or with several."""
    sent = request.headers.getlist(KEY)
    if len(sent) != 1 or not (0 < len(sent[0]) <= MOST_KEY and sent[0].isascii() and sent[0].isprintable()):
        raise HTTPException(422, f"a write has one header {KEY} of 1 to {MOST_KEY} characters")
    return sent[0]


def _hash_of(call: Call) -> str:
    stated = None if call.body is None else call.body.model_dump(mode="json")
    asked = [call.request.method, call.request.scope["path"], stated]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


# -- What was refused

_CODES = {404: ErrorCode.NOT_FOUND, 413: ErrorCode.TOO_LARGE}
_FACTS = {404: "nothing is at this address", 405: "this address does not take this method"}


def problem(status: int, failed: Failed, *, retry_after: int | None = None) -> Response:
    """The answer to a request that is refused, by RFC 9457."""
    headers = dict(HEADERS)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after = 1
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return _problem(
        status,
        str(failed.code),
        failed.message,
        failed.recommendation,
        headers=headers,
        details=failed.details,
    )


def http_problem(request: Request, error: Exception) -> Response:
    """An address, a method, a query or a body that is not valid."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    is_plain = error.detail == HTTPStatus(status).phrase
    fact = _FACTS.get(status, error.detail) if is_plain else error.detail
    code = _CODES.get(status, ErrorCode.INVALID_ARGUMENT)
    advice = Failed(code, fact, advice=GENERAL).recommendation
    return _problem(status, str(code), fact, advice, headers={**HEADERS, **(error.headers or {})})


def defect(request: Request, error: Exception) -> Response:
    """Any other exception: its type in the answer, message and place on stderr."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    fact = one_line(f"{type(error).__name__}: {error}")
    at = f"{place.filename}:{place.lineno}, {request.method} {one_line(request.scope['path'])}"
    sys.stderr.write(f"{fact} ({at})\n")
    told = f"this is a bug of the API ({type(error).__name__})"
    return _problem(500, "DEFECT", told, "The output of `lcp serve` says more.", headers=HEADERS)


def _problem(
    status: int,
    code: str,
    detail: str,
    advice: str,
    *,
    headers: Mapping[str, str],
    details: Mapping[str, object] = {},
) -> Response:
    stated = {
        "type": f"urn:lcp-engine:error:{code}", "title": HTTPStatus(status).phrase, "status": status,
        "detail": detail, "code": code, "advice": advice, "details": dict(details),
    }  # fmt: skip
    return Response(json.dumps(stated), status, headers, "application/problem+json")
