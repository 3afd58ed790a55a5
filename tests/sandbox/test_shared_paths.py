"""The shared path cases hold for both ways to resolve a path."""

from __future__ import annotations

from types import ModuleType

import pytest
from pydantic import JsonValue
from tests.shared_paths import ABSENT, CASES, load_cases, load_judge

from lcp_engine.api.run_job import run_job
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.syscalls import has_openat2

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=ABSENT)


@pytest.fixture(scope="module")
def judge_of() -> ModuleType:
    return load_judge()


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
