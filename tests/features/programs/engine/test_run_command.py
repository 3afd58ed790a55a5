"""Commands run behind a wall, and only those that the mission allows; a mission may require one to succeed."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.engine.conftest import Lab, Object
from tests.walls import AT_ITS_PATH, EACH_WALL, NEEDS_LANDLOCK, NEEDS_OVERLAY, at_its_path

from lcp_engine import Engine, LcpError
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.programs.walls import Step
from lcp_engine.core.summaries import gist
from lcp_engine.engine.admission import allowed_kinds

pytestmark = NEEDS_LANDLOCK
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "All done."}
AUTO: list[JsonValue] = [{"kinds": ["run_command", "write_file"], "do": "auto"}]
ANY: Object = {"allow": [["sh", "-c", "*"]], "seconds": 20}


def ask(*commands: Sequence[str]) -> JsonValue:
    jobs: list[JsonValue] = [{"kind": "run_command", "params": {"command": [*one]}} for one in commands]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}


def write(path: str, content: str) -> JsonValue:
    return {"ok": True, "action": "write_file", "rel_path": path, "content": content}


def result_of(lab: Lab, script: str, commands: JsonValue = ANY, policy: Sequence[JsonValue] = AUTO) -> Object:
    """The result of a shell script in a mission of its own."""
    mission = lab.run(ask(["sh", "-c", script]), DONE, commands=commands, policy=[*policy])
    (job,) = lab.jobs(mission.id)
    assert job.result is not None, job.error
    return job.result


def test_without_an_entry_a_command_is_refused_with_the_entry_that_would_allow_it(lab: Lab) -> None:
    mission = lab.run(ask(["rm", "-rf", "a b"]), DONE, policy=AUTO)
    (job,) = lab.jobs()
    assert job.state == "rejected"
    assert job.error is not None
    said = 'no entry of commands.allow fits; ["rm", "-rf", "a b"] would fit exactly this command'
    assert job.error["user_message"] == f"run_command rm -rf 'a b' is not allowed: {said}"
    assert job.error["error_code"] == "NOT_ALLOWED"
    assert (mission.outcome, mission.json["unfulfilled"]) == ("mission_complete", [])


@pytest.mark.parametrize("commands", [{}, ANY])
def test_a_planner_is_offered_commands_only_where_some_are_allowed(lab: Lab, commands: Object) -> None:
    spec = MissionSpec.model_validate({"goal": "a", "planner": {"type": "human"}, "commands": commands})
    offered = {kind.name: kind for kind in allowed_kinds(lab.engine.instance.admission, spec, str(lab.root))}
    assert ("run_command" in offered) is bool(commands)
    if commands:
        assert offered["run_command"].description.endswith('Allowed: ["sh", "-c", "*"]')


def test_a_planner_is_offered_a_kind_that_policy_allows_on_some_paths_and_denies_on_all_others(
    lab: Lab,
) -> None:
    some: Object = {"kinds": ["write_file", "ask_user"], "paths": ["docs/**"], "do": "auto"}
    policy: list[Object] = [some, {"kinds": ["*"], "do": "deny"}]
    spec = MissionSpec.model_validate({"goal": "a", "planner": {"type": "human"}, "policy": policy})
    offered = {kind.name: kind for kind in allowed_kinds(lab.engine.instance.admission, spec, str(lab.root))}
    assert "ask_user" not in offered, "a question to a person has no path"
    assert not {"read_file", "delete_file", "run_command"} & offered.keys()
    assert not offered["write_file"].is_held


@EACH_WALL
def test_an_allowed_command_is_held_for_a_person_by_default(lab: Lab) -> None:
    mission = lab.run(ask(["sh", "-c", "echo hello"]), DONE, commands=ANY)
    (job,) = lab.jobs()
    assert (job.state, mission.status) == ("held", "waiting")
    lab.engine.approve(job.id)
    lab.work()
    (done,) = lab.jobs()
    assert done.result is not None
    assert (done.result["exit_code"], done.result["stdout"]) == (0, "hello\n")


@EACH_WALL
def test_what_a_command_changes_is_named_and_dropped(lab: Lab, walls: Sequence[Step]) -> None:
    (lab.root / "a.txt").write_text("a\n")
    found = result_of(lab, "cat a.txt; echo b >> a.txt; echo n > new.txt; rm -f nothing; pwd; exit 7")
    seconds = found.pop("cpu_seconds")
    assert isinstance(seconds, float)
    where = at_its_path(walls, str(lab.root), ".")
    assert found == {
        "ok": True, "action": "run_command_result", "exit_code": 7, "stdout": f"a\n{where}\n", "stderr": "",
        "changed": ["a.txt", "new.txt"],
    }  # fmt: skip
    assert {path.name: path.read_text() for path in lab.root.iterdir()} == {"a.txt": "a\n"}
    assert lab.engine.changes(1) == []


@EACH_WALL
@pytest.mark.parametrize("changes", ["drop", "hold"])
def test_changes_that_are_too_many_to_be_named_are_counted(
    lab: Lab, walls: Sequence[Step], changes: str
) -> None:
    files = "i=0; while [ $i -lt 150 ]; do echo >.env.$i; i=$((i+1)); done"
    found = result_of(lab, files, {**ANY, "changes": changes})
    named, left_out = found["changed"], found.get("left_out", [])
    assert isinstance(named, list)
    assert isinstance(left_out, list)
    assert (len(named), found["total_changed"]) == (100, 150)
    if changes == "hold":
        assert len(left_out) == 101
        assert str(left_out[-1]).startswith("50 more")


def test_the_verdict_of_the_tool_is_in_the_result_and_its_line(lab: Lab) -> None:
    found = result_of(lab, "echo '2 failed, 5 passed in 0.1s'; echo warning: slow >&2; exit 1")
    assert found["verdict"] == "2 failed, 5 passed"
    assert gist(found) == "exit code 1: 2 failed, 5 passed"


def test_the_verdict_is_taken_from_more_output_than_prompts_show(lab: Lab) -> None:
    found = result_of(lab, "seq 50000; echo '2 failed, 5 passed in 0.1s'; seq 30000; exit 1")
    assert found["verdict"] == "2 failed, 5 passed"
    assert str(found["stdout"]).count("\n") == 80_001, "all of it can be recalled"


@EACH_WALL
def test_a_failure_for_reasons_of_the_wall_is_named(lab: Lab) -> None:
    script = "echo 'curl: (7) Network is unreachable' >&2; exit 7"
    assert result_of(lab, script)["wall"] == [
        "Network is unreachable: the wall's, not the program's: commands have no network here (docs/commands.md)"
    ]


@EACH_WALL
def test_a_refused_socket_and_a_missing_repository_are_named_where_a_wall_causes_them(
    lab: Lab, walls: Sequence[Step]
) -> None:
    script = "echo 'listen: operation not permitted; fatal: not a git repository' >&2; exit 1"
    told = str(result_of(lab, script)["wall"])
    assert ("not even 127.0.0.1" in told) == (walls[0] is Step.LANDLOCK)
    assert ("without .git" in told) == (walls[0] is not Step.OVERLAY)


@EACH_WALL
def test_a_hidden_file_that_a_command_misses_is_named(lab: Lab) -> None:
    (lab.root / "tests").mkdir()
    (lab.root / "tests" / "server.key").write_text("SECRET")
    (lab.root / "tests" / "other.key").write_text("SECRET")
    why = "the wall's, not the program's: commands do not see this file, which is secret or denied"
    assert result_of(lab, "cat tests/server.key")["wall"] == [f"tests/server.key: {why} (docs/commands.md)"]


@EACH_WALL
def test_it_sees_what_was_written_before(lab: Lab) -> None:
    allowed: Object = {"allow": [["sh", "run.sh"]]}
    lab.run(write("run.sh", "echo one"), ask(["sh", "run.sh"]), DONE, commands=allowed, policy=AUTO)
    last = lab.jobs()[-1].result
    assert last is not None
    assert last["stdout"] == "one\n"


@EACH_WALL
def test_what_policy_denies_is_not_there(lab: Lab) -> None:
    for name in (".env", "mine.txt", "open.txt"):
        (lab.root / name).write_text("SECRET")
    rules: list[JsonValue] = [{"kinds": ["read_file"], "paths": ["mine.txt"], "do": "deny"}, *AUTO]
    assert result_of(lab, "ls -A", policy=rules)["stdout"] == "open.txt\n"


@EACH_WALL
def test_what_is_held_to_read_is_not_there(lab: Lab) -> None:
    for name in ("private.txt", "open.txt"):
        (lab.root / name).write_text("text")
    held: JsonValue = {"kinds": ["read_file"], "paths": ["private.txt"], "do": "hold"}
    assert result_of(lab, "ls", policy=[held, *AUTO])["stdout"] == "open.txt\n"


@EACH_WALL
def test_a_program_in_the_root_opens_no_more_of_the_root(
    lab: Lab, walls: Sequence[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a program is installed can be read; that is not so of the root itself, nor of the home directory."""
    tool = lab.root / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho the tool\n")
    tool.chmod(0o755)
    (lab.root / ".env").write_text("SECRET")
    (lab.root.parent / "beside").write_text("SECRET")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(lab.root.parent))
    mission = lab.run(ask(["tool"]), DONE, commands={"allow": [["tool"]]}, policy=AUTO)
    (job,) = lab.jobs(mission.id)
    if walls[0] not in AT_ITS_PATH:
        assert job.error is not None
        assert "cannot be started: Permission denied" in str(job.error["user_message"])
    else:
        assert job.result is not None, job.error
        assert job.result["stdout"] == "the tool\n", "it is a file of the root, which commands see"
    found = result_of(lab, f"cat {lab.root}/.env {lab.root.parent}/beside; ls -A {lab.root.parent}")
    assert "SECRET" not in str(found)
    assert found["stdout"] == at_its_path(walls, "root\n")


@EACH_WALL
@pytest.mark.parametrize("interpreter", ["/bin/sh", "//bin/sh", "/etc/../bin/sh", "/proc/self/root/bin/sh"])
def test_a_script_reaches_no_more_than_the_command_itself(
    lab: Lab, walls: Sequence[Step], interpreter: str
) -> None:
    """Its interpreter is installed in a directory of the system, whose parent is the whole file system."""
    (lab.root / ".env").write_text("SECRET")
    script = lab.root / "run.sh"
    script.write_text(f"#!{interpreter}\ncat {lab.root}/.env /etc/shadow; ls -A {lab.root.parent}\n")
    script.chmod(0o755)
    mission = lab.run(ask(["./run.sh"]), DONE, commands={"allow": [["./run.sh"]]}, policy=AUTO)
    (job,) = lab.jobs(mission.id)
    assert job.result is not None
    assert job.result["stdout"] == at_its_path(walls, "root\n")
    assert "SECRET" not in str(job.result)


@EACH_WALL
def test_a_check_that_names_a_script_reaches_no_more(lab: Lab) -> None:
    (lab.root / ".env").write_text("SECRET")
    found = f"#!//bin/sh\ncat {lab.root}/.env >found && exit 0\nexit 7\n"
    (lab.root / "test.sh").write_text(found)
    (lab.root / "test.sh").chmod(0o755)
    mission = lab.run(DONE, DONE, DONE, DONE, accept=[{"command": ["./test.sh"]}])
    assert mission.outcome != "mission_complete"
    assert "exit code 7" in lab.questions[1].notices[0]


@EACH_WALL
def test_its_environment_is_the_missions(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = result_of(lab, "env", commands={**ANY, "environment": {"PYTHONPATH": "src"}})["stdout"]
    assert "PYTHONPATH=src\n" in str(found)
    assert "sk-secret" not in str(found)


@EACH_WALL
def test_a_command_has_the_limits_of_its_runner_for_reserved_memory_and_cores(
    lab: Lab, walls: Sequence[Step]
) -> None:
    said = str(result_of(lab, "ulimit -S -d; ulimit -H -c; ulimit -S -c")["stdout"])
    data, cores = (resource.getrlimit(one)[1] for one in (resource.RLIMIT_DATA, resource.RLIMIT_CORE))
    reserved = 2 * 2**30 if walls[0] is Step.LANDLOCK else data
    assert said.split() == [
        "unlimited" if one == resource.RLIM_INFINITY else str(one // unit)
        for one, unit in ((reserved, 1024), (cores, 512), (0, 512))
    ]


@EACH_WALL
def test_a_command_that_takes_too_long_says_so(lab: Lab) -> None:
    found = result_of(lab, "echo begun; sleep 60", commands={**ANY, "seconds": 0.5})
    assert (found["exit_code"], found["ended"]) == (None, "it ran for more than 0.5 s, and was stopped")
    assert found["stdout"] == "begun\n"


@EACH_WALL
def test_a_program_that_is_not_there_is_named(lab: Lab) -> None:
    lab.run(ask(["no-such-program"]), DONE, commands={"allow": [["no-such-program"]]}, policy=AUTO)
    (job,) = lab.jobs()
    assert job.error is not None
    assert (job.state, job.error["error_code"]) == ("failed", "PATH_NOT_FOUND")
    assert "no program is named 'no-such-program' in " in str(job.error["user_message"])


@EACH_WALL
def test_a_mission_is_complete_once_its_command_succeeds(lab: Lab) -> None:
    check: list[JsonValue] = [{"command": ["sh", "test.sh"]}]
    failing, passing = write("test.sh", "echo 1 failed; exit 1"), write("test.sh", "echo passed")
    mission = lab.run(failing, DONE, passing, DONE, accept=check, policy=AUTO, limits={"max_turns": 9})
    assert (mission.outcome, mission.turns) == ("mission_complete", 4)
    said = "sh test.sh ends with exit code 0: exit code 1: 1 failed"
    assert lab.questions[2].notices == [f"an acceptance check does not pass: {said}"]


@EACH_WALL
def test_a_check_that_cannot_run_does_not_pass(lab: Lab) -> None:
    mission = lab.run(DONE, DONE, DONE, DONE, accept=[{"command": ["no-such-program"]}])
    assert mission.outcome != "mission_complete"
    assert "no program is named 'no-such-program'" in lab.questions[1].notices[0]


@pytest.mark.parametrize("commands", [{"allow": [[]]}, {"allow": ["pytest '"]}, {"seconds": 0}, {"run": []}])
def test_a_wrong_section_is_refused(lab: Lab, commands: Object) -> None:
    with pytest.raises(Exception, match="commands"):
        lab.run(DONE, commands=commands)


@EACH_WALL
def test_a_command_reads_what_the_user_opens_for_commands(tmp_path: Path, walls: Sequence[Step]) -> None:
    root, tools = tmp_path / "root", tmp_path / "tools"
    for directory in (root, tools):
        directory.mkdir()
    program = tools / "greet"
    program.write_text("#!/bin/sh\ncat $(dirname $0)/word\n")
    program.chmod(0o755)
    (tools / "word").write_text("hello")
    command = ["sh", "-c", str(program)]
    spec: Object = {
        "goal": "Greet.",
        "planner": {"type": "script", "replies": [ask(command), DONE]},
        "commands": {"allow": [[*command]]},
        "policy": AUTO,
    }
    found = []
    for nth, opened in enumerate(([], [tools])):
        with Engine(f"sqlite:///{tmp_path}/{nth}.db", commands_read=opened, commands_wall=walls) as engine:
            mission = engine.launch(spec, root=root)
            engine.work(until_idle=True)
            (job,) = (job for job in engine.jobs(mission_id=mission.id) if job.kind == "run_command")
            found.append((job.result or {}).get("stdout"))
    assert found == ["", "hello"]


@pytest.mark.parametrize("place", ["/", "~"])
def test_the_home_directory_is_not_opened_for_commands(tmp_path: Path, place: str) -> None:
    with pytest.raises(LcpError, match=r"commands_read: .* contains .*, which no program may read"):
        Engine(sqlite_url(tmp_path), commands_read=[Path(place).expanduser()])


@pytest.mark.skipif(not os.access("/opt", os.W_OK), reason="/opt cannot be written")
@EACH_WALL
@pytest.mark.parametrize("stage", [True, False], ids=["stage", "root"])
def test_a_command_sees_beside_a_root_in_a_place_of_the_system_but_not_the_root(
    lab: Lab, *, stage: bool
) -> None:
    with TemporaryDirectory(dir="/opt") as place:
        lab.root = Path(place, "around", "root")
        lab.root.mkdir(parents=True)
        (lab.root / "a.txt").write_text("the root\n")
        Path(place, "tool").write_text("the tool\n")
        script = f"cat {place}/tool; cat a.txt; echo mine > a.txt; cat {lab.root}/a.txt; ls {place} {lab.root}; ls /usr"
        mission = lab.run(ask(["sh", "-c", script]), DONE, commands=ANY, policy=[*AUTO], stage=stage)
        result = next(job for job in lab.jobs(mission.id) if job.kind == "run_command").result
        assert result is not None
        said = str(result["stdout"])
        assert said.startswith("the tool\nthe root\n")
        assert said.count("the root") == 1
        assert {"bin", "lib"} <= {*said.split()}


@pytest.mark.parametrize("allowed", [None, {"hosts": ["a.example.org"]}, "host"])
def test_a_mission_gets_no_network_that_the_user_does_not_allow(tmp_path: Path, allowed: JsonValue) -> None:
    spec: Object = {"goal": "a", "planner": {"type": "script", "replies": [DONE]}}
    grant = {"hosts": []} if allowed is None else allowed
    assert isinstance(grant, str | dict)
    with Engine(sqlite_url(tmp_path), commands_network=grant) as engine:
        asks: list[JsonValue] = [{"hosts": ["a.example.org"]}, {"hosts": ["b.example.org"]}, "host"]
        for asked in asks:
            mission: Object = {**spec, "commands": {"allow": [["curl"]], "network": asked}}
            if allowed in ("host", asked):
                engine.launch(mission, root=tmp_path)
                continue
            with pytest.raises(LcpError, match="the configuration of this machine does not allow it"):
                engine.launch(mission, root=tmp_path)


def test_a_runner_without_the_grant_of_the_launch_runs_no_command_with_network(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    spec: Object = {
        "goal": "Connect.",
        "planner": {"type": "script", "replies": [ask(["true"]), DONE]},
        "commands": {"allow": [["true"]], "network": "host"},
        "policy": AUTO,
    }
    with Engine(sqlite_url(tmp_path), commands_network="host") as engine:
        mission = engine.launch(spec, root=tmp_path / "root")
    with Engine(sqlite_url(tmp_path)) as engine:
        engine.work(until_idle=True)
        (job,) = (job for job in engine.jobs(mission_id=mission.id) if job.kind == "run_command")
    assert job.error is not None
    assert job.error["error_code"] == "NOT_ALLOWED"


@EACH_WALL
def test_a_command_with_the_network_of_the_machine_connects_to_its_servers(
    tmp_path: Path, walls: Sequence[Step]
) -> None:
    (tmp_path / "root").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected"
        spec: Object = {
            "goal": "Connect.",
            "planner": {"type": "script", "replies": [ask(["bash", "-c", connect]), DONE]},
            "commands": {"allow": [["bash", "-c", "*"]], "network": "host"},
            "policy": AUTO,
        }
        with Engine(sqlite_url(tmp_path), commands_network="host", commands_wall=walls) as engine:
            mission = engine.launch(spec, root=tmp_path / "root")
            engine.work(until_idle=True)
            (job,) = (job for job in engine.jobs(mission_id=mission.id) if job.kind == "run_command")
    assert job.result is not None, job.error
    assert job.result["stdout"] == "connected\n"


@NEEDS_OVERLAY
def test_a_planner_reads_which_job_its_changes_wait_as_and_what_came_of_it(lab: Lab) -> None:
    commands: Object = {**ANY, "changes": "hold"}
    mission = lab.run(
        ask(["sh", "-c", "echo new > new"]), ask(["true"]), DONE, commands=commands, policy=AUTO
    )
    (held,) = lab.engine.jobs(mission_id=mission.id, kinds=["apply"])
    told = lab.questions[1].results[0].result
    assert told is not None
    assert told["held_as_job"] == held.id


@pytest.mark.proof
@NEEDS_OVERLAY
@pytest.mark.parametrize("stage", [True, False], ids=["stage", "root"])
@pytest.mark.parametrize("rules", [{".gitignore": "tests/\n"}, {"package.json": "{}", "setup.py": ""}])
def test_no_rule_that_a_planner_wrote_hides_what_a_command_changes(
    lab: Lab, *, stage: bool, rules: dict[str, str]
) -> None:
    """Else an acceptance check passes by files that no person is shown."""
    for name in ("tests", "build"):
        (lab.root / name).mkdir()
        (lab.root / name / "t.sh").write_text("exit 1\n")
    overwrite = "for one in tests build; do echo exit 0 > $one/t.sh; done"
    lab.run(
        *(write(name, text) for name, text in rules.items()),
        ask(["sh", "-c", overwrite]),
        ask(["sh", "-c", "cat tests/t.sh build/t.sh"]),
        DONE, commands=ANY, policy=AUTO, stage=stage,
    )  # fmt: skip
    changed, seen = (job.result for job in lab.jobs() if job.kind == "run_command")
    assert changed is not None
    assert seen is not None
    assert changed["changed"] == ["build/t.sh", "tests/t.sh"]
    assert seen["stdout"] == ("exit 0\nexit 0\n" if stage else "exit 1\nexit 1\n")


@EACH_WALL
def test_changes_are_held_behind_the_strongest_wall_and_said_to_be_dropped_behind_others(
    lab: Lab, walls: Sequence[Step]
) -> None:
    mission = lab.run(
        ask(["sh", "-c", "echo new > new"]), DONE, commands={**ANY, "changes": "hold"}, policy=AUTO
    )
    held = lab.engine.jobs(mission_id=mission.id, kinds=["apply"])
    (command,) = lab.engine.jobs(mission_id=mission.id, kinds=["run_command"])
    assert command.result is not None, command.error
    assert command.result["changed"] == ["new"]
    dropped = ["new: this machine can only run it on a copy, of which nothing is kept"]
    expected = (1, []) if walls[0] is Step.OVERLAY else (0, dropped)
    assert (len(held), command.result.get("left_out", [])) == expected
    assert [*lab.root.iterdir()] == []


@NEEDS_OVERLAY
@pytest.mark.parametrize("stage", [True, False], ids=["stage", "held"])
def test_changes_beyond_what_a_mission_may_write_are_left_out_as_a_whole(lab: Lab, *, stage: bool) -> None:
    lab.run(
        ask(["sh", "-c", "echo 1 > small; seq 1000 > large"]), ask(["sh", "-c", "echo 2 > small"]), DONE,
        commands={**ANY, "changes": "hold"}, policy=AUTO, limits={"max_bytes_written": 1000}, stage=stage,
    )  # fmt: skip
    refused, kept = (job.result or {} for job in lab.jobs() if job.kind == "run_command")
    assert refused["left_out"] == [
        "2 files: the mission may write max_bytes_written = 1000 bytes, has 1000 left and this job needs 3895"
    ]
    assert (refused["exit_code"], kept.get("left_out")) == (0, None)
    assert "held_as_job" not in refused
