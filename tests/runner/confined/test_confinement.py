"""A worker with a path bug cannot leave the root, and one that misbehaves harms nobody else."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from pydantic import BaseModel

from lcp_engine.core.policy import Policy
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.runner.confined.process import ConfinedProcess
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.file_access import Interrupted
from lcp_engine.sandbox.locks import only
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps, Context, Worker

Do = Callable[..., object]
ESCAPES = [
    pytest.param("", "", "../outside/secret.txt", id="upwards"),
    pytest.param("", "", "../root-evil/secret.txt", id="a sibling with the root's name before it"),
    pytest.param("", "", "src/../../outside/secret.txt", id="down and up"),
    pytest.param("l", "../outside/secret.txt", "l", id="a link out"),
    pytest.param("l", "{outside}/secret.txt", "l", id="an absolute link out"),
    pytest.param("l", "../outside", "l/secret.txt", id="a directory link out"),
    pytest.param("src/l", "../../outside", "src/l/secret.txt", id="a deeper link out"),
    pytest.param("l", "/proc/self/root", "l{outside}/secret.txt", id="a link of the kernel"),
]


def text(outcome: object, key: str = "text") -> str:
    assert isinstance(outcome, Succeeded)
    return str(json.loads(outcome.result)[key])


def written(pipe: Path) -> TextIO:
    """The pipe, once a job reads it. To open it would wait for ever for a job that has failed."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        time.sleep(0.005)
    pytest.fail("no job has opened the pipe")


def pid_of(child: ConfinedProcess | None) -> int:
    assert child is not None
    fields = Path(f"/proc/self/fdinfo/{child._pidfd}").read_text().split()
    return int(fields[fields.index("Pid:") + 1])


def processes(confinement: Confinement) -> tuple[ConfinedProcess | None, ConfinedProcess | None]:
    (pair,) = confinement._pairs.values()
    return pair.reader, pair.writer


def wait_for_end(pidfd: int) -> None:
    assert select.select([pidfd], [], [], 30)[0], "it lives on"
    os.close(pidfd)


@pytest.mark.parametrize(("link", "target", "path"), ESCAPES)
def test_a_worker_with_a_path_bug_reads_nothing_outside(  # noqa: PLR0917 - a table has as many columns as it has
    do: Do, root: Root, place: Path, untrusted: dict[str, Worker[BaseModel]],
    link: str, target: str, path: str,
) -> None:  # fmt: skip
    outside = str(place.parent / "outside")
    if link:
        (place / link).symlink_to(target.format(outside=outside))
    path = path.format(outside=outside)
    with pytest.raises(LcpError, match="Permission denied") as refused:
        do("trusts", path=path)
    assert refused.value.code is ErrorCode.WORKER_FAILED
    with pytest.raises(LcpError) as refused:
        do("read_file", rel_path=path)
    assert refused.value.code in (ErrorCode.PATH_OUTSIDE_ROOT, ErrorCode.PATH_DENIED)
    if "proc" not in target:
        judge = Policy().for_kind("trusts", has_effects=False, writes=False)
        worker = untrusted["trusts"]
        here = worker.execute(worker.params(path=path), Context(root, (), judge, Caps()))
        assert "CANARY" in str(here), "in the runner itself the bug is real"


def test_a_worker_with_a_path_bug_writes_nothing_anywhere(do: Do, place: Path) -> None:
    for path in ("../outside/new.txt", "../outside/secret.txt", "a.txt", "new.txt"):
        with pytest.raises(LcpError, match="Permission denied"):
            do("trusts", path=path, text="gone")
    assert [one.name for one in (place.parent / "outside").iterdir()] == ["secret.txt"]
    assert (place.parent / "outside" / "secret.txt").read_text() == "CANARY\n"
    assert (place / "a.txt").read_text() == "hello\n"
    assert text(do("trusts", path="a.txt")) == "hello\n"


def test_the_database_cannot_be_opened(do: Do, tmp_path: Path) -> None:
    (tmp_path / "lcp.db").write_text("rows")
    with pytest.raises(LcpError, match="Permission denied"):
        do("trusts", path="../lcp.db")


def test_nothing_is_open_but_the_root_and_the_lines_to_the_runner(
    do: Do, confinement: Confinement, root: Root, tmp_path: Path
) -> None:
    with (tmp_path / "lcp.db").open("w"):
        do("list_files")
        with confinement.files(20).lock([(root, "a.txt")]):
            for child in processes(confinement):
                pid = pid_of(child)
                opened = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
                others = {one for one in opened if not one.startswith("socket:")}
                assert others == {"/dev/null", root.path}
                assert Path(f"/proc/{pid}/environ").read_bytes() == b""


def test_what_hangs_is_ended_and_others_are_unharmed(do: Do, confinement: Confinement, place: Path) -> None:
    """The other job is under way in the same process: it waits for a FIFO of the root."""
    os.mkfifo(place / "pipe")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(do, "trusts", path="pipe")
        with written(place / "pipe"):  # opens as soon as the other job reads
            first = os.pidfd_open(pid_of(processes(confinement)[0]))
            with pytest.raises(LcpError, match="took more than") as late:
                do("hangs")
            assert late.value.code is ErrorCode.TIMEOUT
            wait_for_end(first)
            with written(place / "pipe") as again:
                again.write("in the end\n")
        assert text(other.result()) == "in the end\n"
    assert text(do("read_file", rel_path="a.txt"), "content") == "hello\n"


def test_a_read_whose_process_is_killed_begins_again(do: Do, confinement: Confinement, place: Path) -> None:
    os.mkfifo(place / "pipe")
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(do, "trusts", path="pipe")
        with written(place / "pipe"):
            first = os.pidfd_open(pid_of(processes(confinement)[0]))
            signal.pidfd_send_signal(first, signal.SIGKILL)
            wait_for_end(first)
            with written(place / "pipe") as again:
                again.write("hello\n")
        assert text(job.result()) == "hello\n"


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("eats", ErrorCode.OUT_OF_MEMORY, "MiB of memory that it may take"),
        ("dies", ErrorCode.WORKER_DIED, "its process ended"),
        ("gives_up", ErrorCode.WORKER_FAILED, "SystemExit: 3"),
    ],
)
def test_a_worker_that_misbehaves_fails_alone(do: Do, kind: str, code: ErrorCode, said: str) -> None:
    with pytest.raises(LcpError, match=said) as failed:
        do(kind)
    assert failed.value.code is code
    assert text(do("read_file", rel_path="a.txt"), "content") == "hello\n"


def test_a_writer_that_is_killed_leaves_the_file_as_it_was(confinement: Confinement, root: Root) -> None:
    files = confinement.files(20)
    with files.lock([(root, "a.txt")]) as locked:
        target = only(locked)
        os.kill(pid_of(processes(confinement)[1]), signal.SIGKILL)
        with pytest.raises(Interrupted) as interrupted:
            target.replace(b"new", temporary_name())
    assert interrupted.value.code is ErrorCode.WORKER_DIED
    with files.lock([(root, "a.txt")]) as locked:  # its lock is gone with it
        target = only(locked)
        current = target.read(100)
        assert current is not None
        assert current.data == b"hello\n"
        target.replace(b"new", temporary_name())
    assert (Path(root.path) / "a.txt").read_bytes() == b"new"


def test_a_writer_does_not_replace_what_others_wrote_since_it_was_read(
    confinement: Confinement, root: Root
) -> None:
    file = Path(root.path) / "a.txt"
    with confinement.files(20).lock([(root, "a.txt")]) as locked:
        target = only(locked)
        assert target.read(100) is not None
        file.write_text("NEWER\n")
        with pytest.raises(LcpError) as error:
            target.replace(b"new", temporary_name())
    assert error.value.code is ErrorCode.CONFLICT
    assert file.read_text() == "NEWER\n"


def test_directories_made_for_a_file_that_is_not_written_go_again(
    confinement: Confinement, root: Root
) -> None:
    with suppress(KeyError), confinement.files(20).lock([(root, "new/deep/b.txt")]) as locked:
        target = only(locked)
        assert target.made == ("new", "new/deep")
        raise KeyError
    assert not (Path(root.path) / "new").exists()


def test_the_lock_holds_against_other_threads_and_processes(confinement: Confinement, root: Root) -> None:
    order: list[str] = []

    def write(name: str) -> None:
        with confinement.files(20).lock([(root, "a.txt")]) as locked:
            target = only(locked)
            before = target.read(10_000)
            assert before is not None
            target.replace(before.data + name.encode(), temporary_name())
            order.append(name)

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (Path(root.path) / "a.txt").read_text() == "hello\n" + "".join(order)


def test_no_process_outlives_its_runner(place: Path) -> None:
    code = """
import sys
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps
confinement, root = Confinement(Caps()), Root(sys.argv[1])
confinement.start()
children = [confinement._reader(root), confinement._writer(root)]
found = []
for child in children:
    fields = open(f"/proc/self/fdinfo/{child._pidfd}").read().split()
    found.append(fields[fields.index("Pid:") + 1])
print(*found, confinement._spawner._process.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        left = [os.pidfd_open(int(pid)) for pid in runner.stdout.readline().split()]
        runner.kill()
    assert len(left) == 3
    for one in left:
        wait_for_end(one)
