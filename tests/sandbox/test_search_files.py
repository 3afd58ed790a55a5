"""A search tells the lines of files that may be listed and read, and of no others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.ways import WAYS, Way

from lcp_engine import Engine, Policy, Rule, run_job
from lcp_engine.core.policy import Verdict
from lcp_engine.workers.base import Caps

FILES = {
    "binary": "TODO\0",
    "docs/notes.txt": "one\ntwo TODO\nthree\nfour\nfive\nsix\nseven TODO\n",
    "priv/plan.txt": "TODO: tell nobody\n",
    "src/main.py": "import os\n\n\ndef main():\n    # TODO: greet\n    print('TODO')\n",
    ".env": "KEY=TODO\n",
}
MAIN = ["src/main.py:5:    # TODO: greet", "src/main.py:6:    print('TODO')"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "outside.txt").write_text("TODO outside\n")
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "root" / "inner").symlink_to("src")
    os.mkfifo(tmp_path / "root" / "fifo")
    return tmp_path / "root"


def search(place: Path, policy: Policy | None = None, **params: JsonValue) -> Mapping[str, JsonValue]:
    done = run_job("search_files", {"text": "TODO", **params}, place, policy=policy)
    assert isinstance(done.result, dict), done.error
    return done.result


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_each_way_finds_the_same(root: Path, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    done = way.answer(root, (), "search_files", {"text": "TO+DO?", "is_pattern": True})
    assert done.result == {
        "ok": True,
        "action": "search_files_result",
        "root": ".",
        "lines": [
            "docs/notes.txt:2:two TODO",
            "docs/notes.txt:7:seven TODO",
            "priv/plan.txt:1:TODO: tell nobody",
            *MAIN,
        ],
        "found": 5,
        "files": 4,
        "binary": 1,
        "skipped": [".env: default policy: secrets are denied"],
    }
    assert way.answer(root, (), "search_files", {"text": "a(", "is_pattern": True}).code == "INVALID_PATTERN"
    assert way.answer(root, (), "search_files", {"text": "x", "root": "../"}).code == "PATH_OUTSIDE_ROOT"


def test_patterns_and_a_directory_narrow_it(root: Path) -> None:
    assert search(root, patterns=["*.py"])["lines"] == MAIN
    assert search(root, patterns=["!docs/", "!priv/"])["lines"] == MAIN
    assert search(root, root="src")["lines"] == [line.removeprefix("src/") for line in MAIN]


def test_the_ends_of_each_file_are_those_of_a_text(root: Path) -> None:
    """Although files are searched together where that makes no difference."""
    for name in ("a.txt", "b.txt", "c.txt"):
        (root / "src" / name).write_text(f"{name}\nend")
    assert search(root, text=r"\Ab", is_pattern=True, patterns=["src/"])["lines"] == ["src/b.txt:1:b.txt"]
    assert search(root, text=r"end\z", is_pattern=True, patterns=["src/"])["found"] == 3
    assert search(root, text="^end$", is_pattern=True, patterns=["src/"])["found"] == 3
    both = search(root, text="d\\n?c", is_pattern=True, patterns=["src/"])
    assert (both["found"], both["files"]) == (0, 4)


def test_lines_around_are_shown_once(root: Path) -> None:
    assert search(root, patterns=["notes.txt", "main.py"], context=2)["lines"] == [
        "docs/notes.txt-1-one",
        "docs/notes.txt:2:two TODO",
        "docs/notes.txt-3-three",
        "docs/notes.txt-4-four",
        "docs/notes.txt-5-five",
        "docs/notes.txt-6-six",
        "docs/notes.txt:7:seven TODO",
        "--",
        "src/main.py-3-",
        "src/main.py-4-def main():",
        *MAIN,
    ]
    assert "'--'" in str(search(root, patterns=["notes.txt"], context=1)["lines"])


def test_it_says_where_it_ends(root: Path) -> None:
    assert "truncated" not in search(root, limit=5)
    few = search(root, limit=3)
    assert (few["found"], few["truncated"]) == (3, True)
    (root / "many.txt").write_text(f"{'TODO ' * 60}\n" * 2000)
    many = search(root, patterns=["many.txt"], limit=1000)
    assert many["truncated"] is True
    assert isinstance(many["lines"], list)
    assert sum(map(len, map(str, many["lines"]))) < 300_000


@pytest.mark.parametrize("kind", ["search_files", "read_file", "list_files", "*"])
def test_what_a_rule_denies_is_neither_found_nor_named(root: Path, kind: str) -> None:
    policy = Policy([Rule(kinds=(kind,), paths=("priv/",), do=Verdict.DENY)])
    assert "priv" not in str(search(root, policy))
    assert search(root, policy)["found"] == 4


def test_a_file_that_is_too_large_is_named(root: Path) -> None:
    done = run_job("search_files", {"text": "two"}, root, caps=Caps(read_bytes=50))
    assert isinstance(done.result, dict)
    assert done.result["lines"] == ["docs/notes.txt:2:two TODO"]
    assert "'src/main.py' has 60 bytes, at most 50 are read" in str(done.result["skipped"])


def test_what_policy_holds_is_searched_once_it_is_approved(root: Path, database_url: str) -> None:
    jobs: list[JsonValue] = [
        {"kind": "search_files", "params": {"text": "tell"}},
        {"kind": "search_files", "params": {"text": "tell", "root": "priv"}},
    ]
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
        {"ok": True, "action": "mission_complete", "summary": "done"},
    ]
    spec: dict[str, JsonValue] = {
        "goal": "Search.",
        "planner": {"type": "script", "replies": replies},
        "policy": [{"kinds": ["read_file"], "paths": ["priv/"], "do": "hold"}],
    }
    with Engine(database_url) as engine:
        mission = engine.launch(spec, root=root).id
        engine.work(until_idle=True, mission_id=mission)
        whole, held = engine.jobs(mission_id=mission, kinds=["search_files"])
        assert (whole.state, held.state) == ("succeeded", "held")
        assert isinstance(result := whole.json["result"], dict)
        assert (result["lines"], "priv/plan.txt" in str(result["skipped"])) == ([], True)
        engine.approve(held.id, by="ada")
        engine.work(until_idle=True, mission_id=mission)
        assert isinstance(result := engine.job(held.id).json["result"], dict)
        assert result["lines"] == ["plan.txt:1:TODO: tell nobody"]
