"""The shared path cases hold in confined processes, and a naive worker fails many of them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue
from tests.shared_paths import ABSENT, CASES, Load, load_cases, load_cases_of_the_mechanism, load_judge
from tests.tables import row
from tests.ways import in_confined_processes

from lcp_engine.runner.confined.process import Spawner

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=ABSENT)
MANY = 20
"""If a naive worker failed fewer cases, they would have become too easy."""


@pytest.fixture(scope="module")
def judge_of() -> ModuleType:
    return load_judge()


@pytest.mark.parametrize(
    "load",
    [load_cases_of_the_mechanism, pytest.param(load_cases, marks=pytest.mark.proof)],
    ids=["by mechanism", "in full"],
)
def test_a_shared_case_holds_in_confined_processes(
    judge_of: ModuleType,
    spawner: Spawner,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
    load: Load,
) -> None:
    def answer(place: str, kind: str, params: dict[str, JsonValue]) -> dict[str, object]:
        with in_confined_processes(Path(place), spawned_by=spawner) as do:
            done = do(kind, params)
        if done.result is None:
            return {"status": "not_found" if done.code == "PATH_NOT_FOUND" else "denied", "reason": done.code}
        return {
            "status": "ok",
            **{key: done.result[key] for key in ("content", "files") if key in done.result},
        }

    # The confinement itself ends a job that hangs.
    monkeypatch.setattr(judge_of, "in_child", answer)
    for case in load():
        with row(subtests, str(case["id"])):
            faults, _ = judge_of.judge(case)
            assert faults == []


@pytest.mark.proof
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
    # It could write anywhere: it may only read, and never what blocks or does not end.
    cases = [
        case for case in load_cases()
        if case["job_kind"] == "read_file" and not re.search("fifo|socket|mknod|truncate|/dev/zero", str(case["setup"]))
    ]  # fmt: skip
    failed = (case["id"] for case in cases if judge_of.judge(case)[0])
    assert len([*islice(failed, MANY)]) == MANY
