"""Store which stages are in use, and find those that no mission needs any more (R28)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, text

from lcp_engine.sandbox.root_identity import KnownRoot, RootIdentity
from lcp_engine.store.conditions import IS_OVER
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.missions import is_over
from lcp_engine.store.schema import stages

_FIND = Statement(text("SELECT machine, path, root_identity FROM stages WHERE mission_id = :mission"))
_KEEP = Statement(
    insert(stages).values(
        {name: bindparam(name) for name in ("mission_id", "machine", "path", "root_identity", "made_at")}
    )
)
_DROP = Statement(
    delete(stages).where(stages.c.mission_id == bindparam("mission"), stages.c.path == bindparam("at"))
)
_ALL_OVER = Statement(
    text(
        "SELECT s.mission_id, s.path FROM stages s JOIN missions m ON m.id = s.mission_id "
        f"WHERE s.machine = :machine AND {IS_OVER} ORDER BY s.mission_id"
    )
)
_PURPOSES = Statement(
    text(
        "SELECT j.id, j.kind, j.name, p.result FROM jobs j LEFT JOIN jobs p ON p.id = j.parent_id WHERE j.id IN "
        "(SELECT job_id FROM changes WHERE mission_id = :mission AND staged IS NOT NULL)"
    )
)
# A merge that was taken back has left the file as it was before.
_MERGED = Statement(
    text(
        "SELECT c.path, c.id, c.sha256_after FROM changes c JOIN jobs j ON j.id = c.job_id "
        "WHERE c.mission_id = :mission AND c.mode = 'merge' AND c.state = 'applied' AND j.state = 'succeeded' "
        "AND NOT EXISTS (SELECT 1 FROM changes u WHERE u.undoes = c.id AND u.state = 'applied') ORDER BY c.id"
    )
)
_KINDS = Statement(
    text(
        "SELECT id, kind FROM jobs WHERE id IN "
        "(SELECT job_id FROM changes WHERE mission_id = :mission AND staged IS NOT NULL) ORDER BY id"
    )
)
_ENDED = Statement(text("SELECT status FROM missions WHERE id = :mission AND ended_at IS NOT NULL"))
_MERGING = Statement(
    text(
        "SELECT 1 FROM jobs j WHERE j.id = :job AND (j.state = 'running' OR EXISTS "
        "(SELECT 1 FROM changes c WHERE c.job_id = j.id AND c.state = 'intent'))"
    )
)
_MISSIONS = Statement(text("SELECT mission_id FROM stages WHERE machine = :machine"))


@dataclass(frozen=True)
class StageRow:
    """The stage of a mission: on which machine it is, where, and which directory."""

    mission_id: int
    machine: str
    path: str
    identity: str

    @property
    def known(self) -> KnownRoot:
        """The stage as a root."""
        return KnownRoot(self.mission_id, self.path, RootIdentity.read(self.identity))


def stage_of(tx: Tx, mission_id: int) -> StageRow | None:
    """The stage that a mission works in; None if it has none, or none yet."""
    row = tx.row(_FIND, mission=mission_id)
    return None if row is None else StageRow(mission_id, *map(str, row))


def purposes(tx: Tx, mission_id: int) -> dict[int, str]:
    """Purpose of each job that changed the stage of a mission: its name, else what the planner said with it."""
    found: dict[int, str] = {}
    for job_id, kind, name, said in tx.rows(_PURPOSES, mission=mission_id):
        words = name or (from_json(said).get("commentary") if said else None)
        found[int(job_id)] = f"job {job_id}, {kind}{f': {words}' if words else ''}"
    return found


def merged_from_stage(tx: Tx, mission_id: int) -> dict[str, tuple[int, str | None]]:
    """The last change by which a merge of a mission changed each path: its id, and the hash that the file got."""
    return {path: (change, after) for path, change, after in tx.rows(_MERGED, mission=mission_id)}


def kinds_in_stage(tx: Tx, mission_id: int) -> dict[int, str]:
    """The kind of each job that changed the stage of a mission."""
    return {int(job_id): str(kind) for job_id, kind in tx.rows(_KINDS, mission=mission_id)}


def is_merging(tx: Tx, job_id: int) -> bool:
    """True if a merge runs, or what it decided is still to be carried out."""
    return tx.row(_MERGING, job=job_id) is not None


def ended_as(tx: Tx, mission_id: int) -> str | None:
    """The status of a mission that has ended; None for one that goes on."""
    row = tx.row(_ENDED, mission=mission_id)
    return None if row is None else str(row[0])


def keep_stage(tx: Tx, stage: StageRow) -> None:
    """Record a stage that was made."""
    tx.run(
        _KEEP,
        mission_id=stage.mission_id,
        machine=stage.machine,
        path=stage.path,
        root_identity=stage.identity,
        made_at=tx.now,
    )


def stages_over(tx: Tx, machine: str) -> Sequence[tuple[int, str]]:
    """The stages on a machine that no mission needs any more: each mission, and the path."""
    return [(int(row[0]), str(row[1])) for row in tx.rows(_ALL_OVER, machine=machine)]


def drop_stage(tx: Tx, mission_id: int, path: str) -> bool:
    """Forget a stage, unless its mission was resumed meanwhile."""
    return is_over(tx, mission_id) and tx.run(_DROP, mission=mission_id, at=path) == 1


def forget_stage(tx: Tx, mission_id: int, path: str) -> None:
    """Forget a stage in which nothing has been changed, so that another one is made."""
    tx.run(_DROP, mission=mission_id, at=path)


def staged_missions(tx: Tx, machine: str) -> frozenset[int]:
    """The missions that have a stage on a machine."""
    return frozenset(int(row[0]) for row in tx.rows(_MISSIONS, machine=machine))
