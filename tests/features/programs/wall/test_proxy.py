"""Programs reach the hosts that they are allowed, through the proxy, and nothing else, whatever they ask it."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.tables import table

from lcp_engine.core.programs.network import AllowedHost
from lcp_engine.features.programs.wall.network.proxy import (
    MOST_CONNECTIONS,
    LookUp,
    Proxy,
    is_public,
    look_up,
    route_through,
)
from lcp_engine.features.programs.wall.network.proxy_request import MOST_HEAD

NAME = "registry.example"
SECONDS = 20.0


def works(prefix: Sequence[str]) -> bool:
    """True if a program runs after this prefix on this machine."""
    if shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0


class _Handler(http.server.BaseHTTPRequestHandler):
    files: Mapping[str, bytes]
    heads: list[str]

    def do_GET(self) -> None:
        self.heads.append(f"{self.requestline}\n{self.headers}")
        body = self.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header(
            "Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream"
        )
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *said: object) -> None:
        pass


@dataclass(frozen=True)
class Origin:
    """A server on the loopback of this machine."""

    port: int
    files: dict[str, bytes]
    heads: list[str]

    @property
    def allowed(self) -> AllowedHost:
        return AllowedHost(name=NAME, address="127.0.0.1", port=self.port)


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[Origin]:
    files: dict[str, bytes] = {"/hello": b"hello\n"}
    heads: list[str] = []
    handler = type("Handler", (_Handler,), {"files": files, "heads": heads})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Origin(server.server_address[1], files, heads)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and a certificate for the name of the server."""
    place = tmp_path_factory.mktemp("certificate")
    key, found = place / "key.pem", place / "found.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
         "-keyout", str(key), "-out", str(found)],
        check=True, capture_output=True,
    )  # fmt: skip
    both = place / "both.pem"
    both.write_text(key.read_text() + found.read_text())
    return both


@contextmanager
def reached(proxy: Proxy) -> Iterator[int]:
    """The port of a proxy that was given a socket of the loopback of this machine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door,
    ):
        door.connect(str(proxy.place))
        socket.send_fds(door, [b"."], [listener.fileno()])
        assert door.recv(1) == b"."
        yield listener.getsockname()[1]


def said(port: int, *pieces: bytes) -> bytes:
    """All that the proxy answers."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as client:
        answer = b""
        try:
            for piece in pieces:
                client.sendall(piece)
            while piece := client.recv(65536):
                answer += piece
        except ConnectionError:
            pass
        return answer


def unlooked(host: str, port: int) -> Sequence[str]:
    pytest.fail(f"{host}:{port} was looked up")


@contextmanager
def proxied(place: Path, *hosts: AllowedHost, find: LookUp = unlooked) -> Iterator[tuple[Proxy, int]]:
    with Proxy(hosts, place / "proxy", find) as proxy, reached(proxy) as port:
        yield proxy, port


def test_a_fetch_of_an_allowed_host_is_answered_and_the_server_sees_no_proxy(tmp_path: Path) -> None:
    with serving() as origin, proxied(tmp_path, origin.allowed) as (proxy, port):
        answer = said(
            port, f"GET http://{NAME}:{origin.port}/hello HTTP/1.1\r\nProxy-Authorization: x\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.0 200 OK")
        assert answer.endswith(b"hello\n")
        assert proxy.refused == ()
    assert origin.heads == [f"GET /hello HTTP/1.1\nhost: {NAME}:{origin.port}\nconnection: close\n\n"]


def test_bytes_go_both_ways_through_a_tunnel_and_its_ends_close_one_by_one(tmp_path: Path) -> None:
    much = os.urandom(1_000_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        allowed = AllowedHost(name=NAME, address="127.0.0.1", port=server.getsockname()[1])

        def play() -> None:
            with server.accept()[0] as peer, peer.makefile("rb") as reader:
                peer.sendall(reader.read()[::-1])  # to its end

        thread = threading.Thread(target=play)
        thread.start()
        with (
            proxied(tmp_path, allowed) as (_, port),
            socket.create_connection(("127.0.0.1", port), SECONDS) as client,
            client.makefile("rb") as reader,
        ):
            # What is sent along with the head belongs to the tunnel.
            client.sendall(f"CONNECT {NAME}:{allowed.port} HTTP/1.1\r\n\r\n".encode() + much[:10])
            assert reader.readline() == b"HTTP/1.1 200 Connection established\r\n"
            assert reader.readline() == b"\r\n"
            client.sendall(much[10:])
            client.shutdown(socket.SHUT_WR)
            assert reader.read() == much[::-1]
        thread.join(SECONDS)


@table(
    "target",
    ["evil.example:443", f"{NAME}:443", f"{NAME}:22", f"x.{NAME}:4873", "127.0.0.1:4873", "[::1]:4873",
     "2130706433:4873", "0x7f.1:4873", f"{NAME}.:4873", "localhost:4873"],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_name_without_a_look_up(tmp_path: Path, target: str) -> None:
    allowed = AllowedHost(name=NAME, address="127.0.0.1", port=4873)
    with proxied(tmp_path, allowed) as (proxy, port):
        for _ in range(2):
            assert said(port, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()).startswith(
                b"HTTP/1.1 403 Refused\r\n"
            )
        assert proxy.refused == (target,)


def test_refusals_are_counted_up_to_a_bound(tmp_path: Path) -> None:
    with proxied(tmp_path) as (proxy, port):
        for number in range(60):
            said(port, f"CONNECT a{number}.example:443 HTTP/1.1\r\n\r\n".encode())
        assert len(proxy.refused) == 50


@table(
    ("address", "is_one"),
    [
        ("93.184.215.14", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::5db8:d70e", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("192.0.2.1", False),
        ("198.18.0.1", False),
        ("224.0.0.1", False),
        ("239.255.255.250", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::7f00:1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.215.14", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::1", False),
        ("2001::1", False),
        ("2001:db8::1", False),
        ("2002:7f00:1::1", False),
        ("fc00::1", False),
        ("fd00:ec2::254", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("2606:2800:220:1::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("registry.example", False),
        ("", False),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, *, is_one: bool) -> None:
    assert is_public(address) is is_one


@table("addresses", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%lo"]])
def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(
    tmp_path: Path, addresses: list[str]
) -> None:
    with proxied(tmp_path, AllowedHost(name="*.local.example"), find=lambda host, port: addresses) as (
        proxy,
        port,
    ):
        answer = said(port, b"CONNECT a.local.example:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 Refused\r\n")
        assert f"a.local.example leads to {addresses[-1]}, which is not public".encode() in answer
        assert proxy.refused == (f"a.local.example:443 ({addresses[-1]})",)


REBINDING = """
import fcntl, socket, struct, sys, threading
from pathlib import Path
from lcp_engine.core.programs.network import AllowedHost
from lcp_engine.features.programs.wall.network.proxy import Proxy

OWN, AWAY, NAME = "93.184.215.14", "198.41.0.4", "registry.example"
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sH22x", b"lo", 0x49))
    fcntl.ioctl(any, 0x8916, struct.pack("16sH2s4s16x", b"lo:1", socket.AF_INET, b"", socket.inet_aton(OWN)))

def serve(address):
    server = socket.create_server((address, 443))
    def play():
        while True:
            with server.accept()[0] as peer:
                peer.sendall(address.encode())
    threading.Thread(target=play, daemon=True).start()

asked = []
def find(host, port):
    asked.append(host)
    return [(AWAY, "127.0.0.1", OWN)[len(asked) - 1]]

serve(OWN)
serve("127.0.0.1")
with Proxy([AllowedHost(name=NAME)], Path(sys.argv[1], "proxy"), find) as proxy:
    listener, door = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    door.connect(str(proxy.place))
    socket.send_fds(door, [b"."], [listener.fileno()])
    for _ in range(3):
        client = socket.create_connection(listener.getsockname(), 20)
        client.sendall(f"CONNECT {NAME}:443 HTTP/1.1\\r\\n\\r\\n".encode())
        print(client.makefile("rb").read().split(b"\\r\\n\\r\\n"))
    print(asked, proxy.refused)
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]


@pytest.mark.skipif(not works(UNSHARE), reason="no network of its own can be made here")
def test_the_address_that_was_judged_is_connected_to_whatever_the_name_leads_to_next(tmp_path: Path) -> None:
    """In a network that leads nowhere, whose loopback has a public address: a name that leads to that is refused."""
    command = [*UNSHARE, sys.executable, "-c", REBINDING, str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    first, second, third, last = ended.stdout.splitlines() or pytest.fail(ended.stderr)
    assert "registry.example:443 cannot be reached: Network is unreachable" in first
    assert "leads to 127.0.0.1, which is not public" in second
    assert "leads to 93.184.215.14, which is of this machine or a network around it" in third
    refused = tuple(f"registry.example:443 ({address})" for address in ("127.0.0.1", "93.184.215.14"))
    assert last == f"{[NAME] * 3} {refused}"


IN_A_NETWORK = """
import fcntl, socket, struct
from lcp_engine.features.programs.wall.network.proxy import is_near

place = socket.inet_pton(socket.AF_INET6, "2a00:1450::5")
with socket.socket() as any, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:
    fcntl.ioctl(any, 0x8914, struct.pack("16sH22x", b"lo", 0x49))
    fcntl.ioctl(six, 0x8916, struct.pack("16sIi", place, 64, socket.if_nametoindex("lo")))
print([is_near(one) for one in ("2a00:1450::5", "2a00:1450::6", "2a00:1450:0:1::5", "198.41.0.4")])
"""


@pytest.mark.skipif(not works(UNSHARE), reason="no network of its own can be made here")
def test_addresses_of_the_network_that_this_machine_is_in_are_near() -> None:
    command = [*UNSHARE, sys.executable, "-c", IN_A_NETWORK]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[True, True, False, False]\n"


def test_a_name_that_is_not_found_is_no_refusal(tmp_path: Path) -> None:
    def nothing(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with proxied(tmp_path, AllowedHost(name=NAME), find=nothing) as (proxy, port):
        answer = said(port, f"CONNECT {NAME}:443 HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 502 Refused\r\n")
        assert b"Name or service not known" in answer
        assert proxy.refused == ()


def test_the_system_finds_every_address_of_a_name() -> None:
    assert "127.0.0.1" in look_up("localhost", 80)


def test_a_second_request_on_a_connection_is_not_answered(tmp_path: Path) -> None:
    with serving() as origin, proxied(tmp_path, origin.allowed) as (_, port):
        one = f"GET http://{NAME}:{origin.port}/hello HTTP/1.1\r\n\r\n".encode()
        assert said(port, one + one) == b""
        assert said(port, one + b"GET /secret HTTP/1.1\r\n\r\n") == b""
        assert b"hello" in said(port, one)
    assert [head.splitlines()[0] for head in origin.heads] == ["GET /hello HTTP/1.1"]


@pytest.mark.parametrize("head", [b"A: " + b"b" * MOST_HEAD, b"CONNECT " + b"a" * 100_000])
def test_a_huge_head_is_dropped(tmp_path: Path, head: bytes) -> None:
    with proxied(tmp_path) as (_, port):
        assert said(port, b"CONNECT a.example:443 HTTP/1.1\r\n" + head + b"\r\n\r\n") == b""


def test_slow_heads_are_dropped_and_hold_no_more_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcp_engine.features.programs.wall.network.proxy.HEAD_SECONDS", 0.5)
    with serving() as origin, proxied(tmp_path, origin.allowed) as (_, port):
        slow = [socket.create_connection(("127.0.0.1", port), SECONDS) for _ in range(MOST_CONNECTIONS + 5)]
        for each in slow:
            each.send(b"G")
        for each in slow:
            with closing(each), suppress(ConnectionResetError):
                assert each.recv(1) == b""
        fetch = f"GET http://{NAME}:{origin.port}/hello HTTP/1.1\r\n\r\n".encode()
        wait_until(lambda: said(port, fetch).endswith(b"hello\n"))


def test_the_end_closes_what_is_open_and_removes_the_socket(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        allowed = AllowedHost(name=NAME, address="127.0.0.1", port=server.getsockname()[1])
        with proxied(tmp_path, allowed) as (proxy, port):
            client = socket.create_connection(("127.0.0.1", port), SECONDS)
            client.sendall(f"CONNECT {NAME}:{allowed.port} HTTP/1.1\r\n\r\n".encode())
            peer = server.accept()[0]
            assert client.recv(100).startswith(b"HTTP/1.1 200")
    with closing(client), closing(peer):
        assert client.recv(1) == b""
        assert peer.recv(1) == b""
    assert not proxy.place.exists()
    assert not [one for one in threading.enumerate() if one.name == "proxy"]


def test_a_proxy_that_no_program_came_to_ends(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with Proxy((), deep / "proxy") as proxy:
        assert proxy.place.is_socket()
    assert not [one for one in threading.enumerate() if one.name == "proxy"]


# -- Real clients, in a network of their own

BWRAP = [
    "bwrap", "--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/",
    "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run",
]  # fmt: skip


in_a_network = pytest.mark.skipif(not works(BWRAP), reason="bubblewrap makes no network here")


def run_inside(
    proxy: Proxy, *command: str, show: Sequence[Path] = (), variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    route = route_through(proxy)
    binds = [part for one in route.binds for part in ("--ro-bind", one.source, one.path)]
    shown = [part for one in show for part in ("--bind", str(one), str(one))]
    path = shutil.which(command[0]) or command[0]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/tmp",
        "LANG": "C",
        **route.environment,
        **(variables or {}),
    }
    return subprocess.run(
        [*BWRAP, *shown, *binds, "--", *route.prefix, path, *command],
        check=False, capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip


@in_a_network
def test_curl_reaches_the_allowed_host_by_tls_and_nothing_else(tmp_path: Path, certificate: Path) -> None:
    with serving(certificate) as origin, Proxy([origin.allowed], tmp_path / "proxy") as proxy:
        url = f"https://{NAME}:{origin.port}/hello"
        script = f"""
            curl -sS --cacert {certificate} {url}
            curl -sS https://evil.example/ 2>&1
            curl -sS --noproxy '*' https://127.0.0.1:{origin.port}/ 2>&1
            curl -sS http://169.254.169.254/latest/ 2>&1
            ps -e -o args= 2>/dev/null | grep hand_over || echo no process more
        """
        ended = run_inside(proxy, "sh", "-c", script, show=[certificate.parent])
        assert ended.stdout.startswith("hello\n"), ended
        assert "CONNECT tunnel failed, response 403" in ended.stdout
        assert "Failed to connect to 127.0.0.1" in ended.stdout
        assert "169.254.169.254 is not the name of a host" in ended.stdout
        assert proxy.refused == ("evil.example:443", "169.254.169.254:80")


@in_a_network
def test_python_reaches_the_allowed_host_by_tls(tmp_path: Path, certificate: Path) -> None:
    with serving(certificate) as origin, Proxy([origin.allowed], tmp_path / "proxy") as proxy:
        code = f"""
import ssl, urllib.request
context = ssl.create_default_context(cafile={str(certificate)!r})
print(urllib.request.urlopen("https://{NAME}:{origin.port}/hello", context=context).read())
try:
    urllib.request.urlopen("https://evil.example/")
except OSError as error:
    print(error)
"""
        ended = run_inside(proxy, sys.executable, "-c", code, show=[certificate.parent])
        assert ended.stdout == "b'hello\\n'\n<urlopen error Tunnel connection failed: 403 Refused>\n", ended
        assert proxy.refused == ("evil.example:443",)


@in_a_network
def test_the_program_is_begun_as_if_there_were_no_proxy(tmp_path: Path) -> None:
    with Proxy((), tmp_path / "proxy") as proxy:
        script = "echo $0 $#; trap; env | grep LC_; kill -PIPE $$"
        ended = run_inside(proxy, "bash", "-c", script, "a b", "")
        # Around the tests something may ignore SIGQUIT, such as a shell that runs them in the background.
        assert ended.returncode == 128 + 13
        assert [one for one in ended.stdout.splitlines() if "SIGQUIT" not in one] == ["a b 1"]
    with Proxy((), tmp_path / "proxy") as proxy:
        missing = run_inside(proxy, "/no/program")
        assert (missing.returncode, missing.stderr) == (127, "/no/program: No such file or directory\n")


@in_a_network
def test_without_its_proxy_a_program_is_not_begun(tmp_path: Path) -> None:
    with Proxy((), tmp_path / "proxy") as proxy:
        assert run_inside(proxy, "true").returncode == 0
        ended = run_inside(proxy, "true")  # a proxy serves one program
    assert ended.returncode == 126
    assert ended.stderr.startswith("the proxy cannot be reached: ")


@in_a_network
@pytest.mark.proof
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_installs_from_the_allowed_registry(tmp_path: Path, certificate: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"dependencies": {"tiny": "1.0.0"}}')
    with serving(certificate) as origin, Proxy([origin.allowed], tmp_path / "proxy") as proxy:
        registry = f"https://{NAME}:{origin.port}"
        packed = tar_of({"package/package.json": b'{"name": "tiny", "version": "1.0.0"}'})
        digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
        dist = {"tarball": f"{registry}/tiny.tgz", "integrity": f"sha512-{digest}"}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        found = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        origin.files.update({"/tiny": json.dumps(found).encode(), "/tiny.tgz": packed})
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(project),
            f"--registry={registry}/",
        ]
        variables = {"NODE_EXTRA_CA_CERTS": str(certificate)}
        ended = run_inside(proxy, *command, show=[project, certificate.parent], variables=variables)
    assert ended.returncode == 0, ended
    assert (project / "node_modules/tiny/package.json").exists()


@in_a_network
@pytest.mark.proof
def test_pip_installs_from_the_allowed_registry(tmp_path: Path, certificate: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with serving(certificate) as origin, Proxy([origin.allowed], tmp_path / "proxy") as proxy:
        wheel = "tiny-1.0-py3-none-any.whl"
        origin.files["/simple/tiny/"] = f'<a href="/{wheel}">{wheel}</a>'.encode()
        origin.files[f"/{wheel}"] = wheel_of("tiny", "1.0")
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(project / "lib"), "tiny",
                   "--index-url", f"https://{NAME}:{origin.port}/simple", "--cert", str(certificate)]  # fmt: skip
        ended = run_inside(proxy, *command, show=[project, certificate.parent])
    assert ended.returncode == 0, ended
    assert (project / "lib/tiny.py").exists()


def tar_of(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def wheel_of(name: str, version: str) -> bytes:
    packed, about = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return packed.getvalue()
