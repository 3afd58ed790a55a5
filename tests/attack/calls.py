"""Have confined programs misuse the calls that their supervisor makes for them, to change what is not theirs."""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program, cannot_confine
from lcp_engine.sandbox.root import Root

PRELUDE = """
import array, ctypes, errno, fcntl, mmap, os, platform, shutil, signal, socket, stat, struct, sys, threading, time
OUT, READ, VICTIM = sys.argv[1], sys.argv[2], int(sys.argv[3])
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"fchmodat": (268, 53), "fchmodat2": (452, 452), "fchownat": (260, 54), "utimensat": (280, 88),
    "connect": (42, 203), "openat": (257, 56), "openat2": (437, 437), "mknodat": (259, 33), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "file_setattr": (469, 469), "fchmod": (91, 52), "prctl": (157, 167)}
HERE, NO_FOLLOW, EMPTY = -100, 0x100, 0x1000
def call(name, *given):
    "Returns what the call does, or its error as a negative number."
    number = NUMBERS[name][platform.machine() != "x86_64"]
    long = [ctypes.c_long(one) if isinstance(one, int) else one for one in given]
    found = LIBC.syscall(ctypes.c_long(number), *long)
    return found if found >= 0 else -ctypes.get_errno()
def attempt(act, *given, **more):
    try: return act(*given, **more)
    except OSError as error: return -error.errno
    except (TypeError, ValueError, NotImplementedError): return None
def all_of(path, **more):
    attempt(os.chmod, path, 0o777, **more); attempt(os.utime, path, (1, 1), **more)
    attempt(os.chown, path, os.getuid(), os.getgid(), **more); attempt(os.chown, path, -1, -1, **more)
    attempt(os.truncate, path, 0) if not more else None
    attempt(os.setxattr, path, "user.a", b"b") if not more else None
def meanwhile(act):
    over = threading.Event()
    def repeat():
        while not over.is_set(): act()
    threading.Thread(target=repeat, daemon=True).start()
    return over
"""

ATTACKS: Mapping[str, str] = {
    "a path that another thread swaps in memory": """
own, other = b"own-file".ljust(200, b"\\0"), f"{OUT}/victim".encode().ljust(200, b"\\0")
buffer = ctypes.create_string_buffer(own, 200)
over = meanwhile(lambda: (ctypes.memmove(buffer, other, 200), ctypes.memmove(buffer, own, 200)))
open("own-file", "w").close()
found = {call("fchmodat", HERE, buffer, 0o777) for _ in range(1500)}
found |= {call("utimensat", HERE, buffer, None, 0) for _ in range(1500)}
over.set()
assert found <= {0, -errno.EPERM, -errno.ENOENT}, found
""",
    "a link that another thread swaps": """
open("own-file", "w").close(); os.mkdir("dir"); open("dir/victim", "w").close()
def swap():
    for name, target in (("l", "own-file"), ("l", f"{OUT}/victim"), ("d", "dir"), ("d", OUT)):
        os.symlink(target, "next"); os.replace("next", name)
swap(); over = meanwhile(swap)
for _ in range(400): all_of("l"); all_of("d/victim"); attempt(os.chmod, "d", 0o777)
over.set()
""",
    "a descriptor that another thread swaps": """
own, other = os.open("own-file", os.O_CREAT | os.O_RDWR), os.open(f"{OUT}/victim", os.O_PATH)
number = os.dup(own)
over = meanwhile(lambda: (os.dup2(other, number), os.dup2(own, number)))
for _ in range(1500): attempt(os.fchmod, number, 0o777); attempt(os.utime, number, (1, 1))
over.set()
""",
    "descriptors that lead out": """
for path in (f"{OUT}/victim", OUT, f"{OUT}/link", "/", READ):
    one = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    for name in (f"/proc/self/fd/{one}", f"/proc/thread-self/fd/{one}", f"/dev/fd/{one}", one): all_of(name)
    for flags in (EMPTY, EMPTY | NO_FOLLOW):
        call("fchmodat2", one, b"", 0o777, flags); call("fchownat", one, b"", -1, -1, flags)
        call("utimensat", one, b"", None, flags)
    call("utimensat", one, None, None, 0); call("fchmod", one, 0o777)
    for name in ("victim", "../outside/victim", f"/proc/self/fd/{one}/victim"): all_of(name, dir_fd=one)
""",
    "descriptors of what may be read": """
for path in (f"{READ}/lib", READ):
    one = os.open(path, os.O_RDONLY); all_of(one); all_of(f"/proc/self/fd/{one}")
    attempt(os.fchmod, one, 0o777); attempt(os.fchown, one, -1, -1); attempt(os.setxattr, one, "user.a", b"b")
    flags = struct.pack("=q", 0x80 | 0x40)
    for number in (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40806685, 0xC0185879, 0x5000940E, 0x4020660D):
        attempt(fcntl.ioctl, one, number, flags.ljust(128, b"\\0"))
    call("file_setattr", HERE, path.encode(), ctypes.create_string_buffer(32), 32, 0)
""",
    "paths out": """
OTHERS = "../outside/victim", "./../own/../outside//victim", "../own-beside/victim"
for path in (f"{OUT}/victim", *OTHERS, f"{OUT}/link"):
    all_of(path)
os.chdir(OUT); all_of("victim"); all_of("."); all_of("../readable/lib"); all_of(f"/proc/self/cwd/victim")
os.symlink(OUT, f"{os.environ['HOME']}/out"); all_of(f"{os.environ['HOME']}/out/victim")
""",
    "paths through /proc": """
for who in ("self", "thread-self", os.getpid(), os.getppid(), f"self/task/{os.getpid()}", 1, VICTIM):
    for what in ("root", "cwd", *(f"fd/{number}" for number in range(16))):
        for rest in ("", OUT, f"{OUT}/victim", "/../outside/victim", "/victim"): all_of(f"/proc/{who}/{what}{rest}")
for number in range(24): all_of(f"/proc/self/fd/{number}"); all_of(f"/dev/fd/{number}"); all_of(number)
""",
    "names that are linked or moved in": """
for path in (f"{OUT}/victim", f"{READ}/lib"):
    for act in (os.link, os.rename):
        attempt(act, path, "mine"); all_of("mine") if os.path.lexists("mine") else None
    one = os.open(path, os.O_PATH); attempt(os.link, f"/proc/self/fd/{one}", "mine", follow_symlinks=True)
    all_of("mine") if os.path.lexists("mine") else None
""",
    "a directory that is moved out": """
os.mkdir("moving"); open("moving/victim", "w").close()
directory, file = os.open("moving", os.O_RDONLY), os.open("moving/victim", os.O_RDWR)
os.chdir("moving"); open(f"{os.environ['HOME']}/move", "w").close()
for _ in range(1000):
    if os.path.exists(f"{os.environ['HOME']}/moved"): break
    time.sleep(0.01)
else: raise SystemExit("nothing was moved")
all_of("victim"); all_of("victim", dir_fd=directory); all_of("."); all_of(f"/proc/self/cwd/victim"); all_of("../own/x")
assert attempt(os.fchmod, file, 0o777) == attempt(os.chmod, "victim", 0o777) == -errno.EPERM
""",
    "memory that is not there": """
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * page); start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
memory.write(b"x" * 3 * page)
LIBC.mprotect(ctypes.c_void_p(start + 2 * page), page, 0); LIBC.munmap(ctypes.c_void_p(start + 2 * page), page)
def at(place): return call("fchmodat", HERE, place, 0o777)
for place in (0, 8, -8, -1, 1 << 62, (1 << 63) - 1, 1 << 63, start + 2 * page): assert at(place) == -errno.EFAULT
assert (at(start), at(start + page + 9)) == (-errno.ENAMETOOLONG if page == 4096 else at(start), -errno.EFAULT)
open("f", "w").close()
for times in (8, -8, start + 2 * page - 16): assert call("utimensat", HERE, b"f", times, 0) == -errno.EFAULT, times
assert call("utimensat", HERE, 0, None, 0) == -errno.EFAULT
assert call("utimensat", HERE, b"f", struct.pack("=4q", 0, 10**9, 0, -1), 0) == -errno.EINVAL
assert call("utimensat", HERE, b"f", struct.pack("=4q", 5, (1 << 30) - 2, 5, (1 << 30) - 2), 0) == 0
assert call("fchmodat2", HERE, b"f", 0o777, 0x800) == call("fchownat", HERE, b"f", -1, -1, 1) == -errno.EINVAL
assert call("fchmodat", HERE, b"", 0o777) == -errno.ENOENT
assert call("fchmod", -1, 0o777) == call("fchmod", 1 << 30, 0o777) == call("fchmodat", 999, b"f", 0) == -errno.EBADF
""",
    "a path that is too long for its name": """
deep = os.open(".", os.O_RDONLY)
for _ in range(30):
    os.mkdir("d" * 200, dir_fd=deep); inner = os.open("d" * 200, os.O_RDONLY, dir_fd=deep); os.close(deep)
    deep = inner
os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=deep))
assert call("fchmodat", deep, b"f", 0o777) == -errno.ENAMETOOLONG and os.stat("f", dir_fd=deep).st_mode & 0o777 == 0o600
shutil.rmtree("d" * 200)
""",
    "programs that would run as their owner": """
for mode in (0o4755, 0o2755, 0o6755):
    for act in (lambda: os.open("a", os.O_CREAT | os.O_WRONLY, mode),
                lambda: os.open(".", os.O_TMPFILE | os.O_RDWR, mode),
                lambda: os.mknod("b", stat.S_IFREG | mode), lambda: LIBC.creat(b"c", mode) < 0 and os.stat("missing")):
        assert attempt(act) in (-errno.EPERM, -errno.ENOENT), act
    call("openat2", HERE, b"e", struct.pack("=3Q", os.O_CREAT | os.O_WRONLY, mode, 0), 24)
    open("f", "w").close()
    with open("f", "r+") as file: assert attempt(os.fchmod, file.fileno(), mode) == -errno.EPERM
    assert attempt(os.chmod, "f", mode) == call("fchmodat2", HERE, b"f", mode, NO_FOLLOW) == -errno.EPERM
""",
    "messages without a connection": """
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK):
    for make in (socket.socketpair, socket.socket): assert attempt(make, socket.AF_UNIX, kind) == -errno.EPERM
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    for one in (*socket.socketpair(socket.AF_UNIX, kind), socket.socket(socket.AF_UNIX, kind)):
        for path in (f"{OUT}/datagrams", f"{OUT}/stream"):
            attempt(one.sendto, b"x", path); attempt(one.sendmsg, [b"x"], [], socket.MSG_NOSIGNAL, path)
            attempt(one.connect, path); attempt(one.sendto, b"x", socket.MSG_OOB, path)
""",
    "connections out": """
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(200)
os.symlink(f"{OUT}/stream", "out"); attempt(socket.socket(socket.AF_UNIX).connect, "out")
for path in (f"{OUT}/stream", "../outside/stream", f"/proc/self/cwd/../outside/stream", "\\0abstract"):
    assert attempt(socket.socket(socket.AF_UNIX).connect, path) == -errno.EPERM
def address(path): return struct.pack("=H", 1) + path.encode().ljust(108, b"\\0")
own, other = address("s"), address("../outside/stream")
buffer = ctypes.create_string_buffer(own, 110)
def swap():
    for target in ("s", f"{OUT}/stream"): os.symlink(target, "next"); os.replace("next", "l")
    ctypes.memmove(buffer, other, 110); ctypes.memmove(buffer, own, 110)
swap(); over = meanwhile(swap)
for _ in range(90):
    for given in (buffer, address("l")):
        with socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False); call("connect", one.fileno(), given, 110)
over.set()
SIZES = (own, 0), (own, -1), (own, 1 << 20), (own, 2)
for given, size in ((None, 110), (8, 110), (b"\\1", 1), *SIZES, (b"\\2" + own, 16)):
    assert call("connect", server.fileno(), given, size) in (-errno.EFAULT, -errno.EINVAL), size
assert call("connect", 1, own, 110) == -errno.ENOTSOCK and call("connect", -1, own, 110) == -errno.EBADF
""",
    "processes that are not its own": """
for which in (0, 1, 2):
    for who in (VICTIM, os.getppid(), 1):
        call("setpriority", which, who, 7); call("ioprio_set", which + 1, who, 3 << 13)
for who in (VICTIM, os.getppid()):
    for act in (lambda: os.sched_setaffinity(who, {0}), lambda: os.sched_setparam(who, os.sched_param(0)),
                lambda: os.sched_setscheduler(who, os.SCHED_BATCH, os.sched_param(0))):
        assert attempt(act) == -errno.EPERM
""",
    "processes that die in the middle": """
open("f", "w").close()
def hammer():
    while True: attempt(os.chmod, "f", 0o600); attempt(os.utime, "f")
for round in range(12):
    child = os.fork()
    if child == 0:
        for _ in range(3): threading.Thread(target=hammer, daemon=True).start()
        time.sleep(0.01 * (round % 3)); os.execv("/bin/true", ["true"]) if round % 2 else time.sleep(9)
    time.sleep(0.02); os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
os.chmod("f", 0o640); assert os.stat("f").st_mode & 0o777 == 0o640
""",
    "a process that cannot be looked into": """
open("f", "w").close(); call("prctl", 4, 0, 0, 0, 0)
assert attempt(os.chmod, "f", 0o640) in (None, -errno.EPERM); all_of(f"{OUT}/victim")
""",
    "directories that are gone": """
os.mkdir("d"); here = os.open("d", os.O_RDONLY); os.chdir("d"); os.rmdir("../d")
for path in (".", "..", "../../outside/victim", "f"): all_of(path); all_of(path, dir_fd=here)
""",
}  # fmt: skip


@dataclass
class Place:
    """A directory of the program's own beside what is not: files that it may read, or not, and sockets."""

    top: Path
    datagrams: socket.socket
    stream: socket.socket

    @property
    def own(self) -> Path:
        return self.top / "own"

    def state(self) -> dict[str, tuple[int, ...]]:
        """Everything that a change of what is not the program's would change."""
        outside = ("outside", "readable", "own-beside")
        found = [
            self.top,
            *(path for name in outside for path in ((self.top / name), *(self.top / name).rglob("*"))),
        ]
        return {str(path): _stamp(path) for path in found}

    def was_reached(self) -> bool:
        """True if something came to a socket outside."""
        for act in (lambda: self.datagrams.recv(1), self.stream.accept):
            with suppress(BlockingIOError):
                act()
                return True
        return False


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def made_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="lcp-attacked-") as directory, ExitStack() as stack:
        top = Path(directory).resolve()
        for name in ("own/home", "outside", "readable", "own-beside"):
            (top / name).mkdir(parents=True)
        for name in ("outside/victim", "readable/lib", "own-beside/victim"):
            (top / name).write_text("as it was\n")
        (top / "outside" / "link").symlink_to("victim")
        sockets = [socket.socket(socket.AF_UNIX, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
        for one, name in zip(sockets, ("datagrams", "stream"), strict=True):
            stack.enter_context(one)
            one.bind(str(top / "outside" / name))
            one.setblocking(False)
        sockets[1].listen(200)
        yield Place(top, *sockets)


def attempt(script: str, *, owns_all: bool = False) -> tuple[Ended, list[str]]:
    """Run a script, and tell what it did to what is not its own."""
    with made_place() as place:
        mover = threading.Thread(target=_move_out, args=(place,), daemon=True)
        mover.start()
        before, ranks = place.state(), (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))
        ended = _run(place, script, owned=place.top if owns_all else place.own)
        (place.own / "home" / "over").touch()
        mover.join(10)
        now = {name: stamp for name, stamp in place.state().items() if "/moving" not in name}
        if (place.top / "outside" / "moving").exists():  # that has changed the directory
            before.pop(str(place.top / "outside")), now.pop(str(place.top / "outside"))
        found = [name for name in {*before, *now} if before.get(name) != now.get(name)]
        if (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)) != ranks:
            found.append("this process")
        if place.was_reached():
            found.append("a socket")
        found += [f"{path} is setuid" for path in place.own.rglob("*") if _runs_as_owner(path)]
        victim = place.top / "outside" / "moving" / "victim"
        if victim.exists() and stat.S_IMODE(victim.stat().st_mode) == 0o777:
            found.append("what was moved out")
    return ended, found


def _run(place: Place, script: str, owned: Path) -> Ended:
    own, readable = str(place.own), str(place.top / "readable")
    given = (str(place.top / "outside"), readable, str(os.getpid()))
    program = Program(
        path=sys.executable,
        arguments=(sys.executable, "-c", PRELUDE + script, *given),
        directory=own,
        environment={"PATH": "/usr/bin:/bin", "HOME": f"{own}/home", "TMPDIR": f"{own}/home"},
        owned=(str(owned),),
        readable=(sys.base_prefix, sys.prefix, readable),
        bounds=Bounds(seconds=60),
    )
    with Root(own) as root:
        return run_program(root, program, (0, 1), ProgramsUnderWay())


def _move_out(place: Place) -> None:
    """Move a directory out of the program's own, once it asks for that."""
    home = place.own / "home"
    while not (home / "over").exists():
        if (home / "move").exists():
            (place.own / "moving").rename(place.top / "outside" / "moving")
            (home / "moved").touch()
            return
        time.sleep(0.01)


def _runs_as_owner(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) and bool(mode & 0o6000)


def attack(_: float, __: int) -> bool:
    """Run every attack once, and one by a program that owns everything as the control."""
    if (why := cannot_confine()) is not None:
        print(f"calls: left out, {why}")
        return True
    found = {name: attempt(script) for name, script in ATTACKS.items()}
    failed = {
        name: (ended, reached) for name, (ended, reached) in found.items() if reached or ended.exit_code != 0
    }
    control = attempt(ATTACKS["paths out"], owns_all=True)[1]
    for name, (end, changed) in failed.items():
        print(f"  {name}: {changed or end}")
    print(
        f"calls: {len(found)} attacks, {len(failed)} got through; {len(control)} files of the control were changed"
    )
    return not failed and bool(control)
