"""The examples of docs/python.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lcp_engine.workers import registry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.proof
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    names: dict[str, object] = {"__name__": "page"}
    for example in EXAMPLES:
        exec(compile(example, PAGE.name, "exec"), names)  # the examples are ours
    assert len(EXAMPLES) >= 5
