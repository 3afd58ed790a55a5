"""A root beside a directory that must never be reached, and processes that execute untrusted workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import BaseModel

from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import LcpError
from lcp_engine.runner.confined.pool import Assignment, Confinement
from lcp_engine.runner.confined.process import FILE_KINDS, Spawner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import landlock_version
from lcp_engine.workers.base import Caps, FileEffect, Hold, Worker
from lcp_engine.workers.registry import BUILT_IN

HERE = Path(__file__).parent
NAMES = ("OBEYS", "TRUSTS", "EATS", "HANGS", "DIES", "GIVES_UP")
CAPS = Caps(read_bytes=1024 * 1024, write_bytes=1024 * 1024)
Do: TypeAlias = Callable[..., "Succeeded | FileEffect | Hold"]


@pytest.fixture(scope="session", autouse=True)
def _needs_landlock() -> None:
    if landlock_version() is None:
        pytest.skip("this kernel has no Landlock")


@pytest.fixture(scope="module", autouse=True)
def _fork_servers_of_their_own() -> Iterator[None]:
    """Fork servers are interpreters here, as they are for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lcp_engine.runner.confined.process.subprocess", subprocess)
        yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("CANARY\n")
    (tmp_path / "root-evil").mkdir()
    (tmp_path / "root-evil" / "secret.txt").write_text("CANARY\n")
    inside = tmp_path / "root"
    (inside / "src").mkdir(parents=True)
    (inside / "a.txt").write_text("hello\n")
    return inside


@pytest.fixture(scope="session")
def untrusted() -> dict[str, Worker[BaseModel]]:
    sys.path.append(str(HERE))
    module = import_module("untrusted")
    sys.path.remove(str(HERE))
    workers = [getattr(module, name).for_any_params() for name in NAMES]
    return {worker.kind: worker for worker in workers}


@pytest.fixture(scope="session")
def spawner(untrusted: dict[str, Worker[BaseModel]]) -> Iterator[Spawner]:
    kinds = dict(zip(untrusted, NAMES, strict=True))
    more = {kind: f"untrusted:{name}" for kind, name in kinds.items()}
    one = Spawner({**FILE_KINDS, **more}, [str(HERE)])
    yield one
    one.close()


@pytest.fixture
def confinement(spawner: Spawner) -> Iterator[Confinement]:
    one = Confinement(CAPS, spawner)
    yield one
    one.close()


@pytest.fixture
def root(place: Path) -> Iterator[Root]:
    with Root(place) as opened:
        yield opened


@pytest.fixture
def do(confinement: Confinement, root: Root, untrusted: dict[str, Worker[BaseModel]]) -> Do:
    """Executes a job in a confined process; what fails is raised."""

    def execute(kind: str, **params: object) -> Succeeded | FileEffect | Hold:
        worker = {**BUILT_IN, **untrusted}[kind]
        job = Assignment(worker, f"job 1 ({kind})", json.dumps(params), "k", Setup(CAPS), approved=True)
        outcome = confinement.work(root, job)
        if isinstance(outcome, Succeeded | FileEffect | Hold):
            return outcome
        raise LcpError(outcome.code, outcome.message, outcome.details)

    return execute
