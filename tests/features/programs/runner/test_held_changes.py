"""What a command changed waits as one held job: shown, bound to what was shown, applied once, taken back as one."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from pydantic import JsonValue
from tests.conftest import TURN
from tests.crash.points import Killer, WatchedBackend
from tests.crash.processes import ask, do, import_all
from tests.walls import NEEDS_OVERLAY

from lcp_engine import Engine, Job, LcpError
from lcp_engine.errors import ErrorCode
from lcp_engine.features.programs.held_changes import remove_held
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.wall.steps import step_here
from lcp_engine.inbox import Contents
from lcp_engine.runner import runner
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.host.liveness import wall_directory

pytestmark = NEEDS_OVERLAY
STEP = int(os.environ.get("STEP", "9"))
SCRIPT = "echo A > a; chmod 700 b; mkdir -p new/deep; seq 20000 > new/deep/large; rm -r gone; echo k > key.pem; exit 3"
BEFORE = {"a": "a\n", "b": "b\n", "gone/c": "c\n"}
AFTER = {"a": "A\n", "b": "b\n", "new/deep/large": "".join(f"{number}\n" for number in range(1, 20001))}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


class Theatre:
    """A root, and missions whose commands change it."""

    def __init__(self, place: Path, url: str) -> None:
        self.root, self.url = place / "root", url
        for path, text in BEFORE.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        (self.root / "b").chmod(0o644)
        self.engine = Engine(url)

    def files(self) -> dict[str, str]:
        found = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def play(self, *scripts: str, work: bool = True, **spec: JsonValue) -> int:
        launch(self.engine, self.root, *scripts, **spec)
        if work:
            self.work()
        return self.engine.missions()[0].id

    def work(self) -> None:
        self.engine.work(until_idle=True)

    def held(self) -> Job:
        """The job that applies what a command changed."""
        return self.engine.jobs(kinds=["apply"])[-1]

    def again(self, job: Job) -> Job:
        return self.engine.job(job.id)

    def place(self, held: Job) -> Path:
        """The directory with the changes that a job waits with."""
        walls = self.engine.instance.walls
        assert walls is not None
        return walls / "held" / str(held.params["held"])

    def kept(self) -> list[str]:
        walls = self.engine.instance.walls
        assert walls is not None
        remove_held(self.engine.instance.database, walls)
        return [place.name for place in (walls / "held").iterdir()]

    def command(self) -> Job:
        return self.engine.jobs(kinds=["run_command"])[0]


def launch(engine: Engine, root: Path, *scripts: str, **spec: JsonValue) -> None:
    replies: list[JsonValue] = [
        {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [{"kind": "run_command", "params": {"command": ["sh", "-c", script]}}],
        }
        for script in scripts
    ]
    whole: dict[str, JsonValue] = {
        "goal": "Change it.",
        "planner": {"type": "script", "replies": [*replies, DONE]},
        "commands": {"allow": [["sh", "-c", "*"]], "changes": "hold"},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
        **{name.rstrip("_"): value for name, value in spec.items()},
    }
    engine.launch(whole, root=root)


@pytest.fixture
def theatre(tmp_path: Path, emptied_database_url: str) -> Iterator[Theatre]:
    theatre = Theatre(tmp_path, emptied_database_url)
    with theatre.engine:
        yield theatre


@pytest.mark.parametrize("stage", [False, True])
def test_a_new_file_that_can_be_executed_says_so(theatre: Theatre, stage: bool) -> None:
    theatre.play("echo x > plain; cp plain run; cp plain open; chmod 4755 run; chmod 666 open", stage=stage)
    held = theatre.engine.jobs(kinds=["merge" if stage else "apply"])[-1]
    look = theatre.engine.look(held.id)
    assert look.diff is not None
    said = {line.split()[2].rstrip(":"): line for line in look.diff.lines if line.startswith("# ")}
    found = {path: line.partition("its mode is ")[2][:4] for path, line in said.items()}
    assert found == {"plain": "", "run": "0755", "open": "0666"}
    theatre.engine.approve(held.id, by="ada")
    theatre.work()
    assert (theatre.root / "run").stat().st_mode & 0o7777 == 0o755


def test_a_merge_is_approved_with_the_modes_that_were_shown(theatre: Theatre) -> None:
    theatre.play("echo x > run", stage=True)
    merge = theatre.engine.jobs(kinds=["merge"])[-1]
    theatre.engine.look(merge.id)
    stages = theatre.engine.instance.stages
    assert stages is not None
    (staged,) = stages.rglob("run")
    staged.chmod(0o755)
    with pytest.raises(LcpError, match="is not what was shown"):
        theatre.engine.approve(merge.id, by="ada")


def test_what_a_command_changed_waits_as_one_job_that_its_result_names(theatre: Theatre) -> None:
    mission = theatre.play(SCRIPT)
    held = theatre.held()
    result = theatre.command().result or {}
    assert (held.state, result["held_as_job"], result["exit_code"]) == ("held", held.id, 3)
    explained = theatre.engine.explain_policy(held.id)
    assert (explained["verdict"], explained["because"]) == (
        "hold",
        "the engine made this job, for a person to decide on",
    )
    assert theatre.files() == BEFORE
    assert any("key.pem" in str(one) for one in [result["left_out"]])
    assert theatre.engine.mission(mission).outcome == "mission_complete"
    diffs = {diff.path: diff for diff in theatre.engine.diff(held.id, by="ada")}
    assert [*diffs] == ["a", "b", "gone/", "gone/c", "new/", "new/deep/", "new/deep/large"]
    assert diffs["a"].lines[-2:] == ("-a", "+A")
    assert "mode 0644 becomes 0700" in str(diffs["b"].note)
    look = theatre.engine.look(held.id)
    assert (look.diffs, look.has_choice) == ([*diffs.values()], False)
    assert theatre.kept()


def test_once_it_is_approved_all_of_it_is_in_the_root_and_is_taken_back_as_one(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    theatre.engine.diff(held.id, by="ada")
    theatre.engine.approve(held.id, by="ada")
    theatre.work()
    assert theatre.again(held).state == "succeeded", theatre.again(held).reason
    assert theatre.files() == AFTER
    assert (theatre.root / "b").stat().st_mode & 0o777 == 0o700
    assert not (theatre.root / "gone").exists()
    assert theatre.kept() == []
    theatre.engine.undo(job_id=held.id)
    assert theatre.files() == BEFORE
    assert (theatre.root / "b").stat().st_mode & 0o777 == 0o644
    assert not (theatre.root / "new").exists()


def test_the_contents_of_each_file_are_there_before_and_after_it_is_applied(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    wanted = {
        path: Contents(*(_bytes(side.get(path)) for side in (BEFORE, AFTER))) for path in BEFORE | AFTER
    }
    assert {path: theatre.engine.contents(held.id, path) for path in wanted} == wanted
    with pytest.raises(LcpError, match="not one of its files"):
        theatre.engine.contents(held.id, "none.txt")
    theatre.engine.approve(held.id, by="ada")
    theatre.work()
    (theatre.root / "a").write_text("later\n")
    del wanted["b"]  # of which only the mode was changed
    assert {path: theatre.engine.contents(held.id, path) for path in wanted} == wanted


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("stage", [False, True], ids=["held", "stage"])
def test_directories_get_the_modes_that_a_command_gives_them(theatre: Theatre, stage: bool) -> None:
    """Nothing is closed to its owner, who could neither merge nor undo it then."""
    gone = theatre.root / "gone"
    gone.chmod(0o755)
    new = "mkdir -m 700 own; echo x >own/f; mkdir -m 2770 alone; mkdir no; echo y >no/f; chmod 0 no/f no a"
    mission = theatre.play(f"chmod 710 gone; {new}", stage=stage)
    (held,) = theatre.engine.jobs(states=["held"])
    theatre.engine.approve(held.id)
    theatre.work()
    assert theatre.again(held).state == "succeeded", theatre.again(held).reason
    paths = ("gone", "own", "own/f", "alone", "no", "no/f", "a")
    modes = [stat.S_IMODE((theatre.root / path).stat().st_mode) for path in paths]
    assert modes == [0o710, 0o700, 0o644, 0o770, 0o700, 0o400, 0o400]
    theatre.engine.undo(mission)
    assert stat.S_IMODE(gone.stat().st_mode) == 0o755
    assert theatre.files() == BEFORE


def test_a_rejection_is_told_and_leaves_the_root_as_it_was(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    theatre.engine.reject(theatre.held().id, "Not so.", by="ada")
    theatre.work()
    assert (theatre.held().state, theatre.files(), theatre.kept()) == ("rejected", BEFORE, [])


def test_later_commands_do_not_see_it_before_it_is_approved(theatre: Theatre) -> None:
    theatre.play("echo A > a", "cat a > seen")
    first, second = theatre.engine.jobs(kinds=["apply"])
    first, second = sorted((first, second), key=lambda one: one.id)
    theatre.engine.approve(second.id, by="ada")
    theatre.work()
    assert (theatre.root / "seen").read_text() == "a\n"
    theatre.engine.approve(first.id, by="ada")
    theatre.work()
    assert (theatre.root / "a").read_text() == "A\n"


def test_a_file_that_has_changed_since_is_named_and_nothing_can_be_approved(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    theatre.engine.diff(held.id, by="ada")
    (theatre.root / "a").write_text("mine\n")
    with pytest.raises(LcpError, match="changed since the command began: a") as raised:
        theatre.engine.approve(held.id, by="ada")
    assert raised.value.code is ErrorCode.CONFLICT
    assert "CONFLICT" in str(theatre.engine.diff(held.id, by="ada")[0].note)


def test_a_file_that_changes_after_the_approval_holds_it_again(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    theatre.engine.approve(held.id, by="ada")
    (theatre.root / "a").write_text("mine\n")
    theatre.work()
    assert (theatre.again(held).state, str(theatre.again(held).reason)) == (
        "held", "not applied: changed since the command began: a",
    )  # fmt: skip
    assert theatre.files() == {**BEFORE, "a": "mine\n"}
    (theatre.root / "a").write_text("a\n")
    theatre.engine.diff(held.id, by="ada")
    theatre.engine.approve(held.id, by="ada")
    theatre.work()
    assert theatre.files() == AFTER


def test_contents_that_are_lost_are_said_and_the_job_is_held(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    place = theatre.place(held)
    theatre.engine.approve(held.id, by="ada")
    place.rename(place.parent.parent / "away")
    theatre.work()
    assert theatre.again(held).state == "held"
    assert "no longer kept here" in str(theatre.again(held).reason)
    assert theatre.files() == BEFORE


def test_a_change_of_what_is_kept_is_not_applied(theatre: Theatre) -> None:
    theatre.play(SCRIPT)
    held = theatre.held()
    theatre.engine.diff(held.id, by="ada")
    theatre.engine.approve(held.id, by="ada")
    place = theatre.place(held)
    (place / "files" / "a").write_text("forged\n")
    theatre.work()
    assert (theatre.again(held).state, theatre.files()) == ("held", BEFORE)
    assert "not applied" in str(theatre.again(held).reason)


def test_it_can_be_approved_after_its_mission_has_ended(theatre: Theatre) -> None:
    mission = theatre.play(SCRIPT)
    assert theatre.engine.mission(mission).status == "completed"
    theatre.engine.approve(theatre.held().id, by="ada")
    theatre.work()
    assert theatre.files() == AFTER


def test_a_cancelled_mission_takes_it_along(theatre: Theatre) -> None:
    mission = theatre.play(SCRIPT, continue_="per_decision")
    assert theatre.engine.mission(mission).status == "waiting"
    theatre.engine.cancel(mission, by="ada")
    assert (theatre.held().state, theatre.files(), theatre.kept()) == ("cancelled", BEFORE, [])


def test_a_command_that_changes_nothing_or_what_is_denied_requests_nothing(theatre: Theatre) -> None:
    theatre.play("true", "echo k > key.pem")
    assert theatre.engine.jobs(kinds=["apply"]) == []


@pytest.mark.parametrize("kind", ["apply", "merge"])
def test_what_a_planner_requests_under_that_name_has_no_worker(theatre: Theatre, kind: str) -> None:
    theatre.play(SCRIPT)
    params: JsonValue = {**theatre.held().params} if kind == "apply" else {}
    reply: JsonValue = {
        "ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": kind, "params": params}]
    }  # fmt: skip
    with Engine(theatre.url) as engine:
        mission = engine.launch(
            {
                "goal": "Forge.",
                "planner": {"type": "script", "replies": [reply, DONE]},
                "policy": [{"kinds": ["*"], "do": "auto"}],
            },
            root=theatre.root,
        )
        engine.work(until_idle=True)
        (job,) = engine.jobs(mission_id=mission.id, kinds=[kind])
        assert job.state == "held"
        with pytest.raises(LcpError) as raised:
            engine.approve(job.id, by="ada")
        assert raised.value.code is ErrorCode.NO_WORKER
    assert theatre.files() == BEFORE


def test_its_history_replays_the_same(theatre: Theatre) -> None:
    theatre.play("true")
    mission = theatre.play(SCRIPT, goal="Change it again.")
    theatre.engine.approve(theatre.held().id, by="ada")
    theatre.work()
    assert theatre.again(theatre.held()).state == "succeeded"
    replayed = theatre.engine.replay(mission)
    assert (replayed.differences, replayed.stopped) == ((), None)


def test_it_is_dropped_by_default(theatre: Theatre) -> None:
    theatre.play(SCRIPT, commands={"allow": [["sh", "-c", "*"]]})
    assert theatre.engine.jobs(kinds=["apply"]) == []
    assert "a" in str((theatre.command().result or {})["changed"])


@pytest.mark.proof
def test_a_process_that_dies_at_any_point_leaves_one_job_and_all_or_nothing(
    tmp_path: Path, database_url: str
) -> None:
    """Every 9th point, from one on that the commit chooses."""
    import_all(database_url)
    (tmp_path / "root").mkdir()
    # Forks know what was found in a trial, whose wall is that of the directory.
    step_here(wall_directory(database_url), tmp_path / "root", walls=ProgramSettings().walls(Isolation.AUTO))
    points = _tell(tmp_path, database_url, 0)
    assert points > 50
    for at in range(1 + TURN % STEP, points + 1, STEP):
        _tell(tmp_path, database_url, at)


def _tell(place: Path, url: str, at: int) -> int:
    """Run, hold and apply it in an empty root, killed at a point, and go on; the number of points."""
    root, trace = place / "root", place / "trace"
    trace.unlink(missing_ok=True)
    for one in root.iterdir():
        rmtree(one) if one.is_dir() else one.unlink()

    def begin() -> None:
        theatre = Theatre(place, url)
        with theatre.engine:
            theatre.play(SCRIPT, work=False)

    def perform(killer: Killer) -> None:
        runner.QUICK_SECONDS = runner.FLUSH_SECONDS = 3600
        runner.SLOW_SECONDS = 7200
        with Engine(url) as engine:
            database = engine.instance.database
            database.backend = WatchedBackend(database.backend, killer)
            killer.watch_files()
            engine.work(until_idle=True)
            mission = engine.missions()[0]
            (held,) = engine.jobs(mission_id=mission.id, kinds=["apply"])
            engine.approve(held.id, by="ada")
            engine.work(until_idle=True)

    def look() -> dict[str, JsonValue]:
        with Engine(url) as engine:
            mission = engine.missions()[0]
            walls = engine.instance.walls
            assert walls is not None
            remove_held(engine.instance.database, walls)
            found = [path for path in root.rglob("*") if path.is_file()]
            made = [str(one["path"]) for one in engine.changes(mission.id) if one["state"] != "void"]
            return {
                "jobs": [*sorted(f"{job.kind} {job.state}" for job in engine.jobs(mission_id=mission.id))],
                "files": {str(path.relative_to(root)): path.read_text() for path in found},
                "twice": len(made) - len(set(made)),
                "left": [one.name for one in (walls / "held").iterdir()],
            }

    assert do(begin) == 0
    ended = do(lambda: perform(Killer(at, trace)))
    names = trace.read_text().splitlines()
    # A command takes its own time, so that a run may pass some points fewer, and come to its end.
    assert ended == (-signal.SIGKILL if 0 < at <= len(names) else 0), names[-1]
    assert do(lambda: perform(Killer())) == 0, names[-1]
    assert ask(look, place / "answer.json") == {
        "jobs": [
            "agent_plan succeeded",
            "agent_plan succeeded",
            "apply succeeded",
            "run_command succeeded",
        ],
        "files": AFTER,
        "twice": 0,
        "left": [],
    }, names[-1]
    return len(names)
