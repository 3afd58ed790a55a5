"""`lcp decisions` lists who decided what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_decisions_are_listed_for_people_and_for_programs(lcp: Lcp) -> None:
    assert "No decisions." in lcp("decisions").err
    asked = lcp.ask("write_file", rel_path="a.md", content="new\n")
    lcp("run", lcp.mission(asked, lcp.complete), "--root", lcp.root)
    assert lcp("reject", 2, "--reason", "Not now.").code == 0
    listed = lcp("decisions", "--since", "1d").out
    assert all(word in listed for word in ("reject", "write_file a.md", "Not now."))
    found = json.loads(lcp("--json", "decisions", "--kind", "write_file", "--mission", 1).out)
    assert found["behind"] is None
    assert [(one["job_id"], one["decision"], one["words"]) for one in found["decisions"]] == [
        (2, "reject", "Not now.")
    ]
    assert json.loads(lcp("--json", "decisions", "--since", "2099-01-01").out)["decisions"] == []
    assert "older ones: --behind" not in lcp("decisions", "--limit", 1).err
    refused = lcp("decisions", "--until", "soon")
    assert "neither a length of time, such as 12h or 7d, nor a date" in refused.err
