"""Follow events as they happen, and describe each in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from lcp_engine import Job
from lcp_engine.cli.console.output import coloured, wait_line
from lcp_engine.cli.job_tables import words_of
from lcp_engine.cli.tables import COLOURS
from lcp_engine.core.json_values import JsonObject, JsonValue, list_in, object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.reasons import ReasonCode, explain_reason
from lcp_engine.core.safe_text import json_line, one_line, sentence, shortened
from lcp_engine.core.summaries import gist, status_of, subject
from lcp_engine.features.reports.progress import Measure, milestone_of

if TYPE_CHECKING:
    from rich.console import Console

    from lcp_engine.api.history import History

DESCRIPTION_COLUMN = 18
"""Where the line of a job says what the job is, behind what happened and its number."""
_WIDTH = 100
_WARNING_WIDTH = 300
_MOST_WARNINGS = 3
# The state to colour a line by, for job events that are shown; others are shown with --verbose only.
_JOB_EVENTS = {
    "succeeded": "succeeded", "failed": "failed", "held": "held", "held_again": "held", "retried_held": "held",
    "refused": "rejected", "rejected": "rejected", "skipped": "skipped", "cancelled": "cancelled",
    "plan_succeeded": "succeeded", "plan_failed": "failed", "backed_off": "queued", "rescued": "queued",
    "answered": "succeeded", "permission_asked": "held", "done_by_agent": "succeeded", "failed_by_agent": "failed",
}  # fmt: skip
_AS_WORDS = {"held_again": "held", "retried_held": "held", "refused": "rejected",
             "backed_off": "retries", "plan_succeeded": "succeeded",
             "plan_failed": "failed", "permission_asked": "held", "done_by_agent": "succeeded",
             "failed_by_agent": "failed"}  # fmt: skip


class Follower:
    """Reads new events of a mission or of all. With `past` it begins with those stored already."""

    def __init__(self, history: History, mission_id: int | None = None, *, past: bool = True) -> None:
        self._history = history
        self._mission_id = mission_id
        self._seen: dict[int, int] = {} if past else history.event_counts()

    def new_events(self) -> list[JsonObject]:
        """The events since the last call, in the order in which they happened."""
        found = [event for mission in self._changed() for event in self._of(mission)]
        return sorted(found, key=lambda event: str(event["at"])) if self._mission_id is None else found

    def _changed(self) -> list[int]:
        if self._mission_id is not None:
            return [self._mission_id]
        counts = self._history.event_counts()
        return [mission for mission, count in counts.items() if count > self._seen.get(mission, 0)]

    def _of(self, mission_id: int) -> list[JsonObject]:
        events = self._history.events(mission_id, after_seq=self._seen.get(mission_id, 0))
        if events:
            last = events[-1]["seq"]
            assert isinstance(last, int)
            self._seen[mission_id] = last
        return events


class EventFormatter:
    """Describes events in lines; a job is shown in its current state.

    With a `measure` they are the events of one mission from its first, and the line at which it has reached a milestone
    says so.
    """

    def __init__(
        self,
        history: History,
        *,
        verbose: bool = False,
        names_mission: bool = False,
        measure: Measure | None = None,
    ) -> None:
        self._history = history
        self._verbose = verbose
        self._names_mission = names_mission
        self.measure = measure
        self._told = measure
        """How far the mission had come when a line last said so."""

    def line(self, event: JsonObject) -> Text | None:
        """The line for an event, with the milestone that was reached by then; None if only --verbose shows it."""
        if self.measure is not None:
            self.measure = self.measure.after(str(event["event"]))
        found = self._line(event)
        milestone = "" if found is None or "\n" in found.plain else self._milestone()
        return found.append(f"  {milestone}", style="green") if found is not None and milestone else found

    def _milestone(self) -> str:
        """The milestone that no line has told yet; of a mission that is completed, its own line says it."""
        if self.measure is None or self._told is None or self.measure.percentage == 100:
            return ""
        before, self._told = self._told, self.measure
        return milestone_of(before.percentage, self.measure.percentage) or ""

    def _line(self, event: JsonObject) -> Text | None:
        if event["event"] == "said":
            text: Text | None = message_line(event)
        else:
            text = self._job_line(event) if event["job_id"] is not None else self._mission_line(event)
        if text is None and self._verbose:
            text = self._any_line(event)
        if text is not None and self._names_mission:
            return Text(f"[{event['mission_id']}] ", style="dim") + text
        return text

    def _job_line(self, event: JsonObject) -> Text | None:
        name = str(event["event"])
        job_id = event["job_id"]
        if (waits_for := waits_for_in(event)) is not None:
            waits = Text.assemble("  ", (f"{'waits':<10}", COLOURS["queued"]), (f"{job_id:>4}  ", "dim"))
            return waits.append(wait_line(waits_for))
        if name not in _JOB_EVENTS or not isinstance(job_id, int):
            return None
        job = self._history.job(job_id)
        if job.kind == TURN and name in ("succeeded", "failed"):
            return Text("\n  ").join(
                [
                    self._turn_line(job, name),
                    *unmet_lines(_data(event).get("failed_checks")),
                    *warning_lines(_data(event).get("warnings")),
                ]
            )
        state = _JOB_EVENTS[name]
        text = Text("  ")
        text.append(f"{_AS_WORDS.get(name, name):<10}", style=COLOURS.get(state, ""))
        text.append(f"{job.id:>4}  ", style="dim")
        text.append(f"{one_line(job.kind)} {subject(job.json)}".rstrip())
        came = _fact(job, event) if state != "succeeded" else gist(job.result)
        if came:
            text.append(f"  {sentence(shortened(came, 300))}", style="dim" if state == "succeeded" else "")
        return text

    def _turn_line(self, job: Job, name: str) -> Text:
        text = Text(f"turn {job.json['turn']}", style="bold")
        if "corrects" in job.params:
            text = Text.assemble(text, "  corrected")
        if name == "failed":
            text = Text.assemble(text, ("  failed", "red"))
            text.append("; a correction follows  " if self._is_corrected(job) else "  ")
            return text.append(sentence(shortened(_message(job.error), 300)))
        result = job.result or {}
        said = words_of(result)
        if said:
            text = Text.assemble(text, f"  {sentence(shortened(said, _WIDTH))}")
        count = result.get("jobs")
        asked = (
            f"{count} job{'' if count == 1 else 's'}" if isinstance(count, int) else str(result.get("action"))
        )
        return Text.assemble(text, (f"  {one_line(asked)}", "dim"))

    def _is_corrected(self, job: Job) -> bool:
        """True if a corrective turn follows this one."""
        asked = [
            event
            for event in self._history.events(job.mission_id, job_id=job.id)
            if event["event"] == "asked"
        ]
        number = _data(asked[-1]).get("question") if asked else None
        turns = self._history.jobs(mission_id=job.mission_id, kinds=[TURN], newest_first=True)
        return number is not None and any(turn.params.get("corrects") == number for turn in turns)

    def _mission_line(self, event: JsonObject) -> Text | None:
        name = str(event["event"])
        mission_id = event["mission_id"]
        assert isinstance(mission_id, int)
        if name == "launched":
            mission = self._history.mission(mission_id)
            planner = mission.json["planner"]
            return Text.assemble(
                (f"mission {mission.id} {one_line(mission.name)}", "bold"),
                f"  {one_line(mission.root or '')}  planner {one_line(str(planner))}",
                _by_schedule(_data(event)),
            )
        if name.startswith("mission_") and name not in ("mission_goes_on", "mission_waits"):
            status = name.removeprefix("mission_")
            outcome = _data(event).get("outcome")
            if status == "completed":  # also where it was decided on since
                status = status_of(self._history.mission(mission_id).json)
            return Text.assemble(f"mission {mission_id} ", coloured(status), f"  {outcome}")
        if name == "root_accepted":
            return Text(f"mission {mission_id} has root {one_line(str(_data(event).get('root')))}")
        if name == "rules_changed":
            return _rule_line(mission_id, _data(event))
        return Text(f"mission {mission_id} resumed") if name == "resumed" else None

    def _any_line(self, event: JsonObject) -> Text:
        data = "" if event["data"] is None else one_line(shortened(json_line(_data(event)), _WIDTH))
        job = "" if event["job_id"] is None else f"job {event['job_id']}"
        return Text(f"  {event['event']!s:<10}{job}  {data}".rstrip(), style="dim")


def _rule_line(mission_id: int, data: JsonObject) -> Text:
    does = "added" if "added" in data else "removed"
    by = one_line(str(data.get("by")))
    return Text(f"mission {mission_id} rule {does} by {by}: {one_line(json_line(data.get(does)))}")


def warning_lines(warnings: JsonValue) -> list[Text]:
    """Warnings of what was ignored in a planner's reply, the first ones on a line each."""
    told = warnings if isinstance(warnings, list) else []
    shown = [*map(str, told[:_MOST_WARNINGS])]
    if len(told) > len(shown):
        shown.append(f"and {len(told) - len(shown)} more")
    return [
        Text.assemble(("ignored   ", "yellow"), sentence(shortened(warning, _WARNING_WIDTH)))
        for warning in shown
    ]


def unmet_lines(failed_checks: JsonValue) -> list[Text]:
    """Acceptance checks that did not pass when the planner claimed completion, a line each."""
    facts = [str(object_in(check)["fact"]) for check in list_in(failed_checks or [])]
    return [
        Text.assemble(("unmet     ", "yellow"), sentence(shortened(fact, _WARNING_WIDTH))) for fact in facts
    ]


def hung(line: Text, console: Console, mark: str = "  ") -> list[Text]:
    """A line in parts as wide as the terminal, broken between words. Further parts are below its description, or behind
    `mark`, so that no word of a planner is where a line of ours begins.
    """
    first, *rest = line.wrap(console, console.width)
    if not rest:
        return [line]
    hang = DESCRIPTION_COLUMN if line.plain.startswith("  ") and console.width > 2 * DESCRIPTION_COLUMN else 2
    left = line[len(first.plain) :]
    left = left[len(left.plain) - len(left.plain.lstrip(" ")) :]
    indent = Text(mark if hang == 2 else " " * hang)
    return [first, *(indent + part for part in left.wrap(console, console.width - hang))]


def waits_for_in(event: JsonObject) -> JsonObject | None:
    """Reason and end of a turn's wait, as its mission has it in `waits_for`, if the event says so."""
    data = _data(event)
    about = data.get("about")
    if data.get("code") != ReasonCode.ASKED_TO_WAIT or not isinstance(about, dict):
        return None
    return {"code": ReasonCode.ASKED_TO_WAIT.value, **about}


def message_line(event: JsonObject) -> Text:
    """A person's message to a planner, as a line."""
    data = _data(event)
    about = "" if event["job_id"] is None else f" about job {event['job_id']}"
    said = sentence(shortened(str(data.get("text")), 300))
    return Text.assemble(("  said      ", "magenta"), f"{one_line(str(data.get('by')))}{about}: {said}")


def _fact(job: Job, event: JsonObject) -> str:
    reason = _data(event).get("reason")
    if job.error is not None and str(event["event"]) in ("failed", "plan_failed", "refused", "backed_off"):
        return f"{job.error.get('error_code')}: {_message(job.error)}"
    return explain_reason(str(reason)) if reason else ""


def _message(error: Mapping[str, JsonValue] | None) -> str:
    return str((error or {}).get("user_message", ""))


def _by_schedule(launched: JsonObject) -> str:
    if "schedule" not in launched:
        return ""
    missed = f", {launched['missed']} missed before it" if launched.get("missed") else ""
    return f"  by schedule {one_line(str(launched['schedule']))}{missed}"


def _data(event: JsonObject) -> JsonObject:
    data = event["data"]
    return data if isinstance(data, dict) else {}
