"""Do one file job in each possible way: path resolved by openat2, by the walk, or in confined processes."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from lcp_engine.cli.app import start
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.authoring.run_job import apply_effect, run_job
from lcp_engine.runner.confined.pool import Assignment, Confinement
from lcp_engine.runner.confined.process import Spawner, spawner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import has_openat2, landlock_version
from lcp_engine.workers.base import Caps, FileEffect, Hold
from lcp_engine.workers.registry import BUILT_IN

Params: TypeAlias = Mapping[str, JsonValue]
CAPS = Caps()


@dataclass(frozen=True)
class Done:
    """The result of a job, or the code of its error."""

    result: Mapping[str, JsonValue] | None = None
    code: str | None = None


Do: TypeAlias = Callable[[str, Params], Done]


class Opener(Protocol):
    """Opens a root and gives a function that does jobs in it. Raises `LcpError` if it is not a root."""

    def __call__(self, place: Path, /, *, aliases: tuple[str, ...] = ()) -> AbstractContextManager[Do]: ...


@dataclass(frozen=True)
class Way:
    """One way to do jobs, if this kernel has it (`is_there`)."""

    name: str
    is_there: bool
    opened: Opener
    knows_aliases: bool = True

    def answer(self, place: Path, aliases: tuple[str, ...], kind: str, params: Params) -> Done:
        """The outcome of one job in the root `place`."""
        try:
            with self.opened(place, aliases=aliases) as do:
                return do(kind, params)
        except LcpError as refused:
            return Done(code=refused.code)


@contextmanager
def by_the_kernel(place: Path, /, *, aliases: tuple[str, ...] = (), kernel: bool = True) -> Iterator[Do]:
    """In this process, resolved by openat2, or by the walk without `kernel`."""
    with Root(place, kernel=kernel) as root:

        def do(kind: str, params: Params) -> Done:
            done = run_job(kind, params, root, aliases=aliases)
            return Done(done.result, None if done.error is None else done.error.error_code)

        yield do


@contextmanager
def in_confined_processes(
    place: Path, /, *, aliases: tuple[str, ...] = (), spawned_by: Spawner | None = None
) -> Iterator[Do]:
    """By the confined processes of a runner."""
    confinement = Confinement(CAPS, spawned_by or spawner())
    try:
        with Root(place) as root:

            def do(kind: str, params: Params) -> Done:
                try:
                    return Done(_confined(confinement, root, kind, params, aliases))
                except LcpError as error:
                    return Done(code=error.code)

            yield do
    finally:
        confinement.close()


@contextmanager
def by_command(place: Path, /, *, aliases: tuple[str, ...] = ()) -> Iterator[Do]:
    """By `lcp try`."""
    with tempfile.TemporaryDirectory(prefix="lcp-try-") as directory:
        given = Path(directory, "params.json")

        def do(kind: str, params: Params) -> Done:
            given.write_text(json.dumps(params))
            said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
            with redirect_stdout(said), redirect_stderr(io.TextIOWrapper(io.BytesIO())):
                start(["try", kind, f"@{given}", "--root", str(place)])
            done = json.loads(said.buffer.getvalue())
            return Done(done["result"], done["error"] and done["error"]["error_code"])

        yield do


OPENAT2 = Way("openat2", has_openat2(), by_the_kernel)
WALK = Way("walk", True, partial(by_the_kernel, kernel=False))
CONFINED = Way("confined", landlock_version() is not None, in_confined_processes)
TRY = Way("lcp try", True, by_command, knows_aliases=False)
WAYS = (OPENAT2, WALK, CONFINED, TRY)


def _confined(
    confinement: Confinement, root: Root, kind: str, params: Params, aliases: tuple[str, ...]
) -> Mapping[str, JsonValue]:
    """Do one job from request to result; raises its error."""
    if kind not in BUILT_IN:
        raise LcpError(ErrorCode.NO_WORKER, kind)
    worker = BUILT_IN[kind]
    worker.read(params)
    wish = Assignment(worker, kind, json.dumps(params), "k", Setup(CAPS, aliases), approved=True)
    outcome = confinement.work(root, wish)
    match outcome:
        case FileEffect():
            return apply_effect(outcome, root, CAPS, confinement.files(20)).model_dump(mode="json")
        case Failed():
            raise LcpError(outcome.code, outcome.message)
        case Hold(reason):
            raise LcpError(ErrorCode.NOT_ALLOWED, str(reason))
        case _:
            found: Mapping[str, JsonValue] = json.loads(outcome.result)
            return found
