"""Remember in this process what is known of servers, and how many requests each has under way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from lcp_engine.planners.llm.ladder import Probe, Step


@dataclass(frozen=True)
class Memory:
    """What all planners of a process share; usable from any thread."""

    _probes: dict[tuple[str, str], Probe] = field(default_factory=dict)
    _places: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def probe(self, endpoint: str, model: str, ladder: Sequence[Step]) -> Probe:
        """What is known of a model at an endpoint; at first, that it is asked on the highest rung."""
        with self._lock:
            return self._probes.get((endpoint, model)) or Probe(endpoint, model, ladder[0])

    def keep(self, probe: Probe) -> None:
        """Know this from now on."""
        with self._lock:
            self._probes[probe.endpoint, probe.model] = probe

    def probes(self) -> tuple[Probe, ...]:
        """Everything that is known."""
        with self._lock:
            return tuple(self._probes.values())

    def places(self, endpoint: str, concurrency: int) -> threading.BoundedSemaphore:
        """The places for requests at an endpoint; who asks first says how many there are."""
        with self._lock:
            return self._places.setdefault(endpoint, threading.BoundedSemaphore(concurrency))


MEMORY = Memory()
