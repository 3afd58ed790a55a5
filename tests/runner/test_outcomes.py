"""Whatever code of others returns or raises is a value of its attempt: no runner ends or hangs by it (R15, R19)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue

from lcp_engine import Engine
from lcp_engine.engine import outcome
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.authoring.run_job import JobResult, run_job
from lcp_engine.planners import registry
from lcp_engine.planners.base import Question, Reply
from lcp_engine.runner.runner import Runner
from lcp_engine.workers.base import Context, FileEffect, Hold, Worker


class Empty(BaseModel):
    """No params."""


class Found(BaseModel, arbitrary_types_allowed=True):
    """A result that holds anything."""

    it: object = None


class Counted(Found):
    words: int = 0


class Measured(BaseModel):
    it: float = 0.0


class Unspeakable(Exception):
    """Not even its text can be had."""

    def __str__(self) -> str:
        raise RuntimeError


def _raise(error: BaseException) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


def _nested(levels: int) -> dict[str, object]:
    whole: dict[str, object] = {}
    for _ in range(levels):
        whole = {"a": whole}
    return whole


def _failed(code: object, message: object, details: object = None) -> Failed:
    failed = Failed(ErrorCode.BINARY, "")
    given = {"code": code, "message": message, "details": {} if details is None else details}
    for name, value in given.items():
        object.__setattr__(failed, name, value)
    return failed


# What a worker does, the code of its attempt, what the message says.
POISON: dict[str, tuple[Callable[[], object], str, str]] = {
    "a value of another type": (
        lambda: Counted.model_construct(words="many"),  # type: ignore[arg-type]  # what is to be refused
        "WORKER_FAILED",
        "is not a JSON object of the model Found",
    ),
    "a dict": (lambda: {"it": 1}, "WORKER_FAILED", "returned dict, a model of Found is expected"),
    "nothing": (lambda: None, "WORKER_FAILED", "returned NoneType, a model of Found is expected"),
    "a model of another class": (Empty, "WORKER_FAILED", "returned Empty, a model of Found is expected"),
    "an object": (lambda: Found(it=object()), "WORKER_FAILED", "is not a JSON object"),
    "too deep": (lambda: Found(it=_nested(2000)), "WORKER_FAILED", "is not a JSON object"),
    "a huge number": (lambda: Found(it=10**5000), "WORKER_FAILED", "is not a JSON object"),
    "NaN": (lambda: Found(it=[float("nan")]), "WORKER_FAILED", "nan is not a JSON number"),
    "an unknown code": (lambda: _failed("MINE", "custom"), "WORKER_FAILED", "code 'MINE', which is no"),
    "an unhashable code": (lambda: _failed([], "custom"), "WORKER_FAILED", "code [], which is no"),
    "details that are no JSON": (
        lambda: _failed(ErrorCode.BINARY, "x", {"a": object()}),
        "BINARY",
        "details",
    ),
    "deep details": (lambda: _failed(ErrorCode.BINARY, "x", _nested(300)), "BINARY", "details"),
    "details that are a list": (lambda: _failed(ErrorCode.BINARY, "x", [1]), "BINARY", "details"),
    "a raised unknown code": (_raise(LcpError("MINE", "custom")), "WORKER_FAILED", "code 'MINE'"),  # type: ignore[arg-type]  # what is to be refused
    "an exception without text": (_raise(Unspeakable()), "WORKER_FAILED", "raised"),
    "an end": (_raise(SystemExit(3)), "WORKER_FAILED", "raised SystemExit: 3"),
    "text of several lines": (_raise(ValueError("one\n\n  two")), "WORKER_FAILED", "ValueError: one two"),
    "text that is not stored": (_raise(ValueError("\ud800 \0")), "WORKER_FAILED", "\\ud800 \\u0000"),
    "an effect with a dict": (
        lambda: FileEffect("a.txt", "text", "overwrite", lambda applied: {}),  # type: ignore[arg-type,return-value]  # what is to be refused
        "WORKER_FAILED",
        "returned dict, a model of Found is expected",
    ),
    "an effect with NaN": (
        lambda: FileEffect("a.txt", "text", "overwrite", lambda applied: Found(it=float("nan"))),
        "WORKER_FAILED",
        "nan is not a JSON number",
    ),
}


def _worker(call: Callable[[], object], result: type[BaseModel] = Found) -> Worker[BaseModel]:
    def execute(params: Empty, context: Context) -> object:
        return call()

    return Worker(
        kind="poison",
        params=Empty,
        result=result,
        execute=execute,  # type: ignore[arg-type]  # code of others
        has_effects=False,
        max_attempts=1,
    ).for_any_params()


@contextmanager
def _one_job(url: str, worker: Worker[BaseModel], root: Path) -> Iterator[tuple[Engine, int]]:
    spec: dict[str, JsonValue] = {"name": "m", "goal": "g", "planner": {"type": "script", "replies": []}}
    with Engine(url, workers=[worker]) as engine:
        mission = engine.launch(spec, root=root).id
        yield engine, engine.enqueue("poison", {}, mission_id=mission)


def _error(error: object) -> tuple[JsonValue, str, dict[str, JsonValue]]:
    assert isinstance(error, dict)
    return error["error_code"], error["user_message"], error["technical_details"]


@pytest.mark.parametrize("case", POISON)
def test_a_poisoned_outcome_fails_its_attempt_alone(
    emptied_database_url: str, tmp_path: Path, case: str
) -> None:
    call, code, said = POISON[case]
    with _one_job(emptied_database_url, _worker(call), tmp_path) as (engine, job):
        Runner(engine.instance, kinds=["poison"], until_idle=True).run()
        stored = engine.job(job)
        found, message, _ = _error(stored.json["error"])
        assert (stored.state, found) == ("failed", code)
        assert said in message
        assert "\n" not in message
        assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("case", POISON)
def test_a_job_that_is_tried_answers_with_the_same(tmp_path: Path, case: str) -> None:
    call, code, said = POISON[case]
    done = run_job("poison", {}, tmp_path, workers={"poison": _worker(call)})
    assert done.error is not None
    assert (done.ok, done.error.error_code) == (False, code)
    assert said in done.error.user_message
    assert not (tmp_path / "a.txt").exists()


def test_not_a_number_fails_where_the_model_has_a_float_too(tmp_path: Path) -> None:
    worker = _worker(lambda: Measured(it=float("inf")), Measured)
    done = run_job("poison", {}, tmp_path, workers={"poison": worker})
    assert done.error is not None
    assert "is not a JSON number" in done.error.user_message


def test_details_keep_the_whole_of_a_message_of_several_lines(
    emptied_database_url: str, tmp_path: Path
) -> None:
    worker = _worker(lambda: Failed(ErrorCode.BINARY, "one\ntwo"))
    with _one_job(emptied_database_url, worker, tmp_path) as (engine, job):
        Runner(engine.instance, kinds=["poison"], until_idle=True).run()
        assert _error(engine.job(job).json["error"]) == ("BINARY", "one two", {"message": "one\ntwo"})


def test_a_deep_result_can_be_stored_and_shown(emptied_database_url: str, tmp_path: Path) -> None:
    with _one_job(emptied_database_url, _worker(lambda: Found(it=_nested(200))), tmp_path) as (engine, job):
        Runner(engine.instance, kinds=["poison"], until_idle=True).run()
        assert engine.job(job).json["result"] == {"it": _nested(200)}


def test_a_result_that_no_database_takes_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MAX_RESULT", 100)
    done = run_job("poison", {}, tmp_path, workers={"poison": _worker(lambda: Found(it="x" * 100))})
    assert done.error is not None
    assert done.error.error_code == "TOO_LARGE"


def _tried(params: object = None, root: object = None) -> JobResult:
    return run_job("poison", params, root, workers={"poison": _worker(lambda: Hold("a\nb"))})  # type: ignore[arg-type]  # what is to be refused


def test_what_run_job_cannot_use_is_a_result_not_an_exception(tmp_path: Path) -> None:
    cases: list[tuple[object, object, str]] = [
        ([1], tmp_path, "INVALID_PARAMS"),
        (None, tmp_path, "INVALID_PARAMS"),
        ({}, None, "INVALID_ARGUMENT"),
        ({}, 7, "INVALID_ARGUMENT"),
        ({}, "a\0b", "INVALID_ARGUMENT"),
        ({}, tmp_path / "gone", "PATH_NOT_FOUND"),
        ({}, tmp_path, "NOT_ALLOWED"),
    ]
    for params, root, code in cases:
        done = _tried(params, root)
        assert done.error is not None
        assert done.error.error_code == code


def test_ctrl_c_ends_a_job_that_is_tried(tmp_path: Path) -> None:
    worker = _worker(lambda: signal.raise_signal(signal.SIGINT))
    # Tests that a shell started in the background inherit that SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job("poison", {}, tmp_path, workers={"poison": worker})
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [0, -1])
def test_a_runner_has_a_thread_at_least(emptied_database_url: str, threads: int) -> None:
    with Engine(emptied_database_url) as engine, pytest.raises(LcpError, match="at least 1") as refused:
        Runner(engine.instance, threads=threads)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_runner_of_a_mission_that_is_not_there_is_refused(emptied_database_url: str) -> None:
    with Engine(emptied_database_url) as engine, pytest.raises(LcpError, match="mission 7") as refused:
        Runner(engine.instance, mission_id=7)
    assert refused.value.code is ErrorCode.NOT_FOUND


# What a planner does, and what the message says.
REPLIES: dict[str, tuple[Callable[[], object], str]] = {
    "no Reply": (lambda: {"text": "x"}, "the planner returned dict, a Reply is expected"),
    "no text": (lambda: Reply(None), "text of type NoneType"),  # type: ignore[arg-type]  # what is to be refused
    "negative tokens": (lambda: Reply("x", input_tokens=-1), "input_tokens -1"),
    "endless tokens": (lambda: Reply("x", output_tokens=10**5000), "output_tokens of 16610 bits"),
    "too many tokens": (lambda: Reply("x", output_tokens=2**62), "output_tokens of 63 bits"),
    "a part of a token": (lambda: Reply("x", input_tokens=1.5), "input_tokens 1.5"),  # type: ignore[arg-type]  # what is to be refused
    "a surprise": (_raise(KeyError("x")), "the planner raised KeyError: 'x'"),
    "an end": (_raise(SystemExit(1)), "the planner raised SystemExit: 1"),
    "an unknown code": (_raise(LcpError("MINE", "custom")), "code 'MINE', which is not an ErrorCode"),  # type: ignore[arg-type]  # what is to be refused
}


@pytest.mark.parametrize("case", REPLIES)
def test_what_a_planner_answers_is_not_trusted(
    emptied_database_url: str, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, said = REPLIES[case]
    _install(monkeypatch, lambda question: call())
    spec: dict[str, JsonValue] = {"name": "m", "goal": "g", "planner": {"type": "odd"}}
    with Engine(emptied_database_url) as engine:
        mission = engine.launch(spec, root=tmp_path).id
        (turn,) = engine.jobs(mission_id=mission)
        engine.instance.database.write(
            lambda tx: tx.plain(f"UPDATE jobs SET max_attempts = 1 WHERE id = {turn.id}")
        )
        engine.work(until_idle=True)
        assert engine.mission(mission).status == "failed"
        code, message, _ = _error(engine.job(turn.id).json["error"])
        assert code == "PLANNER_FAILED"
        assert said in message


def test_a_question_has_the_limits_that_a_person_set_since(
    emptied_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> object:
        asked.append(question)
        return Reply('{"ok": true, "action": "mission_complete", "result": "done"}')

    _install(monkeypatch, answer)
    limits: dict[str, JsonValue] = {"max_turns": 5, "max_followups": 3}
    spec: dict[str, JsonValue] = {"name": "m", "goal": "g", "planner": {"type": "odd"}, "limits": limits}
    with Engine(emptied_database_url) as engine:
        runner = Runner(engine.instance, until_idle=True)
        mission = engine.launch(spec, root=tmp_path).id
        runner.run()
        engine.resume(mission, limits={"max_turns": 9, "max_followups": 4})
        again = Runner(engine.instance, until_idle=True)
        again._executor = runner._executor  # as if it had gone on
        again.run()
    assert (asked[0].max_followups, asked[-1].max_followups) == (3, 4)


class Odd:
    """A planner that is none."""

    def __init__(self) -> None:
        self.answer = ANSWERS[-1]


ANSWERS: list[Callable[[Question], object]] = []


def _install(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Question], object]) -> None:
    """The planner `odd`, as if it were installed."""
    ANSWERS.append(answer)
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, "odd": f"{__name__}:Odd"})
