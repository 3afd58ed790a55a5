"""Make a function the worker of a kind of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from lcp_engine.workers.base import Context, Outcome, Permission, Worker
from lcp_engine.workers.registry import register

P = TypeVar("P", bound=BaseModel)


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
    description: str = "",
) -> Callable[[Callable[..., Outcome]], Worker[BaseModel]]:
    """Decorate a function of `(params)` or `(params, context)` to execute jobs of `kind`.

    It returns a `result`, a `Failed` or a `FileEffect`; what it raises fails the attempt. Jobs of a kind with effects
    wait for a person by default; `writes` is for kinds that change files and so meet the denials for writing.
    `timeout` and `backoff` are seconds. The worker is known to every engine that this process opens afterwards; for
    `lcp`, name it as an entry point of the group `lcp_engine.workers`. Raises `INVALID_ARGUMENT` for a kind that is
    taken, or that no planner could ask for.
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
        ).for_any_params()
        register(made)
        return made

    return decorate


def _with_context(function: Callable[..., Outcome]) -> Callable[[P, Context], Outcome]:
    wants_context = len(inspect.signature(function).parameters) > 1
    return function if wants_context else lambda params, context: function(params)
