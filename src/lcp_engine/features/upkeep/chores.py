"""Do regularly what the configuration asks for: remove old missions, back the database up, check it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial

from lcp_engine.clock import SECOND, Micros, iso, micros
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore
from lcp_engine.features.upkeep.settings import Duty, Upkeep
from lcp_engine.features.upkeep.store import upkeep
from lcp_engine.store.db.json_text import JsonObject

LOOK_SECONDS = 60.0
"""How often it is found out what is due, unless it is due earlier."""
DAY: Micros = 86_400 * SECOND


def rhythms(stated: Upkeep) -> Mapping[Duty, Micros]:
    """Interval of each duty that the configuration states."""
    found: dict[Duty, Micros] = {}
    if stated.retention is not None:
        found[Duty.RETENTION] = DAY
    if stated.backup is not None:
        found[Duty.BACKUP] = micros(stated.backup.every)
    if stated.check is not None:
        found[Duty.CHECK] = micros(stated.check.every)
    return found


@dataclass(frozen=True)
class Round:
    """A duty that is done `every` so long: `work` is given the due time and returns what it found."""

    duty: Duty
    every: Micros
    work: Callable[[Micros], JsonObject]


class Housekeeper:
    """Does the rounds of one runner, `runner_id`, until it `is_stopping`. Each due time is one runner's."""

    def __init__(self, instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> None:
        self._instance = instance
        self._database = instance.database
        self._runner_id = runner_id
        self._is_stopping = is_stopping
        self._next: dict[Duty, Micros] = {}

    def rounds(self) -> Iterator[Round]:
        """Rounds that the configuration asks for."""
        works = {Duty.RETENTION: self._remove_old, Duty.BACKUP: self._back_up, Duty.CHECK: self._check}
        for duty, every in rhythms(self._instance.settings(Upkeep)).items():
            yield Round(duty, every, works[duty])

    def do(self, one: Round) -> None:
        """Do what is due, if no other runner does. Re-raises database errors; what else fails is stored and logged."""
        taken = self._database.write(lambda tx: upkeep.take(tx, one.duty, self._runner_id, one.every))
        if taken is not None:
            try:
                found = one.work(taken.due_at)
            except Exception as error:  # noqa: BLE001 -- a duty that fails must not end the runner
                self._fail(taken, " ".join(str(error).split()) or type(error).__name__)
            else:
                if not self._is_stopping():
                    self._database.write(lambda tx: upkeep.note_done(tx, taken, one.every, found))
        row = self._database.read(upkeep.duties).get(one.duty)
        self._next[one.duty] = self._database.now() if row is None else row.begins_at(one.every)

    def seconds_until_due(self, one: Round) -> float:
        """Seconds until a duty is due, at most `LOOK_SECONDS`: another runner may have failed by then."""
        left = (self._next.get(one.duty, 0) - self._database.now()) / SECOND
        return min(left, LOOK_SECONDS) if left > 0 else (LOOK_SECONDS if one.duty in self._next else 0.001)

    def _fail(self, taken: upkeep.Taken, message: str) -> None:
        if self._is_stopping():  # the next runner begins it anew
            return
        again = self._database.write(lambda tx: upkeep.note_failed(tx, taken, message))
        at = datetime.fromisoformat(iso(again)).astimezone()
        logging.getLogger("lcp_engine").warning(
            "%s failed, and is tried again at %s: %s", taken.duty, f"{at:%H:%M:%S}", message
        )

    def _remove_old(self, due: Micros) -> JsonObject:
        from lcp_engine.features.upkeep.store.prune import prune

        stated = self._instance.settings(Upkeep).retention
        assert stated is not None
        done = prune(
            self._database,
            ended_before=self._database.now() - micros(stated.after),
            keep=stated.keep,
            preimages=stated.preimages,
            is_stopping=self._is_stopping,
        )
        return asdict(done)

    def _back_up(self, due: Micros) -> JsonObject:
        from lcp_engine.features.upkeep.store.backups import keep_backups

        stated = self._instance.settings(Upkeep).backup
        assert stated is not None
        file, count = keep_backups(
            self._instance.url, self._database.backend, stated, due, is_stopping=self._is_stopping
        )
        return {"file": str(file), "bytes": count}

    def _check(self, due: Micros) -> JsonObject:
        from lcp_engine.features.check.store.examination import check_database

        faults = check_database(
            self._instance.url,
            kept_bytes=self._instance.caps.preimage_bytes,
            is_stopping=self._is_stopping,
        )
        if faults:
            logging.getLogger("lcp_engine").warning(
                "check found faults, which `lcp db check` lists, such as: %s", faults[0]
            )
        return {"faults": len(faults), "first": faults[0] if faults else None}


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    keeper = Housekeeper(instance, runner_id, is_stopping)
    for one in keeper.rounds():
        do, until_due = partial(keeper.do, one), partial(keeper.seconds_until_due, one)
        yield Chore(name=one.duty, do=do, until_due=until_due, is_quick=False, is_general=True)
