"""Decide on many jobs in a few commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lcp_engine.errors import LcpError

K = TypeVar("K")
R = TypeVar("R")

_THREADS = 32
"""Decisions that arrive at the same time share a commit."""


def each_outcome(keys: Sequence[K], decide: Callable[[K], R]) -> Iterator[tuple[K, R | LcpError]]:
    """The result of `decide` for each key, or its error, in their order and as soon as it is known.

    Each decision succeeds or fails independently. If the caller stops iterating, decisions that have begun are finished
    and no others begin.
    """

    def attempt(key: K) -> R | LcpError:
        try:
            return decide(key)
        except LcpError as refused:
            return refused

    if len(keys) == 1:
        yield keys[0], attempt(keys[0])
        return
    threads = ThreadPoolExecutor(_THREADS)
    try:
        yield from zip(keys, threads.map(attempt, keys), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)
