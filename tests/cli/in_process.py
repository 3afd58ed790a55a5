"""Run `lcp` in the test's process, as isolated from it as a separate process would be."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import IO, TypeVar

from lcp_engine.cli.app import start
from lcp_engine.features.programs.servers import load_files
from lcp_engine.features.programs.servers.external_worker import MODULE_OF_FILE
from lcp_engine.sandbox.system import own_places
from lcp_engine.workers import registry

K = TypeVar("K")
V = TypeVar("V")
TIMEOUT_SECONDS = 60
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH)
NAMES = ("stdin", "stdout", "stderr")


def run_in_process(
    arguments: Sequence[str], *, home: Path, environment: Mapping[str, str], stdin: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `lcp` with `arguments`, in the directory `home` and with only `environment`.

    Also fails if the command leaves a thread, a signal handler or an open file of `home` behind.
    """
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        threads, files = set(threading.enumerate()), _open_below(home)
        with ExitStack() as restored:
            for planner_environment in (
                _in_directory(home), _in_environment(environment), _with_signals(), _with_streams((given, out, err)),
                _without_log_handlers(), _without_new_kinds(),
            ):  # fmt: skip
                restored.enter_context(planner_environment)
            code = start(arguments)
        # An object in a reference cycle closes its files late; most of them are young, and quickly collected.
        for generation in (1, 2):
            if _open_below(home) != files:
                gc.collect(generation)
        left = [*(set(threading.enumerate()) - threads), *(Counter(_open_below(home)) - Counter(files))]
        assert not left, f"the command left {left}"
        return code, _text(out), _text(err)


@contextmanager
def _in_directory(home: Path) -> Iterator[None]:
    before = os.open(".", os.O_PATH)
    os.chdir(home)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _in_environment(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _replace_environment(environment)
    try:
        yield
    finally:
        _replace_environment(before)


def _restore(mapping: dict[K, V], before: Mapping[K, V]) -> None:
    mapping.clear()
    mapping.update(before)


def _replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


@contextmanager
def _with_signals() -> Iterator[None]:
    """Default handlers, as a process begins with, and an end to a command that hangs."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    previous = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_SECONDS)
    try:
        yield
        assert {number: signal.getsignal(number) for number in SIGNALS} == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up(number: int, frame: FrameType | None) -> None:
    message = f"lcp has not ended after {TIMEOUT_SECONDS} s"
    raise TimeoutError(message)


@contextmanager
def _with_streams(files: Sequence[IO[bytes]]) -> Iterator[None]:
    """Descriptors 0, 1 and 2 are `files`, also for the processes that the command starts."""
    descriptors = [os.dup(number) for number in range(3)]
    streams = [getattr(sys, name) for name in NAMES]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    try:
        for number, name in enumerate(NAMES):
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115  # a descriptor
        yield
        for name in NAMES[1:]:
            getattr(sys, name).flush()
    finally:
        for number, (name, stream, descriptor) in enumerate(zip(NAMES, streams, descriptors, strict=True)):
            setattr(sys, name, stream)
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _without_log_handlers() -> Iterator[None]:
    """Warnings go to stderr, as in a process that configures no logging."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = before


@contextmanager
def _without_new_kinds() -> Iterator[None]:
    """Kinds of files, and what is protected because of them, belong to this command alone."""
    kinds, protected = dict(registry._REGISTERED), dict(own_places._MORE)
    files, programs, modules = set(load_files._LOADED), set(load_files._PROGRAMS), set(sys.modules)
    try:
        yield
    finally:
        _restore(registry._REGISTERED, kinds)
        _restore(own_places._MORE, protected)
        load_files._LOADED.intersection_update(files)
        load_files._PROGRAMS.intersection_update(programs)
        for name in set(sys.modules) - modules:
            if name.startswith(MODULE_OF_FILE):
                del sys.modules[name]


def _open_below(home: Path) -> list[str]:
    """The paths below `home` that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib is slower
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # as above
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if path.startswith(f"{home}/"):
            found.append(path)
    return found


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
