"""Report on a mission: what was done, written, refused; what waits; what the planner said (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue

Object = Mapping[str, JsonValue]
Report = dict[str, JsonValue]
TURN_KIND = "agent_plan"
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
_REASONS = {
    "no_worker": "no worker executes this kind",
    "conflict": "the file is not what it was when the change was made",
}


def make_report(
    mission: Object, jobs: Sequence[Object], changes: Sequence[Object], turns: Sequence[Object]
) -> Report:
    """The report as data, from the JSON objects of CONTRACT.md.

    Everything but `words` comes from the history; only words come from the planner (R9).
    """
    return {
        "mission": dict(mission),
        "seconds": _seconds(mission),
        "done": _done(jobs),
        "turns": [_turn(turn) for turn in turns],
        "files": _files(changes),
        "undone": _undone(changes),
        "limits": _limits_reached(mission, turns, jobs),
        "waiting": [_job(job) for job in jobs if job["state"] == "held"],
        "failures": [
            _job(job) for job in jobs if job["state"] in ("failed", "rejected") and job["kind"] != TURN_KIND
        ],
        "words": _words(mission, jobs),
    }


def explain_reason(reason: str) -> str:
    """A job's reason in words, where it is one of the engine's own names for it."""
    return _REASONS.get(reason, reason)


def as_markdown(report: Report) -> str:
    """The report for people."""
    mission = _object(report["mission"])
    parts = [
        _head(mission, report),
        _quote(_object(report["words"])),
        _section("Files written", [_file_line(file) for file in _objects(report["files"])]),
        _section(
            "Undone",
            [f"`{_text(file['path'])}` by job {file['job_id']}" for file in _objects(report["undone"])],
        ),
        _section("Waits for a person", [_job_line(job) for job in _objects(report["waiting"])]),
        _section("Failed or refused", [_job_line(job) for job in _objects(report["failures"])]),
        _section("Limits reached", [_text(limit) for limit in _list(report["limits"])]),
        _section("Replies that were not valid", _bad_replies(_objects(report["turns"]))),
        _section("Done", [_done_line(report)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# -- data


def _done(jobs: Sequence[Object]) -> dict[str, JsonValue]:
    """How many jobs of each kind succeeded."""
    counts: dict[str, int] = {}
    for job in jobs:
        if job["state"] == "succeeded" and job["kind"] != TURN_KIND:
            kind = str(job["kind"])
            counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def _turn(turn: Object) -> JsonValue:
    names = ("number", "turn", "job_id", "action", "errors", "input_tokens", "output_tokens", "latency")
    return {name: turn[name] for name in names}


def _files(changes: Sequence[Object]) -> list[JsonValue]:
    """Each file that was written and not taken back, as its last change left it."""
    last: dict[str, dict[str, JsonValue]] = {}
    for change in changes:
        if change["state"] != "applied" or _is_undone(change):
            continue
        path = str(change["path"])
        earlier = last.get(path)
        created = earlier["created"] if earlier else change["sha256_before"] is None
        count = int(str(earlier["changes"])) + 1 if earlier else 1
        last[path] = {
            "path": path, "created": created, "changes": count, "size_bytes": change["size_bytes"],
            "sha256": change["sha256_after"], "job_id": change["job_id"],
        }  # fmt: skip
    return list(last.values())


def _is_undone(change: Object) -> bool:
    """Whether a change was taken back, or takes one back."""
    return change.get("undoes") is not None or change.get("undone_by") is not None


def _undone(changes: Sequence[Object]) -> list[JsonValue]:
    """Each file that was taken back to what it was, and by which job."""
    undone = {
        str(change["path"]): change["undone_by"]
        for change in changes
        if change.get("undoes") is None and change.get("undone_by") is not None
    }
    return [{"path": path, "job_id": job_id} for path, job_id in undone.items()]


def _limits_reached(mission: Object, turns: Sequence[Object], jobs: Sequence[Object]) -> list[JsonValue]:
    found = [str(turn["last_turn"]) for turn in turns if turn["last_turn"]]
    outcome = str(mission["outcome"] or "")
    if outcome.startswith("limit:"):
        found.append(outcome.removeprefix("limit:"))
    refused = [job for job in jobs if _object(job["error"]).get("error_code") == "LIMIT_REACHED"]
    found += [str(job["reason"] or _object(job["error"]).get("user_message")) for job in refused]
    return list(dict.fromkeys(found))


def _job(job: Object) -> JsonValue:
    params = _object(job["params"])
    subject = next((params[key] for key in ("rel_path", "path", "question") if params.get(key)), job["name"])
    return {
        "id": job["id"], "kind": job["kind"], "state": job["state"], "subject": subject, "reason": job["reason"],
        "error": job["error"],
    }  # fmt: skip


def _words(mission: Object, jobs: Sequence[Object]) -> dict[str, JsonValue]:
    """What the planner said at the end."""
    last = next(
        (job for job in reversed(jobs) if job["kind"] == TURN_KIND and job["state"] == "succeeded"), None
    )
    said = _object(last["result"]) if last else {}
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


def _head(mission: Object, report: Report) -> str:
    outcome = f" ({_text(mission['outcome'])})" if mission["outcome"] else ""
    seconds = report["seconds"]
    after = f" after {seconds:.1f} s" if isinstance(seconds, float) else ""
    turns = _count(mission["turns"], "turn")
    lines = [
        f"# Mission {mission['id']}: {_text(mission['name'])}",
        "",
        f"**{_text(mission['status'])}**{outcome}{after}, {turns}. Root: `{_text(mission['root'])}`",
        "",
        f"Goal: {_text(mission['goal'])}",
    ]
    error = _object(mission["error"])
    if error:
        lines += ["", f"{_text(error.get('error_code'))}: {_text(error.get('user_message'))}"]
    return "\n".join(lines)


def _quote(words: Object) -> str:
    """The planner's words, set apart: they are a claim, the rest is the history."""
    if not words:
        return ""
    lines = str(words.get("summary") or words.get("commentary") or "").strip().splitlines()
    for name in _WORDS:
        if words.get(name):
            lines += ["", f"{name.replace('_', ' ')}:", *_items(words[name])]
    return "## The planner says\n\n" + "\n".join(f"> {line}".rstrip() for line in lines)


def _items(value: JsonValue) -> list[str]:
    if isinstance(value, list):
        return [f"- {_text(item)}" for item in value]
    if isinstance(value, dict):
        return [f"- {_text(key)}: {_text(item)}" for key, item in value.items()]
    return [f"- {_text(value)}"]


def _section(title: str, lines: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def _file_line(file: Object) -> str:
    how = "created" if file["created"] else "changed"
    return f"`{_text(file['path'])}` {how}{_again(file)}, {file['size_bytes']} bytes (job {file['job_id']})"


def _again(file: Object) -> str:
    """How often more a file was changed after its first change."""
    times = int(str(file["changes"]))
    if times == 1:
        return ""
    return (
        ", changed once more"
        if times == 2 and file["created"]
        else (f", changed {times - 1} times more" if file["created"] else f" {times} times")
    )


def _job_line(job: Object) -> str:
    error = _object(job["error"])
    why = _text(error.get("user_message") or explain_reason(str(job["reason"] or job["state"])))
    subject = f" `{_text(job['subject'])}`" if job["subject"] else ""
    return f"job {job['id']} {_text(job['kind'])}{subject}: {why}"


def _bad_replies(turns: Sequence[Object]) -> list[str]:
    return [
        f"question {turn['number']}: {_text(_object(error).get('message'))}"
        for turn in turns
        for error in _list(turn["errors"])[:3]
    ]


def _done_line(report: Report) -> str:
    counts = _object(report["done"])
    return ", ".join(f"{count} {_text(kind)}" for kind, count in counts.items()) or "no job"


def _count(number: JsonValue, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _text(value: JsonValue) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    return " ".join(str(value).split())


def _object(value: JsonValue) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _objects(value: JsonValue) -> list[Object]:
    return [item for item in _list(value) if isinstance(item, dict)]
