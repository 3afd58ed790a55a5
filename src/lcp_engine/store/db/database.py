"""Commit transactions: one writer in a process, whose callers share commits (group commit).

A commit waits for the disk, and SQLite has one writer at a time. So `write` queues its caller's work; the first caller
leads: it runs all that is queued as one transaction, commits it, wakes the callers whose work is done, and hands over
to the next one that waits. A caller returns after the commit that holds its work.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar  # noqa: TID251 -- units of every type wait in one queue

from lcp_engine.clock import Clock, Micros
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.store.db.outage import Outage, Waiting
from lcp_engine.store.db.transaction import Backend, Connection, Reading, Tx

T = TypeVar("T")

RETRIES = 8
FIRST_PAUSE = 0.05


class Database:
    """One database. `write` and `read` may be called from any thread.

    Work may run more than once (if another unit of its transaction raised, or the connection was lost), but takes
    effect once; it must have no effects besides its statements. `before_ready_commit` is called before each commit that
    makes a job ready and `on_ready` after it; `before_waiting_commit` before, and `on_waiting` after, each that makes
    missions wait for a person: `Tx.now_waiting`.
    `writer_queue` orders the writers of all processes.

    A database that was there and is away is waited for: each call for `away_seconds` at most, by default as long as its
    kind usually takes to come back.
    """

    def __init__(
        self, backend: Backend, clock: Clock | None = None, *, away_seconds: float | None = None
    ) -> None:
        self.backend = backend
        self.outage = Outage(backend.away_seconds if away_seconds is None else away_seconds)
        self.on_ready: Callable[[], None] = lambda: None
        self.on_waiting: Callable[[Mapping[int, int]], None] = lambda missions: None
        self.before_waiting_commit: Callable[[Tx], None] = lambda tx: None
        self.before_ready_commit: Callable[[Tx], None] = lambda tx: None
        self.writer_queue: WriterOrder = NoWriterQueue()
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._waiting: deque[Unit[Any]] = deque()
        self._is_led = False
        self._is_closed = False
        self._writer: Connection | None = None
        self._was_there = False
        self._doubt: Doubt | None = None
        self._readers = Readers(backend)
        self._clock: Clock | None = clock
        self._leave_clock: Callable[[], None] = lambda: None

    def now(self) -> Micros:
        """The database's time, in microseconds since 1970."""
        if self._clock is None:
            self._clock = self.backend.clock(self._readers.lend)
        return self._clock()

    def follow(self, clock: Clock, close: Callable[[], None]) -> None:
        """Take the time from `clock` from now on; `close` is called at the end."""
        self._clock, self._leave_clock = clock, close

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction that others may share; returns after its commit. Raises what `work` raises."""
        unit = Unit(work)
        with self._lock:
            if self._is_closed:
                advice = "Open the engine again."
                raise LcpError(ErrorCode.DATABASE_FAILED, "the database is closed", advice=advice)
            waits, self._is_led = self._is_led, True
            if waits:
                unit.expect()
                self._waiting.append(unit)
        try:
            if waits:
                self._wait(unit)
            if not unit.is_done:
                self._lead(unit, [] if waits else [unit])
        finally:
            if unit.away_since is not None:
                self.outage.leave(unit, was_answered=unit.has_succeeded)
        return unit.result()

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on one consistent state, which it cannot change."""
        waiting = Waiting()
        try:
            with self.explained():
                found = self._read_patiently(work, waiting)
        except BaseException:
            self.outage.leave(waiting, was_answered=False)
            raise
        if waiting.away_since is not None:
            self.outage.leave(waiting, was_answered=True)
        # A file that can be read may yet be read-only for good.
        self._was_there = self._was_there or self.backend.name != "sqlite"
        return found

    def _read_patiently(self, work: Callable[[Tx], T], waiting: Waiting) -> T:
        retries = 0
        while True:
            try:
                return self._read(work)
            except Exception as error:  # of the driver or of `work`: raised again unless a retry may help
                if self._is_away(error):
                    self._readers.drop_idle()  # they are as dead as this one
                    self.outage.pause(waiting, self._why(error))
                    if self.outage.is_over_for(waiting):
                        raise
                elif retries < RETRIES and self.backend.may_retry(error):
                    _pause(retries)
                    retries += 1
                else:
                    raise

    def join(self, connection: Connection) -> Tx:
        """A transaction that the caller began and commits; the caller calls `end` on it before that."""
        tx = Tx(connection, self.backend.name, self.now())
        tx.at_end.append(partial(self._before_commit, tx))
        return tx

    def close(self) -> None:
        """Finish the writes under way, then close every connection."""
        with self._lock:
            self._is_closed = True
            self._ended.wait_for(lambda: not self._is_led)
            writer, self._writer = self._writer, None
        self._readers.close()
        if writer is not None:
            with suppress(Exception):  # any driver error: what was acknowledged is committed
                writer.close()
        self.writer_queue.close()
        self._leave_clock()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Translate the driver's errors into `LcpError`."""
        try:
            yield
        except LcpError:
            raise
        except Exception as error:  # the driver's own errors have no common class for both databases
            explained = self.backend.explain(error)
            if explained is None:
                raise
            raise explained from error

    def _read(self, work: Callable[[Tx], T]) -> T:
        with self._readers.lend() as connection:
            tx = Tx(connection, self.backend.name, self.now())
            try:
                tx.plain("BEGIN")
                found = work(tx)
                self.backend.settle(connection)
                return found
            finally:
                _roll_back(tx)
                tx.close()

    def _wait(self, unit: Unit[Any]) -> None:
        try:
            unit.wait()
        except BaseException:  # an interrupt of the thread that waits
            with self._lock:
                if unit in self._waiting:
                    self._waiting.remove(unit)
                    if unit.is_woken:  # it was to lead: the next one does
                        self._hand_over()
            raise

    def _lead(self, leader: Unit[Any], batch: list[Unit[Any]]) -> None:
        """Commit the batch with everything that waits, then hand over to the first that came meanwhile."""
        try:
            if self._waiting:
                self._gather(batch)
            self._commit(leader, batch)
        except BaseException as error:  # an interrupt, too: no caller may wait for a leader that is gone
            _fail_all((unit for unit in batch if not unit.is_done), error)
            raise
        finally:
            with self._lock:
                self._hand_over()
            wake_all(batch)

    def _gather(self, batch: list[Unit[Any]]) -> None:
        """Add the units that wait."""
        with self._lock:
            batch += self._waiting
            self._waiting.clear()

    def _hand_over(self) -> None:
        while self._waiting and self._waiting[0].is_done:  # its caller was interrupted
            self._waiting.popleft()
        self._is_led = bool(self._waiting)
        if self._is_led:
            self._waiting[0].wake()
        elif self._is_closed:
            self._ended.notify_all()

    def _commit(self, leader: Unit[Any], batch: list[Unit[Any]]) -> None:
        """Commit a batch. Units that arrive meanwhile join it; units that fail leave it."""
        retries, is_alone = 0, False
        while batch:
            part = batch
            try:
                self._end_doubt(batch)
                part = batch[:1] if is_alone else batch
                culprit = self._attempt(part, is_alone) if part else None
            except Exception as error:  # noqa: BLE001 -- every caller of the batch gets it
                self._forget_broken_writer()
                if self._doubt is not None or self._is_away(error):
                    self._outlast(error, leader, batch)
                elif retries < RETRIES and self.backend.may_retry(error):
                    _pause(retries)
                    retries += 1
                    # Alone, a unit takes its locks in order, so that no two transactions wait for each other.
                    is_alone = is_alone or len(batch) > 1
                else:
                    _fail_all(part, self.backend.explain(error) or error)
                    if part is batch:
                        return
                    _leave(part, batch)
                    retries = 0
                continue
            if culprit is not None:
                _leave([culprit], batch)
            elif part is batch:
                return
            else:
                _leave(part, batch)
                retries = 0

    def _outlast(self, error: Exception, leader: Unit[Any], batch: list[Unit[Any]]) -> None:
        """Wait a moment for a database that is away; the units that have waited long enough leave the batch."""
        now = time.monotonic()
        if self.backend.name != "sqlite":  # the next connection may lead to another server
            self._drop_writer()
        self._gather(batch)
        for unit in batch:
            unit.away_since = unit.away_since or now
        self.outage.pause(min(batch, key=lambda unit: unit.away_since or now), self._why(error))
        tired = [unit for unit in batch if self.outage.is_over_for(unit)]
        for unit in tired:
            in_doubt = self._doubt is not None and unit in self._doubt.units
            unit.fail(_unknown(error) if in_doubt else self.backend.explain(error) or error)
        _leave(tired, batch)
        if self._doubt is not None and all(unit.is_done for unit in self._doubt.units):
            self._doubt = None
        if leader.is_done:  # the others go on waiting, led by one of them
            with self._lock:
                self._waiting.extendleft(reversed(batch))
            batch.clear()

    def _end_doubt(self, batch: list[Unit[Any]]) -> None:
        """Ask what became of the commit whose connection was lost, if there is one."""
        doubt = self._doubt
        if doubt is None:
            return
        connection = self._writer or self._connect()
        took_effect = self.backend.has_committed(connection, doubt.transaction, doubt.tx.now)
        if took_effect is None:
            raise _unknown(None)
        self._doubt = None
        if took_effect:
            done = [unit for unit in doubt.units if not unit.is_done]
            for unit in done:
                unit.is_done = True
            _leave(done, batch)
            self._announce(doubt.tx)

    def _attempt(self, batch: list[Unit[Any]], is_alone: bool) -> Unit[Any] | None:
        """One transaction over the batch. The unit that raised, if the transaction was rolled back for it."""
        with self.writer_queue:
            tx, culprit = self._transact(batch, is_alone)
        if culprit is not None:
            return culprit
        for unit in batch:
            unit.is_done = True
        self._was_there = True
        self._announce(tx)
        return None

    def _announce(self, tx: Tx) -> None:
        """Say what a commit has changed."""
        if tx.made_ready:
            self.on_ready()
        if tx.now_waiting:
            self.on_waiting(tx.now_waiting)

    def _transact(self, batch: list[Unit[Any]], is_alone: bool) -> tuple[Tx, Unit[Any] | None]:
        connection = self._writer or self._connect()
        try:
            self.backend.begin(connection)
        except BaseException:  # an interrupt may come when the transaction has begun
            with suppress(Exception):
                connection.cursor().execute("ROLLBACK")
            raise
        tx = Tx(connection, self.backend.name, self.now())
        try:
            culprit = self._perform(connection, tx, batch, is_alone)
            if culprit is not None:
                _roll_back(tx)
                return tx, culprit
            tx.end()
            self._before_commit(tx)
            self._end(connection, tx, batch)
        except BaseException:  # an interrupt, too, leaves no transaction open
            _roll_back(tx)
            raise
        finally:
            tx.close()
        return tx, None

    def _before_commit(self, tx: Tx) -> None:
        if tx.made_ready:
            self.before_ready_commit(tx)
        if tx.now_waiting:
            self.before_waiting_commit(tx)

    def _perform(
        self, connection: Connection, tx: Tx, batch: list[Unit[Any]], is_alone: bool
    ) -> Unit[Any] | None:
        """Run the work of the batch; the unit that raised, if one did."""
        for unit in batch:
            try:
                unit.perform(tx)
                # The callers of the last commit are back by now; without them this batch costs one more fsync.
                if self._waiting and unit is batch[-1] and not is_alone:
                    self._gather(batch)
                if len(batch) > 1:  # an error of one must surface before the next one starts
                    self.backend.settle(connection)
            except BaseException as error:  # a caller's own code: it may raise anything
                if not isinstance(error, Exception):
                    unit.fail(error)
                elif self.backend.may_retry(error) or self._is_away(error):
                    raise
                else:
                    unit.fail(self.backend.explain(error) or error)
                return unit
        return None

    def _end(self, connection: Connection, tx: Tx, batch: list[Unit[Any]]) -> None:
        transaction = self.backend.transaction(connection)
        try:
            tx.plain("COMMIT")
        except Exception:  # whatever the driver raises: the connection tells whether it was lost
            if transaction is not None and not self.backend.is_usable(connection):
                # Perhaps only the acknowledgement was lost: then doing it again would do it twice.
                self._doubt = Doubt(transaction, tx, [*batch])
            raise

    def _drop_writer(self) -> None:
        if self._writer is not None:
            with suppress(Exception):  # it may be gone already
                self._writer.close()
            self._writer = None

    def _connect(self) -> Connection:
        self._writer = self.backend.connect()
        return self._writer

    def _forget_broken_writer(self) -> None:
        if self._writer is not None and not self.backend.is_usable(self._writer):
            self._drop_writer()

    def _is_away(self, error: Exception) -> bool:
        # One that was never there is an error at once; one that was comes back.
        return self._was_there and self.backend.is_away(error)

    def _why(self, error: Exception) -> str:
        return str(error if isinstance(error, LcpError) else self.backend.explain(error) or error)


@dataclass(frozen=True)
class Doubt:
    """A commit whose connection was lost before it was acknowledged."""

    transaction: str
    tx: Tx
    units: list[Unit[Any]]


def _unknown(error: Exception | None) -> LcpError:
    message = "the database's connection was lost during a commit; it is unknown whether it took effect"
    unknown = LcpError(ErrorCode.DATABASE_FAILED, message, advice=GENERAL)
    unknown.__cause__ = error
    return unknown


def _leave(units: Iterable[Unit[Any]], batch: list[Unit[Any]]) -> None:
    """Take units that are done out of a batch, and wake their callers."""
    for unit in [*units]:
        if unit in batch:
            batch.remove(unit)
        unit.wake()


def _pause(retries: int) -> None:
    """Wait a little longer each time, and not as long as others who wait for the same."""
    time.sleep(FIRST_PAUSE * 2**retries * random.uniform(0.5, 1.0))  # noqa: S311 -- no secret


def _roll_back(tx: Tx) -> None:
    with suppress(Exception):  # any driver error: the one that led here is reported
        tx.plain("ROLLBACK")


def _fail_all(batch: Iterable[Unit[Any]], error: BaseException) -> None:
    for unit in batch:
        unit.fail(error)


CHECK_SECONDS = 1.0


class Unit(Generic[T]):
    """Work that waits for its commit. Its caller is woken when it is done, or when it is its turn to lead."""

    __slots__ = ("_error", "_next", "_value", "_wakeup", "away_since", "is_done", "is_woken", "work")

    def __init__(self, work: Callable[[Tx], T]) -> None:
        self.work = work
        self.is_woken = False
        self._wakeup: threading.Lock | None = None
        self._next: Unit[Any] | None = None
        self.away_since: float | None = None
        self.is_done = False
        self._value: list[T] = []
        self._error: BaseException | None = None

    def expect(self) -> None:
        """Prepare for `wait`, before any `wake`. A lock, since an Event takes longer than the whole hand-over."""
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def wait(self) -> None:
        """Return once it is woken, and wake the next one."""
        assert self._wakeup is not None
        # A caller that is interrupted wakes no other: the next one finds out by this check.
        while not self._wakeup.acquire(timeout=CHECK_SECONDS) and not self.is_done:
            pass
        if self._next is not None:
            self._next.wake()

    @property
    def waits(self) -> bool:
        return self._wakeup is not None and not self.is_woken

    def is_before(self, following: Unit[Any]) -> None:
        self._next = following

    def wake(self) -> None:
        if self._wakeup is not None and not self.is_woken:
            self.is_woken = True
            self._wakeup.release()

    def perform(self, tx: Tx) -> None:
        self._value = [self.work(tx)]

    @property
    def has_succeeded(self) -> bool:
        return self.is_done and self._error is None

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.is_done = True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]


def wake_all(units: Iterable[Unit[Any]]) -> None:
    """Wake the callers that wait, each by the one before it: all at once they would contend for the interpreter."""
    waiting = [unit for unit in units if unit.waits]
    for unit, following in pairwise(waiting):
        unit.is_before(following)
    if waiting:
        waiting[0].wake()


class Readers:
    """A pool of connections that read, as many as there were reads at the same moment."""

    def __init__(self, backend: Reading) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """A connection for one read; a broken one is not lent again."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        self._is_closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if self._backend.is_usable(connection):
                    return connection
        return self._backend.connect_to_read()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if self._backend.is_usable(connection) and not self._is_closed:
                self._idle.append(connection)
                return
        _close(connection)


def _close(connection: Connection) -> None:
    with suppress(Exception):  # any driver error: nothing was written
        connection.close()


class WriterOrder(Protocol):
    """Excludes the writers of other processes inside `with`, in the order in which they came."""

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    @property
    def has_waiters(self) -> bool:
        """Inside `with`: whether another writer waits."""

    def wait_for_current(self) -> None:
        """Outside `with`: wait until the writers that are in the queue now have left it, a moment at most."""

    def for_another_thread(self) -> WriterOrder:
        """The same queue for one more thread."""

    def close(self) -> None: ...


class NoWriterQueue:
    """No order but the database's own locks."""

    def __enter__(self) -> None:
        """Go on."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Go on."""

    @property
    def has_waiters(self) -> bool:
        return False

    def wait_for_current(self) -> None:
        """There is no queue to wait for."""

    def for_another_thread(self) -> NoWriterQueue:
        return self

    def close(self) -> None:
        """Nothing is open."""
