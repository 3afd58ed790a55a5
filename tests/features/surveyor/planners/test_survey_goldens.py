"""SURVEY.md of small trees, whole: `surveys/NAME.tree` holds the files, `surveys/NAME.md` what is said of them.

After a change that is meant, `WRITE_SURVEYS=1 pytest tests/features/surveyor` writes them anew; read each line of the
difference against the tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.features.surveyor.planners.test_surveyor import make, survey

SURVEYS = Path(__file__).with_name("surveys")
TREES = sorted(path.stem for path in SURVEYS.glob("*.tree"))


def files_of(tree: str) -> Iterator[tuple[str, str]]:
    """(path, content) of each `==> path`; `==> path *N` repeats its content N times, with `%d` counted."""
    for part in re.split(r"(?m)^==> ", tree)[1:]:
        head, _, content = part.partition("\n")
        path, _, times = head.partition(" *")
        many = range(1, int(times or 1) + 1)
        yield path, "".join(content.replace("%d", str(number)) if times else content for number in many)


@pytest.mark.parametrize("name", TREES)
def test_a_small_tree_is_described_as_it_is(name: str, tmp_path: Path) -> None:
    tree = (SURVEYS / f"{name}.tree").read_text(encoding="utf-8")
    root = tmp_path / name
    root.mkdir()
    said = survey(make(root, dict(files_of(tree)))).markdown
    golden = SURVEYS / f"{name}.md"
    if os.environ.get("WRITE_SURVEYS"):
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")
