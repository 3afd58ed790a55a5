"""A queue that no runner executes says so."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from lcp_engine.cli.console.idle import NOTICE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Lcp


@pytest.fixture
def queued(lcp: Lcp) -> Lcp:
    """Mission 1, with its first turn in the queue."""
    launched = lcp("launch", lcp.mission(lcp.ask("read_file", path="a.md"), lcp.complete), "--root", "root")
    assert (launched.out, launched.err.splitlines()[-1]) == ("1\n", NOTICE)
    return lcp


@contextmanager
def working(lcp: Lcp) -> Iterator[None]:
    """A runner that takes another kind of job than mission 1 has."""
    with lcp.start("work", "--kind", "list_files") as runner:
        assert runner.stderr is not None
        assert "working on" in runner.stderr.readline()
        launch = ("launch", "survey", "--root", "root", "--key", "same", "--json")
        wait_until(lambda: lcp(*launch).object["runners"])
        try:
            yield
        finally:
            runner.terminate()
            runner.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("command", ["show 1", "missions"])
def test_a_queue_without_a_runner_is_named(queued: Lcp, command: str) -> None:
    assert queued(*command.split()).err == f"{NOTICE}\n"
    assert queued(*command.split(), "-q").err == ""
    assert queued(*command.split(), "--json").err == ""


def test_a_queue_with_a_runner_is_not(queued: Lcp) -> None:
    with working(queued):
        for command in ("show 1", "missions"):
            assert queued(*command.split()).err == ""
        launched = queued("launch", queued.mission(queued.complete), "--root", "root")
        assert NOTICE not in launched.err
    assert queued("show", 1).err == f"{NOTICE}\n"


def test_no_advice_to_start_a_runner_while_one_works(queued: Lcp) -> None:
    assert "lcp work" in queued("say", 1, "Hello.").err
    with working(queued):
        assert queued("say", 1, "Hello again.").err == ""


def test_launch_tells_programs_how_many_runners_there_are(queued: Lcp) -> None:
    launched = queued("launch", queued.mission(queued.complete), "--root", "root", "--json")
    assert (launched.object["runners"], launched.err) == (0, "")


def test_a_mission_that_has_ended_or_waits_needs_no_runner(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    lcp(
        "run", lcp.mission(lcp.ask("write_file", path="b", content="x"), lcp.complete), "--root", "root", "-q"
    )
    for command in ("show 1", "show 2", "missions", "watch 1"):
        assert NOTICE not in lcp(*command.split()).err


@pytest.mark.parametrize("arguments", [("watch", 1), ("watch",)])
def test_watch_says_once_that_it_waits_for_a_runner(queued: Lcp, arguments: tuple[object, ...]) -> None:
    with queued.start(*arguments) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == f"{NOTICE}\n"
        assert queued("work", "--until-idle", "-q").code == 0
        if arguments == ("watch",):
            watching.terminate()
        out, err = watching.communicate(timeout=PATIENCE_SECONDS)
    assert err == ""
    assert "turn 1" in out or arguments == ("watch",)


def test_quiet_leaves_only_data_and_errors(lcp: Lcp) -> None:
    held = lcp.ask("write_file", path="b", content="x")
    for arguments in (("run",), ("launch",)):
        done = lcp(*arguments, lcp.mission(held, lcp.complete), "--root", "root", "-q")
        assert done.out
        assert done.err == ""
    lcp("schedule", "add", "often", lcp.mission(lcp.complete), "--root", "root", "--every", "1h", "-q")
    for command in (
        "schedule list",
        "schedule run-now often",
        "held",
        "jobs --limit 1",
        "approve 2",
        "db stats",
    ):
        assert lcp(*command.split(), "-q").err == "", command


def test_runners_are_listed_from_their_first_to_their_last_moment(queued: Lcp) -> None:
    none = queued("runners")
    assert (none.code, none.out, none.err) == (0, "", "No runners; `lcp work` starts one.\n")
    with working(queued):
        (runner,) = json.loads(queued("runners", "--json").out)
        assert (runner["running"], runner["silent_roots"]) == (0, [])
        assert str(runner["pid"]) in queued("runners").out
    assert queued("runners", "--json").out == "[]\n"
