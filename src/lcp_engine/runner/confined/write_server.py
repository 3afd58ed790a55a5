"""Serve a runner in a confined process: hold the directories of files, read them, replace them (R20)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from pydantic import JsonValue

from lcp_engine.errors import LcpError
from lcp_engine.runner.confined.channel import Buffer, Head, Line, number_of, text_of, told
from lcp_engine.sandbox.atomic_write import Current, LockedFile
from lcp_engine.sandbox.file_access import HERE
from lcp_engine.sandbox.locks import LockedFiles, Put, Wait
from lcp_engine.sandbox.root import Root, refusal

MOST_SEEN = 64 * 1024
"""Bytes of a file that are told when it is locked, unasked."""

QUIET_SECONDS = 0.1
"""Which file is turned to is told so often: most disks are done with all of them before."""


class Writer:
    """Carries out the steps of the journal in one root. The locks are held here, and die with this process."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def serve(self, line: Line) -> None:
        """Answer until the other side hangs up, with `Broken`."""
        while True:
            head, _ = line.receive()
            try:
                answer = self._answer(line, head)
            except LcpError as error:
                answer = told(error.failed), b""
            line.send(*answer)

    def _answer(self, line: Line, head: Head) -> tuple[Head, Buffer]:
        match head["do"]:
            case "lock":
                return self._lock(line, head)
            case "read unlocked":
                return self._read_unlocked(head)
            case "remove empty":
                HERE.remove_empty(self._root, _paths(head))
                return {"is": "done"}, b""
            case other:
                raise ValueError(f"no request is called {other!r}")

    def _read_unlocked(self, head: Head) -> tuple[Head, Buffer]:
        seen = HERE.read_unlocked(self._root, text_of(head, "path"), _cap(head))
        if seen is None:
            return {"is": "nothing"}, b""
        told_of: Head = {
            "is": "file",
            "sha256": seen.sha256,
            "size": seen.size,
            "read": seen.data is not None,
        }
        return told_of, seen.data or b""

    def _lock(self, line: Line, head: Head) -> tuple[Head, Buffer]:
        files = [(self._root, path) for path in _paths(head)]
        with HERE.lock(files, Wait(head["wait"])) as locked:
            line.send(*_locked(locked))
            _serve_locked(line, locked)
        return {"is": "released"}, b""


def _paths(head: Head) -> list[str]:
    paths = head["paths"]
    assert isinstance(paths, list)
    return [str(path) for path in paths]


def _locked(batch: LockedFiles) -> tuple[Head, Buffer]:
    """What was locked, and what small files are at that moment: mostly that is all that is asked for."""
    found: list[JsonValue] = []
    contents: list[bytes] = []
    for held in batch.found:
        if isinstance(held, LockedFile):
            told_of: Head = {"made": list(held.made)}
            with suppress(LcpError):  # told when it is read
                seen, data = _seen(held.read_within(MOST_SEEN))
                contents.append(bytes(data))
                told_of["seen"] = {"size": len(data), **seen}
            found.append(told_of)
        else:
            found.append(None if held is None else told(held.failed))
    return {"is": "locked", "found": found}, b"".join(contents)


def _serve_locked(line: Line, batch: LockedFiles) -> None:
    while True:
        head, body = line.receive()
        if head["do"] == "release":
            return
        line.send(*_answer(line, batch, head, body))


def _answer(line: Line, batch: LockedFiles, head: Head, body: Buffer) -> tuple[Head, Buffer]:
    if head["do"] == "put all":
        return _put_all(line, batch, head, memoryview(body))
    target = batch.found[number_of(head, "nth")]
    assert isinstance(target, LockedFile)
    answer = _tried(lambda: _step(target, head, body), target.path)
    answer[0]["replaced"] = target.replaced
    return answer


def _tried(step: Callable[[], tuple[Head, Buffer]], path: str) -> tuple[Head, Buffer]:
    try:
        return step()
    except LcpError as error:
        return told(error.failed), b""
    except OSError as error:
        return told(refusal(error, path).failed), b""


def _put_all(line: Line, batch: LockedFiles, head: Head, body: memoryview) -> tuple[Head, Buffer]:
    files, puts = head["files"], []
    assert isinstance(files, list)
    for file in files:
        assert isinstance(file, dict)
        target, size = batch.found[number_of(file, "nth")], number_of(file, "size")
        assert isinstance(target, LockedFile)
        puts.append(Put(target, bytes(body[:size]), text_of(file, "temporary")))
        body = body[size:]
    spoke = time.monotonic()

    def starts(nth: int) -> None:
        nonlocal spoke
        if time.monotonic() - spoke > QUIET_SECONDS:
            line.send({"starts": nth})
            spoke = time.monotonic()

    errors = batch.put(puts, starts)
    found: list[JsonValue] = [
        {"replaced": put.file.replaced, **({} if error is None else told(error.failed))}
        for put, error in zip(puts, errors, strict=True)
    ]
    return {"is": "done", "found": found}, b""


def _step(target: LockedFile, head: Head, body: Buffer) -> tuple[Head, Buffer]:
    done: Head = {"is": "done"}
    match head["do"]:
        case "read":
            return _seen(target.read(_cap(head)))
        case "read within":
            return _seen(target.read_within(number_of(head, "cap")))
        case "digest":
            digest = target.digest()
            return {"is": "nothing"} if digest is None else {"is": "digest", **digest._asdict()}, b""
        case "put":
            mode = head["mode"]
            target.put(bytes(body), text_of(head, "temporary"), mode if isinstance(mode, int) else None)
        case "sync":
            target.sync()
        case "remove":
            target.remove()
        case "discard":
            target.discard(text_of(head, "temporary"))
        case other:
            raise ValueError(f"no step is called {other!r}")
    return done, b""


def _seen(seen: Current | int | None) -> tuple[Head, Buffer]:
    if seen is None:
        return {"is": "nothing"}, b""
    if isinstance(seen, int):
        return {"is": "size", "size": seen}, b""
    return {"is": "file", "sha256": seen.sha256, "mode": seen.mode}, seen.data


def _cap(head: Head) -> int | None:
    cap = head["cap"]
    return cap if isinstance(cap, int) else None
