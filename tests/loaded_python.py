"""Start Python programs as forks of an interpreter that has loaded the engine, which takes longer than most of them.

Each is a process of its own, and a child of the test's, with the arguments, descriptors, directory, environment and
session that the test gives it. What an interpreter does when it starts, or takes apart when it ends, is not repeated: a
test about that, or about when a module is imported, starts `sys.executable`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType
from typing import IO, NoReturn, Self, TypedDict

_PROJECT = Path(__file__).parent.parent
_LEFT_OUT = ("lcp_engine.__main__", "lcp_engine.features.programs.servers.mcp_bridge")
"""A program, and a module that takes long to import and that hardly any test starts."""
_MORE = (
    "sqlite3", "psycopg", "rich.markdown", "uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on",
)  # fmt: skip
"""What is imported only when it is used."""
_OF_THE_START = ("COV_", "COVERAGE_", "LC_", "LANG", "LD_", "MALLOC_", "PYTHON")
"""Prefixes of variables that only the start of a process reads, but for PYTHONPATH, which adds to sys.path."""
_EXECUTING = frozenset({"run", "work"})
"""Commands that execute jobs."""
_MESSAGE = 128 * 1024
_PATIENCE = 120.0
"""Seconds for the interpreter to load everything on a busy machine, and to end."""
_LONGEST_SECONDS = 600
"""After this, a program that a `with` statement began is killed: no test hangs because of it."""
_FORK_SERVER = """
import json, os, sys
control = os.dup(0)
os.dup2(1, 0)
os.environ.clear()
_, parent, sys.path[:], *given = json.loads(sys.argv[1])
from lcp_engine.runner.confined.server import main
main(control, parent, *given)
"""
"""A program that is given the socket of a fork server as its stdin."""
_CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of clone(2)."""
_CLONE_PARENT = 0x8000
_MADV_COLLAPSE = 25
_LARGE_PAGE = 2 * 1024 * 1024
_ONE_AT_A_TIME = threading.Lock()
"""Held while the interpreter starts, and from a request to its answer."""


class _Request(TypedDict):
    arguments: list[str]
    directory: str
    environment: dict[str, str]
    session: bool
    terminal: bool


class Python(subprocess.Popen[str]):
    """Like `subprocess.Popen([sys.executable, *arguments])` with text streams; they begin with -m, -c or a file.

    With `terminal`, it leads a session on the terminal that is its stdin.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[str] | None = None,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
        terminal: bool = False,
        start_new_session: bool = False,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        self._request: _Request = {
            "arguments": [*map(str, arguments)],
            "directory": str(cwd or Path.cwd()),
            "environment": environment,
            "session": terminal or start_new_session,
            "terminal": terminal,
        }
        super().__init__(
            [*(["setsid", "--ctty"] if terminal else []), sys.executable, *self._request["arguments"]],
            cwd=cwd, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, text=True,
            start_new_session=start_new_session,
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Whoever reads from a program that hangs reads its end at last."""
        self._ending = threading.Timer(_LONGEST_SECONDS, self.kill)
        self._ending.daemon = True
        self._ending.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end; after a failure, end it."""
        if kind is not None:
            self.kill()
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._ending.cancel()

    def _execute_child(self, *given: object) -> None:
        """What Popen calls once it has made the pipes, whose six descriptors are among the arguments."""
        environment = self._request["environment"]
        if _at_start(environment) != _at_start(os.environ) or _hides_modules(environment):
            super()._execute_child(*given)  # type: ignore[misc]  # private, and the same from Python 3.11 on
            return
        pipes = [descriptor for descriptor in given[10:16] if isinstance(descriptor, int)]
        theirs = [nth if pipes[at] == -1 else pipes[at] for nth, at in enumerate((0, 3, 5))]
        try:
            with _ONE_AT_A_TIME:
                self.pid = _loaded().fork(self._request, theirs)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # as above


def start_fork_server(
    process: int, command: list[str], *, pass_fds: tuple[int], stdin: int, stdout: int, stderr: int,
    env: Mapping[str, str], cwd: str,
    start_new_session: bool,
) -> subprocess.Popen[str] | subprocess.Popen[bytes]:  # fmt: skip
    """Start what the engine would start as an interpreter of its own, which takes a third of a second to load.

    A fork of the `process` would have to load another interpreter with everything first, which takes seconds: it starts
    what the engine would.
    """
    if os.getpid() != process:
        return subprocess.Popen(
            command, pass_fds=pass_fds, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd,
            start_new_session=start_new_session,
        )  # fmt: skip
    return Python(
        "-c", _FORK_SERVER, command[-1], stdin=pass_fds[0], stdout=stdout, stderr=stderr, env=_at_start(os.environ),
        cwd=Path(cwd), start_new_session=start_new_session,
    )  # fmt: skip


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if value and name != "PYTHONPATH" and name.startswith(_OF_THE_START)
    }


def _hides_modules(environment: Mapping[str, str]) -> bool:
    """Whether PYTHONPATH puts modules in the place of others, which may be loaded."""
    places = [Path(place) for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    files = [file for place in places for file in (*place.glob("*.py"), *place.glob("*/__init__.py"))]
    names = {file: (file.parent if file.name == "__init__.py" else file).stem for file in files}
    found = {file: find_spec(name) for file, name in names.items()}
    return any(spec.origin not in (None, str(file)) for file, spec in found.items() if spec)


class _Loaded:
    """The interpreter that is forked. It ends with this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd="/"
            )
        atexit.register(self.close)

    def fork(self, request: _Request, streams: list[int]) -> int:
        """Start a program with these standard streams; its process, which is a child of this one."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
        answer = self._socket.recv(_MESSAGE)
        assert answer, "the loaded interpreter has ended"
        return int(answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # a child that was forked may have a copy of it
        self._socket.close()
        self._process.wait(_PATIENCE)


@cache
def _loaded() -> _Loaded:
    return _Loaded()


def _load() -> None:
    import lcp_engine

    gc.disable()  # almost everything that is made here stays
    for found in pkgutil.walk_packages(lcp_engine.__path__, "lcp_engine."):
        if found.name not in _LEFT_OUT:
            import_module(found.name)
    for name in _MORE:
        import_module(name)
    from lcp_engine.sandbox.system.landlock import load_late
    from lcp_engine.store.db.statements import Statement
    from lcp_engine.web.context import make_templates

    load_late()
    for name in make_templates().list_templates():
        make_templates().get_template(name)
    for statement in gc.get_objects():
        if isinstance(statement, Statement):
            statement.sql("sqlite")
    gc.collect()
    gc.freeze()
    gc.enable()
    use_large_pages()


def use_large_pages() -> None:
    """Move what is loaded to large pages, if Linux can do that: each fork copies the table of all pages."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, _, _, file, *_ = line.split()
        start, end = (int(address, 16) // _LARGE_PAGE * _LARGE_PAGE for address in span.split("-"))
        if rights == "rw-p" and file == "0" and start + _LARGE_PAGE < end:
            first = ctypes.c_void_p(start + _LARGE_PAGE)
            ctypes.CDLL(None).madvise(first, ctypes.c_size_t(end - start - _LARGE_PAGE), _MADV_COLLAPSE)


def _serve(control: socket.socket) -> tuple[_Request, list[int]] | None:
    """Returns in each fork what it has to do, and None once nothing more is asked for."""
    while True:
        asked, streams, _, _ = socket.recv_fds(control, _MESSAGE, 3)
        if not asked:
            return None
        program = _fork_sibling()
        if program == 0:
            control.close()
            return json.loads(asked), streams
        control.send(b"%d" % program)
        for descriptor in streams:
            os.close(descriptor)


def _fork_sibling() -> int:
    """Like os.fork in a process of one thread, but the fork is a child of this process's parent."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    program: int = python.syscall(_CLONE[os.uname().machine], _CLONE_PARENT, 0, 0, 0, 0)
    if program == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    assert program > 0, "the loaded interpreter cannot be forked"
    return program


def take_streams(streams: Sequence[int]) -> None:
    """Make descriptors the standard streams of this process, for good."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115  # for good
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc] # noqa: SIM115


def _become(request: _Request, streams: Sequence[int]) -> None:
    take_streams(streams)
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [place for place in more if place not in {"", *sys.path}]
    time.tzset()


class _ForkServer:
    """The fork server of a program that executes jobs: a fork of it from before it began, without its streams.

    It is as empty as an interpreter of its own would be, which takes longer to load the engine than most tests.
    """

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            self._wait_for_work(theirs)
        theirs.close()

    def begin(self, given: str, control: int) -> None:
        """Do what the fork server of the engine does; `given` are its arguments, `control` is its socket."""
        socket.send_fds(self._control, [given.encode()], [control])
        self._control.close()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)

    def _wait_for_work(self, asked: socket.socket) -> NoReturn:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.setsid()
        os.chdir("/")
        os.environ.clear()
        try:
            given, descriptors, _, _ = socket.recv_fds(asked, _MESSAGE, 1)
            asked.close()
            if given:
                _, parent, sys.path[:], *more = json.loads(given)
                import_module("lcp_engine.runner.confined.server").main(descriptors[0], parent, *more)
        finally:
            os._exit(0)


def _with_fork_server() -> None:
    """The first fork server that this program starts is at hand; it starts others itself."""
    at_hand = [_ForkServer()]

    def popen(
        command: list[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int],
        env: dict[str, str],
        cwd: str,
        start_new_session: bool,
    ) -> object:
        if at_hand:
            at_hand[0].begin(command[-1], *pass_fds)
            return at_hand.pop()
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds, env=env, cwd=cwd,
            start_new_session=start_new_session,
        )  # fmt: skip

    instead = SimpleNamespace(DEVNULL=subprocess.DEVNULL, Popen=popen)
    vars(import_module("lcp_engine.runner.confined.process"))["subprocess"] = instead


def _run(arguments: list[str]) -> None:
    match arguments:
        case ["-m", name, *_]:
            sys.path[0] = str(Path.cwd())
            sys.argv[:] = arguments[1:]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case ["-c", code, *_]:
            sys.path[0] = ""
            sys.argv[:] = ["-c", *arguments[2:]]
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))  # that is what it is asked for
        case [file, *_]:
            sys.path[0] = str(Path(file).resolve().parent)
            sys.argv[:] = arguments
            runpy.run_path(file, run_name="__main__")


def _main(control: int) -> None:
    _load()
    found = _serve(socket.socket(fileno=control))
    if found is not None:
        request, streams = found
        _become(request, streams)
        if _EXECUTING.intersection(request["arguments"]):
            _with_fork_server()
        try:
            _run(request["arguments"])
        except SystemExit as ended:
            if not isinstance(ended.code, int | None):
                raise
            end(ended.code or 0)
        end(0)


def end(code: int) -> None:
    """End as an interpreter does, but without taking apart all that is loaded: that takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]  # private, and the same from Python 3.11 on
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # else it ends in the usual way, which says what could not be written
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
