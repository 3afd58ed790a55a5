"""The settings of a mission on the page list the instructions that it was launched with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.web.conftest import House


def test_the_instructions_of_a_mission_are_listed(house: House) -> None:
    (house.root / "AGENTS.md").write_text("Run make.\n")
    place = house.root / ".agents" / "skills" / "<b>"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("None.\n")
    mission = house.launch(house.complete)
    page = house.get(f"/missions/{mission}/settings")
    assert "Found at the launch instructions: AGENTS.md" in page.words
    assert "<b>/SKILL" not in page.text
    assert "does not begin with front matter" in page.words
    assert (
        "Found at the launch"
        not in house.get(f"/missions/{house.launch(house.complete, instructions='off')}/settings").words
    )
