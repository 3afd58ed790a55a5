"""Keep pages open as browsers do, and print when each has had each change: `python -m benchmarks.page_readers …`."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time


class Readers:
    """Open pages; `seen` has the time of each change on each page."""

    def __init__(self, where: tuple[str, str, str], readers: int, changes: int, word: str) -> None:
        port, host, cookie = where
        self._head = f"Host: {host}\r\nCookie: {cookie}\r\nAccept-Encoding: gzip\r\n"
        self._port, self._readers, self._word = int(port), readers, word
        self.seen: list[list[float]] = [[] for _ in range(changes)]
        self._connected = 0

    async def run(self, events: str, page: str) -> None:
        await asyncio.gather(*(self._read(events, page) for _ in range(self._readers)))
        print(json.dumps(self.seen), flush=True)

    async def _read(self, events: str, page: str) -> None:
        stream = await self._ask(events)
        await stream[0].readuntil(b"retry: 2000")
        self._connected += 1
        if self._connected == self._readers:
            print("connected", flush=True)
        number = 0
        while number < len(self.seen):
            await stream[0].readuntil(b"event: news")
            text = await self._fetch(page)
            now = time.monotonic()
            while number < len(self.seen) and f"change {number} of {self._word}" in text:
                self.seen[number].append(now)
                if len(self.seen[number]) == self._readers:
                    print(number, flush=True)
                number += 1
        stream[1].close()

    async def _ask(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)
        writer.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())
        return reader, writer

    async def _fetch(self, path: str) -> str:
        reader, writer = await self._ask(path)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        body = await reader.readexactly(length)
        writer.close()
        return (gzip.decompress(body) if "content-encoding: gzip" in head else body).decode()


if __name__ == "__main__":
    port, host, cookie, events, page, readers, changes, word = sys.argv[1:]
    asyncio.run(Readers((port, host, cookie), int(readers), int(changes), word).run(events, page))
