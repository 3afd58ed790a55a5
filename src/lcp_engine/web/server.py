"""The server of the page: it binds its sockets, makes a link with a token for each browser, and can be stopped."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from lcp_engine.api.engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.settings import ApproverSettings, SignedLinks
from lcp_engine.web.access import HTTP_PORT, Address, Secrets
from lcp_engine.web.app import Door, make_app, with_doors
from lcp_engine.web.connections import (
    BACKLOG,
    ClosingServer,
    ConnectionLimits,
    descriptor_limit,
    limited_protocol,
    saying_errors_once,
)
from lcp_engine.web.context import PageContext, make_templates

HOST = "127.0.0.1"
PORT = 8470
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERY_INTERFACE = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only compared with what the user asked for
Announce = Callable[[str], None]
_NAME = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PORT = re.compile(r":[0-9]+$")


class PageServer:
    """A page on a bound socket: `run` serves it until `stop` is called, from any thread."""

    def __init__(
        self, engine: Engine, *, host: str = HOST, port: int = PORT, names: Collection[str] = (),
        announce: Announce = lambda link: None, limits: ConnectionLimits | None = None,
        secrets: Secrets | None = None, evals: Path | None = None, doors: Mapping[str, Door] | None = None,
    ) -> None:  # fmt: skip
        """`port` 0 is any free one; `names` are more hosts, with or without a port, that browsers may ask for.

        Browsers that have access by the `secrets` of an earlier start keep it; without them, there are new ones.
        `evals` is a directory whose evaluations are shown; programs use `doors`, by the beginning of their paths.
        A link gives access to one browser. Once it has been used, `announce` is called in a thread with the next one.
        Raises `INVALID_ARGUMENT` for an address that cannot be bound and for a name that is not valid.
        """
        self._secrets = secrets or Secrets()
        named = [_read_name(name) for name in names]
        self._sockets = _bind(host, port)
        self.port = int(self._sockets[0].getsockname()[1])
        own = [_bracketed(name.lower()) for name in _own_names(host, self._secrets.name)]
        self.has_shared_name = any(map(_is_shared, named))
        name = next(filter(_is_shared, named), own[0])
        self._host = name if _PORT.search(name) else f"{name}:{self.port}"
        hosts = _accepted_hosts(own, named, self.port) | _host_of_links(
            engine.instance.settings(ApproverSettings).links
        )
        address = Address(self.port, hosts, any_address=host in _EVERY_INTERFACE)
        self._context = PageContext(engine, make_templates(), self._secrets.csrf, evals=evals)
        self._doors = doors or {}
        page = make_app(self._context, self._secrets, address, lambda: announce(self.link))
        config = uvicorn.Config(
            with_doors(page, self._doors),
            http=limited_protocol((limits or ConnectionLimits()).within(descriptor_limit())),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,  # it would contain the token
            server_header=False,
            proxy_headers=False,  # nothing depends on them, and any local program could send them
            backlog=BACKLOG,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=32 * 1024,
        )
        self._server = ClosingServer(config)

    @property
    def link(self) -> str:
        """The address that gives one browser access; another one once it has been used."""
        return f"http://{self._host}/?token={self._secrets.token}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, until SIGINT or SIGTERM."""
        try:
            with saying_errors_once():
                self._server.run(sockets=self._sockets)
        finally:
            self.close()

    def close(self) -> None:
        """Close the sockets of a server that does not run."""
        for bound in self._sockets:
            bound.close()

    def stop(self) -> None:
        """Finish the requests that are being answered, then end."""
        self._context.closing.set()
        for door in self._doors.values():
            door.close()
        self._server.should_exit = True


def serve(
    engine: Engine, host: str = HOST, port: int = PORT, *, names: Collection[str] = (),
    announce: Announce = print,
) -> None:  # fmt: skip
    """Serve the page over `engine`; `announce` is called with each link, which gives one browser access."""
    server = PageServer(engine, host=host, port=port, names=names, announce=announce)
    announce(server.link)
    server.run()


def _is_shared(name: str) -> bool:
    """True if other programs of this machine listen under that name of the page: its cookie goes to them, too."""
    return _PORT.sub("", name).strip("[]") in LOOPBACK


def _own_names(host: str, name: str) -> list[str]:
    """The names by which browsers find a page that listens on `host`. The first one is for the link."""
    if host in LOOPBACK:
        # Browsers send cookies to all ports of a host, and resolve every name below `localhost` to this machine.
        return [f"lcp-{name}.localhost"]
    if host in _EVERY_INTERFACE:
        return [socket.gethostname(), *LOOPBACK]
    return [host]


def _accepted_hosts(own: Iterable[str], named: Iterable[str], port: int) -> frozenset[str]:
    """The values of `Host`. A name that the user gave without a port is also that of a proxy in front of the page."""
    hosts = {name if _PORT.search(name) else f"{name}:{port}" for name in (*own, *named)} | {*named}
    if port == HTTP_PORT:
        hosts |= {host.removesuffix(f":{HTTP_PORT}") for host in hosts}
    return frozenset(hosts)


def _host_of_links(links: SignedLinks | None) -> frozenset[str]:
    """The value of `Host` with which signed links arrive."""
    return frozenset() if links is None else frozenset({urlsplit(links.url).netloc.lower()})


def _read_name(given: str) -> str:
    """A host name that the user gave, as browsers send it. Raises `INVALID_ARGUMENT`."""
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


def _bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on `host`; for a loopback address on both, because a name below `localhost` is either."""
    if host not in LOOPBACK:
        return [_listen(host, port)]
    for free_port_tries in reversed(range(1 if port else 20)):
        first = _listen("::1" if host == "::1" else "127.0.0.1", port)
        try:
            return [first, *_listen_on_other_loopback(first)]
        except LcpError:
            first.close()
            if not free_port_tries:
                raise
    raise AssertionError


def _listen_on_other_loopback(first: socket.socket) -> list[socket.socket]:
    """A socket with the same port on the other loopback address, where there is one.

    Raises `INVALID_ARGUMENT` if another program has it: browsers that look for the page would find that program.
    """
    host = "::1" if first.family == socket.AF_INET else "127.0.0.1"
    try:
        return [_listen(host, int(first.getsockname()[1]))]
    except LcpError as refused:
        cause = refused.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            raise
        return []


def _listen(host: str, port: int) -> socket.socket:
    bound = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol, or asyncio does not set TCP_NODELAY, and each answer waits 40 ms for an acknowledgement.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)  # a browser that connects before `run` waits instead of being refused
    except (OSError, OverflowError, UnicodeError) as refused:
        if bound is not None:
            bound.close()
        fact = getattr(refused, "strerror", None) or str(refused)
        message = f"the page cannot listen on {host} port {port}: {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    return bound
