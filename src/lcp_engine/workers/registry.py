"""Find the workers: the built-in kinds, and those of plug-ins."""

from __future__ import annotations

from types import MappingProxyType

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers import agent_plan, list_files, read_file, write_file
from lcp_engine.workers.base import Worker, Workers
from lcp_engine.workers.custom import REGISTERED

GROUP = "lcp_engine.workers"

_BUILT_IN = (
    list_files.WORKER.for_any_params(),
    read_file.WORKER.for_any_params(),
    write_file.WRITE_FILE.for_any_params(),
    write_file.REWRITE_FILE.for_any_params(),
    agent_plan.WORKER.for_any_params(),
)
BUILT_IN: Workers = MappingProxyType({worker.kind: worker for worker in _BUILT_IN})


def find_workers() -> Workers:
    """The built-in workers and those that installed packages offer as entry points of `GROUP`.

    Raises `LcpError` where two offer the same kind: none replaces another unnoticed.
    """
    from importlib.metadata import entry_points  # slow to import

    workers = {**REGISTERED, **BUILT_IN}
    for entry in entry_points(group=GROUP):
        worker = entry.load()
        if not isinstance(worker, Worker):
            raise LcpError(
                ErrorCode.INVALID_ARGUMENT,
                f"plug-in {entry.name!r} ({entry.value}) is not a Worker, but {worker!r}",
            )
        if worker.kind in workers:
            raise LcpError(
                ErrorCode.INVALID_ARGUMENT,
                f"plug-in {entry.name!r} ({entry.value}) offers kind {worker.kind!r}, which another worker has",
            )
        workers[worker.kind] = worker.for_any_params()
    return MappingProxyType(workers)
