"""Run acceptance checks in a process whose time and memory are limited (R9).

What a planner wrote is parsed there: some hundred bytes of YAML, and some kilobytes of TOML, can take minutes and
gigabytes. The process is confined to the root; if isolation is off, or the kernel has no Landlock, it is limited only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pydantic import JsonValue, ValidationError

from lcp_engine.core.decide import FailedCheck
from lcp_engine.core.mission.accept import AcceptCheck
from lcp_engine.runner.confined.channel import Answer, Disconnected, Duty, Head, Request, TimedOut, text_of
from lcp_engine.runner.confined.process import ConfinedProcess, Spawner, spawner
from lcp_engine.runner.confined.server import SETUPS, Setup
from lcp_engine.sandbox.root import Root


@dataclass(frozen=True)
class CheckLimits:
    """Limits of one check, and of all checks of a mission together."""

    seconds: float = 10.0
    seconds_together: float = 60.0
    memory: int = 1024 * 1024 * 1024

    @property
    def sentence(self) -> str:
        return f"a check may take {self.seconds:g} s and {self.memory // 2**20:,} MiB of memory"


LIMITS = CheckLimits()
_MOST_FILES = 100
"""Deliverables of one reply that are looked for."""


@dataclass(frozen=True)
class Undecided:
    """The fact that a command of a check ran out of its time: the check has neither passed nor failed."""

    fact: str

    def __str__(self) -> str:
        return self.fact


class Checks:
    """Runs the checks of one mission. Its process starts with the first check, and again if one has ended it.

    `run` runs the command of a check, and tells why it does not pass.
    """

    def __init__(
        self,
        root: Root,
        setup: Setup,
        *,
        confined: bool,
        run: Callable[[Sequence[str]], str | Undecided | None] | None = None,
        limits: CheckLimits = LIMITS,
        spawned_by: Spawner | None = None,
    ) -> None:
        self._spawner = spawned_by or spawner()
        self._root = root
        self._setup: JsonValue = SETUPS.dump_python(setup, mode="json")
        self._confined = confined
        self._run = run
        self._limits = limits
        self._process: ConfinedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def failed(self, checks: Sequence[AcceptCheck]) -> tuple[FailedCheck, ...]:
        """The checks that do not pass now, but those that a planner verifies; commands come last.

        Raises `NOT_ISOLATED`, `WORKER_DIED` if no process starts.
        """
        until = time.monotonic() + self._limits.seconds_together
        found: list[tuple[int, AcceptCheck, str | Undecided | None]] = [
            (index, check, self._fault(check, until))
            for index, check in enumerate(checks)
            if check.path is not None
        ]
        found += [
            (index, check, self._run(check.command))
            for index, check in enumerate(checks)
            if check.command is not None and self._run is not None
        ]
        return tuple(
            FailedCheck(index, f"{check.description}: {fault}", isinstance(fault, Undecided))
            for index, check, fault in found
            if fault is not None
        )

    def missing(self, paths: Sequence[str]) -> str | None:
        """Which of some files do not exist; None if all do."""
        until = time.monotonic() + self._limits.seconds_together
        faults = list[str]()
        for path in paths[:_MOST_FILES]:
            try:
                fault = self._fault(AcceptCheck(file_exists=path), until)
            except ValidationError:
                fault = f"{path!r} is not a path beneath the root"
            faults += [] if fault is None else [fault]
        return "; ".join(faults) or None

    def _fault(self, check: AcceptCheck, until: float) -> str | None:
        if time.monotonic() >= until:
            return f"it was not run: the checks before it took {self._limits.seconds_together:g} s"
        request: Head = {"do": Request.CHECK, "check": check.model_dump(mode="json"), "setup": self._setup}
        try:
            head = self._answer(request)
        except TimedOut:
            self._end()
            return f"it took more than {self._limits.seconds:g} s; {self._limits.sentence}"
        except Disconnected:
            self._end()
            return f"it ended the process that ran it; {self._limits.sentence}"
        if head.get("is") == Answer.OUT_OF_MEMORY:
            self._end()
            return (
                f"it took more than {self._limits.memory // 2**20:,} MiB of memory; {self._limits.sentence}"
            )
        return None if head.get("fault") is None else text_of(head, "fault")

    def _answer(self, request: Head) -> Head:
        """Answer of the process. One that died is replaced once: something else may have killed it."""
        try:
            return self._started().exchange(request, b"", self._limits.seconds)[0]
        except Disconnected:
            self._end()
            return self._started().exchange(request, b"", self._limits.seconds)[0]

    def _started(self) -> ConfinedProcess:
        if self._process is None:
            self._process = self._spawner.spawn(
                self._root, Duty.CHECK, self._limits.memory, confined=self._confined
            )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
