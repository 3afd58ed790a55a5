"""The built-in kinds, each as one job."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.engine.instance import Options, open_instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.authoring.run_job import JobResult, run_job
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.root import Root
from lcp_engine.workers import registry
from lcp_engine.workers.base import Caps, Context, ExecutedBy, Hold, Worker, refuse_to_execute
from lcp_engine.workers.registry import BUILT_IN, find_workers, worker

WINDOWS = "C:\\Sheratan\\2_sheratan_core"


def code(outcome: JobResult) -> str | None:
    assert outcome.ok == (outcome.error is None)
    return None if outcome.error is None else outcome.error.error_code


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("read_file", {}, "rel_path or path is missing"),
        ("read_file", {"rel_path": "a", "path": "a"}, "both given"),
        ("read_file", {"rel_path": ""}, "rel_path"),
        ("read_file", {"rel_path": "a\tb"}, "U+0009 at 1"),
        ("read_file", {"rel_path": "C:\temp\new"}, "U+0009 at 2"),
        ("read_file", {"root": "a\nb", "rel_path": "a"}, "U+000A"),
        ("read_file", {"rel_path": "a\ud800"}, "unicode"),
        ("read_file", {"rel_path": 1}, "a string"),
        ("read_file", {"rel_path": "a", "offset": -1}, "offset"),
        ("read_file", {"rel_path": "a", "limit": True}, "limit"),
        ("list_files", {"pattern": ["*"]}, "did you mean 'patterns'"),
        ("list_files", {"patterns": "*.py"}, "a list"),
        ("list_files", {"patterns": ["a\tb"]}, "U+0009"),
        ("write_file", {"rel_path": "a"}, "content or new_content is missing"),
        ("write_file", {"rel_path": "a", "content": None}, "content or new_content is missing"),
        ("write_file", {"rel_path": "a", "content": "x", "new_content": "y"}, "differ"),
        ("write_file", {"rel_path": "a", "content": "x\ud800"}, "surrogate"),
        ("write_file", {"rel_path": "a", "content": "x", "mode": "exec"}, "mode"),
        ("rewrite_file", {"rel_path": "a", "content": "x", "mode": "append"}, "mode"),
        ("agent_plan", {"user_prompt": ""}, "user_prompt"),
        ("agent_plan", {"user_prompt": "x", "scope": "plan"}, "scope"),
        ("agent_plan", {"user_prompt": "x", "root": "."}, "known are user_prompt, project_root"),
    ],
)
def test_params_that_do_not_fit_are_named(
    place: Path, kind: str, params: dict[str, JsonValue], message: str
) -> None:
    outcome = run_job(kind, params, place)
    assert code(outcome) == "INVALID_PARAMS"
    assert outcome.error is not None
    assert message in outcome.error.user_message


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("write_file", {"rel_path": "a", "content": ""}),
        ("write_file", {"path": "a", "new_content": "x"}),
        ("write_file", {"rel_path": "a", "content": "x", "new_content": "x"}),
        ("list_files", {"root": None, "patterns": None, "limit": None, "details": None}),
        ("read_file", {"rel_path": "a", "path": None}),
    ],
)
def test_params_that_fit(kind: str, params: dict[str, JsonValue]) -> None:
    BUILT_IN[kind].params.model_validate(params)


def test_the_params_of_one_kind_are_not_those_of_another(root: Root) -> None:
    params = BUILT_IN["list_files"].params.model_validate({})
    context = Context(root, (), Policy().for_kind("x", has_effects=False, writes=False), Caps())
    with pytest.raises(TypeError, match="read_file takes ReadFileParams"):
        BUILT_IN["read_file"].execute(params, context)


def test_read_file_tells_content_encoding_and_size(root: Root) -> None:
    assert run_job("read_file", {"rel_path": "src/main.py"}, root).result == {
        "ok": True,
        "action": "read_file_result",
        "path": "src/main.py",
        "content": "print(1)\n",
        "encoding": "utf-8",
        "size_bytes": 9,
    }


def test_paths_in_results_are_relative_to_the_root_that_was_named(root: Root) -> None:
    outcome = run_job(
        "read_file", {"root": WINDOWS + "\\src", "rel_path": "main.py"}, root, aliases=(WINDOWS,)
    )
    assert outcome.result is not None
    assert outcome.result["path"] == "main.py"
    listed = run_job("list_files", {"root": "src"}, root)
    assert listed.result is not None
    assert listed.result["files"] == ["main.py"]


def test_a_part_of_a_file_says_how_much_there_is(root: Root, place: Path) -> None:
    (place / "long").write_text("".join(f"{number}\n" for number in range(100)))
    outcome = run_job("read_file", {"rel_path": "long", "offset": 10, "limit": 2}, root)
    assert outcome.result is not None
    assert (outcome.result["content"], outcome.result["truncated"], outcome.result["total"]) == (
        "10\n11\n",
        True,
        100,
    )
    assert code(run_job("read_file", {"rel_path": "long"}, root, caps=Caps(read_bytes=100))) == "TOO_LARGE"


def test_list_files_tells_what_it_left_out(root: Root, place: Path) -> None:
    (place / temporary_name()).touch()
    (place / ".lcp").mkdir()
    (place / ".lcp" / "engine.db").touch()
    (place / ".git").mkdir()
    (place / ".git" / "config").touch()
    (place / "link").symlink_to("a.txt")
    os.mkfifo(place / "fifo")
    assert run_job("list_files", {"limit": 1, "details": True}, root).result == {
        "ok": True,
        "action": "list_files_result",
        "files": ["a.txt"],
        "root": ".",
        "patterns": [],
        "sizes": [6],
        "truncated": True,
        "total": 2,
    }


def test_a_listing_is_in_the_order_of_bytes_and_keeps_the_first(root: Root, place: Path) -> None:
    names = [f"d{number % 7}/é{number}.txt" for number in range(3000)] + ["d0.txt", "d0-/x", "d0/x", "z"]
    for name in names:
        (place / "many" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "many" / name).touch()
    expected = sorted(names, key=str.encode)
    for limit in (0, 1, 10, 5000):
        result = run_job("list_files", {"root": "many", "limit": limit}, root).result
        assert result is not None
        assert result["files"] == expected[:limit]
        assert result.get("total") == (len(names) if limit < len(names) else None)


def test_names_that_are_not_text_and_directories_that_cannot_be_read_are_skipped(
    root: Root, place: Path
) -> None:
    (place / os.fsdecode(b"\xff.txt")).touch()
    (place / os.fsdecode(b"d\xff")).mkdir()
    (place / os.fsdecode(b"d\xff") / "inner").touch()
    result = run_job("list_files", {"patterns": ["*.txt", "**/i?ner"]}, root).result
    assert result is not None
    assert result["files"] == ["a.txt"]
    assert result["skipped"] == ["\\xff.txt", "d\\xff"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every directory")
def test_a_directory_without_permission_is_skipped(root: Root, place: Path) -> None:
    (place / "closed").mkdir(mode=0)
    result = run_job("list_files", {}, root).result
    assert result is not None
    assert result["skipped"] == ["closed"]


def test_a_very_deep_tree_ends(root: Root, place: Path) -> None:
    here = os.open(place, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        assert run_job("list_files", {}, root).ok
    finally:  # pytest cannot remove what is so deep
        os.system(f"rm -rf {place / 'deep'}")


def test_write_file_tells_both_hashes(root: Root, place: Path) -> None:
    before, after = (hashlib.sha256(data).hexdigest() for data in (b"hello\n", b"hello\nmore"))
    outcome = run_job("write_file", {"rel_path": "a.txt", "content": "more", "mode": "append"}, root)
    assert outcome.result == {
        "ok": True,
        "action": "write_file_result",
        "path": "a.txt",
        "mode": "append",
        "size_bytes": 10,
        "sha256_before": before,
        "sha256_after": after,
        "created": False,
    }
    created = run_job("rewrite_file", {"rel_path": "new/b.txt", "new_content": ""}, root).result
    assert created is not None
    assert (created["created"], created["sha256_before"], created["size_bytes"]) == (True, None, 0)
    assert (place / "new" / "b.txt").read_bytes() == b""


def test_a_write_above_the_cap_changes_nothing(root: Root, place: Path) -> None:
    caps = Caps(write_bytes=8)
    for params in ({"content": "123456789"}, {"content": "123", "mode": "append"}):
        assert code(run_job("write_file", {"rel_path": "a.txt", **params}, root, caps=caps)) == "TOO_LARGE"
    assert (
        code(run_job("write_file", {"rel_path": "new/x", "content": "123456789"}, root, caps=caps))
        == "TOO_LARGE"
    )
    assert (place / "a.txt").read_text() == "hello\n"
    assert not (place / "new").exists()


def test_policy_is_judged_on_the_file_behind_a_link(root: Root, place: Path) -> None:
    (place / ".env").write_text("KEY=CANARY")
    (place / "notes.txt").symlink_to(".env")
    assert code(run_job("read_file", {"rel_path": "notes.txt"}, root)) == "PATH_DENIED"
    (place / "src" / "private.py").touch()
    (place / "alias").symlink_to("src/private.py")
    policy = Policy([Rule(paths=("src/private*",), do=Verdict.DENY)])
    assert code(run_job("read_file", {"rel_path": "alias"}, root, policy=policy)) == "PATH_DENIED"


def test_a_rule_about_what_is_in_a_directory_covers_listing_it(root: Root) -> None:
    policy = Policy([Rule(paths=("src/**",), do=Verdict.DENY)])
    assert code(run_job("list_files", {"root": "src"}, root, policy=policy)) == "PATH_DENIED"
    assert code(run_job("list_files", {"root": "src/sub"}, root, policy=policy)) == "PATH_DENIED"
    assert code(run_job("list_files", {"root": ".ssh"}, root)) == "PATH_DENIED"
    assert code(run_job("list_files", {}, root, policy=policy)) is None


def test_a_path_that_policy_holds_waits_until_it_is_approved(root: Root) -> None:
    policy = Policy([Rule(paths=("a.txt",), do=Verdict.HOLD)]).for_kind(
        "read_file", has_effects=False, writes=False
    )
    worker = BUILT_IN["read_file"]
    params = worker.params.model_validate({"rel_path": "a.txt"})
    held = worker.execute(params, Context(root, (), policy, Caps()))
    assert isinstance(held, Hold)
    assert str(held.reason) == "mission rule 1 (* a.txt) says hold"
    assert isinstance(worker.execute(params, Context(root, (), policy, Caps(), approved=True)), BaseModel)


@pytest.mark.parametrize(
    ("kind", "params", "expected"),
    [
        ("shell", {"cmd": "id"}, "NO_WORKER"),
        ("READ_FILE", {"rel_path": "a.txt"}, "NO_WORKER"),
        ("agent_plan", {"user_prompt": "x"}, "NOT_ALLOWED"),
        ("read_file", {"rel_path": "nope"}, "PATH_NOT_FOUND"),
        ("read_file", {"rel_path": "a.txt/"}, "NOT_A_FILE"),
        ("read_file", {"rel_path": "src"}, "NOT_A_FILE"),
        ("read_file", {"rel_path": "/etc/passwd"}, "PATH_OUTSIDE_ROOT"),
        ("write_file", {"rel_path": "src/", "content": "x"}, "NOT_A_FILE"),
        ("write_file", {"rel_path": ".git/hooks/x", "content": "x"}, "PATH_DENIED"),
        ("list_files", {"root": "nope"}, "PATH_NOT_FOUND"),
        ("list_files", {"root": "a.txt"}, "PATH_NOT_FOUND"),
        ("list_files", {"patterns": ["[z"]}, "INVALID_PATTERN"),
    ],
)
def test_trouble_is_a_value(root: Root, kind: str, params: dict[str, JsonValue], expected: str) -> None:
    assert code(run_job(kind, params, root)) == expected


def test_a_root_that_is_missing_is_a_value(tmp_path: Path) -> None:
    assert code(run_job("list_files", {}, tmp_path / "nope")) == "PATH_NOT_FOUND"


def test_a_root_that_disappears_is_a_value(root: Root, place: Path) -> None:
    place.rename(place.parent / "elsewhere")
    assert run_job("read_file", {"rel_path": "a.txt"}, root).ok
    os.system(f"rm -rf {place.parent / 'elsewhere'}")
    for kind, params in (
        ("read_file", {"rel_path": "a.txt"}),
        ("list_files", {}),
        ("write_file", {"rel_path": "x/y", "content": "x"}),
    ):
        assert code(run_job(kind, params, root)) in (None, "PATH_NOT_FOUND", "FILE_SYSTEM")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_a_value(root: Root, place: Path) -> None:
    (place / "src").chmod(stat.S_IRUSR | stat.S_IXUSR)
    outcome = run_job("write_file", {"rel_path": "src/new.py", "content": "x"}, root)
    (place / "src").chmod(stat.S_IRWXU)
    assert code(outcome) == "FILE_SYSTEM"
    assert outcome.error is not None
    assert "src/new.py" in outcome.error.user_message


class Nothing(BaseModel):
    pass


def plug_in(kind: str) -> Worker[Nothing]:
    return Worker(kind=kind, params=Nothing, result=Nothing, execute=lambda params, context: Nothing())


MINE = plug_in("mine")
READ_FILE = plug_in("read_file")
NOT_ONE = "text"


def offer(patch: pytest.MonkeyPatch, name: str) -> None:
    entry = EntryPoint(name="x", value=f"{__name__}:{name}", group="lcp_engine.workers")
    patch.setattr(EntryPoint, "load", lambda self: globals()[name])
    patch.setattr(registry, "offered_in", lambda group: [entry])


def test_a_plug_in_adds_a_kind(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    offer(monkeypatch, "MINE")
    assert set(find_workers()) == {*BUILT_IN, "mine"}
    assert run_job("mine", {}, place).result == {}


@pytest.mark.parametrize("name", ["READ_FILE", "NOT_ONE"])
def test_a_plug_in_that_takes_a_kind_or_is_no_worker_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    offer(monkeypatch, name)
    with pytest.raises(LcpError, match="plug-in 'x'") as refused:
        find_workers()
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_plug_in_that_cannot_be_imported_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entry = EntryPoint(name="x", value="no_such_package:WORKER", group="lcp_engine.workers")
    monkeypatch.setattr(registry, "offered_in", lambda group: [entry])
    assert set(find_workers()) == set(BUILT_IN)
    assert (
        "worker plug-in 'x' (no_such_package:WORKER) is left out: ModuleNotFoundError: No mod" in caplog.text
    )


def test_every_kind_of_a_broken_package_is_left_out_for_its_true_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "halfway.py").write_text(
        "from pydantic import BaseModel\nfrom lcp_engine import worker\n"
        "@worker('halfway', params=BaseModel, result=BaseModel)\ndef first(params): ...\n"
        "import no_such_package\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("first", "second")
    offered = [EntryPoint(name, f"halfway:{name}", "lcp_engine.workers") for name in names]
    monkeypatch.setattr(registry, "offered_in", lambda group: offered)
    assert set(find_workers()) == set(BUILT_IN)
    for name in names:
        assert f"worker plug-in '{name}' (halfway:{name}) is left out: ModuleNotFoundError" in caplog.text
    assert "another worker" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("read_file", "kind 'read_file' has another worker already"),
        ("bad kind!", "kind is 1 to 64 of the characters A-Z a-z 0-9 _ . -; found 'bad kind!'"),
        ("", "kind is 1 to 64 of the characters"),
        ("read_file\n", "kind is 1 to 64 of the characters"),
        ("mission_complete", "'mission_complete' is an action or a result, not a kind of job"),
    ],
)
def test_a_kind_that_is_taken_or_is_none_is_refused(kind: str, said: str) -> None:
    with pytest.raises(LcpError, match=re.escape(said)) as decorated:
        worker(kind, params=Nothing, result=Nothing)(lambda params: Nothing())
    with pytest.raises(LcpError, match=re.escape(said)) as given:
        open_instance("sqlite://", Options(workers=[plug_in(kind).for_any_params()]))
    assert {decorated.value.code, given.value.code} == {ErrorCode.INVALID_ARGUMENT}


def test_a_registered_worker_may_be_a_plug_in_and_given_to_an_engine_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lcp_engine.workers.registry._REGISTERED", {})
    made = worker("mine", params=Nothing, result=Nothing)(lambda params: Nothing())
    monkeypatch.setitem(globals(), "MADE", made)
    offer(monkeypatch, "MADE")
    assert find_workers([made])["mine"] is made
    with pytest.raises(LcpError, match="kind 'mine' has another worker already"):
        worker("mine", params=Nothing, result=Nothing)(lambda params: Nothing())


def test_models_are_strict_and_frozen() -> None:
    params = BUILT_IN["read_file"].params.model_validate({"rel_path": "a"})
    with pytest.raises(ValidationError):
        params.rel_path = "b"  # type: ignore[attr-defined]  # what must not be possible


@pytest.mark.parametrize(
    ("stated", "executed_by", "reads_files"),
    [
        ({}, ExecutedBy.RUNNER, True),
        ({"asks_planner": True}, ExecutedBy.PLANNER, True),
        ({"asks_person": True}, ExecutedBy.PERSON, True),
        ({"looks": False}, ExecutedBy.RUNNER, False),
        ({"looks": True, "asks_planner": False}, ExecutedBy.RUNNER, True),
    ],
)
def test_the_flags_of_earlier_versions_are_still_accepted(
    stated: dict[str, bool], executed_by: ExecutedBy, reads_files: bool
) -> None:
    made = Worker("x", Nothing, Nothing, refuse_to_execute("no"), **stated)  # type: ignore[arg-type]  # flags alone
    for one in (made, made.for_any_params()):
        assert (one.executed_by, one.reads_files) == (executed_by, reads_files)
