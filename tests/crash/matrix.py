"""Kill every act of every story at every point, finish it, and compare it with the undisturbed run.

Usage: python -m tests.crash.matrix [--step K] [--first N] [--story NAME] [--confined | --walls] DATABASE_URL DIRECTORY

Each run is a forked process of its own, so that nothing is imported again. Prints one JSON object a line: the point and
what was found wrong. With `--step K` only each K-th point, from point `--first`. `--walls`: the stories of commands.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.crash.points import Killer, WatchedBackend
from tests.crash.processes import ask, do, import_all
from tests.crash.stories import (
    BREAK,
    STORIES,
    STORIES_OF_COMMANDS,
    Act,
    Object,
    Place,
    Story,
    answered,
    picture,
    tree,
)
from tests.walls import missing

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.runner import runner
from lcp_engine.sandbox.system.landlock import Isolation

T = TypeVar("T")
MISSED = "none"
"""Instead of a point that did not come again: how many commits a runner makes depends on how long they take."""
EVERY_OTHER = 4  # before and after alternate: two points with a runner first, two without


def main() -> None:
    given = _arguments()
    import_all(given.url)
    # How many jobs are claimed and settled together must not depend on the clock: every run passes the same points.
    runner.QUICK_SECONDS = runner.FLUSH_SECONDS = 3600
    runner.SLOW_SECONDS = 7200
    do(lambda: Engine(given.url).close())
    for story in STORIES_OF_COMMANDS if given.walls else STORIES:
        is_missing = story.wall is not None and missing(story.wall) is not None
        if given.story in (None, story.name) and not is_missing:
            for point, problems in _kill_everywhere(given, story):
                said = {"story": story.name, "point": point, "problems": problems}
                print(json.dumps(said), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--confined", action="store_true", help="file kinds run in processes of their own")
    parser.add_argument("--walls", action="store_true", help="commands run behind each wall")
    parser.add_argument("--story", choices=[story.name for story in (*STORIES, *STORIES_OF_COMMANDS)])
    return parser.parse_args()


def _kill_everywhere(given: argparse.Namespace, story: Story) -> Iterator[tuple[str, list[str]]]:
    isolation = Isolation.AUTO if given.confined else Isolation.OFF
    calm = Telling(
        given.url, _place(given.directory / story.name / "undisturbed", story), story, 0, isolation
    )
    wanted = calm.tell()
    yield "undisturbed", calm.problems + _strange(story, wanted)
    for at in range(given.first, calm.passed + 1, given.step):
        telling = Telling(
            given.url, _place(given.directory / story.name / str(at), story), story, at, isolation, calm.trees
        )
        told = telling.tell()
        yield telling.point, telling.problems + differences(wanted, told)


def _place(directory: Path, story: Story) -> Place:
    place = Place(directory)
    place.root.mkdir(parents=True)
    for path, text in story.before.items():
        (place.root / path).write_text(text)
    return place


@dataclass
class Telling:
    """One run of a story, killed at point `at`; 0 is the undisturbed run."""

    url: str
    place: Place
    story: Story
    at: int
    isolation: Isolation
    wanted_trees: tuple[dict[str, str | None], ...] = ()

    def __post_init__(self) -> None:
        self.problems: list[str] = []
        self.point = ""
        self.passed = 0
        self.trees: tuple[dict[str, str | None], ...] = ()

    def tell(self) -> Object:
        """Do all acts and return the outcome."""
        self.trees = (tree(self.place),)
        for act in self.story.acts:
            left = self.at - self.passed if not self.point else 0
            if act.is_killed and self._is_killed(act, max(left, 0)):
                self._go_on(act)
            elif not act.is_killed:
                self._do(act)
            self.trees += (tree(self.place),)
            wanted = self.wanted_trees[len(self.trees) - 1] if self.wanted_trees else self.trees[-1]
            self._expect(self.trees[-1] == wanted, f"after {act.name!r} the files are {self.trees[-1]}")
        self.problems += self._ask(lambda engine: check_database(self.url))
        if self.at and not self.point:
            self.point = MISSED
        return self._ask(lambda engine: picture(engine, self.place))

    def _is_killed(self, act: Act, at: int) -> bool:
        trace = self.place.directory / "trace"
        trace.unlink(missing_ok=True)
        ended = do(lambda: self._perform(act, Killer(at, trace)))
        names = trace.read_text().splitlines() if trace.exists() else []
        self.passed += len(names)
        if ended == -signal.SIGKILL:
            self.point = f"{act.name}: {names[-1]}"
            return True
        self._expect(ended == 0, f"{act.name!r} ended with {ended}")
        return False

    def _go_on(self, act: Act) -> None:
        """Finish as the next process would: pay for nothing twice, and leave nothing half done."""
        stored = self._ask(lambda engine: answered(engine, self.place))
        asked = len(_calls(self.place))
        if act.by_runner and self.at % EVERY_OTHER >= EVERY_OTHER // 2:
            before = self.trees[-1]
            self._do(Act("a runner", _work_all))
            now, after = tree(self.place), self.wanted_trees[len(self.trees)]
            self._expect(now in (before, after), f"a runner left {act.name!r} half done: {now}")
        self._do(act)
        twice = [number for number in _calls(self.place)[asked:] if number in stored]
        self._expect(not twice, f"questions {twice} were asked again, their replies are stored")

    def _do(self, act: Act) -> None:
        ended = do(lambda: self._perform(act, Killer()))
        self._expect(ended == 0, f"{act.name!r} ended with {ended}")

    def _perform(self, act: Act, killer: Killer) -> None:
        walls = None if self.story.wall is None else [self.story.wall]
        with Engine(self.url, workers=[BREAK], isolation=self.isolation, commands_wall=walls) as engine:
            database = engine.instance.database  # up to date, and not written to yet
            database.backend = WatchedBackend(database.backend, killer)
            killer.watch_files()
            killer.watch_planner(self.place.calls)
            act.do(engine, self.place)

    def _ask(self, question: Callable[[Engine], T]) -> T:
        def asked() -> T:
            with Engine(self.url, workers=[BREAK], isolation="off") as engine:
                return question(engine)

        return ask(asked, self.place.directory / "answer.json")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)


def _work_all(engine: Engine, place: Place) -> None:
    engine.work(until_idle=True)


def _strange(story: Story, told: Object) -> list[str]:
    """The faults of the undisturbed run, which all others are compared with."""
    files = told["files"]
    assert isinstance(files, dict)
    found = {path: text for path, text in files.items() if text is not None}
    return [] if found == story.wanted else [f"the files are {found}, expected {story.wanted}"]


def differences(wanted: Object, told: Object) -> list[str]:
    return [
        f"{what}: {told[what]}, undisturbed {wanted[what]}" for what in wanted if told[what] != wanted[what]
    ]


def _calls(place: Place) -> list[int]:
    return [int(line) for line in place.calls.read_text().split()] if place.calls.exists() else []


if __name__ == "__main__":
    main()
