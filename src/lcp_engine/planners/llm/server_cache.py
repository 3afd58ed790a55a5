"""Remember what is known of servers, and how many requests each has under way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from lcp_engine.planners.environment import NOWHERE, Probes
from lcp_engine.planners.llm.output_modes import Probe, Step, probe_text, read_probe


@dataclass(frozen=True)
class Memory:
    """What all planners of a process share; usable from any thread. `stored` is what outlives the process."""

    _probes: dict[tuple[str, str], Probe] = field(default_factory=dict)
    _places: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def probe(
        self, endpoint: str, model: str, ladder: Sequence[Step], stored: Probes = NOWHERE.probes
    ) -> Probe:
        """What is known of a model at an endpoint; at first, that it is asked on the highest rung."""
        with self._lock:
            known = self._probes.get((endpoint, model))
        if known is not None:
            return known
        text = stored.find(endpoint, model)
        found = None if text is None else read_probe(endpoint, model, text, ladder)
        if found is None:
            return Probe(endpoint, model, ladder[0])
        with self._lock:
            return self._probes.setdefault((endpoint, model), found)

    def keep(self, probe: Probe, stored: Probes = NOWHERE.probes) -> None:
        """Know this from now on."""
        with self._lock:
            self._probes[probe.endpoint, probe.model] = probe
        if not probe.doubts:
            stored.keep(probe.endpoint, probe.model, probe_text(probe))

    def forget(self, probe: Probe, stored: Probes = NOWHERE.probes) -> None:
        """Know nothing any more: the ladder is climbed down anew."""
        with self._lock:
            self._probes.pop((probe.endpoint, probe.model), None)
        stored.forget(probe.endpoint, probe.model)

    def probes(self) -> tuple[Probe, ...]:
        """Everything that is known."""
        with self._lock:
            return tuple(self._probes.values())

    def places(self, endpoint: str, concurrency: int) -> threading.BoundedSemaphore:
        """The places for requests at an endpoint; who asks first says how many there are."""
        with self._lock:
            return self._places.setdefault(endpoint, threading.BoundedSemaphore(concurrency))


MEMORY = Memory()
