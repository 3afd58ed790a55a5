"""`lcp approve --always` adds a rule that lets jobs like a held one run, and `lcp policy remove` takes it back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lcp_engine import Rule
from lcp_engine.config_file import parse_config
from lcp_engine.features.rules.config_text import add_rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Lcp

RULE = {"kinds": ["write_file"], "paths": ["docs/"], "do": "auto"}


@pytest.fixture
def held(lcp: Lcp) -> Lcp:
    """Job 2, which writes docs/a, is held; its mission then asks for docs/b."""
    writes = [lcp.ask("write_file", rel_path=f"docs/{name}", content="x") for name in ("a", "b")]
    lcp.mission(*writes, lcp.complete)
    assert lcp("run", "mission-0.yaml", "--root", "root").code == 3
    return lcp


def config(lcp: Lcp, text: str | None = None) -> Path:
    path = lcp.home / "config" / "lcp-engine" / "config.yaml"
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def test_the_rule_is_said_first_and_such_jobs_run(held: Lcp) -> None:
    done = held("approve", 2, "--always", "mission", "--paths", "docs/")
    assert (done.code, done.out) == (0, "job 2 approved\n")
    assert done.err.startswith("write_file of docs/ runs without asking: in this mission\n")
    assert not config(held).exists()
    assert held("work", "--until-idle").code == 0
    assert (held.root / "docs" / "b").read_text() == "x"
    assert held("policy", "rules", 1).out == "1  auto  write_file docs/\n"
    assert held("policy", "rules", 1, "--json").json == [RULE]
    assert "mission rule 1 (write_file docs/) says auto" in held("policy", "explain", 4).out


def test_a_rule_for_all_missions_goes_behind_those_of_the_configuration(held: Lcp) -> None:
    text = "policy:\n  # mine\n  - paths: ['*.sql']\n    do: deny\n\n# the rest\nbusy_seconds: 5\n"
    config(held, text)
    assert held("approve", 2, "--always", "user", "--json").code == 0
    assert config(held).read_text() == text.replace(
        "do: deny\n", "do: deny\n  - {kinds: [write_file], paths: [/docs/a], do: auto}\n"
    )
    assert not (held.root / "docs").exists()
    assert held("run", "mission-0.yaml", "--root", "root").code == 3
    assert [path.name for path in (held.root / "docs").iterdir()] == ["a"]


def test_a_configuration_that_only_a_person_should_edit_is_left_alone(held: Lcp) -> None:
    config(held, "policy: [{paths: ['*.sql'], do: deny}]\n")
    refused = held("approve", 2, "--always", "user")
    assert refused.code == 5
    assert "add `- {kinds: [write_file], paths: [/docs/a], do: auto}` under `policy:`" in refused.err
    assert config(held).read_text() == "policy: [{paths: ['*.sql'], do: deny}]\n"
    assert held("job", 2, "--json").object["state"] == "held"


def test_a_rule_is_removed_and_such_jobs_wait_again(held: Lcp) -> None:
    held("approve", 2, "--always", "mission", "--paths", "docs/")
    assert held("policy", "remove", 1, 1).out == "mission 1: rule 1 (write_file docs/) is removed\n"
    assert held("work", "--until-idle").code == 0
    assert not (held.root / "docs" / "b").exists()
    assert held("policy", "rules", 1).err == "mission 1 has no rules of its own\n"
    assert held("policy", "remove", 1, 1).code == 1


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--paths", "docs/"), 2, "--paths needs --always"),
        (("--always", "mission", "--edit"), 2, "no other params"),
        (("--always", "everywhere"), 2, "'everywhere' is not one of"),
        (("--always", "mission", "--paths", "other/"), 5, "would not let write_file jobs like this one run"),
        (("--always", "mission", "--paths", "["), 1, "pattern"),
        (("--always", "mission", "--paths", ""), 1, "pattern"),
    ],
)
def test_what_is_no_rule_for_the_job_is_refused(
    held: Lcp, options: tuple[str, ...], code: int, words: str
) -> None:
    refused = held("approve", 2, *options)
    assert (refused.code, refused.out) == (code, "")
    assert words in refused.err
    assert held("job", 2, "--json").object["state"] == "held"


def test_of_rules_that_are_added_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "config" / "config.yaml"
    rules = [Rule.model_validate({**RULE, "paths": [f"{number}/"]}) for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(partial(add_rule, path), rules)] == [None] * 16
    assert {*parse_config(path.read_text(), path).policy} == {*rules}
