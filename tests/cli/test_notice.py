"""`on_wait` in the user's configuration: a command to run when a mission starts to wait."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def configure(lcp: Lcp, **keys: object) -> None:
    place = lcp.home / "config" / "lcp-engine"
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(json.dumps(keys))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_mission_that_starts_to_wait_runs_the_users_command_once(lcp: Lcp, as_text: bool) -> None:
    program = lcp.home / "tell.sh"
    program.write_text(
        '#!/bin/sh\necho "$LCP_MISSION $LCP_MISSION_NAME $LCP_HELD $1 ${SECRET_KEY-none}" >> "$0.log"\n'
    )
    program.chmod(0o755)
    configure(lcp, on_wait=f"{program} 'a b'" if as_text else [str(program), "a b"])
    done = lcp(
        "run",
        lcp.mission(lcp.ask("ask_user", question="Well?"), lcp.complete),
        "--root",
        "root",
        SECRET_KEY="x",
    )
    assert done.code == 3
    lcp("work", "--until-idle", "-q")
    assert (lcp.home / "tell.sh.log").read_text() == "1 mission 1 a b none\n"


@pytest.mark.parametrize("command", ["false", "/nowhere/notify"])
def test_a_failing_command_does_no_harm_and_is_reported_once(lcp: Lcp, command: str) -> None:
    configure(lcp, on_wait=command)
    mission = lcp.mission(lcp.ask("ask_user", question="Well?"), lcp.complete)
    for _ in range(2):
        lcp("launch", mission, "--root", "root")
    done = lcp("work", "--until-idle", "-q")
    assert (done.code, done.err.count("on_wait"), done.err.count("\n")) == (0, 1, 1)
