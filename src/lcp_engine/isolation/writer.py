"""Serve a runner in a confined process: hold a file's directory, read the file, replace it (R20)."""

from __future__ import annotations

from lcp_engine.errors import LcpError
from lcp_engine.isolation.line import Buffer, Head, Line, text_of, told
from lcp_engine.sandbox.replace import Target, locked, look_at
from lcp_engine.sandbox.root import Root, refusal


class _Abandoned(Exception):
    """The other side gave the file up before it was replaced."""


class Writer:
    """Carries out the steps of the journal in one root. The lock is held here, and dies with this process."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def serve(self, line: Line) -> None:
        """Answer until the other side hangs up, with `Broken`."""
        while True:
            head, _ = line.receive()
            path = text_of(head, "path")
            try:
                looks = head["do"] == "look"
                answer = self._look(path, _cap(head)) if looks else self._hold(line, path)
            except LcpError as error:
                answer = told(error.failed), b""
            line.send(*answer)

    def _look(self, path: str, cap: int | None) -> tuple[Head, Buffer]:
        seen = look_at(self._root, path, cap)
        if seen is None:
            return {"is": "nothing"}, b""
        head: Head = {"is": "file", "sha256": seen.sha256, "size": seen.size, "read": seen.data is not None}
        return head, seen.data or b""

    def _hold(self, line: Line, path: str) -> tuple[Head, Buffer]:
        try:
            with locked(self._root, path) as target:
                line.send({"is": "locked", "made": list(target.made)})
                self._serve_locked(line, target)
        except _Abandoned:
            pass
        return {"is": "free"}, b""

    def _serve_locked(self, line: Line, target: Target) -> None:
        while True:
            head, body = line.receive()
            if head["do"] == "free":
                if head["abandoned"]:
                    raise _Abandoned
                return
            try:
                answer = _step(target, head, body)
            except LcpError as error:
                answer = told(error.failed), b""
            except OSError as error:
                answer = told(refusal(error, target.path).failed), b""
            answer[0]["replaced"] = target.replaced
            line.send(*answer)


def _step(target: Target, head: Head, body: Buffer) -> tuple[Head, Buffer]:
    done: Head = {"is": "done"}
    match head["do"]:
        case "read":
            current = target.read(_cap(head))
            if current is None:
                return {"is": "nothing"}, b""
            return {"is": "file", "sha256": current.sha256, "mode": current.mode}, current.data
        case "size":
            return {"is": "size", "size": target.size()}, b""
        case "sha256":
            return {"is": "sha256", "sha256": target.sha256()}, b""
        case "replace":
            mode = head["mode"]
            target.replace(bytes(body), text_of(head, "temporary"), mode if isinstance(mode, int) else None)
        case "sync":
            target.sync()
        case "remove":
            target.remove()
        case "discard":
            target.discard(text_of(head, "temporary"))
        case other:
            raise ValueError(f"no step is called {other!r}")
    return done, b""


def _cap(head: Head) -> int | None:
    cap = head["cap"]
    return cap if isinstance(cap, int) else None
