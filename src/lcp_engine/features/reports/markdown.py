"""The report of a mission as JSON and as Markdown: what was done, what waits, what the planner said (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lcp_engine.core.json_values import JsonObject, JsonValue, int_in, list_in, object_in
from lcp_engine.core.limits.money import told_cost
from lcp_engine.core.paths.change_history import DiskState
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.summaries import named_path, question_in
from lcp_engine.features.reports.facts import (
    Excerpt,
    Facts,
    FileFact,
    JobFact,
    TurnFact,
    UndoneFact,
)
from lcp_engine.store.queries.records import Mission

RowT = TypeVar("RowT")

_INVALID = "Replies that were not valid"
# With these the summary of the mission is the engine's: its plan ended by rule.
_BY_RULE = ("plan_complete", "plan_incomplete")
# With these the planner's last words are worth reading: the mission goes on, an action of the planner ended it, or its
# plan may have asked the planner.
_OUTCOMES_WITH_WORDS = (None, "mission_complete", "analysis_result", "no_followup_jobs", *_BY_RULE)
_HELPS = "recovery_suggestion"  # the error's lines have it
_WORDS = (
    "attempted_action",
    _HELPS,
    "target_file",
    "issues",
    "recommendations",
    "deliverables",
    "metrics",
)
_DISK_NOTES = {
    DiskState.CHANGED: "; changed since by someone else",
    DiskState.GONE: "; no longer there",
}
# What CommonMark reads as markup; an underscore within a word is not.
_SPECIAL = re.compile(r"[*`\[\]]|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|(?<![^\W_])_|_(?![^\W_])")


def make_report(facts: Facts) -> JsonObject:
    """The report as JSON.

    Everything except `words` comes from the history; only `words` come from the planner (R9). Long lists have their
    first and last rows; `omitted` says how many are left out of which list.
    """
    omitted: JsonObject = {name: rows.omitted for name, rows in _lists(facts).items() if rows.omitted}
    return {
        "mission": facts.mission.json,
        "seconds": _seconds(facts.mission),
        "done": dict(facts.done),
        "turns": [dict(vars(turn)) for turn in facts.turns.rows],
        "invalid_replies": [dict(vars(turn)) for turn in facts.invalid_replies.rows],
        "files": [dict(vars(file)) for file in facts.files.rows],
        "undone": [dict(vars(file)) for file in facts.undone.rows],
        "unfulfilled": [*facts.mission.unfulfilled],
        "waiting": [_job(job) for job in facts.held.rows],
        "failures": [_job(job) for job in facts.failures.rows],
        "limits": list(facts.limits),
        "words": _words(facts),
        "plan_ending": _plan_ending(facts.mission),
        "omitted": omitted,
    }


def as_markdown(facts: Facts) -> str:
    """The report for people."""
    parts = [_head(facts), _quote(facts), *(_section(section) for section in sections(facts))]
    return "\n\n".join(part for part in parts if part) + "\n"


def disk_note(disk: DiskState | None) -> str:
    """A note on a file that is not as the mission left it; empty for any other."""
    return "" if disk is None else _DISK_NOTES.get(disk, "")


@dataclass(frozen=True)
class Section:
    """A list of the report; the lines are Markdown."""

    name: str
    title: str
    lines: Sequence[str]


def sections(facts: Facts) -> list[Section]:
    """The lists of the report that are not empty."""
    number = facts.mission.id
    whole, jobs = f"lcp --json report {number}", f"lcp jobs --mission {number}"
    accepted, declined = (
        [text(check) for check in list_in(facts.mission.metrics.get(name))]
        for name in ("accepted_unmet", "declined_unmet")
    )
    ending = _plan_ending(facts.mission)
    found = [
        Section("plan_ending", "How the plan ended", [text(ending)] if ending else []),
        Section("unfulfilled", "Unfulfilled: asked for and not done", _unfulfilled_lines(facts, jobs)),
        Section("accepted", "Accepted by a person as it is", accepted),
        Section("declined", "Not accepted, because a person said no", declined),
        Section("files", "Files written", _listed(facts.files, _file_line, whole)),
        Section("undone", "Undone", _listed(facts.undone, _undone_line, f"lcp changes {number}")),
        Section(
            "waiting", "Waits for a person", _listed(facts.held, _job_line, f"lcp held --mission {number}")
        ),
        Section(
            "failures",
            "Failed or refused",
            _listed(facts.failures, _job_line, f"{jobs} --state failed --state rejected"),
        ),
        Section("limits", "Limits reached", [text(limit) for limit in facts.limits]),
        Section("invalid_replies", _INVALID, _listed(facts.invalid_replies, _invalid_line, whole)),
        Section("done", "Done", [_done_line(facts)]),
    ]
    return [section for section in found if section.lines]


def _plan_ending(mission: Mission) -> str | None:
    """The engine's sentence on how the plan of the mission ended; None if no rule ended it."""
    return mission.summary if mission.outcome in _BY_RULE else None


def title(mission: Mission) -> str:
    return f"Mission {mission.id}: {text(mission.name)}"


def standing(mission: Mission) -> list[str]:
    """The status of the mission, its goal, and the error that it ended with."""
    outcome = f" ({text(mission.outcome)})" if mission.outcome else ""
    seconds = _seconds(mission)
    after = "" if seconds is None else f" after {seconds:.1f} s"
    root = f" Root: {code(mission.root)}" if mission.root else ""
    turns = f"{mission.turns} turn{'' if mission.turns == 1 else 's'}"
    spent = told_cost(mission.cost)
    cost = "" if spent is None else f" Cost: {text(spent)}."
    lines = [
        f"**{text(mission.status)}**{outcome}{after}, {turns}.{cost}{root}",
        f"Goal: {text(mission.goal)}",
    ]
    return [*lines, *(_sentence(line) for line in error_lines(mission.error))]


def error_lines(error: JsonObject | None) -> list[str]:
    """Lines of an error, with the planner's own code if it named one, and advice; empty without error. Not escaped."""
    if not error:
        return []
    named, own = _plain(error.get("error_code")), object_in(error.get("technical_details")).get("error_code")
    if isinstance(own, str) and own.strip() and own != named:
        named += f" ({_plain(own)})"
    helps = (object_in(action).get("description") for action in list_in(error.get("recommended_actions")))
    return [
        f"{named}: {_plain(error.get('user_message'))}",
        *(f"What helps: {_plain(advice)}" for advice in helps if advice),
    ]


def words(facts: Facts) -> list[str]:
    """The planner's words, line by line; empty if it said nothing."""
    said = _words(facts)
    if not said:
        return []
    spoken = (str(said.get(name) or "").strip() for name in ("summary", "commentary"))
    lines = "\n\n".join(part for part in spoken if part).splitlines()
    for name in _WORDS:
        if said.get(name) and name != _HELPS:
            lines += [*([""] if lines else []), f"{name.replace('_', ' ')}:", *_items(said[name])]
    # Markdown would read a tag as HTML, and hide it.
    shown = [re.sub(r"<(?=[A-Za-z/!?])", r"\<", line).rstrip() for line in lines]
    return [*shown, *_result_lines(facts.mission)] if "result" in said else shown


def text(value: JsonValue) -> str:
    """A value on one line, with Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\g<0>", _plain(value))


def code(value: JsonValue) -> str:
    """A value on one line, as code; backticks in it are kept."""
    plain = _plain(value)
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _sentence(line: str) -> str:
    """Like `text`, with what stands between backticks as code."""
    parts = re.split("(`[^`]+`)", line)
    return "".join(part if at % 2 else _SPECIAL.sub(r"\\\g<0>", part) for at, part in enumerate(parts))


def _lists(facts: Facts) -> dict[str, Excerpt[object]]:
    return {
        "turns": facts.turns,
        "invalid_replies": facts.invalid_replies,
        "files": facts.files,
        "undone": facts.undone,
        "waiting": facts.held,
        "failures": facts.failures,
    }


def _job(job: JobFact) -> JsonObject:
    subject = _subject(job)
    return {
        "id": job.id, "kind": job.kind, "state": job.state, "subject": subject, "reason": job.reason,
        "error": job.error,
    }  # fmt: skip


def _subject(job: JobFact) -> JsonValue:
    named = named_path(job.params)
    return named or question_in(job.params) or job.name


def _words(facts: Facts) -> JsonObject:
    """Last words of the planner."""
    mission, said = facts.mission, facts.said
    if mission.outcome == "error":  # its text is the mission's error
        return {name: said[name] for name in _WORDS if said.get(name)}
    if mission.outcome not in _OUTCOMES_WITH_WORDS:
        return {}
    words = {name: said[name] for name in ("summary", "commentary", *_WORDS) if said.get(name)}
    if mission.summary and mission.outcome not in _BY_RULE:
        words["summary"] = mission.summary
    if mission.result is not None:
        words["result"] = mission.result
    return words


def _seconds(mission: Mission) -> float | None:
    if mission.started_at is None or mission.ended_at is None:
        return None
    return round((mission.ended_at - mission.started_at).total_seconds(), 3)


def _head(facts: Facts) -> str:
    return f"# {title(facts.mission)}\n\n" + "\n\n".join(standing(facts.mission))


def _quote(facts: Facts) -> str:
    """The planner's words, set apart: they are a claim, everything else is history."""
    said = words(facts)
    return "## The planner says\n\n" + "\n".join(f"> {line}".rstrip() for line in said) if said else ""


def _section(section: Section) -> str:
    return f"## {section.title}\n\n" + "\n".join(f"- {line}" for line in section.lines)


def _items(value: JsonValue) -> list[str]:
    if isinstance(value, list):
        return [f"- {_plain(item)}" for item in value]
    if isinstance(value, dict):
        return [f"- {_plain(key)}: {_plain(item)}" for key, item in value.items()]
    return [f"- {_plain(value)}"]


MOST_RESULT_LINES = 60


def _result_lines(mission: Mission) -> list[str]:
    """The mission's result as a block of JSON; of a long one the first lines."""
    lines = json.dumps(mission.result, ensure_ascii=False, indent=2).splitlines()
    left_out = len(lines) - MOST_RESULT_LINES
    more = ["", f"… and {left_out:,} more lines ({code(f'lcp --json show {mission.id}')})"]
    longest = max(len(run) for run in re.findall("`*", "\n".join(lines)))
    fence = "`" * max(3, longest + 1)
    return [
        "",
        "result:",
        "",
        f"{fence}json",
        *lines[:MOST_RESULT_LINES],
        fence,
        *(more if left_out > 0 else []),
    ]


def _listed(excerpt: Excerpt[RowT], line: Callable[[RowT], str], command: str) -> list[str]:
    """A line for each row; if rows are left out, one that says how many, and which command lists them all."""
    lines = [line(row) for row in excerpt.rows]
    if excerpt.omitted:
        lines.insert((len(lines) + 1) // 2, f"… and {excerpt.omitted:,} more ({code(command)})")
    return lines


def _unfulfilled_lines(facts: Facts, command: str) -> list[str]:
    """The jobs whose effect did not happen, and that no later job made good."""
    ids = facts.mission.unfulfilled if facts.mission.status.has_ended else []
    known = {job.id: job for job in (*facts.held.rows, *facts.failures.rows)}
    shown = [known[number] for number in ids if number in known]
    lines = [_unfulfilled_line(job) for job in shown]
    return [*lines, f"{len(ids) - len(shown):,} more ({code(command)})"] if len(shown) < len(ids) else lines


def _unfulfilled_line(job: JobFact) -> str:
    subject = _subject(job)
    about = f" {code(subject)}" if subject else ""
    return (
        f"job {job.id} {text(job.kind)}{about}: {'waits for a person' if job.state == 'held' else job.state}"
    )


def _file_line(file: FileFact) -> str:
    if file.sha256 is None:
        return f"{code(file.path)} deleted (job {file.job_id}){disk_note(file.disk)}"
    if file.path.endswith("/"):
        return f"{code(file.path)} made (job {file.job_id}){disk_note(file.disk)}"
    if file.created:
        how = "created" + ("" if file.changes == 1 else f", changed {_again(file.changes - 1)}")
    else:
        how = "changed" + ("" if file.changes == 1 else f" {file.changes} times")
    size = f"{file.size_bytes} byte{'' if file.size_bytes == 1 else 's'}"
    return f"{code(file.path)} {how}, {size} (job {file.job_id}){disk_note(file.disk)}"


def _again(times: int) -> str:
    return "once more" if times == 1 else f"{times} times more"


def _undone_line(file: UndoneFact) -> str:
    return f"{code(file.path)} by job {file.job_id}"


def _job_line(job: JobFact) -> str:
    error = job.error or {}
    why = text(error.get("user_message") or explain_reason(job.reason or job.state))
    subject = _subject(job)
    about = f" {code(subject)}" if subject else ""
    return f"job {job.id} {text(job.kind)}{about}: {why}"


def _invalid_line(turn: TurnFact) -> str:
    messages = [text(object_in(error).get("message")) for error in turn.errors or ()]
    more = f"; and {len(messages) - 3} more" if len(messages) > 3 else ""
    return f"question {turn.number}: {'; '.join(messages[:3])}{more}"


def _done_line(facts: Facts) -> str:
    counted = ", ".join(f"{count} {text(kind)}" for kind, count in facts.done.items()) or "no job"
    if facts.done_among is None:
        return counted
    total = int_in(object_in(facts.mission.json["jobs"])["succeeded"])
    return f"{total} jobs; of the newest {facts.done_among}: {counted}"


def _plain(value: JsonValue) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    return " ".join(str(value).split())
