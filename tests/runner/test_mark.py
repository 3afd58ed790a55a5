"""A mark that one process renews is another one for everybody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lcp_engine.store.host.wakeup import Mark, make_mark

RENEW = (
    "import sys; from pathlib import Path; from lcp_engine.store.host.wakeup import Mark; "
    "Mark(Path(sys.argv[1])).renew()"
)


def test_every_process_sees_that_a_mark_was_renewed(tmp_path: Path) -> None:
    place = tmp_path / "mark"
    mine, seen = Mark(place), set[int]()
    for _ in range(3):
        seen.add(mine.number)
        subprocess.run([sys.executable, "-c", RENEW, place], check=True)
    assert mine.number not in seen
    assert len(seen) == 3
    assert Mark(place).number == mine.number


def test_a_machine_without_a_place_for_a_mark_has_none(tmp_path: Path) -> None:
    assert make_mark(tmp_path) is None
    assert make_mark(tmp_path / "absent" / "mark") is None
