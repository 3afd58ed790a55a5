"""Let the lanes of a runner sleep until there is work: one at the bell itself, so that no thread has to wake another.

The others sleep until somebody calls one. Whoever finds work calls the next one before it begins: that one takes its
place at the bell, or finds work, too.
"""

from __future__ import annotations

import threading

from lcp_engine.store.host.wakeup import Ear


class Rest:
    """Where lanes sleep. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ear: Ear | None = None
        self._is_listening = False
        self.calls = 0
        """To be read before a look for work: `sleep` returns at once when somebody has called since."""

    def open(self, ear: Ear) -> None:
        """From now on there is a bell to listen to."""
        self._ear = ear

    def sleep(self, calls: int, seconds: float | None) -> bool:
        """Sleep until a call after the first `calls`, or until the bell rings, `seconds` at most.

        Whether this lane was the one at the bell: it goes first. Lanes that are not may sleep longer.
        """
        with self._changed:
            ear = self._ear
            if self.calls != calls or ear is None:
                return False
            if self._is_listening:
                self._changed.wait()
                return False
            self._is_listening = True
        try:
            ear.listen(seconds)
        finally:
            with self._changed:
                self._is_listening = False
                if self._ear is None:
                    ear.close()
        return True

    def call(self) -> None:
        """Let one lane go on: the one at the bell, if there is one."""
        with self._changed:
            self.calls += 1
            if self._is_listening and self._ear is not None:
                self._ear.wake()
            else:
                self._changed.notify()

    def call_all(self) -> None:
        """Let all lanes go on."""
        with self._changed:
            self.calls += 1
            if self._is_listening and self._ear is not None:
                self._ear.wake()
            self._changed.notify_all()

    def close(self) -> None:
        """Listen no more. A lane that sleeps on, since nobody waited for it, closes the ear itself."""
        with self._changed:
            ear, self._ear = self._ear, None
            if ear is not None and not self._is_listening:
                ear.close()
