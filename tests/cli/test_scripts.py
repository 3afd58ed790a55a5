"""A script is checked whole when its mission is read, so that a mistake in it does not pass as a correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from lcp_engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.workers.base import Context, Outcome, Worker

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.cli.conftest import Lcp

    Object = dict[str, JsonValue]

TYPO: Object = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [{"kind": "list_files", "args": {}}],
}
UNFINISHED: Object = {"ok": True, "action": "mission_complete"}


@pytest.mark.parametrize(
    "command", ["run", "launch", "validate", "run --dry-run", "schedule add nightly --every 1h"]
)
def test_a_script_with_a_mistake_is_refused_with_every_mistake(lcp: Lcp, command: str) -> None:
    path = lcp.mission(lcp.complete, TYPO, lcp.complete, UNFINISHED)
    done = lcp(*command.split(), path, "--root", "root")
    assert done.code == 1
    assert done.out == ""
    assert (
        f"{path.name}: planner.replies: reply 2 is not valid: new_jobs[0].args: the params of a job"
        in done.err
    )
    assert "planner.replies: reply 4 is not valid: summary: mission_complete needs summary" in done.err
    assert "reply 1 " not in done.err
    assert not lcp.database.exists()


def test_a_script_is_read_in_the_dialect_of_the_mission(lcp: Lcp) -> None:
    answer: Object = {"response_type": "answer", "status": "success", "message": "Done."}
    universal: Object = {"type": "script", "dialect": "universal", "replies": [answer]}
    assert lcp("run", lcp.mission(planner=universal), "--root", "root", "-q").code == 0
    assert "reply 1 is not valid: ok: " in lcp("run", lcp.mission(answer), "--root", "root").err
    lcp_reply: Object = {**universal, "replies": [lcp.complete]}
    assert (
        "reply 1 is not valid: response_type"
        in lcp("run", lcp.mission(planner=lcp_reply), "--root", "root").err
    )


def test_text_is_played_as_it_is_and_what_is_not_valid_is_said_before(lcp: Lcp) -> None:
    done = lcp("run", lcp.mission("no JSON", lcp.complete), "--root", "root")
    assert done.code == 0
    told = 'reply 1 is not valid: one JSON object is expected; found only "no JSON"; the next reply is its correction\n'
    assert done.err.count(told) == 1
    assert "reply 1" not in lcp("run", lcp.mission("no JSON", lcp.complete), "--root", "root", "-q").err
    assert (
        "reply 1 is not valid" in lcp("validate", lcp.mission("no JSON", lcp.complete), "--root", "root").out
    )


class Of(BaseModel):
    of: str


def _do(params: Of, context: Context) -> Outcome:
    return params


def test_a_script_is_checked_with_the_kinds_of_the_engine(lcp: Lcp) -> None:
    jobs: list[JsonValue] = [{"kind": "do", "params": {}}]
    asks: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    spec: Object = {"goal": "Do it.", "planner": {"type": "script", "replies": [asks, lcp.complete]}}
    url = f"sqlite:///{lcp.database}"
    with Engine(url) as engine:  # a kind without a worker takes any params
        engine.launch(spec, root=lcp.root)
    with Engine(url, workers=[Worker("do", Of, Of, _do).for_any_params()]) as engine:
        with pytest.raises(
            LcpError, match=r"reply 1 is not valid: new_jobs\[0\]\.params\.of: do needs of"
        ) as refused:
            engine.launch(spec, root=lcp.root)
        assert refused.value.code is ErrorCode.INVALID_MISSION
        assert len(engine.missions()) == 1
