"""A page that many browsers ask for at once is rendered for all together, and is never older than they asked."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.web.app import rendered_once


def _asked(path: str = "/jobs/1", cookie: str = "") -> Request:
    headers = [(b"cookie", cookie.encode())]
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "server": ("lcp", 80),
        }
    )


def test_those_who_ask_while_a_page_is_rendered_share_the_next_rendering() -> None:
    begun, go_on = threading.Event(), threading.Event()
    rendered: list[int] = []

    def page(_request: Request) -> Response:
        rendered.append(len(rendered) + 1)
        begun.set()
        assert go_on.wait(20)
        return Response(str(rendered[-1]))

    async def ask() -> list[bytes]:
        endpoint = rendered_once(page)
        first = asyncio.ensure_future(endpoint(_asked()))
        await asyncio.to_thread(begun.wait, 20)
        others = [asyncio.ensure_future(endpoint(_asked())) for _ in range(20)]
        await asyncio.sleep(0)
        others[0].cancel()
        go_on.set()
        answers = await asyncio.gather(first, *others[1:])
        assert len({id(answer.raw_headers) for answer in answers}) == 20, "each has headers of its own"
        return [bytes(answer.body) for answer in answers]

    assert asyncio.run(ask()) == [b"1", *[b"2"] * 19]
    assert len(rendered) == 2


def test_other_addresses_and_other_cookies_are_rendered_apart() -> None:
    async def ask() -> set[bytes]:
        endpoint = rendered_once(lambda request: Response(request.url.path + request.headers["cookie"]))
        asked = [_asked(), _asked("/jobs/2"), _asked(cookie="diff=split")]
        return {bytes(answer.body) for answer in await asyncio.gather(*map(endpoint, asked))}

    assert asyncio.run(ask()) == {b"/jobs/1", b"/jobs/2", b"/jobs/1diff=split"}


def test_a_page_that_fails_does_so_for_all_and_is_rendered_anew() -> None:
    pages = iter((ValueError("no"), Response("yes")))

    def page(_request: Request) -> Response:
        found = next(pages)
        if isinstance(found, ValueError):
            raise found
        return found

    async def ask() -> bytes:
        endpoint = rendered_once(page)
        with pytest.raises(ValueError, match="no"):
            await endpoint(_asked())
        return bytes((await endpoint(_asked())).body)

    assert asyncio.run(ask()) == b"yes"
