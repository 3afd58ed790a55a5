"""Calls that Landlock does not cover act as outside beneath a program's own directories, and fail elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tables import table
from tests.walls import NEEDS_LANDLOCK

from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program
from lcp_engine.sandbox.root import Root

pytestmark = NEEDS_LANDLOCK
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}


def run(own: Path, *command: str, seconds: float = 60) -> Ended:
    environment = {**ENVIRONMENT, "HOME": str(own), "TMPDIR": str(own)}
    places = (sys.base_prefix, sys.prefix)
    bounds = Bounds(seconds=seconds)
    program = Program(command[0], command, str(own), environment, (str(own),), places, bounds=bounds)
    with Root(own) as root:
        return run_program(root, program, (0, 1), ProgramsUnderWay())


def shell(own: Path, script: str) -> Ended:
    return run(own, "/bin/sh", "-c", script)


def python(own: Path, script: str) -> Ended:
    return run(own, sys.executable, "-c", script)


AS_OUTSIDE = [
    "touch new; ls",
    "chmod 640 f; stat -c %a f; chmod 000 d; stat -c %a d; chmod 755 d",
    "chmod 600 missing",
    "touch -d 2001-02-03T04:05:06.123456789Z f; stat -c %Y.%y f",
    "touch -d 1905-01-01 f; stat -c %Y f; touch -a f; stat -c %Y f; touch -m -d @7 f; stat -c %Y f",
    "cp -p f g; stat -c '%a %y' f >1; stat -c '%a %y' g >2; diff 1 2 && echo same",
    "ln -s f l; touch -h -d @5 l; stat -c '%Y %F' l; chmod 604 l; stat -c %a f; touch -d @9 l; stat -Lc %Y l",
    "ln -s missing l; chmod 600 l; touch -c -d @9 l; touch -h -d @9 l; stat -c %Y l",
    "ln -s l l; chmod 600 l",
    "ln -s $PWD/d abs; chmod 700 abs; stat -c %a d; chmod 711 abs/../d/.; stat -c %a d; chmod 755 d",
    "install -m 751 f i; stat -c %a i; install -d -m 700 e; stat -c %a e",
    "mkdir t; echo 1 > t/1; ln -s 1 t/l; chmod g+s t; tar cf t.tar t; mkdir x; tar xpf t.tar -C x; cat x/t/l",
    "chmod 2750 d; cp -a d e; stat -c '%a %y' d >1; stat -c '%a %y' e >2; diff 1 2 && echo same",
    "mkfifo p; stat -c %F p; mknod q p; stat -c %F q; truncate -s 3 f; stat -c %s f",
    "nice -n 3 nice; renice -n 5 $$ >/dev/null; nice; taskset -c 0 nproc; prlimit --pid $$ --core=0:0; ulimit -c",
    "setarch -R true; echo $?; chown $(id -u):$(id -g) f; echo $?; chgrp -h $(id -g) f; echo $?",
    "cd d; chmod 710 ../f; stat -c %a ../f; chmod 750 .; stat -c %a .; chmod 755 .",
    'chmod 604 "$(printf "with\\nnewline")"; stat -c %a with*',
    "perl -e 'print utime(1, 2, \"f\"), (stat \"f\")[9], chmod(0600, \"f\", \"missing\"), $!'",
]  # fmt: skip


@table("script", AS_OUTSIDE)
def test_a_shell_prints_the_same_inside_and_outside(tmp_path: Path, script: str) -> None:
    outside, inside = (
        _made(tmp_path / f"{name}{AS_OUTSIDE.index(script)}") for name in ("outside", "inside")
    )
    environment = {**ENVIRONMENT, "HOME": str(outside), "TMPDIR": str(outside)}
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=outside, env=environment, capture_output=True, check=False, timeout=60
    )
    ended = shell(inside, script)
    assert (ended.stdout, ended.stderr, ended.exit_code) == (done.stdout, done.stderr, done.returncode)


def _made(own: Path) -> Path:
    (own / "d").mkdir(parents=True)
    for name in ("f", "with\nnewline"):
        (own / name).write_text("text\n")
        os.utime(own / name, ns=(1, 1_600_000_000_123_456_789))
    return own


def test_python_changes_files_by_path_and_by_descriptor(tmp_path: Path) -> None:
    script = """
import os, pathlib, shutil, stat
def mode(path): return oct(stat.S_IMODE(os.lstat(path).st_mode))
pathlib.Path("new").touch()
print(os.path.exists("new"), end=" ")
try: os.chmod("missing", 0o600)
except FileNotFoundError: print("missing", end=" ")
here = os.open(".", os.O_RDONLY)
file = os.open("new", os.O_RDONLY)
os.chmod("new", 0o611, dir_fd=here); print(mode("new"), end=" ")
os.fchmod(file, 0o622); print(mode("new"), end=" ")
os.chmod(f"/proc/self/fd/{file}", 0o633); print(mode("new"), end=" ")
os.chmod(f"/dev/fd/{file}", 0o644); print(mode("new"), end=" ")
os.chmod(f"/proc/{os.getpid()}/cwd/new", 0o655); print(mode("new"), end=" ")
os.utime(file, ns=(5, 7)); print(os.stat("new").st_mtime_ns, end=" ")
os.utime("new", ns=(5, 8), dir_fd=here); print(os.stat("new").st_mtime_ns, end=" ")
os.fchown(file, -1, -1); os.lchown("new", os.getuid(), -1); os.chown("new", -1, os.getgid())
shutil.copy2("new", "copy"); print(os.stat("copy").st_mtime_ns, mode("copy"), end=" ")
nameless = os.open(".", os.O_TMPFILE | os.O_RDWR); os.fchmod(nameless, 0o600)
os.unlink("copy"); os.fchmod(file, 0o600)
os.setresuid(-1, os.geteuid(), -1); os.setuid(os.getuid()); os.setregid(-1, -1)
print("done")
"""
    ended = python(tmp_path, script)
    shown = b"True missing 0o611 0o622 0o633 0o644 0o655 7 8 8 0o655 done\n"
    assert (ended.stdout, ended.stderr) == (shown, b"")


@pytest.mark.skipif(
    shutil.which("make") is None or shutil.which("gcc") is None, reason="make or gcc is missing"
)
def test_make_builds_what_is_out_of_date_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("run: calc\n\t./calc\ncalc: calc.c\n\tgcc -o calc calc.c\n")
    (tmp_path / "calc.c").write_text('#include <stdio.h>\nint main(void) { puts("1"); return 0; }\n')
    assert run(tmp_path, "/usr/bin/make").stdout == b"gcc -o calc calc.c\n./calc\n1\n"
    assert run(tmp_path, "/usr/bin/make").stdout == b"./calc\n1\n"
    edited = (tmp_path / "calc").stat().st_mtime_ns + 1
    (tmp_path / "calc.c").write_text('#include <stdio.h>\nint main(void) { puts("2"); return 0; }\n')
    os.utime(tmp_path / "calc.c", ns=(edited, edited))
    assert run(tmp_path, "/usr/bin/make").stdout == b"gcc -o calc calc.c\n./calc\n2\n"


def test_unix_sockets_connect_beneath_its_own_directories(tmp_path: Path) -> None:
    script = """
import os, socket, threading
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(0)
os.symlink("s", "link")
def serve():
    for _ in range(40):
        one, _ = server.accept(); one.sendall(one.recv(9)); one.close()
threading.Thread(target=serve, daemon=True).start()
def ask(path):
    one = socket.socket(socket.AF_UNIX); one.connect(path); one.sendall(b"hi"); said.append(one.recv(9)); one.close()
said = []
asking = [threading.Thread(target=ask, args=(path,)) for path in ("s", os.path.abspath("link")) * 20]
[one.start() for one in asking]; [one.join() for one in asking]
print(said.count(b"hi"), end=" ")
def refused(path, kind=socket.SOCK_STREAM):
    try: socket.socket(socket.AF_UNIX, kind).connect(path)
    except OSError as error: return error.errno
print(refused("missing"), refused("f"), refused("\\0abstract"), refused("s", socket.SOCK_SEQPACKET))
"""
    (tmp_path / "f").touch()
    ended = python(tmp_path, script)
    assert (ended.stdout, ended.stderr) == (b"40 2 111 1 91\n", b"")


def test_a_connection_that_finds_no_room_waits_or_is_told(tmp_path: Path) -> None:
    """The supervisor, which makes it, goes on meanwhile."""
    script = """
import os, socket, threading, time
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(0)
first = socket.socket(socket.AF_UNIX); first.connect("s")
quick = socket.socket(socket.AF_UNIX); quick.setblocking(False)
try: quick.connect("s")
except BlockingIOError: print("full", end=" ")
slow = socket.socket(socket.AF_UNIX)
waiting = threading.Thread(target=slow.connect, args=("s",)); waiting.start()
os.chmod("s", 0o700); print("others go on", end=" ")
server.accept(); waiting.join()
print(slow.getpeername(), slow.getblocking())
"""
    ended = python(tmp_path, script)
    assert (ended.stdout, ended.stderr) == (b"full others go on s True\n", b"")


def test_a_program_whose_name_is_no_text_ends_no_supervisor(tmp_path: Path) -> None:
    script = """
import ctypes, os, socket
ctypes.CDLL(None).prctl(15, b"\\xff\\xfe", 0, 0, 0)
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(1)
socket.socket(socket.AF_UNIX).connect("s")
child = os.fork() or os._exit(os.execvp("sleep", ["sleep", "5"]))
os.setpriority(os.PRIO_PROCESS, child, 7)
print(os.getpriority(os.PRIO_PROCESS, child))
"""
    ended = python(tmp_path, script)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, b"7\n", b"")


def test_a_program_that_calls_without_end_is_stopped_in_time(tmp_path: Path) -> None:
    script = """
import os, threading
open("f", "w").close()
def call():
    while True: os.chmod("f", 0o600)
for _ in range(8): threading.Thread(target=call).start()
"""
    ended = run(tmp_path, sys.executable, "-c", script, seconds=1)
    assert ended.stopped == "it ran for more than 1 s"
