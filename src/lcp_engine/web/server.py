"""The server of the page: it binds a socket, prints a link with a token, and can be stopped."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection

import uvicorn

from lcp_engine.api import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.access import HTTP_PORT, Address, Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates

HOST = "127.0.0.1"
PORT = 8470
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERY_INTERFACE = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only compared with what the user asked for
_NAME = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PORT = re.compile(r":[0-9]+$")


class PageServer:
    """A page on a bound socket: `run` serves it until `stop` is called, from any thread."""

    def __init__(
        self, engine: Engine, *, host: str = HOST, port: int = PORT, names: Collection[str] = ()
    ) -> None:
        """`port` 0 is any free one; `names` are more hosts, with or without a port, that browsers may ask for.

        Raises `INVALID_ARGUMENT` for an address that cannot be bound and for a name that is not valid.
        """
        self._secrets = Secrets()
        named = [_read_name(name) for name in names]
        self._socket = _bind(host, port)
        self._name = socket.gethostname() if host in _EVERY_INTERFACE else host
        self.port = int(self._socket.getsockname()[1])
        self._context = PageContext(engine, make_templates(), self._secrets.csrf)
        own_names = {self._name, host} | (LOOPBACK if host in LOOPBACK | _EVERY_INTERFACE else set())
        hosts = {f"{_bracketed(name.lower())}:{self.port}" for name in own_names} | {*named}
        hosts |= {f"{name}:{self.port}" for name in named if not _PORT.search(name)}
        if self.port == HTTP_PORT:
            hosts |= {host.removesuffix(f":{HTTP_PORT}") for host in hosts}
        address = Address(self.port, frozenset(hosts), any_address=host in _EVERY_INTERFACE)
        config = uvicorn.Config(
            make_app(self._context, self._secrets, address),
            http="h11",  # the implementation whose limit is set below
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,  # it would contain the token
            server_header=False,
            proxy_headers=False,  # nothing depends on them, and any local program could send them
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = uvicorn.Server(config)

    @property
    def link(self) -> str:
        """The address that gives a browser access."""
        return f"http://{_bracketed(self._name)}:{self.port}/?token={self._secrets.token}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, until SIGINT or SIGTERM."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Finish the requests that are being answered, then end."""
        self._context.closing.set()
        self._server.should_exit = True


def serve(
    engine: Engine, host: str = HOST, port: int = PORT, *, names: Collection[str] = (),
    announce: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Serve the page over `engine`; `announce` is called with the link that gives a browser access."""
    server = PageServer(engine, host=host, port=port, names=names)
    announce(server.link)
    server.run()


def _read_name(given: str) -> str:
    """A host name that the user gave, as browsers send it. Without a port it may be that of a proxy, too."""
    name = _bracketed(given.lower())
    if not _NAME.fullmatch(name):
        message = f"{given!r} is not the name of a host; expected HOST or HOST:PORT"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return name


def _bracketed(name: str) -> str:
    try:
        return f"[{ipaddress.IPv6Address(name)}]"
    except ValueError:
        return name


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol, or asyncio does not set TCP_NODELAY, and each answer waits 40 ms for an acknowledgement.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()  # a browser that connects before `run` waits instead of being refused
    except (OSError, OverflowError, UnicodeError) as refused:
        fact = getattr(refused, "strerror", None) or str(refused)
        message = f"the page cannot listen on {host} port {port}: {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    return bound
