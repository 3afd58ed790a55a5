"""Serve the page: a socket, the link with its token, a server that can be stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

import uvicorn

from lcp_engine.api import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.access import LOOPBACK, Door, Keys
from lcp_engine.web.app import make_app
from lcp_engine.web.context import Desk
from lcp_engine.web.templates import make_templates

HOST = "127.0.0.1"
PORT = 8470
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only where the person says so


class Serving:
    """A page that is bound and not served yet: `run` serves until `stop`, from any thread."""

    def __init__(
        self, engine: Engine, *, host: str = HOST, port: int = PORT, names: Collection[str] = ()
    ) -> None:
        """`port` 0 takes a free one; `names` are further hosts by which browsers call the page.

        Raises `INVALID_ARGUMENT` for an address that cannot be bound.
        """
        self._keys = Keys()
        self._socket = _bind(host, port)
        self._name = socket.gethostname() if host in _EVERYWHERE else host
        self.port = int(self._socket.getsockname()[1])
        self._desk = Desk(engine, make_templates(), self._keys.csrf)
        called = {self._name, host, *names}
        door = Door(self.port, LOOPBACK | {name.lower() for name in called}, any_address=host in _EVERYWHERE)
        config = uvicorn.Config(
            make_app(self._desk, self._keys, door),
            http="h11",  # the one whose limit is set below
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,  # it would write the token down
            server_header=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = uvicorn.Server(config)

    @property
    def link(self) -> str:
        """The address that lets a browser in."""
        host = f"[{self._name}]" if ":" in self._name else self._name
        return f"http://{host}:{self.port}/?token={self._keys.token}"

    def run(self) -> None:
        """Serve until `stop` is called, or by a signal where this is the main thread."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Answer what was asked, then end."""
        self._desk.closing.set()
        self._server.should_exit = True


def serve(
    engine: Engine, host: str = HOST, port: int = PORT, *, names: Collection[str] = (),
    announce: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Serve the page over `engine`; `announce` gets the link that lets a browser in."""
    serving = Serving(engine, host=host, port=port, names=names)
    announce(serving.link)
    serving.run()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()  # who opens the link at once waits rather than is refused
    except (OSError, OverflowError, UnicodeError) as refused:
        fact = getattr(refused, "strerror", None) or str(refused)
        message = f"the page needs the address {host} port {port} to itself: {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    return bound
