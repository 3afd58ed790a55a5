"""A small project, and the shipped missions over it with the planner `script` in place of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.parse import parse_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.yaml import read_document
from lcp_engine.core.safe_text import json_line
from lcp_engine.shipped_missions import shipped_missions
from lcp_engine.store.queries.records import Mission

TWINS = Path(__file__).parent
PROJECT: Mapping[str, str] = {
    "README.md": "# Tally\n\nCounts words.\n\nTODO: say how it is installed.\n",
    "src/tally/__init__.py": '"""Count words."""\n',
    "src/tally/count.py": (
        '"""Count the words of a text."""\n\n\n'
        "def count(text):\n"
        '    """How often each word stands in `text`."""\n'
        "    found = {}\n"
        "    for word in text.split():  # FIXME: punctuation counts as part of a word\n"
        "        found[word] = found.get(word, 0) + 1\n"
        "    return found\n"
    ),
    "src/tally/main.py": (
        "import sys\n\nfrom tally.count import count\n\n"
        "# TODO: read from a pipe\n"
        "for word, times in count(open(sys.argv[1]).read()).items():\n"
        "    print(times, word)\n"
    ),
    ".env": "KEY=1  # TODO: nobody may see this\n",
}


@dataclass(frozen=True)
class Twin:
    """The replies of a planner that does well, and the values of the mission's variables."""

    variables: dict[str, str]
    replies: list[JsonValue]


@dataclass(frozen=True)
class Stage:
    """Plays shipped missions over the project; `run` approves what is held, as often as something is."""

    engine: Engine
    root: Path

    def run(self, name: str, twin: Twin) -> Mission:
        launched = self.engine.launch(spec_of(name, twin), root=self.root)
        self.engine.work(until_idle=True)
        while held := self.engine.jobs(mission_id=launched.id, states=[State.HELD]):
            for job in held:
                self.engine.approve(job.id)
            self.engine.work(until_idle=True)
        return self.engine.mission(launched.id)


def twin_of(name: str) -> Twin:
    """The twin that stands beside this file under the mission's name."""
    stated = read_document((TWINS / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(stated, dict)
    variables, replies = stated.get("variables") or {}, stated["replies"]
    assert isinstance(variables, dict)
    assert isinstance(replies, list)
    return Twin({key: str(value) for key, value in variables.items()}, replies)


def spec_of(name: str, twin: Twin) -> MissionSpec:
    """The shipped mission, planned by a script that gives the twin's replies."""
    text = shipped_missions()[name].read_text(encoding="utf-8")
    planner = json_line({"type": "script", "replies": twin.replies})
    return parse_mission(text, source=name, variables=twin.variables, settings=[f"planner={planner}"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's directory."""
    for path, content in PROJECT.items():
        place = tmp_path / "project" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return tmp_path / "project"


@pytest.fixture
def stage(tmp_path: Path, project: Path) -> Iterator[Stage]:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        yield Stage(engine, project)


@pytest.fixture
def play(stage: Stage) -> Callable[[str], Mission]:
    """Plays the mission of that name with its twin."""
    return lambda name: stage.run(name, twin_of(name))
