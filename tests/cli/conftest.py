"""Run `lcp` with a directory and a database of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import pytest
from pydantic import JsonValue
from tests.cli.in_process import run_in_process
from tests.loaded_python import Python

Object: TypeAlias = dict[str, JsonValue]
PLUGIN = """
import time
from pathlib import Path
from pydantic import BaseModel
from lcp_engine.workers.base import Worker

class Params(BaseModel):
    path: str

class Result(BaseModel):
    waited: bool = True

def wait(params, context):
    Path(params.path + ".started").touch()
    while not Path(params.path).exists():
        time.sleep(0.01)
    return Result()

WORKER = Worker("wait_for", Params, Result, wait, has_effects=False)
"""


@dataclass(frozen=True)
class Done:
    """The outcome of a call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> JsonValue:
        value: JsonValue = json.loads(self.out)
        return value

    @property
    def object(self) -> Object:
        assert isinstance(self.json, dict)
        return self.json

    @property
    def error(self) -> Object:
        """The AgentError on stderr."""
        error = json.loads(self.err)["error"]
        assert isinstance(error, dict)
        return error


@dataclass(frozen=True)
class Lcp:
    """Calls `lcp` in `home`, where the directory `root`, the missions and the database are."""

    home: Path
    environment: Mapping[str, str]
    complete: ClassVar[Object] = {"ok": True, "action": "mission_complete", "summary": "All done."}
    fail: ClassVar[Object] = {"ok": False, "action": "error", "error": "cannot go on"}

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def database(self) -> Path:
        return self.home / "lcp.db"

    def __call__(self, *arguments: object, stdin: str = "", **environment: str) -> Done:
        code, out, err = run_in_process(
            [*map(str, arguments)],
            home=self.home,
            environment={**self.environment, **environment},
            stdin=stdin,
        )
        assert "Traceback" not in err
        return Done(code, out, err)

    def run(self, *arguments: object, **environment: str) -> Done:
        """Call it in a separate process."""
        with self.start(*arguments, **environment) as process:
            out, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        return Done(process.returncode, out, err)

    def attach(
        self, terminal: int, *arguments: object, environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Call it in a separate process on its own terminal."""
        return Python(
            "-m",
            "lcp_engine",
            *arguments,
            cwd=self.home,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            terminal=True,
        )

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "lcp_engine", *map(str, arguments)]

    def start(self, *arguments: object, **environment: str) -> Python:
        return Python(
            "-m",
            "lcp_engine",
            *arguments,
            cwd=self.home,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @staticmethod
    def ask(kind: str, /, **params: JsonValue) -> Object:
        """A reply that asks for one job."""
        return {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": kind, "params": params}]}

    def mission(self, *replies: JsonValue, **keys: JsonValue) -> Path:
        """A mission file whose planner answers with `replies` in order."""
        stated: Object = {"goal": "Try it.", "planner": {"type": "script", "replies": [*replies]}, **keys}
        path = self.home / f"mission-{len(list(self.home.glob('mission-*')))}.yaml"
        path.write_text(json.dumps(stated))
        return path


@pytest.fixture
def lcp(tmp_path: Path) -> Lcp:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.md").write_text("# a\n")
    (tmp_path / "root" / "main.py").write_text("print(1)\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LCP_", "XDG_"))}
    places = {
        f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("DATA", "CONFIG", "STATE", "CACHE")
    }
    url = f"sqlite:///{tmp_path / 'lcp.db'}"
    environment = {**inherited, **places, "LCP_DATABASE_URL": url, "NO_COLOR": "1", "COLUMNS": "120"}
    return Lcp(tmp_path, environment)


@pytest.fixture
def lcp_with_plugin(lcp: Lcp) -> Lcp:
    """`lcp` with an installed package whose kind `wait_for` runs until the file `path` exists.

    Only a separate process (`run`, `start`) finds the package: it is on PYTHONPATH.
    """
    site = lcp.home / "site"
    metadata = site / "waiting-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "waiting.py").write_text(PLUGIN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: waiting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[lcp_engine.workers]\nwait_for = waiting:WORKER\n")
    paths = [str(site), *filter(None, [lcp.environment.get("PYTHONPATH")])]
    return Lcp(lcp.home, {**lcp.environment, "PYTHONPATH": os.pathsep.join(paths)})
