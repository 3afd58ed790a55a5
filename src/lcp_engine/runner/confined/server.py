"""Serve a runner from confined processes: a fork server, readers that execute workers, writers that change files.

The fork server loads the code once, and each confined process is a fork of it. A reader can only read its root and
executes workers, which return what they want written; a writer can also write, and executes no worker.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import assert_never

from pydantic import BaseModel, JsonValue, TypeAdapter

from lcp_engine.core.mission.accept import AcceptCheck
from lcp_engine.core.policy import Policy, Rule
from lcp_engine.engine.acceptance import fault_of, load_parsers
from lcp_engine.engine.outcome import Succeeded, outcome_of
from lcp_engine.errors import Failed, LcpError
from lcp_engine.feature import added, load
from lcp_engine.runner.confined.channel import (
    FORKED,
    MOST_SAID,
    Answer,
    Buffer,
    Channel,
    Disconnected,
    Duty,
    Head,
    Message,
    Request,
    failure_head,
    number_of,
    text_of,
    texts_of,
)
from lcp_engine.sandbox.atomic_write import Current, LockedFile
from lcp_engine.sandbox.file_access import HERE
from lcp_engine.sandbox.locks import LockedFiles, Put, Wait
from lcp_engine.sandbox.root import Root, refusal
from lcp_engine.sandbox.system.kept_descriptors import close_all_but
from lcp_engine.sandbox.system.landlock import adopt_orphans, die_with_parent, load_late, restrict_to
from lcp_engine.sandbox.system.seccomp import can_filter, refuse_calls
from lcp_engine.workers.base import Applied, Caps, Context, FileEffect, Hold, Outcome, Worker
from lcp_engine.workers.read_file import WORKER as READ_FILE

MOST_SEEN = 64 * 1024
"""Bytes of a file that are sent along when it is locked."""

QUIET_SECONDS = 0.1
"""How often a writer reports which file it has turned to; most disks are done with all of them before."""

_STACK_BYTES = 1024 * 1024
_PARSER_STACK_BYTES = 16 * 1024 * 1024
_PARSER_SECONDS = 120
"""Of CPU, for all checks of a process that its runner has not ended: more than the runner waits for them."""
_MESSAGE = 1024 * 1024
_MAX_SETUPS = 256
_SCARCE = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
"""Errors of a kernel that is short of something now, not of one that cannot."""


@dataclass(frozen=True)
class ForeignPrograms:
    """Functions that have a fork run the one program that is requested on its socket, and end what is left of others.

    `end_strangers` is given the processes that are known, and ends all others that this one has adopted.
    """

    run: Callable[[socket.socket], None] = lambda end: None
    end_strangers: Callable[[Collection[int]], None] = lambda known: None


def main(control: int, parent: int, kinds: Mapping[str, str], program: str | None) -> None:
    """Fork a process for each message on the socket `control`, until it is closed or the process `parent` ends.

    `kinds` names the worker of each kind as "module:attribute", `program` the module of a program that forks run.
    """
    here = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    adopt_orphans()
    os.chdir("/")
    workers = {kind: load(place, Worker).for_any_params() for kind, place in kinds.items()}
    foreign = _foreign_programs()
    _load_program(program)
    watched = _pidfds(parent)
    if os.getppid() != parent:
        return
    load_late()
    gc.freeze()  # what is loaded stays shared between all forks
    requests = socket.socket(fileno=control)
    waiting = select.poll()
    for one in (control, *watched):
        waiting.register(one, select.POLLIN)
    forks = _Forks(waiting, foreign)
    while True:
        ready = {one for one, _ in waiting.poll()}
        forks.bury(ready)
        if not ready.isdisjoint(watched):
            return
        if control not in ready:
            continue
        start, given, _, _ = socket.recv_fds(requests, _MESSAGE, 2)
        if not start:
            return
        connection, root = given
        try:
            child = os.fork()
        except OSError as error:  # too many processes, too little memory: others may have ended soon
            pidfds, answer = [], str(error).encode()[:MOST_SAID]
        else:
            if child == 0:
                _run_child(json.loads(start), connection, root, here, workers)
            pidfds, answer = _pidfds(child), FORKED
            forks.add(child, pidfds)
        socket.send_fds(requests, [answer], pidfds)
        os.close(connection)
        os.close(root)


class _Forks:
    """The processes that run. What a supervisor of a program leaves behind that is killed itself ends after it."""

    def __init__(self, waiting: select.poll, foreign: ForeignPrograms) -> None:
        self._waiting = waiting
        self._foreign = foreign
        self._running: dict[int, int] = {}
        """By their descriptors; without one, by a number that is none."""

    def add(self, process: int, pidfds: Sequence[int]) -> None:
        if pidfds:
            self._waiting.register(pidfds[0], select.POLLIN)
        self._running[pidfds[0] if pidfds else -process] = process

    def bury(self, ready: Collection[int]) -> None:
        """Forget those that have ended."""
        ended = self._running.keys() & ready
        for one in ended:
            self._waiting.unregister(one)
            os.close(one)
            del self._running[one]
        if ended:
            self._foreign.end_strangers(self._running.values())


def _pidfds(process: int) -> list[int]:
    """A descriptor of the process; none where the kernel has none (before Linux 5.3, some sandboxes)."""
    try:
        return [os.pidfd_open(process)]
    except OSError:
        return []


def _load_program(module: str | None) -> None:
    with suppress(Exception):  # a fork imports it again, and says what is wrong
        if module is not None:
            import_module(module)


def _run_child(
    start: Head, control: int, root: int, parent: int, workers: Mapping[str, Worker[BaseModel]]
) -> None:
    try:
        die_with_parent(parent)
        _serve(start, control, root, workers)
    finally:
        os._exit(0)  # it must not return into the fork server's loop


def _serve(start: Head, control: int, root: int, workers: Mapping[str, Worker[BaseModel]]) -> None:
    close_all_but(0, 1, 2, control, root)
    duty = Duty(text_of(start, "duty"))
    for limit, most in ((resource.RLIMIT_DATA, number_of(start, "memory")), (resource.RLIMIT_CORE, 0)):
        # What one runs for a job has limits of its own, which may be higher.
        resource.setrlimit(limit, (most, resource.getrlimit(limit)[1] if duty is Duty.RUN else most))
    end = socket.socket(fileno=control)
    channel = Channel(end)
    if duty is Duty.CHECK:
        load_parsers()  # while modules can still be opened
        resource.setrlimit(resource.RLIMIT_CPU, (_PARSER_SECONDS, _PARSER_SECONDS))
    try:
        if start["confined"] and duty is not Duty.RUN:
            restrict_to(root, writes=duty is Duty.WRITE)
            if can_filter():
                refuse_calls(writes=duty is Duty.WRITE)
    except OSError as error:
        answer = Answer.OUT_OF_MEMORY if error.errno in _SCARCE else Answer.REFUSED
        channel.send({"is": answer, "reason": str(error)})
        return
    opened = Root(
        text_of(start, "path"),
        kernel=bool(start["kernel"]),
        opened=root,
        spellings=texts_of(start, "spellings"),
    )
    if duty is Duty.RUN:
        channel.send({"is": Answer.READY})
        _foreign_programs().run(end)
        return
    service = _service(duty, opened, workers)
    threading.stack_size(_PARSER_STACK_BYTES if duty is Duty.CHECK else _STACK_BYTES)
    channel.send({"is": Answer.READY})
    while True:
        call, given, _, _ = socket.recv_fds(end, 1, 1)
        if not call:
            return
        for one in given:
            _start(threading.Thread(target=_answer, args=(service, Channel(socket.socket(fileno=one)))))


def _foreign_programs() -> ForeignPrograms:
    place = added().foreign_programs
    return ForeignPrograms() if place is None else load(place, ForeignPrograms)


def _service(duty: Duty, root: Root, workers: Mapping[str, Worker[BaseModel]]) -> Reader | Writer | Checker:
    match duty:
        case Duty.READ:
            return Reader(root, workers)
        case Duty.WRITE:
            return Writer(root)
        case Duty.CHECK:
            return Checker(root)
        case Duty.RUN:
            raise ValueError("a process that runs a program serves nothing else")
        case other:
            assert_never(other)


def _start(thread: threading.Thread) -> None:
    """Start a thread, as soon as the system starts one: the runner waits no longer than for the job."""
    while True:
        try:
            thread.start()
        except RuntimeError:
            time.sleep(0.05)
        else:
            return


def _answer(service: Reader | Writer | Checker, channel: Channel) -> None:
    """Serve one channel in a thread, which is confined like all threads of the process."""
    try:
        service.serve(channel)
    except Disconnected:
        pass
    finally:
        channel.close()


# -- the reader


@dataclass(frozen=True)
class Setup:
    """Permissions of a mission's jobs: all that makes a `Context` besides the root."""

    caps: Caps
    aliases: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    user_rules: tuple[Rule, ...] = ()
    engine_paths: tuple[str, ...] = ()
    is_private: bool = False
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def context_maker(self, root: Root, worker: Worker[BaseModel]) -> Callable[[bool], Context]:
        """Function that makes the context of a job of that kind, given whether a person approved the job."""
        judge = self._policy(stage=self.is_private).for_kind(
            worker.named, has_effects=worker.has_effects, writes=worker.writes
        )
        return lambda approved: Context(root, self.aliases, judge, self.caps, approved=approved)

    def may_read(self) -> Callable[[str], bool]:
        """Returns whether `read_file` may read a path."""
        return READ_FILE.allowed_paths(self._policy(stage=False))

    def _policy(self, *, stage: bool) -> Policy:
        return Policy(
            self.rules, self.user_rules, engine_paths=self.engine_paths, stage=stage, origins=self.origins
        )


SETUPS: TypeAdapter[Setup] = TypeAdapter(Setup)
"""How a setup is sent."""


class Reader:
    """Executes the jobs of one root. Every channel has a thread; all share the setups that were sent once."""

    def __init__(self, root: Root, workers: Mapping[str, Worker[BaseModel]]) -> None:
        self._root = root
        self._workers = workers
        self._makers: dict[tuple[str, str], Callable[[bool], Context]] = {}

    def serve(self, channel: Channel) -> None:
        """Answer until the other side closes the channel, with `Disconnected`."""
        effect: FileEffect | None = None
        while True:
            head, body = channel.receive()
            if head["do"] == Request.RESULT and effect is not None:
                channel.send(*_result(effect, head))
                continue
            effect = None
            make = self._context_maker(head)
            if make is None:
                channel.send({"is": Answer.SETUP_NEEDED})
                continue
            worker = self._workers[str(head["kind"])]
            job = _Job(worker, str(head["name"]), make(bool(head["approved"])), channel)
            outcome, params = job.execute(bytes(body))
            if isinstance(outcome, FileEffect):
                effect = outcome
                channel.send(*_effect_message(effect, params))
            else:
                channel.send(*_outcome_message(outcome))

    def _context_maker(self, head: Head) -> Callable[[bool], Context] | None:
        """Context maker of the mission and kind that a request names; None if its setup has not been sent yet."""
        key = str(head["key"]), str(head["kind"])
        if "setup" in head:
            if len(self._makers) >= _MAX_SETUPS:
                self._makers.clear()
            setup = SETUPS.validate_python(head["setup"])
            self._makers[key] = setup.context_maker(self._root, self._workers[key[1]])
        return self._makers.get(key)


@dataclass(frozen=True)
class _Job:
    worker: Worker[BaseModel]
    name: str
    context: Context
    channel: Channel

    def execute(self, text: bytes) -> tuple[Succeeded | FileEffect | Hold | Failed, BaseModel | None]:
        try:
            params = self.worker.read(json.loads(text), self.name)
        except LcpError as error:
            return error.failed, None
        return outcome_of(self.worker, self.name, partial(self._call_worker, params)), params

    def _call_worker(self, params: BaseModel) -> Outcome:
        try:
            return self.worker.execute(params, self.worker.granting(params, self.context))
        except MemoryError:
            # Other jobs of this process may lack memory now; the runner starts them again in another one.
            self.channel.send({"is": Answer.OUT_OF_MEMORY})
            os._exit(1)


def _result(effect: FileEffect, head: Head) -> Message:
    before, after = head.get("before"), head.get("after")
    applied = Applied(
        None if before is None else str(before),
        None if after is None else str(after),
        number_of(head, "size"),
        _number(head, "mode"),
        _encodings(head),
        is_new=head.get("is_new") is True,
        is_told=head.get("is_told") is True,
    )
    return {"is": Answer.DONE}, effect.result(applied).model_dump_json().encode()


def _encodings(head: Head) -> tuple[str | None, str] | None:
    before, after = head.get("encoding_before"), head.get("encoding_after")
    return None if after is None else (None if before is None else str(before), str(after))


def _outcome_message(outcome: Succeeded | Hold | Failed) -> Message:
    match outcome:
        case Succeeded(result):
            return {"is": Answer.DONE}, result.encode()
        case Hold(reason):
            return {"is": Answer.HOLD, "reason": str(reason)}, b""
        case Failed():
            return failure_head(outcome), b""


def _effect_message(effect: FileEffect, params: BaseModel | None) -> Message:
    """An effect; texts that are params are not sent back."""
    head: Head = {
        "is": Answer.EFFECT,
        "path": effect.path,
        "mode": effect.mode,
        "everywhere": effect.everywhere,
        "source": effect.source,
        "encoding": effect.encoding,
    }
    if (replaced := _param_of(params, effect.replaced)) is not None:
        head["replaced_param"] = replaced
    else:
        head["replaced"] = effect.replaced
    if (content := _param_of(params, effect.content)) is not None:
        return {**head, "param": content}, b""
    return head, effect.content.encode()


def _param_of(params: BaseModel | None, text: str) -> str | None:
    """The name of the param that is the text."""
    names = type(params).model_fields if params is not None else ()
    return next((name for name in names if getattr(params, name) is text), None)


# -- the checker


class Checker:
    """Runs acceptance checks on the files of one root, one at a time: what it parses may take all that it has."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def serve(self, channel: Channel) -> None:
        """Answer until the other side closes the channel, with `Disconnected`."""
        while True:
            head, _ = channel.receive()
            check = AcceptCheck.model_validate(head["check"])
            try:
                fault = fault_of(check, self._root, SETUPS.validate_python(head["setup"]).may_read())
            except MemoryError:
                channel.send({"is": Answer.OUT_OF_MEMORY})
                os._exit(1)
            channel.send({"is": Answer.DONE, "fault": fault})


# -- the writer


class Writer:
    """Takes the journal's steps on the files of one root. It holds the locks, which end with its process (R20)."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def serve(self, channel: Channel) -> None:
        """Answer until the other side closes the channel, with `Disconnected`."""
        while True:
            head, _ = channel.receive()
            try:
                answer = self._answer(channel, head)
            except LcpError as error:
                answer = failure_head(error.failed), b""
            channel.send(*answer)

    def _answer(self, channel: Channel, head: Head) -> Message:
        match head["do"]:
            case Request.LOCK:
                return self._lock(channel, head)
            case Request.READ_UNLOCKED:
                return self._read_unlocked(head)
            case Request.REMOVE_EMPTY:
                HERE.remove_empty(self._root, texts_of(head, "paths"))
                return {"is": Answer.DONE}, b""
            case other:
                raise ValueError(f"{other!r} is not a request for a writer")

    def _read_unlocked(self, head: Head) -> Message:
        seen = HERE.read_unlocked(self._root, text_of(head, "path"), _number(head, "cap"))
        if seen is None:
            return {"is": Answer.NOTHING}, b""
        answer: Head = {
            "is": Answer.FILE,
            "sha256": seen.sha256,
            "size": seen.size,
            "read": seen.data is not None,
            "mode": seen.mode,
        }
        return answer, seen.data or b""

    def _lock(self, channel: Channel, head: Head) -> Message:
        files = [(self._root, path) for path in texts_of(head, "paths")]
        with HERE.lock(files, Wait(head["wait"]), together=number_of(head, "together")) as locked:
            channel.send(*_locked_message(locked))
            while True:
                head, body = channel.receive()
                if head["do"] == Request.RELEASE:
                    break
                channel.send(*_answer_locked(channel, locked, head, body))
        return {"is": Answer.DONE}, b""


def _locked_message(locked: LockedFiles) -> Message:
    """Message of a lock, with the content of small files: mostly no more is requested before they are written."""
    found: list[JsonValue] = []
    contents: list[bytes] = []
    for held in locked.found:
        if isinstance(held, LockedFile):
            answer: Head = {"made": list(held.made)}
            with suppress(LcpError):  # raised when it is read
                seen, data = _seen_message(held.read_within(MOST_SEEN))
                contents.append(bytes(data))
                answer["seen"] = {"size": len(data), **seen}
            found.append(answer)
        else:
            found.append(None if held is None else failure_head(held.failed))
    return {"is": Answer.DONE, "found": found}, b"".join(contents)


def _answer_locked(channel: Channel, locked: LockedFiles, head: Head, body: Buffer) -> Message:
    if head["do"] == Request.PUT_ALL:
        return _put_all(channel, locked, head, memoryview(body))
    file = locked.found[number_of(head, "nth")]
    assert isinstance(file, LockedFile)
    try:
        answer = _step(file, head, body)
    except LcpError as error:
        answer = failure_head(error.failed), b""
    except OSError as error:
        answer = failure_head(refusal(error, file.path).failed), b""
    answer[0]["replaced"] = file.replaced
    return answer


def _step(file: LockedFile, head: Head, body: Buffer) -> Message:
    match head["do"]:
        case Request.READ:
            return _seen_message(file.read(_number(head, "cap")))
        case Request.READ_WITHIN:
            return _seen_message(file.read_within(number_of(head, "cap")))
        case Request.DIGEST:
            digest = file.digest()
            found: Head = {"is": Answer.NOTHING}
            return found if digest is None else {"is": Answer.FILE, **digest._asdict()}, b""
        case Request.PUT:
            file.put(
                bytes(body), text_of(head, "temporary"), _number(head, "mode"), until=_number(head, "until")
            )
        case Request.PREPARE | Request.IS_PREPARED | Request.PUT_PREPARED | Request.SET_MODE:
            return {"is": Answer.DONE, "done": _does(file, head, body)}, b""
        case Request.SYNC:
            file.sync()
        case Request.CHECK_REMOVABLE:
            file.check_removable()
        case Request.REMOVE:
            file.remove(text_of(head, "temporary"), until=_number(head, "until"))
        case Request.MEND:
            file.mend(text_of(head, "temporary"), _hash(head, "before"), _hash(head, "after"))
        case other:
            raise ValueError(f"{other!r} is not a request for a locked file")
    return {"is": Answer.DONE}, b""


def _does(file: LockedFile, head: Head, body: Buffer) -> bool:
    if head["do"] == Request.SET_MODE:
        return file.set_mode(number_of(head, "before"), number_of(head, "after"))
    temporary = text_of(head, "temporary")
    if head["do"] == Request.PREPARE:
        return file.prepare(bytes(body), temporary, _number(head, "mode"))
    if head["do"] == Request.IS_PREPARED:
        return file.is_prepared(temporary, text_of(head, "after"))
    return file.put_prepared(temporary, _hash(head, "before"), text_of(head, "after"))


def _put_all(channel: Channel, locked: LockedFiles, head: Head, body: memoryview) -> Message:
    files, puts = head["files"], []
    assert isinstance(files, list)
    for one in files:
        assert isinstance(one, dict)
        file = locked.found[number_of(one, "nth")]
        assert isinstance(file, LockedFile)
        size = 0 if one["size"] is None else number_of(one, "size")
        data = None if one["size"] is None else bytes(body[:size])
        until, mode = _number(one, "until"), _number(one, "mode")
        puts.append(Put(file, data, text_of(one, "temporary"), until, mode))
        body = body[size:]
    reported = time.monotonic()

    def starts(nth: int) -> None:
        nonlocal reported
        if time.monotonic() - reported > QUIET_SECONDS:
            channel.send({"is": Answer.STARTS, "nth": nth})
            reported = time.monotonic()

    errors = locked.put(puts, starts)
    found: list[JsonValue] = [
        {"replaced": put.file.replaced, **({} if error is None else failure_head(error.failed))}
        for put, error in zip(puts, errors, strict=True)
    ]
    return {"is": Answer.DONE, "found": found}, b""


def _number(head: Head, key: str) -> int | None:
    number = head.get(key)
    return number if isinstance(number, int) else None


def _seen_message(seen: Current | int | None) -> Message:
    if seen is None:
        return {"is": Answer.NOTHING}, b""
    if isinstance(seen, int):
        return {"is": Answer.SIZE, "size": seen}, b""
    return {"is": Answer.FILE, "sha256": seen.sha256, "mode": seen.mode}, seen.data


def _hash(head: Head, key: str) -> str | None:
    return None if head[key] is None else text_of(head, key)
