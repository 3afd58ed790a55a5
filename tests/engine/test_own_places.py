"""No job touches the engine's configuration, data, state or cache, wherever they are; nobody else's files are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.mission.spec import MissionSpec, PlannerSpec
from lcp_engine.core.policy import Rule, Verdict
from lcp_engine.engine.instance import admission_for
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.settings import SignedLinks
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.features.notices.settings import Webhook
from lcp_engine.sandbox.system.own_places import beneath
from lcp_engine.store.db.open import make_backend
from lcp_engine.store.host.liveness import runtime_directory

CONFIG = ".config/lcp-engine/config.yaml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, place in (
        ("CONFIG", ".config"),
        ("DATA", ".local/share"),
        ("STATE", ".local/state"),
        ("CACHE", ".cache"),
    ):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    (tmp_path / CONFIG).write_text("policy: []\n")
    return tmp_path


OWN = (
    CONFIG,
    ".Config/LCP-Engine/config.yaml",
    ".local/share/lcp-engine/lcp.db",
    ".local/state/lcp-engine/last-defect.txt",
)


@pytest.mark.parametrize("path", OWN)
def test_a_rule_for_everything_does_not_reach_the_engines_directories(home: Path, path: str) -> None:
    spec = MissionSpec(goal="a", planner=PlannerSpec(type="human"), policy=(Rule(do=Verdict.AUTO),))
    for url in (None, f"sqlite:///{home / 'x.db'}"):
        policy = admission_for(url, ()).policy(spec, str(home))
        for writes in (False, True):
            ruling = policy.judge("write_file", has_effects=writes, writes=writes, paths=(path,))
            assert ruling.verdict is Verdict.DENY
        ruling = policy.judge("a", has_effects=True, writes=True, paths=("notes.md",))
        assert ruling.verdict is Verdict.AUTO


@pytest.mark.parametrize("root", [".", ".config", ".config/lcp-engine"])
def test_a_single_job_does_not_reach_them_either(home: Path, root: str) -> None:
    path = os.path.relpath(home / CONFIG, home / root)
    for kind, more in (("write_file", {"content": "on_wait: [touch, x]\n"}), ("read_file", {})):
        done = run_job(kind, {"rel_path": path, **more}, home / root)
        assert done.error is not None
        assert done.error.error_code == "PATH_DENIED"
    assert (home / CONFIG).read_text() == "policy: []\n"


def test_a_configuration_that_a_link_leads_to_is_not_reached(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / CONFIG).rename(home / "dotfiles/lcp.yaml")
    (home / CONFIG).symlink_to(home / "dotfiles/lcp.yaml")
    done = run_job(
        "write_file", {"rel_path": "lcp.yaml", "content": "on_wait: [touch, x]\n"}, home / "dotfiles"
    )
    assert done.error is not None
    assert done.error.error_code == "PATH_DENIED"


@pytest.mark.parametrize("isolation", ["off", "auto"])
@pytest.mark.parametrize("what", ["links", "webhook"])
def test_no_job_reads_a_secret_that_lies_in_its_root(home: Path, what: str, isolation: str) -> None:
    secret = home / "root" / "notes.txt"
    secret.parent.mkdir()
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    (home / "root" / "link").symlink_to("notes.txt")
    links = SignedLinks(url="http://localhost:1", secret_file=str(secret)) if what == "links" else None
    webhook = Webhook(url="http://localhost:1", secret_file=str(secret)) if what == "webhook" else None
    with Engine(f"sqlite:///{home / 'x.db'}", links=links, webhook=webhook, isolation=isolation) as engine:
        ask: JsonValue = {
            "ok": True, "action": "create_followup_jobs",
            "new_jobs": [
                {"kind": "read_file", "params": {"rel_path": "notes.txt"}},
                {"kind": "read_file", "params": {"rel_path": "link"}},
                {"kind": "search_files", "params": {"text": "89ab"}},
                {"kind": "run_command", "params": {"command": ["/usr/bin/grep", "-r", "89ab", "."]}},
            ],
        }  # fmt: skip
        done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
        planner: JsonValue = {"type": "script", "replies": [ask, done]}
        for stage in (False, True):
            spec: dict[str, JsonValue] = {
                "goal": "Look.", "planner": planner, "stage": stage, "policy": [{"do": "auto"}],
                "commands": {"allow": [["/usr/bin/grep", "-r", "89ab", "."]]},
            }  # fmt: skip
            mission = engine.launch(spec, root=secret.parent).id
            engine.work(until_idle=True, mission_id=mission)
            jobs = engine.jobs(mission_id=mission, kinds=["read_file", "search_files", "run_command"])
            assert len(jobs) == 4
            assert "0123456789abcdef" not in str([job.result for job in jobs])


def test_no_job_of_another_mission_touches_a_stage(home: Path) -> None:
    spec = MissionSpec(goal="a", planner=PlannerSpec(type="human"), policy=(Rule(do=Verdict.AUTO),))
    with Engine(f"sqlite:///{home / 'x.db'}") as engine:
        policy = engine.instance.admission.policy(spec, str(home))
        path = f"{engine.instance.stages}/1/a.txt"
        for writes in (False, True):
            judged = (str(Path(path).relative_to(home)),)
            ruling = policy.judge("write_file", has_effects=writes, writes=writes, paths=judged)
            assert ruling.verdict is Verdict.DENY


def test_a_root_may_lie_in_a_place_or_around_it() -> None:
    assert beneath(("/h/.config/lcp",), "/h") == (".config/lcp",)
    assert beneath(("/h/.config/lcp",), "/h/.config/lcp/missions") == ("",)
    assert beneath(("/h/.config/lcp", "/h/.config/lcpx"), "/h/.config/lcpx/a") == ("",)
    assert beneath(("/h/a",), "/h/ab") == ()


def test_the_runtime_directory_is_made_where_nobody_else_can_make_it_first(home: Path) -> None:
    made = runtime_directory("postgresql://127.0.0.1/a", {})
    assert made.is_relative_to(home) or made.is_relative_to(f"/run/user/{os.getuid()}")
    assert made.stat().st_mode & 0o077 == 0


def test_every_session_finds_one_runtime_directory_of_a_sqlite_file(home: Path) -> None:
    (home / "link.db").symlink_to(home / "lcp.db")
    (home / "lcp.db").touch()
    sessions = [{}, {"XDG_RUNTIME_DIR": str(home)}, {"XDG_RUNTIME_DIR": str(home / ".config")}]
    urls = [f"sqlite:///{home / name}" for name in ("lcp.db", "link.db")]
    places = {runtime_directory(url, session) for url in urls for session in sessions}
    assert places == {home / "lcp.db-run"}
    assert (home / "lcp.db-run").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("path", ["lcp.db-run/a.lock", "lcp.db-run", "LCP.db-RUN/writers.line"])
def test_no_job_touches_the_directory_beside_the_database(home: Path, path: str) -> None:
    spec = MissionSpec(goal="a", planner=PlannerSpec(type="human"), policy=(Rule(do=Verdict.AUTO),))
    policy = admission_for(f"sqlite:///{home / 'lcp.db'}", ()).policy(spec, str(home))
    for writes in (False, True):
        ruling = policy.judge("write_file", has_effects=writes, writes=writes, paths=(path,))
        assert ruling.verdict is Verdict.DENY


def test_a_directory_that_is_not_private_is_refused(home: Path) -> None:
    (home / "lcp.db-run").mkdir()
    (home / "lcp.db-run").chmod(0o777)
    with pytest.raises(LcpError, match=r"lcp\.db-run of user .* must be private to user") as refused:
        runtime_directory(f"sqlite:///{home / 'lcp.db'}", {})
    assert "--db" in str(refused.value.failed.recommendation)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of other users")
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_database_of_another_user_is_refused_in_words(tmp_path: Path, suffix: str) -> None:
    planted = tmp_path / f"lcp.db{suffix}"
    planted.touch(mode=0o666)
    os.chown(planted, 65534, 65534)
    with pytest.raises(LcpError, match=r"belongs to user nobody, not to root") as refused:
        make_backend(f"sqlite:///{tmp_path / 'lcp.db'}")
    assert refused.value.code is ErrorCode.DATABASE_FAILED
    assert "use another one with --db" in str(refused.value.failed.recommendation)
