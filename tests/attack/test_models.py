from __future__ import annotations

import pytest
from tests.attack.models import KEY, _spellings, meet, plays
from tests.features.models.planners.test_scrub import ENCODINGS

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("name", [
    "headers_by_the_byte", "empty_gzip_blocks", "a bomb in a bomb", "a large answer", "echoes in a reply",
    "a thought that quotes an action", "an action between words", "refusals without end",
    "echoes beside JSON", "echoes in an error", "echoes in a header",
])  # fmt: skip
def test_a_hostile_server_learns_nothing_and_holds_up_and_writes_nothing(name: str) -> None:
    assert meet(name, plays()[name]).faults == []


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_a_key_that_is_stored_would_be_found(encode: object) -> None:
    assert callable(encode)
    stored = f"x{encode(KEY)}y".encode()
    assert any(spelled in stored for spelled in _spellings())
