"""No list of patterns hangs a worker: it ends within a second of CPU time, or is refused."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.processes import descriptors

from lcp_engine.core.paths.patterns import MAX_LENGTH, MAX_PATTERNS, MAX_TOTAL, MAX_WILD, compile_patterns
from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.sandbox.reading.list_tree import NAMES, PER_NAME, SECONDS, Effort, list_files
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import has_openat2

CHOICE = random.Random(7)
STARS = ["".join(f"*{CHOICE.choice('ab')}" for _ in range(127)) for _ in range(8)]
PRODUCT = [f"*{a}{b}*{c}" for a in "ab" for b in "ab" for c in "abcdefghijklmnopqrstuvwxyz"]
ADVERSARIAL = {
    "stars between letters": ["a*" * 100 + "b"],
    "two stars again and again": ["**/a/" * 100 + "x"],
    "as many as there may be": [f"x{number}*y" for number in range(MAX_PATTERNS)],
    "suffixes, as many as there may be": [f"*{'b' * 40}{number}" for number in range(MAX_PATTERNS)],
    "as long as they may be": ["ab" * (MAX_LENGTH // 2)] * (MAX_TOTAL // MAX_LENGTH),
    "a star, then any characters": ["*a" + "?" * 200 + "x"],
    "classes": ["*[ab]" + "[ab]" * 200 + "x"],
    "many memories of different lengths": [f"*a{'?' * count}b" for count in range(5, 42)],
    "the same to exclude": [f"!*a{'?' * count}b" for count in range(5, 42)],
    "the same about directories": [f"!*a{'?' * count}b/" for count in range(5, 42)],
    "letters in any order": STARS,
    "beginnings times ends": PRODUCT,
    "all of it": [*STARS[:2], *PRODUCT[:50], *(f"!*a{'?' * count}b" for count in range(5, 24))],
}  # fmt: skip


@pytest.fixture(scope="session")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 names that look alike to a pattern, for as long as may be."""
    place = tmp_path_factory.mktemp("forest")
    choice = random.Random(1)
    for _ in range(50):
        inner = place / "".join(choice.choices("ab", k=100))
        inner.mkdir()
        first = inner / "first"
        first.touch()
        for _ in range(1999):  # a name is enough, and costs less than a file
            os.link(first, f"{inner}/{''.join(choice.choices('ab', k=100))}")
    return place


@pytest.mark.alone
@pytest.mark.parametrize("patterns", ADVERSARIAL.values(), ids=ADVERSARIAL)
def test_a_list_made_to_hang_ends_within_a_second_of_cpu_or_is_refused(
    forest: Path, patterns: list[str]
) -> None:
    began = time.thread_time()
    refused = listed(forest, patterns)
    assert time.thread_time() - began < 1
    if refused is not None:
        assert refused.code is ErrorCode.INVALID_PATTERN
        assert "use simpler ones" in str(refused)


def listed(place: Path, patterns: list[str]) -> LcpError | None:
    with Root(place) as root:
        try:
            assert list_files(root, "", compile_patterns(patterns), limit=10).total <= 100_000
        except LcpError as refused:
            return refused
    return None


@pytest.mark.proof
def test_of_all_these_some_are_refused_and_a_plain_one_is_not(forest: Path) -> None:
    assert listed(forest, ["**/*.py", "a*/**", "!**/[Bb]uild/**"]) is None
    assert listed(forest, ADVERSARIAL["many memories of different lengths"]) is not None


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["*.py"] * (MAX_PATTERNS + 1), "257 patterns are given, at most 256"),
        (["a" * MAX_LENGTH] * (MAX_TOTAL // MAX_LENGTH) + ["b"], "16,385 characters in all patterns"),
        (["?" * MAX_LENGTH, "a*/"], f"{MAX_WILD + 1:,} wildcards in all patterns"),
    ],
)
def test_a_list_that_is_too_large_is_refused_before_it_costs_anything(patterns: list[str], said: str) -> None:
    with pytest.raises(LcpError, match=said) as refused:
        compile_patterns(patterns)
    assert refused.value.code is ErrorCode.INVALID_PATTERN


def test_a_large_tree_is_not_refused_for_its_size() -> None:
    ticks = Ticks(PER_NAME * 0.45)
    effort = Effort(1, ticks.read)
    for _ in range(100):
        assert ticks.work(effort, NAMES // 10) == NAMES // 10


def test_what_each_of_many_directories_takes_adds_up() -> None:
    ticks = Ticks(SECONDS / 100)
    effort = Effort(1, ticks.read)
    for _ in range(9):
        assert ticks.work(effort, 10) == 10
    with pytest.raises(LcpError, match="matching 110 names takes"):
        ticks.work(effort, 20)


def test_the_larger_the_patterns_and_the_longer_the_names_the_more_often_the_clock_is_read() -> None:
    names = ["n" * 100] * 1000
    assert len(list(Effort(50, Ticks(0).read).pieces(names, "directory/"))) > 50
    assert list(Effort(MAX_TOTAL, Ticks(0).read).pieces(names, "")) == [["n" * 100]] * 1000
    assert list(Effort(10, Ticks(0).read).pieces(["name"] * 1000, "")) == [["name"] * 1000]


class Ticks:
    """A clock that moves on with each name."""

    def __init__(self, each: float) -> None:
        self.each, self.now = each, 0.0

    def read(self) -> float:
        return self.now

    def work(self, effort: Effort, count: int) -> int:
        """How many names were told apart, each of which took its time."""
        told = 0
        for piece in effort.pieces(["name"] * count, ""):
            self.now += self.each * len(piece)
            told += len(piece)
        return told


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
def test_a_listing_tells_nothing_of_what_is_denied(tmp_path: Path, *, kernel: bool) -> None:
    if kernel and not has_openat2():
        pytest.skip("this kernel has no openat2")
    for path in (
        "a.md",
        "priv/x",
        "priv/sub/y",
        "priv/ok/z",
        ".ssh/known_hosts",
        ".kube/cache/a",
        ".env",
        "b/priv/x",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "priv" / os.fsdecode(b"\xff")).touch()
    rules = [Rule(paths=("priv/ok/",), do=Verdict.AUTO), Rule(paths=("/priv/*",), do=Verdict.DENY)]
    with Root(tmp_path, kernel=kernel) as root:
        done = run_job("list_files", {"details": True}, root, policy=Policy(rules))
        beneath = run_job(
            "list_files", {"root": "b"}, root, policy=Policy([Rule(paths=("b/priv/",), do=Verdict.DENY)])
        )
    assert done.result is not None
    assert done.result["files"] == [".env", "a.md", "b/priv/x", "priv/ok/z"]
    assert done.result["sizes"] == [0] * 4
    assert "skipped" not in done.result
    assert beneath.result is not None
    assert beneath.result["files"] == []


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
def test_a_deep_tree_is_listed_level_by_level(tmp_path: Path, *, kernel: bool) -> None:
    """A side directory on each level: going back up opens no path from the root for each."""
    if kernel and not has_openat2():
        pytest.skip("this kernel has no openat2")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=here)
        os.mkdir("e", dir_fd=here)
        os.close(os.open("e/f", os.O_CREAT, dir_fd=here))
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    with Root(tmp_path, kernel=kernel) as root:
        opened = descriptors()
        listing = list_files(root, "", compile_patterns([]), limit=1000)
        assert descriptors() == opened
    assert listing.total == 400
    assert listing.files[-1] == "e/f"
    assert f"{'d/' * 399}e/f" in listing.files
