"""Decide on many jobs in few commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lcp_engine.errors import LcpError

K = TypeVar("K")
R = TypeVar("R")

_THREADS = 32
"""Decisions that arrive together share a commit."""


def each_outcome(keys: Sequence[K], decide: Callable[[K], R]) -> Iterator[tuple[K, R | LcpError]]:
    """What `decide` returns for each key, or the error that it raises; in their order, each as soon as it is there.

    Each decision is checked by itself and stands by itself. What is under way is brought to its end when the caller
    goes away, and nothing more is begun.
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
