"""The shared path cases, where they are at hand: they hold in confined processes, and a naive worker fails many."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue, ValidationError
from tests.shared_paths import ABSENT, CASES, load_cases, load_judge

from lcp_engine.engine.outcomes import Succeeded
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.isolation.confinement import Assignment, Confinement
from lcp_engine.isolation.nursery import Nursery
from lcp_engine.isolation.setup import Setup
from lcp_engine.sandbox.compose import compose
from lcp_engine.sandbox.replace import temporary_name
from lcp_engine.sandbox.root import Root
from lcp_engine.store.text import from_json
from lcp_engine.workers.base import Applied, Caps, FileEffect, Hold
from lcp_engine.workers.registry import BUILT_IN

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=ABSENT)
MANY = 20
"""A naive worker that fails fewer would say that the cases have lost their teeth."""


@pytest.fixture(scope="module")
def judge_of() -> ModuleType:
    return load_judge()


def do_confined(nursery: Nursery, place: str, kind: str, params: dict[str, JsonValue]) -> Succeeded:
    """One job from request to result; raises what it met."""
    if kind not in BUILT_IN:
        raise LcpError(ErrorCode.NO_WORKER, kind)
    caps, worker = Caps(), BUILT_IN[kind]
    try:
        worker.params.model_validate(params)
    except ValidationError as error:
        raise LcpError(ErrorCode.INVALID_PARAMS, str(error)) from error
    confinement = Confinement(caps, nursery)
    try:
        with Root(place) as root:
            wish = Assignment(worker, kind, json.dumps(params), "k", Setup(caps), approved=True)
            outcome = confinement.work(root, wish)
            if isinstance(outcome, FileEffect):
                outcome = apply(confinement, root, outcome, caps.write_bytes)
    finally:
        confinement.close()
    if isinstance(outcome, Failed):
        raise LcpError(outcome.code, outcome.message)
    assert not isinstance(outcome, Hold)
    return outcome


def apply(confinement: Confinement, root: Root, effect: FileEffect, cap: int) -> Succeeded:
    with confinement.hands(20).locked(root, effect.path) as target:
        before = target.read(cap)
        data = compose(None if before is None else before.data, effect.content, effect.mode)
        applied = Applied(before.sha256 if before else None, sha256(data).hexdigest(), len(data))
        target.replace(data, temporary_name())
        return Succeeded(effect.result(applied).model_dump_json())


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: str(case["id"]))
def test_a_shared_case_holds_in_confined_processes(
    judge_of: ModuleType, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, case: dict[str, JsonValue]
) -> None:
    def answer(place: str, kind: str, params: dict[str, JsonValue]) -> dict[str, object]:
        try:
            result = from_json(do_confined(nursery, place, kind, params).result)
        except LcpError as error:
            code = error.code
            return {"status": "not_found" if code == "PATH_NOT_FOUND" else "denied", "reason": code}
        return {"status": "ok", **{key: result[key] for key in ("content", "files") if key in result}}

    # What hangs is ended by the confinement itself.
    monkeypatch.setattr(judge_of, "in_child", answer)
    faults, _ = judge_of.judge(case)
    assert faults == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_that_compares_the_beginnings_of_paths_fails_many(
    judge_of: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(place: str, kind: str, params: dict[str, JsonValue]) -> dict[str, object]:
        path = Path(f"{place}/{params.get('rel_path') or params.get('path')}")
        if not str(path).startswith(place):
            return {"status": "denied"}
        try:
            if kind == "read_file":
                return {"status": "ok", "content": path.read_text()}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(params.get("content")))
        except FileNotFoundError:
            return {"status": "not_found"}
        except (OSError, ValueError):
            return {"status": "denied"}
        return {"status": "ok"}

    monkeypatch.setattr(judge_of, "run_job", answer)
    # It could write anywhere: it is only let read, and never what blocks.
    setups = [(case, [step["op"] for step in list_of(case["setup"])]) for case in load_cases()]
    cases = [
        case for case, ops in setups
        if case["job_kind"] == "read_file" and not {"fifo", "socket", "mknod", "truncate"} & set(ops)
    ]  # fmt: skip
    failed = [case["id"] for case in cases if judge_of.judge(case)[0]]
    assert len(failed) >= MANY


def list_of(value: JsonValue) -> list[dict[str, str]]:
    assert isinstance(value, list)
    return [{key: str(part) for key, part in one.items()} for one in value if isinstance(one, dict)]
