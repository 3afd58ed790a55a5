"""Facts of each wall around commands, which are tried, and the table of docs/isolation.md that is made of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue
from tests.parity.compare import known_differences

from lcp_engine import Engine, Job
from lcp_engine.core.programs.walls import WALLS, Step
from lcp_engine.features.programs.wall.steps import step_here

OWNER = 65534
"""The user who owns the root where this is root."""
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
STAT = "stat -c '%Y %a' a.txt"
PROCESS = 'test -d "/proc/$PID" && echo seen || echo hidden'
POOL = """
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(int, "1").result() == 1
"""
GIT = """
import subprocess
subprocess.run(["git", "log", "--oneline"], check=True, capture_output=True)
"""
LOOPBACK = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server: socket.create_connection(server.getsockname()).close()
"""
AWAY = """
import socket
for family, place in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    one = socket.socket(family); one.settimeout(2); one.connect((place, 80))
"""


@dataclass(frozen=True)
class Ground:
    """A root, and an engine whose commands run behind one wall."""

    place: Path
    wall: Step

    @property
    def root(self) -> Path:
        return self.place / "root"

    def make(self) -> None:
        """Make a root with a link, a secret under two names, a repository, and a file beside it."""
        self.root.mkdir()
        for name, text in {
            "a.txt": "a\n",
            ".env": "SECRET\n",
            "sub/b.txt": "b\n",
            ".gitignore": "out/\n",
        }.items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)
        os.utime(self.root / "a.txt", (1_000_000_000, 1_000_000_000))
        (self.root / "a.txt").chmod(0o640)
        (self.root / "link").symlink_to("sub/b.txt")
        os.link(self.root / ".env", self.root / "other.txt")
        (self.place / "beside").write_text("SECRET\n")
        if shutil.which("git"):
            for words in ("init -q", "add a.txt", "-c user.name=a -c user.email=a commit -qm one"):
                subprocess.run(["git", *words.split()], cwd=self.root, check=True)
        if os.geteuid() == 0:
            self.place.chmod(0o755)
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, OWNER, OWNER, follow_symlinks=False)

    def run(
        self, *scripts: str, grant: JsonValue = None, stage: bool = False, **commands: JsonValue
    ) -> list[Job]:
        """Run scripts as commands of one mission; all of its jobs but the turns."""
        jobs: list[JsonValue] = [
            {"kind": "run_command", "params": {"command": ["sh", "-c", one]}} for one in scripts
        ]
        replies: list[JsonValue] = [
            {"ok": True, "action": "create_followup_jobs", "new_jobs": [one]} for one in jobs
        ]
        spec: dict[str, JsonValue] = {
            "goal": "Try the wall.",
            "planner": {"type": "script", "replies": [*replies, DONE]},
            "commands": {"allow": [["sh", "-c", "*"]], "seconds": 60, **commands},
            "policy": [{"kinds": ["run_command"], "do": "auto"}],
            "stage": stage,
        }
        hosts = grant if isinstance(grant, dict) else {"hosts": []}
        with Engine(
            f"sqlite:///{self.place}/lcp.db", commands_wall=[self.wall], commands_network=hosts
        ) as engine:
            mission = engine.launch(spec, root=self.root).id
            engine.work(until_idle=True)
            return [job for job in engine.jobs(mission_id=mission) if job.kind != "agent_plan"]

    def says(self, script: str) -> str:
        """What one script writes; the code of its error if it could not run."""
        (job,) = self.run(script)
        return str(job.error["error_code"]) if job.error else str((job.result or {})["stdout"]).strip()


@dataclass(frozen=True)
class Fact:
    """What is tried, what is found behind each wall, and the words of the table for what can be found."""

    about: str
    tries: Callable[[Ground], str]
    finds: Mapping[Step, str]
    words: Mapping[str, str]
    of_root: bool = False
    """True if only root can try it."""


def behind(overlay: str, copy: str, landlock: str) -> Mapping[Step, str]:
    return {Step.OVERLAY: overlay, Step.COPY: copy, Step.LANDLOCK: landlock}


def everywhere(found: str) -> Mapping[Step, str]:
    return behind(found, found, found)


def script(text: str) -> Callable[[Ground], str]:
    """A script that writes what it finds; ROOT, PLACE and PID are the root, its directory, this process."""

    def tries(ground: Ground) -> str:
        return ground.says(f"ROOT={ground.root} PLACE={ground.place} PID={os.getpid()}; {text}")

    return tries


def python(text: str) -> Callable[[Ground], str]:
    """A program that works, or does not."""
    return script(f"cat > it.py <<'END'\n{text}\nEND\npython3 it.py && echo yes || echo no")


def _needs(ground: Ground) -> str:
    found = step_here(ground.place / "state", places=("/nowhere/bwrap",), walls=(ground.wall,))
    return "kernel" if found.step is ground.wall else "bubblewrap"


def _user(ground: Ground) -> str:
    return {str(OWNER): "owner", "0": "runner"}.get(ground.says("id -u"), "another")


def _size(ground: Ground) -> str:
    with (ground.root / "large").open("wb") as file:
        file.truncate(513 * 1024 * 1024)
    return ground.says("wc -c < large")


def _changes(ground: Ground) -> str:
    outside = [job.kind for job in ground.run("echo new > new", changes="hold")]
    (_, *staged) = ground.run("echo new > new", stage=True)
    found = ("apply" in outside, any(job.state == "held" for job in staged))
    return {(True, True): "kept", (False, False): "dropped"}.get(found, str(found))


def _output(ground: Ground) -> str:
    _, second = ground.run("mkdir out; echo built > out/x", "cat out/x")
    return "there" if (second.result or {})["stdout"] == "built\n" else "gone"


def _caches(ground: Ground) -> str:
    _, second = ground.run("mkdir -p ~/.cache; echo kept > ~/.cache/x", "cat ~/.cache/x")
    return "there" if (second.result or {})["stdout"] == "kept\n" else "gone"


def _untouched(ground: Ground) -> str:
    ground.says(f"echo x >> {ground.root}/a.txt; echo y >> a.txt; echo z > {ground.root}/sub/b.txt")
    found = [(ground.root / name).read_text() for name in ("a.txt", "sub/b.txt")]
    return "untouched" if found == ["a\n", "b\n"] else "changed"


def _hosts(ground: Ground) -> str:
    hosts: JsonValue = {"hosts": ["example.org"]}
    (job,) = ground.run('test -n "$HTTPS_PROXY" && echo proxy', grant=hosts, network=hosts)
    return str(job.error["error_code"]) if job.error else str((job.result or {})["stdout"]).strip()


YES = {"yes": "yes", "no": "no"}
HIDDEN = {"hidden": "not there"}
LARGE = str(513 * 1024 * 1024)
FACTS = (
    Fact("needs", _needs, behind("bubblewrap", "bubblewrap", "kernel"), {
        "bubblewrap": "bubblewrap, user namespaces", "kernel": "Linux 6.2",
    }),
    Fact("the root", script('test "$PWD" = "$ROOT" && echo own || echo other'), behind("own", "own", "other"), {
        "own": "at its own path", "other": "at another path, which its output calls `.`",
    }),
    Fact("a root of more than 512 MiB, or 20,000 files", _size, behind(LARGE, "TOO_LARGE", "TOO_LARGE"), {
        LARGE: "yes", "TOO_LARGE": "`TOO_LARGE`",
    }),
    Fact("times and modes of its files", script(STAT), everywhere("1000000000 640"), {
        "1000000000 640": "as they are",
    }),
    Fact("links in it", script("test -L link && echo yes || echo no"), behind("yes", "no", "no"), YES),
    Fact("`git log`, `git diff`", python(GIT), behind("yes", "no", "no"), YES),
    Fact("what it changes", _changes, behind("kept", "dropped", "dropped"), {
        "kept": "kept, held or dropped", "dropped": "dropped, and named",
    }),
    Fact("ignored output, for its next commands", _output, behind("there", "gone", "gone"), {
        "there": "yes", "gone": "no",
    }),
    Fact("caches in its home, for its next commands", _caches, behind("there", "gone", "gone"), {
        "there": "yes", "gone": "no",
    }),
    Fact("`chmod`, `touch -d`", script(f"chmod 751 a.txt; touch -d @5 a.txt; {STAT}"), everywhere("5 751"), {
        "5 751": "as at home",
    }),
    Fact("servers on a loopback of its own", python(LOOPBACK), behind("yes", "yes", "no"), YES),
    Fact("`ProcessPoolExecutor`, shared memory", python(POOL), behind("yes", "yes", "no"), YES),
    Fact("hosts that are allowed", _hosts, behind("proxy", "proxy", "NOT_ISOLATED"), {
        "proxy": "by the proxy", "NOT_ISOLATED": "`NOT_ISOLATED`",
    }),
    Fact("another host", python(AWAY), everywhere("no"), YES),
    Fact("the root itself, for writing", _untouched, everywhere("untouched"), {"untouched": "no"}),
    Fact("a secret in the root", script("test -e .env || echo hidden"), everywhere("hidden"), HIDDEN),
    Fact("that secret under another name", script("cat other.txt || echo hidden"), everywhere("hidden"), HIDDEN),
    Fact("a file beside the root", script('cat "$PLACE/beside" || echo hidden'), everywhere("hidden"), HIDDEN),
    Fact("other processes of the user", script(PROCESS), behind("hidden", "hidden", "seen"), {
        "hidden": "not seen", "seen": "seen; signals reach them before Linux 6.12",
    }),
    Fact("started by root, it runs as", _user, behind("owner", "owner", "runner"), {
        "owner": "the owner of the root", "runner": "root",
    }, of_root=True),
)  # fmt: skip


def table() -> str:
    """The facts and the known differences of each wall, as a table for docs/isolation.md."""
    rows = [("", *(f"`{wall}`" for wall in WALLS)), ("---",) * 4]
    rows += [(fact.about, *(fact.words[fact.finds[wall]] for wall in WALLS)) for fact in FACTS]
    for one in known_differences():
        if one.project == "limits":
            rows.append((one.tests, *(one.why if wall in one.at else "as at home" for wall in WALLS)))
    return "\n".join(_row(row) for row in rows)


def _row(cells: Sequence[str]) -> str:
    return f"|{'|'.join(cells)}|" if cells[0] == "---" else f"| {' | '.join(cells)} |".replace("|  |", "| |")
