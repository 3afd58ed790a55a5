"""Report on a mission: what was done, written, refused; what waits; what the planner said (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from lcp_engine.store.queries.mission_facts import Excerpt, Facts, Object

Report = dict[str, JsonValue]
TURN_KIND = "agent_plan"
_INVALID = "Replies that were not valid"
# How a mission stands when what the planner said last is worth reading: it goes on, or an action of its own ended it.
_IN_WORDS = (None, "mission_complete", "analysis_result", "no_followup_jobs")
_WORDS = (
    "attempted_action",
    "recovery_suggestion",
    "target_file",
    "issues",
    "recommendations",
    "deliverables",
    "metrics",
)
_FATES = {"changed_since": "; changed since by someone else", "gone": "; no longer there"}
_REASONS = {
    "no_worker": "no worker executes this kind",
    "drift": "the file has changed since this was approved",
    "conflict": "the file is not what it was when the change was made",
    "step_order": "the step before it has not succeeded yet",
    "turn_order": "another turn is asked before it",
}
# What CommonMark would take for markup; an underscore within a word is none.
_SPECIAL = re.compile(r"[*`\[\]]|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|(?<![^\W_])_|_(?![^\W_])")


def make_report(facts: Facts) -> Report:
    """The report as data.

    Everything but `words` comes from the history; only words come from the planner (R9). Long lists have their first
    and last rows; `omitted` says how many of which are left out.
    """
    lists: dict[str, Excerpt] = {
        "turns": facts.turns,
        "invalid_replies": facts.invalid_replies,
        "files": facts.files,
        "undone": facts.undone,
        "waiting": facts.held,
        "failures": facts.failures,
    }
    jobs = ("waiting", "failures")
    rows: Report = {
        name: [_job(row) if name in jobs else dict(row) for row in of.rows] for name, of in lists.items()
    }
    return {
        "mission": dict(facts.mission),
        "seconds": _seconds(facts.mission),
        "done": dict(facts.done),
        **rows,
        "limits": list(facts.limits),
        "words": _words(facts.mission, facts.said),
        "omitted": {name: of.omitted for name, of in lists.items() if of.omitted},
    }


def explain_reason(reason: str) -> str:
    """A job's reason in words, where it is one of the engine's own names for it."""
    return _REASONS.get(reason, reason)


def as_markdown(report: Report) -> str:
    """The report for people."""
    parts = [head(report), _quote(report), *(_section(section) for section in sections(report))]
    return "\n\n".join(part for part in parts if part) + "\n"


@dataclass(frozen=True)
class Section:
    """A list of the report; the lines are Markdown."""

    name: str
    title: str
    lines: Sequence[str]


def sections(report: Report) -> list[Section]:
    """The lists of the report that are not empty."""
    mission = _object(report["mission"])
    number, accepted = mission["id"], _list(_object(mission.get("metrics")).get("accepted_unmet"))
    whole, jobs = f"lcp --json report {number}", f"lcp jobs --mission {number}"

    def listed(name: str, title: str, line: Callable[[Object], str], command: str) -> Section:
        return Section(name, title, _listed(report, name, line, command))

    found = [
        Section("accepted", "Accepted by a person as it is", [text(check) for check in accepted]),
        listed("files", "Files written", _file_line, whole),
        listed("undone", "Undone", _undone_line, f"lcp changes {number}"),
        listed("waiting", "Waits for a person", _job_line, f"lcp held --mission {number}"),
        listed("failures", "Failed or refused", _job_line, f"{jobs} --state failed --state rejected"),
        Section("limits", "Limits reached", [text(limit) for limit in _list(report["limits"])]),
        listed("invalid_replies", _INVALID, _invalid_line, whole),
        Section("done", "Done", [_done_line(report)]),
    ]
    return [section for section in found if section.lines]


# -- data


def _job(job: Object) -> JsonValue:
    params = _object(job["params"])
    subject = next((params[key] for key in ("rel_path", "path", "question") if params.get(key)), job["name"])
    return {
        "id": job["id"], "kind": job["kind"], "state": job["state"], "subject": subject, "reason": job["reason"],
        "error": job["error"],
    }  # fmt: skip


def _words(mission: Object, said: Object) -> dict[str, JsonValue]:
    """What the planner said at the end."""
    if mission["outcome"] == "error":  # its text is the mission's error already
        return {name: said[name] for name in _WORDS if said.get(name)}
    if mission["outcome"] not in _IN_WORDS:
        return {}
    words = {name: said[name] for name in ("summary", "commentary", *_WORDS) if said.get(name)}
    if mission["summary"]:
        words["summary"] = mission["summary"]
    return words


def _seconds(mission: Object) -> float | None:
    if not mission["started_at"] or not mission["ended_at"]:
        return None
    began, ended = (datetime.fromisoformat(str(mission[name])) for name in ("started_at", "ended_at"))
    return round((ended - began).total_seconds(), 3)


# -- text


def head(report: Report) -> str:
    """What the mission is and how it stands."""
    mission = _object(report["mission"])
    return f"# {title(mission)}\n\n" + "\n\n".join(standing(report))


def title(mission: Object) -> str:
    return f"Mission {mission['id']}: {text(mission['name'])}"


def standing(report: Report) -> list[str]:
    """How the mission stands, its goal, and the error that it ended with."""
    mission = _object(report["mission"])
    outcome = f" ({text(mission['outcome'])})" if mission["outcome"] else ""
    seconds = report["seconds"]
    after = f" after {seconds:.1f} s" if isinstance(seconds, float) else ""
    root = f" Root: {code(mission['root'])}" if mission["root"] else ""
    lines = [
        f"**{text(mission['status'])}**{outcome}{after}, {_count(mission['turns'], 'turn')}.{root}",
        f"Goal: {text(mission['goal'])}",
    ]
    error = _object(mission["error"])
    if error:
        lines.append(f"{text(error.get('error_code'))}: {text(error.get('user_message'))}")
    return lines


def words(report: Report) -> list[str]:
    """The planner's words, line by line; empty where it said nothing."""
    said = _object(report["words"])
    if not said:
        return []
    lines = str(said.get("summary") or said.get("commentary") or "").strip().splitlines()
    for name in _WORDS:
        if said.get(name):
            lines += ["", f"{name.replace('_', ' ')}:", *_items(said[name])]
    # A tag would be taken for HTML, and vanish.
    return [re.sub(r"<(?=[A-Za-z/!?])", r"\<", line).rstrip() for line in lines]


def text(value: JsonValue) -> str:
    """A value on one line of Markdown, where it means nothing but itself."""
    return _SPECIAL.sub(r"\\\g<0>", _plain(value))


def code(value: JsonValue) -> str:
    """A value on one line, as code; backticks within it stay what they are."""
    plain = _plain(value)
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _quote(report: Report) -> str:
    """The planner's words, set apart: they are a claim, the rest is the history."""
    said = words(report)
    return "## The planner says\n\n" + "\n".join(f"> {line}".rstrip() for line in said) if said else ""


def _items(value: JsonValue) -> list[str]:
    if isinstance(value, list):
        return [f"- {_plain(item)}" for item in value]
    if isinstance(value, dict):
        return [f"- {_plain(key)}: {_plain(item)}" for key, item in value.items()]
    return [f"- {_plain(value)}"]


def _section(section: Section) -> str:
    return f"## {section.title}\n\n" + "\n".join(f"- {line}" for line in section.lines)


def _listed(report: Report, name: str, line: Callable[[Object], str], command: str) -> list[str]:
    """A line for each row, and one where rows are left out: how many, and what lists them all."""
    lines = [line(row) for row in _objects(report[name])]
    omitted = _object(report["omitted"]).get(name)
    if isinstance(omitted, int):
        lines.insert((len(lines) + 1) // 2, f"… and {omitted:,} more ({code(command)})")
    return lines


def _file_line(file: Object) -> str:
    times = int(str(file["changes"]))
    if file["created"]:
        how = "created" + ("" if times == 1 else f", changed {_again(times - 1)}")
    else:
        how = "changed" + ("" if times == 1 else f" {times} times")
    return f"{code(file['path'])} {how}, {file['size_bytes']} bytes (job {file['job_id']}){fate(file)}"


def fate(file: Object) -> str:
    """What became of a file that the mission wrote, where somebody looked (`disk`) and it is not as it was left."""
    return _FATES.get(str(file.get("disk")), "")


def _again(times: int) -> str:
    return "once more" if times == 1 else f"{times} times more"


def _undone_line(file: Object) -> str:
    return f"{code(file['path'])} by job {file['job_id']}"


def _job_line(job: Object) -> str:
    error = _object(job["error"])
    why = text(error.get("user_message") or explain_reason(str(job["reason"] or job["state"])))
    subject = f" {code(job['subject'])}" if job["subject"] else ""
    return f"job {job['id']} {text(job['kind'])}{subject}: {why}"


def _invalid_line(turn: Object) -> str:
    messages = [text(_object(error).get("message")) for error in _list(turn["errors"])]
    more = f"; and {len(messages) - 3} more" if len(messages) > 3 else ""
    return f"question {turn['number']}: {'; '.join(messages[:3])}{more}"


def _done_line(report: Report) -> str:
    counts = _object(report["done"])
    return ", ".join(f"{count} {text(kind)}" for kind, count in counts.items()) or "no job"


def _count(number: JsonValue, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _plain(value: JsonValue) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    return " ".join(str(value).split())


def _object(value: JsonValue) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _objects(value: JsonValue) -> list[Object]:
    return [item for item in _list(value) if isinstance(item, dict)]
