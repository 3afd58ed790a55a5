"""The root of a mission is a directory that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcp_engine.core.mission.spec import MissionSpec, PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import find_mission, shipped_missions


def mission(root: str | None = None) -> MissionSpec:
    return MissionSpec(goal="x", planner=PlannerSpec(type="script"), root=root)


def test_a_root_is_relative_to_the_file_unless_another_is_named(tmp_path: Path) -> None:
    inner, other = tmp_path / "inner", tmp_path / "other"
    inner.mkdir()
    other.mkdir()
    assert resolve_root("inner", tmp_path) == inner
    assert resolve_root(str(other), tmp_path) == other
    assert resolve_root("inner", tmp_path, other) == other
    assert resolve_root(None, tmp_path) == tmp_path


def test_a_link_to_a_directory_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert resolve_root("link", tmp_path) == tmp_path / "real"


def test_a_root_that_is_missing_or_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    wrong = {
        "gone": ErrorCode.PATH_NOT_FOUND,
        "file": ErrorCode.INVALID_MISSION,
        "a\0b": ErrorCode.INVALID_MISSION,
    }
    for root, code in wrong.items():
        with pytest.raises(LcpError, match="a directory is expected") as refused:
            resolve_root(root, tmp_path)
        assert refused.value.code is code
        assert str(refused.value).isprintable()


def test_the_survey_is_shipped_and_is_a_valid_mission() -> None:
    from lcp_engine.core.mission.parse import parse_mission
    from lcp_engine.features.surveyor.planner import Surveyor
    from lcp_engine.planners.registry import make_planner

    assert "survey" in shipped_missions()
    spec = parse_mission(find_mission("survey").read_text(encoding="utf-8"), source="survey")
    assert (spec.name, spec.root, spec.planner.type) == ("survey", None, "surveyor")
    assert make_planner(spec.planner) == Surveyor()


def test_an_unknown_mission_is_answered_with_the_nearest() -> None:
    with pytest.raises(LcpError, match="did you mean 'survey'") as refused:
        find_mission("surveys")
    assert refused.value.code is ErrorCode.NOT_FOUND
