"""Foreign programs reach nothing but what they are given, keep to their bounds, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.walls import NEEDS_LANDLOCK

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program, can_act, descendants
from lcp_engine.runner.confined.process import spawner
from lcp_engine.sandbox.root import Root

pytestmark = NEEDS_LANDLOCK
PYTHON = (sys.base_prefix, sys.prefix)


@pytest.fixture(scope="module", autouse=True)
def _fork_server_of_its_own() -> Iterator[None]:
    """What a fork server has loaded counts as memory of the programs: here it is an interpreter, as for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lcp_engine.runner.confined.process.subprocess", subprocess)
        spawner().close()
        yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory of the program's own, beside one with a secret."""
    (tmp_path / "own").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("SECRET\n")
    return tmp_path


def run(place: Path, *command: str, bounds: Bounds | None = None, hidden: tuple[str, ...] = ()) -> Ended:
    own = str(place / "own")
    program = Program(
        command[0], command, own, {"PATH": "/usr/bin:/bin", "HOME": own}, (own,), PYTHON, hidden, bounds or Bounds()
    )  # fmt: skip
    with Root(own) as root:
        return run_program(root, program, (0, 1), ProgramsUnderWay())


def shell(place: Path, script: str, bounds: Bounds | None = None) -> Ended:
    return run(place, "/bin/sh", "-c", script, bounds=bounds)


def python(place: Path, script: str, bounds: Bounds | None = None) -> Ended:
    return run(place, sys.executable, "-c", script, bounds=bounds)


def test_exit_code_and_output_are_told(place: Path) -> None:
    ended = shell(place, "echo out; echo err >&2; exit 3")
    assert ended == Ended(exit_code=3, signal=None, stopped=None, stdout=b"out\n", stderr=b"err\n")
    assert shell(place, "kill -TERM $$").signal == signal.SIGTERM


def test_it_may_do_anything_in_its_own_directory(place: Path) -> None:
    script = "echo a > f; cp -p f g; mkdir d; mv f d/; ln -s d/f l; cat l; rm -r d; printf 'echo run' > s; sh s; ls"
    ended = shell(place, script)
    assert (ended.stdout, ended.stderr, ended.exit_code) == (b"a\nrun\ng\nl\ns\n", b"", 0)
    copying = "import shutil; open('a', 'w').write('x'); shutil.copy2('a', 'b'); print(open('b').read())"
    assert python(place, copying).stdout == b"x\n"


OUTSIDE = [
    "cat ../outside/secret",
    "ls ../outside",
    "cat /etc/shadow",
    "echo x > ../outside/new",
    "echo x >> ../outside/secret",
    "rm ../outside/secret",
    "mv ../outside/secret .",
    "ln ../outside/secret hard && cat hard",
    "ln -s ../outside/secret soft && cat soft",
    "truncate -s 0 ../outside/secret",
    "cat /proc/self/environ",
    "cat /proc/$PPID/environ",
    "mkdir ../outside/d",
    "cp /bin/sh ../outside/sh",
    "ls /tmp /root /home",
    "unshare --user --map-root-user true",
    "cat < /dev/tty",
]  # fmt: skip


@pytest.mark.parametrize("script", OUTSIDE)
def test_it_reaches_nothing_outside(place: Path, script: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in (place / "outside").rglob("*")}
    ended = shell(place, script)
    assert ended.exit_code != 0
    assert b"SECRET" not in ended.stdout
    assert {path: path.stat().st_mtime_ns for path in (place / "outside").rglob("*")} == before


@pytest.mark.parametrize("script", ["chmod 777 ../outside/secret", "touch -d 2001-01-01 ../outside/secret"])
def test_what_landlock_does_not_cover_has_no_effect(place: Path, script: str) -> None:
    secret = place / "outside" / "secret"
    before = secret.stat()
    shell(place, script)
    now = secret.stat()
    assert (now.st_mode, now.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK"])
def test_it_has_no_network(place: Path, family: str) -> None:
    ended = python(place, f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)")
    assert b"PermissionError" in ended.stderr


def test_it_cannot_signal_or_limit_other_processes(place: Path) -> None:
    script = f"import os, resource; print(os.getppid()); resource.prlimit({os.getpid()}, resource.RLIMIT_CPU, (1, 1))"
    assert b"PermissionError" in python(place, script).stderr
    assert b"PermissionError" in python(place, f"import os; os.kill({os.getpid()}, 0)").stderr


def test_it_inherits_no_descriptor(place: Path) -> None:
    """Those of its supervisor lead to the root, and to the runner."""
    script = "import os\nfor n in range(1024):\n try: os.fstat(n); print(n)\n except OSError: pass"
    assert python(place, script).stdout == b"0\n1\n2\n"


def test_its_environment_is_what_it_is_given(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCP_PLANNER_KEY", "sk-secret")
    names = {line.split(b"=")[0] for line in shell(place, "env").stdout.split(b"\n")}
    assert names <= {b"PATH", b"HOME", b"PWD", b"OLDPWD", b"SHLVL", b"_", b""}


@pytest.mark.parametrize(
    ("script", "bounds", "why"),
    [
        ("import time; time.sleep(60)", Bounds(seconds=0.5), "it ran for more than 0.5 s"),
        (
            "import subprocess; [subprocess.Popen(['sleep', '60']) for _ in range(20)]; import time; time.sleep(60)",
            Bounds(processes=10),
            "it had more than 10 processes",
        ),
        (
            "import os; [os.fork() for _ in range(2)]; x = bytearray(150 * 2**20); import time; time.sleep(60)",
            Bounds(memory=300 * 2**20),
            "it took more than 314,572,800 bytes of memory",
        ),
        (
            "import os, time; x = os.memfd_create('x')\nfor _ in range(150): os.write(x, bytes(2**20))\ntime.sleep(60)",
            Bounds(memory=100 * 2**20),
            "it took more than 104,857,600 bytes of memory",
        ),
        (
            "import time; open('big', 'wb').write(bytes(8_000_000)); time.sleep(60)",
            Bounds(written=4_000_000),
            "it wrote more than 4,000,000 bytes",
        ),
    ],
)
def test_what_breaks_its_bounds_is_stopped(place: Path, script: str, bounds: Bounds, why: str) -> None:
    ended = python(place, script, bounds)
    assert (ended.stopped, ended.exit_code, ended.signal) == (why, None, None)


def test_files_and_memory_are_limited(place: Path) -> None:
    small = Bounds(file_bytes=1024 * 1024, memory=200 * 2**20)
    assert shell(place, "head -c 4000000 /dev/zero > big", small).exit_code != 0
    assert (place / "own" / "big").stat().st_size == small.file_bytes
    assert b"MemoryError" in python(place, "bytearray(2**30)", small).stderr


def test_of_long_output_the_beginning_and_the_end_are_kept(place: Path) -> None:
    ended = python(place, "print('first'); print('x' * 1_000_000); print('last')")
    assert ended.stdout.startswith(b"first\nxxx")
    assert ended.stdout.endswith(b"xxx\nlast\n")
    assert b"\n[475724 bytes left out]\n" in ended.stdout
    assert len(ended.stdout) < 2 * 256 * 1024 + 40


LEAVES = "(setsid sleep 300 &); (setsid setsid sh -c 'sleep 300; echo' &); sleep 300 & echo done"


def test_nothing_that_it_started_is_left(place: Path) -> None:
    before = _sleepers()
    assert shell(place, LEAVES).stdout == b"done\n"
    assert _sleepers() == before


def test_a_process_that_is_dead_and_not_reaped_can_no_longer_act() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    assert can_act(child)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert child in descendants(os.getpid())
    assert not can_act(child)
    os.waitpid(child, 0)


def test_it_ends_with_whoever_waits_for_it(place: Path) -> None:
    """As when the runner is killed: the fork server notices, and takes all with it."""
    before = _sleepers()

    def wait() -> None:
        with suppress(LcpError):
            shell(place, f"{LEAVES}; wait")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_until(lambda: _sleepers() - before, "it has started nothing")
    spawner().close()
    thread.join(30)
    until = time.monotonic() + 30
    while _sleepers() - before and time.monotonic() < until:
        time.sleep(0.05)
    assert _sleepers() == before


def test_a_place_that_holds_something_hidden_is_not_readable(place: Path) -> None:
    assert run(place, "/bin/ls", "/opt").exit_code == 0
    assert run(place, "/bin/ls", "/opt", hidden=("/opt/somebody/.config",)).exit_code != 0


def test_the_whole_file_system_is_never_readable(place: Path) -> None:
    own = str(place / "own")
    secret = str(place / "outside" / "secret")
    program = Program("/bin/cat", ("cat", secret), own, {}, (own,), ("/",), (str(place / "outside"),))
    with Root(own) as root:
        assert run_program(root, program, (0, 1), ProgramsUnderWay()).stdout == b""


@pytest.mark.parametrize("path", ["/nowhere/program", "/etc/passwd"])
def test_what_cannot_be_started_is_said(place: Path, path: str) -> None:
    with pytest.raises(LcpError, match="cannot be started") as refused:
        run(place, path)
    assert refused.value.code is ErrorCode.FILE_SYSTEM


def test_a_process_that_is_not_there_has_no_descendants() -> None:
    assert descendants(2**22 + 1) == []


def _sleepers() -> set[str]:
    """The processes that sleep for as long as those of the tests."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes() == b"sleep\x00300\x00":
                found.add(file.parent.name)
        except OSError:
            continue
    return found
