"""In namespaces programs do what they do at home, and reach nothing but what they are shown."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from tests.features.programs.wall.namespaces import (
    EACH_USER,
    SECONDS,
    TOOLS,
    USERS,
    Place,
    Supervised,
    ended,
    supervised,
)
from tests.features.programs.wall.overlays import enter_mounts, enter_namespaces, in_child, mount
from tests.patience import wait_until
from tests.pids_limit import pids_limit
from tests.processes import family
from tests.tables import table
from tests.walls import NEEDS_OVERLAY

from lcp_engine.core.programs.walls import Step
from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap
from lcp_engine.features.programs.wall.namespaced import Namespaced, has_own_numbers
from lcp_engine.features.programs.wall.programs import Bounds, CannotConfine, supervise
from lcp_engine.features.programs.wall.steps import Found
from lcp_engine.features.programs.wall.views.masks import Rights
from lcp_engine.features.programs.wall.views.view import HOME, Bind, Overlay, View
from lcp_engine.features.programs.wall.workspace import Ground, workspace
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.file_systems import file_system_type
from lcp_engine.sandbox.system.landlock import adopt_orphans
from lcp_engine.sandbox.system.syscalls import landlock_version

pytestmark = NEEDS_OVERLAY
DISKS = ("/var/tmp", "/dev/shm")
_OVERLAY_TYPE = 0x794C7630  # OVERLAYFS_SUPER_MAGIC (linux/magic.h)
MS_BIND = 4096


@pytest.fixture(params=EACH_USER)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with made(str(request.param)) as one:
        yield one


class made:  # noqa: N801 -- a context manager
    """A place for a user, removed at the end."""

    def __init__(self, user: str, within: str = "/var/tmp", tool: Bubblewrap | None = None) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="lcp-wall-", dir=within))
        self._base.chmod(0o755)
        self._place = Place.made(self._base, user, tool)

    def __enter__(self) -> Place:
        return self._place

    def __exit__(self, *raised: object) -> None:
        remove_tree(self._base)
        assert not self._base.exists()


def test_what_it_changes_is_in_the_upper_directory_alone(place: Place) -> None:
    (place.root / "old").write_text("old\n")
    (place.root / "gone").write_text("gone\n")
    place.give()
    ended = place.shell("cat old; echo new > old; rm gone; mkdir d; echo x > d/f; ls")
    assert (ended.stdout, ended.stderr, ended.exit_code) == (b"old\nd\nold\n", b"", 0)
    assert sorted(one.name for one in place.root.iterdir()) == ["gone", "old"]
    assert (place.root / "old").read_text() == "old\n"
    assert (place.up / "old").read_text() == "new\n"
    assert (place.up / "gone").is_char_device()
    assert (place.up / "gone").stat().st_rdev == 0
    assert (place.up / "d" / "f").read_text() == "x\n"


def test_a_bound_copy_is_changed_itself(place: Place) -> None:
    ended = place.shell("echo new > file; pwd", view=place.copy())
    assert ended.stdout == f"{place.root}\n".encode()
    assert (place.root / "file").read_text() == "new\n"


def test_the_true_end_of_a_program_is_told(place: Place) -> None:
    assert place.shell("exit 3").exit_code == 3
    assert place.shell("sleep 0.1; exit 137").exit_code == 137
    assert place.shell("kill -TERM $$").signal == signal.SIGTERM
    assert place.shell("kill -KILL $$").signal == signal.SIGKILL


def test_the_time_on_processors_is_true(place: Place) -> None:
    """Also that of daemons, which no process waits for; the kernel counts theirs in ticks."""
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.6: pass'"
    for script in (
        burn,
        f"({burn}) & wait",
        f'setsid sh -c "{burn}; touch done; sleep 60" & while ! test -e done; do sleep 0.05; done',
    ):
        assert 0.5 <= place.shell(script).cpu_seconds < SECONDS


AT_HOME = {
    "make": "printf 'all:\\n\\t@echo built > out\\n\\tcat out\\n' > Makefile && make && test -s out",
    "touch": "touch new && test -e new",
    "chmod": "echo 'echo ran' > s && chmod +x s && ./s && ! chmod 644 missing 2>/dev/null",
    "gcc": "echo 'int main(void) { return 0; }' > x.c && gcc -o x x.c && ./x",
    "install": "echo 'echo ran' > s && install -m 755 s t && ./t",
    "times": 'touch -d 2001-02-03 f && test "$(date -r f +%Y)" = 2001',
    "ids": "python3 -c 'import os; os.setresuid(-1, os.getuid(), -1); os.setresgid(-1, -1, os.getgid())'",
    "link": "echo a > a && ln a b && ln -s a c && cmp a c && test a -ef b",
    "fifo": "mkfifo f && (echo x > f &) && cat f",
    "lock": "flock f true",
    "dev": "echo x > /dev/null && test -w /dev/shm && head -c 4 /dev/urandom > r && test -s r",
    "tmp": "echo x > /tmp/f && echo x > /var/tmp/f && echo x > /dev/shm/f && cd && pwd && touch f",
    "names": 'getent hosts localhost && getent passwd root && test "$(hostname)" = lcp',
    "stdin": "! read line",
    "pool": "python3 -c 'from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: "
    "assert list(p.map(abs, [-1, -2])) == [1, 2]'",
    "server": "python3 -c 'import socket as s\na = s.create_server((\"127.0.0.1\", 0))\n"
    "b = s.create_connection(a.getsockname())\nb.sendall(b\"x\")\nassert a.accept()[0].recv(1) == b\"x\"'",
    "unix": "python3 -c 'import socket as s\na = s.socket(s.AF_UNIX)\na.bind(\"s\")\na.listen()\n"
    "b = s.socket(s.AF_UNIX)\nb.connect(\"s\")\ns.socketpair()\ns.getaddrinfo(\"localhost\", 80)'",
    "threads": "python3 -c 'import threading as t\nx = [t.Thread(target=print) for _ in range(50)]\n"
    "[y.start() for y in x]\n[y.join() for y in x]'",
    "pty": "python3 -c 'import pty; assert pty.spawn([\"true\"]) == 0' < /dev/null",
    "reserve": "python3 -c 'import mmap as m; m.mmap(-1, 2**44, m.MAP_PRIVATE | m.MAP_ANONYMOUS | 0x4000)'",
    "stacks": "python3 -c 'import threading as t\nb = t.Barrier(400)\n"
    "x = [t.Thread(target=b.wait) for _ in range(400)]\n[y.start() for y in x]\n[y.join() for y in x]'",
    "core": 'ulimit -c "$(ulimit -H -c)"',
    "semaphore": "python3 -c 'import multiprocessing as m; m.Lock().acquire(); m.Queue().put(1)'",
}  # fmt: skip


@pytest.mark.parametrize("step", ["overlay", pytest.param("copy", marks=pytest.mark.proof)])
def test_what_works_at_home_works_inside(place: Place, step: str) -> None:
    for name, script in AT_HOME.items():
        view = place.overlay() if step == "overlay" else place.copy()
        ended = place.shell(f"mkdir {name} && cd {name} && ({script})", view=view)
        assert ended.exit_code == 0, (name, ended)


@table(("user", "within"), [(user, within) for user in USERS for within in DISKS])
def test_it_works_in_memory_and_on_disk(user: str, within: str) -> None:
    with made(user, within) as place:
        assert place.shell("echo x > f; mkdir d; mv f d/; cat d/f; rm -r d; ls").stdout == b"x\n"


def test_the_devices_of_the_machine_stay_as_they_are(place: Place) -> None:
    """Also where it runs as their owner, and by the descriptor that it begins with."""
    script = """import errno, os, stat
for one in (0, "/dev/stdin", *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))):
    for change in (lambda: os.chmod(one, stat.S_IMODE(os.stat(one).st_mode)), lambda: os.utime(one)):
        try: change()
        except OSError as error: print(errno.errorcode[error.errno])
        else: print(one)"""
    for view in (place.overlay(), place.copy()):
        ended = place.python(script, view=view)
        assert ended.exit_code == 0, ended
        assert {*ended.stdout.decode().split()} <= {"EROFS", "EPERM"}


REFUSED = {
    "ptrace": ((101, 0), errno.EPERM),
    "process_vm_readv": ((310, 1), errno.EPERM),
    "keyctl": ((250, 0, 0), errno.EPERM),
    "add_key": ((248, 0, 0, 0, 0, 0), errno.EPERM),
    "request_key": ((249, 0, 0, 0, 0), errno.EPERM),
    "userfaultfd": ((323, 1), errno.EPERM),
    "bpf": ((321, 0, 0, 0), errno.EPERM),
    "perf_event_open": ((298, 0, 0, -1, -1, 0), errno.EPERM),
    "mount": ((165, 0, 0, 0, 0, 0), errno.EPERM),
    "fsopen": ((430, 0, 0), errno.EPERM),
    "unshare user": ((272, 0x10000000), errno.EPERM),
    "unshare time": ((272, 0x80), errno.EPERM),
    "clone user": ((56, 0x10000011, 0, 0, 0, 0), errno.EPERM),
    "clone3": ((435, 0, 0), errno.ENOSYS),
    "io_uring_setup": ((425, 1, 0), errno.ENOSYS),
    "TIOCSTI": ((16, 0, 0x5412, 0), errno.EPERM),
    "AF_VSOCK": ((41, 40, 1, 0), errno.EAFNOSUPPORT),
    "AF_PACKET": ((41, 17, 3, 0), errno.EAFNOSUPPORT),
    "AF_ALG": ((41, 38, 5, 0), errno.EAFNOSUPPORT),
    "netlink audit": ((41, 16, 3, 9), errno.EAFNOSUPPORT),
    "newest": ((1000,), errno.ENOSYS),
    "x32": ((0x40000000 | 39,), errno.ENOSYS),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_dangerous_calls_fail_truly(place: Place) -> None:
    calls = [(name, numbers) for name, (numbers, _) in REFUSED.items()]
    script = (
        "import ctypes, json\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, numbers in {calls!r}:\n"
        " ctypes.set_errno(0); found = libc.syscall(*map(ctypes.c_long, numbers))\n"
        " print(name, ctypes.get_errno() if found < 0 else f'returned {found}', sep='=')\n"
    )
    said = place.python(script).stdout.decode().splitlines()
    assert said == [f"{name}={expected}" for name, (_, expected) in REFUSED.items()]


OUTSIDE = [
    "cat {base}/secret",
    "cat ../secret",
    "ls {base}/up {base}/mask",
    "cat /etc/shadow",
    "ls /root/. /home/. /srv/. /mnt/. /run/. /boot/.",
    "echo x > /usr/new",
    "echo x > /new",
    "echo x > /dev/new",
    "echo x > /etc/new",
    "echo core > /proc/sys/kernel/core_pattern",
    "echo 1 > /proc/sys/vm/drop_caches",
    "test -w /proc/sysrq-trigger",
    "unshare --user --map-root-user true",
    "nsenter --target 1 --mount true",
    "mount -t tmpfs none /tmp",
    "cat < /dev/tty",
    "kill -0 {pid}",
    "dd if=/dev/zero of=/proc/1/mem bs=1 count=1",
    "cat /proc/1/environ | grep -q .",
    "ls -l /proc/1/root/work",
    "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 3)'",
    "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'",
    "grep -q {base}/up /proc/self/mountinfo",
    "chroot / true",
    "mknod zero c 1 5",
]  # fmt: skip


def test_nothing_outside_is_reached(place: Place) -> None:
    (place.base / "secret").write_text("SECRET\n")
    place.give()
    for script in OUTSIDE:
        ended = place.shell(script.format(base=place.base, pid=os.getpid()))
        assert ended.exit_code not in {0, None}, (script, ended)
        assert b"SECRET" not in ended.stdout, script
    place.shell("echo x > ../new")  # in a room of its own
    assert sorted(one.name for one in place.base.iterdir()) == ["mask", "root", "secret", "up", "work"]


def test_the_memory_of_process_1_cannot_be_written(place: Place) -> None:
    """It would not end with its supervisor any more if a program told it so."""
    script = """import os
first = int(open("/proc/1/maps").read().partition("-")[0], 16)
for name in ("/proc/1/mem", "/proc/1/task/1/mem", "/proc/self/mem"):
    try: print(os.pwrite(os.open(name, os.O_RDWR), b"\\x7f", first if "1" in name else id(name)))
    except OSError as error: print("refused")"""
    for view in (place.overlay(), place.copy()):
        assert place.python(script, view=view).stdout == b"refused\nrefused\n1\n"


def test_the_network_of_the_host_is_shared_if_it_may_be(place: Place) -> None:
    """But not its sockets without a file, by which desktops are reached."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0lcp-{os.urandom(8).hex()}")
        abstract.listen()
        port, name = server.getsockname()[1], abstract.getsockname()
        connect = f"import socket as s\ns.create_connection(('127.0.0.1', {port}))\nprint('connected')"
        desktop = f"import socket as s\ns.socket(s.AF_UNIX).connect({name!r})\nprint('connected')"
        shared = replace(place.overlay(), host_network=True)
        assert place.python(connect).stdout == b""
        assert place.python(connect, view=shared).stdout == b"connected\n"
        assert place.python(desktop).stdout == b""
        if (landlock_version() or 0) >= 6:
            assert place.python(desktop, view=shared).stdout == b""


def test_a_module_of_this_interpreter_may_be_called() -> None:
    with made(USERS[0]) as place:
        program = place.program("/bin/true", readable=(sys.prefix, sys.base_prefix))
        done = ended(replace(program, call=("timeit", "")), place.user)
        assert b"takes from 0 to" in done.stderr or b"loop" in done.stdout, done


def test_its_mask_of_modes_is_that_of_its_caller(place: Place) -> None:
    ended_with = ended(
        place.program("/bin/sh", "-c", "umask; cat /etc/passwd > f && stat -c %a f"),
        place.user,
        lambda: os.umask(0o077),
    )
    assert ended_with.stdout == b"0077\n600\n"


def test_it_inherits_no_descriptor_and_no_variable(place: Place) -> None:
    script = "import os\nfor n in range(1024):\n try: os.fstat(n); print(n)\n except OSError: pass\nprint(*os.environ)"
    numbers = place.python(script).stdout.decode().splitlines()
    assert numbers[:-1] == ["0", "1", "2"]
    assert set(numbers[-1].split()) <= {"PATH", "HOME", "LANG", "PWD", "LC_CTYPE"}


def test_its_variables_are_in_no_list_of_processes(place: Place) -> None:
    program = place.program("/bin/sh", "-c", "sleep 30")
    secret = replace(program, environment={**program.environment, "TOKEN": "sk-secret"})
    running = supervised(secret, place.user)
    wait_until(lambda: len(family(running.pid)) >= 4, "it has not started")
    for process in family(running.pid):
        assert b"sk-secret" not in Path(f"/proc/{process}/cmdline").read_bytes()
    running.other_side.close()
    assert running.wait()["is"] == "ended"


@pytest.mark.parametrize(
    "parent",
    ["/home", "/dev/shm", "/srv"]
    + [pytest.param(one, marks=pytest.mark.proof) for one in ("/opt", "/usr/src", "/tmp", "/mnt")],
)
@pytest.mark.parametrize("user", EACH_USER)
def test_a_root_may_lie_anywhere_and_opens_nothing_beside_it(parent: str, user: str) -> None:
    if not os.access(parent, os.W_OK):
        pytest.skip(f"{parent} cannot be written")
    with made(user, parent) as place:
        (place.base / "beside").write_text("SECRET\n")
        (place.root / "file").write_text("in\n")
        place.give()
        ended = place.shell(
            f"cat file; echo x > new; cat {place.base}/beside", hidden=(str(place.base / "beside"),)
        )
        assert ended.stdout == b"in\n"
        assert (place.up / "new").read_text() == "x\n"
        assert place.shell("ls -A ..", hidden=(str(place.base),)).stdout == b"root\n"
        assert b"SECRET" not in place.shell(f"cat {place.base}/beside", hidden=(str(place.base),)).stdout


def test_readable_places_are_read_only_and_need_no_rights_of_the_user(place: Place) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as closed:
        tools = Path(closed, "tools")
        tools.mkdir()
        (tools / "t").write_text("echo tool\n")
        place_of_tools = (str(tools),)
        if place.user == "ordinary":
            Path(closed).chmod(0o755)
        assert place.shell(f"sh {tools}/t", readable=place_of_tools).stdout == b"tool\n"
        assert place.shell(f"echo x > {tools}/t", readable=place_of_tools).exit_code != 0
        assert place.shell(f"ls {tools}", readable=place_of_tools, hidden=(f"{tools}/t/x",)).exit_code != 0


def test_sockets_in_readable_places_are_covered(place: Place) -> None:
    tools, alias = place.base / "tools", place.base / "alias"
    tools.mkdir(mode=0o755)
    alias.symlink_to(tools)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as own:
        for one, where in ((server, tools / "s"), (own, place.root / "s")):
            one.bind(str(where))
            one.listen()
            where.chmod(0o777)
        script = (
            "import socket as s, sys\nfor one in sys.argv[1:]: print(s.socket(s.AF_UNIX).connect_ex(one))"
        )
        paths = (f"{tools}/s", f"{alias}/s", f"{place.root}/s")
        program = place.program("/usr/bin/python3", "-c", script, *paths, readable=(str(alias), str(tools)))
        refused = ended(program, place.user).stdout.decode().split()
        assert len(refused) == 3
        assert "0" not in refused
        assert place.shell("rm s; echo x > s; cat s").stdout == b"x\n"


def test_overlays_and_binds_lie_within_each_other(place: Place) -> None:
    for one in ("root/.git", "root/a", "git-mask", "cache"):
        (place.base / one).mkdir()
    (place.root / ".git" / "config").write_text("whole\n")
    (place.base / "git-mask" / "config").write_text("clean\n")
    place.give()
    view = place.overlay()
    git = Overlay(f"{place.root}/.git", (f"{place.root}/.git", f"{place.base}/git-mask"))
    cache = Bind(f"{place.base}/cache", f"{place.root}/a", writable=True)
    whole = replace(view, overlays=(*view.overlays, git), binds=(cache,))
    ended = place.shell("cat .git/config; echo x > .git/config; echo y > a/f; echo z > f", view=whole)
    assert ended.stdout == b"clean\n"
    assert b"Read-only file system" in ended.stderr
    assert (place.base / "cache" / "f").read_text() == "y\n"
    assert sorted(one.name for one in place.up.iterdir()) == ["f"]


@table("name", ["a b", "a,b", "a:b", "a\\b", 'a"b', "a\nb", "ä", "-a", "a" * 200])
@pytest.mark.parametrize("user", EACH_USER)
def test_paths_may_be_odd(name: str, user: str) -> None:
    with made(user) as outer:
        base = outer.base / name
        base.mkdir()
        place = Place.made(base, user)
        assert place.shell("echo x > f; ls").stdout == b"f\n"
        assert (place.up / "f").exists()


def test_settings_of_the_system_with_a_credential_are_not_shown() -> None:
    with made("root") as place:
        secret = place.base / "secret"
        secret.write_text('[url "https://ada:SECRET@example.org/"]\n\tinsteadOf = https://example.org/\n')
        files = [
            f"/etc/{name}" for name in ("gitconfig", "profile", "bash.bashrc") if Path("/etc", name).is_file()
        ]

        def cover() -> None:
            enter_namespaces()
            for file in files:
                mount(str(secret), file, None, MS_BIND, None)

        def seen(before: Callable[[], object] | None) -> bytes:
            return ended(place.program("/bin/ls", *files), "root", before).stdout

        assert seen(None).decode().split() == sorted(files)
        assert seen(cover) == b""


def test_settings_of_installed_programs_are_shown_but_for_a_credential() -> None:
    """Such as those of R, to which it is led by links in /usr."""
    with made("root") as place:
        texts = {"Renviron": "SECRET=shown\n", "Renviron.site": "TOKEN=ghp_0123456789\n"}
        for name, text in texts.items():
            (place.base / "etc" / "R").mkdir(parents=True, exist_ok=True)
            (place.base / "etc" / "R" / name).write_text(text)

        def cover() -> None:
            enter_namespaces()
            mount("none", "/etc", "overlay", 0, f"userxattr,lowerdir={place.base}/etc:/etc")

        program = place.program(
            "/bin/sh", "-c", "cat /etc/R/Renviron; test -e /etc/R/Renviron.site || echo hidden"
        )
        assert ended(program, "root", cover).stdout == b"SECRET=shown\nhidden\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another user")
def test_settings_that_only_root_may_read_stay_closed_to_the_owner_of_a_root() -> None:
    with made("owner") as place:
        secret = place.base / "secret"
        secret.write_text("export SITE=closed\n")

        def said(mode: int) -> bytes:
            def cover() -> None:
                enter_mounts()
                secret.chmod(mode)
                mount(str(secret), "/etc/profile", None, MS_BIND, None)

            return ended(place.program("/bin/cat", "/etc/profile"), "owner", cover).stdout

        assert (said(0o600), said(0o644)) == (b"", b"export SITE=closed\n")


def test_what_takes_the_place_of_a_root_is_neither_shown_nor_read(place: Place) -> None:
    (place.root / "a").write_text("of the root\n")
    place.give()
    outside = place.base / "outside"
    outside.mkdir()
    (outside / "a").write_text("SECRET\n")
    ground = Ground(place.base / "ground", "mission", "1-1", Found(Step.OVERLAY))
    with Root(place.root) as root, workspace(root, ground, Rights(lambda path: True, "")) as found:
        program = place.program("/bin/sh", "-c", "cat a; echo x > a; cat a", view=found.view)
        assert ended(program, "root").stdout == b"of the root\nx\n"
        place.root.rename(place.base / "moved")
        place.root.symlink_to(outside)
        with pytest.raises(OSError, match="another directory is in its place now"):
            ended(program, "root")
        (changed,) = found.changes().changes
        assert changed.before is not None
        assert changed.before.sha256 == sha256(b"of the root\n").hexdigest()


def test_arguments_are_as_they_were_given(place: Place) -> None:
    odd = ["a b", "", "--", "-x", "ä", "'", "$HOME", "\n"]
    program = place.program("/usr/bin/printf", "%s|", *odd)
    assert ended(program, place.user).stdout.decode() == "".join(f"{one}|" for one in odd)
    named = replace(
        place.program("/bin/sh", "-c", "echo $0"), path="/usr/bin/sh", arguments=("sh", "-c", "echo $0")
    )
    assert ended(named, place.user).stdout == b"sh\n"


@pytest.mark.proof
@table("tool", TOOLS, ids=lambda tool: f"{tool.path}")
def test_each_bubblewrap_does_the_same(tool: Bubblewrap) -> None:
    for user in USERS:
        with made(user, tool=tool) as place:
            ended = place.shell("echo x > f; cat f; exit 4")
            assert (ended.stdout, ended.stderr, ended.exit_code) == (b"x\n", b"", 4)
            assert place.shell("kill -SEGV $$").signal == signal.SIGSEGV
            assert (
                place.shell("exec sleep 60", bounds=Bounds(seconds=0.3)).stopped
                == "it ran for more than 0.3 s"
            )


# -- bounds and ends

SEGMENTS = """import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(10):
    at = ctypes.c_void_p(libc.shmat(libc.shmget(0, 2**24, 0o1600), None, 0))
    ctypes.memset(at, 1, 2**24)
    libc.shmdt(at)
time.sleep(60)
"""
MUCH = "for _ in range(100): os.write(x, bytes(2**20))\ntime.sleep(60)'"
BREAKS = {
    "it ran for more than 0.5 s": ("sleep 60", Bounds(seconds=0.5)),
    "it ran for more than 0.6 s": ("trap '' TERM; while :; do sleep 60; done", Bounds(seconds=0.6)),
    "it had more than 10 processes": (
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 60 & done; wait", Bounds(processes=10)
    ),
    "it took more than 67,108,864 bytes of memory": (
        "python3 -c 'import os, time\nx = os.memfd_create(\"x\")\n" + MUCH,
        Bounds(memory=64 * 2**20),
    ),
    "it took more than 67,108,863 bytes of memory": (
        f"python3 -c '{SEGMENTS}'",
        Bounds(memory=64 * 2**20 - 1),
    ),
    "it wrote more than 4,000,000 bytes": ("head -c 8000000 /dev/zero > big; sleep 60", Bounds(written=4_000_000)),
    "it wrote more than 1,000,000 bytes": (
        "i=0; while [ $i -lt 400 ]; do : > $i; i=$((i+1)); done; sleep 60", Bounds(written=1_000_000)
    ),
}  # fmt: skip


def test_what_breaks_its_bounds_is_stopped_and_leaves_nothing(place: Place) -> None:
    for why, (script, bounds) in BREAKS.items():
        found = place.shell(script, bounds=replace(bounds, seconds=min(bounds.seconds or 30, 30)))
        assert found.stopped == why, found
    assert not _left(place)


WRITES = {
    "in the home": "head -c 8000000 /dev/zero >/home/lcp/big; sleep 60",
    "in a removed file": "exec 3>gone; rm gone; head -c 8000000 /dev/zero >&3; sleep 60",
    "very deep": """exec python3 -c 'import os, time
for _ in range(1200): os.mkdir("d"); os.chdir("d")
open("big", "wb").write(bytes(8_000_000)); time.sleep(60)'""",
}


@pytest.mark.parametrize("script", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("view", [Place.overlay, Place.copy], ids=["overlay", "copy"])
def test_wherever_it_writes_it_is_stopped(place: Place, view: Callable[[Place], View], script: str) -> None:
    home = Bind(str(place.base / "home"), HOME, writable=True)
    (place.base / "home").mkdir()
    place.give()
    seen = replace(view(place), binds=(*view(place).binds, home))
    found = place.shell(script, view=seen, bounds=Bounds(seconds=30, written=7_000_000))
    assert found.stopped == "it wrote more than 7,000,000 bytes", found


BOMBS = (
    "f() { f | f & }; f; sleep 60",
    "f() { (f &); exit; }; while :; do (f &); done",
    "trap '' TERM; while :; do sleep 60 & done",
)


def test_a_program_that_forks_without_end_is_ended(place: Place) -> None:
    for bomb in BOMBS:
        marker = f"bomb-{os.urandom(8).hex()}"
        with pids_limit(marker) as limit:
            if limit is None:
                pytest.skip("there is no limit for a test that forks without end")
            program = place.program("/bin/sh", "-c", bomb, marker, bounds=Bounds(seconds=20, processes=20))
            found = ended(program, place.user, limit.enter)
            # The kernel refuses processes, too, at a limit of its own: some bombs end then by themselves.
            is_refused = found.stopped is None and b"fork" in found.stderr
            stopped = {"it had more than 20 processes", "it ran for more than 20 s"}
            assert found.stopped in stopped or is_refused, found
            assert limit.left() == 0


PERMITTED = os.geteuid() == 0 and not has_own_numbers()
"""Root's processes wait for a permit of their supervisor each."""
FORKS = """
import os, signal
failed = handled = 0
def count(*_):
    global handled
    handled += 1
for number in (signal.SIGCHLD, signal.SIGALRM):
    signal.signal(number, count)
    signal.siginterrupt(number, True)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
for nth in range({forks}):
    while True:
        try:
            if os.fork() == 0: os._exit(0)
            break
        except InterruptedError:
            failed += 1
    if nth % 20 == 19:
        for _ in range(20): os.waitpid(-1, 0)
signal.setitimer(signal.ITIMER_REAL, 0)
print(failed, handled > {forks} / 4)
"""


@pytest.mark.skipif(PERMITTED, reason="a signal ends a fork that waits for a permit")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("forks", [500, pytest.param(8000, marks=pytest.mark.proof)])
def test_no_signal_ends_a_fork(user: str, forks: int) -> None:
    with made(user) as place:
        found = place.python(FORKS.format(forks=forks))
        assert (found.stdout, found.stderr, found.exit_code) == (b"0 True\n", b"", 0)


@pytest.mark.skipif(PERMITTED, reason="a supervisor permits each process")
def test_a_process_starts_although_its_supervisor_is_slow(place: Place) -> None:
    log = place.up / "log"
    running = supervised(
        place.program("/bin/sh", "-c", "while :; do /bin/true; echo >> log; done"), place.user
    )
    wait_until(log.exists, "it has not started")
    os.kill(running.pid, signal.SIGSTOP)
    try:
        before = log.stat().st_size
        wait_until(lambda: log.stat().st_size > before + 300, "its processes wait")
    finally:
        os.kill(running.pid, signal.SIGCONT)
        running.other_side.close()
    running.wait()


UNCOUNTED = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
open("ready", "w").close()
signal.sigwait({signal.SIGUSR1})
for nth in range(1000):
    try:
        if os.fork() == 0: signal.pause()
    except BlockingIOError:
        break
with open("new", "w") as file: file.write(str(nth))
os.rename("new", "started")
signal.pause()
"""


@pytest.mark.skipif(PERMITTED, reason="a supervisor permits each process")
def test_processes_have_an_end_although_their_supervisor_does_not_count_them(place: Place) -> None:
    program = place.program("/usr/bin/python3", "-c", UNCOUNTED, bounds=Bounds(seconds=SECONDS, processes=10))
    running = supervised(program, place.user)
    wait_until((place.up / "ready").exists, "it has not started")
    os.kill(running.pid, signal.SIGSTOP)
    try:
        os.kill(family(running.pid)[-1], signal.SIGUSR1)
        wait_until((place.up / "started").exists, "it has not told how many it has started")
    finally:
        os.kill(running.pid, signal.SIGCONT)
    assert int((place.up / "started").read_text()) < 10 * 8 + 300
    assert running.wait()["stopped"] == "it had more than 10 processes"


@pytest.mark.skipif(not has_own_numbers(), reason="since Linux 6.14")
def test_numbers_of_processes_are_limited_in_namespaces_alone(place: Place) -> None:
    most = Path("/proc/sys/kernel/pid_max")
    before = most.read_text()
    found = place.shell("! echo 9999 2>/dev/null > /proc/sys/kernel/pid_max")
    assert (found.exit_code, most.read_text()) == (0, before)


def test_files_and_rooms_in_memory_have_a_size(place: Place) -> None:
    small = Bounds(seconds=60, memory=64 * 2**20, file_bytes=2**20)
    assert place.shell("head -c 4000000 /dev/zero > big", bounds=small).exit_code != 0
    assert (place.up / "big").stat().st_size == small.file_bytes
    roomy = replace(small, file_bytes=2**30)
    for room in ("/tmp", "/var/tmp", "/dev/shm"):
        ended = place.shell(f"head -c 50000000 /dev/zero > {room}/big", bounds=roomy)
        assert b"No space left on device" in ended.stderr


def test_daemons_end_with_it(place: Place) -> None:
    script = (
        "(setsid sleep 300 &); (setsid setsid sh -c 'trap \"\" TERM; sleep 300' &); sleep 300 & echo done"
    )
    assert place.shell(script).stdout == b"done\n"
    assert not _left(place)


def test_nothing_outlives_a_supervisor_that_is_killed(place: Place) -> None:
    program = place.program("/bin/sh", "-c", "trap '' TERM HUP; setsid sleep 300 & sleep 300")
    running = supervised(program, place.user)
    wait_until(lambda: len(family(running.pid)) >= 5, "it has not started")
    all_of_it = family(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == {"is": "died"}
    wait_until(lambda: not any(_lives(one) for one in all_of_it), "something is left")


@pytest.mark.parametrize("kills", [12, pytest.param(60, marks=pytest.mark.proof)])
def test_nothing_outlives_a_supervisor_that_is_killed_at_any_moment_of_a_start(
    place: Place, kills: int
) -> None:
    """Its processes become children of the one that adopts orphans, as of a fork server, unless they end."""
    program = place.program("/bin/sh", "-c", "trap '' TERM HUP; echo > started; setsid sleep 300 & sleep 300")

    def kill_supervisors() -> None:
        adopt_orphans()
        begun = time.monotonic()
        first = supervised(program, place.user)
        wait_until((place.up / "started").exists, "it has not started")
        whole = time.monotonic() - begun
        _kill_supervisor(first, "once it ran")
        for nth in range(kills):
            running = supervised(program, place.user)
            time.sleep(1.2 * whole * nth / kills)
            _kill_supervisor(running, f"in part {nth} of {kills}")

    in_child(kill_supervisors)


def _kill_supervisor(running: Supervised, when: str) -> None:
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    try:
        wait_until(_has_no_child, f"something outlives a supervisor that was killed {when}")
    finally:
        for one in family(os.getpid())[1:]:
            os.kill(one, signal.SIGKILL)


def _has_no_child() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def test_the_end_of_a_supervisor_opens_no_gate() -> None:
    inside = Namespaced()
    inside.close()
    assert select.select([inside.gate], [], [], 0)[0] == []
    inside.close_ends_of_child()


def test_it_ends_when_nobody_waits(place: Place) -> None:
    running = supervised(place.program("/bin/sleep", "300"), place.user)
    wait_until(lambda: len(family(running.pid)) >= 4, "it has not started")
    running.other_side.close()
    assert running.wait()["stopped"] == "nobody waits for it any more"


def test_a_caller_may_ignore_the_ends_of_its_children(place: Place) -> None:
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        running = supervised(place.program("/bin/true"), place.user)
        said = b""
        while piece := os.read(running.answer, 65536):
            said += piece
        os.close(running.answer)
        running.other_side.close()
        assert b'"exit_code": 0' in said
    finally:
        signal.signal(signal.SIGCHLD, old)


def test_what_cannot_be_started_is_said(place: Place) -> None:
    for path, number in (("/nowhere/program", errno.ENOENT), ("/etc/passwd", errno.EACCES)):
        with pytest.raises(OSError) as refused:  # noqa: PT011 -- its number is compared
            ended(place.program(path), place.user)
        assert refused.value.errno == number
    built = "printf '#!/bin/sh\necho built\n' > tool; chmod +x tool"
    assert place.shell(built).exit_code == 0
    again = replace(place.overlay(), overlays=(replace(place.overlay().overlays[0], upper="", work=""),))
    again = replace(
        again, overlays=(replace(again.overlays[0], lower=(*again.overlays[0].lower, str(place.up))),)
    )
    assert ended(place.program(f"{place.root}/tool", view=again), place.user).stdout == b"built\n"
    missing = replace(place.program("/bin/true"), directory=f"{place.root}/missing")
    with pytest.raises(FileNotFoundError):
        ended(missing, place.user)


def test_an_overlay_that_is_refused_is_named(place: Place) -> None:
    overlay = replace(place.overlay().overlays[0], work=f"{place.up}/work")
    (place.up / "work").mkdir()
    place.give()
    with pytest.raises(CannotConfine, match=r"an overlay at .* cannot be mounted: "):
        place.shell("true", view=View((overlay,), user=place.overlay().user))


def test_the_answer_does_not_wait_for_the_teardown_of_an_overlay(place: Place) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ended_well = supervise(place.program("/bin/true"), theirs.fileno()).exit_code == 0
                code = 0 if ended_well and any(map(_is_of_overlay, Path("/proc/self/fd").iterdir())) else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _is_of_overlay(descriptor: Path) -> bool:
    return file_system_type(descriptor) == _OVERLAY_TYPE


def _lives(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def _left(place: Place) -> list[str]:
    """Processes that have the root of a place as their directory."""
    found: list[str] = []
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str((directory / "cwd").readlink()).startswith(str(place.root)):
                    found.append(directory.name)
        if not found:
            break
        time.sleep(0.05)
    return found
