"""Every error code has one meaning and one class of errors, and the page about them is up to date."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.tables import table

from lcp_engine.core.protocol.actions import Problem
from lcp_engine.errors import Code, ErrorCode, Failed, LcpError
from lcp_engine.feature import Feature, added, all_codes, find_code

PROJECT = Path(__file__).resolve().parent.parent


def test_every_code_has_the_name_by_which_it_is_found() -> None:
    codes = list(all_codes())
    assert len(codes) == len(set(codes)) == len(ErrorCode) + len(added().codes)
    for code in codes:
        assert (str(code), code.meaning.name, find_code(code)) == (code, code, code)
    assert [str(one) for one in ErrorCode] == list(ErrorCode.__members__)


@table("code", all_codes())
def test_each_code_is_raised_and_caught_as_one_class_of_errors(code: Code) -> None:
    assert code.meaning.error in LcpError.__subclasses__()
    with pytest.raises(code.meaning.error, match="gone") as raised:
        raise LcpError(code, "gone", {"id": 1})
    assert (raised.value.code, raised.value.failed.details) == (code, {"id": 1})


def test_the_codes_that_scripts_rely_on_are_the_kernels() -> None:
    relied_on = """PATH_NOT_FOUND PATH_OUTSIDE_ROOT PATH_DENIED NOT_A_FILE TOO_LARGE BINARY CONFLICT INVALID_PARAMS
        INVALID_PATTERN NO_WORKER TIMEOUT INVALID_REPLY SCRIPT_EXHAUSTED LIMIT_REACHED DATABASE_BUSY DATABASE_VERSION"""
    assert {*relied_on.split()} <= ErrorCode.__members__.keys()


def test_the_page_of_errors_is_what_the_taxonomy_says() -> None:
    written = runpy.run_path(str(PROJECT / "tools" / "errors.py"))["page"]()
    assert (PROJECT / "docs" / "errors.md").read_text(encoding="utf-8") == written, "python tools/errors.py"


def test_a_code_of_a_feature_goes_wherever_one_of_the_kernel_does() -> None:
    code = find_code("LINK_REFUSED")
    assert code is not None
    assert (code.meaning.status, code.meaning.exit_code) == (403, 1)
    for same in (copy.deepcopy(Failed(code, "old")).code, pickle.loads(pickle.dumps(code))):  # our own
        assert (same, same.meaning) == (code, code.meaning)
    problem = Problem(path="summary", message="again", code=code)
    read = TypeAdapter(Problem).validate_json(TypeAdapter(Problem).dump_json(problem))
    assert (read, read.record) == (problem, {"path": "summary", "message": "again", "code": "LINK_REFUSED"})
    assert read.code is code


def test_a_code_that_moved_is_found_at_its_old_place_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="LINK_REFUSED"):
        assert getattr(ErrorCode, "LINK_REFUSED") is find_code("LINK_REFUSED")  # noqa: B009  # for types it is gone
    with pytest.raises(AttributeError):
        getattr(ErrorCode, "LINK_LOST")  # noqa: B009


def test_the_code_of_a_feature_that_is_gone_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcp_engine.feature.available", lambda: Feature("all"))
    assert (find_code("LINK_REFUSED"), find_code("CONFLICT")) == (None, ErrorCode.CONFLICT)
    assert Problem.model_validate({"path": "", "message": "old", "code": "ECHO"}).code is None
