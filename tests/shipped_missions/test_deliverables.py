"""What a mission has written is compared with the disk before it is reported (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcp_engine.features.reports.markdown import as_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shipped_missions.conftest import Stage

    from lcp_engine.store.queries.records import Mission

WRITTEN = "docs/src/tally/count.py.md"


def told(stage: Stage, mission: Mission) -> tuple[object, str]:
    """How the file is, as data and as a line of the report."""
    facts = stage.engine.facts(mission.id)
    [file] = facts.files.rows
    [line] = [line for line in as_markdown(facts).splitlines() if f"`{WRITTEN}` created" in line]
    return file.disk, line


def test_a_file_that_is_as_it_was_written_is_told_as_written(
    stage: Stage, play: Callable[[str], Mission]
) -> None:
    disk, line = told(stage, play("document"))
    assert disk == "as_written"
    assert line.endswith(")")


def test_a_file_that_somebody_changed_or_removed_is_told_so(
    stage: Stage, play: Callable[[str], Mission]
) -> None:
    mission, file = play("document"), stage.root / WRITTEN
    same_size = file.read_text().replace("words", "WORDS").replace("word", "WORD")
    file.write_text(same_size)
    assert told(stage, mission)[0] == "changed_since"
    assert told(stage, mission)[1].endswith("; changed since by someone else")
    file.write_text("")
    assert told(stage, mission)[0] == "changed_since"
    file.unlink()
    assert told(stage, mission)[0] == "gone"
    assert told(stage, mission)[1].endswith("; no longer there")
    file.mkdir()
    assert told(stage, mission)[0] == "changed_since"


def test_nothing_is_claimed_of_a_root_that_is_not_here(stage: Stage, play: Callable[[str], Mission]) -> None:
    mission = play("document")
    away = stage.root.rename(stage.root.with_name("away"))
    assert told(stage, mission)[0] is None
    stage.root.symlink_to(away)
    assert told(stage, mission)[0] is None
