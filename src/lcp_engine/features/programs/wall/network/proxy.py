"""Let a program reach the hosts that it is allowed, through a proxy on the loopback of a network of its own.

The program has no other way out. A name is looked up here, and only here; what it leads to is judged, and that very
address is connected to. `Proxy` runs outside, in threads of the caller; `route_through` says how the program begins
inside: it gives the proxy listening sockets of its own network (`features/programs/wall/network/hand_over.py`).
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from lcp_engine.core.programs.network import AllowedHost, host_of
from lcp_engine.features.programs.wall.network import hand_over
from lcp_engine.features.programs.wall.network.proxy_request import (
    HEAD_END,
    MOST_HEAD,
    BadRequest,
    ProxyRequest,
    read_request,
)
from lcp_engine.features.programs.wall.views.view import Bind

PORT = 3128
"""Where the program finds the proxy on its loopback."""
_LOW = range(1024)
"""Ports that a program without privileges cannot listen at."""
MOST_CONNECTIONS = 64
HEAD_SECONDS = 10.0
"""How long a program may take to say what it wants."""
CONNECT_SECONDS = 10.0
_END_SECONDS = 2.0
_REST_SECONDS = 0.05
_PASSING = (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Why a connection cannot be accepted at a moment."""
_MOST_REFUSED = 50
"""Different refusals that are kept."""
_CHUNK = 64 * 1024
_INSIDE = "/run/lcp-engine"
_UNICAST = IPv6Network("2000::/3")
_OF_IPV4 = IPv6Network("64:ff9b::/96")
"""Where networks that have IPv6 alone show the addresses of IPv4 (RFC 6052)."""

_LOCAL_BITS = 8
"""Bits of the mask of a local network: a shorter one is that of a tunnel to everywhere."""

LookUp: TypeAlias = Callable[[str, int], Sequence[str]]
"""From a name and a port to addresses; raises OSError."""


@dataclass(frozen=True)
class Route:
    """Beginning of a program that uses a proxy: arguments before its own, variables, and what it has to see."""

    prefix: tuple[str, ...]
    """Before the path of the program and its arguments, whose first is its name."""
    environment: Mapping[str, str]
    binds: tuple[Bind, ...]


def route_through(proxy: Proxy) -> Route:
    """The way of a program through a proxy. Its network must be its own, with the loopback up."""
    place, ports = str(proxy.place), ",".join(map(str, (PORT, *proxy.relayed)))
    python, script = os.path.realpath(sys.executable), os.path.realpath(hand_over.__file__)
    installed = [] if _is_below(sys.base_prefix, "/usr") else [sys.base_prefix]
    if not any(_is_below(python, one) for one in ("/usr", sys.base_prefix)):
        installed.append(python)
    return Route(
        prefix=(python, "-I", "-S", f"{_INSIDE}/hand_over.py", f"{_INSIDE}/proxy", ports),
        environment=_environment(),
        binds=(
            Bind(place, f"{_INSIDE}/proxy"),
            Bind(script, f"{_INSIDE}/hand_over.py"),
            *(Bind(one, one) for one in installed),
        ),
    )


def _is_below(path: str, directory: str) -> bool:
    return Path(path).is_relative_to(directory)


def _environment() -> dict[str, str]:
    address = f"http://127.0.0.1:{PORT}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    # Not JAVA_TOOL_OPTIONS: each Java says on stderr that it has read it.
    java = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PORT}" for scheme in ("http", "https")
    )
    return {
        **{spelled: address for name in names for spelled in (name, name.upper())},
        **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
        "NODE_USE_ENV_PROXY": "1",  # fetch of Node.js 24 and later
        "MAVEN_OPTS": java,
        "GRADLE_OPTS": java,
    }


def is_public(text: str) -> bool:
    """True for an address of the internet: none of this machine, a local network, a group or a translation."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address not in _OF_IPV4:
            is_direct = address.sixtofour is None and address.teredo is None
            return address.scope_id is None and address in _UNICAST and address.is_global and is_direct
        address = IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_near(text: str) -> bool:
    """True for an address of this machine, or of a network that it reaches without a router, public or not."""
    address = ip_address(text)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((text, PORT))  # sends nothing; what leads back here begins at the address itself
        if ip_address(one.getsockname()[0]) == address:
            return True
    return any(address in network for network in _networks_around())


def _networks_around() -> Iterator[IPv4Network | IPv6Network]:
    with suppress(FileNotFoundError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            own, _, bits, *_ = line.split()
            yield IPv6Network((int(own, 16), int(bits, 16)), strict=False)
    with suppress(FileNotFoundError):
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            fields = line.split()
            place, router, mask = (socket.ntohl(int(fields[at], 16)) for at in (1, 2, 7))
            if not router and mask.bit_count() >= _LOCAL_BITS:
                yield IPv4Network((place, mask.bit_count()), strict=False)


def look_up(host: str, port: int) -> Sequence[str]:
    """Every address of a host, as the system of this machine finds it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Proxy:
    """Serves one program while the context is entered. `refused` may be read by any thread, also afterwards.

    With `relays`, the program finds those of the hosts that are at a port of this machine's loopback at the same port
    of its own, too: programs that speak http there use no proxy.
    """

    def __init__(
        self, hosts: Sequence[AllowedHost], place: Path, look_up: LookUp = look_up, *, relays: bool = False
    ) -> None:
        self.place = place
        """Its Unix socket, in a directory that no other user may search."""
        near = [one for one in hosts if relays and one.address and ip_address(one.address).is_loopback]
        self.relayed = {one.port: one.address for one in near if one.port and one.port not in {*_LOW, PORT}}
        """The address behind each port that is relayed."""
        self._hosts = hosts
        self._look_up = look_up
        self._refused: dict[str, None] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    @property
    def refused(self) -> tuple[str, ...]:
        """Targets that the program was not allowed, as `host:port`, with the address if that is why."""
        with self._lock:
            return tuple(self._refused)

    def __enter__(self) -> Self:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self.place.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            # A path of more than 107 bytes is refused.
            door.bind(f"/proc/self/fd/{directory}/{self.place.name}")
            os.chmod(self.place, 0o666)  # noqa: S103 -- a program may run as another user; the directory is private
            door.listen(1)
        except BaseException:
            door.close()
            raise
        finally:
            os.close(directory)
        self._keep(door)
        self._start(self._serve, door)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            threads = list(self._threads)
        self.place.unlink(missing_ok=True)
        until = time.monotonic() + _END_SECONDS
        for thread in threads:  # one may still look up a name
            thread.join(max(0.0, until - time.monotonic()))

    def _start(self, target: Callable[[socket.socket], None], one: socket.socket) -> None:
        thread = threading.Thread(target=self._attend, args=(target, one), name="proxy", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _attend(self, target: Callable[[socket.socket], None], one: socket.socket) -> None:
        try:
            target(one)
        except OSError:
            pass  # the other side is gone
        finally:
            self._close(one)
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _keep(self, one: socket.socket) -> None:
        """Have a socket shut down at the end. Raises OSError after it."""
        with self._lock:
            self._open.add(one)
            is_closed = self._is_closed
        if is_closed:
            self._close(one)
            raise ConnectionAbortedError

    def _close(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        one.close()

    def _serve(self, door: socket.socket) -> None:
        listeners = _handed_over(door, 1 + len(self.relayed))
        self._close(door)  # a program that finds it later is nobody's concern
        for listener, port in zip(listeners[1:], self.relayed, strict=False):
            self._keep(listener)
            self._start(partial(self._accept, answer=partial(self._relay, port)), listener)
        if listeners:
            self._keep(listeners[0])
            try:
                self._accept(listeners[0], self._answer)
            finally:
                self._close(listeners[0])

    def _accept(self, listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        """Answer all that connect, until the listener is closed."""
        while True:
            client = _accepted(listener)
            self._keep(client)
            with self._lock:
                is_full = len(self._threads) > MOST_CONNECTIONS + len(self.relayed)  # one of them is this
            if is_full:
                self._close(client)
            else:
                self._start(answer, client)

    def _relay(self, port: int, client: socket.socket) -> None:
        """Connect a client of the program's loopback with this machine."""
        server = socket.create_connection((self.relayed[port], port), CONNECT_SECONDS)
        self._keep(server)
        try:
            server.settimeout(None)
            _both_ways(client, server)
        finally:
            self._close(server)

    def _answer(self, client: socket.socket) -> None:
        read = _read_head(client)
        if read is None:
            return
        head, rest = read
        request = read_request(head)
        if isinstance(request, BadRequest):
            self._refuse(client, request)
            return
        server = self._judged(request)
        if isinstance(server, BadRequest):
            self._refuse(client, server)
            return
        self._keep(server)
        try:
            for one in (client, server):
                one.settimeout(None)
            if request.head is None:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
                _both_ways(client, server)
            elif not rest:
                server.sendall(request.head)
                _one_answer(client, server)
        finally:
            self._close(server)

    def _judged(self, request: ProxyRequest) -> socket.socket | BadRequest:
        """A connection to where the request leads, if it is allowed."""
        target = request.target
        host = host_of(self._hosts, request.host)
        if host is None:
            return BadRequest(403, f"{request.host} is not one of the hosts of commands.network", target)
        if request.port not in host.ports:
            ports = " and ".join(map(str, host.ports))
            return BadRequest(403, f"{request.host} may be reached at {ports} only", target)
        try:
            addresses = [host.address] if host.address else self._look_up(request.host, request.port)
        except OSError as error:
            return BadRequest(502, f"{request.host} cannot be looked up: {error.strerror or error}")
        for address in addresses if host.address is None else ():
            if (fault := None if is_public(address) else "not public") or is_near(address):
                why = f"{request.host} leads to {address}, which is {fault or 'of this machine or a network around it'}"
                return BadRequest(403, f"{why}: commands_network has to state it", f"{target} ({address})")
        return _connected(addresses, request)

    def _refuse(self, client: socket.socket, refused: BadRequest) -> None:
        if refused.target is not None:
            with self._lock:
                if len(self._refused) < _MOST_REFUSED:
                    self._refused[refused.target] = None
        said = f"{refused.why}\n".encode("ascii", "backslashreplace")
        client.sendall(
            f"HTTP/1.1 {refused.status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + said
        )
        _let_go(client)


def _handed_over(door: socket.socket, most: int) -> list[socket.socket]:
    """The listening sockets that the program's beginning gives to the proxy."""
    guest, _ = door.accept()
    with guest:
        guest.settimeout(HEAD_SECONDS)
        _, descriptors, _, _ = socket.recv_fds(guest, 1, most)
        listeners = [socket.socket(fileno=one) for one in descriptors]
        if listeners:
            guest.sendall(b".")
    return listeners


def _accepted(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return listener.accept()[0]
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            time.sleep(_REST_SECONDS)


def _read_head(client: socket.socket) -> tuple[bytes, bytes] | None:
    """The head of a request, and what came after it; None if it is too long, late or broken off."""
    until, read = time.monotonic() + HEAD_SECONDS, b""
    while (end := read.find(HEAD_END)) < 0:
        left = until - time.monotonic()
        if left <= 0 or len(read) > MOST_HEAD:
            return None
        client.settimeout(left)
        try:
            piece = client.recv(_CHUNK)
        except TimeoutError:
            return None
        if not piece:
            return None
        read += piece
    end += len(HEAD_END)
    return None if end > MOST_HEAD else (read[:end], read[end:])


def _connected(addresses: Sequence[str], request: ProxyRequest) -> socket.socket | BadRequest:
    said = "it has no address"
    for address in addresses:
        try:
            return socket.create_connection((address, request.port), CONNECT_SECONDS)
        except OSError as error:
            said = error.strerror or str(error)
    return BadRequest(502, f"{request.target} cannot be reached: {said}")


def _both_ways(client: socket.socket, server: socket.socket) -> None:
    """Copy between both sides until both have ended, or one has failed."""
    thread = threading.Thread(target=_copy, args=(client, server), name="proxy", daemon=True)
    thread.start()
    _copy(server, client)
    thread.join()


def _one_answer(client: socket.socket, server: socket.socket) -> None:
    """Copy what the server says until it ends, or until the client says more: no second request was judged."""
    thread = threading.Thread(target=_refuse_more, args=(client, server), name="proxy", daemon=True)
    thread.start()
    _copy(server, client)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RD)
    thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(_CHUNK):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _shut(source, target)


def _refuse_more(client: socket.socket, server: socket.socket) -> None:
    try:
        has_more = bool(client.recv(_CHUNK))
    except OSError:
        has_more = True
    if has_more:
        _shut(client, server)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _let_go(client: socket.socket) -> None:
    """Read what is still on its way for a moment: a socket that is closed before takes its answer back."""
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(1.0)
        left = 16
        while left and client.recv(_CHUNK):
            left -= 1
