"""Define the tables, and the views through which anyone may read history with SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    TextClause,
    text,
)
from sqlalchemy.schema import sort_tables

from lcp_engine.core.job_states import Need, Role, State
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.feature import added, available, is_left_out, is_shipped, load, load_all
from lcp_engine.store.conditions import (
    APPENDED,
    DELAYED,
    LIVE,
    NEXT_TURN,
    OF_SESSION,
    OPEN_SUB_PLAN,
    READY,
    SCHEDULED,
    STATUSES,
    WAITING,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows only in a column whose type is exactly INTEGER.
Id = BigInteger().with_variant(Integer, "sqlite")
Micros = BigInteger


UNFULFILLED = (State.HELD, State.FAILED, State.REJECTED, State.SKIPPED, State.CANCELLED)
"""The states of a job whose effect was refused, failed, or still waits for a person."""


DECISIONS = "event IN ('decided', 'consented')"
"""Events that are decisions of people, or of holds that expired."""


def one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    """No IN: for each row written, SQLite would copy a longer list into a temporary table."""
    return CheckConstraint(" OR ".join(f"{column} = '{value}'" for value in values), name=column)


def partial_index(name: str, *columns: str | TextClause, where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


def counter(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _kept_by_the_ledger(column: str, parent: str) -> ForeignKeyConstraint:
    """A reference that PostgreSQL does not check for each row, which took a third of its time per job.

    The ledger writes such a row while it holds the lock of its mission; `lcp db check` checks them all.
    """
    return ForeignKeyConstraint([column], [parent], info={"dialect": "sqlite"}).ddl_if(dialect="sqlite")


missions = Table(
    "missions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uid", Text, nullable=False, unique=True),
    Column("key", Text, unique=True),
    Column("name", Text, nullable=False),
    Column("goal", Text, nullable=False),
    Column("root", Text),
    Column("planner", Text),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("outcome", Text),
    Column("summary", Text),
    Column("deliverables", Text),
    Column("metrics", Text),
    Column("error", Text),
    counter("turns"),
    counter("questions"),
    counter("input_tokens"),
    counter("output_tokens"),
    Column("bytes_written", BigInteger, nullable=False, server_default=text("0")),
    counter("requested"),
    counter("events"),
    counter("changed_seq"),
    *(counter(state.value) for state in State),
    Column("root_plan", Id),
    Column("asking", Id),
    Column("ran", Micros, nullable=False, server_default=text("0")),
    Column("running_since", Micros),
    Column("created_at", Micros, nullable=False),
    Column("started_at", Micros),
    Column("ended_at", Micros),
    Column("pruned_at", Micros),
    Column("schedule", Text),
    Column("root_identity", Text),
    Column("session_id", Text),
    Column("user_id", Text),
    Column("result", Text),
    Column("target_file", Text),
    Column("issues", Text),
    Column("recommendations", Text),
    Column("cost", Text),
    Column("currency", Text),
    counter("unpriced"),
    Column("served_at", Micros),
    Column("assessment", Text),
    one_of("status", STATUSES),
    partial_index("ix_missions_scheduled", "schedule", where=SCHEDULED),
    partial_index("ix_missions_session", "session_id", where=OF_SESSION),
)
"""`events`, `requested` and the count of jobs in each state are kept by the transactions that change them. Of a mission
that was pruned only this row is left: ids and keys are never used again. `schedule` is the name of the schedule that
launched it, which may be gone by now. `root_identity` says which directory the root was at the launch, if that is
known. `session_id` and `user_id` are those of the request that it is for. `result`, `target_file`, `issues`,
`recommendations` and `assessment` are those of the reply that completed it. `cost` is the sum of those of its turns, an
exact decimal in `currency`; `unpriced` counts the questions that cost tokens and had no price in that currency.
`served_at`: when a claim last took jobs of it, so that missions take turns; later than that if several began in one
microsecond."""

plans = Table(
    "plans",
    metadata,
    Column("id", Id, primary_key=True),
    Column("mission_id", ForeignKey("missions.id"), nullable=False, index=True),
    Column("job_id", Id, index=True),
    Column("parent_id", Id),
    counter("depth"),
    counter("open"),
    counter("held"),
    counter("asked_seq"),
    counter("corrections"),
    counter("stalled"),
    counter("refused"),
    Column("outcome", Text),
    counter("clarifications"),
    counter("verifications"),
    Column("stated", Text),
    Column("on_failure", Text),
    Column("failed_job", Id),
    partial_index("ix_plans_open", "mission_id", "id", where=OPEN_SUB_PLAN),
)
"""A first `agent_plan` and its continuations (R12); `open` counts its jobs that are queued, running or blocked.

A plan that the mission states has its name in `stated`, what a failed step does to it in `on_failure`, and the first
step whose failure nothing handled in `failed_job`."""


jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("mission_id", ForeignKey("missions.id"), nullable=False),
    Column("plan_id", Id),
    Column("turn", Integer),
    Column("parent_id", Id),
    Column("name", Text),
    Column("kind", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("auto_dispatch", SmallInteger),
    Column("role", Text, nullable=False, server_default=text("'work'")),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("fingerprint", Text),
    Column("approved", Integer, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("deaths", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False, server_default=text("1")),
    Column("run_after", Micros),
    Column("runner_id", Id),
    Column("created_at", Micros, nullable=False),
    Column("started_at", Micros),
    Column("ended_at", Micros),
    Column("settled_seq", Integer),
    Column("result", Text),
    Column("error", Text),
    Column("waits_for", Id),
    Column("held_until", Micros),
    Column("result_sha256", Text),
    Column("effect", Text),
    counter("followers"),
    Column("terms", Text),
    Column("limited_by", Text),
    one_of("state", tuple(State)),
    one_of("role", tuple(Role)),
    partial_index("ix_jobs_ready", text("priority DESC"), "mission_id", "id", where=READY),
    partial_index("ix_jobs_due", "run_after", where=DELAYED),
    partial_index("ix_jobs_waiting", "limited_by", text("priority DESC"), "mission_id", "id", where=WAITING),
    partial_index("ix_jobs_running", "runner_id", where="state = 'running'"),
    partial_index("ix_jobs_live", "mission_id", "id", where=LIVE),
    partial_index("ix_jobs_next_turn", "mission_id", "id", where=NEXT_TURN),
    partial_index("ix_jobs_expiring", "held_until", where="state = 'held'"),
    partial_index("ix_jobs_settled", "plan_id", "settled_seq", where="plan_id IS NOT NULL"),
    partial_index("ix_jobs_result_sha256", "result_sha256", where="result_sha256 IS NOT NULL"),
    partial_index("ix_jobs_fingerprint", "mission_id", "fingerprint", where="fingerprint IS NOT NULL"),
)
"""`role`: `turn` asks a question of its plan, `step` begins a plan of its own, the rest is `work`. `approved`: 0, or
the first attempt after a person approved the job. `waits_for`: how many of the job's edges are not fulfilled; NULL for
one that has none. `followers`: how many edges begin at it. `terms`: what a plan says
of the job of a step, as JSON.
`held_until`: when a held job is rejected without a decision. `result_sha256`: the hash of a large result, which is
then not in `result`. `effect`: what a job that a planner requested has an effect on: the files, each as `/` and its
path in the root, or the fingerprint of a job that names none; NULL for a job without effects. `limited_by`: the name of
the limit that had no permit for it."""


server_waits = Table(
    "server_waits",
    metadata,
    Column("name", Text, primary_key=True),
    Column("until", Micros, nullable=False),
    sqlite_with_rowid=False,
)
"""Until when planners ask a server no question, because it asked to wait (R34). `name` is the server and what it counts
requests by, such as an endpoint with a hash that tells its keys apart."""

edges = Table(
    "edges",
    metadata,
    Column("after_id", Id, primary_key=True),
    Column("job_id", Id, primary_key=True, index=True),
    Column("needs", Text, nullable=False),
    one_of("needs", tuple(Need)),
    sqlite_with_rowid=False,
)
"""The steps of a plan that follow others: job `job_id` may run once job `after_id` has ended as it `needs`."""

results = Table(
    "results",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
)
"""Large results by the hash of their UTF-8; `size` in bytes. Not compressed: the views show them."""

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", Id, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("runner_id", Id),
    Column("started_at", Micros, nullable=False),
    Column("ended_at", Micros, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error", Text),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("stderr", Text),
    _kept_by_the_ledger("job_id", "jobs.id"),
    Index("ix_attempts_ended_at", "ended_at", "outcome"),
    sqlite_with_rowid=False,
)
"""Attempts that ended. Tokens: what was paid for a question that got no reply; those of a reply are in `turns`.
`stderr`: the end of what the program of an attempt that succeeded wrote there; of one that failed it is in `error`."""

reviews = Table(
    "reviews",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("person", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("path", Text),
    Column("sha256", Text),
    Column("at", Micros, nullable=False),
    sqlite_with_rowid=False,
)
"""What a person last saw of a held job: its params (by fingerprint), and the file that it would change, whose hash is
NULL where there is none. The person '' is for the moment when the job was held."""


viewed_files = Table(
    "viewed_files",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("person", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("was_seen", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What a person has viewed of the files of held jobs, by a hash of what was shown, and whether all of that had been on
the screen."""

approvals = Table(
    "approvals",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("person", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("path", Text),
    Column("sha256", Text),
    Column("at", Micros, nullable=False),
    sqlite_with_rowid=False,
)
"""What a person said yes to: like a review; `attempt` is the first one that it allows."""


events = Table(
    "events",
    metadata,
    Column("mission_id", Id, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("job_id", Id),
    Column("at", Micros, nullable=False),
    Column("event", Text, nullable=False),
    Column("data", Text),
    _kept_by_the_ledger("mission_id", "missions.id"),
    partial_index("ix_events_decisions", "at", "mission_id", "seq", where=DECISIONS),
    sqlite_with_rowid=False,
)

turns = Table(
    "turns",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("turn", Integer, nullable=False),
    Column("plan_id", Id, nullable=False),
    Column("job_id", Id, nullable=False, unique=True),
    Column("corrects", Integer),
    Column("last_turn", Text),
    Column("after_seq", Integer, nullable=False),
    Column("until_seq", Integer, nullable=False),
    Column("asked_at", Micros, nullable=False),
    Column("replied_at", Micros),
    Column("prompt", Text),
    Column("reply", Text),
    Column("action", Text),
    Column("errors", Text),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("latency", Float),
    Column("warnings", Text),
    Column("memories", Text),
    Column("completions", Text),
    Column("until_ran", Micros),
    Column("cost", Text),
    Column("currency", Text),
    Column("waits_since", Micros),
    Column("waits_until", Micros),
    partial_index(
        "ix_turns_replied_at",
        *("replied_at", "input_tokens", "output_tokens", "cost", "currency"),
        where="input_tokens IS NOT NULL",
    ),
)
"""Questions and their replies; a reply is stored before it is read, and the first one wins (R21). `memories`: the
entries of memory that the question was asked with, as JSON. `completions`: the requests to a model that it took, those
of attempts without a reply included, as JSON. `until_ran`: how long the mission may have run when the reply to its last
question comes. `cost` is by the prices of the time, an exact decimal in `currency`. `waits_since` is when its server
first asked to wait, `waits_until` the `run_after` that its job got last for that reason."""

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("base", Text),
    partial_index("ix_blobs_base", "base", where=APPENDED),
)
"""Contents by their hash, compressed with zlib. With a `base`, `data` is only what follows the content of that hash."""

changes = Table(
    "changes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("mission_id", ForeignKey("missions.id"), nullable=False, index=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("root", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("file", Text, nullable=False, index=True),
    Column("mode", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("sha256_before", ForeignKey("blobs.sha256"), index=True),
    Column("sha256_after", Text),
    Column("size_bytes", BigInteger, nullable=False),
    Column("temporary", Text, nullable=False),
    Column("made", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("intended_at", Micros, nullable=False),
    Column("closed_at", Micros),
    Column("undoes", Id),
    Column("root_identity", Text),
    Column("staged", SmallInteger),
    one_of("state", ("intent", "applied", "void", "conflict")),
    partial_index("ix_changes_open", "file", where="state = 'intent'"),
)
"""File effects: what was intended, on what, and whether it happened (R20). `file` is `path` beneath `root`, absolute:
roots may overlap. A hash is NULL where there is no file. `undoes` is the change that this one takes back.
`root_identity` says which directory `root` was, and on which machine: a path means another file on another one. Older
rows have none; theirs is that of their mission. `staged` is 1 for one in a stage, which is none of the root's; else
NULL."""


stages = Table(
    "stages",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("machine", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("root_identity", Text, nullable=False),
    Column("made_at", Micros, nullable=False),
    sqlite_with_rowid=False,
)
"""The stages that are in use: the private copy of its root that a mission works in, on which machine it is, and which
directory. Another process finds it by this row, so that a copy without one is left over."""

runners = Table(
    "runners",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uid", Text, nullable=False, unique=True),
    Column("host", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Micros, nullable=False),
    Column("alive_until", Micros, nullable=False),
    Column("ended_at", Micros),
    Column("silent_roots", Text, nullable=False, server_default=text("'[]'")),
    Column("passed", Id, nullable=False, server_default=text("0")),
)
"""Processes that execute jobs; all leases of a runner last until `alive_until` (R17). `silent_roots` lists the
directories whose file systems do not answer it. `passed`: the last mission that its claims have come to, where more
have ready jobs than a claim compares; otherwise 0."""


network_roots = Table(
    "network_roots",
    metadata,
    Column("root", Text, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("since", Micros, nullable=False),
    sqlite_with_rowid=False,
)
"""Which machine writes to a root whose file system other machines share: their locks may not exclude each other."""


_OWN = tuple(metadata.tables.values())


def every_table() -> Sequence[Table]:
    """Tables of the kernel and of the features of this package, each after those that it refers to."""
    return sort_tables([*_OWN, *(load(place, Table) for place, _ in added().tables.values())])


def tables_of_packages() -> Iterator[tuple[str, Table]]:
    """Tables of other packages with their places, if something has looked for packages; broken ones are left out."""
    stated = [place for place, _ in available().tables.values() if not is_shipped(place)]
    return (one for one in load_all(stated, Table) if not is_left_out(one[0]))


@dataclass(frozen=True)
class View:
    """A view. In its body `{time:C}` is column C as ISO 8601 text, `{object:K=V,…}` a JSON object, `{limits}` the
    limits of a mission, `{unfulfilled}` its effects that did not happen, `{open}` how many jobs it left when it ended,
    `{waits_for}` what its question waits for, `{attempts}` the attempts of a job.
    """

    name: str
    body: str

    def create(self, is_sqlite: bool) -> str:
        """The CREATE VIEW of one dialect."""
        body = self.body.replace("{attempts}", _attempts(is_sqlite))
        body = body.replace("{limits}", _limits(is_sqlite))
        body = body.replace("{unfulfilled}", _unfulfilled(is_sqlite))
        body = body.replace("{open}", _open(is_sqlite))
        body = body.replace("{waits_for}", _waits_for(is_sqlite))
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


def _unfulfilled(is_sqlite: bool) -> str:
    """The ids of jobs with an effect that did not happen, and that no later job made good (R26)."""
    ids = "json_group_array(u.id)" if is_sqlite else "coalesce(json_agg(u.id ORDER BY u.id), '[]')::text"
    return _of_unfulfilled(is_sqlite, ids, "'[]'")


def _open(is_sqlite: bool) -> str:
    """The number of jobs that a mission left unfulfilled or held when it ended; 0 before."""
    settled = _of_unfulfilled(
        is_sqlite, "count(*)", "0", states=[one for one in UNFULFILLED if one != State.HELD]
    )
    return f"CASE WHEN m.ended_at IS NULL THEN 0 ELSE m.held + {settled} END"


def _of_unfulfilled(
    is_sqlite: bool, chosen: str, nothing: str, *, states: Sequence[State] = UNFULFILLED
) -> str:
    """SQL that selects `chosen` from the unfulfilled jobs in these states; `nothing` where there are none."""
    accepts = "json_extract(m.spec, '$.unfulfilled')" if is_sqlite else "(m.spec::json ->> 'unfulfilled')"
    # By the index of fingerprints, the only one that finds the jobs that the planner of a mission requested.
    requested = "j.mission_id = m.id AND j.fingerprint IS NOT NULL AND j.effect IS NOT NULL"
    # A plan skips steps by its own rules: what they would have done is not missing.
    requested += " AND NOT (j.terms IS NOT NULL AND j.state = 'skipped')"
    last = "max(CASE WHEN j.state = 'succeeded' THEN j.{0} ELSE 0 END) OVER (PARTITION BY j.effect)"
    wanted = ", ".join(f"'{state}'" for state in states)
    # One pass with windows: SQLite would evaluate a join with the succeeded jobs anew for each of the others.
    return f"""CASE WHEN {" + ".join(f"m.{state}" for state in states)} = 0 OR {accepts} = 'accept' THEN {nothing}
    ELSE (SELECT {chosen} FROM (
        SELECT w.id FROM (
            SELECT j.id, j.state, j.settled_seq, {last.format("id")} AS good_id,
                {last.format("settled_seq")} AS good_seq
            FROM jobs j WHERE {requested}
        ) w
        WHERE w.state IN ({wanted}) AND w.good_id < w.id AND (w.settled_seq IS NULL OR w.good_seq < w.settled_seq)
        ORDER BY w.id
    ) u) END"""


def _waits_for(is_sqlite: bool) -> str:
    """The code of what the question of a mission waits for, and until when; NULL if it does not wait (R34)."""
    made = "json_object" if is_sqlite else "json_build_object"
    value = f"{made}('code', '{ReasonCode.ASKED_TO_WAIT}', 'until', {_time('t.waits_until', is_sqlite)})"
    return f"""(SELECT {value}{"" if is_sqlite else "::text"} FROM turns t JOIN jobs j ON j.id = t.job_id
    WHERE t.job_id = m.asking AND j.state = 'queued' AND j.run_after = t.waits_until)"""


def _attempts(is_sqlite: bool) -> str:
    names = (
        "'attempt', a.attempt, 'outcome', a.outcome, 'runner_id', a.runner_id, "
        "'input_tokens', a.input_tokens, 'output_tokens', a.output_tokens, 'stderr', a.stderr, 'error', "
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
    {time:j.started_at} AS started_at, {time:j.ended_at} AS ended_at, j.limited_by,
    coalesce(j.result, (SELECT r.text FROM results r WHERE r.sha256 = j.result_sha256)) AS result, j.error,
    {attempts} AS attempts
"""

VIEWS = (
    View(
        "mission_overview",
        f"""
SELECT m.id, m.uid, m.name, m.goal, m.root, m.planner, m.status, m.outcome, m.summary, m.deliverables, m.metrics,
    m.error, {{limits}} AS limits, m.turns, {{object:{_COUNTS}}} AS jobs,
    {{unfulfilled}} AS unfulfilled, {{object:input=m.input_tokens, output=m.output_tokens}} AS tokens,
    {{time:m.created_at}} AS created_at, {{time:m.started_at}} AS started_at, {{time:m.ended_at}} AS ended_at,
    m.session_id, m.user_id, m.result, m.target_file, m.issues, m.recommendations,
    {{object:amount=m.cost, currency=m.currency, unpriced=m.unpriced}} AS cost, {{waits_for}} AS waits_for,
    {{open}} AS open, m.assessment
FROM missions m WHERE m.pruned_at IS NULL
""",
    ),
    View("job_history", f"SELECT {_JOB} FROM jobs j"),
    View("held_jobs", f"SELECT {_JOB} FROM jobs j WHERE j.state = 'held'"),
    View(
        "attempt_history",
        """
SELECT a.job_id, j.mission_id, j.kind, a.attempt, a.outcome, a.runner_id, r.host, r.pid, a.error, a.input_tokens,
    a.output_tokens, a.stderr,
    {time:a.started_at} AS started_at, {time:a.ended_at} AS ended_at,
    (a.ended_at - a.started_at) / 1000000.0 AS seconds
FROM attempts a JOIN jobs j ON j.id = a.job_id LEFT JOIN runners r ON r.id = a.runner_id
""",
    ),
    View(
        "turn_history",
        """
SELECT t.mission_id, t.number, t.turn, t.job_id, t.corrects, t.last_turn, t.prompt, t.reply, t.action, t.errors,
    t.warnings, t.input_tokens, t.output_tokens, t.latency, {time:t.asked_at} AS asked_at,
    {time:t.replied_at} AS replied_at, t.completions,
    {object:amount=t.cost, currency=t.currency} AS cost
FROM turns t
""",
    ),
    View(
        "change_history",
        """
SELECT c.id, c.mission_id, c.job_id, c.attempt, c.root, c.path, c.mode, c.state, c.sha256_before, c.sha256_after,
    c.size_bytes, {time:c.intended_at} AS intended_at, {time:c.closed_at} AS closed_at, c.undoes, c.staged
FROM changes c
""",
    ),
    View(
        "event_history",
        "SELECT e.mission_id, e.seq, e.job_id, {time:e.at} AS at, e.event, e.data FROM events e",
    ),
)
