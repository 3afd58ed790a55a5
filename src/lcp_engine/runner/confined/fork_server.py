"""Be the process whose children execute file kinds: it loads the code once, and each child is a fork of it."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Mapping
from importlib import import_module

from pydantic import BaseModel, JsonValue

from lcp_engine.runner.confined.channel import Broken, Head, Line, number_of, text_of
from lcp_engine.runner.confined.read_server import Reader
from lcp_engine.runner.confined.write_server import Writer
from lcp_engine.sandbox.landlock import die_with_parent, load_late, restrict_to
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Worker

_STACK_BYTES = 1024 * 1024
_MESSAGE = 1024 * 1024


def main(control: int, parent: int, kinds: Mapping[str, str]) -> None:
    """Fork a child for each message on the socket `control`, until it ends or the process `parent` does.

    `kinds` names the worker of each kind as "module:attribute".
    """
    here, watched = os.getpid(), os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave nothing behind
    os.chdir("/")
    workers = {kind: _worker(place) for kind, place in kinds.items()}
    load_late()
    gc.freeze()  # what is loaded stays shared between all children
    asked = socket.socket(fileno=control)
    waiting = select.poll()
    for one in (control, watched):
        waiting.register(one, select.POLLIN)
    while True:
        ready = [one for one, _ in waiting.poll()]
        if watched in ready:
            return
        wish, given, _, _ = socket.recv_fds(asked, _MESSAGE, 2)
        if not wish:
            return
        line, root = given
        child = os.fork()
        if child == 0:
            _live(json.loads(wish), line, root, here, workers)
        born = os.pidfd_open(child)
        for one in (line, root):
            os.close(one)
        socket.send_fds(asked, [b"."], [born])
        os.close(born)


def _worker(place: str) -> Worker[BaseModel]:
    module, _, name = place.partition(":")
    worker: object = getattr(import_module(module), name)
    if not isinstance(worker, Worker):
        raise TypeError(f"{place} is no Worker")
    return worker.for_any_params()


def _live(wish: Head, control: int, root: int, parent: int, workers: Mapping[str, Worker[BaseModel]]) -> None:
    """The whole life of a child."""
    try:
        die_with_parent(parent)
        _serve(wish, control, root, workers)
    finally:
        os._exit(0)  # nothing of it may run on as a second parent


def _serve(wish: Head, control: int, root: int, workers: Mapping[str, Worker[BaseModel]]) -> None:
    _close_all_but(0, 1, 2, control, root)
    memory = number_of(wish, "memory")
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end = socket.socket(fileno=control)
    line = Line(end)
    try:
        version = restrict_to(root, writes=bool(wish["writes"]))
    except OSError as error:
        line.send({"is": "refused", "reason": str(error)})
        return
    opened = Root(
        text_of(wish, "path"),
        kernel=bool(wish["kernel"]),
        opened=root,
        spellings=_texts(wish["spellings"]),
    )
    service = Writer(opened) if wish["writes"] else Reader(opened, workers)
    threading.stack_size(_STACK_BYTES)
    line.send({"is": "ready", "landlock": version})
    while True:
        called, given, _, _ = socket.recv_fds(end, 1, 1)
        if not called:
            return
        for one in given:
            threading.Thread(target=_answer, args=(service, Line(socket.socket(fileno=one)))).start()


def _answer(service: Reader | Writer, line: Line) -> None:
    """Every thread is one of the confined process, and so confined as well."""
    try:
        service.serve(line)
    except Broken:
        pass
    finally:
        line.close()


def _close_all_but(*kept: int) -> None:
    first = 0
    for one in sorted(kept):
        if first < one:  # an empty range at 0 would be all there are
            os.closerange(first, one)
        first = one + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
