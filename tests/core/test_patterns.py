"""The rule of pattern lists: any positive, no negative, whatever the order."""

from __future__ import annotations

from pathlib import Path

import pytest
import re2  # type: ignore[import-untyped]  # google-re2 ships no types
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.core.paths.gitignore import translate
from lcp_engine.core.paths.patterns import MAX_LENGTH, MAX_PATTERNS, compile_patterns, compile_rule
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.reading.list_tree import list_files
from lcp_engine.sandbox.root import Root

SEED = ["**/*.py", "*.md", "!**/node_modules/**"]


@table(
    ("patterns", "path", "selected"),
    [
        (SEED, "core/main.py", True),
        (SEED, "main.py", True),
        (SEED, "docs/README.md", True),
        (SEED, "node_modules/x/i.py", False),
        (SEED, "src/node_modules/y.py", False),
        (SEED, "pkg/node_modules_not/k.py", True),
        (SEED, "a.txt", False),
        ([], "anything/at.all", True),
        (["!*.md"], "a.py", True),
        (["!*.md"], "docs/a.md", False),
        (["!node_modules", "**/*.py"], "node_modules/i.py", False),
        (["!node_modules/", "**/*.py"], "a/node_modules/i.py", False),
        (["node_modules/"], "node_modules", False),
        (["!node_modules/"], "node_modules", True),
        (["/*.md"], "top.md", True),
        (["/*.md"], "docs/top.md", False),
        (["./src/*.py"], "src/a.py", True),
        (["src/*"], "src/a/b.py", True),
        (["src/**"], "src/a/b.py", True),
        (["src/**"], "lib/src/a.py", False),
        (["docs"], "docs/a/b.md", True),
        (["*.egg"], "x.egg/inner.txt", True),
        (["*.txt"], "x\ny.txt", True),
        (["**/a?c*.py"], "x\ny/abc1.py", True),
        (["a[0-9].py"], "a7.py", True),
        (["a[!0-9].py"], "a7.py", False),
        ([r"\!x.py"], "!x.py", True),
        ([r"\#x"], "#x", True),
        (["*.py "], "a.py", True),
        (["[slug]/x"], "s/x", True),
        (["*", "!docs/*"], "docs/a.md", False),
        (["*", "!docs/*"], "docs/deep/a.md", False),
        (["**/"], "top.py", False),
        (["**/"], "d/top.py", True),
    ],
)
def test_a_list_selects(patterns: list[str], path: str, *, selected: bool) -> None:
    assert compile_patterns(patterns).matches(path) is selected
    assert compile_patterns(patterns[::-1]).matches(path) is selected


@table(
    "patterns",
    [
        [""],
        ["   "],
        ["!"],
        ["# comment"],
        ["../x"],
        ["a/../b"],
        ["..\\x"],
        ["C:\\Windows\\*"],
        ["C:/x"],
        ["\\\\server\\share"],
        ["[z.py"],
        ["[[:alpa:]]"],
        ["[/]"],
        ["a\\"],
        ["\\/a"],
        ["/"],
        ["a\tb"],
        ["a\ud800"],
        ["a" * (MAX_LENGTH + 1)],
        ["*.py"] * (MAX_PATTERNS + 1),
    ],
)
def test_an_unusable_pattern_is_named(patterns: list[str]) -> None:
    with pytest.raises(LcpError) as refused:
        compile_patterns(patterns)
    assert refused.value.code is ErrorCode.INVALID_PATTERN


def test_two_dots_in_a_name_are_only_a_name() -> None:
    assert compile_patterns(["[[]...nextauth].ts"]).matches("pages/[...nextauth].ts")
    assert compile_patterns(["..foo"]).matches("..foo")


@table(
    ("pattern", "path", "granted", "refused"),
    [
        ("Docs/**/*.MD", "dOCS/x/a.md", False, True),
        ("[A-Z].md", "a.md", False, True),
        ("[Z-a].md", "z.md", False, True),
        ("[[:upper:]]", "a", False, True),
        ("[^A].md", "a.md", True, True),
        ("STRASSE", "straße", False, True),
        ("a?c", "aßc", True, True),
        ("[ß]", "ß", True, True),
        ("??.txt", "é.txt", False, True),
        ("priv\u00e9/", "prive\u0301/a.txt", False, True),
        ("prive\u0301/**", "priv\u00e9/a.txt", False, True),
        ("PRIV\u00c9/", "prive\u0301/a.txt", False, True),
        ("prive*", "prive\u0301", True, True),
        ("caf?.txt", "cafe\u0301.txt", False, True),
        ("caf??.txt", "cafe\u0301.txt", True, True),
        ("[^a][^a].txt", "é.txt", False, True),
        ("?.txt", "é.txt", True, True),
        ("docs/*", "docs/a/b", True, True),
        ("docs/?", "docs//", False, False),
    ],
)
def test_in_doubt_a_rule_grants_less_and_refuses_more(
    pattern: str, path: str, *, granted: bool, refused: bool
) -> None:
    assert compile_rule((pattern,), grants=True).matches(path) is granted
    assert compile_rule((pattern,), grants=False).matches(path) is refused
    assert compile_rule(("**", f"!{pattern}"), grants=True).matches(path) is not refused
    assert compile_rule(("**", f"!{pattern}"), grants=False).matches(path) is not granted


def test_a_pattern_made_to_hang_a_matcher_ends_at_once() -> None:
    patterns = ["**/" * 40 + "x", "a*" * 60 + "b", "*?" * 40 + "z", "**/a/" * 40 + "x"]
    compiled = compile_patterns([*patterns, *(f"!{pattern}y" for pattern in patterns)])
    assert not compiled.matches("a" * 250)
    assert not compiled.matches("/".join("a" * 200))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    place = tmp_path_factory.mktemp("tree")
    names, paths = ("a", "b.py", "ab"), []
    for first in ("a.py", "b", "ab", "[b"):
        paths += [f"{first}/{name}.x" for name in names] + [f"{first}/d.py/{name}" for name in names]
        paths += [f"{first}/a/b/{name}" for name in names]
    paths += ["top.py", "b.x"]
    for path in paths:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).touch()
    return place, sorted(paths)


_SEGMENTS = st.sampled_from(
    [
        "**",
        "*",
        "***",
        "a",
        "b",
        "ab",
        "*.py",
        "a*",
        "[ab]",
        "?",
        "d.py",
        "*.x",
        "b.x",
        "*.[x]",
        r"\[b",
        "b]",
        r"*\b",
    ]
)
_PATTERNS = st.builds(
    lambda sign, start, parts, end: sign + start + "/".join(parts) + end,
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(_SEGMENTS, min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(_PATTERNS, max_size=4))
def test_listing_selects_what_each_pattern_by_itself_says(
    tree: tuple[Path, list[str]], patterns: list[str]
) -> None:
    """Short cuts by name and pruned directories change nothing: the expressions themselves are the reference."""
    place, paths = tree

    def matches(pattern: str, path: str) -> bool:
        return re2.search(f"(?s){translate(pattern)}", path) is not None

    positive = [pattern for pattern in patterns if not pattern.startswith("!")]
    negative = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    expected = [
        path
        for path in paths
        if (not positive or any(matches(pattern, path) for pattern in positive))
        and not any(matches(pattern, path) for pattern in negative)
    ]
    compiled = compile_patterns(patterns)
    assert [path for path in paths if compiled.matches(path)] == expected
    with Root(place) as root:
        assert list_files(root, "", compiled, limit=1000).files == expected
