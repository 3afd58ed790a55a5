"""Decide on many jobs in a few commits, and count what that came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lcp_engine.api.pages import JobFilter, PageQueries
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import object_in
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from lcp_engine.api.kernel_engine import KernelEngine
    from lcp_engine.api.pages import JsonObject

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


@dataclass(frozen=True)
class Tally:
    """Numbers of the jobs for which a decision was made, each in one of the lists, and the errors of the others."""

    word: str
    """`approved` or `rejected`."""
    done: Sequence[int]
    waiting: Sequence[int]
    """Approved, and still held until other people have approved them, too."""
    before: Sequence[int]
    """Decided in the same way before, by another person."""
    refused: Sequence[LcpError]
    awaited: str
    """The approvals that the waiting jobs miss."""

    def __str__(self) -> str:
        return told(self.word, len(self.done), len(self.waiting), len(self.before), self.awaited)


def decide_each(
    engine: KernelEngine, ids: Sequence[int], decide: Callable[[int], bool], word: str, *, by: str
) -> Tally:
    """Call `decide` for each job, which is false if it was decided so before; `by` is the person who decides."""
    outcomes = dict(each_outcome(ids, decide))
    refused = [outcome for outcome in outcomes.values() if isinstance(outcome, LcpError)]
    made = [job_id for job_id, outcome in outcomes.items() if not isinstance(outcome, LcpError)]
    waiting, awaited = missing_approvals(engine, made)
    rest = [job_id for job_id in made if job_id not in waiting]
    # A decision that this person has sent twice, on a slow connection, is theirs.
    done = [job_id for job_id in rest if outcomes[job_id] or last_decision(engine, job_id).get("by") == by]
    before = [job_id for job_id in rest if job_id not in done]
    return Tally(word, done, waiting, before, refused, awaited)


def missing_approvals(engine: KernelEngine, ids: Sequence[int]) -> tuple[list[int], str]:
    """Those of the jobs that are held for the approvals of more people, and which: `the approval of anna or ben`."""
    heads = PageQueries(engine.instance).held_heads(JobFilter(None, [State.HELD]), among=ids, limit=len(ids))
    found = engine.approvals([engine.job(head.id) for head in heads])
    missing = {approvals.awaited for approvals in found.values()}
    return [*found], missing.pop() if len(missing) == 1 else MORE_APPROVALS


MORE_APPROVALS = "more approvals"


def last_decision(engine: KernelEngine, job_id: int) -> JsonObject:
    """The newest event `decided` of a job: `by` whom, and which `decision`; empty if there is none."""
    events = engine.events(engine.job(job_id).mission_id, job_id=job_id, event="decided")
    return dict(object_in(events[-1]["data"])) if events else {}


def told(word: str, done: int, waiting: int = 0, before: int = 0, awaited: str = MORE_APPROVALS) -> str:
    """Counts in words: `3 jobs were approved, 1 waits for the approval of ben, 1 was approved before`."""
    counts = [
        (done, f"was {word}", f"were {word}"),
        (waiting, f"waits for {awaited}", f"wait for {awaited}"),
        (before, f"was {word} before", f"were {word} before"),
    ]
    first, *more = [count for count in counts if count[0]] or counts[:1]
    noun = "job" if first[0] == 1 else "jobs"
    return ", ".join(
        [f"{first[0]:,} {noun} {first[1 if first[0] == 1 else 2]}"]
        + [f"{count:,} {one if count == 1 else many}" for count, one, many in more]
    )
