"""Define the views: history as anyone may read it with SQL (CONTRACT.md, database)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lcp_engine.core.job_states import State


@dataclass(frozen=True)
class View:
    """A view. In its body `{time:C}` is column C as ISO 8601 text, `{object:K=V,…}` a JSON object, `{limits}` the
    limits of a mission, `{attempts}` the attempts of a job.
    """

    name: str
    body: str

    def create(self, is_sqlite: bool) -> str:
        """The CREATE VIEW of one dialect."""
        body = self.body.replace("{attempts}", _attempts(is_sqlite))
        body = body.replace("{limits}", _limits(is_sqlite))
        body = re.sub(r"\{object:([^}]*)\}", lambda match: _object(match[1], is_sqlite), body)
        body = re.sub(r"\{time:([^}]*)\}", lambda match: _time(match[1], is_sqlite), body)
        return f"CREATE VIEW {self.name} AS {body.strip()}"


def _time(column: str, is_sqlite: bool) -> str:
    if is_sqlite:
        seconds = f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        return f"{seconds} || printf('.%06d+00:00', {column} % 1000000)"
    return (
        f"to_char(to_timestamp({column} / 1000000.0) AT TIME ZONE 'UTC', "
        "'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00'"
    )


def _object(pairs: str, is_sqlite: bool) -> str:
    items = ", ".join("'{}', {}".format(*pair.strip().split("=", 1)) for pair in pairs.split(","))
    return f"json_object({items})" if is_sqlite else f"json_build_object({items})::text"


def _limits(is_sqlite: bool) -> str:
    return "json_extract(m.spec, '$.limits')" if is_sqlite else "(m.spec::json -> 'limits')::text"


def _attempts(is_sqlite: bool) -> str:
    names = (
        "'attempt', a.attempt, 'outcome', a.outcome, 'runner_id', a.runner_id, "
        "'input_tokens', a.input_tokens, 'output_tokens', a.output_tokens, 'error', "
    )
    times = f"'started_at', {_time('a.started_at', is_sqlite)}, 'ended_at', {_time('a.ended_at', is_sqlite)}"
    if is_sqlite:
        each = f"json_object({names} json(a.error), {times})"
        return f"(SELECT json_group_array({each}) FROM attempts a WHERE a.job_id = j.id)"
    each = f"json_build_object({names} a.error::json, {times})"
    return f"(SELECT coalesce(json_agg({each} ORDER BY a.attempt), '[]')::text FROM attempts a WHERE a.job_id = j.id)"


_COUNTS = ", ".join(f"{state.value}=m.{state.value}" for state in State)
_JOB = """
    j.id, j.mission_id, j.turn, j.parent_id, j.name, j.kind, j.params, j.auto_dispatch, j.state, j.reason, j.priority,
    j.attempt, j.max_attempts, {time:j.run_after} AS run_after, {time:j.created_at} AS created_at,
    {time:j.started_at} AS started_at, {time:j.ended_at} AS ended_at,
    coalesce(j.result, (SELECT r.text FROM results r WHERE r.sha256 = j.result_sha256)) AS result, j.error,
    {attempts} AS attempts
"""

VIEWS = (
    View(
        "mission_overview",
        f"""
SELECT m.id, m.uid, m.name, m.goal, m.root, m.planner, m.status, m.outcome, m.summary, m.deliverables, m.metrics,
    m.error, {{limits}} AS limits, m.turns, {{object:{_COUNTS}}} AS jobs,
    {{object:input=m.input_tokens, output=m.output_tokens}} AS tokens,
    {{time:m.created_at}} AS created_at, {{time:m.started_at}} AS started_at, {{time:m.ended_at}} AS ended_at
FROM missions m WHERE m.pruned_at IS NULL
""",
    ),
    View("job_history", f"SELECT {_JOB} FROM jobs j"),
    View("held_jobs", f"SELECT {_JOB} FROM jobs j WHERE j.state = 'held'"),
    View(
        "attempt_history",
        """
SELECT a.job_id, j.mission_id, j.kind, a.attempt, a.outcome, a.runner_id, r.host, r.pid, a.error, a.input_tokens,
    a.output_tokens,
    {time:a.started_at} AS started_at, {time:a.ended_at} AS ended_at,
    (a.ended_at - a.started_at) / 1000000.0 AS seconds
FROM attempts a JOIN jobs j ON j.id = a.job_id LEFT JOIN runners r ON r.id = a.runner_id
""",
    ),
    View(
        "turn_history",
        """
SELECT t.mission_id, t.number, t.turn, t.job_id, t.corrects, t.last_turn, t.prompt, t.reply, t.action, t.errors,
    t.input_tokens, t.output_tokens, t.latency, {time:t.asked_at} AS asked_at, {time:t.replied_at} AS replied_at
FROM turns t
""",
    ),
    View(
        "change_history",
        """
SELECT c.id, c.mission_id, c.job_id, c.attempt, c.root, c.path, c.mode, c.state, c.sha256_before, c.sha256_after,
    c.size_bytes, {time:c.intended_at} AS intended_at, {time:c.closed_at} AS closed_at, c.undoes
FROM changes c
""",
    ),
    View(
        "event_history",
        "SELECT e.mission_id, e.seq, e.job_id, {time:e.at} AS at, e.event, e.data FROM events e",
    ),
)
