"""A pattern means what the installed git takes it for: each is put into a `.gitignore`, and git is asked.

`git_patterns.jsonl` has the pairs of pattern and path of git's own tests t3070-wildmatch and t0008-ignores.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import EXAMPLES

from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.errors import LcpError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle, and is not installed")

BLANK = "a blank pattern or a comment is most likely a mistake, and a rule without effect is refused"
NEVER = "git accepts it and it matches nothing; a rule without effect is refused"
REFUSED = {
    "": BLANK,
    "# this comment should affect the line numbers": BLANK,
    "\\": NEVER,
    "*/\\": NEVER,
    "[[::]ab]": NEVER,
    "[[:digit:][:upper:][:spaci:]]": NEVER,
    "a[]b": NEVER,
    "ab[": NEVER,
    "[!": NEVER,
    "[-": NEVER,
    "[a-": NEVER,
    "[!a-": NEVER,
    "[\\]": NEVER,
    "foo[/]bar": NEVER,
}
"""What is refused (INVALID_PATTERN) although git reads it, and why. Nothing else differs but `!` by itself: a list that
only excludes selects everything else here, and nothing in git."""


class Case(NamedTuple):
    pattern: str
    path: str


def cases() -> list[Case]:
    rows = Path(__file__).with_name("git_patterns.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [Case(row["pattern"], path) for row in map(json.loads, rows) for path in row["paths"]]
    return [case for case in dict.fromkeys(pairs) if case.path not in {"", "."} and "//" not in case.path]


def ignored(place: Path, asked: Sequence[Case], *options: str) -> list[bool]:
    """What git says of each case. All paths are made, as git looks at them; those that end in "/" are directories."""
    subprocess.run(["git", "init", "-q", place], check=True, env=_environment(place))
    for number, (pattern, path) in enumerate(asked):
        inner = place / str(number)
        target = inner / path
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.touch()
        (inner / ".gitignore").write_text(f"{pattern}\n", encoding="utf-8")
    given = "\0".join(f"{number}/{_asked(case.path)}" for number, case in enumerate(asked))
    command = ["git", *options, "check-ignore", "--no-index", "-z", "--stdin", "-v", "-n"]
    found = subprocess.run(
        command, cwd=place, input=given.encode(), stdout=subprocess.PIPE, check=False, env=_environment(place)
    )
    fields = found.stdout.decode().split("\0")[:-1]
    matched = [fields[at : at + 4] for at in range(0, len(fields), 4)]
    assert [name for *_, name in matched] == given.split("\0")
    return [bool(source) and not pattern.startswith("!") for source, _, pattern, _ in matched]


def _asked(path: str) -> str:
    """A directory is matched here if everything beneath it is, for which git is asked."""
    return f"{path}any" if path.endswith("/") else path


def _environment(place: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def selects(case: Case) -> bool | None:
    """What a list of this one pattern says of the path; None if it is refused."""
    try:
        return compile_patterns([case.pattern]).matches(case.path)
    except LcpError:
        return None


def rules(case: Case, verdict: Verdict) -> bool:
    rule = Rule(paths=(case.pattern,), do=verdict)
    other = Rule(do=Verdict.HOLD)
    return Policy([rule, other]).for_kind("a", has_effects=False, writes=False)(case.path).verdict is verdict


def told(answers: Iterable[tuple[Case, object, object]]) -> list[str]:
    return [f"{case.pattern!r} {case.path!r}: {ours}, git: {theirs}" for case, ours, theirs in answers]


def test_lists_and_rules_select_what_git_ignores(tmp_path: Path) -> None:
    asked = [case for case in cases() if not case.pattern.startswith("!")]
    exact = ignored(tmp_path / "exact", asked)
    folded = ignored(tmp_path / "folded", asked, "-c", "core.ignorecase=true")
    lists, grants, denials = [], [], []
    for case, git, git_folded in zip(asked, exact, folded, strict=True):
        ours = selects(case)
        if ours is None:
            assert case.pattern in REFUSED, case
            assert not git, case
            continue
        assert case.pattern not in REFUSED, case
        lists.append((case, ours, git))
        grants.append((case, rules(case, Verdict.AUTO), git))
        denials.append((case, rules(case, Verdict.DENY), git or git_folded))
    assert len(lists) > 500
    for answers in (lists, grants, denials):
        assert told(one for one in answers if one[1] is not one[2]) == []


SEEDS = int(EXAMPLES or 200) // 100
PIECES = (
    *("a", "b", "A", "ab", "a.b", "*", "**", "***", "?", "/", "/", "/", "**/", "/**", "/**/", "é", " "),
    *("[ab]", "[!a]", "[^b-z]", "[A-Z]", "[[:alpha:]]", "[[:upper:]x]", "[a/b]", "[]-]", "[z-a0-9]"),
    *("\\a", "\\*", "\\ ", "\\\\", "\\/", "!", "#", "[", "]", "-"),
)
NAMES = ("a", "b", "A", "ab", "aa", "a.b", "é", "*", "\\", "-", "]", "a b", " ", "!a", "#b", "axb")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_patterns_made_at_random_select_what_git_ignores(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    asked: list[Case] = []
    while len(asked) < 1500:
        pattern = "".join(choice.choices(PIECES, k=choice.randint(1, 5)))
        path = "/".join(choice.choices(NAMES, k=choice.randint(1, 4)))
        if not pattern.startswith(("!", "./")) and ".." not in pattern:
            asked.append(Case(pattern, path))
    git = ignored(tmp_path, asked)
    assert sum(git) > 100
    # Git takes each byte for a character, so that "?" matches no "é".
    pairs = [one for one in zip(asked, git, strict=True) if one[0].path.isascii()]
    answers = [(case, selects(case), theirs) for case, theirs in pairs]
    assert told(one for one in answers if one[1] is not None and one[1] is not one[2]) == []
    assert told(one for one in answers if one[1] is None and one[2]) == []
    usable = [(case, theirs) for case, theirs in zip(asked, git, strict=True) if selects(case) is not None]
    assert (
        told((case, False, True) for case, theirs in usable if theirs and not rules(case, Verdict.DENY)) == []
    )
