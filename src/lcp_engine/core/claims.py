"""Check what a planner claims where that needs no model: its issues are about files that were read (R9). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.protocol.actions import Action, AnalysisResult, MissionComplete
from lcp_engine.core.safe_text import one_line

_QUOTED = re.compile(r"`([^`\n]+)`")
_LEAST_WORDS = 3
"""Of a quotation in backticks; a shorter one may be a name, a call or a sign that the file writes otherwise."""
_MOST_FAULTS = 5
_MOST_SHOWN = 120


def faults_of_issues(claim: Action, read: Mapping[str, str]) -> str | None:
    """Faults of the issues of a claim; `read` has the files that were read, with what was read of them.

    None if it states a list of issues, maybe an empty one, and each names a file in it and quotes nothing that was not
    read there.
    """
    if not isinstance(claim, AnalysisResult):
        return f"{claim.action} states no issues; analysis_result does"
    if claim.issues is None:
        return "issues is missing; state it, as [] if there are none"
    return _listed([fault for at, issue in enumerate(claim.issues) for fault in _faults(at, issue, read)])


def deliverables_of(claim: Action) -> Sequence[str]:
    """The files that a claim says were made."""
    made = claim.deliverables if isinstance(claim, MissionComplete) else None
    return [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in made or ()]


def _faults(at: int, issue: JsonValue, read: Mapping[str, str]) -> Iterator[str]:
    said = issue if isinstance(issue, str) else json.dumps(issue, ensure_ascii=False)
    named = [path for path in read if re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", said)]
    if not named:
        yield f"issues[{at}] names no file that was read: {_shown(said)}"
        return
    texts = [" ".join(read[path].split()) for path in named]
    for quoted in _QUOTED.findall(said):
        words = quoted.split()
        if len(words) >= _LEAST_WORDS and not any(" ".join(words) in text for text in texts):
            yield f"issues[{at}] quotes what is not in {' or '.join(named)}: {_shown(quoted)}"


def _listed(faults: Sequence[str]) -> str | None:
    more = len(faults) - _MOST_FAULTS
    return "; ".join([*faults[:_MOST_FAULTS], *([f"and {more} more"] if more > 0 else [])]) or None


def _shown(text: str) -> str:
    line = one_line(text)
    return json.dumps(line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…", ensure_ascii=False)
