"""Find the decisions of people over all missions: who, when, what, with which words, and what they had been shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from lcp_engine.api.kernel_history import KernelHistory
from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.summaries import Object
from lcp_engine.engine.people.subjects import Subjects
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.decisions.store import SEARCHED, Found, Place, find_decisions
from lcp_engine.store.queries.history import LARGEST as LARGEST_ID
from lcp_engine.store.queries.history import in_column

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})")


@dataclass(frozen=True)
class Decision:
    """A decision of a person, or of a hold that expired.

    `decision` is `approve`, `reject`, `answer`, `reply`, `retry` or `undo`; `consent` is an approval that was not the
    last one. `words` are a reason, an answer, or what was said with an approval. `other_params`: it was for others than
    the planner's, or for a part of a merge. `path` and `found` are the file that was shown, and the SHA-256 that it
    had; `unseen` of `lines` were not on the screen, None where that is not known.
    """

    at: str
    by: str
    decision: str
    mission_id: int
    mission: str
    job_id: int | None
    kind: str
    about: str
    words: str = ""
    other_params: bool = False
    path: str | None = None
    found: str | None = None
    unseen: int | None = None
    lines: int | None = None

    @property
    def json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True)
class Decisions:
    """Decisions, the newest first; `behind` is where the next ones begin, None at the end."""

    rows: Sequence[Decision]
    behind: str | None


class DecisionCalls(KernelHistory):
    """Calls about decisions."""

    def decisions(
        self,
        *,
        by: str | None = None,
        kind: str | None = None,
        mission_id: int | None = None,
        since: Micros | None = None,
        until: Micros | None = None,
        behind: str | None = None,
        limit: int = 50,
    ) -> Decisions:
        """The newest decisions: of one person, on jobs of one kind, of one mission, made `since` and before `until`.

        Times are microseconds since 1970. With `behind`, those that are older than the page before. Each call looks
        through 5,000 decisions and returns at most `limit`, so that a page may be short and not the last one. Raises
        `INVALID_ARGUMENT` for a `behind` that no page had.
        """
        numbers = {"of": mission_id, "since": since, "until": until}
        stored = {name: None if one is None else in_column(one) for name, one in numbers.items()}
        found, last = self._read(
            find_decisions, _place(behind), {"by": by, "kind": kind, **stored}, min(limit, SEARCHED)
        )
        about = Subjects(self.database).of
        rows = [_decision(one, about) for one in found]
        return Decisions(rows, None if last is None else ".".join(map(str, last)))


def _place(behind: str | None) -> Place:
    if behind is None:
        return LARGEST_ID, LARGEST_ID, LARGEST_ID
    found = _CURSOR.fullmatch(behind)
    if found is None:
        message = f"{behind[:40]!r} is no place in a list of decisions"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
    return int(found[1]), int(found[2]), int(found[3])


def _decision(one: Found, about: Callable[[Object], str]) -> Decision:
    at, mission_id, _, job_id, event, _, mission, kind, name, params, result = one.row
    data = one.data
    job: JsonObject = {"mission_id": mission_id, "name": name, "params": json.loads(params or "{}")}
    answer = json.loads(result).get("answer") if result and data.get("decision") == "answer" else None
    unseen = data.get("unseen")
    seen = unseen if isinstance(unseen, dict) else {}
    return Decision(
        at=iso(at),
        by=str(data.get("by")),
        decision="consent" if event == "consented" else str(data.get("decision")),
        mission_id=mission_id,
        mission=mission or "",
        job_id=job_id,
        kind=kind or "",
        about="" if job_id is None else about(job),
        words=str(data.get("reason") or answer or one.said),
        other_params=data.get("params") is not None,
        path=_text(one.shown[0]),
        found=_text(one.shown[1]),
        unseen=_count(seen.get("lines")),
        lines=_count(seen.get("of")),
    )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None
