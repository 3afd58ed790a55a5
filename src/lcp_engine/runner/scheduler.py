"""Launch the missions of schedules when they are due, beside a runner."""

from __future__ import annotations

import logging
from functools import partial

from pydantic import ValidationError

from lcp_engine.clock import Clock, Micros
from lcp_engine.core.recurrence import go_on
from lcp_engine.engine.schedules import recurrence_of, tick
from lcp_engine.errors import OF_DATABASE, LcpError
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.schedules import ScheduleRow, due_schedules, note_trouble


class Scheduler:
    """Any number of these, in any number of processes, launch each mission once.

    One that cannot be launched here is told of once, noted, and left to others; it holds up nothing else.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._left: set[tuple[str, Micros]] = set()

    def launch_due(self) -> None:
        """Launch what is due by now. Raises the errors of the database."""
        now = self._clock()
        for row in self._database.read(lambda tx: due_schedules(tx, now)):
            if (row.name, row.due_at) not in self._left:
                self._launch(row, now)

    def _launch(self, row: ScheduleRow, now: Micros) -> None:
        try:
            onward = go_on(recurrence_of(row), row.due_at, now)
            self._database.write(lambda tx: tick(ledger_of(tx), row, now, onward))
        except (LcpError, ValidationError) as error:
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
            self._leave(row, " ".join(str(error).split()))

    def _leave(self, row: ScheduleRow, why: str) -> None:
        self._left.add((row.name, row.due_at))
        logging.getLogger("lcp_engine").warning("schedule %s cannot be launched here: %s", row.name, why)
        self._database.write(partial(_note, row=row, why=why))


def _note(tx: Tx, row: ScheduleRow, why: str) -> None:
    note_trouble(tx, row, why)
