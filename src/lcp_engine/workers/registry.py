"""Register workers, and find them: built-in kinds, those of this process, those of plug-ins."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from lcp_engine.core.kinds import UNDO, KindRole
from lcp_engine.core.limits.permits import MOST_RUNNING, RateLimit
from lcp_engine.core.protocol.read_reply import NOT_KINDS
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import added, installed, load, load_all
from lcp_engine.plug_ins import offered_in
from lcp_engine.workers import (
    agent_plan,
    ask_user,
    delete_file,
    edit_file,
    list_files,
    make_directory,
    move_file,
    read_file,
    recall,
    search_files,
    write_file,
)
from lcp_engine.workers.base import Context, Example, Outcome, Permission, ProcessNeeds, Worker, Workers

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
P = TypeVar("P", bound=BaseModel)

GROUP = "lcp_engine.workers"

_LAST = frozenset({KindRole.PLANS, KindRole.ASKS, KindRole.RECALLS, KindRole.OTHER})
"""Roles that planners are told of after those that work on the root."""
_BUILT_IN = (
    list_files.WORKER.for_any_params(),
    read_file.WORKER.for_any_params(),
    search_files.WORKER.for_any_params(),
    write_file.WRITE_FILE.for_any_params(),
    write_file.REWRITE_FILE.for_any_params(),
    edit_file.WORKER.for_any_params(),
    delete_file.WORKER.for_any_params(),
    move_file.WORKER.for_any_params(),
    make_directory.WORKER.for_any_params(),
    agent_plan.WORKER.for_any_params(),
    ask_user.WORKER.for_any_params(),
    recall.WORKER.for_any_params(),
    *(load(place, Worker).for_any_params() for place in added().kinds.values()),
)
BUILT_IN: Workers = MappingProxyType(
    {worker.kind: worker for worker in sorted(_BUILT_IN, key=lambda worker: worker.role in _LAST)}
)
OWN = frozenset({*BUILT_IN, UNDO} - added().kinds.keys())
"""Kinds that no feature has."""

_REGISTERED: dict[str, Worker[BaseModel]] = {}


def register(worker: Worker[BaseModel]) -> None:
    """Make a worker known to every engine that this process opens from now on. Raises `INVALID_ARGUMENT`."""
    check_kind(worker.kind, {**_REGISTERED, **BUILT_IN}, "this worker")
    check_description(worker, "this worker")
    _REGISTERED[worker.kind] = worker


def find_registered(kind: str) -> Worker[BaseModel]:
    """The worker of a kind that this process has registered. Raises KeyError."""
    return _REGISTERED[kind]


def registered_kinds() -> frozenset[str]:
    """The kinds whose workers this process has registered."""
    return frozenset(_REGISTERED)


def unregister(kinds: Iterable[str]) -> None:
    """Forget the workers of registered kinds: the file that registered them has failed since."""
    for kind in kinds:
        del _REGISTERED[kind]


def worker(
    kind: str,
    *,
    params: type[P],
    result: type[BaseModel],
    has_effects: bool = True,
    writes: bool = False,
    permission: Permission = Permission.USER,
    timeout: float = 60.0,
    max_attempts: int = 3,
    backoff: float = 1.0,
    rate_limit: RateLimit | None = None,
    max_running: int | None = None,
    description: str = "",
    role: KindRole = KindRole.OTHER,
    shows: str | None = None,
    examples: Sequence[Example] = (),
    needs: ProcessNeeds | None = None,
) -> Callable[[Callable[..., Outcome]], Worker[BaseModel]]:
    """Decorate a function of `(params)` or `(params, context)` to execute jobs of `kind`.

    It returns a `result`, a `Failed` or a `FileEffect`; an exception fails the attempt. Jobs of a kind with effects are
    held by default; `writes` is for kinds that change files, whose paths are judged by the rules for writing.
    `timeout` and `backoff` are seconds. Jobs beyond `rate_limit` and `max_running`, of all runners together, wait.

    `role`, `shows` and `examples` tell planners and people what the kind is for, which part of its result they are
    shown, and how it is requested (docs/kinds.md).

    With `needs`, jobs are executed in a confined process that has nothing else, and cannot return a `FileEffect`; the
    function may not rely on the state of this process.

    Every engine that this process opens afterwards knows the worker; `lcp` is given the file with `--workers FILE`, or
    the worker as an entry point of the group `lcp_engine.workers`. Raises `INVALID_ARGUMENT` for a kind that is taken,
    or that no planner could request, and for an example that its models do not accept.
    """

    def decorate(function: Callable[..., Outcome]) -> Worker[BaseModel]:
        made = Worker(
            kind=kind,
            params=params,
            result=result,
            execute=_with_context(function),
            description=description or inspect.getdoc(function) or "",
            has_effects=has_effects,
            writes=writes,
            permission=permission,
            timeout=timeout,
            max_attempts=max_attempts,
            backoff=backoff,
            rate_limit=rate_limit,
            max_running=max_running,
            role=role,
            shows=shows,
            examples=tuple(examples),
            execution=None if needs is None else needs.execution_of(function, kind),
            reads_files=needs is None or bool(needs.root) or has_effects,
        ).for_any_params()
        register(made)
        return made

    return decorate


def find_workers(own: Sequence[Worker[BaseModel]] = ()) -> Workers:
    """The built-in and registered workers, those that installed packages offer as entry points of `GROUP`, and `own`.

    A plug-in that cannot be imported is left out with a warning, and its jobs are held as `no_worker`. Raises
    `INVALID_ARGUMENT` if two workers have the same kind: none silently replaces another.
    """
    workers = {**_REGISTERED, **BUILT_IN}
    for place, worker in load_all({*installed().kinds.values()} - {*added().kinds.values()}, Worker):
        is_registered = worker is _REGISTERED.get(worker.kind)  # with the decorator
        _add(workers, worker if is_registered else worker.for_any_params(), f"the feature at {place}")
    for origin, worker in _offered():
        _add(workers, worker, origin)
    for worker in own:
        _add(workers, worker, "a worker of this engine")
    return MappingProxyType(workers)


def check_kind(kind: str, taken: Mapping[str, object], origin: str) -> None:
    """Raises `INVALID_ARGUMENT` for a kind that no planner could request, or that another worker has."""
    if not _KIND.fullmatch(kind):
        fact = f"kind is 1 to 64 of the characters A-Z a-z 0-9 _ . -; found {kind!r}"
    elif kind in NOT_KINDS:
        fact = f"{kind!r} is an action or a result, not a kind of job"
    elif kind == UNDO or kind in installed().engine_kinds:
        fact = f"jobs of kind {kind!r} are the engine's own"
    elif kind in taken:
        fact = f"kind {kind!r} has another worker already"
    else:
        return
    raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{origin}: {fact}")


def check_description(worker: Worker[BaseModel], origin: str) -> None:
    """Raises `INVALID_ARGUMENT` for models that are none, and for examples and `shows` that do not fit them."""
    fact = None
    models: tuple[tuple[str, object], ...] = (("params", worker.params), ("result", worker.result))
    for name, model in models:
        if not (inspect.isclass(model) and issubclass(model, BaseModel)):
            fact = f"its {name} are {model!r}; a pydantic model is expected"
    if fact is None and worker.shows is not None and not _has_key(worker.result, worker.shows):
        fact = f"shows is {worker.shows!r}; the name of a field of {worker.result.__name__} is expected"
    if fact is None:
        wrong = (_wrong_example(worker, number, one) for number, one in enumerate(worker.examples, 1))
        fact = next((found for found in wrong if found is not None), None)
    if fact is None:
        fact = _wrong_limit(worker)
    if fact is not None:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, f"{origin}: kind {worker.kind!r}: {fact}", advice=_DESCRIBE
        )


def _wrong_limit(worker: Worker[BaseModel]) -> str | None:
    rate: object = worker.rate_limit
    most: object = worker.max_running
    if rate is not None and not isinstance(rate, RateLimit):
        return f"its rate_limit is {rate!r}; a RateLimit is expected"
    if most is not None and (type(most) is not int or not 1 <= most <= MOST_RUNNING):
        return f"its max_running is {most!r}; a whole number from 1 to {MOST_RUNNING} is expected"
    return None


def _wrong_example(worker: Worker[BaseModel], number: int, example: Example) -> str | None:
    unknown = [key for key in example.result if not _has_key(worker.result, key)]
    if unknown:
        return f"example {number} has a result with {unknown[0]!r}, which {worker.result.__name__} has not"
    try:
        worker.read(example.params)
    except LcpError as error:
        return f"example {number} is not valid: {error.failed.message}"
    return None


def _has_key(model: type[BaseModel], key: str) -> bool:
    return key in model.model_fields or model.model_config.get("extra") == "allow"


_DESCRIBE = "Correct the worker's definition; `lcp kinds --check` runs its examples."
_KIND = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _add(workers: dict[str, Worker[BaseModel]], worker: Worker[BaseModel], origin: str) -> None:
    # A registered worker may be an entry point too, or be given to an engine.
    if workers.get(worker.kind) is not worker:
        check_kind(worker.kind, workers, origin)
        check_description(worker, origin)
        workers[worker.kind] = worker


def _offered() -> Iterator[tuple[str, Worker[BaseModel]]]:
    for entry in offered_in(GROUP):
        origin = f"worker plug-in {entry.name!r} ({entry.value})"
        before = dict(_REGISTERED)
        try:
            worker: object = entry.load()
        except Exception as raised:  # noqa: BLE001 -- importing runs a plug-in's code, which may raise anything
            # What it registered before it failed would be in its own way when its next entry point is imported.
            _REGISTERED.clear()
            _REGISTERED.update(before)
            _warn(entry, origin, raised)
            continue
        if not isinstance(worker, Worker):
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{origin} should be a Worker, it is {worker!r}")
        yield origin, worker if _REGISTERED.get(worker.kind) is worker else worker.for_any_params()


def _warn(entry: EntryPoint, origin: str, raised: Exception) -> None:
    import logging  # slow to import, hardly ever needed

    package = f" of {entry.dist.name} {entry.dist.version}" if entry.dist else ""
    logging.getLogger("lcp_engine").warning(
        "%s%s is left out: %s: %s", origin, package, type(raised).__name__, raised
    )


def _with_context(function: Callable[..., Outcome]) -> Callable[[P, Context], Outcome]:
    wants_context = len(inspect.signature(function).parameters) > 1
    return function if wants_context else lambda params, context: function(params)
