"""Tell which frame was on the terminal when a key arrived, however late that key is handled."""

from __future__ import annotations

import codecs
import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TextIO

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

_WAIT_SECONDS = 0.1


class Frame(str):
    """The end of a frame in what is written to the terminal; it has no text. What arrived after `at` came after it."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = math.inf


NOT_YET = Frame()
"""The frame of a part that has not been on the screen: no key came after it."""


class Part(Protocol):
    """A part of the screen that learns which frame shows it."""

    def drawn_in(self, frame: Frame) -> None: ...


class FramedApp(App[int]):
    """A program that knows when its frames were written and when the key arrived that it handles."""

    def __init__(self) -> None:
        super().__init__(driver_class=TimedDriver, ansi_color=True)
        self.key_came_at = 0.0
        self._drawn: list[Part] = []

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self.key_came_at = event.time
        await super().on_event(event)

    def draws(self, part: Part) -> None:
        """Note that the frame in the making shows a part."""
        self._drawn.append(part)
        if not isinstance(self._driver, TimedDriver):  # there is no terminal
            self.post_display_hook()

    def post_display_hook(self) -> None:
        """Called by Textual behind each frame."""
        drawn, self._drawn = self._drawn, []
        if not drawn or self._batch_count:
            return
        frame = Frame()
        if isinstance(self._driver, TimedDriver):
            self._driver.write(frame)
        else:
            frame.at = time.monotonic()
        for part in drawn:
            part.drawn_in(frame)


class TimedDriver(LinuxDriver):
    """A terminal whose keys have the time of their arrival, as compared with the frames that are written.

    Just before a frame is written, what has arrived is read: it is older than the frame. The thread that reads keys
    may be late.
    """

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert self._file is not None
        self._file = _Output(self._file, self._read_keys)  # type: ignore[assignment]  # all that Textual uses of a file
        self._lock = threading.Lock()
        self._is_reading = False
        self._arrived: list[tuple[float, bytes]] = []
        self._wakes = -1

    def run_input_thread(self) -> None:
        """Like that of LinuxDriver, which stamps keys when they are parsed."""
        parser = XTermParser(self._debug)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        woken, wakes = os.pipe()
        with self._lock:
            self._wakes, self._is_reading = wakes, True
        try:
            # LinuxDriver starts another thread at each SIGCONT, and ends only the last one.
            while not self.exit_event.is_set() and self._wakes == wakes:
                if woken in select.select([self.fileno, woken], [], [], _WAIT_SECONDS)[0]:
                    os.read(woken, 1)
                self._read_keys()
                with self._lock:
                    arrived, self._arrived = self._arrived, []
                for at, data in arrived:
                    if text := decoder.decode(data):
                        self._process(parser.feed(text), at)
                self._process(parser.tick(), time.monotonic())
        finally:
            with self._lock:
                if self._wakes == wakes:
                    self._wakes, self._is_reading = -1, False
            os.close(woken)
            os.close(wakes)

    def _read_keys(self) -> float:
        """Read what has arrived; the time then."""
        with self._lock:
            if self._is_reading and select.select([self.fileno], [], [], 0)[0]:
                data = b""
                with suppress(OSError):  # the terminal is gone; a signal says so
                    data = os.read(self.fileno, 65536)
                if data:
                    self._arrived.append((time.monotonic(), data))
                    os.write(self._wakes, b"\n")
                else:
                    self.exit_event.wait(_WAIT_SECONDS)
            return time.monotonic()

    def _process(self, messages: Iterable[Message], at: float) -> None:
        for message in messages:
            message.time = at
            self.process_message(message)


class _Output:
    """The terminal as Textual's thread writes to it."""

    def __init__(self, file: TextIO, read_keys: Callable[[], float]) -> None:
        self._file = file
        self._read_keys = read_keys
        self._frame_at = math.inf
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        if isinstance(text, Frame):
            text.at = self._frame_at
            return
        # All but the end, which may wait for a slow terminal: the frame is not complete without it.
        self._file.write(text[:-1])
        self._file.flush()
        self._frame_at = self._read_keys()
        self._file.write(text[-1:])
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()
