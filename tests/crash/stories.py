"""Define the missions to kill: what people and runners do, act by act, each act in its own process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine import Engine
from lcp_engine.core.programs.walls import Step
from lcp_engine.store.queries.records import Job, Mission
from lcp_engine.workers.base import Context, Outcome, Worker

Object = dict[str, JsonValue]


@dataclass(frozen=True)
class Place:
    """The database and files of one run of a story."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def calls(self) -> Path:
        """A file with the number of each question that the planner was asked."""
        return self.directory / "calls"


@dataclass(frozen=True)
class Act:
    """What one process does. Another one does it again if the first is killed.

    `by_runner`: every other time a runner comes first, who has to finish what the dead one had decided or not begin it.
    """

    name: str
    do: Callable[[Engine, Place], object]
    is_killed: bool = True
    by_runner: bool = False


@dataclass(frozen=True)
class Story:
    """A mission and its acts; `wanted` are the files at the end, which also check the undisturbed run."""

    name: str
    spec: Object
    acts: tuple[Act, ...]
    wanted: Mapping[str, str]
    wall: Step | None = None
    """The wall that its commands run behind; None if it has none."""
    before: Mapping[str, str] = field(default_factory=lambda: {"a.txt": "a\n", "log.txt": "zero\n"})


class Anything(BaseModel, extra="allow"):
    """Any params."""


def _break(params: Anything, context: Context) -> Outcome:
    raise ConnectionError("it never works")


BREAK = Worker(
    kind="break",
    params=Anything,
    result=Anything,
    execute=_break,
    has_effects=False,
    max_attempts=2,
    backoff=0.01,
).for_any_params()


def mission_of(engine: Engine, place: Place) -> Mission:
    (mission,) = [mission for mission in engine.missions() if mission.root == str(place.root)]
    return mission


def _launcher(spec: Object) -> Callable[[Engine, Place], object]:
    return lambda engine, place: engine.launch(spec, root=place.root, key=str(place.root))


def _work(engine: Engine, place: Place) -> None:
    engine.work(until_idle=True, mission_id=mission_of(engine, place).id)


def _approve(engine: Engine, place: Place) -> None:
    for job in engine.jobs(mission_id=mission_of(engine, place).id, kinds=["write_file"]):
        if job.state == "held":
            engine.approve(job.id, by="ada")


def _approve_merge(engine: Engine, place: Place) -> None:
    """Take one of two hunks of a file, and edit another file."""
    for job in engine.jobs(mission_id=mission_of(engine, place).id, kinds=["merge"]):
        if job.state == "held":
            look = engine.look(job.id)
            (first, _) = next(diff.hunks for diff in look.files if diff.path == "long.txt")
            params: Object = {"hunks": {"long.txt": [first.name]}, "edits": {"a.txt": "A\nmine\n"}}
            engine.approve(job.id, params=params, shown=look.sight, by="ada")


def _take_merge(engine: Engine, place: Place) -> None:
    for job in engine.jobs(mission_id=mission_of(engine, place).id, kinds=["merge"]):
        if job.state == "held":
            engine.approve(job.id, shown=engine.look(job.id).sight, by="ada")


def _answer(engine: Engine, place: Place) -> None:
    (question,) = engine.jobs(mission_id=mission_of(engine, place).id, kinds=["ask_user"])
    engine.answer(question.id, "blue", by="ada")


def _grant(number: int, more: int) -> Callable[[Engine, Place], object]:
    """Answer question `number`, which asks for more at a limit."""

    def grant(engine: Engine, place: Place) -> None:
        questions = engine.jobs(mission_id=mission_of(engine, place).id, kinds=["ask_user"])
        engine.answer(questions[number - 1].id, form={"more": more}, by="ada")

    return grant


def _undo(engine: Engine, place: Place) -> None:
    engine.undo(mission_of(engine, place).id, by="ada")


def _redo(engine: Engine, place: Place) -> None:
    undo = engine.jobs(mission_id=mission_of(engine, place).id, kinds=["undo"])[0]
    engine.undo(job_id=undo.id, by="ada")


def _followup(*jobs: tuple[str, Object]) -> Object:
    new_jobs: list[JsonValue] = [{"kind": kind, "params": params} for kind, params in jobs]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def _write(path: str, content: str, mode: str = "overwrite") -> tuple[str, Object]:
    return "write_file", {"rel_path": path, "content": content, "mode": mode}


def _edit(path: str, old: str, new: str) -> tuple[str, Object]:
    """An edit that another one like it would not leave the same."""
    return "edit_file", {"rel_path": path, "old_text": old, "new_text": new, "replace_all": True}


def _spec(name: str, *replies: JsonValue, dialect: str = "lcp") -> Object:
    return {
        "name": name,
        "goal": "Write and append.",
        "planner": {"type": "script", "replies": list(replies), "dialect": dialect},
        "policy": [
            {"kinds": ["write_file"], "paths": ["held/**"], "do": "hold"},
            {"kinds": ["*"], "do": "auto"},
        ],
    }


DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}

WORK = _spec(
    "work",
    _followup(
        ("list_files", {}),
        ("read_file", {"rel_path": "a.txt"}),
        _write("a.txt", "first\n"),
        _write("log.txt", "one\n", "append"),
        _write("sub/deep/b.txt", "b\n"),
    ),
    "this is no LCP",
    _followup(
        _write("log.txt", "two\n", "append"),
        ("rewrite_file", {"rel_path": "a.txt", "content": "second\n"}),
        _edit("log.txt", "zero\n", "zero\nhalf\n"),
        ("break", {}),
        ("agent_plan", {"user_prompt": "Write c.txt.", "scope": "step"}),
    ),
    _followup(
        _write("sub/c.txt", "c\n"),
        _write("sub/e.txt", "e\n"),
        ("make_directory", {"rel_path": "sub/made/empty"}),
    ),
    {"ok": True, "action": "analysis_result", "summary": "c.txt is there"},
    _followup(
        _write("held/d.txt", "d\n"),
        ("delete_file", {"rel_path": "sub/deep/b.txt"}),
        ("move_file", {"rel_path": "sub/e.txt", "new_path": "moved/e.txt"}),
        ("ask_user", {"question": "Which colour?", "options": ["red", "blue"]}),
    ),
    DONE,
)


def _respond(kind: str, **parts: JsonValue) -> Object:
    return {"response_type": kind, "status": "success", "message": "m", **parts}


def _step(number: int, job: tuple[str, Object], *, after: int | None = None) -> Object:
    before: list[JsonValue] = [] if after is None else [f"step-{after:03}"]
    return {"id": f"step-{number:03}", "tool": job[0], "parameters": job[1], "dependencies": before}


PLAN = _spec(
    "plan",
    _respond(
        "planning",
        planning_data={
            "summary": "Two steps.",
            "steps": [{"step_number": 1, "action": "Write"}, {"step_number": 2, "action": "Look"}],
        },
    ),
    _respond("custom", custom_fields={"lcp": _followup(_write("log.txt", "one\n", "append"))}),
    _respond("answer"),
    _respond("custom", custom_fields={"lcp": _followup(("read_file", {"rel_path": "log.txt"}))}),
    _respond("answer"),
    _respond(
        "custom",
        custom_fields={
            "execution_plan": {
                "steps": [
                    _step(1, ("read_file", {"rel_path": "log.txt"})),
                    _step(2, _write("copy.txt", "$output.step-001.content")),
                    _step(3, _write("log.txt", "two\n", "append"), after=2),
                    _step(4, ("agent_plan", {"user_prompt": "Look at $output.step-001.path."}), after=3),
                    _step(5, _write("log.txt", "$output.step-004.summary", "append")),
                ]
            }
        },
    ),
    _respond("answer"),
    _respond("answer"),
    dialect="universal",
)

_CHANGES = (
    _followup(
        _write("a.txt", "A\n"),
        _write("log.txt", "one\n", "append"),
        _write("new/deep/c.txt", "c\n"),
        _write("new/d.txt", "d\n"),
        ("make_directory", {"rel_path": "made/empty"}),
    ),
    _followup(
        _write("a.txt", "B\n", "append"),
        _edit("log.txt", "o", "0"),
        ("delete_file", {"rel_path": "new/d.txt"}),
        ("move_file", {"rel_path": "new/deep/c.txt", "new_path": "new/deep/e.txt"}),
    ),
)
CHANGE = _spec("change", *_CHANGES, DONE)

LONG = [f"line {number}\n" for number in range(20)]
STAGE: Object = {
    **_spec(
        "stage", *_CHANGES, _followup(_write("long.txt", "".join(["first\n", *LONG[1:-1], "last\n"]))), DONE
    ),
    "stage": True,
    "policy": [],
}

LIMIT: Object = {
    **_spec(
        "limit",
        _followup(_write("a.txt", "first\n"), _write("log.txt", "one\n", "append")),
        _followup(_write("log.txt", "two\n", "append"), ("read_file", {"rel_path": "a.txt"})),
        DONE,
    ),
    "on_limit": "hold",
    "limits": {"max_turns": 1},
}

STORIES = (
    Story(
        "work",
        WORK,
        (
            Act("launch", _launcher(WORK)),
            Act("work", _work),
            Act("approve", _approve),
            Act("answer", _answer),
            Act("work on", _work),
        ),
        {
            "a.txt": "second\n", "log.txt": "zero\nhalf\none\ntwo\n", "sub/c.txt": "c\n", "held/d.txt": "d\n",
            "moved/e.txt": "e\n",
        },
    ),
    Story(
        "plan",
        PLAN,
        (Act("launch", _launcher(PLAN), is_killed=False), Act("work", _work)),
        {"a.txt": "a\n", "log.txt": "zero\none\ntwo\nm", "copy.txt": "zero\none\n"},
    ),
    Story(
        "undo",
        CHANGE,
        (
            Act("launch", _launcher(CHANGE), is_killed=False),
            Act("work", _work, is_killed=False),
            Act("undo", _undo, by_runner=True),
            Act("redo", _redo, by_runner=True),
        ),
        {"a.txt": "A\nB\n", "log.txt": "zer0\n0ne\n", "new/deep/e.txt": "c\n"},
    ),
    Story(
        "stage",
        STAGE,
        (
            Act("launch", _launcher(STAGE), is_killed=False),
            Act("work in the stage", _work),
            Act("approve", _approve_merge),
            Act("merge", _work, by_runner=True),
            Act("undo", _undo, by_runner=True),
            Act("redo", _redo, by_runner=True),
        ),
        {
            "a.txt": "A\nmine\n", "log.txt": "zer0\n0ne\n", "new/deep/e.txt": "c\n",
            "long.txt": "".join(["first\n", *LONG[1:]]),
        },
        before={"a.txt": "a\n", "log.txt": "zero\n", "long.txt": "".join(LONG)},
    ),
    Story(
        "limit",
        LIMIT,
        (
            Act("launch", _launcher(LIMIT), is_killed=False),
            Act("work up to the limit", _work),
            Act("grant one more turn", _grant(1, 1)),
            Act("work up to the next limit", _work),
            Act("grant no more", _grant(2, 0)),
            Act("take the last turn", _work),
        ),
        {"a.txt": "first\n", "log.txt": "zero\none\ntwo\n"},
    ),
)  # fmt: skip


def _command(script: str) -> tuple[str, Object]:
    return "run_command", {"command": ["sh", "-c", script]}


COMMANDS: Object = {
    **_spec(
        "commands",
        _followup(_command("echo b >> a.txt; mkdir out; echo built > out/x; rm log.txt; echo new > new.txt")),
        # Where a runner dies after it has decided what is kept in the stage, the build is lost, but never half there.
        _followup(_command('test ! -e out/x || test "$(cat out/x)" = built && cat a.txt; echo c >> a.txt')),
        DONE,
    ),
    "stage": True,
    "policy": [],
    "commands": {"allow": [["sh", "-c", "*"]], "seconds": 100},
}
_GIT_IGNORE = {".gitignore": "out/\n"}


def _of_commands(wall: Step, wanted: Mapping[str, str]) -> Story:
    return Story(
        f"commands behind {wall}",
        COMMANDS,
        (
            Act("launch", _launcher(COMMANDS), is_killed=False),
            Act("run commands", _work),
            Act("approve", _take_merge, is_killed=False),
            Act("merge", _work, by_runner=True),
        ),
        {**_GIT_IGNORE, **wanted},
        wall,
        {**_GIT_IGNORE, "a.txt": "a\n", "log.txt": "zero\n"},
    )


STORIES_OF_COMMANDS = (
    _of_commands(Step.OVERLAY, {"a.txt": "a\nb\nc\n", "new.txt": "new\n"}),
    *(_of_commands(wall, {"a.txt": "a\n", "log.txt": "zero\n"}) for wall in (Step.COPY, Step.LANDLOCK)),
)
"""What a command changes in a stage is kept behind the strongest wall alone."""


def tree(place: Place) -> dict[str, str | None]:
    """The text of every file in the root, None for a directory."""
    root = place.root
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


SETTLING = ("succeeded", "failed", "rejected", "skipped", "cancelled")


def picture(engine: Engine, place: Place) -> Object:
    """Everything that must not depend on deaths: without times, and with ids relative to the mission's first job."""
    mission = mission_of(engine, place)
    jobs, events = engine.jobs(mission_id=mission.id), engine.events(mission.id)
    place_of: dict[object, JsonValue] = {job.id: n for n, job in enumerate(jobs, 1)}
    place_of[None] = None
    settled = [event for event in events if event["event"] in SETTLING]
    metrics = engine.instance.database.read(
        lambda tx: tx.query_plain(f"SELECT metrics FROM missions WHERE id = {mission.id}")
    )
    failures = engine.instance.database.read(
        lambda tx: tx.query_plain(f"SELECT failures FROM jobs WHERE mission_id = {mission.id} ORDER BY id")
    )
    stored = {
        "mission": [mission.status, mission.outcome, mission.summary, mission.deliverables, mission.jobs],
        "metrics": {name: n for name, n in json.loads(metrics[0][0]).items() if name != "running_seconds"},
        "jobs": [
            [
                place_of[job.id],
                place_of[job.json["parent_id"]],
                job.kind,
                job.state,
                _params(job, mission.id),
                _result(job),
            ]
            for job in jobs
        ],
        "failed attempts": [row[0] for row in failures],
        "settled": sorted([place_of[event["job_id"]], event["event"]] for event in settled),
        "turns": [
            [turn["number"], turn["turn"], turn["prompt"], turn["reply"]] for turn in engine.turns(mission.id)
        ],
        "effects": sorted(
            [place_of[change["job_id"]], change["path"], change["sha256_after"]]
            for change in engine.changes(mission.id)
            if change["state"] == "applied"
        ),
        "left open": [
            change["path"]
            for change in engine.changes(mission.id)
            if change["state"] not in ("applied", "void")
        ],
        "gaps": [event["seq"] for event in events] != list(range(1, len(events) + 1)),
        "files": tree(place),
    }
    told: Object = json.loads(json.dumps(stored))
    return told


def _result(job: Job) -> JsonValue:
    """Without the ids of the jobs that a merge is about, and the time that a command took."""
    if job.kind == "run_command" and job.result is not None:
        return {name: value for name, value in job.result.items() if name != "cpu_seconds"}
    if job.kind != "merge" or job.result is None:
        return job.json["result"]
    files = job.result["files"]
    assert isinstance(files, list)
    return [[file["path"], file["change"]] for file in files if isinstance(file, dict)]


def _params(job: Job, mission_id: int) -> JsonValue:
    """Without the ids in those of an undo, a correction, and a question about a limit."""
    if job.kind == "undo" or "corrects" in job.params:
        return None
    if job.kind == "ask_user":
        return str(job.params["question"]).replace(f"Mission {mission_id} ", "The mission ")
    return job.params


def answered(engine: Engine, place: Place) -> list[int]:
    """The questions whose reply is stored."""
    mine = [mission for mission in engine.missions() if mission.root == str(place.root)]
    return [
        int(str(turn["number"])) for m in mine for turn in engine.turns(m.id) if turn["reply"] is not None
    ]
