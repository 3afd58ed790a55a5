"""Whatever code tries that has taken a confined process over, the kernel refuses it (R22)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.runner.confined.attacks import ATTACKS, WORKER
from tests.runner.confined.conftest import CAPS, HERE

from lcp_engine.engine.outcome import Succeeded
from lcp_engine.runner.confined.pool import Assignment, Confinement
from lcp_engine.runner.confined.process import FILE_KINDS, Spawner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.seccomp import can_filter

UNKNOWN = {"make a call of a newer kernel", "make a call of the ABI x32", "clone by a structure"}
"""What does not exist for a confined process, so that libc does without it."""


@pytest.fixture(scope="module", autouse=True)
def _needs_a_filter() -> None:
    if not can_filter():
        pytest.skip("system calls cannot be filtered here")


@pytest.fixture(scope="module")
def attacked() -> Iterator[Spawner]:
    one = Spawner({**FILE_KINDS, "attacks": "attacks:WORKER"}, [str(HERE)])
    yield one
    one.close()


@pytest.fixture
def outside(place: Path) -> Iterator[Path]:
    beside = place.parent / "outside"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(beside / "s"))
        listener.listen()
        yield beside


@pytest.fixture
def attack(attacked: Spawner, root: Root, outside: Path) -> Iterator[Callable[[str], str | None]]:
    """Tries an attack in a confined process; the name of the error."""
    confinement = Confinement(CAPS, attacked)

    def run(name: str) -> str | None:
        params = json.dumps({"name": name, "outside": str(outside)})
        job = Assignment(WORKER.for_any_params(), "job 1", params, "k", Setup(CAPS), approved=True)
        outcome = confinement.work(root, job)
        assert isinstance(outcome, Succeeded), outcome
        error: str | None = json.loads(outcome.result)["error"]
        return error

    yield run
    confinement.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(attack: Callable[[str], str | None], outside: Path, name: str) -> None:
    before = (outside / "secret.txt").stat()
    assert attack(name) == ("ENOSYS" if name in UNKNOWN else "EPERM")
    assert (outside / "secret.txt").stat() == before
    assert attack("nothing") is None, "it starts threads, and lives on"


REAL = (
    "connect to a Unix socket by its path", "send a UDP datagram", "make a pair of sockets", "fork", "clone",
    "make a file in memory to execute", "change an owner", "change a mode", "change times", "set an attribute",
    "truncate", "watch a directory", "signal its parent", "hold its parent", "limit its parent", "make its parent slow",
)  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_without_the_walls_it_succeeds(outside: Path, name: str) -> None:
    """In a process that is not confined: the table states real attacks."""
    child = os.fork()
    if child == 0:
        try:
            ATTACKS[name](str(outside))
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
