"""The shared path cases hold for both ways to resolve a path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import use_large_pages
from tests.shared_paths import ABSENT, CASES, Load, load_cases, load_cases_of_the_mechanism, load_judge
from tests.tables import row

from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import has_openat2

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=ABSENT)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("kernel", "load"),
    [
        (True, load_cases),
        (False, load_cases_of_the_mechanism),
        pytest.param(False, load_cases, marks=pytest.mark.proof),
    ],
    ids=["openat2", "walk", "walk in full"],
)
def test_a_shared_case_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests, load: Load, *, kernel: bool
) -> None:
    if kernel and not has_openat2():
        pytest.skip("this kernel has no openat2")

    def answer(place: str, kind: str, params: Mapping[str, JsonValue]) -> dict[str, object]:
        with Root(place, kernel=kernel) as root:
            outcome = run_job(kind, params, root)
        if outcome.error is None:
            result = outcome.result or {}
            return {"status": "ok", **{key: result[key] for key in ("content", "files") if key in result}}
        code = outcome.error.error_code
        return {"status": "not_found" if code == "PATH_NOT_FOUND" else "denied", "reason": code}

    # Each case is done in a fork of this process: what it has loaded by then, none of them loads again.
    answer(str(tmp_path), "write_file", {"rel_path": "a.txt", "content": "x"})
    assert answer(str(tmp_path), "list_files", {}) == {"status": "ok", "files": ["a.txt"]}
    judge_of = load_judge()
    use_large_pages()
    monkeypatch.setattr(judge_of, "run_job", answer)
    for case in load():
        with row(subtests, str(case["id"])):
            faults, _ = judge_of.judge(case)
            assert faults == []
