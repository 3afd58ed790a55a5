"""The shared path cases, where they are at hand, on both ways to resolve a path."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue

from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.syscalls import has_openat2
from lcp_engine.trial import run_job

SHARED = Path(__file__).parents[3] / "shared"
CASES = SHARED / "cases" / "paths.jsonl"
pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not beside this repository")


def load_cases() -> list[dict[str, JsonValue]]:
    if not CASES.exists():
        return []
    user = "root" if os.getuid() == 0 else "nonroot"
    with CASES.open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [case for case in cases if not case.get("race") and case.get("requires", user) == user]


@pytest.fixture(scope="module")
def judge_of() -> ModuleType:
    spec = importlib.util.spec_from_file_location("path_cases", SHARED / "tools" / "path_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
@pytest.mark.parametrize("case", load_cases(), ids=lambda case: str(case["id"]))
def test_a_shared_case_holds(
    judge_of: ModuleType, monkeypatch: pytest.MonkeyPatch, case: dict[str, JsonValue], *, kernel: bool
) -> None:
    if kernel and not has_openat2():
        pytest.skip("this kernel has no openat2")

    def answer(place: str, kind: str, params: dict[str, JsonValue]) -> dict[str, object]:
        with Root(place, kernel=kernel) as root:
            outcome = run_job(kind, params, root)
        if outcome.error is None:
            result = outcome.result or {}
            return {"status": "ok", **{key: result[key] for key in ("content", "files") if key in result}}
        code = outcome.error.error_code
        return {"status": "not_found" if code == "PATH_NOT_FOUND" else "denied", "reason": code}

    monkeypatch.setattr(judge_of, "run_job", answer)
    faults, _ = judge_of.judge(case)
    assert faults == []
